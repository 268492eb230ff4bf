package s3api

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ashlar-s3/ashlar/s3api/awschunked"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// The body of a request streams to the origin as it comes, but for its end: the last byte, or the trailer, is sent only
// when all that the client said of the body was found true. Until then the origin has a request that is not complete,
// and when something is wrong it never will be: the connection to it is cut, and it stores nothing.

const (
	unsignedPayload        = "UNSIGNED-PAYLOAD"
	unsignedTrailerPayload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// upload is the body of a request. The transport reads it, possibly for a little longer than Forward takes.
type upload struct {
	body   io.ReadCloser // the client's
	in     io.Reader     // decoded
	checks []check
	sums   []io.Writer // of checks, without repetitions
	trails *checksum   // of checks, the one that follows the body; nil for none
	value  func() string
	held   byte // the last byte that was read, kept back
	holds  bool // held is one
	holdOn bool // keep the last byte back; not where a trailer is

	// Read by the handler while the transport may be reading the body.
	failure  atomic.Pointer[Error] // what the client did wrong
	verified atomic.Bool           // all of the body has come and was right; false while the origin's request is incomplete

	seen func([]byte) // gets the bytes as they come; nil for nobody
}

// check is one thing the client said of the bytes of a body.
type check struct {
	sum  hash.Hash             // nil: any value that can be one is right
	want func() (string, bool) // known when the body has ended; false is a value that can't be one
	text func([]byte) string   // of a sum
	fail func(want, got string) *Error
}

// prepareUpload makes r, a copy of the client's request, fit to be forwarded: r.Body is the upload, its framing is
// removed or replaced, and headers say so. The result is nil for a request without a body.
func (x *exchange) prepareUpload(r *http.Request) (*upload, error) {
	length := r.ContentLength
	payload, hash := x.payload(r.Header)
	chunked := payload.Chunked()
	if (chunked || x.amz.chunked) && x.op.level == atBucket && x.op.drops != dropsListed {
		return nil, invalidRequest("The value of x-amz-content-sha256 header is invalid.") // configuration has no such form
	}
	if x.amz.chunked && !chunked {
		if payload == sigv4.PayloadHash {
			return nil, invalidRequest("A body in aws-chunked encoding can't have its SHA-256 in x-amz-content-sha256.")
		}
		// Some clients sign such bodies as UNSIGNED-PAYLOAD. They are framed all the same, and never stored as they are.
		chunked, payload = true, sigv4.PayloadStreamingUnsignedTrailer
	}
	if chunked {
		n, err := strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || n < 0 || len(r.Header["X-Amz-Decoded-Content-Length"]) != 1 {
			return nil, errMissingLength
		}
		length = n
	}
	if length < 0 {
		return nil, errMissingLength
	}
	if !chunked && (r.Body == nil || r.Body == http.NoBody || length == 0) {
		r.Body = http.NoBody
		return nil, x.checkEmpty(r.Header, payload, hash)
	}

	u := &upload{body: r.Body, in: r.Body, holdOn: true}
	header := r.Header.Clone()
	if payload == sigv4.PayloadHash {
		// Of a presigned request it may be in the query, where the origin doesn't get it.
		header.Set("X-Amz-Content-Sha256", hash)
	}
	trailer, err := u.expect(x, header, payload, hash)
	if err != nil {
		return nil, err
	}
	if chunked {
		c := awschunked.Config{Length: length}
		if payload != sigv4.PayloadStreamingUnsignedTrailer {
			id := x.who.signature
			if id.Signature == "" {
				return nil, invalidRequest("Signed chunks need a signed request.")
			}
			c.Signing = &awschunked.Signing{Key: id.SigningKey, Date: id.Date, Scope: id.Scope, Seed: id.Signature}
		}
		if trailer != nil {
			c.Trailer = trailer.trailer()
		}
		decoder := awschunked.NewReader(r.Body, c)
		u.in = decoder
		if trailer != nil {
			u.expectTrailer(trailer, decoder.Trailer)
		}
		unframe(header)
	}
	r.Header, r.Body, r.ContentLength, r.TransferEncoding = header, u, length, nil
	switch {
	case trailer != nil:
		u.holdOn = false // the trailer is what is held back
		r.Body = readCloser{awschunked.NewEncoder(u, trailer.trailer(), u.value), u}
		r.ContentLength = awschunked.EncodedLen(length, trailer.trailer(), trailer.encodedLen())
		header.Set("X-Amz-Content-Sha256", unsignedTrailerPayload)
		header.Set("X-Amz-Decoded-Content-Length", formatInt(length))
		header.Set("X-Amz-Trailer", trailer.trailer())
		header["Content-Encoding"] = append([]string{"aws-chunked"}, header["Content-Encoding"]...)
	case chunked:
		header.Set("X-Amz-Content-Sha256", unsignedPayload)
	}
	if length == 0 && trailer == nil {
		// There is no byte to hold back: it must be right before anything is sent.
		if _, err := io.Copy(io.Discard, u); err != nil {
			return nil, err
		}
		r.Body = http.NoBody
	}
	return u, nil
}

// payload is what the request says of its body in x-amz-content-sha256: as it was signed, or where nothing is signed as
// the header has it.
func (x *exchange) payload(h http.Header) (sigv4.Payload, string) {
	if x.who.accessKey != "" {
		return x.who.signature.Payload, x.who.signature.Hash
	}
	switch v := h.Get("X-Amz-Content-Sha256"); {
	case strings.HasPrefix(v, "STREAMING-UNSIGNED-"):
		return sigv4.PayloadStreamingUnsignedTrailer, ""
	case strings.HasPrefix(v, "STREAMING-"):
		return sigv4.PayloadStreaming, ""
	case len(v) == 64:
		return sigv4.PayloadHash, strings.ToLower(v)
	}
	return sigv4.PayloadUnsigned, ""
}

// checkEmpty holds a body that is not there against what the client said of it.
func (x *exchange) checkEmpty(h http.Header, payload sigv4.Payload, hash string) error {
	u := &upload{in: strings.NewReader(""), holdOn: true}
	if _, err := u.expect(x, h, payload, hash); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, u)
	return err
}

// expect notes what the headers say of the body, and returns the checksum that will follow it, nil for none.
func (u *upload) expect(x *exchange, h http.Header, payload sigv4.Payload, hash string) (trailer *checksum, err error) {
	if payload == sigv4.PayloadHash {
		u.add(check{sum: sha256.New(), want: known(hash), text: hex.EncodeToString, fail: errContentHash})
	}
	if v := h["Content-Md5"]; len(v) > 0 {
		if raw, err := base64.StdEncoding.DecodeString(v[0]); err != nil || len(raw) != md5.Size || len(v) > 1 {
			return nil, &Error{Status: 400, Code: "InvalidDigest", Message: "The Content-Md5 you specified is not valid.",
				Fields: []sigv4.Field{{Name: "Content-MD5", Value: v[0]}}}
		}
		u.add(check{sum: md5.New(), want: known(v[0]), text: base64.StdEncoding.EncodeToString, fail: errMD5})
	}
	if x.op.name == "CompleteMultipartUpload" {
		return nil, nil // its checksums are those of the object
	}
	var found []*checksum // one line of the header or the trailer each
	header := 0
	for i := range x.h.checksums {
		c := &x.h.checksums[i]
		for range h[c.header] {
			found = append(found, c)
			header++
		}
	}
	for _, line := range h["X-Amz-Trailer"] {
		i := slices.IndexFunc(x.h.checksums, func(c checksum) bool {
			return strings.EqualFold(c.header, strings.TrimSpace(line))
		})
		if i < 0 {
			return nil, invalidRequest("The value specified in the x-amz-trailer header is not supported")
		}
		trailer = &x.h.checksums[i]
		found = append(found, trailer)
	}
	switch said := h.Get("X-Amz-Sdk-Checksum-Algorithm"); {
	case len(found) > 1:
		return nil, invalidRequest("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
	case said != "" && len(found) == 1 && !strings.EqualFold(said, found[0].name):
		return nil, invalidRequest("Value for x-amz-sdk-checksum-algorithm header is invalid.")
	case header == 1:
		c, value := found[0], h.Get(found[0].header)
		if !c.valid(value) {
			return nil, invalidRequest("Value for " + c.trailer() + " header is invalid.")
		}
		u.addChecksum(c, known(value))
	}
	switch {
	case trailer != nil && !x.amz.chunked, trailer != nil && payload == sigv4.PayloadStreaming:
		return nil, invalidRequest("A trailer needs a body in aws-chunked encoding that is signed as having one.")
	case trailer == nil && payload == sigv4.PayloadStreamingTrailer:
		return nil, errTrailer(errors.New("no x-amz-trailer"))
	}
	return trailer, nil
}

// expectTrailer notes the checksum that follows the body.
func (u *upload) expectTrailer(c *checksum, value func() string) {
	u.trails, u.value = c, value
	u.addChecksum(c, func() (string, bool) { return value(), c.valid(value()) })
}

// addChecksum adds a checksum of S3's. Of one that can't be computed only the form of its value is checked.
func (u *upload) addChecksum(c *checksum, want func() (string, bool)) {
	if c.new == nil {
		u.checks = append(u.checks, check{want: want, fail: errChecksum(c)})
		return
	}
	u.add(check{sum: c.new(), want: want, text: base64.StdEncoding.EncodeToString, fail: errChecksum(c)})
}

func (u *upload) add(c check) {
	u.checks = append(u.checks, c)
	u.sums = append(u.sums, c.sum)
}

func known(v string) func() (string, bool) { return func() (string, bool) { return v, true } }

// Read returns the bytes that the origin is to store. io.EOF says that everything about them was right.
func (u *upload) Read(p []byte) (int, error) {
	if u.failure.Load() != nil {
		return 0, io.ErrUnexpectedEOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := u.in.Read(p)
	for _, s := range u.sums {
		_, _ = s.Write(p[:n])
	}
	if u.seen != nil && n > 0 {
		u.seen(p[:n])
	}
	if err == io.EOF {
		if refusal := u.verify(); refusal != nil {
			u.failure.Store(refusal)
			return 0, refusal
		}
		u.verified.Store(true)
		return u.release(p, n)
	}
	if err != nil {
		u.failure.Store(bodyError(err))
		return 0, err
	}
	if !u.holdOn || n == 0 {
		return n, nil
	}
	last := p[n-1]
	if u.holds {
		copy(p[1:n], p[:n-1])
		p[0] = u.held
	} else {
		n--
	}
	u.held, u.holds = last, true
	return n, nil
}

// release returns the last bytes, the one that was held back among them.
func (u *upload) release(p []byte, n int) (int, error) {
	if !u.holds {
		return n, io.EOF
	}
	if n == len(p) { // no room for one more: this byte becomes the one held, for the next time
		last := p[n-1]
		copy(p[1:n], p[:n-1])
		p[0], u.held = u.held, last
		u.in = strings.NewReader("")
		u.checks, u.sums, u.seen = nil, nil, nil
		return n, nil
	}
	copy(p[1:n+1], p[:n])
	p[0], u.holds = u.held, false
	u.checks, u.sums, u.in = nil, nil, strings.NewReader("")
	return n + 1, nil
}

// verify compares what the client said with what came.
func (u *upload) verify() *Error {
	for _, c := range u.checks {
		want, ok := c.want()
		got := want
		if c.sum != nil {
			got = c.text(c.sum.Sum(nil))
		}
		if !ok || want != got {
			return c.fail(want, got)
		}
	}
	return nil
}

// slurp reads a body of up to limit bytes, all of it, and makes r carry it as it is: a checksum that followed it
// becomes a header.
func (u *upload) slurp(r *http.Request, limit int64) ([]byte, error) {
	if u == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(u, limit+1))
	switch refusal := u.refusal(); {
	case refusal != nil:
		return nil, refusal
	case err != nil:
		return nil, err
	case int64(len(body)) > limit:
		return nil, errMalformedXML
	}
	if u.trails != nil {
		unframe(r.Header)
		r.Header.Set(u.trails.header, u.value())
		r.Header.Set("X-Amz-Content-Sha256", unsignedPayload)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return body, nil
}

// complete says whether an origin can have got all of the body: nil for none is complete.
func (u *upload) complete() bool { return u == nil || u.verified.Load() }

// Close closes the client's body.
func (u *upload) Close() error {
	if u.body == nil {
		return nil
	}
	return u.body.Close()
}

// refusal is what the client did wrong, nil for nothing.
func (u *upload) refusal() *Error {
	if u == nil {
		return nil
	}
	return u.failure.Load()
}

// readCloser reads from one and closes the other.
type readCloser struct {
	io.Reader
	io.Closer
}

// unframe takes out the headers that are about the framing of the body and not the object.
func unframe(h http.Header) {
	delete(h, "X-Amz-Decoded-Content-Length")
	delete(h, "X-Amz-Trailer")
	var kept []string
	for _, line := range h["Content-Encoding"] {
		var tokens []string
		for token := range strings.SplitSeq(line, ",") {
			if t := strings.TrimSpace(token); t != "" && !isChunked(t) {
				tokens = append(tokens, t)
			}
		}
		if len(tokens) > 0 {
			kept = append(kept, strings.Join(tokens, ", "))
		}
	}
	if kept == nil {
		delete(h, "Content-Encoding")
		return
	}
	h["Content-Encoding"] = kept
}

var errMissingLength = &Error{Status: 411, Code: "MissingContentLength",
	Message: "You must provide the Content-Length HTTP header."}

func invalidRequest(message string) *Error {
	return &Error{Status: 400, Code: "InvalidRequest", Message: message}
}

func errTrailer(cause error) *Error {
	return &Error{Status: 400, Code: "MalformedTrailerError", Cause: cause,
		Message: "The request contained trailing data that was not well-formed or did not conform to our published schema."}
}

func errContentHash(want, got string) *Error {
	return &Error{Status: 400, Code: "XAmzContentSHA256Mismatch",
		Message: "The provided 'x-amz-content-sha256' header does not match what was computed.",
		Fields: []sigv4.Field{
			{Name: "ClientComputedContentSHA256", Value: want}, {Name: "S3ComputedContentSHA256", Value: got},
		}}
}

func errMD5(want, got string) *Error {
	return &Error{Status: 400, Code: "BadDigest", Message: "The Content-MD5 you specified did not match what we received.",
		Fields: []sigv4.Field{{Name: "ExpectedDigest", Value: hexOf(want)}, {Name: "CalculatedDigest", Value: got}}}
}

// hexOf is in hex what is base64: S3 tells one digest in the one and one in the other.
func hexOf(value string) string {
	raw, _ := base64.StdEncoding.DecodeString(value) // it was decoded before
	return hex.EncodeToString(raw)
}

func errChecksum(c *checksum) func(want, got string) *Error {
	return func(want, _ string) *Error {
		if !c.valid(want) {
			return invalidRequest("Value for " + c.trailer() + " trailing header is invalid.")
		}
		return &Error{Status: 400, Code: "BadDigest",
			Message: "The " + c.name + " you specified did not match the calculated checksum."}
	}
}

// bodyError says in S3's words what broke in the client's body.
func bodyError(err error) *Error {
	var size *awschunked.ChunkSizeError
	switch {
	case errors.Is(err, awschunked.ErrSignature):
		return &Error{Status: 403, Code: "SignatureDoesNotMatch", Cause: err, Message: "The request signature we " +
			"calculated does not match the signature you provided. Check your key and signing method."}
	case errors.Is(err, awschunked.ErrTrailer):
		return errTrailer(err)
	case errors.As(err, &size):
		return &Error{Status: 400, Code: "InvalidChunkSizeError", Cause: err,
			Message: "Only the last chunk is allowed to have a size less than 8192 bytes",
			Fields: []sigv4.Field{
				{Name: "Chunk", Value: strconv.Itoa(size.Chunk)}, {Name: "BadChunkSize", Value: formatInt(size.Size)},
			}}
	}
	message := errIncompleteBody.Message
	if errors.Is(err, awschunked.ErrFraming) {
		message = "The request body terminated unexpectedly" // S3 says so of all that is malformed
	}
	return &Error{Status: errIncompleteBody.Status, Code: errIncompleteBody.Code, Message: message,
		Cause: fmt.Errorf("reading the client's body: %w", err)}
}
