package blockstoretest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// Suite says how to make what is tested.
type Suite struct {
	// New returns an empty store with room for at least 8 MiB of blocks of up to 1 MiB, closed by t.Cleanup or by the
	// suite if it has a Close method.
	New func(t testing.TB) blockstore.Store
	// Slots returns where the blocks that are put come from. Nil means the store itself if it is Slots, else a Heap.
	Slots func(t testing.TB, s blockstore.Store) blockstore.Slots
	// Settle is called before the suite looks for what it has just put; for stores that put later than Put returns.
	Settle func(blockstore.Store)
}

// run is one store under test.
type run struct {
	testing.TB
	store  blockstore.Store
	slots  blockstore.Slots
	settle func()

	mu   sync.Mutex
	made []*blockstore.Block
}

func (s Suite) start(t testing.TB) *run {
	r := &run{TB: t, store: s.New(t), settle: func() {}}
	if s.Settle != nil {
		r.settle = func() { s.Settle(r.store) }
	}
	switch own, ok := r.store.(blockstore.Slots); {
	case s.Slots != nil:
		r.slots = s.Slots(t, r.store)
	case ok:
		r.slots = own
	default:
		r.slots = new(Heap)
	}
	return r
}

// finish closes the store and checks that every block ever made has been released by everyone.
func (r *run) finish() {
	r.Helper()
	switch c := r.store.(type) {
	case interface{ Close() }:
		c.Close()
	case interface{ Close() error }:
		if err := c.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
	default:
		return
	}
	for _, b := range r.made {
		if n := b.Refs(); n != 0 {
			r.Fatalf("%v has %d references after Close", b.Key(), n)
		}
	}
}

// fill returns a sealed block that the caller owns.
func (r *run) fill(k blockstore.Key) *blockstore.Block {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := r.slots.Alloc(ctx, k.Len())
	if err != nil {
		r.Fatalf("Alloc(%d): %v", k.Len(), err)
	}
	return r.seal(b, k)
}

func (r *run) seal(b *blockstore.Block, k blockstore.Key) *blockstore.Block {
	r.mu.Lock()
	r.made = append(r.made, b)
	r.mu.Unlock()
	Fill(k, b.Buf())
	b.Seal(k, int(k.Len()))
	return b
}

// put fills a block, puts it and gives it up.
func (r *run) put(k blockstore.Key) {
	r.Helper()
	b := r.fill(k)
	r.store.Put(b)
	b.Release()
}

// want checks that the block is there, and right.
func (r *run) want(k blockstore.Key) {
	r.Helper()
	if !r.store.Contains(k) {
		r.Errorf("Contains(%v) = false", k)
	}
	if !r.look(k) {
		r.Errorf("Get(%v) = nil", k)
	}
}

// look gets a block, checks it if it is there, and says whether it was.
func (r *run) look(k blockstore.Key) bool {
	r.Helper()
	b := r.store.Get(k)
	if b == nil {
		return false
	}
	defer b.Release()
	if err := Check(k, b); err != nil {
		r.Error(err)
	}
	return true
}

// absent checks that the block is not there.
func (r *run) absent(k blockstore.Key) {
	r.Helper()
	if r.store.Contains(k) {
		r.Errorf("Contains(%v) = true", k)
	}
	if b := r.store.Get(k); b != nil {
		r.Errorf("Get(%v) = a block of %v", k, b.Key())
		b.Release()
	}
}

// Store checks a store. It takes a few seconds, and is for the race detector too.
func Store(t *testing.T, s Suite) {
	test := func(name string, f func(*run)) {
		t.Run(name, func(t *testing.T) {
			r := s.start(t)
			f(r)
			r.finish()
		})
	}
	test("JustPutIsHit", justPut)
	test("PutTwice", putTwice)
	test("Lengths", lengths)
	test("OtherKeys", otherKeys)
	test("Collisions", collisions)
	test("HolderOutlivesEviction", holder)
	test("Concurrent", concurrent)
}

// More than fits goes through, and each block is there when it was just put.
func justPut(r *run) {
	v := Object("just put", 1<<40, 64<<10)
	r.absent(blockstore.Key{Version: v, Index: 0})
	for i := range int64(4000) {
		k := blockstore.Key{Version: v, Index: i}
		r.put(k)
		r.settle()
		r.want(k)
	}
}

// A block may be put again: the same one, or another one of an equal key, of an equal version at another address.
func putTwice(r *run) {
	k := blockstore.Key{Version: Object("twice", 1<<20, 64<<10), Index: 3}
	b := r.fill(k)
	r.store.Put(b)
	r.store.Put(b)
	b.Release()
	r.settle()
	r.want(k)
	k2 := blockstore.Key{Version: Object("twice", 1<<20, 64<<10), Index: 3}
	for range 100 {
		r.put(k2)
		r.settle()
		r.want(k)
		r.want(k2)
	}
}

// Blocks may have any length from one byte to the block size.
func lengths(r *run) {
	const blockSize = 1 << 20
	for _, n := range []int64{
		1, 2, 255, 256, 257, 1000, 2048, 2049, 4095, 4096, 4097, 5000, 10_007, 65_535, 65_536, 65_537,
		300_001, 1<<20 - 4095, 1<<20 - 1, 1 << 20,
	} {
		small := blockstore.Key{Version: Object(fmt.Sprintf("object of %d", n), n, blockSize), Index: 0}
		last := blockstore.Key{Version: Object(fmt.Sprintf("last of %d", n), 5*blockSize+n, blockSize), Index: 5}
		r.put(small)
		r.put(last)
		r.settle()
		r.want(small)
		r.want(last)
	}
}

// A block of another version, block size or index never comes back.
func otherKeys(r *run) {
	base := blockstore.Version{
		Bucket: "b", Key: "k", VersionID: "v", Raw: "r", Tag: `"t"`, Size: 1 << 20, BlockSize: 64 << 10,
	}
	k := blockstore.Key{Version: blockstore.NewVersion(base), Index: 2}
	r.put(k)
	r.settle()
	r.want(k)
	for _, change := range []func(*blockstore.Version){
		func(v *blockstore.Version) { v.Bucket = "c" },
		func(v *blockstore.Version) { v.Key = "k2" },
		func(v *blockstore.Version) { v.VersionID = "" },
		func(v *blockstore.Version) { v.Raw = "" },
		func(v *blockstore.Version) { v.Tag = `"t2"` },
		func(v *blockstore.Version) { v.Size++ },
		func(v *blockstore.Version) { v.BlockSize *= 2 },
	} {
		v := base
		change(&v)
		r.absent(blockstore.Key{Version: blockstore.NewVersion(v), Index: 2})
	}
	r.absent(blockstore.Key{Version: k.Version, Index: 1})
	r.absent(blockstore.Key{Version: k.Version, Index: 3})
}

// Versions with one hash: the store may drop any block but the one just put, and may never mix them up.
func collisions(r *run) {
	var vs []*blockstore.Version
	for i := range 4 {
		vs = append(vs, Object(fmt.Sprintf("collision %d", i), 1<<30, 64<<10).WithHash(42))
	}
	never := Object("never put", 1<<30, 64<<10).WithHash(42)
	for round := range int64(50) {
		for i, v := range vs {
			k := blockstore.Key{Version: v, Index: round % 20}
			r.put(k)
			r.settle()
			r.want(k)
			r.absent(blockstore.Key{Version: never, Index: round % 20})
			for j, other := range vs {
				o := blockstore.Key{Version: other, Index: round % 20}
				if r.store.Contains(o); !r.look(o) && j == i {
					r.Errorf("Get(%v) = nil after Put", o)
				}
			}
		}
		// Push them on, through whatever parts the store has.
		for i := range int64(40) {
			r.put(blockstore.Key{Version: Object("between", 1<<30, 64<<10), Index: round*40 + i})
		}
		for _, v := range vs {
			r.look(blockstore.Key{Version: v, Index: round % 20})
		}
		r.absent(blockstore.Key{Version: never, Index: round % 20})
	}
}

// A reference keeps its bytes, whatever goes through the store meanwhile.
func holder(r *run) {
	var held []*blockstore.Block
	v := Object("held", 1<<30, 64<<10)
	for i := range int64(8) {
		k := blockstore.Key{Version: v, Index: i}
		r.put(k)
		r.settle()
		if b := r.store.Get(k); b != nil {
			held = append(held, b)
		}
	}
	for i := range int64(2000) {
		r.put(blockstore.Key{Version: Object("flood", 1<<40, 64<<10), Index: i})
	}
	for i, b := range held {
		if err := Check(blockstore.Key{Version: v, Index: int64(i)}, b); err != nil {
			r.Error(err)
		}
		b.Release()
	}
}

// Readers and writers of many keys, some of them colliding, of different sizes: every block that comes back is right.
func concurrent(r *run) {
	seed := rand.Uint64()
	r.Logf("seed %d", seed)
	var versions []*blockstore.Version
	for i := range 24 {
		size := []int64{700, 5000, 64<<10 + 1, 1 << 20, 3<<20 + 17}[i%5]
		v := Object(fmt.Sprintf("concurrent %d", i), size, []int64{64 << 10, 256 << 10, 1 << 20}[i%3])
		if i%4 == 0 {
			v = v.WithHash(uint64(i / 8))
		}
		versions = append(versions, v)
	}
	var hits, misses atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 1500 {
				v := versions[min(rng.IntN(len(versions)), rng.IntN(len(versions)))]
				k := blockstore.Key{Version: v, Index: rng.Int64N(v.Blocks())}
				if b := r.store.Get(k); b != nil {
					hits.Add(1)
					if err := Check(k, b); err != nil {
						r.Error(err)
					}
					b.Release()
					continue
				}
				misses.Add(1)
				if b := r.slots.TryAlloc(k.Len()); b != nil && rng.IntN(2) == 0 {
					r.seal(b, k)
					r.store.Put(b)
					b.Release()
				} else {
					if b != nil {
						b.Release() // given up unsealed
					}
					r.put(k)
				}
			}
		})
	}
	wg.Wait()
	r.Logf("%d hits, %d misses", hits.Load(), misses.Load())
}
