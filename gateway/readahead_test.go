package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// ahead is stubborn with readahead.
func ahead() gateway.Policy {
	p := stubborn()
	p.Readahead = 8
	return p
}

// slow makes every answer of the origin take 100 ms.
func (r *rig) slow() {
	r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
		return &origintest.Fault{Latency: 100 * time.Millisecond}
	})
}

// A client that reads by one range after the other finds the next ones there; it fetches no more than it would have.
func TestReadaheadAcrossRequests(t *testing.T) {
	sequential := func(t *testing.T, p gateway.Policy, req gateway.Request) (took time.Duration, gets int, bytes int64) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, p, 1024*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 100*B + 5})
			r.slow()
			began := time.Now()
			for i := range int64(101) {
				req.Object, req.Range = object("k"), gateway.FromTo(i*B, (i+1)*B-1)
				a := r.read(t.Context(), req)
				if r.verify(a); a.err != nil || i < 100 && len(a.body) != B {
					t.Fatalf("%d bytes, %v", len(a.body), a.err)
				}
				time.Sleep(20 * time.Millisecond) // what the client does with it
			}
			took = time.Since(began) - 101*20*time.Millisecond
			s := r.origin.Stats()
			gets, bytes = s.Gets, s.Bytes
		})
		return took, gets, bytes
	}
	took, gets, bytes := sequential(t, ahead(), gateway.Request{Client: "c"})
	if took > time.Second || bytes != 100*B+5 || gets > 40 {
		t.Errorf("with readahead: waited %v, %d GETs, %d blocks", took, gets, bytes/B)
	}
	for name, c := range map[string]struct {
		p   gateway.Policy
		req gateway.Request
	}{"off": {p: stubborn()}, "routed": {p: ahead(), req: gateway.Request{Routed: true}}} {
		if took, gets, _ := sequential(t, c.p, c.req); took < 10*time.Second || gets != 101 {
			t.Errorf("%s: waited %v, %d GETs", name, took, gets)
		}
	}
}

// It ramps up, stops when the reader does, and does not begin for random access.
func TestReadaheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ahead(), 1024*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 1000 * B})
		step := func(client string, i, want int64) {
			t.Helper()
			before := r.origin.Stats().Bytes
			a := r.read(t.Context(), gateway.Request{Object: object("k"), Range: gateway.FromTo(i*B, (i+1)*B-1), Client: client})
			synctest.Wait()
			if n := (r.origin.Stats().Bytes - before) / B; a.err != nil || n != want {
				t.Errorf("%s at %d: %d blocks, want %d, %v; %q", client, i, n, want, a.err, r.origin.Log())
			}
		}
		step("a", 0, 1)
		step("a", 1, 2) // itself and one more
		step("a", 2, 2)
		step("a", 3, 3)
		step("a", 4, 5)
		time.Sleep(time.Hour)
		r.policy.TTL = 2 * time.Hour
		step("b", 500, 1) // not where another client was
		step("b", 700, 1)
		step("b", 600, 1)
		step("b", 800, 1)
		step("c", 998, 1)
		step("c", 999, 1) // nothing behind the end
	})
}

// It fetches nothing twice, whoever else reads, and a reader who comes for what is being read ahead joins it.
func TestReadaheadIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ahead(), 1024*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 100 * B})
		r.slow()
		r.crowd(8, func(c int) answer {
			for i := range int64(100) {
				a := r.read(t.Context(), gateway.Request{Object: object("k"), Range: gateway.FromTo(i*B, (i+1)*B-1),
					Client: fmt.Sprint(c % 4)})
				if r.verify(a); a.err != nil {
					t.Error(a.err)
				}
			}
			return answer{}
		})
		if s := r.origin.Stats(); s.Bytes != 100*B {
			t.Errorf("%d blocks fetched of 100", s.Bytes/B)
		}
	})
}

// What is read ahead fails: nobody is told, and who wants it asks for it.
func TestReadaheadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ahead(), 1024*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 100 * B})
		get := func(i int64) {
			t.Helper()
			if a := r.get("k", gateway.FromTo(i*B, (i+1)*B-1)); a.err != nil {
				t.Errorf("block %d: %v", i, a.err)
			}
			time.Sleep(time.Second)
		}
		get(0)
		r.origin.Fail(-1, origintest.At(2*B), origintest.Fault{Status: 500})
		get(1)
		if n := r.origin.Stats().Gets; n != 3 {
			t.Errorf("tried again though nobody waits: %q", r.origin.Log())
		}
		if n := r.metric("ashlar_ahead_bytes", ""); n != 0 {
			t.Errorf("%v bytes kept for what is not there", n)
		}
		r.origin.Heal()
		get(2)
		get(3)
	})
}

// Never ahead of what is wanted now: while a read waits for its turn nothing is begun for later, and what was to be read
// ahead goes with those that wait as soon as somebody wants it.
func TestReadaheadYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ahead()
		p.Fetch.Deadline = 0
		r := newRig(t, p, 1024*B, func(c *gateway.Config) { c.OriginConcurrency, c.ReadaheadConcurrency = 1, 1 })
		defer r.close()
		r.origin.Put("b", "scan", origintest.Object{Size: 100 * B})
		for i := range 10 {
			r.origin.Put("b", fmt.Sprint("other", i), origintest.Object{Size: B})
		}
		read := func(key string, i int64) {
			req := gateway.Request{Object: object(key), Range: gateway.FromTo(i*B, (i+1)*B-1), Client: key[:1]}
			if a := r.read(t.Context(), req); a.err != nil {
				t.Error(a.err)
			}
		}
		read("scan", 0)
		read("scan", 1)
		r.memory.evict()
		r.origin.ResetLog()
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			return &origintest.Fault{Latency: time.Second}
		})
		var wg sync.WaitGroup
		for i := range 10 { // one of them has the only place
			wg.Go(func() { read(fmt.Sprint("other", i), 0) })
		}
		time.Sleep(10 * time.Millisecond)
		wg.Go(func() { read("scan", 2) }) // takes its turn; block 3 is to be read ahead when nobody waits
		time.Sleep(5 * time.Second)
		for _, line := range r.origin.Log() {
			if strings.Contains(line, fmt.Sprintf("scan %d-", 3*B)) {
				t.Errorf("read ahead of those who wait: %q", r.origin.Log())
			}
		}
		began := time.Now()
		read("scan", 3) // promoted: takes its turn among the others, and is not last
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("waited %v for what was to be read ahead", d)
		}
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

// A whole object, read at a pace that the origin can keep up with, is not waited for at the edges of the window.
func TestReadaheadWithinARead(t *testing.T) {
	waits := func(p gateway.Policy, routed bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			p.FetchWindow, p.ReadWindow = 4, 4
			r := newRig(t, p, 1024*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 200 * B})
			r.slow()
			obj, err := r.Open(t.Context(), gateway.Request{Object: object("k"), Routed: routed})
			if err != nil {
				t.Fatal(err)
			}
			defer obj.Close()
			var got bytes.Buffer
			last := time.Now()
			if _, err := obj.WriteTo(writerFunc(func(p []byte) (int, error) {
				if time.Since(last) > 0 {
					n++
				}
				time.Sleep(20 * time.Millisecond)
				last = time.Now()
				return got.Write(p)
			})); err != nil || origintest.Check(obj.Info.ETag, 0, got.Bytes()) != nil {
				t.Errorf("%d bytes, %v", got.Len(), err)
			}
			if s := r.origin.Stats(); s.Bytes != 200*B || s.Gets != 50 {
				t.Errorf("%d GETs of %d blocks", s.Gets, s.Bytes/B)
			}
		})
		return n
	}
	if n := waits(ahead(), false); n > 3 {
		t.Errorf("waited %d times", n)
	}
	if n := waits(stubborn(), false); n < 40 {
		t.Errorf("waited %d times without readahead: this test says nothing", n)
	}
	if n := waits(ahead(), true); n < 40 {
		t.Errorf("waited %d times when routed: it read ahead", n)
	}
}

// P9: one scan does not starve others: buckets take turns, and so do the clients of a bucket.
func TestFairQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := stubborn()
		p.Fetch.Deadline = 0
		r := newRig(t, p, 4096*B, func(c *gateway.Config) { c.OriginConcurrency = 4 })
		defer r.close()
		for i := range 500 {
			r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: B})
			r.origin.Put("other", fmt.Sprint(i), origintest.Object{Size: B})
		}
		r.slow()
		var wg sync.WaitGroup
		read := func(bucket, client string, i int) time.Duration {
			o := object(fmt.Sprint(i))
			o.Bucket = bucket
			began := time.Now()
			if a := r.read(t.Context(), gateway.Request{Object: o, Client: client}); a.err != nil {
				t.Error(a.err)
			}
			return time.Since(began)
		}
		for i := range 400 {
			wg.Go(func() { read("b", "scan", i) })
		}
		for c := range 20 { // many clients of the same bucket
			wg.Go(func() { read("b", fmt.Sprint("busy", c), 400+c) })
		}
		time.Sleep(50 * time.Millisecond)
		if n := r.metric("ashlar_origin_queue_waiting", ""); n != 416 {
			t.Errorf("%v wait", n)
		}
		for i := range 10 { // 10 s of backlog before it
			if d := read("other", "scan", i); d > 400*time.Millisecond {
				t.Errorf("another bucket waited %v", d)
			}
		}
		if d := read("b", "late", 450); d > time.Second {
			t.Errorf("another client waited %v", d)
		}
		wg.Wait()
		if n := r.metric("ashlar_origin_queue_waiting", ""); n != 0 {
			t.Errorf("%v wait", n)
		}
		if n, sum := r.histogram("ashlar_origin_queue_seconds"); n != 431 || sum < 400 {
			t.Errorf("%d waits of %v s", n, sum)
		}
	})
}

// A bucket whose answers begin and never end leaves places for the others, however many ask for it: P07.
func TestStalledBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ahead(), 4096*B, func(c *gateway.Config) { c.OriginConcurrency, c.ReadaheadConcurrency = 16, 4 })
		defer r.close()
		in := func(bucket, key string) origin.Object { return origin.Object{Bucket: bucket, Key: key} }
		for i := range 200 {
			r.origin.Put("stalled", fmt.Sprint(i), origintest.Object{Size: B})
			r.origin.Put("well", fmt.Sprint(i), origintest.Object{Size: B})
		}
		r.origin.Put("stalled", "here", origintest.Object{Size: B})
		r.read(t.Context(), gateway.Request{Object: in("stalled", "here")})
		r.origin.Script(func(_ context.Context, q *origintest.Request) *origintest.Fault {
			f := &origintest.Fault{Latency: 20 * time.Millisecond}
			if q.Object.Bucket == "stalled" {
				f.Steps = []origintest.Step{{At: B / 2, Stall: true}}
			}
			return f
		})
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				a := r.read(t.Context(), gateway.Request{Object: in("stalled", fmt.Sprint(i)), Client: fmt.Sprint(i % 5)})
				if a.err == nil {
					t.Error("read what never came")
				}
			})
		}
		time.Sleep(time.Second)
		for i := range 200 { // 50 a second, and two at a time
			time.Sleep(20 * time.Millisecond)
			wg.Go(func() {
				began := time.Now()
				if a := r.read(t.Context(), gateway.Request{Object: in("well", fmt.Sprint(i))}); a.err != nil {
					t.Error(a.err)
				}
				if d := time.Since(began); d > 100*time.Millisecond {
					t.Errorf("object %d of another bucket took %v", i, d)
				}
				if a := r.read(t.Context(), gateway.Request{Object: in("stalled", "here")}); a.err != nil {
					t.Error("what is here:", a.err)
				}
			})
		}
		wg.Wait()
	})
}

// histogram returns the count and the sum of one.
func (r *rig) histogram(name string) (uint64, float64) {
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	r.t.Fatalf("no histogram %s", name)
	return 0, 0
}

// Leaving the queue leaves nothing in it, in whatever order that happens.
func TestLeavingTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ahead()
		r := newRig(t, p, 4096*B, func(c *gateway.Config) { c.OriginConcurrency, c.ReadaheadConcurrency = 2, 1 })
		defer r.close()
		for i := range 40 {
			r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: 40 * B})
		}
		r.slow()
		for range 3 {
			r.crowd(200, func(i int) answer {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*7919%997)*time.Millisecond)
				defer cancel()
				o := object(fmt.Sprint(i % 40))
				for j := range int64(4) {
					r.read(ctx, gateway.Request{Object: o, Client: fmt.Sprint(i % 7), Range: gateway.FromTo(j*B, (j+1)*B-1)})
				}
				return answer{}
			})
			r.memory.evict()
		}
		time.Sleep(time.Minute)
		if n := r.metric("ashlar_origin_queue_waiting", ""); n != 0 {
			t.Errorf("%v wait", n)
		}
		r.origin.ResetLog()
		r.crowd(8, func(i int) answer { return r.get(fmt.Sprint(i), gateway.From(20*B)) })
		if n := r.origin.Stats().MaxConcurrent; n < 2 || n > 3 {
			t.Errorf("%d requests at once, of 2 places and 1 for what is read ahead", n)
		}
	})
}

// Who is given its turn in the very moment in which it gives up gives the place back.
func TestTurnAtTheLastMoment(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			p := smallPolicy()
			p.Fetch = gateway.Fetch{Deadline: 10 * time.Second}
			r := newRig(t, p, 256*B, func(c *gateway.Config) { c.OriginConcurrency = 1 })
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: B})
			r.origin.Fail(1, nil, origintest.Fault{Stall: true}) // for as long as the others wait for their turn
			r.crowd(10, func(i int) answer { return r.get(fmt.Sprint(i), gateway.Range{}) })
			if a := r.get("k", gateway.Range{}); a.err != nil {
				t.Fatal(a.err)
			}
		})
	}
}

// What is read ahead is held until the reader comes, in a tier that is full and would turn it away, and no longer.
func TestReadaheadThroughAFullTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ahead()
		p.Readahead = 60
		m := newRealMemory(t, 512*B, B)
		r := newRigOver(t, m, p)
		r.origin.Put("b", "old", origintest.Object{Size: 2048 * B})
		for range 2 { // full, of blocks that were used
			r.get("old", gateway.FromTo(0, 500*B))
		}
		r.origin.Put("b", "k", origintest.Object{Size: 400 * B})
		r.slow()
		before, began := r.origin.Stats().Bytes, time.Now()
		for i := range int64(400) {
			a := r.read(t.Context(), gateway.Request{Object: object("k"), Range: gateway.FromTo(i*B, (i+1)*B-1)})
			if r.verify(a); a.err != nil {
				t.Fatal(a.err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if n := (r.origin.Stats().Bytes - before) / B; n != 400 || time.Since(began) > 5*time.Second {
			t.Errorf("%d blocks fetched of 400, in %v", n, time.Since(began))
		}
		r.get("k", gateway.FromTo(0, 0)) // somewhere else: it holds nothing any more
		synctest.Wait()
		if n := r.metric("ashlar_ahead_bytes", ""); n != 0 {
			t.Errorf("%v bytes held behind a scan that has ended", n)
		}
		r.close()
		m.Close()
	})
}

// What was read ahead, and is turned away just after it was looked for, is looked for once more and not fetched again.
func TestTurnedAwayAsItIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &turningAway{testMemory: newRealMemory(t, 512*B, B)}
		r := newRigOver(t, m, ahead())
		r.origin.Put("b", "k", origintest.Object{Size: 40 * B})
		for i := range int64(40) {
			if i == 20 {
				m.turnAway(i)
			}
			r.verify(r.read(t.Context(), gateway.Request{Object: object("k"), Range: gateway.FromTo(i*B, (i+1)*B-1)}))
			synctest.Wait()
		}
		if n := r.origin.Stats().Bytes / B; n != 40 || m.gone {
			t.Errorf("%d blocks fetched of 40; came again: %t", n, !m.gone)
		}
		r.close()
		m.testMemory.(realMemory).Close()
	})
}

// turningAway is a memory that turns one block away just after it has said that it has it, until it comes again.
type turningAway struct {
	testMemory
	mu    sync.Mutex
	index int64 // guarded by mu
	armed bool  // it has not said so yet; guarded by mu
	gone  bool  // guarded by mu
}

func (m *turningAway) turnAway(i int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index, m.armed, m.gone = i, true, true
}

// has says whether the block of a key is one that it has not turned away.
func (m *turningAway) has(k blockstore.Key) bool { return !m.gone || k.Index != m.index }

func (m *turningAway) Contains(k blockstore.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.has(k) && m.armed {
		m.armed = false
		return true
	}
	return m.has(k) && m.testMemory.Contains(k)
}

func (m *turningAway) Get(k blockstore.Key) *blockstore.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.has(k) {
		return nil
	}
	return m.testMemory.Get(k)
}

func (m *turningAway) Put(b *blockstore.Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = m.gone && m.has(b.Key())
	m.testMemory.Put(b)
}
