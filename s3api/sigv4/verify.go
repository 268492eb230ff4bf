package sigv4

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

const (
	algorithm      = "AWS4-HMAC-SHA256"
	algorithmECDSA = "AWS4-ECDSA-P256-SHA256" // SigV4A
	terminator     = "aws4_request"
	timeFormat     = "20060102T150405Z"

	// maxSkew is how far the clocks of client and server may differ (S3: RequestTimeTooSkewed).
	maxSkew = 15 * time.Minute
)

// Bounds on the work that a request can ask for before its signature is known to be good. S3 takes 8 KiB of headers in
// all, so no client comes near them.
const (
	maxTarget        = 16 << 10 // bytes of the raw request target
	maxParams        = 1000     // parameters of a query
	maxCanonical     = 64 << 10 // bytes of the canonical request
	maxSignedHeaders = 512
	maxSignedBytes   = 16 << 10 // bytes of their list
	maxCredential    = 512      // bytes of Credential: access key and scope
)

// claim is what a request says of its own signature, in the Authorization header or in the query.
type claim struct {
	presigned bool

	accessKey string
	scope     string // "20060102/region/service/aws4_request", of which the next two are parts
	scopeDate string
	region    string

	date          string    // "20060102T150405Z"
	time          time.Time // the same
	signedHeaders string    // as received
	signature     string

	contentSHA256 string // x-amz-content-sha256, the last line of the canonical request
	token         string // session token, "" for none
}

// Verify says who signed r. The error is an *Error always; a request without any authentication gets 403 AccessDenied.
// r must be as net/http gave it to the handler, untouched: r.RequestURI is the raw target, r.Host is as received. The
// body is not read.
//
// Where net/http takes a header out of r.Header it is put together again: Host, Transfer-Encoding, Content-Length of a
// request without one, and Expect (HTTP/2). A signed Trailer header is not supported, its spelling is lost.
func (v *Verifier) Verify(r *http.Request) (Identity, error) {
	id, err := v.verify(r, time.Now())
	if err != nil {
		return Identity{}, err
	}
	return id, nil
}

// Forget drops the derived keys, after keys have been reloaded. A changed secret counts at once without it; Forget only
// sees to it that what was derived from the old one leaves memory.
func (v *Verifier) Forget() { v.keys.forget() }

func (v *Verifier) verify(r *http.Request, now time.Time) (Identity, *Error) {
	if len(r.RequestURI) > maxTarget {
		return Identity{}, errTooLarge()
	}
	rawPath, rawQuery, ok := SplitTarget(r.RequestURI)
	if !ok {
		return Identity{}, errURI()
	}
	var c claim
	if err := v.readClaim(&c, r, rawQuery, now); err != nil {
		return Identity{}, err
	}
	payload, hash, err := parsePayload(c.contentSHA256)
	if err != nil {
		return Identity{}, err
	}
	secret, token, ok := v.lookup(c.accessKey)
	if !ok {
		return Identity{}, errUnknownKey(c.accessKey)
	}
	if token == "" && c.token != "" {
		return Identity{}, errToken() // before the signature, as S3 has it: a stale token left over from other credentials
	}

	s := scratches.Get().(*scratch)
	defer s.release()
	if err := s.canonicalRequest(r, rawPath, rawQuery, &c); err != nil {
		return Identity{}, err
	}
	s.stringToSign(&c)

	id := keyID{accessKey: c.accessKey, date: c.scopeDate, region: c.region}
	key := v.keys.get(id, secret)
	known := key != nil
	if !known {
		key = deriveKey(secret, c.scopeDate, c.region, v.config.Service)
	}
	mac := key.sign(s.mac[:0], s.toSign)
	hex.Encode(s.want[:], mac)
	copy(s.got[:], c.signature)
	if len(c.signature) != len(s.got) || subtle.ConstantTimeCompare(s.want[:], s.got[:]) != 1 {
		return Identity{}, errMismatch(&c, s)
	}
	if !known {
		// Only a good signature gets a key into the cache, so nobody else can push keys out of it or learn from the
		// time of an answer whether a key is in use.
		v.keys.put(id, key)
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(c.token)) != 1 {
		return Identity{}, errToken()
	}
	return Identity{
		AccessKey:     c.accessKey,
		Presigned:     c.presigned,
		SignedHeaders: c.signedHeaders,
		Payload:       payload,
		Hash:          hash,
		Signature:     c.signature,
		Date:          c.date,
		Scope:         c.scope,
		SigningKey:    key.key,
	}, nil
}

// readClaim finds out how r is signed and reads it, up to and including all checks that need no secret.
func (v *Verifier) readClaim(c *claim, r *http.Request, rawQuery string, now time.Time) *Error {
	q, err := readQueryAuth(rawQuery)
	if err != nil {
		return err
	}
	header, inHeader := "", false
	if values := r.Header["Authorization"]; len(values) > 1 {
		return errTwoHeaders()
	} else if len(values) == 1 {
		header, inHeader = values[0], values[0] != ""
	}
	switch {
	case inHeader && (q.v4() || q.v2):
		return errBothForms()
	case q.v2:
		return errSigV2()
	case q.v4():
		c.presigned = true
		return v.readPresigned(c, &q, r, now)
	case inHeader:
		return v.readHeader(c, header, r, now)
	}
	return errAnonymous()
}

// lookup fails closed: a key without a secret does not exist.
func (v *Verifier) lookup(accessKey string) (secret, token string, ok bool) {
	if v.config.Lookup == nil {
		return "", "", false
	}
	secret, token, ok = v.config.Lookup(accessKey)
	return secret, token, ok && secret != ""
}

// scratch is the memory of one verification, pooled so that a good request allocates nothing.
type scratch struct {
	canonical []byte // the canonical request
	toSign    []byte // the string to sign
	encoded   []byte // names and values of the query, encoded, one after the other
	params    []span // where they are in it
	names     []string
	key       []byte // a header name as net/http spells it
	mac       [sha256.Size]byte
	want, got [2 * sha256.Size]byte // signatures
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) release() {
	clear(s.names) // they are parts of the request
	scratches.Put(s)
}

// stringToSign builds the string to sign from the canonical request.
func (s *scratch) stringToSign(c *claim) {
	sum := sha256.Sum256(s.canonical)
	b := append(s.toSign[:0], algorithm+"\n"...)
	b = append(b, c.date...)
	b = append(b, '\n')
	b = append(b, c.scope...)
	b = append(b, '\n')
	s.toSign = hex.AppendEncode(b, sum[:])
}
