package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func key(i int64) blockstore.Key {
	return blockstore.Key{Version: blockstoretest.Object("tier test", 1<<50, 1<<20), Index: i}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{Limit: 1 << 30, MaxBlock: 0},
		{Limit: 1 << 30, MaxBlock: -1},
		{Limit: 1 << 30, MaxBlock: 16<<20 + 1},
		{Limit: 8<<20 - 1, MaxBlock: 1 << 20},
		{Limit: 1<<20 - 1, MaxBlock: 1},
		{Limit: 1 << 60, MaxBlock: 1 << 20},
	} {
		if m, err := New(c); err == nil {
			m.Close()
			t.Errorf("New(%+v) succeeded", c)
		}
	}
	for _, block := range []int64{1, 64 << 10, 1 << 20, 16 << 20} {
		m := newTier(t, MinLimit(block), block)
		for range 20 { // the smallest tier works
			b, err := m.Alloc(t.Context(), block)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
	}
}

func TestErrors(t *testing.T) {
	m := newTier(t, 8<<20, 1<<20)
	for _, n := range []int64{0, -1, 1<<20 + 1} {
		if _, err := m.Alloc(t.Context(), n); !errors.Is(err, ErrSize) {
			t.Errorf("Alloc(%d): %v", n, err)
		}
	}
	b, err := m.Alloc(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
}

// Every hit and miss of a full tier with pinned blocks counts: nine tenths of the limit hold readable blocks at any
// time when nobody holds any, through one filler or many.
func TestFull(t *testing.T) {
	for _, size := range []int64{4 << 10, 64 << 10, 1 << 20} {
		const limit = 64 << 20
		m := newTier(t, limit, 1<<20)
		v := blockstoretest.Object("full", 1<<50, size)
		var wg sync.WaitGroup
		for g := range int64(4) {
			wg.Go(func() {
				for i := range limit / size {
					read(t, m, blockstore.Key{Version: v, Index: g<<20 + i})
				}
			})
		}
		wg.Wait()
		s := m.Stats()
		if got := s.Blocks * size; got < limit*88/100 {
			t.Errorf("%d bytes of blocks of %d in a tier of %d: %+v", got, size, limit, s)
		}
	}
}

// Blocks from elsewhere have no slot here and are not taken.
func TestForeignBlock(t *testing.T) {
	m := newTier(t, 8<<20, 1<<20)
	var h blockstoretest.Heap
	b, _ := h.Alloc(t.Context(), 1<<20)
	b.Seal(key(1), 1<<20)
	m.Put(b)
	if m.Contains(key(1)) || b.Refs() != 1 {
		t.Error("a block of other slots was taken")
	}
	b.Release()
}

// All that were just filled at the same time are hits afterwards, many more than the window's usual share.
func TestBurst(t *testing.T) {
	const n = 24
	m := newTier(t, 64<<20, 1<<20)
	for i := range int64(200) {
		read(t, m, key(i))
	}
	for round := range int64(4) {
		var bs []*blockstore.Block
		for range n {
			b, err := m.Alloc(t.Context(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			bs = append(bs, b)
		}
		for i, b := range bs {
			b.Seal(key(1000*(round+1)+int64(i)), 1<<20)
			m.Put(b)
			b.Release()
			m.policy.mu.Lock() // what the mover does, but now
			m.drain(0)
			m.policy.mu.Unlock()
		}
		for i := range int64(n) {
			b := m.Get(key(1000*(round+1) + i))
			if b == nil {
				t.Errorf("round %d: block %d of a burst of %d is gone", round, i, n)
				continue
			}
			b.Release()
		}
	}
}

// With many fills in flight all the time, a block stays for at least as many puts as there are fills.
func TestWindowHoldsFillsInFlight(t *testing.T) {
	const inFlight = 16
	m := newTier(t, 64<<20, 1<<20)
	var fills []*blockstore.Block
	for i := range int64(300) {
		b, err := m.Alloc(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if fills = append(fills, b); len(fills) < inFlight {
			continue
		}
		b, fills = fills[0], fills[1:]
		b.Seal(key(i), 1<<20)
		m.Put(b)
		b.Release()
		m.policy.mu.Lock() // what the mover does, but now
		m.drain(0)
		m.policy.mu.Unlock()
		for j := max(i-inFlight+2, inFlight); j <= i; j++ {
			if !m.Contains(key(j)) {
				t.Fatalf("block %d is gone after %d more", j, i-j)
			}
		}
	}
	for _, b := range fills {
		b.Release()
	}
}

// With a quarter of the tier held by readers, of blocks long evicted, the rest works on, within the limit.
func TestPinned(t *testing.T) {
	const limit = 64 << 20
	m := newTier(t, limit, 1<<20)
	var held []*blockstore.Block
	for i := range int64(2000) {
		read(t, m, key(i))
		if i%20 == 0 && len(held) < 16 {
			if b := m.Get(key(i)); b != nil {
				held = append(held, b)
			}
		}
		if s := m.Stats(); s.Used > limit {
			t.Fatalf("%d bytes used of %d", s.Used, limit)
		}
	}
	s := m.Stats()
	if s.AllocWaits != 0 {
		t.Errorf("%d Allocs waited, with three quarters of the tier unpinned", s.AllocWaits)
	}
	if got := s.Blocks<<20 + int64(len(held))<<20; got < limit*85/100 {
		t.Errorf("%d bytes of blocks readable or read: %+v", got, s)
	}
	for _, b := range held {
		b.Release()
	}
	// And all of it comes back.
	for i := range int64(200) {
		read(t, m, key(10_000+i))
	}
	if got := m.Stats().Blocks << 20; got < limit*85/100 {
		t.Errorf("%d bytes of blocks after the pins were released", got)
	}
}

// Blocks that are being read are not evicted while there are others: it would make no room.
func TestReadBlocksAreSpared(t *testing.T) {
	m := newTier(t, 64<<20, 1<<20)
	for i := range int64(60) {
		read(t, m, key(i))
	}
	var held []*blockstore.Block
	for i := range int64(10) {
		if b := m.Get(key(i)); b != nil {
			held = append(held, b)
		}
	}
	for range 40 {
		b, err := m.Alloc(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
	}
	for _, b := range held {
		if !m.Contains(b.Key()) {
			t.Errorf("%v was evicted while it was read", b.Key())
		}
		b.Release()
	}
}

// A block that is put again and again is there once.
func TestReplaced(t *testing.T) {
	m := newTier(t, 64<<20, 1<<20)
	for i := range int64(40) {
		b, err := m.Alloc(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b.Seal(key(i%2), 1<<20)
		m.Put(b)
		b.Release()
		if s := m.Stats(); s.Blocks > 2 || s.Slots > 2 {
			t.Fatalf("%d blocks, %d slots for two keys", s.Blocks, s.Slots)
		}
	}
}

func TestUsage(t *testing.T) {
	var u usage
	u.reset(100)
	if u.used() || u.spend(100) {
		t.Error("used from the start")
	}
	for range 10 {
		u.note(110)
	}
	for range maxUses {
		if !u.used() || !u.spend(110+useTicks) {
			t.Errorf("fewer than %d uses", maxUses)
		}
	}
	if u.used() || u.spend(110) {
		t.Errorf("more than %d uses", maxUses)
	}
	u.note(120)
	if u.spend(121 + useTicks) {
		t.Error("a use counts for ever")
	}
	if u.age(150) != 30 {
		t.Errorf("age %d", u.age(150))
	}
}

// Readers slow and fast, fills put and given up, waits cut short, sizes of all classes, a tier far too small for it:
// bytes are always right, the limit holds at every moment, and at the end nothing is left over.
func TestStress(t *testing.T) {
	const limit = 16 << 20
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := newTier(t, limit, 1<<20)
	var keys []blockstore.Key
	for i := range 40 {
		size := []int64{300, 3000, 9000, 200_000, 5 << 20}[i%5]
		v := blockstoretest.Object(fmt.Sprint("stress", i), size, []int64{64 << 10, 256 << 10, 1 << 20}[i%3])
		if i%7 == 0 {
			v = v.WithHash(uint64(i / 14))
		}
		for b := range v.Blocks() {
			keys = append(keys, blockstore.Key{Version: v, Index: b})
		}
	}
	var gaveUp atomic.Int64
	check := func(k blockstore.Key, b *blockstore.Block) {
		if err := blockstoretest.Check(k, b); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			var slow *blockstore.Block
			for i := range 800 {
				k := keys[min(rng.IntN(len(keys)), rng.IntN(len(keys)))]
				if b := m.Get(k); b != nil {
					check(k, b)
					if slow == nil && i%10 == 0 {
						slow = b // read on, much slower
						continue
					}
					b.Release()
					continue
				}
				if slow != nil && rng.IntN(4) == 0 { // who waits holds nothing
					check(slow.Key(), slow)
					slow.Release()
					slow = nil
				}
				var b *blockstore.Block
				if slow != nil {
					if b = m.TryAlloc(k.Len()); b == nil {
						continue
					}
				} else {
					ctx, cancel := context.WithCancel(context.Background())
					if rng.IntN(10) == 0 {
						go cancel()
					}
					var err error
					b, err = m.Alloc(ctx, k.Len())
					cancel()
					if err != nil {
						gaveUp.Add(1)
						continue
					}
				}
				blockstoretest.Fill(k, b.Buf())
				if rng.IntN(10) > 0 {
					b.Seal(k, int(k.Len()))
					m.Put(b)
					check(k, b)
				}
				b.Release()
				if s := m.Stats(); s.Used > limit || s.Resident+s.Slots*blockOverhead > limit {
					t.Errorf("limit exceeded: %+v", s)
				}
			}
			if slow != nil {
				check(slow.Key(), slow)
				slow.Release()
			}
		})
	}
	wg.Wait()
	t.Logf("%d gave up; %+v", gaveUp.Load(), m.Stats())
	m.Close()
	if m.arena.mapping != nil || m.arena.blocks != 0 {
		t.Errorf("%d slots are left over", m.arena.blocks)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := New(Config{Limit: 8 << 20, MaxBlock: 1 << 20, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Limit: 8 << 20, MaxBlock: 1 << 20, Registerer: reg}); err == nil {
		t.Error("two tiers under the same names")
	}
	b, err := m.Alloc(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b.Seal(key(0), 1<<20)
	m.Put(b)
	b.Release()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP ashlar_memory_blocks Blocks that can be found.
# TYPE ashlar_memory_blocks gauge
ashlar_memory_blocks 1
# HELP ashlar_memory_evictions_total Blocks taken out of the main part.
# TYPE ashlar_memory_evictions_total counter
ashlar_memory_evictions_total 0
# HELP ashlar_memory_limit_bytes What the memory tier may occupy.
# TYPE ashlar_memory_limit_bytes gauge
ashlar_memory_limit_bytes 8.388608e+06
# HELP ashlar_memory_used_bytes Slots in use by whole pages, and the overhead of their blocks.
# TYPE ashlar_memory_used_bytes gauge
ashlar_memory_used_bytes 1.048896e+06
`), "ashlar_memory_blocks", "ashlar_memory_evictions_total", "ashlar_memory_limit_bytes",
		"ashlar_memory_used_bytes"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 12 {
		t.Errorf("%d metrics, %v", n, err)
	}
	m.Close()
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Errorf("%d metrics after Close, %v", n, err)
	}
}

// A hit allocates nothing.
func TestHitDoesNotAllocate(t *testing.T) {
	m := newTier(t, 64<<20, 1<<20)
	for i := range int64(50) {
		read(t, m, key(i))
	}
	k := key(3)
	// Ristretto allocates a buffer for 64 reads now and then.
	if n := testing.AllocsPerRun(1000, func() {
		b := m.Get(k)
		b.Release()
	}); n > 0 {
		t.Errorf("%v allocations per hit", n)
	}
}
