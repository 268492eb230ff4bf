package s3origin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	emptyHash       = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	unsignedPayload = "UNSIGNED-PAYLOAD"
)

// sign adds the authentication headers to req, which is about to be sent with the given canonical path and query (see
// canonicalPath, canonicalQuery). X-Amz-Content-Sha256 must be set. Anonymous origins sign nothing.
//
// What is signed is a copy, for two reasons. The spelling of path and query that is signed is the canonical one, while
// req keeps its own. And of the headers only those are signed that SigV4 demands (S3 documentation, "Signature
// calculations for the Authorization header": host, content-type, x-amz-*) and Content-MD5: what a proxy on the way may
// rewrite, such as Via or Accept-Encoding, must not break the signature.
func (o *Origin) sign(ctx context.Context, req *http.Request, path, query string) error {
	if o.creds == nil {
		return nil
	}
	creds, err := o.creds.Retrieve(ctx)
	if err != nil {
		return &credentialsError{err}
	}
	if !creds.HasKeys() {
		return &credentialsError{errors.New("the provider returned empty ones")}
	}
	c := &http.Request{
		Method: req.Method,
		URL:    &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: "//" + req.URL.Host + path, RawQuery: query},
		Host:   req.URL.Host,
		Header: make(http.Header, 8),
	}
	for name, values := range req.Header {
		if name == "Content-Type" || name == "Content-Md5" || strings.HasPrefix(name, "X-Amz-") {
			c.Header[name] = values
		}
	}
	hash := c.Header["X-Amz-Content-Sha256"][0]
	if err := o.signer.SignHTTP(ctx, creds, c, hash, "s3", o.region, time.Now()); err != nil {
		return &credentialsError{err}
	}
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		if v := c.Header[name]; v != nil {
			req.Header[name] = v
		}
	}
	return nil
}
