package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// partRig is a node with an object of n blocks of 512 KiB, all of which are on the disk and none in memory.
func partRig(t *testing.T, n int64) (*rig, *fakeDisk) {
	p := policy()
	p.BlockSize = 512 * KiB
	r, d := newDiskRig(t, p, nil)
	r.origin.Put("b", "k", origintest.Object{Size: n * p.BlockSize})
	r.get("k", gateway.Range{})
	synctest.Wait()
	r.memory.evict()
	d.latency = time.Millisecond
	return r, d
}

func (r *rig) small(d *fakeDisk, off, n int64, src gateway.Source, parts, gets int) {
	r.t.Helper()
	before := r.origin.Stats()
	partsBefore, getsBefore := d.parts, d.gets
	a := r.get("k", gateway.FromTo(off, off+n-1))
	if a.err != nil || int64(len(a.body)) != n || a.obj.Source != src || a.obj.Status != gateway.Hit {
		r.t.Errorf("%d bytes from %d: %d, %v, %v from %v", n, off, len(a.body), a.err, a.obj.Status, a.obj.Source)
	}
	if after := r.origin.Stats(); after.Gets != before.Gets || d.parts-partsBefore != parts || d.gets-getsBefore != gets {
		r.t.Errorf("%d bytes from %d: %d parts, %d blocks from the disk, %d GETs", n, off, d.parts-partsBefore,
			d.gets-getsBefore, after.Gets-before.Gets)
	}
}

// A small read of a block on the disk reads a part of it, until that comes to a quarter of the block, which comes into
// memory then. What is no small part of one block is read by blocks.
func TestSmallReadsFromDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := partRig(t, 8)
		defer r.close()
		const block = 512 * KiB
		r.small(d, 1, 4*KiB, gateway.SourceDisk, 1, 0)
		r.small(d, block-4*KiB, 4*KiB, gateway.SourceDisk, 1, 0)
		r.small(d, 100*KiB, 4*KiB, gateway.SourceDisk, 0, 1)
		r.small(d, 200*KiB, 4*KiB, gateway.SourceMemory, 0, 0)
		r.small(d, 2*block+5, 100*KiB, gateway.SourceDisk, 1, 0) // more than is copied at a time
		r.small(d, 2*block+5, 100*KiB, gateway.SourceDisk, 0, 1)
		r.small(d, 3*block, block/4+1, gateway.SourceDisk, 0, 1)
		r.small(d, 5*block-10, 20, gateway.SourceDisk, 0, 2) // of two blocks
		if n := r.metric("ashlar_blocks_total", "disk"); n != 8 {
			t.Errorf("%v blocks counted as from disk", n)
		}
	})
}

// Many small readers of one block at once read it no more often than one after the other, and the origin is not asked.
func TestManySmallReadersFromDisk(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			r, d := partRig(t, 1)
			defer r.close()
			before := r.origin.Stats()
			answers := r.crowd(50, func(i int) answer {
				time.Sleep(time.Duration(i) * apart) // all come while the disk reads for the first
				return r.get("k", gateway.FromTo(int64(i)*10*KiB, int64(i)*10*KiB+99))
			})
			for i, a := range answers {
				if a.err != nil || len(a.body) != 100 {
					t.Errorf("reader %d: %d bytes, %v", i, len(a.body), a.err)
				}
			}
			// Two parts, and then the block, which the others wait for. In one moment all may look before it is on its way:
			// then one in three gets no part, or a few less where some count in different places.
			most := 2
			if apart == 0 {
				most = 40
			}
			if d.gets != 1 || d.parts < 2 || d.parts > most || r.origin.Stats().Gets != before.Gets {
				t.Errorf("%v apart: %d parts, %d blocks read", apart, d.parts, d.gets)
			}
		})
	}
}

// A part that the disk can't read makes the block come from the origin, once, and whole.
func TestPartIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := partRig(t, 4)
		defer r.close()
		d.lose = func(k blockstore.Key) bool { return k.Index == 2 }
		before := r.origin.Stats()
		a := r.get("k", gateway.FromTo(2*512*KiB+77, 2*512*KiB+99))
		if a.err != nil || len(a.body) != 23 || a.obj.Source != gateway.SourceOrigin {
			t.Errorf("%d bytes, %v, from %v", len(a.body), a.err, a.obj.Source)
		}
		if after := r.origin.Stats(); after.Gets-before.Gets != 1 || after.Bytes-before.Bytes != 512*KiB {
			t.Errorf("origin was asked %q", r.origin.Log())
		}
		r.small(d, 2*512*KiB, 10, gateway.SourceMemory, 0, 0)
	})
}

// A small read waits once for a disk that stalls. Then its block comes from the origin, and is there.
func TestPartOnAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := partRig(t, 2)
		defer r.close()
		d.stalled = true
		before := r.origin.Stats()
		start := time.Now()
		a := r.get("k", gateway.FromTo(1000, 1099))
		if took := time.Since(start); a.err != nil || len(a.body) != 100 || took != patience {
			t.Errorf("%d bytes, %v after %v", len(a.body), a.err, took)
		}
		if a.obj.Source != gateway.SourceOrigin || a.obj.Status != gateway.Miss {
			t.Errorf("a %v from %v", a.obj.Status, a.obj.Source)
		}
		if after := r.origin.Stats(); after.Gets-before.Gets != 1 || after.Bytes-before.Bytes != 512*KiB {
			t.Errorf("origin was asked %q", r.origin.Log())
		}
		r.small(d, 200*KiB, 10, gateway.SourceMemory, 0, 0)
		start = time.Now()
		for _, a := range r.crowd(50, func(i int) answer {
			return r.get("k", gateway.FromTo(512*KiB+int64(i), 512*KiB+int64(i)+99))
		}) {
			if a.err != nil || len(a.body) != 100 {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			}
		}
		if took := time.Since(start); took != patience {
			t.Errorf("a crowd waited %v", took)
		}
	})
}

// Where the origin is no help, a small read asks a disk that was late once more, and only once.
func TestLatePartInAnOutage(t *testing.T) {
	for _, stays := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, d := partRig(t, 2)
			defer r.close()
			d.stalled = true
			r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
				d.stalled = stays
				return &origintest.Fault{Err: errors.New("connection refused")}
			})
			start := time.Now()
			a := r.get("k", gateway.FromTo(1000, 1099))
			switch took := time.Since(start); {
			case stays && (a.err == nil || took != 2*patience):
				t.Errorf("a stalled disk: %v after %v", a.err, took)
			case !stays && (a.err != nil || len(a.body) != 100 || a.obj.Source != gateway.SourceDisk):
				t.Errorf("%d bytes, %v after %v", len(a.body), a.err, took)
			}
		})
	}
}

// A small read waits for the disk no longer than its deadline, or its client.
func TestPartIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := partRig(t, 2)
		defer r.close()
		d.latency = time.Hour
		r.slow() // or the origin, which a late disk makes a read turn to, may be done before the reader has left
		start := time.Now()
		a := r.read(context.Background(), gateway.Request{Object: object("k"), Range: gateway.FromTo(0, 9),
			Tune: gateway.Tuning{Deadline: 300 * time.Millisecond}})
		if took := time.Since(start); !errors.Is(a.err, origin.ErrTimeout) || took != 300*time.Millisecond {
			t.Errorf("%v after %v", a.err, took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		start = time.Now()
		a = r.read(ctx, gateway.Request{Object: object("k"), Range: gateway.FromTo(512*KiB, 512*KiB+9)})
		if took := time.Since(start); !errors.Is(a.err, context.DeadlineExceeded) || took != 200*time.Millisecond {
			t.Errorf("%v after %v", a.err, took)
		}
		time.Sleep(time.Second) // what it turned to the origin for goes on
	})
}

// copyingRig is a node with an object of one block, which is on the disk and not in memory, of which there is so much.
func copyingRig(t *testing.T, block, memory int64) (*rig, *fakeDisk) {
	p := policy()
	p.BlockSize = block
	m := newStrictMemory(memory)
	d := newFakeDisk(m)
	r := newRigOver(t, m, p, func(c *gateway.Config) { c.Disk = d })
	r.origin.Put("b", "k", origintest.Object{Size: block})
	r.get("k", gateway.Range{})
	synctest.Wait()
	m.evict()
	return r, d
}

// A response that copies, because others hold the memory, and is served by parts, gets all of its bytes.
func TestPartIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A quarter of the memory is less than the part and what the disk adds to it.
		r, d := copyingRig(t, 512*KiB, 512*KiB)
		defer r.close()
		if a := r.get("k", gateway.FromTo(100, 128*KiB+99)); a.err != nil || len(a.body) != 128*KiB {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		if d.parts == 0 || r.metric("ashlar_copied_bytes_total", "") == 0 {
			t.Errorf("%d parts, nothing was copied", d.parts)
		}
	})
}

// A response that copies reads what it copies from the disk, and not each time all that is still to come. When the disk
// stalls in its midst, the block comes from the origin, and where that does not stay, the rest by one request.
func TestLargePartIsCopied(t *testing.T) {
	for _, test := range []struct {
		stalls bool
		more   int64 // than asked for
	}{{}, {more: 64 * KiB}, {stalls: true}} {
		synctest.Test(t, func(t *testing.T) {
			r, d := copyingRig(t, 8*MiB, 16*MiB)
			defer r.close()
			d.more = test.more
			r.origin.Put("b", "other", origintest.Object{Size: 3 * MiB})
			done := make(chan struct{})
			var wg sync.WaitGroup
			defer wg.Wait()
			defer close(done)
			wg.Go(func() { // holds three quarters of what responses may hold
				other, err := r.Open(context.Background(), gateway.Request{Object: object("other")})
				if err != nil {
					t.Error(err)
					return
				}
				defer other.Close()
				_, _ = other.WriteTo(writerFunc(func(b []byte) (int, error) {
					<-done
					return len(b), nil
				}))
			})
			synctest.Wait()
			before := r.origin.Stats()
			const n = 2 * MiB
			o, err := r.Open(context.Background(), gateway.Request{Object: object("k"), Range: gateway.FromTo(100, n+99)})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			var body bytes.Buffer
			_, err = o.WriteTo(writerFunc(func(b []byte) (int, error) {
				if len(b) == 0 {
					return 0, errors.New("nothing to write")
				}
				if d.stalled = test.stalls && body.Len() >= MiB; d.stalled {
					r.memory.evict()
				}
				return body.Write(b)
			}))
			r.verify(answer{o, body.Bytes(), err})
			if err != nil || body.Len() != n {
				t.Errorf("%d bytes, %v", body.Len(), err)
			}
			after := r.origin.Stats()
			most := 2*n + 64*KiB + int(2*test.more)
			if gets := after.Gets - before.Gets; test.stalls && gets != 2 || !test.stalls && (gets != 0 || d.read > most) {
				t.Errorf("%d bytes were read, %d GETs for %d", d.read, gets, after.Bytes-before.Bytes)
			}
		})
	}
}

// Small reads of a catalogue on the disk, four times the memory, some blocks of which are popular. What is popular
// comes into memory as it would if every block that is read did, for a fraction of the bytes; a scan beside it, which
// reads nothing twice, comes into memory not at all.
func TestWhatSmallReadsBringIntoMemory(t *testing.T) {
	const block, limit, blocks = 512 * KiB, 8 * MiB, 64
	reads := 2000
	if testing.Short() {
		reads = 1000
	}
	run := func(parts bool, scan int64) (hits, bytes float64) {
		m, p := newRealMemory(t, limit, block), policy()
		p.BlockSize = block
		d := newFakeDisk(m)
		d.noParts = !parts
		r := newRigOver(t, m, p, func(c *gateway.Config) { c.Disk = d })
		defer func() { r.Close(); m.Close() }()
		r.origin.Put("b", "k", origintest.Object{Size: (blocks + scan) * block})
		r.get("k", gateway.Range{})
		for d.count() < blocks+int(scan) {
			time.Sleep(time.Millisecond)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		zipf := rand.NewZipf(rng, 1.1, 4, blocks-1)
		d.read = 0
		read := func(i int64) bool {
			off := i*block + rng.Int64N(block-4*KiB)
			a := r.get("k", gateway.FromTo(off, off+4*KiB-1))
			if a.err != nil || len(a.body) != 4*KiB {
				t.Fatalf("%d bytes, %v", len(a.body), a.err)
			}
			return a.obj.Source == gateway.SourceMemory
		}
		for i := range reads {
			if read(int64(zipf.Uint64()) * 29 % blocks) {
				hits++
			}
			if scan > 0 {
				read(blocks + int64(i)%scan)
			}
		}
		return hits / float64(reads), float64(d.read) / float64(reads)
	}
	for _, scan := range []int64{0, 64} {
		whole, wholeBytes := run(false, scan)
		part, partBytes := run(true, scan)
		t.Logf("scan of %d blocks: hits in memory %.3f, %.0f KiB from the disk for each read; by parts %.3f, %.0f KiB",
			scan, whole, wholeBytes/KiB, part, partBytes/KiB)
		if part < 0.7*whole || partBytes > 0.5*wholeBytes {
			t.Error("parts don't pay")
		}
	}
}
