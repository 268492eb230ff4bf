package devs3

import (
	"errors"
	"net/http"

	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// authenticator decides who may ask at all.
type authenticator struct {
	verifier      *sigv4.Verifier // nil for an anonymous server
	anonymousRead bool
}

func newAuthenticator(cfg Config) authenticator {
	a := authenticator{anonymousRead: cfg.AnonymousRead}
	if len(cfg.Keys) == 0 {
		return a
	}
	keys := cfg.Keys
	a.verifier = sigv4.New(sigv4.Config{Region: cfg.Region, Lookup: func(accessKey string) (string, string, bool) {
		secret, ok := keys[accessKey]
		return secret, "", ok
	}})
	return a
}

// authenticate says who asks, and sets how the call's body is to be read.
func (a authenticator) authenticate(c *call) error {
	c.signed = sigv4.HasAuth(c.r)
	var id sigv4.Identity
	if a.verifier != nil && (c.signed || !a.anonymousRead || !c.reading()) {
		var err error
		if id, err = a.verifier.Verify(c.r); err != nil {
			return authError(err)
		}
	}
	said := c.r.Header.Get("X-Amz-Content-Sha256")
	if said == "" {
		said = c.query.get("X-Amz-Content-Sha256")
	}
	var err error
	if c.payload, err = parsePayload(said); err != nil {
		return err
	}
	if a.verifier != nil && c.payload.chunked() && c.payload.kind != payloadUnsignedTrailer {
		c.payload.seed = &chunkSeed{id.Signature, id.Date, id.Scope, id.SigningKey[:]}
	}
	return nil
}

// reading says whether a request may be anonymous where anonymous reading is allowed.
func (c *call) reading() bool {
	switch c.op {
	case opGetObject, opHeadObject, "ListObjects", "ListObjectsV2", "HeadBucket", "GetBucketLocation":
		return true
	}
	return c.op == "" && c.r.Method == http.MethodGet
}

// authError makes an answer of a refusal of the verifier.
func authError(err error) error {
	var refused *sigv4.Error
	if !errors.As(err, &refused) {
		return err
	}
	e := newError(refused.Status, refused.Code, refused.Message)
	for _, f := range refused.Fields {
		e.with(f.Name, f.Value)
	}
	return e
}
