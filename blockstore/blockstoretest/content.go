// Package blockstoretest is the suite that every implementation of blockstore.Store and blockstore.Memory passes, and
// what its users need in tests of their own: contents that tell their key, and Slots on the heap.
package blockstoretest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/cespare/xxhash/v2"
)

// Fill writes the contents of block k into buf, which has the block's length or less. They follow from every field of
// the version and from the index, but not from the hash: blocks whose hashes collide have different contents.
func Fill(k blockstore.Key, buf []byte) {
	v := k.Version
	x := xxhash.Sum64String(fmt.Sprintf("%q %q %q %q %q %d %d %d",
		v.Bucket, v.Key, v.VersionID, v.Raw, v.Tag, v.Size, v.BlockSize, k.Index))
	// A page of noise, repeated with its offset in each page: copying is fast under the race detector too.
	const page = 4096
	for i := 0; i < min(len(buf), page); i += 8 {
		x += 0x9e3779b97f4a7c15 // splitmix64
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		if len(buf)-i >= 8 {
			binary.LittleEndian.PutUint64(buf[i:], z)
			continue
		}
		for j := range buf[i:] {
			buf[i+j] = byte(z >> (8 * j))
		}
	}
	for off := page; off < len(buf); off += page {
		copy(buf[off:], buf[:page])
		if len(buf)-off >= 8 {
			binary.LittleEndian.PutUint64(buf[off:], x^uint64(off))
		}
	}
}

// Check says what is wrong with a block that was asked for by key k: its key, its length, or its bytes.
func Check(k blockstore.Key, b *blockstore.Block) error {
	if !b.Key().Equal(k) {
		return fmt.Errorf("asked for %v, got %v", k, b.Key())
	}
	got := b.Bytes()
	if int64(len(got)) != k.Len() {
		return fmt.Errorf("%v: %d bytes, want %d", k, len(got), k.Len())
	}
	want := make([]byte, len(got))
	Fill(k, want)
	if !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		return fmt.Errorf("%v: wrong bytes from offset %d: got %x, want %x", k, i,
			got[i:min(i+16, len(got))], want[i:min(i+16, len(want))])
	}
	return nil
}

// Object returns a version of size bytes under a name.
func Object(name string, size, blockSize int64) *blockstore.Version {
	return blockstore.NewVersion(blockstore.Version{
		Bucket: "suite", Key: name, Tag: `"1"`, Size: size, BlockSize: blockSize,
	})
}

// Heap is blockstore.Slots over the Go heap, without eviction: for tests of what needs Slots but not a tier. The memory
// of a block is overwritten when it is released. Safe for concurrent use; the zero value is ready and has no limit.
type Heap struct {
	Max int64 // bytes that may be in use, 0 for any number

	mu    sync.Mutex
	freed chan struct{} // closed when something is freed, if someone waits
	used  int64
}

var _ blockstore.Slots = (*Heap)(nil)

// Alloc implements blockstore.Slots; it waits until enough was released.
func (h *Heap) Alloc(ctx context.Context, n int64) (*blockstore.Block, error) {
	if n < 1 || h.Max > 0 && n > h.Max {
		return nil, fmt.Errorf("blockstoretest: no slot of %d bytes", n)
	}
	for {
		h.mu.Lock()
		if b := h.take(n); b != nil {
			h.mu.Unlock()
			return b, nil
		}
		if h.freed == nil {
			h.freed = make(chan struct{})
		}
		freed := h.freed
		h.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// TryAlloc implements blockstore.Slots.
func (h *Heap) TryAlloc(n int64) *blockstore.Block {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n < 1 {
		return nil
	}
	return h.take(n)
}

func (h *Heap) take(n int64) *blockstore.Block {
	if h.Max > 0 && h.used+n > h.Max {
		return nil
	}
	h.used += n
	return blockstore.NewBlock(make([]byte, n), h)
}

// Limit implements blockstore.Slots.
func (h *Heap) Limit() int64 { return h.Max }

// Free implements blockstore.Recycler.
func (h *Heap) Free(mem []byte) {
	for i := range mem {
		mem[i] = 0xDB
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used -= int64(len(mem))
	if h.freed != nil {
		close(h.freed)
		h.freed = nil
	}
}

// Used returns the bytes of blocks that are not released.
func (h *Heap) Used() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.used
}
