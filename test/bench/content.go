package main

import (
	"bytes"
	"fmt"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// object is one generated object: its bytes are a function of its seed and the position, so that every server's can be
// checked anywhere without keeping a copy, and a byte at the wrong place is a wrong byte.
type object struct {
	name string
	size int64
	seed uint64
}

// fill writes the bytes from off on into b.
func (o object) fill(b []byte, off int64) { devs3.Generate(b, off, o.seed) }

// check compares b with the bytes at off: 8 of every step bytes, and the last 8.
func (o object) check(b []byte, off int64, step int) error {
	var want [8]byte
	for i := 0; i < len(b); i += step {
		got := b[i:min(i+8, len(b))]
		if i+step >= len(b) && len(b) >= 8 {
			i = len(b) - 8
			got = b[i:]
		}
		o.fill(want[:len(got)], off+int64(i))
		if !bytes.Equal(got, want[:len(got)]) {
			return fmt.Errorf("%s: wrong bytes at offset %d: %x instead of %x", o.name, off+int64(i), got, want[:len(got)])
		}
	}
	return nil
}
