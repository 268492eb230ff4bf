package devs3

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
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// chunkSeed is what the signatures of chunks start from.
type chunkSeed struct {
	signature string // hex, of the request
	date      string // 20060102T150405Z
	scope     string // date/region/s3/aws4_request
	key       []byte // the derived signing key
}

// chunkReader takes the framing off an aws-chunked body, checking every byte of it (S3 API reference, "Signature
// calculations for the Authorization header: transferring payload in multiple chunks", and the same with trailers).
type chunkReader struct {
	in       *bufio.Reader
	kind     payloadKind
	seed     *chunkSeed // nil: signatures must have their form and are not computed
	previous string     // signature that the next one is chained to
	declared []string   // trailers promised, lower case
	trailers map[string]string

	left  int64 // of the current chunk
	total int64 // that may still come
	chunk hash.Hash
	want  string // signature that the current chunk claims
	state chunkState
}

type chunkState int

const (
	chunkHeader chunkState = iota
	chunkData
	chunkDone
)

func newChunkReader(r io.Reader, p payload, length int64, declared []string) *chunkReader {
	c := &chunkReader{in: bufio.NewReaderSize(r, 64<<10), kind: p.kind, seed: p.seed, total: length,
		declared: declared, trailers: map[string]string{}, chunk: sha256.New()}
	if p.seed != nil {
		c.previous = p.seed.signature
	}
	return c
}

func (c *chunkReader) signed() bool { return c.kind != payloadUnsignedTrailer }

func (c *chunkReader) trailing() bool { return c.kind != payloadSigned }

// Read implements io.Reader. io.EOF means that everything, trailers and their signature included, was as it must be.
func (c *chunkReader) Read(p []byte) (int, error) {
	for {
		switch c.state {
		case chunkDone:
			return 0, io.EOF
		case chunkHeader:
			if err := c.header(); err != nil {
				return 0, err
			}
			if c.left == 0 {
				if err := c.end(); err != nil {
					return 0, err
				}
				c.state = chunkDone
				continue
			}
			c.state = chunkData
		}
		if len(p) == 0 {
			return 0, nil
		}
		n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
		c.left -= int64(n)
		if c.signed() {
			c.chunk.Write(p[:n])
		}
		if err == nil && c.left == 0 {
			err = c.endChunk()
			c.state = chunkHeader
		}
		if n > 0 || err != nil {
			return n, unexpected(err)
		}
	}
}

// unexpected makes the end of the body, where more must come, an error.
func unexpected(err error) error {
	if err == io.EOF {
		return errIncompleteBody()
	}
	return err
}

// header reads the line before a chunk: size in hex, and in the signed forms its signature.
func (c *chunkReader) header() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	size, extension, signed := strings.Cut(line, ";")
	if signed != c.signed() {
		return errChunk()
	}
	if signed {
		sig, ok := strings.CutPrefix(extension, "chunk-signature=")
		if !ok || !isSignature(sig) {
			return errChunk()
		}
		c.want = sig
	}
	n, err := strconv.ParseUint(size, 16, 63)
	if err != nil || strings.HasPrefix(size, "+") || strings.Contains(size, "_") {
		return errChunk()
	}
	c.left = int64(n)
	if c.left > c.total {
		return errIncompleteBody()
	}
	c.total -= c.left
	return nil
}

func isSignature(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// endChunk is behind the data of a chunk.
func (c *chunkReader) endChunk() error {
	if err := c.crlf(); err != nil {
		return err
	}
	return c.verifyChunk()
}

func (c *chunkReader) verifyChunk() error {
	if !c.signed() {
		return nil
	}
	err := c.verify("AWS4-HMAC-SHA256-PAYLOAD", emptySHA256+"\n"+hex.EncodeToString(c.chunk.Sum(nil)), c.want)
	c.chunk.Reset()
	return err
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// verify checks one link of the chain of signatures.
func (c *chunkReader) verify(algorithm, hashes, signature string) error {
	if c.seed == nil {
		return nil
	}
	mac := hmac.New(sha256.New, c.seed.key)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n%s", algorithm, c.seed.date, c.seed.scope, c.previous, hashes)
	got := hex.EncodeToString(mac.Sum(nil))
	if !hmac.Equal([]byte(got), []byte(signature)) {
		return newError(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not "+
			"match the signature you provided. Check your key and signing method.")
	}
	c.previous = got
	return nil
}

// end is behind the last chunk's line: trailers, and then nothing.
func (c *chunkReader) end() error {
	if c.total != 0 {
		return errIncompleteBody()
	}
	if err := c.verifyChunk(); err != nil {
		return err
	}
	if c.trailing() {
		if err := c.readTrailers(); err != nil {
			return err
		}
	} else if err := c.crlf(); err != nil {
		return err
	}
	if _, err := c.in.ReadByte(); err != io.EOF {
		if err == nil {
			err = errChunk()
		}
		return err
	}
	return nil
}

// readTrailers reads up to the empty line that ends the body. Every trailer must be declared, every declared one must
// come, and in the signed form their signature last.
func (c *chunkReader) readTrailers() error {
	var signedText bytes.Buffer
	signature := ""
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		_, again := c.trailers[name]
		switch {
		case !ok || signature != "" || again:
			return errTrailer()
		case name == "x-amz-trailer-signature" && c.signed():
			if !isSignature(value) {
				return errTrailer()
			}
			signature = value
			continue
		case !slices.Contains(c.declared, name):
			return errTrailer()
		}
		c.trailers[name] = value
		signedText.WriteString(name + ":" + value + "\n")
	}
	if len(c.trailers) != len(c.declared) || c.signed() && signature == "" {
		return errTrailer()
	}
	if !c.signed() {
		return nil
	}
	sum := sha256.Sum256(signedText.Bytes())
	return c.verify("AWS4-HMAC-SHA256-TRAILER", hex.EncodeToString(sum[:]), signature)
}

// line reads up to CRLF. A line that is longer than any that S3 knows is refused.
func (c *chunkReader) line() (string, error) {
	b, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", errChunk()
	}
	if err != nil {
		return "", unexpected(err)
	}
	if len(b) < 2 || b[len(b)-2] != '\r' {
		return "", errChunk()
	}
	return string(b[:len(b)-2]), nil
}

func (c *chunkReader) crlf() error {
	line, err := c.line()
	if err == nil && line != "" {
		return errChunk()
	}
	return err
}

func errChunk() *Error {
	return newError(http.StatusBadRequest, "InvalidRequest", "The aws-chunked framing of the body is malformed.")
}

func errTrailer() *Error {
	return newError(http.StatusBadRequest, "MalformedTrailerError", "The request contained trailing data that was not "+
		"well-formed or did not conform to our published schema.")
}
