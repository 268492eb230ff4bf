// Package sigv4 verifies AWS Signature Version 4 on requests to an S3 server, in the Authorization header and in the
// query (presigned URLs). A request passes only if the holder of the secret key signed exactly this method, path,
// query, host, signed headers and declaration of the body, for this region, at about this time; everything else,
// whatever cannot be parsed included, is refused with the error that S3 gives. Nothing is normalised: two paths that
// differ after one percent-decoding are two paths.
//
// The body itself is not read here: Identity says what the client declared of it, and has what is needed to check it as
// it streams.
package sigv4

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Config says whose signatures count. It is copied by New.
type Config struct {
	// Region that the scope of a request must name; "" accepts any.
	Region string
	// Service that the scope of a request must name; "" means "s3".
	Service string
	// Lookup returns the secret of an access key, the session token that requests of it must carry ("" = none), and
	// whether the key exists. It is called once per request, from many goroutines, and must be quick. A nil Lookup and
	// an empty secret refuse: no key is then known.
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
	// PayloadStreamingUnsignedTrailer is STREAMING-UNSIGNED-PAYLOAD-TRAILER: an aws-chunked body with an unsigned
	// trailer.
	PayloadStreamingUnsignedTrailer
)

// Chunked says whether the body has aws-chunked framing.
func (p Payload) Chunked() bool { return p >= PayloadStreaming }

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	streaming       = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamingECDSA  = "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" // SigV4A, also with the suffix -TRAILER
)

// parsePayload parses a value of x-amz-content-sha256.
func parsePayload(s string) (p Payload, hash string, _ *Error) {
	switch s {
	case unsignedPayload:
		return PayloadUnsigned, "", nil
	case streaming:
		return PayloadStreaming, "", nil
	case streaming + "-TRAILER":
		return PayloadStreamingTrailer, "", nil
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		return PayloadStreamingUnsignedTrailer, "", nil
	case streamingECDSA, streamingECDSA + "-TRAILER":
		return 0, "", errSigV4A()
	}
	if len(s) != 2*sha256.Size {
		return 0, "", errContentSHA256(s)
	}
	lower := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
		case 'A' <= c && c <= 'F':
			lower = false
		default:
			return 0, "", errContentSHA256(s)
		}
	}
	if !lower {
		s = strings.ToLower(s)
	}
	return PayloadHash, s, nil
}

// Identity is who signed a request, and what they said of its body. Its strings are parts of the request's.
type Identity struct {
	AccessKey string
	Presigned bool // signed in the query

	SignedHeaders string // names in lower case, joined by ';': the signature says nothing of the others

	Payload Payload
	Hash    string // SHA-256 in 64 lower-case hex digits where Payload is PayloadHash, else ""

	// What chunk signatures are computed from: the seed signature (64 lower-case hex digits), the time of the request
	// as "20060102T150405Z", the scope as "20060102/region/service/aws4_request", and the derived signing key, which is
	// secret.
	Signature  string `json:"-"`
	Date       string
	Scope      string
	SigningKey [32]byte `json:"-"`
}

// String leaves out all that must not be logged.
func (id Identity) String() string { return id.AccessKey }

// GoString does as String, for %#v.
func (id Identity) GoString() string {
	return fmt.Sprintf("sigv4.Identity{AccessKey:%q}", id.AccessKey)
}

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	config Config
	keys   keyCache
}

// New returns a Verifier.
func New(c Config) *Verifier {
	if c.Service == "" {
		c.Service = "s3"
	}
	return &Verifier{config: c}
}
