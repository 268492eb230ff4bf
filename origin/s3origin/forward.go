package s3origin

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// Forward sends a client's request to the origin, re-signed with the origin's credentials, body streamed, and returns
// the origin's answer with its body unread; the caller closes it. bucket "" is the service itself; rawKey is the
// percent-encoded key exactly as the client spelled it, "" for the bucket.
//
// From r are used: Method, URL.RawQuery, Header, Body, ContentLength. r is not changed, but its Body is read and
// closed, and may still be while the answer is: an origin may answer before it has read a body. Close the answer's
// body before giving r back.
//
// The query keeps its order and bytes, less the client's own authentication. Headers go through end to end, less the
// client's authentication, Host, X-Forwarded-*, and the X-Ashlar-* that cluster processes speak among themselves; those
// are stripped from the answer too. The body's hash that the client declared in x-amz-content-sha256 is signed, so that
// the origin checks it; without one an empty body is signed as such, and another goes unsigned. Redirects are returned,
// not followed; "Expect: 100-continue" waits for the origin's word for up to a second.
//
// Forward is bounded by ctx and connecting alone; a cause of ctx that wraps origin.ErrTimeout is what it returns then.
// Errors are as for Get, but for an answer of whatever status, which is none unless it is about our signature. They may
// also be those of reading r.Body.
func (o *Origin) Forward(ctx context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
	req := &http.Request{Method: r.Method, Header: forwardHeader(r.Header), ContentLength: r.ContentLength}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		req.Body = r.Body
	}
	h := req.Header
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or net/http would add its own
	}
	if o.via != "" {
		h["Via"] = append(h["Via"], o.via)
	}
	if _, ok := h["X-Amz-Content-Sha256"]; !ok && o.creds != nil {
		h["X-Amz-Content-Sha256"] = []string{emptyHash}
		if req.Body != nil {
			h["X-Amz-Content-Sha256"] = []string{unsignedPayload}
		}
	}
	query, params := forwardQuery(r.URL.RawQuery)

	c := o.start(ctx, opForward)
	resp, err := c.send(req, bucket, rawKey, query, params)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the transport may not have come that far
		}
		return nil, c.fail(err)
	}
	if err := c.screen(resp); err != nil {
		return nil, err
	}
	for name := range resp.Header {
		if strings.HasPrefix(name, "X-Ashlar-") {
			delete(resp.Header, name)
		}
	}
	dropHopByHop(resp.Header)
	return resp, nil
}

// forwardHeader returns the headers of a client's request that go on to the origin, in slices of their own.
func forwardHeader(from http.Header) http.Header {
	h := make(http.Header, len(from)+6)
	for name, values := range from {
		switch name {
		case "Authorization", "X-Amz-Date", "X-Amz-Security-Token", "Host", "Content-Length", "Forwarded":
			continue
		}
		if strings.HasPrefix(name, "X-Ashlar-") || strings.HasPrefix(name, "X-Forwarded-") {
			continue
		}
		h[name] = slices.Clone(values)
	}
	dropHopByHop(h)
	return h
}

// dropHopByHop removes the headers that are about one connection (RFC 9110 section 7.6.1).
func dropHopByHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			// What gives a request its meaning is never about one connection, and may have been signed.
			if !strings.HasPrefix(name, "X-Amz-") && !strings.HasPrefix(name, "Content-") && !strings.HasPrefix(name, "If-") {
				delete(h, name)
			}
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	} {
		delete(h, name)
	}
}

// forwardQuery cuts the client's authentication out of a query, and returns the rest as it came and parsed.
func forwardQuery(raw string) (query string, params []param) {
	cut := false
	for _, p := range parseQuery(raw) {
		if queryAuth(p.name) {
			cut = true
			continue
		}
		params = append(params, p)
	}
	if !cut {
		return raw, params
	}
	parts := make([]string, len(params))
	for i, p := range params {
		parts[i] = p.raw
	}
	return strings.Join(parts, "&"), params
}

// queryAuth says whether a parameter is a presigned URL's authentication (S3 documentation, "Authenticating requests:
// using query parameters"). Servers differ in minding the case.
func queryAuth(name string) bool {
	switch strings.ToLower(name) {
	case "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-signedheaders", "x-amz-signature",
		"x-amz-security-token", "x-amz-content-sha256":
		return true
	}
	return false
}
