package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Objects of the benchmark hold a sequence of 64-bit words that is computed from their name and the position, so that
// every server's bytes can be checked anywhere without keeping a copy, and a byte at the wrong place is a wrong byte.

// object is one generated object. Its name says its size: "w3-2.67108864".
type object struct {
	name string
	size int64
	seed uint64
}

func newObject(name string, size int64) object {
	o := object{name: fmt.Sprintf("%s.%d", name, size), size: size}
	o.seed = 0xcbf29ce484222325 // FNV-1a
	for i := range len(o.name) {
		o.seed = (o.seed ^ uint64(o.name[i])) * 0x100000001b3
	}
	return o
}

// parseObject finds the object that a key names.
func parseObject(key string) (object, bool) {
	i := strings.LastIndexByte(key, '.')
	if i < 0 {
		return object{}, false
	}
	size, err := strconv.ParseInt(key[i+1:], 10, 64)
	if err != nil || size < 0 {
		return object{}, false
	}
	return newObject(key[:i], size), true
}

func (o object) etag() string { return fmt.Sprintf(`"%016x"`, o.seed) }

// word is the 8 bytes at offset 8*i, little-endian.
func (o object) word(i int64) uint64 { return (o.seed + uint64(i)) * 0x9e3779b97f4a7c15 }

// fill writes the bytes at off, a multiple of 8, into b, whose length is a multiple of 8 too.
func (o object) fill(b []byte, off int64) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], o.word((off+int64(i))/8))
	}
}

// check compares b with the bytes at off: one word of every step bytes, and the last. step is a multiple of 8.
func (o object) check(b []byte, off int64, step int) error {
	skip := int(-off & 7)
	for i := skip; i+8 <= len(b); i += step {
		if err := o.checkWord(b, off, i); err != nil {
			return err
		}
	}
	if last := skip + (len(b)-skip)/8*8 - 8; last >= 0 {
		return o.checkWord(b, off, last)
	}
	return nil
}

func (o object) checkWord(b []byte, off int64, i int) error {
	got, want := binary.LittleEndian.Uint64(b[i:]), o.word((off+int64(i))/8)
	if got != want {
		return fmt.Errorf("%s: wrong bytes at offset %d: %016x instead of %016x", o.name, off+int64(i), got, want)
	}
	return nil
}
