package devs3

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
	"strconv"
	"strings"
)

// payloadKind is what x-amz-content-sha256 says of a body.
type payloadKind int

const (
	payloadUnsigned        payloadKind = iota // UNSIGNED-PAYLOAD, or nothing said
	payloadHash                               // the body's SHA-256
	payloadSigned                             // STREAMING-AWS4-HMAC-SHA256-PAYLOAD
	payloadSignedTrailer                      // STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER
	payloadUnsignedTrailer                    // STREAMING-UNSIGNED-PAYLOAD-TRAILER
)

// payload is how a request's body is to be read.
type payload struct {
	kind payloadKind
	hash string     // payloadHash: hex
	seed *chunkSeed // what chunk signatures are checked with; nil where signatures are not looked at
}

// parsePayload reads x-amz-content-sha256. Nothing else, Content-Encoding least of all, makes a body aws-chunked.
func parsePayload(value string) (payload, error) {
	switch value {
	case "", "UNSIGNED-PAYLOAD":
		return payload{kind: payloadUnsigned}, nil
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD":
		return payload{kind: payloadSigned}, nil
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER":
		return payload{kind: payloadSignedTrailer}, nil
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		return payload{kind: payloadUnsignedTrailer}, nil
	}
	if b, err := hex.DecodeString(value); err == nil && len(b) == sha256.Size {
		return payload{kind: payloadHash, hash: strings.ToLower(value)}, nil
	}
	return payload{}, errInvalidArgument("x-amz-content-sha256", value, "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "+
		"STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "+
		"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.")
}

func (p payload) chunked() bool { return p.kind >= payloadSigned }

// maxObject is the largest body of one PUT, in bytes (S3 user guide, "Uploading objects").
const maxObject = 5 << 30

// body reads a request's body and checks everything that was promised of it. Read returns io.EOF only after all checks
// have passed, and an *Error of S3 when one has failed: who stores bytes must not keep them before io.EOF.
type body struct {
	r    io.Reader
	want int64 // length without framing
	n    int64
	err  error // sticky

	md5     hash.Hash
	wantMD5 string // base64, "" for none

	sha     hash.Hash // nil unless the payload is a literal hash
	wantSHA string

	algorithm string    // of the checksum to keep, "" for none
	sum       hash.Hash // nil for none
	wantSum   string    // base64; "" for none, or for one in the trailer
	inTrailer string    // name of the trailer that brings it, "" for none
	chunks    *chunkReader
}

// openBody prepares to read the body. fallback is the checksum to compute when the request brings none, "" for none.
func (c *call) openBody(fallback string) (*body, error) {
	h := c.r.Header
	b := &body{r: c.r.Body, want: c.r.ContentLength, md5: md5.New(), wantMD5: h.Get("Content-Md5")}
	if raw, err := base64.StdEncoding.DecodeString(b.wantMD5); err != nil || b.wantMD5 != "" && len(raw) != md5.Size {
		return nil, newError(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified was invalid.").
			with("Content-MD5", b.wantMD5)
	}
	if c.payload.kind == payloadHash {
		b.sha, b.wantSHA = sha256.New(), c.payload.hash
	}
	if c.payload.chunked() {
		n, err := strconv.ParseInt(h.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || n < 0 {
			return nil, errMissingLength()
		}
		b.want = n
	}
	if b.want < 0 {
		return nil, errMissingLength()
	}
	if b.want > maxObject {
		return nil, newError(http.StatusBadRequest, "EntityTooLarge",
			"Your proposed upload exceeds the maximum allowed size").
			with("ProposedSize", fmt.Sprint(b.want)).with("MaxSizeAllowed", fmt.Sprint(int64(maxObject)))
	}
	if err := b.chooseChecksum(h, c.payload, fallback); err != nil {
		return nil, err
	}
	if c.payload.chunked() {
		b.chunks = newChunkReader(c.r.Body, c.payload, b.want, declaredTrailers(h))
		b.r = b.chunks
	}
	return b, nil
}

func errMissingLength() *Error {
	return newError(http.StatusLengthRequired, "MissingContentLength",
		"You must provide the Content-Length HTTP header.")
}

// declaredTrailers are the names in x-amz-trailer, in lower case.
func declaredTrailers(h http.Header) []string {
	var names []string
	for name := range strings.SplitSeq(strings.Join(h.Values("X-Amz-Trailer"), ","), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// chooseChecksum finds the one checksum that the request brings, in a header or a trailer.
func (b *body) chooseChecksum(h http.Header, p payload, fallback string) error {
	var found []algorithm
	for _, a := range algorithms() {
		v := h.Get(a.header())
		if v == "" {
			continue
		}
		if !a.validSum(v) {
			return errInvalidRequest("Value for " + strings.ToLower(a.header()) + " header is invalid.")
		}
		found, b.wantSum = append(found, a), v
	}
	for _, name := range declaredTrailers(h) {
		a, ok := algorithmOfHeader(name)
		if !ok || p.kind != payloadSignedTrailer && p.kind != payloadUnsignedTrailer {
			return errInvalidRequest("The value specified in the x-amz-trailer header is not supported")
		}
		found, b.inTrailer = append(found, a), name
	}
	if len(found) > 1 {
		return errInvalidRequest("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
	}
	if said := h.Get("X-Amz-Sdk-Checksum-Algorithm"); said != "" {
		a, ok := findAlgorithm(said)
		switch {
		case !ok:
			return errInvalidRequest("Checksum algorithm provided is unsupported. Please try again with any of the " +
				"valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
		case len(found) == 0:
			return errInvalidRequest("x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or " +
				"x-amz-trailer headers were found.")
		case a.name != found[0].name:
			return errInvalidRequest("Value for x-amz-sdk-checksum-algorithm header is invalid.")
		}
	}
	if len(found) == 0 {
		a, ok := findAlgorithm(fallback)
		if !ok {
			return nil
		}
		found = append(found, a)
	}
	b.algorithm, b.sum = found[0].name, found[0].new()
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	for _, h := range []hash.Hash{b.md5, b.sha, b.sum} {
		if h != nil {
			h.Write(p[:n])
		}
	}
	switch {
	case err == io.EOF:
		b.err = b.verify()
	case errors.Is(err, io.ErrUnexpectedEOF):
		b.err = errIncompleteBody()
	case err != nil:
		b.err = err
	}
	return n, b.err
}

func errIncompleteBody() *Error {
	return newError(http.StatusBadRequest, "IncompleteBody",
		"You did not provide the number of bytes specified by the Content-Length HTTP header")
}

// verify returns io.EOF when the body is what it was said to be.
func (b *body) verify() error {
	if b.n != b.want {
		return errIncompleteBody()
	}
	if b.sha != nil {
		if got := hex.EncodeToString(b.sha.Sum(nil)); got != b.wantSHA {
			return newError(http.StatusBadRequest, "XAmzContentSHA256Mismatch",
				"The provided 'x-amz-content-sha256' header does not match what was computed.").
				with("ClientComputedContentSHA256", b.wantSHA).with("S3ComputedContentSHA256", got)
		}
	}
	if got := base64Sum(b.md5); b.wantMD5 != "" && got != b.wantMD5 {
		return newError(http.StatusBadRequest, "BadDigest",
			"The Content-MD5 you specified did not match what we received.").
			with("ExpectedDigest", b.wantMD5).with("CalculatedDigest", got)
	}
	want := b.wantSum
	if b.inTrailer != "" {
		want = b.chunks.trailers[b.inTrailer]
		if a, _ := findAlgorithm(b.algorithm); !a.validSum(want) {
			return errInvalidRequest("Value for " + b.inTrailer + " trailing header is invalid.")
		}
	}
	if want != "" && base64Sum(b.sum) != want {
		return newError(http.StatusBadRequest, "BadDigest",
			"The "+b.algorithm+" you specified did not match the calculated checksum.")
	}
	return io.EOF
}

// etag is the ETag of the bytes read, with quotes. Valid after io.EOF.
func (b *body) etag() string { return `"` + hex.EncodeToString(b.md5.Sum(nil)) + `"` }

// checksums are those to be kept, nil for none. Valid after io.EOF.
func (b *body) checksums() map[string]string {
	if b.sum == nil {
		return nil
	}
	return map[string]string{b.algorithm: base64Sum(b.sum)}
}

// receive stores the request's body. On an error nothing of it is kept.
func (c *call) receive(fallback string) (content, *body, error) {
	in, err := c.openBody(fallback)
	if err != nil {
		return nil, nil, err
	}
	out, err := c.s.store.newBlob()
	if err != nil {
		return nil, nil, err
	}
	defer out.abort()
	buf := c.s.buffers.Get().(*[]byte)
	defer c.s.buffers.Put(buf)
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, in, *buf); err != nil {
		return nil, nil, err
	}
	data, err := out.commit()
	return data, in, err
}

// maxXML bounds the XML that requests bring, in bytes: a DeleteObjects of 1000 long keys fits.
const maxXML = 4 << 20

// readXML reads a body that is a document. digest demands a Content-MD5 or a checksum, as S3 does for DeleteObjects.
func (c *call) readXML(digest bool) ([]byte, error) {
	in, err := c.openBody("")
	if err != nil {
		return nil, err
	}
	if digest && in.wantMD5 == "" && in.sum == nil {
		return nil, errInvalidRequest("Missing required header for this request: Content-MD5")
	}
	if in.want > maxXML {
		return nil, newError(http.StatusBadRequest, "MaxMessageLengthExceeded", "Your request was too big.")
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(in)
	return b.Bytes(), err
}
