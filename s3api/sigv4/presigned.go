package sigv4

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxExpires is the longest life of a presigned request, in seconds: seven days.
	maxExpires = 7 * 24 * 60 * 60

	paramSignature = "X-Amz-Signature"
)

// queryAuth is the parameters of a query that are about authentication, decoded.
type queryAuth struct {
	algorithm, credential, date, expires, signedHeaders, signature param

	token, contentSHA256 param // optional

	v2       bool // one of SigV2's is there
	repeated bool // one of the above is there twice
}

// param is a parameter that may be absent.
type param struct {
	value string
	set   bool
}

// v4 says whether the query claims to carry a signature. The other parameters alone do not.
func (q *queryAuth) v4() bool { return q.algorithm.set || q.credential.set || q.signature.set }

// complete says whether all required parameters are there.
func (q *queryAuth) complete() bool {
	return q.algorithm.set && q.credential.set && q.date.set && q.expires.set && q.signedHeaders.set && q.signature.set
}

// field returns where the parameter called name goes, nil for one that is about something else.
func (q *queryAuth) field(name string) *param {
	switch name {
	case "X-Amz-Algorithm":
		return &q.algorithm
	case "X-Amz-Credential":
		return &q.credential
	case "X-Amz-Date":
		return &q.date
	case "X-Amz-Expires":
		return &q.expires
	case "X-Amz-SignedHeaders":
		return &q.signedHeaders
	case paramSignature:
		return &q.signature
	case "X-Amz-Security-Token":
		return &q.token
	case "X-Amz-Content-Sha256", "x-amz-content-sha256": // a header that signers move here in either spelling
		return &q.contentSHA256
	}
	return nil
}

// readQueryAuth finds the parameters that are about authentication, and refuses queries too long to look at.
func readQueryAuth(rawQuery string) (q queryAuth, _ *Error) {
	for n := 0; rawQuery != ""; {
		var rawName, rawValue string
		var ok bool
		if rawName, rawValue, rawQuery, ok = cutParam(rawQuery); !ok {
			continue
		}
		if n++; n > maxParams {
			return q, errTooLarge()
		}
		name, err := decode(rawName, queryPart)
		if err != nil {
			return q, errURI()
		}
		if name == "AWSAccessKeyId" || name == "Signature" {
			q.v2 = true
		}
		p := q.field(name)
		if p == nil {
			continue
		}
		q.repeated = q.repeated || p.set
		p.set = true
		if p.value, err = decode(rawValue, queryPart); err != nil {
			return q, errURI()
		}
	}
	return q, nil
}

// HasAuth says whether r carries any authentication: an Authorization header that is not empty, or parameters of SigV4
// or SigV2 in its query. A request without any is anonymous. A query that cannot be read counts as authentication, so
// that Verify gets to refuse it.
func HasAuth(r *http.Request) bool {
	for _, a := range r.Header["Authorization"] {
		if a != "" {
			return true
		}
	}
	_, rawQuery, _ := SplitTarget(r.RequestURI)
	q, err := readQueryAuth(rawQuery)
	return err != nil || q.v4() || q.v2
}

// readPresigned reads the signature of a presigned request (S3 API reference, "Authenticating Requests: Using Query
// Parameters").
func (v *Verifier) readPresigned(c *claim, q *queryAuth, r *http.Request, now time.Time) *Error {
	switch {
	case q.algorithm.value == algorithmECDSA:
		return errSigV4A()
	case !q.complete():
		return errQuery("Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, " +
			"X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.")
	case q.repeated:
		return errQuery("Each query-string authentication parameter may be given only once.")
	case q.algorithm.value != algorithm:
		return errQuery("X-Amz-Algorithm only supports \"" + algorithm + " and " + algorithmECDSA + "\"") // S3's words
	}
	c.signedHeaders, c.signature = q.signedHeaders.value, q.signature.value

	var ok bool
	if c.time, ok = parseTime(q.date.value); !ok {
		return errQuery("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
	}
	c.date = q.date.value
	expires, err := parseExpires(q.expires.value)
	if err != nil {
		return err
	}
	if err := v.readCredential(c, q.credential.value); err != nil {
		return err
	}
	// The life of the request counts from its own date, however long ago that is. Only a date ahead of us is subject to
	// the skew allowed between clocks.
	switch end := c.time.Add(expires); {
	case c.time.Sub(now) > maxSkew:
		return errNotYet(c, end, now)
	case now.After(end):
		return errExpired(expires, end, now)
	}

	// A presigned request says nothing of the body unless it says so: in the query, or in a header, which then has to
	// be signed as every x-amz-* header has to be.
	c.contentSHA256 = unsignedPayload
	if q.contentSHA256.set {
		c.contentSHA256 = q.contentSHA256.value
	} else if values := r.Header["X-Amz-Content-Sha256"]; len(values) > 0 {
		c.contentSHA256 = only(values)
	}
	c.token = q.token.value
	if !q.token.set {
		c.token = only(r.Header["X-Amz-Security-Token"])
	}
	return nil
}

// parseExpires parses X-Amz-Expires, a decimal number of seconds.
func parseExpires(s string) (time.Duration, *Error) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errQuery("X-Amz-Expires should be a number")
	}
	n, err := strconv.Atoi(s)
	switch {
	case s[0] == '-' && n != 0:
		return 0, errQuery("X-Amz-Expires must be non-negative")
	case err != nil || n > maxExpires:
		return 0, errQuery("X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires " +
			"must be less than 604800 seconds")
	}
	return time.Duration(n) * time.Second, nil
}
