// Package sigv4 verifies AWS Signature Version 4 on requests to an S3 server, in the Authorization header and in the
// query (presigned URLs). A request passes only if the holder of the secret key signed exactly this method, path, query,
// host, signed headers and declaration of the body, for this region, at about this time; everything else, whatever cannot
// be parsed included, is refused with the error that S3 gives. Nothing is normalised: two paths that differ after one
// percent-decoding are two paths.
//
// The body itself is not read here: Identity says what the client declared of it, and has what is needed to check it as
// it streams.
package sigv4

import (
	"fmt"
	"net/http"
)

// Config says whose signatures count. It is copied by New.
type Config struct {
	// Region that the scope of a request must name; "" accepts any.
	Region string
	// Service that the scope of a request must name; "" means "s3".
	Service string
	// Lookup returns the secret of an access key, the session token that requests of it must carry ("" = none), and
	// whether the key exists. It is called once per request, from many goroutines, and must be quick. A nil Lookup and an
	// empty secret refuse: no key is then known.
	Lookup func(accessKey string) (secret, sessionToken string, ok bool)
}

// Payload is what a client declared of the body of its request, in x-amz-content-sha256.
type Payload uint8

const (
	// PayloadUnsigned is UNSIGNED-PAYLOAD: the signature says nothing of the body.
	PayloadUnsigned Payload = iota
	// PayloadHash is a literal SHA-256 of the body, in Identity.Hash. The signature is worth nothing for the body until
	// that hash has been compared.
	PayloadHash
	// PayloadStreaming is STREAMING-AWS4-HMAC-SHA256-PAYLOAD: an aws-chunked body, each chunk signed.
	PayloadStreaming
	// PayloadStreamingTrailer is STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER: signed chunks and a signed trailer.
	PayloadStreamingTrailer
	// PayloadStreamingUnsignedTrailer is STREAMING-UNSIGNED-PAYLOAD-TRAILER: an aws-chunked body with an unsigned trailer.
	PayloadStreamingUnsignedTrailer
)

// Chunked says whether the body has aws-chunked framing.
func (p Payload) Chunked() bool { return p >= PayloadStreaming }

// Identity is who signed a request, and what they said of its body. Its strings are parts of the request's.
type Identity struct {
	AccessKey string
	Presigned bool // signed in the query

	Payload Payload
	Hash    string // SHA-256 in 64 lower-case hex digits where Payload is PayloadHash, else ""

	// What chunk signatures are computed from: the seed signature (64 lower-case hex digits), the time of the request as
	// "20060102T150405Z", the scope as "20060102/region/service/aws4_request", and the derived signing key, which is secret.
	Signature  string
	Date       string
	Scope      string
	SigningKey [32]byte
}

// String leaves out all that must not be logged.
func (id Identity) String() string { return id.AccessKey }

// GoString does as String, for %#v.
func (id Identity) GoString() string { return fmt.Sprintf("sigv4.Identity{AccessKey:%q}", id.AccessKey) }

// Error is a refusal in S3's own words.
type Error struct {
	Status  int    // HTTP
	Code    string // "SignatureDoesNotMatch", …
	Message string // S3's text for the client
	// Fields are further XML elements, in order. Values are the client's own data and may hold any byte (escape them for
	// XML), signatures and session tokens included: never log them.
	Fields []Field
}

// Field is one XML element of an error.
type Field struct{ Name, Value string }

// Error returns code and message, without the fields.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	config Config
}

// New returns a Verifier.
func New(c Config) *Verifier {
	if c.Service == "" {
		c.Service = "s3"
	}
	return &Verifier{config: c}
}

// Verify says who signed r. The error is an *Error always; a request without any authentication gets 403 AccessDenied.
// r must be as net/http gave it to the handler, untouched: r.RequestURI is the raw target, r.Host is as received.
func (v *Verifier) Verify(r *http.Request) (Identity, error) {
	return Identity{}, &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access Denied"}
}

// Forget drops the derived keys, after keys have been reloaded. A changed secret counts at once without it; Forget only
// sees to it that what was derived from the old one leaves memory.
func (v *Verifier) Forget() {}
