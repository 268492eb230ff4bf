// Package awschunked takes the framing off request bodies in aws-chunked encoding, and puts it on again. A Reader
// returns io.EOF only after all of the body has been seen and every signature, length and trailer in it was right, so
// whoever stores what it returns must not consider it complete before. Bytes of a signed chunk of up to 128 KiB, which
// is what clients send, come out only after its signature was found right; those of a larger one come out as they arrive.
//
// The encodings are those of the S3 API reference, "Signature calculations for the Authorization header: transferring
// payload in multiple chunks", and the same "with trailing headers".
package awschunked

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// Errors of a Reader, matched by errors.Is.
var (
	// ErrSignature: the signature of a chunk or of the trailer is not that of its contents.
	ErrSignature = errors.New("aws-chunked: signature does not match")
	// ErrFraming: the body is not in the encoding that it is said to be in.
	ErrFraming = errors.New("aws-chunked: malformed body")
	// ErrLength: the chunks have more or fewer bytes than was announced.
	ErrLength = errors.New("aws-chunked: decoded length differs from the one announced")
	// ErrTrailer: a trailer is missing, not announced, or malformed.
	ErrTrailer = errors.New("aws-chunked: malformed trailer")
)

// ChunkSizeError says that a chunk was too small to be followed by another one. S3 demands 8 KiB of all but the last.
type ChunkSizeError struct {
	Chunk int   // number of the other one, from 1
	Size  int64 // of the small one, in bytes
}

// Error implements error.
func (e *ChunkSizeError) Error() string {
	return fmt.Sprintf("aws-chunked: chunk %d follows one of %d bytes", e.Chunk, e.Size)
}

// Signing is what signatures of chunks are computed from: the request's own signature and what went into it.
type Signing struct {
	Key   [32]byte // derived signing key
	Date  string   // "20060102T150405Z"
	Scope string   // "20060102/region/s3/aws4_request"
	Seed  string   // the request's signature, 64 hex digits
}

// Config describes a body.
type Config struct {
	Signing *Signing // nil: chunks carry no signatures
	Length  int64    // decoded, as announced in x-amz-decoded-content-length
	Trailer string   // name of the header that follows the last chunk, in lower case; "" is none
}

const (
	// maxLine bounds what one line may take, in bytes: a chunk header is a size and a signature, a trailer line a name and
	// a checksum or a signature.
	maxLine = 512
	// bufferLen is room for the largest chunk that is verified before any of it is handed out, and the CRLF behind it. The
	// SDKs' chunks have 64 or 128 KiB.
	bufferLen = 128<<10 + 2
	// minChunk is what every chunk but the last must have, in bytes.
	minChunk = 8 << 10
)

// Reader decodes a body. It belongs to one goroutine and reads no more than 128 KiB ahead.
type Reader struct {
	config   Config
	in       *bufio.Reader
	previous string // signature that the next one is chained to

	chunks  int       // headers so far
	size    int64     // of the chunk at hand
	left    int64     // of it
	total   int64     // decoded so far
	within  bool      // a chunk is being read
	ahead   bool      // it was verified before its first byte was handed out
	sum     hash.Hash // of it
	claimed string    // its signature
	value   string    // of the trailer
	err     error     // sticky; io.EOF at the end
}

// NewReader returns a Reader of body.
func NewReader(body io.Reader, c Config) *Reader {
	r := &Reader{config: c, in: bufio.NewReaderSize(body, bufferLen), sum: sha256.New()}
	if c.Signing != nil {
		r.previous = c.Signing.Seed
	}
	return r
}

// Trailer returns the value of the trailer, "" before io.EOF.
func (r *Reader) Trailer() string { return r.value }

// Read returns decoded bytes. See the package comment for what io.EOF means.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.read(p)
	r.err = err
	return n, err
}

func (r *Reader) read(p []byte) (int, error) {
	for !r.within {
		last, err := r.header()
		if err != nil {
			return 0, err
		}
		if last {
			if err := r.finish(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
	}
	n, err := r.in.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.total += int64(n)
	if r.config.Signing != nil && !r.ahead {
		r.sum.Write(p[:n])
	}
	if err == nil && r.left == 0 {
		err = r.endChunk()
	} else if err == io.EOF {
		err = fmt.Errorf("%w in a chunk: %w", ErrFraming, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return 0, err // what a bad chunk brought is not handed out
	}
	return n, nil
}

// header reads the line in front of a chunk: size in hex, and its signature where there are signatures.
func (r *Reader) header() (last bool, err error) {
	line, err := r.line()
	if err != nil {
		return false, err
	}
	digits, extension, extended := bytes.Cut(line, []byte(";"))
	size, ok := parseSize(digits)
	if !ok {
		return false, fmt.Errorf("%w: chunk size %q", ErrFraming, digits)
	}
	signed := r.config.Signing != nil
	claimed, named := bytes.CutPrefix(extension, []byte("chunk-signature="))
	if extended != signed || signed && (!named || !isHex64(claimed)) {
		return false, fmt.Errorf("%w: chunk header", ErrFraming)
	}
	if size > 0 && r.chunks > 0 && r.size < minChunk {
		return false, &ChunkSizeError{r.chunks + 1, r.size}
	}
	if size > r.config.Length-r.total {
		return false, r.tooMuch(size)
	}
	r.sum.Reset()
	r.claimed, r.size, r.left = string(claimed), size, size
	r.chunks++
	if size > 0 {
		r.within = true
		return false, r.look()
	}
	if r.total != r.config.Length {
		return false, fmt.Errorf("%w: %d bytes of %d", ErrLength, r.total, r.config.Length)
	}
	return true, r.verifyChunk()
}

// tooMuch is the error of a chunk that goes beyond the length announced. Of one that is also malformed S3 says that.
func (r *Reader) tooMuch(size int64) error {
	if size <= bufferLen-2 {
		if chunk, err := r.in.Peek(int(size) + 2); err != nil {
			return unexpected(err)
		} else if !bytes.HasSuffix(chunk, []byte("\r\n")) {
			return errLonger
		}
	}
	return fmt.Errorf("%w: more than %d bytes", ErrLength, r.config.Length)
}

// look verifies a signed chunk before any of it is handed out, if the buffer holds all of it.
func (r *Reader) look() error {
	r.ahead = r.config.Signing != nil && r.size <= bufferLen-2
	if !r.ahead {
		return nil
	}
	chunk, err := r.in.Peek(int(r.size) + 2)
	if err != nil {
		return unexpected(err)
	}
	if !bytes.HasSuffix(chunk, []byte("\r\n")) {
		return errLonger
	}
	r.sum.Write(chunk[:r.size])
	return r.verifyChunk()
}

// endChunk checks what follows the bytes of a chunk.
func (r *Reader) endChunk() error {
	if err := r.crlf(); err != nil {
		return err
	}
	r.within = false
	if r.ahead {
		return nil
	}
	return r.verifyChunk()
}

var errLonger = fmt.Errorf("%w: longer than its size", ErrFraming)

// crlf reads the end of a line that must be here.
func (r *Reader) crlf() error {
	var crlf [2]byte
	if _, err := io.ReadFull(r.in, crlf[:]); err != nil {
		return unexpected(err)
	}
	if crlf != [2]byte{'\r', '\n'} {
		return errLonger
	}
	return nil
}

func (r *Reader) verifyChunk() error {
	if r.config.Signing == nil {
		return nil
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	return r.verify(r.claimed, "AWS4-HMAC-SHA256-PAYLOAD", empty+"\n"+hex.EncodeToString(r.sum.Sum(nil)))
}

// verify checks one signature and chains the next one to it.
func (r *Reader) verify(claimed, algorithm, rest string) error {
	s := r.config.Signing
	mac := hmac.New(sha256.New, s.Key[:])
	_, _ = io.WriteString(mac, strings.Join([]string{algorithm, s.Date, s.Scope, r.previous, rest}, "\n"))
	want := hex.EncodeToString(mac.Sum(nil))
	if !hmac.Equal([]byte(want), []byte(claimed)) {
		return ErrSignature
	}
	r.previous = want
	return nil
}

// finish reads what follows the last chunk: trailer lines or none, an empty line, and nothing more.
func (r *Reader) finish() error {
	var value, signature string
	seen := false
	for {
		line, err := r.trailerLine()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		name, v, ok := bytes.Cut(line, []byte(":"))
		key := strings.ToLower(string(name))
		text := string(bytes.TrimSpace(v))
		switch {
		case !ok || text == "":
			return fmt.Errorf("%w: line without a value", ErrTrailer)
		case key == "x-amz-trailer-signature" && r.config.Signing != nil && r.config.Trailer != "" && signature == "":
			if !isHex64([]byte(text)) {
				return fmt.Errorf("%w: signature of the trailer", ErrFraming)
			}
			signature = text
		case key == r.config.Trailer && !seen && signature == "":
			value, seen = text, true
		case seen && signature == "" && r.config.Signing != nil:
			return fmt.Errorf("%w: %q in place of the trailer's signature", ErrFraming, key)
		default:
			return fmt.Errorf("%w: %q was not announced", ErrTrailer, key)
		}
	}
	if r.config.Trailer != "" {
		if !seen {
			return fmt.Errorf("%w: %s is missing", ErrTrailer, r.config.Trailer)
		}
		if r.config.Signing != nil {
			sum := sha256.Sum256([]byte(r.config.Trailer + ":" + value + "\n"))
			if err := r.verify(signature, "AWS4-HMAC-SHA256-TRAILER", hex.EncodeToString(sum[:])); err != nil {
				return err
			}
		}
	}
	if _, err := r.in.ReadByte(); err != io.EOF {
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: bytes after its end", ErrFraming)
	}
	r.value = value
	return nil
}

// line returns a line without its CRLF, valid until the next read.
func (r *Reader) line() ([]byte, error) {
	line, err := r.untilLF()
	if err != nil {
		return nil, err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r"))
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return nil, errNoCRLF
	}
	return line, nil
}

var errNoCRLF = fmt.Errorf("%w: line without CRLF", ErrFraming)

// trailerLine is line for a trailer, which may also end in LF CRLF: the line feed is part of what is signed, and minio-go
// sends it.
func (r *Reader) trailerLine() ([]byte, error) {
	line, err := r.untilLF()
	if err != nil {
		return nil, err
	}
	if line, ok := bytes.CutSuffix(line, []byte("\r")); ok {
		if bytes.IndexByte(line, '\r') >= 0 {
			return nil, errNoCRLF
		}
		return line, nil
	}
	line = bytes.Clone(line)
	if len(line) == 0 || bytes.IndexByte(line, '\r') >= 0 || r.crlf() != nil {
		return nil, errNoCRLF
	}
	return line, nil
}

// untilLF returns a line without its line feed, valid until the next read.
func (r *Reader) untilLF() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull), len(line) > maxLine:
		return nil, fmt.Errorf("%w: line too long", ErrFraming)
	case err != nil:
		return nil, unexpected(err)
	}
	return line[:len(line)-1], nil
}

// unexpected makes an end of the body in its middle an error of the framing. Other errors are the transport's.
func unexpected(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrFraming, io.ErrUnexpectedEOF)
	}
	return err
}

// parseSize parses 1 to 15 hex digits.
func parseSize(digits []byte) (n int64, ok bool) {
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, true
}

func isHex64(s []byte) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
