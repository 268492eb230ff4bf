package disk

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A working set that fits is all hits on the second pass, and 99% of it after a restart. Nothing is dropped when it is
// filled at a pace that the disk can follow.
func TestWorkingSet(t *testing.T) {
	for _, length := range []int64{700, 20_000, 1 << 20} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			dir := newMemDir()
			d := openTier(t, Config{}, dir)
			v := blockstoretest.Object("working set", 1<<50, length)
			n := min(14*(4<<20)*7/10/(length+300), 3000)
			for i := range n {
				put(t, d, blockstore.Key{Version: v, Index: i})
				if i%8 == 7 {
					flush(t, d)
				}
			}
			flush(t, d)
			for range 2 {
				hits := int64(0)
				for i := range n {
					if has(t, d, blockstore.Key{Version: v, Index: i}) {
						hits++
					}
				}
				if hits != n {
					t.Errorf("%d of %d are hits", hits, n)
				}
				for _, reason := range []string{dropQueue, dropOut, dropSize, dropOnce, dropError, dropSpace} {
					if c := count(d.metrics.drops, reason); c > 0 {
						t.Errorf("%v dropped: %s", c, reason)
					}
				}
				closeTier(t, d)
				d = openTier(t, Config{}, dir)
				recovered(t, d)
			}
		})
	}
}

// Whatever happens, the files are not larger than the capacity, those included that are deleted and still read.
func TestCapacity(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	reads := make(chan struct{})
	var once sync.Once
	held := make(chan struct{})
	var hold atomic.Bool
	dir.setHook(func(op, name string) error {
		if op == "read" && name == regionName(0) && hold.Load() {
			once.Do(func() { close(held) })
			<-reads
		}
		if _, used := d.regions.bytes(); op == "create" && strings.HasSuffix(name, ".region") &&
			used+d.config.RegionSize > d.budget {
			t.Errorf("a region is made when %d bytes of %d are used", used, d.budget)
		}
		dir.mu.Lock()
		defer dir.mu.Unlock()
		if used := dir.used(); used > d.config.Capacity {
			t.Errorf("%d bytes of %d", used, d.config.Capacity)
		}
		return nil
	})
	put(t, d, mixed(6))
	flush(t, d)
	hold.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { // reads a region that is reclaimed meanwhile
		if !has(t, d, mixed(6)) {
			t.Error("the block was not read")
		}
	})
	<-held
	for i := range 400 {
		put(t, d, mixed(100+i))
		put(t, d, mixed(100+i))
		d.PutInfo("x", make([]byte, 100_000))
		if i%4 == 0 {
			flush(t, d)
		}
	}
	if _, ok := regionFiles(dir)[regionName(0)]; ok {
		t.Error("the region was not reclaimed")
	}
	live, used := d.regions.bytes()
	if used != live+d.config.RegionSize {
		t.Errorf("%d bytes used, %d of them live: a deleted file that is read does not count", used, live)
	}
	close(reads)
	wg.Wait()
}

// Blocks that were read survive their region, with their bytes; at most three quarters of it.
func TestSurvivors(t *testing.T) {
	for _, direct := range []bool{false, true} {
		path := t.TempDir()
		d := openTier(t, Config{Dir: path, DirectIO: direct}, &osDir{path: path})
		n := 0
		for ; d.Stats().Regions < 2; n++ {
			put(t, d, mixed(n))
			flush(t, d)
		}
		var read []int
		for i := range n / 2 {
			if !has(t, d, mixed(2*i)) {
				t.Fatal("not there")
			}
			read = append(read, 2*i)
		}
		for i := 0; d.regions.oldest().seq == 0; i++ {
			put(t, d, mixed(1000+i))
			put(t, d, mixed(1000+i))
			flush(t, d)
		}
		for i := range n - 2 {
			if got := has(t, d, mixed(i)); got != slices.Contains(read, i) {
				t.Errorf("block %d is there: %v", i, got)
			}
		}
		if m := testutil.ToFloat64(d.metrics.moved); m < float64(len(read)-1) {
			t.Errorf("%v moved", m)
		}
		closeTier(t, d)
		d = openTier(t, Config{Dir: path, DirectIO: direct}, &osDir{path: path})
		recovered(t, d)
		for _, i := range read[:len(read)-1] {
			if !has(t, d, mixed(i)) {
				t.Errorf("block %d is gone after a restart", i)
			}
		}
		closeTier(t, d)
	}
}

// The index is bounded by its own limit, for blocks that are tiny.
func TestIndexLimit(t *testing.T) {
	const limit = 2000
	d := openTier(t, Config{IndexLimit: limit * indexBytes}, newMemDir())
	v := blockstoretest.Object("tiny", 1<<50, 3000)
	for i := range int64(6000) {
		k := blockstore.Key{Version: v, Index: i}
		put(t, d, k)
		put(t, d, k)
		if i%100 == 99 {
			flush(t, d)
			has(t, d, k)
			if n := d.Stats().Blocks; n > limit {
				t.Fatalf("%d blocks", n)
			}
		}
	}
	if n := d.Stats().Blocks; n < limit/4 {
		t.Errorf("only %d blocks", n)
	}
}

// What a block costs in memory: entries of the index, hashes of regions, marks of the ghost.
func TestIndexBytes(t *testing.T) {
	heap := func() int64 { // less than before, where something of another test was still there then
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	x := newIndex()
	rng := rand.New(rand.NewPCG(1, 1))
	var hashes [][]uint64
	empty := heap()
	worst := 0.0
	const per = 1024
	for n := 0; n < 1_500_000; n += per {
		list := make([]uint64, per)
		for i := range list {
			list[i] = rng.Uint64()
			x.set(list[i], place{region: uint32(n), at: uint32(i * unit)})
		}
		hashes = append(hashes, list)
		if n > 200_000 && n%(40*per) == 0 {
			worst = max(worst, float64(heap()-empty)/float64(n+per))
		}
	}
	t.Logf("%.1f bytes per block, and 4 for the ghost", worst)
	if worst+4 > indexBytes {
		t.Errorf("more than %d", indexBytes)
	}
	runtime.KeepAlive(hashes)
	runtime.KeepAlive(x)
}

// A disk that takes long to sync holds no more than the file that it is at: what is deleted before its turn is let go.
func TestSlowSync(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	release := make(chan struct{})
	dir.setHook(func(op, _ string) error {
		if op == "sync" {
			<-release
		}
		return nil
	})
	for i := range 400 {
		put(t, d, mixed(i))
		flush(t, d)
	}
	if live, used := d.regions.bytes(); used > live+d.config.RegionSize {
		t.Errorf("%d bytes used, %d of them live", used, live)
	}
	if n := count(d.metrics.drops, dropSpace); n > 0 || !has(t, d, mixed(399)) {
		t.Errorf("%v blocks dropped", n)
	}
	close(release)
}

// Reads that are stuck in more and more regions hold their space, but do not drive out everything else.
func TestManyHeld(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	var first []int // block of each region
	for i := 0; len(first) < 8; i++ {
		put(t, d, mixed(i))
		flush(t, d)
		if n := int(d.Stats().Regions); n > len(first) {
			first = append(first, i)
		}
	}
	var stuck sync.WaitGroup
	var reads atomic.Int64
	release := make(chan struct{})
	dir.setHook(func(op, _ string) error {
		if op == "read" {
			reads.Add(1)
			<-release
		}
		return nil
	})
	for _, i := range first {
		stuck.Go(func() { has(t, d, mixed(i)) })
	}
	for int(reads.Load()) < len(first) {
		time.Sleep(time.Millisecond)
	}
	for i := range 600 {
		put(t, d, mixed(1000+i))
		flush(t, d)
	}
	live, used := d.regions.bytes()
	if used > d.budget || used-live > 4*d.config.RegionSize || live < d.budget*2/3 {
		t.Errorf("%d bytes used, %d of them live, of %d", used, live, d.budget)
	}
	if count(d.metrics.drops, dropSpace) == 0 {
		t.Error("no block was dropped")
	}
	close(release)
	stuck.Wait()
	for live, used := d.regions.bytes(); used != live; live, used = d.regions.bytes() { // readers are told before that
		time.Sleep(time.Millisecond)
	}
	put(t, d, mixed(5000))
	flush(t, d)
	if !d.Contains(mixed(5000)) {
		t.Error("nothing is kept when the reads have ended")
	}
}

// When everything was read, three quarters of a region survive it.
func TestSurvivorsAreBounded(t *testing.T) {
	d := openTier(t, Config{}, newMemDir())
	v := blockstoretest.Object("all read", 1<<50, 20_000)
	for i := int64(0); i == 0 || d.regions.oldest().seq == 0; i++ {
		k := blockstore.Key{Version: v, Index: i}
		put(t, d, k)
		put(t, d, k)
		flush(t, d)
		if !has(t, d, k) {
			t.Fatalf("block %d is not there", i)
		}
	}
	n := 4 << 20 / 20_000
	if m := int(testutil.ToFloat64(d.metrics.moved)); m < n/2 || m > n*3/4 {
		t.Errorf("%d of %d survive", m, n)
	}
}

// A block that is put twice before it is written is written once.
func TestPutTwiceAtOnce(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	release := make(chan struct{})
	dir.setHook(func(op, _ string) error {
		if op == "write" {
			<-release
		}
		return nil
	})
	put(t, d, mixed(1))
	for len(d.queue.wake) > 0 { // until the writer is at it
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		put(t, d, mixed(2))
	}
	close(release)
	flush(t, d)
	if n := testutil.ToFloat64(d.metrics.writes); n != 2 {
		t.Errorf("%v writes", n)
	}
}
