package gateway

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// A small read of a block that only the disk has gets the part that it wants, and the block stays out of memory: for
// a few KiB out of it, reading it whole costs ten times as much, and takes the place of other blocks. A block that is
// read again and again that way comes into memory when its parts have come to a quarter of it: whatever is read of it
// later, at most that much was read in vain, and the rest of the chunks that the parts ended in.

// held returns block key.Index where it is in memory, or the part of it that the read wants, where that is little and
// it is on the disk. b is nil when it is in neither, or to be read as a whole. A disk that was late is not asked again,
// unless the origin is no better.
func (o *Object) held(key blockstore.Key) (b *blockstore.Block, src Source) {
	if b = o.g.mem.Get(key); b != nil || !o.wantsPart(key) {
		return b, SourceMemory
	}
	ctx, cancel := o.patience()
	defer cancel()
	off, n := (o.Offset+o.at)%o.size, o.Length-o.at
	if o.at > 0 { // it copies: up to a chunk's end, since the rest would be read again with each
		n = min(n, copySize-off%copySize)
	}
	b, from, late := o.g.disk.GetPart(ctx, key, off, n)
	if o.late = late; b != nil {
		o.part, o.from = true, from
	}
	return b, SourceDisk
}

// wantsPart says whether block key.Index is to be read from the disk in part: it is the only one that the read is
// about.
func (o *Object) wantsPart(key blockstore.Key) bool {
	want, whole := max(o.Length-o.at, leastPart), key.Len()
	return 4*want <= whole && key.Index == o.Offset/o.size && key.Index == o.lastBlock() && o.onDisk(key) &&
		!o.g.coming(key) && (o.at > 0 || o.g.parts.add(key.Hash(), want, whole))
}

// ended says whether the block in hand is a part that ends at byte pos of the object.
func (o *Object) ended(pos int64) bool {
	return o.part && pos-o.index*o.size-o.from == int64(len(o.block.Bytes()))
}

// onDisk says whether a block is to be had from the disk.
func (o *Object) onDisk(k blockstore.Key) bool { return !o.late && o.g.onDisk(k) }

// coming says whether a block is on its way.
func (g *Gateway) coming(k blockstore.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending[blockID{*k.Version, k.Index}] != nil
}

// leastPart is what a part counts for at least, in bytes: reading less costs a disk as much.
const leastPart = 64 << 10

// tally counts what was read of blocks by parts. It has as many places as memory would hold blocks of their size. A
// block that is in none of the few it may be in takes one of them, from whatever block has it: what comes back later
// than that would not have stayed in memory either, so a scan counts for nothing. That it may be any of them matters:
// two blocks with one place, both in use, would keep each other out of memory for ever. Safe for concurrent use.
type tally struct {
	limit  int64           // of the memory, in bytes
	places []atomic.Uint64 // half of a block's hash, and the bytes
}

func newTally(limit int64) tally {
	return tally{limit, make([]atomic.Uint64, max(1, limit/(4*leastPart)))}
}

// add counts n bytes of a block of size bytes, and says whether they are to be read as a part: false when that would
// make more than a quarter of the block, which counts from nothing then.
func (t *tally) add(hash uint64, n, size int64) bool {
	p := t.place(hash, uint64(max(1, min(t.limit/size, int64(len(t.places))))))
	for {
		old, sum := p.Load(), uint64(n)
		if old>>32 == hash>>32 {
			sum += old & (1<<32 - 1)
		}
		part := int64(sum) <= size/4
		if !part {
			sum = 0
		}
		if p.CompareAndSwap(old, hash>>32<<32|sum) {
			return part
		}
	}
}

// ways is how many places a block may be in.
const ways = 8

// place returns the place of a block, one of the first n: that which it has, or else any that it may have.
func (t *tally) place(hash, n uint64) *atomic.Uint64 {
	for i := range uint64(ways) {
		if p := &t.places[(hash+i)%n]; p.Load()>>32 == hash>>32 {
			return p
		}
	}
	return &t.places[(hash+rand.Uint64N(ways))%n]
}
