package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

// Every hit and miss of a full tier with pinned blocks counts: nine tenths of the limit hold readable blocks at any time
// when nobody holds any, through one filler or many.
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

// A waiter is served by the end of what holds the memory, whatever that is: a reader of a block that the tier itself still
// has, a fill that is put, a fill that is given up.
func TestWaiterIsServed(t *testing.T) {
	for name, finish := range map[string]func(m *Tier, b *blockstore.Block, i int64){
		"reader leaves":    func(m *Tier, b *blockstore.Block, i int64) { b.Release() },
		"fill is put":      func(m *Tier, b *blockstore.Block, i int64) { b.Seal(key(i), 1<<20); m.Put(b); b.Release() },
		"fill is given up": func(m *Tier, b *blockstore.Block, i int64) { b.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newTier(t, 8<<20, 1<<20)
				defer m.Close()
				var held []*blockstore.Block
				for b := m.TryAlloc(1 << 20); b != nil; b = m.TryAlloc(1 << 20) {
					held = append(held, b)
				}
				if name == "reader leaves" {
					for i, b := range held {
						b.Seal(key(int64(i)), 1<<20)
						m.Put(b)
					}
				}
				var got *blockstore.Block
				go func() { got, _ = m.Alloc(context.Background(), 1<<20) }()
				synctest.Wait()
				if got != nil {
					t.Fatal("there was room")
				}
				for i, b := range held {
					finish(m, b, int64(100+i))
				}
				synctest.Wait()
				if got == nil {
					t.Fatalf("the waiter was not served: %+v", m.Stats())
				}
				got.Release()
			})
		})
	}
}

// Waiters are served in their order, whatever their sizes, one that gave up doesn't count, and nobody overtakes.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTier(t, 8<<20, 1<<20)
		defer m.Close()
		var held []*blockstore.Block
		for b := m.TryAlloc(256 << 10); b != nil; b = m.TryAlloc(256 << 10) {
			held = append(held, b)
		}
		small := m.TryAlloc(64 << 10)
		for b := small; b != nil; b = m.TryAlloc(64 << 10) {
			held = append(held, b)
		}
		var mu sync.Mutex
		var order []int
		cause := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(context.Background())
		var got []*blockstore.Block
		for i, n := range []int64{1 << 20, 4 << 10, 1 << 20, 64 << 10, 1} {
			go func() {
				c := context.Background()
				if i == 0 {
					c = ctx
				}
				b, err := m.Alloc(c, n)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if i != 0 || !errors.Is(err, cause) {
						t.Errorf("waiter %d: %v", i, err)
					}
					return
				}
				order, got = append(order, i), append(got, b)
			}()
			synctest.Wait()
		}
		if s := m.Stats(); s.Waiting != 5 {
			t.Fatalf("%d wait, want 5", s.Waiting)
		}
		for b := range held[:3] { // 768 KiB: not enough for the first, and none for those behind
			held[b].Release()
		}
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("overtaken by %v", order)
		}
		if b := m.TryAlloc(1); b != nil {
			t.Error("TryAlloc overtook those who wait")
			b.Release()
		}
		cancel(cause)
		synctest.Wait()
		if fmt.Sprint(order) != "[1]" { // the one behind fits
			t.Fatalf("served %v after the first gave up", order)
		}
		for _, b := range held[3:] {
			b.Release()
			synctest.Wait()
			if len(order) > 1 && !slices.Contains(order, 2) {
				t.Fatalf("waiter 2 was overtaken: %v", order)
			}
		}
		if len(order) != 4 {
			t.Errorf("served %v", order)
		}
		for _, b := range got {
			b.Release()
		}
		if s := m.Stats(); s.Slots != 0 || s.Waiting != 0 || s.AllocWaits != 5 {
			t.Errorf("at the end %+v", s)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTier(t, 8<<20, 1<<20)
		var held []*blockstore.Block
		for b := m.TryAlloc(1 << 20); b != nil; b = m.TryAlloc(1 << 20) {
			blockstoretest.Fill(key(100), b.Buf())
			b.Seal(key(100), 1<<20)
			held = append(held, b)
		}
		for _, b := range held[:3] {
			m.Put(b)
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := m.Alloc(context.Background(), 1<<20)
				errs <- err
			}()
		}
		synctest.Wait()
		m.Close()
		m.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("a waiter got %v", err)
			}
		}
		m.Put(held[0])
		if m.Contains(key(100)) || m.Get(key(100)) != nil {
			t.Error("found something after Close")
		}
		if b := m.TryAlloc(1); b != nil {
			t.Error("TryAlloc after Close")
		}
		if _, err := m.Alloc(context.Background(), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("Alloc after Close: %v", err)
		}
		for _, b := range held {
			if err := blockstoretest.Check(key(100), b); err != nil {
				t.Error(err)
			}
			if m.arena.mapping == nil {
				t.Fatal("unmapped with blocks referenced")
			}
			b.Release()
		}
		if m.arena.mapping != nil {
			t.Error("still mapped after the last release")
		}
	})
}

// Close in the middle of everything.
func TestCloseRace(t *testing.T) {
	for range 20 {
		m := newTier(t, 8<<20, 1<<20)
		var wg sync.WaitGroup
		started := make(chan struct{}, 4)
		for g := range int64(4) {
			wg.Go(func() {
				for i := int64(0); ; i++ {
					if i == 10 {
						started <- struct{}{}
					}
					k := key(g + i%30)
					if b := m.Get(k); b != nil {
						b.Release()
						continue
					}
					m.Contains(k)
					b, err := m.Alloc(context.Background(), 1<<20)
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					b.Seal(k, 1<<20)
					m.Put(b)
					b.Release()
				}
			})
		}
		<-started
		m.Close()
		wg.Wait()
		if m.arena.mapping != nil {
			t.Fatal("still mapped")
		}
	}
}

// Readers slow and fast, fills put and given up, waits cut short, sizes of all classes, a tier far too small for it: bytes
// are always right, the limit holds at every moment, and at the end nothing is left over.
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

// What the kernel says is resident stays within the limit while memory moves between classes.
func TestResident(t *testing.T) {
	const limit = 256 << 20
	m := newTier(t, limit, 16<<20)
	before := residentOf(t, m.arena) // the system may show neighbours as one mapping
	if before < 0 {
		t.Skip("no /proc/self/smaps")
	}
	rss := func() int64 { return residentOf(t, m.arena) - before }
	page := os.Getpagesize()
	for phase, size := range []int64{1 << 20, 4 << 10, 64 << 10, 16 << 20, 100_000, 1 << 20, 700} {
		v := blockstoretest.Object(fmt.Sprint("resident", phase), 1<<50, size)
		n := limit * 3 / 2 / size
		if size < 4<<10 {
			n = limit / 8 / size
		}
		for i := range n {
			b, err := m.Alloc(t.Context(), size)
			if err != nil {
				t.Fatal(err)
			}
			for p := 0; p < len(b.Buf()); p += page {
				b.Buf()[p] = 1
			}
			b.Seal(blockstore.Key{Version: v, Index: i}, int(size))
			m.Put(b)
			b.Release()
			if i%(n/4) == 0 {
				if got := rss(); got > limit {
					t.Errorf("blocks of %d: %d bytes resident, limit %d; %+v", size, got, limit, m.Stats())
				}
			}
		}
		s := m.Stats()
		got := rss()
		t.Logf("blocks of %d: %d MiB resident, %d counted", size, got>>20, s.Resident>>20)
		if got > s.Resident {
			t.Errorf("blocks of %d: %d bytes resident, %d counted", size, got, s.Resident)
		}
	}
}

// residentOf returns the bytes of the arena's mapping that are in memory, or -1 where the system doesn't say.
func residentOf(t *testing.T, a *arena) int64 {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return -1
	}
	defer f.Close()
	all, err := io.ReadAll(f)
	if err != nil {
		return -1
	}
	total, inside := int64(0), false
	for line := range strings.Lines(string(all)) {
		fields := strings.Fields(line)
		if from, to, ok := strings.Cut(fields[0], "-"); ok && len(fields) > 1 {
			lo, err1 := strconv.ParseUint(from, 16, 64)
			hi, err2 := strconv.ParseUint(to, 16, 64)
			if err1 != nil || err2 != nil {
				t.Fatalf("smaps: %q", line)
			}
			inside = uintptr(lo) < a.base+a.size && uintptr(hi) > a.base
		}
		if inside && fields[0] == "Rss:" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatalf("smaps: %q", line)
			}
			total += n << 10
		}
	}
	return total
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
