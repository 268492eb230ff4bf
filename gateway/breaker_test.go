package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// What says nothing of the origin as a whole keeps nobody from it.
func TestBreakerIsNotFor(t *testing.T) {
	hasty := gateway.Tuning{FirstByte: 100 * time.Millisecond, Attempts: 1}
	slow := origintest.Fault{Latency: 300 * time.Millisecond}
	broken := func(q *origintest.Request) bool { return q.Object.Key == "broken" }
	for name, c := range map[string]struct {
		match func(*origintest.Request) bool
		fault origintest.Fault
		read  func(r *rig, i int) answer
	}{
		"an object that is broken": {broken, origintest.Fault{Status: 500},
			func(r *rig, _ int) answer { return r.get("broken", gateway.Range{}) }},
		"readers in haste": {nil, slow, func(r *rig, i int) answer {
			return r.read(r.t.Context(), gateway.Request{Object: object(fmt.Sprint("hasty", i)), Tune: hasty})
		}},
		"an object that is broken, in haste": {broken, slow, func(r *rig, i int) answer {
			return r.read(r.t.Context(), gateway.Request{Object: object("broken"), Tune: hasty})
		}},
		"our signature": {nil, origintest.Fault{Err: fmt.Errorf("%w: 403 InvalidAccessKeyId", origin.ErrCredentials)},
			func(r *rig, i int) answer { return r.get(fmt.Sprint("unsigned", i), gateway.Range{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, stubborn(), 256*B)
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: B})
				r.origin.Fail(1, nil, origintest.Fault{Err: errors.New("connection refused")}) // what was before doesn't count
				r.get("k", gateway.Range{})
				r.Invalidate(object("k"))
				r.origin.Fail(-1, c.match, c.fault)
				for i := range 50 {
					time.Sleep(100 * time.Millisecond)
					if a := c.read(r, i); a.err == nil || errors.Is(a.err, gateway.ErrDown) {
						t.Fatalf("read %d: %v", i, a.err)
					}
				}
				a := r.get("k", gateway.Range{})
				if a.err != nil && !errors.Is(a.err, origin.ErrCredentials) || r.metric("ashlar_origin_breaker_open", "") != 0 {
					t.Errorf("others are kept from the origin: %v", a.err)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// Of one object no answer at all is enough.
func TestBreakerOfOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Fail(-1, nil, origintest.Fault{Latency: 200 * time.Millisecond, Err: errors.New("connection reset by peer")})
		for range 3 {
			r.get("k", gateway.Range{})
		}
		if r.metric("ashlar_origin_breaker_open", "") != 1 {
			t.Error("the breaker is closed")
		}
	})
}

// To be told to slow down now and then is no sign that the rest is well.
func TestSlowDownBetweenFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		n := 0
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			if n++; n%2 == 0 {
				return &origintest.Fault{Latency: 200 * time.Millisecond, Status: 503, Code: "SlowDown"}
			}
			return &origintest.Fault{Latency: 200 * time.Millisecond, Status: 500}
		})
		for i := range 12 {
			r.get(fmt.Sprint(i), gateway.Range{})
		}
		if r.metric("ashlar_origin_breaker_open", "") != 1 {
			t.Error("the breaker is closed")
		}
	})
}

// Requests that an outage left hanging fail when it is over already: that is no news.
func TestLateFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		once := gateway.Request{Tune: gateway.Tuning{Attempts: 1}}
		r.origin.Fail(20, nil, origintest.Fault{Stall: true})
		late := make(chan []answer)
		go func() {
			late <- r.crowd(20, func(i int) answer {
				req := once
				req.Object = object(fmt.Sprint(i))
				return r.read(t.Context(), req)
			})
		}()
		time.Sleep(4 * time.Second)
		if a := r.get("k", gateway.Range{}); a.err != nil {
			t.Fatal(a.err)
		}
		for _, a := range <-late {
			if !errors.Is(a.err, origin.ErrTimeout) {
				t.Error(a.err)
			}
		}
		if r.metric("ashlar_origin_breaker_open", "") != 0 {
			t.Error("the breaker opened after the outage")
		}
	})
}

// Readers in haste, who learn nothing of a slow origin, leave it to the others to find that it is well again.
func TestHasteDoesNotProlongAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.origin.Fail(-1, nil, origintest.Fault{Err: errors.New("connection refused")})
		for i := range 5 {
			go func() {
				for n := 0; ctx.Err() == nil; n++ {
					r.read(ctx, gateway.Request{Object: object(fmt.Sprintf("%d %d", i, n)),
						Tune: gateway.Tuning{FirstByte: 100 * time.Millisecond, Attempts: 1}})
					time.Sleep(10 * time.Millisecond)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		r.origin.ResetLog()
		time.Sleep(10 * time.Second)
		if n := len(r.origin.Log()); n == 0 || n > 11 || r.metric("ashlar_origin_breaker_open", "") != 1 {
			t.Errorf("%d requests in 10 s, breaker open: %v", n, r.metric("ashlar_origin_breaker_open", ""))
		}
		for at := time.Now(); time.Since(at) < 10*time.Second; time.Sleep(50 * time.Millisecond) { // somebody else comes
			r.get("k", gateway.Range{})
		}
		r.origin.Heal()
		r.origin.Fail(-1, nil, origintest.Fault{Latency: 300 * time.Millisecond})
		for at := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if a := r.get("k", gateway.Range{}); a.err == nil {
				break
			}
			if d := time.Since(at); d > 2*time.Second {
				t.Errorf("still down %v after the origin came back", d)
				break
			}
		}
		cancel()
		time.Sleep(time.Minute)
	})
}

// Stale info that will do is not kept back while the origin is asked again and again, or wants to be left alone.
func TestStaleWithoutWaiting(t *testing.T) {
	for name, f := range map[string]origintest.Fault{
		"slow down": {Status: 503, Code: "SlowDown", Header: []origin.Header{{Name: "Retry-After", Value: "20"}}},
		"stall":     {Stall: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, hardy(), 256*B)
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
				r.get("k", gateway.Range{})
				time.Sleep(10 * time.Minute)
				r.origin.Fail(-1, nil, f)
				for i, a := range r.crowd(20, func(i int) answer {
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
					began, req, most := time.Now(), gateway.Request{Object: object("k")}, r.policy.Fetch.FirstByte
					if i%2 == 1 {
						req.Tune.Deadline, most = time.Second, time.Second
					}
					a := r.read(t.Context(), req)
					if d := time.Since(began); d > most {
						t.Errorf("reader %d waited %v", i, d)
					}
					return a
				}) {
					if a.err != nil || a.obj.Status != gateway.Stale || len(a.body) != 4*B {
						t.Errorf("reader %d: %v", i, describe(a))
					}
				}
				r.origin.Heal()
				time.Sleep(time.Minute)
				if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Status == gateway.Stale {
					t.Errorf("healed: %v", describe(a))
				}
			})
		})
	}
}

// A gateway whose nodes stand still answers by what is stale as soon as it knows that.
func TestSilenceBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hardy()
		p.Fetch.Attempts = 1
		r := newRig(t, p, 256*B, func(c *gateway.Config) { c.CachesBehind = true })
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.get("k", gateway.Range{})
		time.Sleep(10 * time.Minute)
		r.origin.Fail(-1, nil, origintest.Fault{Stall: true})
		for i := range 10 {
			r.get(fmt.Sprint(i), gateway.Range{})
		}
		began := time.Now()
		a := r.get("k", gateway.Range{})
		if d := time.Since(began); a.err != nil || a.obj.Status != gateway.Stale || d > 100*time.Millisecond {
			t.Errorf("%v after %v", describe(a), d)
		}
		r.origin.Heal()
		time.Sleep(time.Minute) // the question that met silence is over
		if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Status == gateway.Stale {
			t.Errorf("healed: %v", describe(a))
		}
	})
}

// A crowd before an object that the origin only fails at is told so together, after as many requests as one of them may
// have; each in words of ours but for the one who asked.
func TestCrowdBeforeABrokenObject(t *testing.T) {
	for name, f := range map[string]origintest.Fault{
		"500":         {Latency: 20 * time.Millisecond, Status: 500},
		"500 of node": {Latency: 20 * time.Millisecond, Status: 500},
		"I/O":         {Latency: 20 * time.Millisecond, Err: errors.New("connection reset by peer")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, node := stubborn(), name == "500 of node"
				if node {
					p.Fetch.Attempts = 1 // those are its own
				}
				r := newRig(t, p, 256*B, func(c *gateway.Config) { c.CachesBehind = node })
				defer r.close()
				r.origin.Fail(-1, nil, f)
				began, words := time.Now(), 0
				for _, a := range r.crowd(200, func(int) answer { return r.get("broken", gateway.Range{}) }) {
					var e *origin.Error
					if a.err == nil {
						t.Error("served")
					} else if errors.As(a.err, &e) {
						words++
					}
				}
				if n, d := r.origin.Stats().Gets, time.Since(began); n > 6 || d > time.Second || words > 2 {
					t.Errorf("%d requests, the last was told after %v, %d in the origin's words", n, d, words)
				}
			})
		})
	}
}

// Who came when the first request had failed already has all of his own.
func TestComingLateBeforeABrokenObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.origin.Fail(3, nil, origintest.Fault{Latency: time.Second, Status: 500})
		r.origin.Fail(-1, nil, origintest.Fault{Latency: time.Second}) // or the first would find what the second was told at once
		for i, a := range r.crowd(2, func(i int) answer {
			time.Sleep(time.Duration(i) * 1500 * time.Millisecond)
			return r.get("k", gateway.Range{})
		}) {
			if (a.err != nil) != (i == 0) {
				t.Errorf("reader %d: %v", i, a.err)
			}
		}
	})
}

// Fetches that others started with less patience, and that fail for it, fail nobody who has more.
func TestJoinedHastyFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.get("k", gateway.FromTo(0, 0))
		r.memory.evict()
		r.origin.Fail(-1, nil, origintest.Fault{Latency: time.Second})
		for i, a := range r.crowd(50, func(i int) answer {
			req := gateway.Request{Object: object("k")}
			if i%20 < 10 { // so that the next fetch is one of theirs too, who ever is first
				req.Tune = gateway.Tuning{FirstByte: 100 * time.Millisecond, Attempts: 1}
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			return r.read(t.Context(), req)
		}) {
			if i%20 >= 10 && a.err != nil {
				t.Errorf("reader %d: %v", i, a.err)
			}
		}
	})
}

// While the origin is silent, and known to be, who has something here is not held up by the requests that look whether it
// is back, and who has not is told after one of them at the latest.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedged()
		p.StaleIfError = time.Hour
		r := newRig(t, p, 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.get("k", gateway.Range{})
		time.Sleep(10 * time.Minute)
		r.origin.Fail(-1, nil, origintest.Fault{Stall: true})
		reads := func(while, most time.Duration) {
			t.Helper()
			for end := time.Now().Add(while); time.Now().Before(end); {
				r.crowd(20, func(i int) answer {
					time.Sleep(time.Duration(i) * 20 * time.Millisecond)
					key, began := "k", time.Now()
					if i == 0 {
						key = fmt.Sprint("cold", began)
					}
					a := r.get(key, gateway.Range{})
					d := time.Since(began)
					if key == "k" && (a.err != nil || a.obj.Status != gateway.Stale || d > most) {
						t.Errorf("stale: %v after %v", describe(a), d)
					}
					if key != "k" && (a.err == nil || d > max(most, p.Fetch.FirstByte)) {
						t.Errorf("cold: %v after %v", describe(a), d)
					}
					return a
				})
			}
		}
		r.crowd(10, func(i int) answer {
			began := time.Now()
			a := r.get(fmt.Sprint(i), gateway.Range{})
			if d := time.Since(began); a.err == nil || d > 3*(p.Fetch.FirstByte+p.Fetch.Backoff*2) {
				t.Errorf("%v after %v", describe(a), d)
			}
			return a
		})
		if r.metric("ashlar_origin_breaker_open", "") != 1 {
			t.Fatal("the breaker is closed")
		}
		reads(time.Minute, 100*time.Millisecond)
		r.origin.Heal()
		time.Sleep(time.Second)
		if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Status == gateway.Stale {
			t.Errorf("healed: %v", describe(a))
		}
	})
}
