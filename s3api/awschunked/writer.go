package awschunked

import (
	"io"
	"strconv"
)

// chunkLen is the length of the chunks that an Encoder makes, the last one aside.
const chunkLen = 64 << 10

// Encoder frames a body as STREAMING-UNSIGNED-PAYLOAD-TRAILER does: unsigned chunks, then one trailer. The frame is
// complete only when the source has ended with io.EOF; any other error is passed on in its place, so that what failed in
// the source never looks whole. It belongs to one goroutine.
type Encoder struct {
	source  io.Reader
	trailer string
	value   func() string

	chunk   []byte // filled from the source, framed in place
	pending []byte // to be returned
	err     error  // after pending
}

// NewEncoder returns an Encoder of source. trailer is the name of the trailer; value is called once, after the source has
// ended.
func NewEncoder(source io.Reader, trailer string, value func() string) *Encoder {
	return &Encoder{source: source, trailer: trailer, value: value, chunk: make([]byte, headLen+chunkLen+2)}
}

// headLen is room for a chunk's header: "10000\r\n".
const headLen = 7

// EncodedLen returns the length of the frame of size bytes with a trailer whose value has valueLen bytes.
func EncodedLen(size int64, trailer string, valueLen int) int64 {
	n := size/chunkLen*(headLen+chunkLen+2) + int64(len("0\r\n")+len(trailer)+len(":")+valueLen+len("\r\n\r\n"))
	if rest := size % chunkLen; rest > 0 {
		n += int64(len(strconv.FormatInt(rest, 16))) + 2 + rest + 2
	}
	return n
}

// Read implements io.Reader.
func (e *Encoder) Read(p []byte) (int, error) {
	for len(e.pending) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.next()
	}
	n := copy(p, e.pending)
	e.pending = e.pending[n:]
	return n, nil
}

// next frames the next chunk, or the end.
func (e *Encoder) next() {
	n, err := io.ReadFull(e.source, e.chunk[headLen:headLen+chunkLen])
	end := err == io.EOF || err == io.ErrUnexpectedEOF
	if err == io.ErrUnexpectedEOF {
		// ReadFull says so for a short end; a source that broke off says it as well, and then again.
		if _, err := e.source.Read(make([]byte, 1)); err != io.EOF {
			e.err = io.ErrUnexpectedEOF
			return
		}
	}
	if err != nil && !end {
		e.err = err
		return
	}
	if n > 0 {
		head := append(strconv.AppendInt(nil, int64(n), 16), '\r', '\n')
		start := headLen - len(head)
		copy(e.chunk[start:], head)
		copy(e.chunk[headLen+n:], "\r\n")
		e.pending = e.chunk[start : headLen+n+2]
	}
	if end {
		e.pending = append(e.pending, "0\r\n"+e.trailer+":"+e.value()+"\r\n\r\n"...)
		e.err = io.EOF
	}
}
