package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// hedged is stubborn with the hedging that a node has by default.
func hedged() gateway.Policy {
	p := stubborn()
	p.Fetch.Hedge = gateway.Hedge{Factor: 3, Min: 50 * time.Millisecond, Max: 2 * time.Second}
	return p
}

// learn lets the engine see an origin that answers in 20 ms, and earn the budget for a few second requests.
func (r *rig) learn() {
	r.origin.Fail(-1, nil, origintest.Fault{Latency: 20 * time.Millisecond,
		Steps: []origintest.Step{{At: 1, Latency: 10 * time.Millisecond}}})
	for i := range 100 {
		key := fmt.Sprint("known", i)
		r.origin.Put("b", key, origintest.Object{Size: B})
		r.get(key, gateway.Range{})
	}
	r.memory.evict()
	r.origin.Heal()
	r.origin.ResetLog()
}

func (r *rig) hedges(t *testing.T, stage string, launched, won float64) {
	t.Helper()
	if l, w := r.metric("ashlar_hedges_total", stage), r.metric("ashlar_hedges_won_total", stage); l != launched || w != won {
		t.Errorf("%s: %v launched, %v won, want %v and %v; %q", stage, l, w, launched, won, r.origin.Log())
	}
}

// The first stage: no headers after the delay. The second stage: a block not complete after its own delay; the second GET
// asks for what is still owed.
func TestHedging(t *testing.T) {
	const ms = time.Millisecond
	stallAt := func(at int64) origintest.Fault {
		return origintest.Fault{Latency: 20 * ms, Steps: []origintest.Step{{At: at, Latency: time.Second}}}
	}
	for _, c := range []struct {
		name         string
		first        origintest.Fault
		second       origintest.Fault
		known        bool
		headers, won [2]float64 // launched and won, of headers and of blocks
		most         time.Duration
		last         string // request
	}{
		{name: "headers late, unknown object", first: origintest.Fault{Latency: time.Second},
			second: origintest.Fault{Latency: 20 * ms}, headers: [2]float64{1, 1}, most: 100 * ms, last: "0-131071"},
		{name: "headers late", known: true, first: origintest.Fault{Latency: time.Second},
			second: origintest.Fault{Latency: 20 * ms}, headers: [2]float64{1, 1}, most: 100 * ms, last: "0-131071 if-match"},
		{name: "headers never", known: true, first: origintest.Fault{Stall: true}, second: origintest.Fault{Latency: 20 * ms},
			headers: [2]float64{1, 1}, most: 100 * ms, last: "0-131071 if-match"},
		{name: "headers late, second later", known: true, first: origintest.Fault{Latency: 100 * ms},
			second: origintest.Fault{Latency: time.Second}, headers: [2]float64{1, 0}, most: 110 * ms, last: "0-131071 if-match"},
		{name: "first block late", known: true, first: stallAt(100), second: origintest.Fault{Latency: 20 * ms},
			won: [2]float64{1, 1}, most: 120 * ms, last: "0-131071 if-match"},
		{name: "third block late", known: true, first: stallAt(2*B + 100), second: origintest.Fault{Latency: 20 * ms},
			won: [2]float64{1, 1}, most: 120 * ms, last: "32768-131071 if-match"},
		{name: "third block late, unknown object", first: stallAt(2*B + 100), second: origintest.Fault{Latency: 20 * ms},
			won: [2]float64{1, 1}, most: 120 * ms, last: "32768-131071 if-match"},
		{name: "block late, second refused", known: true, first: stallAt(100), second: origintest.Fault{Status: 403},
			won: [2]float64{1, 0}, most: 1100 * ms, last: "0-131071 if-match"},
		{name: "block late, second of another version", known: true, first: stallAt(100),
			second: origintest.Fault{Edit: func(r *origin.Response) { r.Info.ETag = `"other"` }},
			won:    [2]float64{1, 0}, most: 1100 * ms, last: "0-131071 if-match"},
		{name: "headers late, second of another version", known: true, first: origintest.Fault{Latency: time.Second},
			second:  origintest.Fault{Edit: func(r *origin.Response) { r.Info.ETag = `"other"` }},
			headers: [2]float64{1, 0}, most: 1100 * ms, last: "0-131071 if-match"},
		{name: "block late, second short", known: true, first: stallAt(100),
			second: origintest.Fault{Steps: []origintest.Step{{At: 10, Err: io.EOF}}},
			won:    [2]float64{1, 0}, most: 1100 * ms, last: "0-131071 if-match"},
		{name: "block late, second panics", known: true, first: stallAt(100),
			second: origintest.Fault{Steps: []origintest.Step{{At: 10, Panic: "planted"}}},
			won:    [2]float64{1, 0}, most: 1100 * ms, last: "0-131071 if-match"},
		{name: "block late, then broken, second helps", known: true,
			first:  origintest.Fault{Steps: []origintest.Step{{At: 100, Latency: 60 * ms, Err: io.ErrUnexpectedEOF}}},
			second: origintest.Fault{Latency: 50 * ms},
			won:    [2]float64{1, 1}, most: 150 * ms, last: "0-131071 if-match"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, hedged(), 256*B)
				defer r.close()
				r.learn()
				r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
				if c.known {
					r.get("k", gateway.FromTo(0, 0))
					r.memory.evict()
					r.origin.ResetLog()
				}
				r.origin.Fail(1, nil, c.first)
				r.origin.Fail(1, nil, c.second)
				began := time.Now()
				a := r.get("k", gateway.Range{})
				if took := time.Since(began); a.err != nil || len(a.body) != 8*B || took > c.most {
					t.Errorf("%d bytes after %v, %v", len(a.body), took, a.err)
				}
				r.hedges(t, "headers", c.headers[0], c.headers[1])
				r.hedges(t, "block", c.won[0], c.won[1])
				if log := r.origin.Log(); len(log) != 2 || !strings.HasPrefix(log[1], "GET b/k "+c.last) {
					t.Errorf("%q", log)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// A HEAD is hedged too.
func TestHedgedHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hedged(), 256*B)
		defer r.close()
		r.learn()
		r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
		r.origin.Fail(1, origintest.Heads, origintest.Fault{Stall: true})
		began := time.Now()
		a := r.read(t.Context(), gateway.Request{Object: object("k"), InfoOnly: true})
		if took := time.Since(began); a.err != nil || took > 100*time.Millisecond {
			t.Errorf("%v after %v", a.err, took)
		}
		r.hedges(t, "headers", 1, 1)
	})
}

// No second request: off for the bucket, off for the read, the answer in time, or an answer that is a refusal.
func TestNoHedge(t *testing.T) {
	late := origintest.Fault{Latency: 500 * time.Millisecond, Steps: []origintest.Step{{At: 100, Latency: time.Second}}}
	for name, c := range map[string]struct {
		policy gateway.Policy
		tune   gateway.Tuning
		fault  origintest.Fault
	}{
		"policy":  {policy: stubborn(), fault: late},
		"tuned":   {policy: hedged(), tune: gateway.Tuning{NoHedge: true}, fault: late},
		"in time": {policy: hedged(), fault: origintest.Fault{Latency: 40 * time.Millisecond}},
		"refusal": {policy: hedged(), fault: origintest.Fault{Latency: 40 * time.Millisecond, Status: 404}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.policy, 256*B)
				defer r.close()
				r.learn()
				r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
				r.origin.Fail(-1, nil, c.fault)
				r.read(t.Context(), gateway.Request{Object: object("k"), Tune: c.tune})
				r.hedges(t, "headers", 0, 0)
				r.hedges(t, "block", 0, 0)
			})
		})
	}
}

// Without samples the delay is the longest: an origin of which nothing is known is not asked twice for nothing.
func TestHedgeWithoutSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hedged(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.origin.Fail(1, nil, origintest.Fault{Latency: 4 * time.Second})
		began := time.Now()
		if a := r.get("k", gateway.Range{}); a.err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", a.err, time.Since(began))
		}
	})
}

// A sick origin is not buried: second requests are 5% of all, and hedge_concurrency at one time.
func TestHedgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hedged(), 4096*B, func(c *gateway.Config) { c.HedgeConcurrency = 3 })
		defer r.close()
		r.learn()
		for i := range 400 {
			r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: B})
		}
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			return &origintest.Fault{Latency: time.Second}
		})
		for range 2 {
			r.crowd(400, func(i int) answer { return r.get(fmt.Sprint(i), gateway.Range{}) })
		}
		s := r.origin.Stats()
		if n := r.metric("ashlar_hedges_total", "headers"); n > 25 || n < 3 || s.Gets > 425 {
			t.Errorf("%v second requests beside 400", n)
		}
		if s.MaxConcurrent > 64+3 {
			t.Errorf("%d requests at once", s.MaxConcurrent)
		}
	})
}

// However bad it gets, one fetch group has no more second requests than two.
func TestHedgesPerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hedged(), 4096*B)
		defer r.close()
		r.learn()
		r.learn()
		r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
		slow := origintest.Fault{Latency: time.Second}
		for i := range int64(8) {
			slow.Steps = append(slow.Steps, origintest.Step{At: i*B + 1, Latency: time.Second})
		}
		r.origin.Fail(-1, nil, slow)
		if a := r.get("k", gateway.Range{}); a.err != nil || len(a.body) != 8*B {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		if n := r.origin.Stats().Gets; n != 3 {
			t.Errorf("%q", r.origin.Log())
		}
	})
}

// No memory at once, no second request for a block: it never waits with a stream open.
func TestHedgeWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hedged(), 8*B)
		defer r.close()
		r.learn()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.get("k", gateway.FromTo(0, 0))
		synctest.Wait() // until nobody holds a block but the tier
		r.memory.evict()
		// All that is left is one block.
		r.origin.Fail(-1, nil, origintest.Fault{Steps: []origintest.Step{{At: 10, Latency: time.Second}}})
		full := r.fillMemory(7)
		time.AfterFunc(500*time.Millisecond, full)
		before := r.origin.Stats().Gets
		a := r.get("k", gateway.Range{})
		if a.err != nil || len(a.body) != B {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		r.hedges(t, "block", 1, 0)
		if n := r.origin.Stats().Gets - before; n != 1 {
			t.Errorf("waited for memory: %q", r.origin.Log())
		}
	})
}

// fillMemory takes n blocks of memory until it is told to give them back.
func (r *rig) fillMemory(n int) (release func()) {
	var all []interface{ Release() }
	for range n {
		if b := r.memory.TryAlloc(B); b != nil {
			all = append(all, b)
		}
	}
	return func() {
		for _, b := range all {
			b.Release()
		}
	}
}

// The second request that has won takes the place of the first in front of the origin.
func TestWinnerTakesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		r := newRig(t, hedged(), 256*B, func(c *gateway.Config) { c.OriginConcurrency = 1 })
		defer r.close()
		r.learn()
		r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
		r.origin.Put("b", "other", origintest.Object{Size: B})
		r.origin.Fail(1, nil, origintest.Fault{Steps: []origintest.Step{{At: 100, Latency: time.Second}}})
		var steady origintest.Fault
		for i := range int64(8) {
			steady.Steps = append(steady.Steps, origintest.Step{At: i*B + 1, Latency: 40 * ms})
		}
		r.origin.Fail(1, nil, steady)
		began := time.Now()
		var took [2]time.Duration
		r.crowd(2, func(i int) answer {
			time.Sleep(time.Duration(i) * 150 * ms)
			a := r.get([]string{"k", "other"}[i], gateway.Range{})
			took[i] = time.Since(began)
			return a
		})
		if r.hedges(t, "block", 1, 1); took[1] < took[0] || took[0] < 300*ms {
			t.Errorf("done after %v", took)
		}
	})
}

// The reader leaves while two requests race: both end, nothing is left.
func TestLeavingDuringARace(t *testing.T) {
	for i := range 30 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, hedged(), 256*B)
			defer r.close()
			r.learn()
			r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
			const ms = time.Millisecond
			r.origin.Fail(1, nil, origintest.Fault{Latency: 100 * ms, Steps: []origintest.Step{{At: 2*B + 1, Latency: 100 * ms}}})
			r.origin.Fail(1, nil, origintest.Fault{Latency: 50 * ms, Steps: []origintest.Step{{At: 1, Latency: 60 * ms}}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Millisecond)
			defer cancel()
			a := r.read(ctx, gateway.Request{Object: object("k")})
			r.verify(a)
			if a.err != nil && !errors.Is(a.err, context.DeadlineExceeded) {
				t.Error(a.err)
			}
			time.Sleep(time.Minute)
			r.checkIdle()
		})
	}
}
