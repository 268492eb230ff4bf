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

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

var (
	seed  = flag.Uint64("seed", 0, "run the simulation of this seed alone")
	seeds = flag.Int("seeds", 120, "simulations to run")
)

// TestSimulation reads, overwrites, deletes and cancels at random, over an origin that fails at random, and holds every
// read against the history of its object: its bytes are of one version, complete or an error; the version is no older
// than the last write through this process that ended before the read began, and was not replaced behind it for longer
// than the ttl. At the end nothing is left: no flight, slot, body or goroutine.
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
	reads, failed int
}

// event is one state of an object.
type event struct {
	tag     string // "" is deleted
	began   time.Time
	settled time.Time // when a write through this process was acknowledged; zero for one behind it
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := gateway.Policy{
		BlockSize: 1 << (9 + rng.IntN(3)), FetchWindow: 1 + rng.IntN(8), ReadWindow: 1 + rng.IntN(16),
		TTL: time.Duration(rng.IntN(3)) * 500 * time.Millisecond, PopulateMax: 1 << 20,
		FirstByte: time.Second, Attempt: 3 * time.Second,
	}
	s := &simulation{t: t, rng: rng, history: make(map[string][]event), faulty: []float64{0, 0.1, 0.4}[rng.IntN(3)]}
	var m testMemory = newStrictMemory(p.BlockSize * int64(8+rng.IntN(100)))
	if rng.IntN(4) == 0 {
		p.BlockSize = 1 << (13 + rng.IntN(4)) // so that the smallest tier there can be has to evict
		m = newRealMemory(t, 1<<20, p.BlockSize)
	}
	s.rig = newRigOver(t, m, p, func(c *gateway.Config) {
		c.OriginConcurrency = 1 + rng.IntN(8)
		c.InfoMemory = 1 << (14 + rng.IntN(8))
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
	time.Sleep(10 * time.Second) // what was started for readers who left comes to its end
	s.close()
}

// write overwrites or deletes, through this process or behind it. Writes of one key are one after the other.
func (s *simulation) write(key string, through bool) {
	size := int64(s.intN(40 * int(s.policy.BlockSize)))
	if s.intN(8) == 0 {
		size = 0
	}
	del := s.intN(8) == 0
	s.mu.Lock()
	e := event{began: time.Now()}
	if del {
		s.origin.Delete("b", key)
	} else {
		e.tag = s.origin.Put("b", key, origintest.Object{Size: size})
	}
	s.history[key] = append(s.history[key], e)
	i := len(s.history[key]) - 1
	s.mu.Unlock()
	if !through {
		return
	}
	s.nap(50 * time.Millisecond) // the answer's way back
	s.Invalidate(object(key))
	if !del && s.intN(2) == 0 {
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
	req := gateway.Request{Object: object(key), InfoOnly: s.intN(6) == 0}
	at := func() int64 { return int64(s.intN(42 * int(s.policy.BlockSize))) }
	switch a, b := at(), at(); s.intN(4) {
	case 0:
		req.Range = gateway.FromTo(min(a, b), max(a, b))
	case 1:
		req.Range = gateway.From(a)
	case 2:
		req.Range = gateway.Suffix(a)
	}
	began := time.Now()
	obj, err := s.Open(ctx, req)
	var w slowWriter
	if err == nil {
		w = slowWriter{ctx: ctx, wait: time.Duration(s.intN(3) * 10 * int(time.Millisecond))}
		_, err = obj.WriteTo(&w)
		if cerr := origintest.Check(obj.Info.ETag, obj.Offset, w.got.Bytes()); cerr != nil {
			s.t.Errorf("wrong bytes: %v", cerr)
		}
		if n := int64(w.got.Len()); err == nil && !req.InfoOnly && n != obj.Length {
			s.t.Errorf("%d bytes of %d without an error", n, obj.Length)
		}
		obj.Close()
	}
	s.judge(key, obj, err, began, leaves)
}

// judge holds the outcome of a read that began then against the history.
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
	if err != nil {
		s.failed++
		switch {
		case errors.As(err, &re), left && errors.Is(err, context.Canceled), s.faulty > 0:
		case errors.Is(err, origin.ErrNotFound) && (changed || events[len(events)-1].tag == "" || len(events) > 1):
		case (errors.Is(err, gateway.ErrUnstable) || errors.Is(err, gateway.ErrInterrupted)) && len(events) > 1:
		default:
			s.t.Errorf("%s: %v (%+v)", key, err, events)
		}
	}
	if obj == nil {
		return
	}
	for i, e := range events {
		if e.tag != obj.Info.ETag {
			continue
		}
		for _, later := range events[i+1:] {
			if !later.settled.IsZero() && later.settled.Before(began) {
				s.t.Errorf("%s: read at %v is of %s, though %q was written through and acknowledged at %v", key, began,
					e.tag, later.tag, later.settled)
			}
			if later.began.Before(began.Add(-s.policy.TTL)) {
				s.t.Errorf("%s: read at %v is of %s, replaced %v before, ttl %v", key, began, e.tag,
					began.Sub(later.began), s.policy.TTL)
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
	f := &origintest.Fault{Latency: time.Duration(s.rng.IntN(int(20 * time.Millisecond)))}
	at := int64(s.rng.IntN(int(3 * s.policy.BlockSize)))
	if s.rng.IntN(4) == 0 { // slow on the way back: the answer is as old as that
		late := time.Duration(s.rng.IntN(int(100 * time.Millisecond)))
		f.Edit = func(*origin.Response) { time.Sleep(late) }
	}
	if s.rng.Float64() >= s.faulty {
		return f
	}
	switch s.rng.IntN(12) {
	case 0:
		f.Stall = true
	case 1:
		f.Status, f.Code = 503, "SlowDown"
	case 2:
		f.Status = []int{403, 404, 500, 301}[s.rng.IntN(4)]
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
		f.IgnoreRange, f.IgnoreIfMatch = s.rng.IntN(2) == 0, true
	}
	return f
}
