package disk

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

// verify runs the tests; none may leave a goroutine.
func verify(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a tier of 16 regions of 4 MiB, for blocks of up to 1 MiB.
func small(c Config) Config {
	if c.Dir == "" {
		c.Dir = "memory"
	}
	if c.RegionSize == 0 {
		c.RegionSize = 4 << 20
	}
	if c.Capacity == 0 {
		c.Capacity = 18 * c.RegionSize
	}
	if c.MaxBlock == 0 {
		c.MaxBlock = 1 << 20
	}
	if c.Slots == nil {
		c.Slots = new(blockstoretest.Heap)
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = time.Hour // machines that test may be slow, and tests hold reads up while they do other things
	}
	return c
}

// openTier opens a tier that is closed at the end of the test, if the test has not done it.
func openTier(t testing.TB, c Config, fs fileSystem) *Tier {
	t.Helper()
	d, err := open(small(c), fs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTier(t, d) })
	return d
}

func closeTier(t testing.TB, d *Tier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func timeout(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

func flush(t testing.TB, d *Tier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Flush(ctx); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

// recovered waits until recovery has ended.
func recovered(t testing.TB, d *Tier) {
	t.Helper()
	for range 6000 {
		if !d.Stats().Recovering {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("recovery does not end")
}

func block(t testing.TB, k blockstore.Key) *blockstore.Block {
	t.Helper()
	b, err := new(blockstoretest.Heap).Alloc(context.Background(), k.Len())
	if err != nil {
		t.Fatal(err)
	}
	blockstoretest.Fill(k, b.Buf())
	b.Seal(k, int(k.Len()))
	return b
}

func put(t testing.TB, d *Tier, k blockstore.Key) {
	t.Helper()
	b := block(t, k)
	d.Put(b)
	b.Release()
}

// has gets a block, checks it, and says whether it was there.
func has(t testing.TB, d *Tier, k blockstore.Key) bool {
	t.Helper()
	b := d.Get(k)
	if b == nil {
		return false
	}
	defer b.Release()
	if err := blockstoretest.Check(k, b); err != nil {
		t.Error(err)
	}
	return true
}

func count(v *prometheus.CounterVec, label string) float64 {
	return testutil.ToFloat64(v.WithLabelValues(label))
}

// keen is a tier whose blocks are offered twice, as one that is fetched twice is.
type keen struct{ *Tier }

func (k keen) Put(b *blockstore.Block) {
	k.Tier.Put(b)
	k.Tier.Put(b)
}

func (k keen) Close() error { return k.Tier.Close(context.Background()) }

func settle(s blockstore.Store) {
	switch s := s.(type) {
	case keen:
		_ = s.Flush(context.Background())
	case stacked:
		_ = s.disk.Flush(context.Background())
	}
}

// On a directory in memory; TEST_DISK_DIR=/some/dir is for one on a filesystem.
func TestSuite(t *testing.T) {
	for name, c := range map[string]Config{"buffered": {}, "direct": {DirectIO: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blockstoretest.Store(t, blockstoretest.Suite{
				New: func(t testing.TB) blockstore.Store {
					var fs fileSystem = newMemDir()
					if dir := os.Getenv("TEST_DISK_DIR"); dir != "" {
						path, err := os.MkdirTemp(dir, "")
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { _ = os.RemoveAll(path) })
						fs = &osDir{path: path}
					}
					d, err := open(small(c), fs)
					if err != nil {
						t.Fatal(err)
					}
					return keen{d}
				},
				Settle: settle,
			})
		})
	}
}

// stacked is memory above disk, as the engine uses them.
type stacked struct {
	*memory.Tier
	disk keen
}

func (s stacked) Get(k blockstore.Key) *blockstore.Block {
	if b := s.Tier.Get(k); b != nil {
		return b
	}
	b := s.disk.Get(k)
	if b != nil {
		s.Tier.Put(b)
	}
	return b
}

func (s stacked) Contains(k blockstore.Key) bool { return s.Tier.Contains(k) || s.disk.Contains(k) }

func (s stacked) Put(b *blockstore.Block) {
	s.Tier.Put(b)
	s.disk.Put(b)
}

func (s stacked) Close() error {
	err := s.disk.Close()
	s.Tier.Close()
	return err
}

func TestSuiteBelowMemory(t *testing.T) {
	t.Parallel()
	blockstoretest.Store(t, blockstoretest.Suite{
		New: func(t testing.TB) blockstore.Store {
			m, err := memory.New(memory.Config{Limit: 16 << 20, MaxBlock: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			d, err := open(small(Config{Slots: m, QueueLimit: 2 << 20}), newMemDir())
			if err != nil {
				t.Fatal(err)
			}
			return stacked{m, keen{d}}
		},
		Settle: settle,
	})
}

func TestConfig(t *testing.T) {
	for name, test := range map[string]struct {
		c    func(*Config)
		want string
	}{
		"no directory":     {func(c *Config) { c.Dir = "" }, "no directory"},
		"no slots":         {func(c *Config) { c.Slots = nil }, "no slots"},
		"block":            {func(c *Config) { c.MaxBlock = 0 }, "largest block"},
		"region":           {func(c *Config) { c.RegionSize = 1<<20 + 1 }, "multiple of 4096"},
		"region too small": {func(c *Config) { c.RegionSize = 1 << 20 }, "too small for blocks"},
		"capacity":         {func(c *Config) { c.Capacity = MinCapacity(c.RegionSize) - 1 }, "too small for regions"},
		"recover":          {func(c *Config) { c.Recover = "loud" }, "want quiet, none or strict"},
		"descriptors":      {func(c *Config) { c.Capacity = 1 << 60 }, "descriptors"},
	} {
		c := small(Config{})
		test.c(&c)
		if _, err := open(c, newMemDir()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The metrics are there from the start, say what is, and go with the tier.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	d := openTier(t, Config{Registerer: reg}, newMemDir())
	if _, err := open(small(Config{Registerer: reg}), newMemDir()); err == nil {
		t.Error("two tiers have the same metrics")
	}
	put(t, d, mixed(6))
	put(t, d, mixed(5))
	flush(t, d)
	has(t, d, mixed(6))
	has(t, d, mixed(7))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "ashlar_disk_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"reads_total ok": 1, "reads_total damaged": 0, "reads_total error": 0, "reads_total timeout": 0,
		"reads_total no_slot": 0, "read_bytes_total": 1 << 20, "writes_total": 2, "drops_total queue": 0,
		"drops_total out": 0, "drops_total once": 0, "checksum_failures_total": 0, "errors_total": 0, "blocks": 2,
		"index_bytes": 2 * indexBytes, "used_bytes": 4 << 20, "capacity_bytes": 72 << 20, "queue_bytes": 0, "regions": 1,
		"state ok": 1, "state read-only": 0, "state out": 0, "read_seconds": 1, "recovery_blocks": 0,
		"recovery_skipped_total damaged": 0, "moved_blocks_total": 0, "reclaimed_regions_total": 0, "info_drops_total": 0,
	} {
		if g, ok := got[name]; !ok || g != want {
			t.Errorf("%s is %v, want %v", name, g, want)
		}
	}
	for _, name := range []string{
		"write_seconds", "written_bytes_total", "oldest_region_age_seconds", "recovery_seconds",
	} {
		if g, ok := got[name]; !ok || name[0] == 'w' && g == 0 {
			t.Errorf("%s is %v", name, g)
		}
	}
	closeTier(t, d)
	if families, _ := reg.Gather(); len(families) != 0 {
		t.Errorf("%d families are left", len(families))
	}
}

// What is too large, or has too long a key, is not kept, and counted.
func TestTooLarge(t *testing.T) {
	d := openTier(t, Config{MaxBlock: 1000}, newMemDir())
	put(t, d, mixed(2))
	v := blockstoretest.Object(strings.Repeat("k", maxKey), 10, 10)
	put(t, d, blockstore.Key{Version: v})
	v = blockstoretest.Object(strings.Repeat("k", maxKey-200), 10, 10)
	put(t, d, blockstore.Key{Version: v})
	flush(t, d)
	if n := count(d.metrics.drops, dropSize); n != 2 {
		t.Errorf("%v dropped", n)
	}
	if !has(t, d, blockstore.Key{Version: v}) {
		t.Error("a long key is not kept")
	}
}

func BenchmarkGet(b *testing.B) {
	for _, length := range []int64{4 << 10, 64 << 10, 1 << 20} {
		benchmarkGet(b, length, 0)
	}
}

// BenchmarkGetPart reads 4 KiB out of the middle of blocks of 1 MiB.
func BenchmarkGetPart(b *testing.B) { benchmarkGet(b, 1<<20, 4<<10) }

// benchmarkGet reads blocks of a length, or a part of them, which is the whole where it is 0.
func benchmarkGet(b *testing.B, length, part int64) {
	for _, direct := range []bool{false, true} {
		b.Run(fmt.Sprintf("%d/direct=%v", length, direct), func(b *testing.B) {
			m, err := memory.New(memory.Config{Limit: 64 << 20, MaxBlock: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			dir := b.TempDir()
			d := openTier(b, Config{Dir: dir, Slots: m, DirectIO: direct, Capacity: 512 << 20, RegionSize: 32 << 20},
				&osDir{path: dir})
			v := blockstoretest.Object("bench", 1<<50, length)
			n := 256 << 20 / length
			n = min(n, 10_000)
			for i := range n {
				put(b, d, blockstore.Key{Version: v, Index: i})
				if i%8 == 0 {
					flush(b, d)
				}
			}
			flush(b, d)
			b.SetBytes(cmp.Or(part, length))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.Int64N(n); pb.Next(); i++ {
					k := blockstore.Key{Version: v, Index: i % n}
					var got *blockstore.Block
					if part == 0 {
						got = d.Get(k)
					} else {
						got, _, _ = d.GetPart(context.Background(), k, length/2, part)
					}
					if got == nil {
						b.Error("a miss")
						return
					}
					got.Release()
				}
			})
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, length := range []int64{4 << 10, 1 << 20} {
		for _, direct := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/direct=%v", length, direct), func(b *testing.B) {
				dir := b.TempDir()
				d := openTier(b, Config{Dir: dir, DirectIO: direct, Capacity: 1 << 30, RegionSize: 64 << 20},
					&osDir{path: dir})
				v := blockstoretest.Object("bench", 1<<50, length)
				mem := make([]byte, length)
				b.SetBytes(length)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					blk := blockstore.NewBlock(mem, keepMemory{})
					blk.Seal(blockstore.Key{Version: v, Index: int64(i)}, int(length))
					d.Put(blk)
					blk.Release()
					if i%32 == 31 {
						flush(b, d)
					}
				}
				flush(b, d)
			})
		}
	}
}

type keepMemory struct{}

func (keepMemory) Free([]byte) {}
