package memory

import (
	"context"
	"fmt"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// read does what a reader does: get the block, or fetch it and put it. It leaves the bytes alone.
func read(t testing.TB, m *Tier, k blockstore.Key) (hit bool) {
	t.Helper()
	if b := m.Get(k); b != nil {
		b.Release()
		return true
	}
	b, err := m.Alloc(context.Background(), k.Len())
	if err != nil {
		t.Fatal(err)
	}
	b.Seal(k, int(k.Len()))
	m.Put(b)
	b.Release()
	return false
}

// objects returns the keys of n objects of one block each.
func objects(name string, n, size int64) []blockstore.Key {
	ks := make([]blockstore.Key, n)
	for i := range ks {
		ks[i].Version = blockstoretest.Object(fmt.Sprint(name, i), size, 1<<20)
	}
	return ks
}

// blocks returns the keys of one object of n blocks.
func blocks(name string, n, size int64) []blockstore.Key {
	ks := make([]blockstore.Key, n)
	v := blockstoretest.Object(name, n*size, size)
	for i := range ks {
		ks[i] = blockstore.Key{Version: v, Index: int64(i)}
	}
	return ks
}

// held returns the bytes of those of the blocks that can be found.
func held(m *Tier, ks []blockstore.Key) (n int64) {
	for _, k := range ks {
		if m.Contains(k) {
			n += k.Len()
		}
	}
	return n
}

// pass reads all keys once and returns the share of hits.
func pass(t testing.TB, m *Tier, ks []blockstore.Key) float64 {
	t.Helper()
	hits := 0
	for _, k := range ks {
		if read(t, m, k) {
			hits++
		}
	}
	return float64(hits) / float64(len(ks))
}

// Memory follows what is read, through all sizes: whatever was there before and however often it was used, after three
// passes over a new working set of nine tenths of the tier its blocks have at least 80% of it, and the last pass hits.
func TestPhases(t *testing.T) {
	const limit = 64 << 20
	// Objects below a page are so many that their overhead must be reckoned with.
	fill := func(size int64) int64 { return limit * 9 / 10 / size }
	kinds := map[string]func(name string) []blockstore.Key{
		"4 KiB objects":  func(n string) []blockstore.Key { return objects(n, fill(4<<10), 4<<10) },
		"1 KiB objects":  func(n string) []blockstore.Key { return objects(n, fill(1<<10+blockOverhead), 1<<10) },
		"64 KiB blocks":  func(n string) []blockstore.Key { return blocks(n, fill(64<<10), 64<<10) },
		"1 MiB blocks":   func(n string) []blockstore.Key { return blocks(n, fill(1<<20), 1<<20) },
		"700 kB objects": func(n string) []blockstore.Key { return objects(n, fill(700_000), 700_000) },
	}
	for _, order := range [][]string{
		{"4 KiB objects", "1 MiB blocks", "4 KiB objects"},
		{"1 MiB blocks", "1 MiB blocks", "1 MiB blocks"},
		{"64 KiB blocks", "700 kB objects", "1 KiB objects", "1 MiB blocks"},
		{"4 KiB objects", "4 KiB objects"},
	} {
		for _, passes := range []int{2, 3, 10} {
			t.Run(fmt.Sprint(order, passes), func(t *testing.T) {
				m := newTier(t, limit, 1<<20)
				for i, kind := range order {
					ks := kinds[kind](fmt.Sprint("phase", i))
					n := 3
					if i == 0 {
						n = passes
					}
					var hits []float64
					for range n {
						hits = append(hits, pass(t, m, ks))
					}
					want := int64(limit) * 80 / 100
					if kind == "1 KiB objects" { // a quarter is overhead
						want = limit * 60 / 100
					}
					if kind == "700 kB objects" { // a tenth is slots that are too large
						want = limit * 75 / 100
					}
					got := held(m, ks)
					t.Logf("%-15s %.1f%% of the tier; hits %.3f", kind, 100*float64(got)/limit, hits)
					if got < want {
						t.Errorf("%s: %d bytes held, want %d; %+v", kind, got, want, m.Stats())
					}
					if last := hits[n-1]; last < 0.8 {
						t.Errorf("%s: %.3f of the last pass were hits", kind, last)
					}
				}
			})
		}
	}
}

// A working set somewhat larger than the tier, and than its memory of what it turned away, gets in too, in the end.
func TestLoopLargerThanTier(t *testing.T) {
	const limit = 64 << 20
	m := newTier(t, limit, 1<<20)
	before := blocks("before", limit*9/10/(64<<10), 64<<10)
	for range 3 {
		pass(t, m, before)
	}
	loop := blocks("loop", limit*6/5/(64<<10), 64<<10)
	var hits []float64
	for range 14 {
		hits = append(hits, pass(t, m, loop))
	}
	t.Logf("hits %.2f", hits)
	if last := hits[len(hits)-1]; last < 0.3 {
		t.Errorf("%.2f of the last pass were hits; %d bytes of the working set before are held", last, held(m, before))
	}
}
