package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// stubborn is smallPolicy with the fetch policy that a node has by default, but for hedging.
func stubborn() gateway.Policy {
	p := smallPolicy()
	p.Fetch = gateway.Fetch{
		Attempts: 3, Backoff: 50 * time.Millisecond, BackoffMax: 2 * time.Second,
		FirstByte: 5 * time.Second, Attempt: 30 * time.Second, Deadline: time.Minute,
	}
	return p
}

// What is trouble is tried again, what is an answer is passed on, by probes, by flights, by HEADs, and by streams of what
// can't be cached.
func TestWhatIsRetried(t *testing.T) {
	trouble := map[string]origintest.Fault{
		"I/O":               {Err: errors.New("connection reset by peer")},
		"no headers":        {Stall: true},
		"429":               {Status: 429},
		"500":               {Status: 500},
		"502":               {Status: 502},
		"503":               {Status: 503, Code: "SlowDown"},
		"504":               {Status: 504},
		"short body":        {Steps: []origintest.Step{{At: 100, Err: io.ErrUnexpectedEOF}}},
		"hidden short body": {Steps: []origintest.Step{{At: 100, Err: io.EOF}}},
		"stall in the body": {Steps: []origintest.Step{{At: 100, Stall: true}}},
	}
	answers := map[string]origintest.Fault{
		"400": {Status: 400}, "403": {Status: 403}, "404": {Status: 404}, "412": {Status: 412}, "301": {Status: 301},
		"416": {Status: 416}, "501": {Status: 501},
		"bad": {Edit: func(r *origin.Response) { r.Offset += 7 }},
	}
	run := func(t *testing.T, name, kind string, f origintest.Fault, again bool) {
		t.Run(kind+"/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := stubborn()
				p.Fetch.Attempt = 10 * time.Second
				r := newRig(t, p, 256*B)
				defer r.close()
				o := origintest.Object{Size: 2 * B}
				if kind == "stream" {
					o.NoETag, o.Seed = true, "s"
				}
				r.origin.Put("b", "k", o)
				if kind == "flight" {
					r.get("k", gateway.FromTo(0, 0))
					r.memory.evict()
				}
				r.origin.ResetLog()
				match := origintest.Gets
				switch kind {
				case "head":
					match = origintest.Heads
				case "stream": // after the probe, whose range it could not know to be the whole
					match = func(r *origintest.Request) bool { return r.Length == 0 }
				}
				r.origin.Fail(2, match, f)
				a := r.read(t.Context(), gateway.Request{Object: object("k"), InfoOnly: kind == "head"})
				n := r.origin.Stats().Gets
				switch kind {
				case "head":
					n = r.origin.Stats().Heads
				case "stream":
					n--
				}
				if again && (a.err != nil || n != 3) {
					t.Errorf("%v after %q", a.err, r.origin.Log())
				}
				if retries := r.metric("ashlar_fetch_retries_total", ""); again && retries != 2 || !again && retries != 0 {
					t.Errorf("%v retries, %q", retries, r.origin.Log())
				}
				var e *origin.Error
				// A 412 and a 416 are taken up by other questions.
				told := errors.As(a.err, &e) && e.Status == f.Status && n == 1
				if !again && f.Status != 0 && f.Status != 412 && f.Status != 416 && !told {
					t.Errorf("%v after %q", a.err, r.origin.Log())
				}
			})
		})
	}
	for _, kind := range []string{"probe", "flight", "head"} {
		for name, f := range trouble {
			if kind == "head" && len(f.Steps) > 0 {
				continue
			}
			run(t, name, kind, f, true)
		}
		for name, f := range answers {
			if kind == "head" && name == "bad" {
				continue
			}
			run(t, name, kind, f, false)
		}
	}
	for _, name := range []string{"I/O", "no headers", "503"} {
		run(t, name, "stream", trouble[name], true)
	}
}

// A retry asks for what is unfinished, from the first block of it.
func TestRetryResumes(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("known=", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, stubborn(), 256*B)
				defer r.close()
				tag := r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
				if known {
					r.get("k", gateway.FromTo(0, 0))
					r.memory.evict()
				}
				r.origin.ResetLog()
				r.origin.Fail(1, nil, origintest.Fault{Steps: []origintest.Step{{At: 2*B + 5, Err: io.ErrUnexpectedEOF}}})
				r.origin.Fail(1, nil, origintest.Fault{Steps: []origintest.Step{{At: 3 * B, Err: io.ErrUnexpectedEOF}}})
				if a := r.get("k", gateway.Range{}); a.err != nil || len(a.body) != 8*B {
					t.Errorf("%d bytes, %v", len(a.body), a.err)
				}
				pin := " if-match=" + tag
				want := []string{fmt.Sprintf("GET b/k 0-%d", 8*B-1), fmt.Sprintf("GET b/k %d-%d%s", 2*B, 8*B-1, pin),
					fmt.Sprintf("GET b/k %d-%d%s", 5*B, 8*B-1, pin)}
				if known {
					want[0] += pin
				}
				if log := r.origin.Log(); !slices.Equal(log, want) {
					t.Errorf("got %q\nwant %q", log, want)
				}
			})
		})
	}
}

// Attempts are counted over the whole group, whatever came of each.
func TestAttemptsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
		r.origin.Fail(-1, nil, origintest.Fault{Steps: []origintest.Step{{At: B + 5, Err: io.ErrUnexpectedEOF}}})
		if a := r.get("k", gateway.Range{}); !errors.Is(a.err, gateway.ErrInterrupted) || len(a.body) != 3*B {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		if n := r.origin.Stats().Gets; n != 3 {
			t.Errorf("%q", r.origin.Log())
		}
	})
}

// The object is overwritten between two attempts: the pin tells.
func TestOverwrittenBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		first := r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.origin.Fail(1, nil, origintest.Fault{Steps: []origintest.Step{{At: 2*B + 5, Err: io.ErrUnexpectedEOF, Call: func() {
			r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		}}}})
		a := r.get("k", gateway.Range{})
		if !errors.Is(a.err, gateway.ErrInterrupted) || len(a.body) != 2*B || a.obj.Info.ETag != first {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		if n := r.origin.Stats().Gets; n != 2 {
			t.Errorf("%q", r.origin.Log())
		}
	})
}

// Pauses double up to backoff_max, and at least half of each is waited.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := stubborn()
		p.Fetch.Attempts, p.Fetch.Backoff, p.Fetch.BackoffMax = 6, 100*time.Millisecond, 500*time.Millisecond
		r := newRig(t, p, 256*B)
		defer r.close()
		jitter := make(map[time.Duration]bool)
		for range 20 {
			var at []time.Time
			r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
				at = append(at, time.Now())
				return &origintest.Fault{Status: 503, Code: "SlowDown"}
			})
			var e *origin.Error
			if a := r.get("k", gateway.Range{}); !errors.As(a.err, &e) || e.Status != 503 || len(at) != 6 {
				t.Fatalf("%v after %d requests", a.err, len(at))
			}
			for i, most := range []int{100, 200, 400, 500, 500} {
				d, most := at[i+1].Sub(at[i]), time.Duration(most)*time.Millisecond
				if d < most/2 || d > most {
					t.Errorf("pause %d is %v, want %v to %v", i, d, most/2, most)
				}
				jitter[d] = true
			}
		}
		if len(jitter) < 90 {
			t.Errorf("%d different pauses of 100", len(jitter))
		}
	})
}

// What the origin asks for by Retry-After is waited for, in both of its spellings; where that is too long, the reader is
// told at once, in the origin's words.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 10})
		for value, want := range map[string]time.Duration{
			"3": 3 * time.Second, "date": 6 * time.Second, "61": 0, "99999999999": 0, "soon": 25 * time.Millisecond,
		} {
			if value == "date" { // of a whole second
				value = time.Now().Add(7 * time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
			}
			r.Invalidate(object("k"))
			r.origin.Fail(1, nil, origintest.Fault{Status: 503, Header: []origin.Header{{Name: "Retry-After", Value: value}}})
			began := time.Now()
			a := r.get("k", gateway.Range{})
			if d := time.Since(began); d < want || d > want+2*time.Second || (a.err != nil) != (want == 0) {
				t.Errorf("Retry-After %s: %v after %v", value, a.err, d)
			}
		}
	})
}

// The deadline bounds all that one wait of a read is about: attempts, pauses, queueing, info and blocks.
func TestDeadline(t *testing.T) {
	within := func(t *testing.T, d time.Duration, a answer, began time.Time) {
		t.Helper()
		if took := time.Since(began); !errors.Is(a.err, origin.ErrTimeout) || took > d {
			t.Errorf("%v after %v", a.err, took)
		}
	}
	for name, f := range map[string]origintest.Fault{
		"stall":   {Stall: true},
		"body":    {Steps: []origintest.Step{{At: B + 1, Stall: true}}},
		"trickle": {Chunk: 1, Steps: slices.Collect(trickle(B))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := stubborn()
				p.Fetch.Attempts, p.Fetch.Deadline = 100, 12*time.Second
				r := newRig(t, p, 256*B)
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
				r.origin.Fail(-1, nil, f)
				began := time.Now()
				a := r.get("k", gateway.FromTo(B, 4*B-1))
				within(t, 12*time.Second, a, began)
			})
		})
	}
	t.Run("queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := stubborn()
			p.Fetch.Deadline = 12 * time.Second
			p.Fetch.FirstByte = 0
			r := newRig(t, p, 256*B, func(c *gateway.Config) { c.OriginConcurrency = 1 })
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: B})
			r.origin.Fail(1, nil, origintest.Fault{Stall: true})
			go func() { r.get("other", gateway.Range{}) }()
			time.Sleep(time.Second)
			began := time.Now()
			within(t, 12*time.Second, r.read(t.Context(), gateway.Request{Object: object("k"),
				Tune: gateway.Tuning{Deadline: 5 * time.Second}}), began)
			if d := time.Since(began); d != 5*time.Second {
				t.Errorf("gave up after %v", d)
			}
			time.Sleep(time.Minute)
		})
	})
	// A slow reader is not held to it, nor is a large object.
	t.Run("progress", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := stubborn()
			p.Fetch.Deadline = 10 * time.Second
			r := newRig(t, p, 64*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 100 * B})
			r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
				return &origintest.Fault{Latency: 3 * time.Second}
			})
			obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
			if err != nil {
				t.Fatal(err)
			}
			defer obj.Close()
			w := &slowWriter{ctx: t.Context(), wait: 2 * time.Second}
			if n, err := obj.WriteTo(w); err != nil || n != 100*B {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	})
}

// trickle is a body of one byte a second.
func trickle(n int64) func(func(origintest.Step) bool) {
	return func(yield func(origintest.Step) bool) {
		for i := range n {
			if !yield(origintest.Step{At: i, Latency: time.Second}) {
				return
			}
		}
	}
}

// Who joins a fetch with less patience than the one who started it gives up by itself, and fails nobody.
func TestImpatientReaderJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.get("k", gateway.FromTo(0, 0))
		r.memory.evict()
		r.origin.Fail(1, nil, origintest.Fault{Latency: 4 * time.Second})
		for i, a := range r.crowd(2, func(i int) answer {
			time.Sleep(time.Duration(i) * time.Second)
			req := gateway.Request{Object: object("k")}
			if i == 1 {
				req.Tune.Deadline = time.Second
			}
			return r.read(t.Context(), req)
		}) {
			if i == 0 && a.err != nil || i == 1 && !errors.Is(a.err, origin.ErrTimeout) {
				t.Errorf("reader %d: %v", i, a.err)
			}
		}
	})
}

// Who has little patience, and asks first, fails nobody else.
func TestImpatientReaderLeads(t *testing.T) {
	for _, known := range []bool{false, true} {
		for _, tune := range []gateway.Tuning{
			{Deadline: 100 * time.Millisecond}, {FirstByte: 100 * time.Millisecond, Attempts: 1},
		} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, stubborn(), 256*B, func(c *gateway.Config) { c.OriginConcurrency = 1 })
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
				r.origin.Put("b", "busy", origintest.Object{Size: 1})
				if known {
					r.get("k", gateway.FromTo(0, 0))
					r.memory.evict()
				}
				r.origin.Fail(1, nil, origintest.Fault{Latency: 50 * time.Millisecond})
				go func() { r.get("busy", gateway.Range{}) }() // all are there before the first is asked for
				synctest.Wait()
				r.origin.Fail(-1, nil, origintest.Fault{Latency: time.Second})
				for i, a := range r.crowd(10, func(i int) answer {
					req := gateway.Request{Object: object("k")}
					if i == 0 {
						req.Tune = tune
					} else {
						time.Sleep(time.Millisecond)
					}
					return r.read(t.Context(), req)
				}) {
					if (i == 0) != errors.Is(a.err, origin.ErrTimeout) || i > 0 && a.err != nil {
						t.Errorf("known %v, %+v: reader %d: %v", known, tune, i, a.err)
					}
				}
			})
		}
	}
}

// A tuned read asks less than its bucket's policy, never more.
func TestTuning(t *testing.T) {
	ask := func(tune gateway.Tuning, f origintest.Fault) (n int, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, stubborn(), 256*B)
			defer r.close()
			r.origin.Fail(-1, nil, f)
			began := time.Now()
			r.read(t.Context(), gateway.Request{Object: object("k"), Tune: tune})
			n, took = r.origin.Stats().Gets, time.Since(began)
			time.Sleep(2 * time.Minute) // what it began goes on
		})
		return n, took
	}
	failing, stalling := origintest.Fault{Status: 500}, origintest.Fault{Stall: true}
	for attempts, want := range map[int]int{0: 3, 1: 1, 2: 2, 50: 3} {
		if n, _ := ask(gateway.Tuning{Attempts: attempts}, failing); n != want {
			t.Errorf("attempts=%d: %d requests", attempts, n)
		}
	}
	for firstByte, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 5 * time.Second} {
		if _, d := ask(gateway.Tuning{Attempts: 1, FirstByte: firstByte}, stalling); d != want {
			t.Errorf("first_byte=%v: %v", firstByte, d)
		}
		if _, d := ask(gateway.Tuning{Attempts: 1, Attempt: firstByte}, stalling); d != want {
			t.Errorf("attempt=%v: %v", firstByte, d)
		}
		if _, d := ask(gateway.Tuning{Attempts: 1, Deadline: firstByte}, stalling); d != want {
			t.Errorf("deadline=%v: %v", firstByte, d)
		}
	}
	if _, d := ask(gateway.Tuning{Backoff: time.Nanosecond, BackoffMax: 1}, failing); d < 75*time.Millisecond {
		t.Errorf("with less of a pause than the policy has: %v", d)
	}
	if _, d := ask(gateway.Tuning{Backoff: 4 * time.Second, BackoffMax: 4 * time.Second}, failing); d < 4*time.Second {
		t.Errorf("with longer pauses: %v", d)
	}
}

// Nobody waits for it any more: what failed is not tried again.
func TestNoRetryForNobody(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, stubborn(), 256*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
			if known {
				r.get("k", gateway.FromTo(0, 0))
				r.memory.evict()
			}
			r.origin.ResetLog()
			r.origin.Fail(-1, nil, origintest.Fault{Latency: time.Second, Status: 500})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			r.read(ctx, gateway.Request{Object: object("k")})
			time.Sleep(time.Minute)
			if n := r.origin.Stats().Gets; n != 1 {
				t.Errorf("%q", r.origin.Log())
			}
		})
	}
}

// P3: an expired object's info is refreshed once for all its readers, and not once for each of a flaky origin's failures.
func TestRevalidationWithoutStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, stubborn(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.get("k", gateway.Range{})
		time.Sleep(2 * r.policy.TTL)
		r.origin.ResetLog()
		r.origin.Fail(1, nil, origintest.Fault{Latency: 100 * time.Millisecond, Status: 503})
		r.origin.Fail(-1, nil, origintest.Fault{Latency: 100 * time.Millisecond})
		for _, a := range r.crowd(200, func(int) answer { return r.get("k", gateway.Range{}) }) {
			if a.err != nil || len(a.body) != 4*B {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			}
		}
		log := r.origin.Log()
		if len(log) != 2 || !strings.HasSuffix(log[0], "503") || !strings.HasSuffix(log[1], "304") {
			t.Errorf("%q", log)
		}
	})
}
