package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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

var (
	seed  = flag.Uint64("seed", 0, "run the simulation of this seed alone")
	seeds = flag.Int("seeds", 200, "simulations to run")
)

// TestSimulation reads, overwrites, deletes and cancels at random, over an origin that fails at random, and holds every
// read against the history of its object: its bytes are of one version, complete or an error; the version is no older
// than the last write through this process that ended before the read began, and was not replaced behind it for longer
// than the ttl, or stale_if_error beyond that where the answer says so. At the end nothing is left: no flight, slot, body
// or goroutine; and the origin has been asked, in all and for each block, no more often than attempts and hedges account for.
func TestSimulation(t *testing.T) {
	first, n := rand.Uint64(), *seeds
	if *seed != 0 {
		first, n = *seed, 1
	}
	if testing.Short() {
		n = min(n, 50)
	}
	reads, failed := 0, 0
	for i := range n {
		s := first + uint64(i)
		ok := t.Run(fmt.Sprint(s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := newSimulation(t, s)
				sim.run()
				reads += sim.reads
				failed += sim.failed
			})
		})
		if !ok {
			t.Fatalf("repeat with: go test ./gateway -run Simulation -seed %d", s)
		}
	}
	t.Logf("seeds from %d: %d reads, %d of them failed", first, reads, failed)
	if reads < 50*n || failed > reads*2/3 || n > 10 && failed == 0 {
		t.Errorf("%d reads with %d failures in %d runs: the simulation says little", reads, failed, n)
	}
}

// simulation is one run. Fields below mu are guarded by it.
type simulation struct {
	*rig
	t      *testing.T
	faulty float64 // share of origin requests that go wrong

	mu            sync.Mutex
	rng           *rand.Rand
	history       map[string][]event
	asked, wanted map[string]*[60]int // of the origin, and by reads: how often, by block
	reads, failed int
}

// event is one state of an object.
type event struct {
	tag     string // "" is deleted
	size    int64
	began   time.Time
	settled time.Time // when a write through this process was acknowledged; zero for one behind it
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := gateway.Policy{
		BlockSize: 1 << (9 + rng.IntN(3)), FetchWindow: 1 + rng.IntN(8), ReadWindow: 1 + rng.IntN(16),
		TTL: time.Duration(rng.IntN(3)) * 500 * time.Millisecond, PopulateMax: 1 << 20,
		Readahead: rng.IntN(3) * 4, StaleIfError: time.Duration(rng.IntN(2)) * time.Second,
		NegativeTTL: time.Duration(rng.IntN(2)) * 500 * time.Millisecond,
		Fetch: gateway.Fetch{Attempts: 1 + rng.IntN(3), Backoff: 10 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
			FirstByte: time.Second, Attempt: 3 * time.Second, Deadline: 8 * time.Second},
	}
	if rng.IntN(2) == 0 {
		p.Fetch.Hedge = gateway.Hedge{Factor: 2, Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	}
	s := &simulation{t: t, rng: rng, history: make(map[string][]event), asked: make(map[string]*[60]int),
		wanted: make(map[string]*[60]int), faulty: []float64{0, 0.1, 0.4}[rng.IntN(3)]}
	var m testMemory = newStrictMemory(p.BlockSize * int64(8+rng.IntN(100)))
	if rng.IntN(4) == 0 {
		p.BlockSize = 1 << (13 + rng.IntN(4)) // so that the smallest tier there can be has to evict
		m = newRealMemory(t, 1<<20, p.BlockSize)
	}
	s.rig = newRigOver(t, m, p, func(c *gateway.Config) {
		c.OriginConcurrency, c.ReadaheadConcurrency, c.HedgeConcurrency = 1+rng.IntN(8), 1+rng.IntN(4), 1+rng.IntN(4)
		c.InfoMemory = 1 << (14 + rng.IntN(8))
		if rng.IntN(2) == 0 {
			d := newFakeDisk(m)
			d.latency, d.lose = time.Duration(rng.IntN(20))*time.Millisecond, func(blockstore.Key) bool { return s.intN(5) == 0 }
			c.Disk = d
		}
	})
	s.origin.SetChunk(rng.IntN(2) * 700)
	s.origin.Script(s.fault)
	return s
}

func (s *simulation) intN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *simulation) nap(most time.Duration) { time.Sleep(time.Duration(s.intN(int(most)))) }

func (s *simulation) run() {
	keys := []string{"a", "b", "c"}
	for _, k := range keys {
		s.asked[k], s.wanted[k] = new([60]int), new([60]int)
		s.write(k, false)
	}
	writes := s.intN(2) == 0
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 15 {
				s.readOne(keys[s.intN(len(keys))])
				s.nap(200 * time.Millisecond)
			}
		})
	}
	if writes {
		for range 2 {
			wg.Go(func() {
				for range 6 {
					s.nap(400 * time.Millisecond)
					s.write(keys[s.intN(len(keys))], s.intN(2) == 0)
				}
			})
		}
	}
	wg.Wait()
	time.Sleep(30 * time.Second) // what was started for readers who left comes to its end
	s.account()
	s.close()
}

// account holds the requests that the origin saw against what there was a reason for.
func (s *simulation) account() {
	stats := s.origin.Stats()
	all := float64(stats.Gets + stats.Heads)
	retries := s.metric("ashlar_fetch_retries_total", "")
	hedges := s.metric("ashlar_hedges_total", "headers") + s.metric("ashlar_hedges_total", "block")
	if first := all - retries - hedges; retries > first*float64(s.policy.Fetch.Attempts-1) {
		s.t.Errorf("%v requests, %v of them retries of %v, at %d attempts", all, retries, first, s.policy.Fetch.Attempts)
	}
	if hedges > 1+(all-hedges)/20 {
		s.t.Errorf("%v requests, %v of them hedges", all, hedges)
	}
	if n := s.metric("ashlar_origin_queue_waiting", ""); n != 0 {
		s.t.Errorf("%v requests still wait for their turn", n)
	}
	// A read may ask for a block by a probe and by a fetch, and by another probe where it found the object overwritten.
	for key, asked := range s.asked {
		for i, n := range asked {
			if most := 3 * s.wanted[key][i] * (s.policy.Fetch.Attempts + 2); n > most {
				s.t.Errorf("block %d of %s was asked for %d times, by %d reads at %d attempts", i, key, n, s.wanted[key][i],
					s.policy.Fetch.Attempts)
			}
		}
	}
}

// count notes that bytes [from, to) of an object are asked for, or wanted and what is read ahead of them.
func (s *simulation) count(blocks *[60]int, from, to int64) {
	for i := from / s.policy.BlockSize; i < int64(len(blocks)) && i*s.policy.BlockSize < to; i++ {
		blocks[i]++
	}
}

// write overwrites or deletes, through this process or behind it. Writes of one key are one after the other.
func (s *simulation) write(key string, through bool) {
	size := int64(s.intN(40 * int(s.policy.BlockSize)))
	if s.intN(8) == 0 {
		size = 0
	}
	del, same, weak := s.intN(8) == 0, s.intN(8) == 0, s.intN(8) == 0
	s.mu.Lock()
	e := event{began: time.Now()}
	switch h := s.history[key]; {
	case del:
		s.origin.Delete("b", key)
	case same && len(h) > 0 && h[len(h)-1].tag != "": // metadata alone, under one ETag
		last := h[len(h)-1]
		size = last.size
		e.tag = s.origin.Put("b", key, origintest.Object{Size: size, ETag: last.tag,
			Headers: []origin.Header{{Name: "X-Amz-Meta-N", Value: fmt.Sprint(len(h))}}})
	default:
		if n := len(h); n%2 == 1 { // of the same size as before: the ETag alone tells
			size = h[n-1].size
		}
		e.tag = s.origin.Put("b", key, origintest.Object{Size: size, Weak: weak})
	}
	e.size = size
	s.history[key] = append(s.history[key], e)
	i := len(s.history[key]) - 1
	s.mu.Unlock()
	if !through {
		return
	}
	s.nap(50 * time.Millisecond) // the answer's way back
	s.Invalidate(object(key))
	if !del && s.intN(2) == 0 && e.tag[0] == '"' {
		s.mu.Lock()
		last := i == len(s.history[key])-1
		s.mu.Unlock()
		if last {
			body := bytes.NewReader(origintest.Bytes(e.tag, 0, size))
			_ = s.Insert(context.Background(), object(key), &origin.Info{Size: size, ETag: e.tag}, body)
		}
	}
	s.mu.Lock()
	s.history[key][i].settled = time.Now()
	s.mu.Unlock()
}

func (s *simulation) readOne(key string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leaves := s.intN(5) == 0
	if leaves {
		time.AfterFunc(time.Duration(s.intN(int(500*time.Millisecond))), cancel)
	}
	req := gateway.Request{
		Object: object(key), InfoOnly: s.intN(6) == 0, Client: fmt.Sprint(s.intN(3)), Routed: s.intN(4) == 0,
	}
	if s.intN(8) == 0 {
		req.Tune = gateway.Tuning{
			Attempts: 1, Deadline: time.Duration(1+s.intN(3000)) * time.Millisecond, NoHedge: s.intN(2) == 0,
		}
	}
	at := func() int64 { return int64(s.intN(42 * int(s.policy.BlockSize))) }
	from, to := int64(0), 60*s.policy.BlockSize
	switch a, b := at(), at(); s.intN(4) {
	case 0:
		from, to = min(a, b), max(a, b)+1
		req.Range = gateway.FromTo(from, to-1)
	case 1:
		from = a
		req.Range = gateway.From(a)
	case 2:
		req.Range = gateway.Suffix(a)
	}
	s.mu.Lock()
	s.count(s.wanted[key], from, to+int64(s.policy.Readahead)*s.policy.BlockSize)
	s.mu.Unlock()
	began := time.Now()
	obj, err := s.Open(ctx, req)
	var w slowWriter
	if err == nil {
		w = slowWriter{ctx: ctx, wait: time.Duration(s.intN(3) * 10 * int(time.Millisecond))}
		err = func() (err error) {
			defer func() { // what can't be cached is read on the reader's own goroutine
				if r := recover(); r != nil {
					err = fmt.Errorf("%w: %v", gateway.ErrInterrupted, r)
				}
			}()
			_, err = obj.WriteTo(&w)
			return err
		}()
		if cerr := origintest.Check(obj.Info.ETag, obj.Offset, w.got.Bytes()); cerr != nil {
			s.t.Errorf("wrong bytes: %v", cerr)
		}
		if n := int64(w.got.Len()); err == nil && !req.InfoOnly && n != obj.Length {
			s.t.Errorf("%d bytes of %d without an error", n, obj.Length)
		}
		obj.Close()
	}
	s.judge(key, obj, err, began, leaves || req.Tune.Deadline > 0)
}

// judge holds the outcome of a read that began then against the history. left: it gave up, or may have.
func (s *simulation) judge(key string, obj *gateway.Object, err error, began time.Time, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	events := s.history[key]
	changed := false
	for _, e := range events {
		changed = changed || !e.began.Before(began)
	}
	var re *gateway.RangeError
	var absent *gateway.AbsentError
	if errors.As(err, &absent) {
		asked := began.Add(time.Second - absent.Age) // or before
		for _, e := range events {
			if e.tag != "" && e.settled.After(asked) && e.settled.Before(began) {
				s.t.Errorf("%s: a 404 of %v ago, though %s was written through since", key, absent.Age, e.tag)
			}
		}
	}
	if err != nil {
		s.failed++
		switch {
		case errors.As(err, &re), s.faulty > 0,
			left && (errors.Is(err, context.Canceled) || errors.Is(err, origin.ErrTimeout)):
		case errors.Is(err, origin.ErrNotFound) && (changed || events[len(events)-1].tag == "" || len(events) > 1):
		case (errors.Is(err, gateway.ErrUnstable) || errors.Is(err, gateway.ErrInterrupted)) && len(events) > 1:
		default:
			s.t.Errorf("%s: %v (%+v)", key, err, events)
		}
	}
	if obj == nil {
		return
	}
	bound := s.policy.TTL
	if obj.Status == gateway.Stale {
		bound += s.policy.StaleIfError
	}
	for i, e := range events {
		if e.tag != obj.Info.ETag {
			continue
		}
		for _, later := range events[i+1:] {
			if later.tag == e.tag { // its bytes are the same
				return
			}
			if !later.settled.IsZero() && later.settled.Before(began) {
				s.t.Errorf("%s: read at %v is of %s, though %q was written through and acknowledged at %v", key, began,
					e.tag, later.tag, later.settled)
			}
			if later.began.Before(began.Add(-bound)) {
				s.t.Errorf("%s: read at %v is of %s, replaced %v before, ttl %v, %v", key, began, e.tag,
					began.Sub(later.began), s.policy.TTL, obj.Status)
			}
		}
		return
	}
	s.t.Errorf("%s: read is of %s, which never was", key, obj.Info.ETag)
}

// fault makes a share of the origin's answers wrong.
func (s *simulation) fault(_ context.Context, r *origintest.Request) *origintest.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to := r.Offset + r.Length; r.Op == "GET" {
		if r.Length == 0 { // all of it
			to = 60 * s.policy.BlockSize
		}
		s.count(s.asked[r.Object.Key], r.Offset, to)
	}
	f := randomFault(s.rng, s.policy.BlockSize, s.faulty)
	if s.rng.IntN(4) == 0 && f.Edit == nil { // slow on the way back: the answer is as old as that
		late := time.Duration(s.rng.IntN(int(100 * time.Millisecond)))
		f.Edit = func(*origin.Response) { time.Sleep(late) }
	}
	if s.rng.Float64() < s.faulty/20 {
		if s.rng.IntN(2) == 0 {
			f.IgnoreRange, f.IgnoreIfMatch = s.rng.IntN(2) == 0, true
		} else if r.IfMatch != "" { // another version than was asked for, or so it seems; without a pin there is no telling
			f.Edit = func(r *origin.Response) { r.Info.ETag = `"stray"` }
		}
	}
	return f
}

// randomFault is a fault of any kind, with the probability given, that leaves the object as it is.
func randomFault(rng *rand.Rand, blockSize int64, p float64) *origintest.Fault {
	f := &origintest.Fault{Latency: time.Duration(rng.IntN(int(20 * time.Millisecond)))}
	at := int64(rng.IntN(int(3 * blockSize)))
	if rng.Float64() >= p {
		return f
	}
	switch rng.IntN(14) {
	case 0:
		f.Stall = true
	case 1:
		f.Status, f.Code = 503, "SlowDown"
		f.Header = []origin.Header{{Name: "Retry-After", Value: fmt.Sprint(rng.IntN(3))}}
	case 2:
		f.Status = []int{403, 404, 500, 301, 429}[rng.IntN(5)]
	case 3:
		f.Err = errors.New("connection reset by peer")
	case 4:
		f.Steps = []origintest.Step{{At: at, Err: io.ErrUnexpectedEOF}}
	case 5:
		f.Steps = []origintest.Step{{At: at, Err: io.EOF}}
	case 6:
		f.Steps = []origintest.Step{{At: at, Stall: true}}
	case 7:
		f.Steps = []origintest.Step{{At: at, Panic: "planted"}}
	case 8:
		f.Edit = func(r *origin.Response) { r.Offset++ }
	case 9:
		f.Shorten = 1 + at
	case 10:
		f.Extra = 1
	case 11:
		f.IgnoreRange = true
	case 12:
		f.Latency = time.Duration(rng.IntN(int(time.Second)))
	case 13:
		f.Steps = []origintest.Step{{At: at, Latency: time.Duration(rng.IntN(int(time.Second)))}}
	}
	return f
}

// TestRequestsPerBlock: whatever the origin does, a read asks for a block no more often than attempts and hedges let it,
// and so does a crowd, each of which may have to ask for itself.
func TestRequestsPerBlock(t *testing.T) {
	first, n := rand.Uint64(), 10**seeds
	if *seed != 0 {
		first, n = *seed, 1
	}
	if testing.Short() {
		n = min(n, 500)
	}
	failed := 0
	for i := range n {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(first+uint64(i), 2))
			p := hedged()
			p.BlockSize, p.FetchWindow, p.ReadWindow, p.Readahead = 512, 1+rng.IntN(8), 1+rng.IntN(12), rng.IntN(8)
			p.Fetch.Attempts = 1 + rng.IntN(4)
			p.Fetch.Hedge = gateway.Hedge{Factor: 2, Min: 5 * time.Millisecond, Max: 30 * time.Millisecond}
			p.Fetch.FirstByte, p.Fetch.Attempt = time.Second, 2*time.Second
			r := newRig(t, p, 1<<20)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: int64(1 + rng.IntN(40*512))})
			var mu sync.Mutex
			r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
				mu.Lock()
				defer mu.Unlock()
				return randomFault(rng, 512, 0.4)
			})
			readers := 1 + 3*rng.IntN(2)
			for _, a := range r.crowd(readers, func(int) answer { return r.get("k", gateway.Range{}) }) {
				if a.err != nil {
					failed++
				}
			}
			time.Sleep(time.Minute)
			asked := make(map[int64]int)
			for _, line := range r.origin.Log() {
				var from, to int64
				if _, err := fmt.Sscanf(line, "GET b/k %d-%d", &from, &to); err == nil {
					for b := from / 512; b <= to/512; b++ {
						asked[b]++
					}
				}
			}
			for b, n := range asked {
				if n > readers*(p.Fetch.Attempts+2) {
					t.Errorf("seed %d: block %d was asked for %d times by %d readers, at %d attempts and 2 hedges: %q", first+uint64(i),
						b, n, readers, p.Fetch.Attempts, r.origin.Log())
				}
			}
		})
		if t.Failed() {
			t.Fatalf("repeat with: go test ./gateway -run RequestsPerBlock -seed %d", first+uint64(i))
		}
	}
	if failed == 0 {
		t.Error("nothing failed: this says little")
	}
}
