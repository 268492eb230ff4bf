package disk

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
)

// hasPart gets a part of a block, checks it, and says whether it was there.
func hasPart(t testing.TB, d *Tier, k blockstore.Key, off, n int64) bool {
	t.Helper()
	slot, from, late := d.GetPart(context.Background(), k, off, n)
	if late {
		t.Errorf("%v: %d bytes from %d are late", k, n, off)
	}
	if slot == nil {
		return false
	}
	defer slot.Release()
	want := make([]byte, k.Len())
	blockstoretest.Fill(k, want)
	got := slot.Bytes()
	if from > off || from+int64(len(got)) < off+n || int64(len(got)) > n+2*chunkSize {
		t.Errorf("%v: asked for %d bytes from %d, got %d from %d", k, n, off, len(got), from)
	} else if !bytes.Equal(got, want[from:from+int64(len(got))]) {
		t.Errorf("%v: wrong bytes in %d from %d", k, len(got), from)
	}
	return true
}

// randomPart returns a part of block k: most are small, some end with the block.
func randomPart(rng *rand.Rand, k blockstore.Key) (off, n int64) {
	off = rng.Int64N(k.Len())
	if n = k.Len() - off; rng.IntN(4) > 0 {
		n = 1 + rng.Int64N(min(n, 2*chunkSize))
	}
	return off, n
}

// Any part of any block, through the page cache and past it, and no more is read than the chunks that it is in.
func TestParts(t *testing.T) {
	_, rng := rounds(t, "", 1)
	for _, direct := range []bool{false, true} {
		path := t.TempDir()
		d := openTier(t, Config{Dir: path, DirectIO: direct}, &osDir{path: path})
		for i := range 14 {
			put(t, d, mixed(i))
		}
		flush(t, d)
		for range 500 {
			k := mixed(rng.IntN(14))
			off, n := randomPart(rng, k)
			before := testutil.ToFloat64(d.metrics.readBytes)
			if !hasPart(t, d, k, off, n) {
				t.Fatalf("%v: %d bytes from %d are not there", k, n, off)
			}
			if read := testutil.ToFloat64(d.metrics.readBytes) - before; read > float64(n+2*chunkSize) {
				t.Errorf("%v bytes were read for %d", read, n)
			}
		}
		for i := range 14 {
			if !has(t, d, mixed(i)) {
				t.Errorf("block %d is gone", i)
			}
		}
		if hasPart(t, d, mixed(99), 0, 1) {
			t.Error("a part of a block that was never put")
		}
		closeTier(t, d)
	}
}

// A chunk that is damaged, or at the place of another, is noticed by who reads it, and the block is gone then; parts of
// other chunks were right.
func TestDamagedChunk(t *testing.T) {
	for name, harm := range map[string]func(payload []byte){
		"flipped":   func(p []byte) { p[3*chunkSize+5] ^= 1 },
		"exchanged": func(p []byte) { copy(p[3*chunkSize:4*chunkSize], slices.Clone(p[2*chunkSize:3*chunkSize])) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, k := newMemDir(), mixed(6)
			d := openTier(t, Config{}, dir)
			put(t, d, k)
			flush(t, d)
			p, _ := d.index.find(k.Hash())
			rec := newRecord(k, appendKey(nil, k))
			harm(dir.files[regionName(0)].data[int(p.offset())+rec.span():])
			if !hasPart(t, d, k, 2*chunkSize, chunkSize) || !hasPart(t, d, k, 4*chunkSize, 10) {
				t.Error("a chunk that is right was refused")
			}
			if hasPart(t, d, k, 4*chunkSize-10, 20) || count(d.metrics.reads, readDamaged) != 1 ||
				testutil.ToFloat64(d.metrics.checksums) != 1 {
				t.Error("the damage was not noticed")
			}
			if d.Contains(k) || hasPart(t, d, k, 0, 1) {
				t.Error("the block is still known")
			}
			put(t, d, k)
			flush(t, d)
			if !hasPart(t, d, k, 3*chunkSize, chunkSize) {
				t.Error("it can't be put again")
			}
		})
	}
}

// A region that is reclaimed while a part of it is read gives the bytes that it had.
func TestPartOfAReclaimedRegion(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	put(t, d, mixed(6))
	flush(t, d)
	reading, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dir.setHook(func(op, name string) error {
		if op == "read" && name == regionName(0) {
			once.Do(func() { close(reading) })
			<-goOn
		}
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if !hasPart(t, d, mixed(6), 5*chunkSize+1, 100) {
			t.Error("the part was lost")
		}
	})
	<-reading
	for i := 0; d.regions.oldest().seq == 0; i++ {
		put(t, d, mixed(1000+i))
		put(t, d, mixed(1000+i))
		flush(t, d)
	}
	close(goOn)
	wg.Wait()
}

// Parts that are read while blocks are written and regions reclaimed, of versions of one object and of others that have the
// same hashes, with a disk that fails and forgets at times, are right or not there; and no slot is lost.
func TestPartsOfWhatChanges(t *testing.T) {
	for _, direct := range []bool{false, true} {
		m, err := memory.New(memory.Config{Limit: 16 << 20, MaxBlock: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		dir := newMemDir()
		d := openTier(t, Config{Slots: m, DirectIO: direct, Capacity: MinCapacity(4 << 20)}, dir)
		dir.setHook(func(op, _ string) error {
			if op == "read" && rand.IntN(100) == 0 {
				return unix.EIO
			}
			return nil
		})
		var versions []*blockstore.Version
		for i := range 12 {
			v := blockstoretest.Object("changes", 1<<20-1000, 300<<10+int64(i/4)*4<<10)
			if i%4 > 0 {
				v = blockstoretest.Object(fmt.Sprint("other ", i), v.Size, v.BlockSize).WithHash(uint64(i / 4))
			}
			versions = append(versions, v)
		}
		pick := func() blockstore.Key {
			return blockstore.Key{Version: versions[rand.IntN(len(versions))], Index: rand.Int64N(3)}
		}
		written := make(chan struct{})
		var read atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
				for {
					select {
					case <-written:
						return
					default:
					}
					k := pick()
					if off, n := randomPart(rng, k); hasPart(t, d, k, off, n) {
						read.Add(1)
					}
				}
			})
		}
		for i := 0; i < 100 || read.Load() < 100; i++ {
			put(t, d, pick())
			put(t, d, mixed(i))
			flush(t, d)
			state(t, d, StateOK)
		}
		close(written)
		wg.Wait()
		if testutil.ToFloat64(d.metrics.reclaimed) == 0 {
			t.Error("nothing was reclaimed")
		}
		if s := m.Stats(); s.Slots != 0 {
			t.Errorf("%d slots are lost", s.Slots)
		}
	}
}

// On a disk that stalls, a part waits no longer than its reader, and holds what it may for its own bytes, until the
// disk answers. Who leaves says nothing of a disk that has had no time yet.
func TestPartOnAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, slots, k := newMemDir(), new(blockstoretest.Heap), mixed(6)
		d := openTier(t, Config{Slots: slots, ReadLimit: 1 << 20, ReadTimeout: DefaultReadTimeout}, dir)
		put(t, d, k)
		flush(t, d)
		release := make(chan struct{})
		dir.setHook(func(op, _ string) error {
			if op == "read" {
				<-release
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 { // of which 16 may be at the disk
			wg.Go(func() {
				if slot, _, late := d.GetPart(ctx, k, chunkSize+1, 100); slot != nil || !late {
					t.Error("a part from a disk that stalls, or none of it")
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("waited %v", took)
		}
		if slots.Used() != 16*chunkSize {
			t.Errorf("%d bytes are stuck", slots.Used())
		}
		for range 2 * maxFailures { // nor does who comes behind
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			if slot, _, late := d.GetPart(ctx, k, chunkSize+1, 100); slot != nil || !late {
				t.Error("a part from a disk that stalls, or none of it")
			}
			cancel()
		}
		state(t, d, StateOK)
		close(release)
		synctest.Wait()
		if !hasPart(t, d, k, chunkSize+1, 100) || slots.Used() != 0 || d.lost.Load() != 0 ||
			!d.reading.TryAcquire(d.config.ReadLimit) {
			t.Error("something is lost")
		}
		d.reading.Release(d.config.ReadLimit)
	})
}

// A disk that stalls is out, though all of its readers have less patience than it has time. Who leaves a disk that is
// only slow takes nothing from the others.
func TestPartsForTheImpatient(t *testing.T) {
	for _, test := range []struct {
		pread time.Duration // of which a part takes two
		state State
	}{{300 * time.Millisecond, StateOK}, {time.Hour, StateOut}} {
		synctest.Test(t, func(t *testing.T) {
			dir, slots, k := newMemDir(), new(blockstoretest.Heap), mixed(6)
			d := openTier(t, Config{Slots: slots, ReadTimeout: DefaultReadTimeout}, dir)
			put(t, d, k)
			flush(t, d)
			dir.setHook(func(op, _ string) error {
				if op == "read" {
					time.Sleep(test.pread)
				}
				return nil
			})
			for range maxFailures {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				if slot, _, late := d.GetPart(ctx, k, chunkSize+1, 100); slot != nil || !late {
					t.Error("a part, or none of it")
				}
				cancel()
			}
			state(t, d, StateOK) // it has had no time yet
			time.Sleep(DefaultReadTimeout)
			state(t, d, test.state)
			time.Sleep(2 * test.pread)
			synctest.Wait()
			if slots.Used() != 0 || d.lost.Load() != 0 || !d.reading.TryAcquire(d.config.ReadLimit) {
				t.Error("something is lost")
			}
			d.reading.Release(d.config.ReadLimit)
		})
	}
}

// What keeps a part from being read is counted once, and is not said to be late. Only for want of memory does the block
// stay known.
func TestPartInTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		fails  int // which pread, from 1 on; 0 for none
		cut    int // the file ends that many chunks into the payload; 0 for whole
		full   bool
		result string
		errors float64
		damage float64
	}{
		"header can't be read": {fails: 1, result: readError, errors: 1},
		"chunk can't be read":  {fails: 2, result: readError, errors: 1},
		"file ends before":     {cut: 3, result: readDamaged, damage: 1},
		"no memory":            {full: true, result: readNoSlot},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, slots, k := newMemDir(), &someSlots{Slots: new(blockstoretest.Heap)}, mixed(6)
				d := openTier(t, Config{Slots: slots, ReadTimeout: DefaultReadTimeout}, dir)
				put(t, d, k)
				flush(t, d)
				slots.none = test.full
				if test.cut > 0 {
					p, _ := d.index.find(k.Hash())
					rec := newRecord(k, appendKey(nil, k))
					f := dir.files[regionName(0)]
					f.data = f.data[:int(p.offset())+rec.span()+test.cut*chunkSize]
				}
				reads := 0
				dir.setHook(func(op, _ string) error {
					if op == "read" {
						if reads++; reads == test.fails {
							return unix.EIO
						}
					}
					return nil
				})
				slot, _, late := d.GetPart(context.Background(), k, 3*chunkSize, 10)
				if slot != nil || late || d.Contains(k) != test.full {
					t.Errorf("a part: %v, late: %v, known: %v", slot != nil, late, d.Contains(k))
				}
				if count(d.metrics.reads, test.result) != 1 || count(d.metrics.reads, readOK) != 0 ||
					testutil.ToFloat64(d.metrics.errors) != test.errors ||
					testutil.ToFloat64(d.metrics.checksums) != test.damage {
					t.Error("not counted, or otherwise")
				}
				state(t, d, StateOK)
			})
		})
	}
}

// someSlots are slots of which there are none at times.
type someSlots struct {
	blockstore.Slots
	none bool
}

func (s *someSlots) TryAlloc(n int64) *blockstore.Block {
	if s.none {
		return nil
	}
	return s.Slots.TryAlloc(n)
}

func (s *someSlots) Alloc(ctx context.Context, n int64) (*blockstore.Block, error) {
	if s.none {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Slots.Alloc(ctx, n)
}
