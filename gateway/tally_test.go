package gateway

import (
	"math/rand/v2"
	"testing"
)

// Parts of a block count until they come to a quarter of it, and then from nothing.
func TestTally(t *testing.T) {
	const size, n = 1 << 20, 64 << 10
	a, b := uint64(1<<32), uint64(2<<32)
	c := newTally(64 << 20)
	count := func(hash uint64, want ...bool) {
		t.Helper()
		for i, part := range want {
			if c.add(hash, n, size) != part {
				t.Errorf("part %d of block %x: not %v", i, hash, part)
			}
		}
	}
	count(a, true, true, true, true, false, true, true, true, true, false, true, true)
	if c.add(b, size/4+1, size) {
		t.Error("more than a quarter is a part")
	}
	small := newTally(1) // of less memory than one block
	for range 4 {
		small.add(a, n, size)
	}
	if small.add(a, n, size) {
		t.Error("the only place does not count")
	}
	small.add(b, n, size)
	if !small.add(a, n, size) {
		t.Error("a block counts on that another one has taken the place of")
	}
}

// Blocks in use that would fit into half of the memory come into it, however large they are and whatever their hashes:
// no two keep each other out. A scan in which each block comes back when twice the memory was read brings in next to
// nothing.
func TestTallyOfALoop(t *testing.T) {
	const limit, n = 1 << 30, 64 << 10
	for _, size := range []int64{256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		rng := rand.New(rand.NewPCG(1, uint64(size)))
		c := newTally(limit)
		hot := make([]uint64, limit/size/2)
		for i := range hot {
			hot[i] = rng.Uint64()
		}
		in := make(map[uint64]bool) // whether it has come into memory
		for range 100 * size / 4 / n {
			for _, h := range hot {
				if !in[h] && !c.add(h, n, size) {
					in[h] = true
				}
			}
		}
		if out := len(hot) - len(in); out > 0 {
			t.Errorf("blocks of %d bytes: %d of %d are not in memory", size, out, len(hot))
		}
		if size < 1<<20 {
			continue // two parts of such a block are as much as it may have
		}
		scan := make([]uint64, 2*limit/size)
		for i := range scan {
			scan[i] = rng.Uint64()
		}
		whole := 0
		for range 20 {
			for _, h := range scan {
				if !c.add(h, n, size) {
					whole++
				}
			}
		}
		if reads := 20 * len(scan); whole > reads/100 {
			t.Errorf("blocks of %d bytes: %d reads of a scan bring in %d", size, reads, whole)
		}
	}
}
