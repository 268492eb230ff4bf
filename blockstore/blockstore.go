// Package blockstore says what a block is and where blocks live.
//
// A block is bytes [i*B, (i+1)*B) of one version of one object, and once published it never changes, so whoever holds
// a reference may read it without a lock for as long as the reference lasts. Stores (memory, later disk) never answer
// with a block of another key: a hash may collide, a key may not. The package imports no sibling.
package blockstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Version names bytes that never change: one version of one object, cut into blocks of one size. It is immutable,
// shared by the keys of its blocks, and comparable: equal values name the same bytes. Build it with NewVersion.
type Version struct {
	Bucket    string
	Key       string
	VersionID string // S3 versionId the object was asked by; "" when it was not
	Raw       string // the raw spelling of a path with a bare '+'; "" otherwise (see origin.Object)
	Tag       string // the strong ETag with its quotes, or a synthetic tag in immutable buckets
	Size      int64  // of the whole object, in bytes
	BlockSize int64  // > 0

	hash uint64
}

// NewVersion returns v with its hash computed. Only versions made here may be put into a Key.
func NewVersion(v Version) *Version {
	d := xxhash.New()
	for _, s := range [...]string{v.Bucket, v.Key, v.VersionID, v.Raw, v.Tag} {
		_, _ = d.WriteString(s)
		_, _ = d.Write([]byte{0xff}) // not valid in UTF-8: keeps ("a","bc") and ("ab","c") apart
	}
	v.hash = mix(d.Sum64() ^ mix(uint64(v.Size)) ^ mix(uint64(v.BlockSize)<<1|1))
	return &v
}

// WithHash returns a copy of v with another hash. It is for tests of stores: two versions given the same hash have
// blocks that collide, which stores must answer correctly. A version is not Equal to its copies with other hashes.
func (v *Version) WithHash(hash uint64) *Version {
	c := *v
	c.hash = hash
	return &c
}

// Blocks returns how many blocks the version has; 0 for an empty object.
func (v *Version) Blocks() int64 { return (v.Size + v.BlockSize - 1) / v.BlockSize }

// BlockLen returns the length of block i in bytes: BlockSize, but for the last one. i must be in [0, Blocks()).
func (v *Version) BlockLen(i int64) int64 { return min(v.BlockSize, v.Size-i*v.BlockSize) }

// Key names one block.
type Key struct {
	Version *Version
	Index   int64
}

// Hash returns a well-mixed 64-bit hash of the key. It costs a few nanoseconds: the strings were hashed once, when the
// version was made. Keys that are Equal have equal hashes.
func (k Key) Hash() uint64 { return mix(k.Version.hash + uint64(k.Index)*0x9e3779b97f4a7c15) }

// Equal says whether two keys name the same block.
func (k Key) Equal(o Key) bool {
	return k.Index == o.Index && (k.Version == o.Version || *k.Version == *o.Version)
}

// Len returns the length of the block that the key names, in bytes.
func (k Key) Len() int64 { return k.Version.BlockLen(k.Index) }

func (k Key) String() string {
	return fmt.Sprintf("%s/%s %s block %d", k.Version.Bucket, k.Version.Key, k.Version.Tag, k.Index)
}

// mix is the finalizer of MurmurHash3: full avalanche on 64 bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Recycler takes back the memory of a block whose last reference went. Free is called exactly once per block, from
// whichever goroutine released last; mem is the slice that was given to NewBlock.
type Recycler interface{ Free(mem []byte) }

// Block is the bytes of one block in a slot, reference-counted.
//
// Life: Slots.Alloc returns it unsealed with one reference, owned by whoever fills it. The filler writes into Buf, then
// calls Seal once; from then on the block is immutable and may be shared. Each holder owns one reference and gives it
// back with Release; when the last one goes the slot is recycled and the Block is dead for ever (it is never reused for
// another key, so a stale pointer can't turn into other bytes). A slice got from Bytes must not be used after the
// holder's Release: builds with the tag "poison" make that a fault.
type Block struct {
	key  Key
	data []byte
	mem  []byte
	home Recycler
	refs atomic.Int32
}

// NewBlock returns an unsealed block over mem with one reference. For stores; others use Slots.
func NewBlock(mem []byte, home Recycler) *Block {
	b := &Block{mem: mem, data: mem, home: home}
	b.refs.Store(1)
	return b
}

// Buf returns the memory to be filled; its length is what was asked of Alloc. Only the filler may call it, before Seal.
func (b *Block) Buf() []byte { return b.data }

// Seal names the block and ends its filling; the first n bytes of Buf are its contents. It panics when n is not the
// length that the key demands: a short block must never be published.
func (b *Block) Seal(k Key, n int) {
	if int64(n) != k.Len() || n > len(b.data) {
		panic(fmt.Sprintf("blockstore: sealing %v with %d bytes, want %d", k, n, k.Len()))
	}
	b.key, b.data = k, b.data[:n:n]
}

// Key returns the key the block was sealed with.
func (b *Block) Key() Key { return b.key }

// Bytes returns the block's contents. Read-only; valid until the holder's Release. It panics on a dead block.
func (b *Block) Bytes() []byte {
	if b.refs.Load() <= 0 {
		panic("blockstore: Bytes of a released block")
	}
	return b.data
}

// Cap returns the bytes of memory that the block occupies.
func (b *Block) Cap() int { return cap(b.mem) }

// Refs returns the present number of references, for metrics and tests.
func (b *Block) Refs() int { return int(b.refs.Load()) }

// TryAcquire takes a reference if the block is still alive. It is how a store hands out a block that it may be
// evicting at this moment.
func (b *Block) TryAcquire() bool {
	for {
		n := b.refs.Load()
		if n <= 0 {
			return false
		}
		if b.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Acquire takes n more references for a caller who already holds one.
func (b *Block) Acquire(n int) {
	if b.refs.Add(int32(n)) <= int32(n) {
		panic("blockstore: Acquire on a released block")
	}
}

// Release gives one reference back. Too many releases panic.
func (b *Block) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		mem := b.mem
		b.home.Free(mem)
	case n < 0:
		panic("blockstore: block released twice")
	}
}

// Store is a tier: a place where blocks live. All methods are safe for concurrent use.
type Store interface {
	// Get returns the block with a reference that the caller must Release, or nil when the store has not got it.
	Get(Key) *Block
	// Contains says whether Get would find the block, without counting as a use of it. The answer may be out of date
	// by the time it is read.
	Contains(Key) bool
	// Put offers a sealed block. The store takes a reference of its own if it keeps it; the caller's stays the
	// caller's. A second Put of an equal key is allowed and may be ignored. Put never waits for anything slow.
	Put(*Block)
}

// Slots hands out memory to be filled. Safe for concurrent use.
type Slots interface {
	// Alloc returns an unsealed block of n bytes with one reference, evicting if it must and waiting if it has to. It
	// fails only when ctx ends, when n is above the largest block the tier was made for, or when the tier is closed.
	// A caller must hold no block while it waits here.
	Alloc(ctx context.Context, n int64) (*Block, error)
	// TryAlloc is Alloc that returns nil instead of waiting.
	TryAlloc(n int64) *Block
	// Limit returns the bytes that the tier may occupy, all its slots together.
	Limit() int64
}

// Memory is the tier every process has: blocks in slots.
type Memory interface {
	Store
	Slots
}
