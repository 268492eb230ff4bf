package devs3

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// content is the bytes of one version: immutable, readable by many at once.
type content interface {
	size() int64
	// open makes the bytes readable until close. The error is os.ErrNotExist when the version was deleted meanwhile.
	open() (io.ReaderAt, func(), error)
}

// bytesContent is bytes in memory.
type bytesContent []byte

func (b bytesContent) size() int64 { return int64(len(b)) }

func (b bytesContent) open() (io.ReaderAt, func(), error) { return bytes.NewReader(b), func() {}, nil }

// fileContent is a file that is never written again once it has its name.
type fileContent struct {
	path string
	n    int64
}

func (f fileContent) size() int64 { return f.n }

func (f fileContent) open() (io.ReaderAt, func(), error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, nil, err
	}
	return file, func() { file.Close() }, nil
}

// generatedContent is bytes made when they are read.
type generatedContent struct {
	n    int64
	seed uint64
}

func (g generatedContent) size() int64 { return g.n }

func (g generatedContent) open() (io.ReaderAt, func(), error) { return g, func() {}, nil }

// ReadAt implements io.ReaderAt.
func (g generatedContent) ReadAt(p []byte, off int64) (int, error) {
	if off >= g.n {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), g.n-off))
	Generate(p[:n], off, g.seed)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Generate fills p with the bytes that a generated object of this seed has from offset off (>= 0) on. No two aligned
// 8-byte words within an object are equal, so bytes at a wrong place show.
func Generate(p []byte, off int64, seed uint64) {
	word := uint64(off) / 8
	if skip := int(off % 8); skip != 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], generatedWord(word, seed))
		n := copy(p, b[skip:])
		p = p[n:]
		word++
	}
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, generatedWord(word, seed))
		word++
	}
	if len(p) > 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], generatedWord(word, seed))
		copy(p, b[:])
	}
}

// generatedWord is the finalizer of SplitMix64, a bijection for every seed.
func generatedWord(i, seed uint64) uint64 {
	z := i + seed*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
