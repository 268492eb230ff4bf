package blockstore

import (
	"sync"
	"sync/atomic"
	"testing"
)

func version(change func(*Version)) *Version {
	v := Version{Bucket: "bucket", Key: "a/key", VersionID: "v1", Tag: `"etag"`, Size: 10<<20 + 1, BlockSize: 1 << 20}
	if change != nil {
		change(&v)
	}
	return NewVersion(v)
}

// Every field tells versions apart, by equality and by hash, and so does where one field ends and the next begins.
func TestVersionIdentity(t *testing.T) {
	changes := map[string]func(*Version){
		"as it is":           nil,
		"bucket":             func(v *Version) { v.Bucket = "bucket2" },
		"key":                func(v *Version) { v.Key = "a/key2" },
		"border bucket, key": func(v *Version) { v.Bucket, v.Key = "bucketa", "/key" },
		"version id":         func(v *Version) { v.VersionID = "v2" },
		"no version id":      func(v *Version) { v.VersionID = "" },
		"raw":                func(v *Version) { v.Raw = "v1"; v.VersionID = "" },
		"tag":                func(v *Version) { v.Tag = `"etag2"` },
		"size":               func(v *Version) { v.Size++ },
		"block size":         func(v *Version) { v.BlockSize *= 2 },
		"sizes swapped":      func(v *Version) { v.Size, v.BlockSize = v.BlockSize, v.Size },
	}
	seen := map[uint64]string{}
	for name, change := range changes {
		k := Key{version(change), 3}
		if other, ok := seen[k.Hash()]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[k.Hash()] = name
		for name2, change2 := range changes {
			k2 := Key{version(change2), 3}
			if got := k.Equal(k2); got != (name == name2) {
				t.Errorf("Equal(%s, %s) = %v", name, name2, got)
			}
			if name == name2 && k.Hash() != k2.Hash() {
				t.Errorf("%s: equal keys have hashes %x and %x", name, k.Hash(), k2.Hash())
			}
		}
		if k.Equal(Key{k.Version, 4}) || k.Hash() == (Key{k.Version, 4}).Hash() {
			t.Errorf("%s: blocks 3 and 4 are not told apart", name)
		}
	}
}

func TestWithHash(t *testing.T) {
	a, b := version(nil).WithHash(7), version(func(v *Version) { v.Key = "other" }).WithHash(7)
	if (Key{a, 2}).Hash() != (Key{b, 2}).Hash() {
		t.Error("the hashes don't collide")
	}
	if (Key{a, 2}).Equal(Key{b, 2}) {
		t.Error("colliding keys are equal")
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	k, k2 := Key{version(nil), 1}, Key{version(nil), 1}
	if n := testing.AllocsPerRun(100, func() { _ = k.Hash(); _ = k.Equal(k2) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBlockLen(t *testing.T) {
	for _, c := range []struct{ size, blockSize, blocks, last int64 }{
		{0, 64 << 10, 0, 0},
		{1, 64 << 10, 1, 1},
		{64 << 10, 64 << 10, 1, 64 << 10},
		{64<<10 + 1, 64 << 10, 2, 1},
		{5 << 40, 16 << 20, 5 << 40 / (16 << 20), 16 << 20},
		{5<<40 - 1, 16 << 20, 5 << 40 / (16 << 20), 16<<20 - 1},
	} {
		v := NewVersion(Version{Size: c.size, BlockSize: c.blockSize})
		if v.Blocks() != c.blocks {
			t.Errorf("size %d: %d blocks, want %d", c.size, v.Blocks(), c.blocks)
		}
		if c.blocks > 0 && v.BlockLen(c.blocks-1) != c.last {
			t.Errorf("size %d: last block of %d bytes, want %d", c.size, v.BlockLen(c.blocks-1), c.last)
		}
		if c.blocks > 1 && (Key{v, 0}).Len() != c.blockSize {
			t.Errorf("size %d: first block of %d bytes", c.size, (Key{v, 0}).Len())
		}
	}
}

type recycler struct{ freed atomic.Int32 }

func (r *recycler) Free(mem []byte) { r.freed.Add(1) }

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestBlockLife(t *testing.T) {
	var home recycler
	v := version(nil)
	b := NewBlock(make([]byte, 1<<20, 2<<20), &home)
	if len(b.Buf()) != 1<<20 || b.Cap() != 2<<20 || b.Refs() != 1 {
		t.Fatalf("new block: buf %d, cap %d, refs %d", len(b.Buf()), b.Cap(), b.Refs())
	}
	last := Key{v, v.Blocks() - 1}
	if !panics(func() { b.Seal(Key{v, 0}, 1<<20-1) }) {
		t.Error("a short block was sealed")
	}
	if !panics(func() { b.Seal(last, 2) }) {
		t.Error("a block longer than its key says was sealed")
	}
	b.Seal(last, 1)
	if got := b.Bytes(); len(got) != 1 || cap(got) != 1 {
		t.Errorf("sealed bytes: len %d cap %d, want 1 and 1", len(got), cap(got))
	}
	if !b.Key().Equal(last) {
		t.Errorf("key %v", b.Key())
	}
	b.Acquire(2)
	if !b.TryAcquire() || b.Refs() != 4 {
		t.Fatalf("refs %d, want 4", b.Refs())
	}
	for range 4 {
		if home.freed.Load() != 0 {
			t.Fatal("freed while referenced")
		}
		b.Release()
	}
	if home.freed.Load() != 1 {
		t.Fatalf("freed %d times", home.freed.Load())
	}
	if b.TryAcquire() {
		t.Error("a dead block was acquired")
	}
	if !panics(func() { b.Bytes() }) {
		t.Error("Bytes of a dead block")
	}
	if !panics(b.Release) {
		t.Error("released twice")
	}
	if home.freed.Load() != 1 {
		t.Errorf("freed %d times", home.freed.Load())
	}
}

func TestAcquireDead(t *testing.T) {
	b := NewBlock(make([]byte, 1), &recycler{})
	b.Release()
	if !panics(func() { b.Acquire(1) }) {
		t.Error("a dead block was acquired")
	}
}

// However acquires and the last release race, the memory is freed once and nobody holds it after that.
func TestTryAcquireRace(t *testing.T) {
	for range 200 {
		var home recycler
		b := NewBlock(make([]byte, 1), &home)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for b.TryAcquire() {
					if home.freed.Load() != 0 {
						t.Error("acquired after it was freed")
					}
					b.Release()
				}
			})
		}
		b.Release()
		wg.Wait()
		if home.freed.Load() != 1 {
			t.Fatalf("freed %d times", home.freed.Load())
		}
	}
}
