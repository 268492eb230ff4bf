package disk

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"github.com/ashlar-s3/ashlar/blockstore/memory"
)

// The disk stalls for 30 seconds in everything it does. Reads take ReadTimeout until the tier is out and no time then,
// Put never waits, no slot is reused while the disk may still write into it, and afterwards everything works.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, slots := newMemDir(), new(blockstoretest.Heap)
		d := openTier(t, Config{Slots: slots, QueueLimit: 8 << 20, ReadTimeout: DefaultReadTimeout}, dir)
		for i := range 30 {
			put(t, d, mixed(i))
		}
		flush(t, d)
		begin := time.Now()
		stall := begin.Add(30 * time.Second)
		dir.setHook(func(string, string) error {
			time.Sleep(time.Until(stall))
			return nil
		})
		var wg sync.WaitGroup
		var slow sync.Map
		for i := range 30 {
			wg.Go(func() {
				start := time.Now()
				if d.Get(mixed(i)) != nil {
					t.Error("a block from a disk that stalls")
				}
				slow.Store(time.Since(start), nil)
			})
		}
		for i := range 300 {
			put(t, d, mixed(100+i))
		}
		if time.Since(begin) != 0 {
			t.Error("Put waits")
		}
		wg.Wait()
		slow.Range(func(took, _ any) bool {
			if took.(time.Duration) > DefaultReadTimeout {
				t.Errorf("a read took %v", took)
			}
			return true
		})
		state(t, d, StateOut)
		if count(d.metrics.drops, dropQueue) == 0 || d.Stats().Queued > 8<<20 {
			t.Error("the queue is not bounded")
		}
		if slots.Used() == 0 {
			t.Error("slots that the disk may still write into were given up")
		}
		at := time.Now()
		if d.Get(mixed(0)) != nil || time.Since(at) != 0 {
			t.Error("a tier that is out asks the disk")
		}
		time.Sleep(time.Until(stall) + 2*probeEvery)
		synctest.Wait()
		state(t, d, StateOK)
		if slots.Used() != 0 || d.lost.Load() != 0 || !d.reading.TryAcquire(d.config.ReadLimit) {
			t.Errorf("%d bytes of slots are lost", slots.Used())
		}
		d.reading.Release(d.config.ReadLimit)
		for i := range 30 {
			if !has(t, d, mixed(i)) {
				t.Errorf("block %d is gone", i)
			}
		}
	})
}

// When all reads that may be asked for at once are stuck, by number or bytes, the next one is a miss at once, though
// the tier is not out. Only they hold slots, and only those that were asked for count as failures.
func TestAllReadsStuck(t *testing.T) {
	for _, test := range []struct {
		block int
		limit int64
		reads int
	}{{3, 64 << 20, maxReads}, {6, 64 << 20, 64}, {6, 5<<20 + 1, 5}, {6, 1000, 1}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, slots, k := newMemDir(), new(blockstoretest.Heap), mixed(test.block)
				d := openTier(t, Config{Slots: slots, ReadLimit: test.limit, ReadTimeout: DefaultReadTimeout}, dir)
				put(t, d, k)
				flush(t, d)
				release := make(chan struct{})
				dir.setHook(func(op, _ string) error {
					if op == "read" {
						<-release
					}
					return nil
				})
				var wg sync.WaitGroup
				for range test.reads + 20 {
					wg.Go(func() { has(t, d, k) })
				}
				wg.Wait()
				if slots.Used() != int64(test.reads)*k.Len() || count(d.metrics.reads, readTimeout) != float64(test.reads+20) {
					t.Errorf("%d bytes are stuck", slots.Used())
				}
				if out := d.Stats().State == StateOut; out != (test.reads >= maxFailures) {
					t.Errorf("%d reads failed, and the tier is out: %v", test.reads, out)
				}
				d.health.set(StateOK, nil)
				start := time.Now()
				for range maxFailures {
					has(t, d, k)
				}
				if time.Since(start) != 0 {
					t.Errorf("the next reads wait %v", time.Since(start))
				}
				state(t, d, StateOut)
				close(release)
				synctest.Wait()
				d.health.set(StateOK, nil)
				if !has(t, d, k) || slots.Used() != 0 {
					t.Error("reads do not work again")
				}
			})
		})
	}
}

// behindMemory is a disk tier with n blocks behind a memory tier of 8 MiB, three quarters of which are blocks that are
// read, of 64 KiB all. An eighth of memory is for reads. hot says how many of the blocks are still in memory.
func behindMemory(t *testing.T, dir *memDir, n int) (
	d *Tier, m *memory.Tier, k func(int) blockstore.Key, hot func() int,
) {
	t.Helper()
	const size, all, inMemory = 64 << 10, 8 << 20, 96
	m, err := memory.New(memory.Config{Limit: all, MaxBlock: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	d = openTier(t, Config{Slots: m, ReadLimit: all / 8, ReadTimeout: DefaultReadTimeout, QueueLimit: all / 4}, dir)
	v := blockstoretest.Object("behind memory", 1<<40, size)
	k = func(i int) blockstore.Key { return blockstore.Key{Version: v, Index: int64(i)} }
	for i := range n {
		put(t, d, k(i))
		flush(t, d)
	}
	for i := range inMemory {
		b := m.TryAlloc(size)
		if b == nil {
			t.Fatal("no slot")
		}
		blockstoretest.Fill(k(n+i), b.Buf())
		b.Seal(k(n+i), size)
		m.Put(b)
		b.Release()
		for range 3 {
			m.Get(k(n + i)).Release()
		}
	}
	synctest.Wait()
	hot = func() (found int) {
		for i := range inMemory {
			if m.Contains(k(n + i)) {
				found++
			}
		}
		return found
	}
	if hot() != inMemory {
		t.Fatalf("%d blocks in memory", hot())
	}
	return d, m, k, hot
}

// However many reads a disk that stalls is asked for, it keeps an eighth of memory at most: the rest is to be had for
// what the origin sends, and no block goes for them.
func TestStallLeavesMemory(t *testing.T) {
	for _, readers := range []int{30, 100, 200, 600} {
		t.Run(fmt.Sprint(readers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newMemDir()
				d, m, k, hot := behindMemory(t, dir, readers)
				before := hot()
				stall := time.Now().Add(10 * time.Minute)
				dir.setHook(func(op, _ string) error {
					if op == "read" {
						time.Sleep(time.Until(stall))
					}
					return nil
				})
				var wg sync.WaitGroup
				for i := range readers {
					wg.Go(func() { has(t, d, k(i)) })
				}
				wg.Wait()
				if hot() != before {
					t.Errorf("%d of %d blocks are left in memory", hot(), before)
				}
				var held []*blockstore.Block
				for b := m.TryAlloc(64 << 10); b != nil; b = m.TryAlloc(64 << 10) {
					held = append(held, b)
				}
				if got := int64(len(held)) * 64 << 10; got < m.Limit()*3/4 {
					t.Errorf("%d bytes of memory are to be had", got)
				}
				for _, b := range held {
					b.Release()
				}
				time.Sleep(time.Until(stall))
				synctest.Wait()
			})
		})
	}
}

// A disk that takes 900 ms for a read is asked for what it can do; what it can't is a miss in time, takes nothing out
// of memory, and does not make the tier go out.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers = 500
		dir := newMemDir()
		d, _, k, hot := behindMemory(t, dir, readers)
		before := hot()
		dir.setHook(func(op, _ string) error {
			if op == "read" {
				time.Sleep(900 * time.Millisecond)
			}
			return nil
		})
		var got atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for i := range readers {
			wg.Go(func() {
				if has(t, d, k(i)) {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > DefaultReadTimeout || got.Load() != 16 {
			t.Errorf("%d reads answered in %v", got.Load(), took)
		}
		if hot() != before {
			t.Errorf("%d of %d blocks are left in memory", hot(), before)
		}
		state(t, d, StateOK)
	})
}

// A slot that is not to be had in time is a miss.
func TestNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := &blockstoretest.Heap{Max: 1 << 20}
		d := openTier(t, Config{Slots: slots, ReadTimeout: DefaultReadTimeout}, newMemDir())
		put(t, d, mixed(6))
		flush(t, d)
		b := slots.TryAlloc(1)
		start := time.Now()
		if has(t, d, mixed(6)) || time.Since(start) != DefaultReadTimeout/2 {
			t.Errorf("after %v", time.Since(start))
		}
		time.AfterFunc(DefaultReadTimeout/4, b.Release)
		if !has(t, d, mixed(6)) {
			t.Error("not read when a slot was free in time")
		}
	})
}
