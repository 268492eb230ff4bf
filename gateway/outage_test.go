package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// hardy is stubborn with what there is for outages.
func hardy() gateway.Policy {
	p := stubborn()
	p.StaleIfError = time.Hour
	return p
}

// P9: what is here is served while the origin is in trouble, and says that it is stale; not for ever, nor after an answer.
func TestStaleIfError(t *testing.T) {
	for name, f := range map[string]origintest.Fault{
		"I/O": {Err: errors.New("connection refused")}, "timeout": {Stall: true}, "500": {Status: 500}, "503": {Status: 503},
		"429": {Status: 429}, "bad": {Edit: func(r *origin.Response) { r.NotModified, r.Info.ETag = true, `"other"` }},
	} {
		for _, head := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/head=%v", name, head), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, hardy(), 256*B)
					defer r.close()
					r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
					r.get("k", gateway.Range{})
					match := origintest.Gets
					if head {
						match = origintest.Heads
						if name == "bad" {
							return // there is no telling with a HEAD
						}
					}
					read := func() answer {
						a := r.read(t.Context(), gateway.Request{Object: object("k"), InfoOnly: head})
						r.verify(a)
						return a
					}
					r.origin.Fail(-1, match, f)
					time.Sleep(10 * time.Minute)
					began := time.Now()
					a := read()
					if a.err != nil || !head && len(a.body) != 4*B {
						t.Fatalf("%d bytes, %v", len(a.body), a.err)
					}
					if a.obj.Status != gateway.Stale || !a.obj.TTLExceeded || a.obj.Age < 10*time.Minute {
						t.Errorf("%v, age %v", a.obj.Status, a.obj.Age)
					}
					if d := time.Since(began); d > 16*time.Second {
						t.Errorf("after %v", d)
					}
					time.Sleep(52 * time.Minute)
					if a := read(); a.err == nil {
						t.Errorf("served after %v", a.obj.Age)
					}
					r.origin.Heal()
					time.Sleep(2 * time.Second)
					if a := read(); a.err != nil || a.obj.Status == gateway.Stale || a.obj.Age != 0 {
						t.Errorf("healed: %v", describe(a))
					}
				})
			})
		}
	}
	for _, status := range []int{400, 403, 404} { // answers: the reader's to hear
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, hardy(), 256*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
			r.get("k", gateway.Range{})
			time.Sleep(10 * time.Minute)
			r.origin.Fail(1, nil, origintest.Fault{Status: status})
			var e *origin.Error
			if a := r.get("k", gateway.Range{}); !errors.As(a.err, &e) || e.Status != status {
				t.Errorf("%d: %v", status, a.err)
			}
			// It is gone, or not to be had any more: what is known of it does not come back in an outage.
			r.origin.Fail(-1, nil, origintest.Fault{Status: 500})
			if a := r.get("k", gateway.Range{}); a.err == nil {
				t.Errorf("served after a %d", status)
			}
			r.origin.Heal()
			if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Status == gateway.Stale {
				t.Errorf("given again: %v", describe(a))
			}
			time.Sleep(10 * time.Minute)
			r.origin.Fail(-1, nil, origintest.Fault{Status: 500})
			if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Status != gateway.Stale {
				t.Errorf("after it was given again: %v", describe(a))
			}
		})
	}
}

// A refusal of blocks counts as one of the object does.
func TestStaleAfterRefusedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hardy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.get("k", gateway.Range{})
		r.memory.(*strictMemory).evictOldest(1)
		r.origin.Fail(1, nil, origintest.Fault{Status: 403})
		var e *origin.Error
		if a := r.get("k", gateway.Range{}); !errors.As(a.err, &e) || e.Status != 403 {
			t.Error(a.err)
		}
		if a := r.get("k", gateway.From(B)); a.err != nil {
			t.Errorf("what is fresh and here: %v", a.err)
		}
		for name := range r.Infos() {
			t.Errorf("%q is kept for a process that does not know it was refused", name)
		}
		time.Sleep(10 * time.Minute)
		r.origin.Fail(-1, nil, origintest.Fault{Status: 500})
		if a := r.get("k", gateway.From(B)); a.err == nil {
			t.Error("served what was refused")
		}
	})
}

// Stale info never stands in for what a write has made untrue, for what readers have been told since, for a refusal, or
// beside blocks that are not there.
func TestStaleIfErrorHasLimits(t *testing.T) {
	cases := map[string]func(t *testing.T, r *rig) answer{
		"written": func(t *testing.T, r *rig) answer {
			r.Invalidate(object("k"))
			return r.get("k", gateway.Range{})
		},
		"written meanwhile": func(t *testing.T, r *rig) answer {
			time.AfterFunc(10*time.Millisecond, func() { r.Invalidate(object("k")) })
			return r.get("k", gateway.Range{})
		},
		"populated": func(t *testing.T, r *rig) answer {
			body := origintest.Bytes("s", 0, B)
			p := r.Populate(object("k"), B)
			p.Write(body)
			if !p.Commit(`"new"`) {
				t.Error("not committed")
			}
			return r.get("k", gateway.Range{})
		},
		"refused": func(t *testing.T, r *rig) answer { return r.get("k", gateway.From(100*B)) },
		"blocks gone": func(t *testing.T, r *rig) answer {
			r.memory.evict()
			return r.get("k", gateway.Range{})
		},
		"another block size": func(t *testing.T, r *rig) answer {
			r.policy.BlockSize *= 2
			return r.get("k", gateway.Range{})
		},
		"bare plus": func(t *testing.T, r *rig) answer {
			return r.read(t.Context(), gateway.Request{Object: origin.Object{Bucket: "b", Key: "a+b", Raw: "a+b"}})
		},
		"not wanted": func(t *testing.T, r *rig) answer {
			r.policy.StaleIfError = 0
			return r.get("k", gateway.Range{})
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, hardy(), 256*B)
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
				r.origin.Put("b", "a+b", origintest.Object{Size: 4 * B})
				r.get("k", gateway.Range{})
				r.read(t.Context(), gateway.Request{Object: origin.Object{Bucket: "b", Key: "a+b", Raw: "a+b"}})
				time.Sleep(10 * time.Minute)
				r.origin.Fail(-1, nil, origintest.Fault{Latency: 20 * time.Millisecond, Status: 500})
				if a := f(t, r); a.err == nil {
					t.Errorf("served: %v", describe(a))
				}
			})
		})
	}
}

// What a former process knew: good for stale_if_error when it ended in order, never otherwise.
func TestStaleIfErrorAfterARestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, hardy(), 256*B)
			r.origin.Put("b", "k", origintest.Object{Size: B})
			r.get("k", gateway.Range{})
			infos := make(map[string][]byte)
			for name, data := range r.Infos() {
				infos[name] = data
			}
			r.close()
			p := hardy()
			p.StaleIfError = 100 * 365 * 24 * time.Hour // age alone does not tell
			next := newRig(t, p, 256*B)
			defer next.close()
			next.Recall(func(yield func(string, []byte) bool) {
				for name, data := range infos {
					if !yield(name, data) {
						return
					}
				}
			}, clean)
			time.Sleep(10 * time.Minute)
			next.origin.Fail(-1, nil, origintest.Fault{Status: 500})
			a := next.read(t.Context(), gateway.Request{Object: object("k"), InfoOnly: true})
			if clean != (a.err == nil) || clean && a.obj.Status != gateway.Stale {
				t.Errorf("clean %v: %v", clean, describe(a))
			}
		})
	}
}

// The breaker: an origin that fails everything is left alone but for one request a second. Misses are told at once when to
// come back, hits and stale reads go on, and everything is well within a second of the origin's return.
func TestOutage(t *testing.T) {
	for name, f := range map[string]origintest.Fault{
		"refused": {Err: errors.New("connection refused")}, "silent": {Stall: true}, "503": {Status: 503, Code: "Oops"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, hardy(), 1024*B)
				defer r.close()
				for i := range 50 {
					r.origin.Put("b", fmt.Sprint("warm", i), origintest.Object{Size: 2 * B})
					r.get(fmt.Sprint("warm", i), gateway.Range{})
				}
				for i := range 10_000 {
					r.origin.Put("b", fmt.Sprint("cold", i), origintest.Object{Size: B})
				}
				r.origin.Fail(-1, nil, f)
				r.origin.ResetLog()
				down := time.Now()
				up := down.Add(time.Minute)
				most := 3 * (r.policy.Fetch.FirstByte + r.policy.Fetch.BackoffMax)
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(1, 1))
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				cold, atOnce := 0, 0
				for range 8 { // hits
					wg.Go(func() {
						for ctx.Err() == nil {
							mu.Lock()
							key := fmt.Sprint("warm", rng.IntN(50))
							mu.Unlock()
							if a := r.get(key, gateway.Range{}); a.err != nil || len(a.body) != 2*B {
								t.Errorf("a hit failed: %v", a.err)
							}
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				for range 8 { // misses
					wg.Go(func() {
						for ctx.Err() == nil {
							mu.Lock()
							cold++
							key := fmt.Sprint("cold", cold)
							mu.Unlock()
							began := time.Now()
							a := r.get(key, gateway.Range{})
							took := time.Since(began)
							mu.Lock()
							if errors.Is(a.err, gateway.ErrDown) && took == 0 {
								atOnce++
							}
							mu.Unlock()
							if took > most {
								t.Errorf("a miss took %v", took)
							}
							if began.After(up.Add(time.Second)) && a.err != nil {
								t.Errorf("%v after the origin's return: %v", began.Sub(up), a.err)
							}
							var e *gateway.DownError
							if errors.As(a.err, &e) && (e.RetryAfter <= 0 || e.RetryAfter > time.Second) {
								t.Errorf("come back in %v", e.RetryAfter)
							}
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				time.Sleep(30 * time.Second)
				if r.metric("ashlar_origin_breaker_open", "") != 1 {
					t.Error("the breaker is closed")
				}
				mu.Lock()
				if atOnce < 500 {
					t.Errorf("%d misses failed at once", atOnce)
				}
				mu.Unlock()
				n := r.origin.Stats().Gets
				time.Sleep(20 * time.Second)
				if n = r.origin.Stats().Gets - n; n < 10 || n > 21 {
					t.Errorf("%d requests in 20 s to an origin that is down", n)
				}
				time.Sleep(time.Until(up))
				r.origin.Heal()
				time.Sleep(10 * time.Second)
				cancel()
				wg.Wait()
				if r.metric("ashlar_origin_breaker_open", "") != 0 {
					t.Error("the breaker is open")
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// Failures that do not last, that lie between answers, or that are no more than a request to slow down, break nothing.
func TestBreakerStaysClosed(t *testing.T) {
	p := smallPolicy()
	for name, script := range map[string]func(n int) *origintest.Fault{
		"a burst": func(n int) *origintest.Fault { return &origintest.Fault{Status: 500} },
		"slow down": func(n int) *origintest.Fault {
			return &origintest.Fault{Latency: time.Second, Status: 503, Code: "SlowDown"}
		},
		"429":        func(n int) *origintest.Fault { return &origintest.Fault{Latency: time.Second, Status: 429} },
		"one in two": func(n int) *origintest.Fault { return &origintest.Fault{Latency: time.Second, Status: 404 + n%2*96} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, p, 256*B)
				defer r.close()
				n := 0
				r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
					n++
					return script(n)
				})
				for i := range 50 {
					if a := r.get(fmt.Sprint(i), gateway.Range{}); errors.Is(a.err, gateway.ErrDown) {
						t.Fatalf("read %d: %v", i, a.err)
					}
				}
			})
		})
	}
}

// negative_ttl: a 404 is remembered for so long and no longer, not beyond a write, and nothing else is remembered at all.
func TestNegativeTTL(t *testing.T) {
	p := smallPolicy()
	p.NegativeTTL = 10 * time.Second
	asked := func(t *testing.T, r *rig, want int, wantErr bool) answer {
		t.Helper()
		before := len(r.origin.Log())
		a := r.get("k", gateway.Range{})
		if n := len(r.origin.Log()) - before; n != want || (a.err != nil) != wantErr {
			t.Errorf("%d requests, %v", n, a.err)
		}
		return a
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, p, 256*B)
		defer r.close()
		r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second, Status: 404, Code: "NoSuchKey"})
		asked(t, r, 1, true)
		time.Sleep(1500 * time.Millisecond)
		a := asked(t, r, 0, true)
		var absent *gateway.AbsentError
		var e *origin.Error
		if !errors.As(a.err, &absent) || absent.Age != 3*time.Second || !errors.As(a.err, &e) || e.Code != "NoSuchKey" ||
			!errors.Is(a.err, origin.ErrNotFound) {
			t.Errorf("%v", a.err)
		}
		r.origin.Put("b", "k", origintest.Object{Size: B})
		asked(t, r, 0, true)
		time.Sleep(8 * time.Second) // counted from when the question was sent
		asked(t, r, 1, false)

		r.origin.Delete("b", "k")
		r.Invalidate(object("k"))
		asked(t, r, 1, true)
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.Invalidate(object("k"))
		asked(t, r, 1, false)
		r.origin.Delete("b", "k")
		r.Invalidate(object("k"))
		asked(t, r, 1, true)
		r.Purge(func(origin.Object) bool { return true }, false)
		asked(t, r, 1, true)
	})
	synctest.Test(t, func(t *testing.T) { // the origin is a cache, and has remembered it for a while
		r := newRig(t, p, 256*B)
		defer r.close()
		r.origin.Fail(-1, nil, origintest.Fault{Status: 404, Header: []origin.Header{{Name: "Age", Value: "7"}}})
		asked(t, r, 1, true)
		time.Sleep(2 * time.Second)
		asked(t, r, 0, true)
		time.Sleep(2 * time.Second)
		asked(t, r, 1, true)
	})
	synctest.Test(t, func(t *testing.T) { // of which key it is nobody here knows, so no write to that can be noticed
		r := newRig(t, p, 256*B)
		defer r.close()
		for range 2 {
			r.read(t.Context(), gateway.Request{Object: origin.Object{Bucket: "b", Key: "a+b", Raw: "a+b"}})
		}
		if log := r.origin.Log(); len(log) != 2 {
			t.Errorf("%q", log)
		}
	})
	for _, status := range []int{403, 405, 500} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, p, 256*B)
			defer r.close()
			r.origin.Fail(-1, nil, origintest.Fault{Status: status})
			asked(t, r, 1, true)
			asked(t, r, 1, true)
		})
	}
	synctest.Test(t, func(t *testing.T) { // bounded
		r := newRig(t, p, 256*B, func(c *gateway.Config) { c.InfoMemory = 1 << 20 })
		defer r.close()
		for i := range 1000 {
			r.get(fmt.Sprint(i), gateway.Range{})
		}
		r.origin.ResetLog()
		for i := range 1000 {
			r.get(fmt.Sprint(999-i), gateway.Range{})
		}
		if n := len(r.origin.Log()); n < 500 || n > 950 {
			t.Errorf("%d of 1000 were asked for again", n)
		}
	})
}

// A slow 404 does not take the place of what somebody who asked later has been told.
func TestNegativeOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.NegativeTTL = time.Minute
		r := newRig(t, p, 256*B)
		defer r.close()
		r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second, Status: 404}) // so that two may ask at once
		r.origin.Fail(1, nil, origintest.Fault{Latency: 2 * time.Second, Status: 404})
		r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second})
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.crowd(3, func(i int) answer {
			return r.read(t.Context(), gateway.Request{Object: object("k")})
		})
		time.Sleep(time.Second)
		if a := r.get("k", gateway.Range{}); a.err != nil {
			t.Errorf("%v after %q", a.err, r.origin.Log())
		}
	})
}
