package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
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

// B is the block size of these tests: small, so that they can afford the race detector.
const B = 16 * KiB

func smallPolicy() gateway.Policy {
	p := policy()
	p.BlockSize, p.PopulateMax = B, 16*B
	return p
}

// crowd runs n reads at once and returns their answers.
func (r *rig) crowd(n int, read func(i int) answer) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = read(i) })
	}
	wg.Wait()
	return answers
}

// P3: one fetch per block, however many readers; of small objects and an empty one too: P01.
func TestOneFetchPerBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		r := newRig(t, p, 256*B)
		defer r.close()
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			return &origintest.Fault{Latency: 20 * time.Millisecond}
		})
		for _, c := range []struct{ size, gets, heads int64 }{
			{64 * B, 8, 0}, {3 * B, 1, 0}, {1, 1, 0},
			{0, 1, 1}, // which has no range that could be asked for
		} {
			key, before := fmt.Sprint(c.size), r.origin.Stats()
			r.origin.Put("b", key, origintest.Object{Size: c.size})
			for _, a := range r.crowd(64, func(int) answer { return r.get(key, gateway.Range{}) }) {
				if a.err != nil || int64(len(a.body)) != c.size {
					t.Fatalf("read %d bytes of %d: %v", len(a.body), c.size, a.err)
				}
			}
			s := r.origin.Stats()
			if int64(s.Gets-before.Gets) != c.gets || int64(s.Heads-before.Heads) != c.heads || int64(s.Bytes-before.Bytes) != c.size {
				t.Errorf("%d bytes: origin saw %+v, %+v before", c.size, s, before)
			}
		}
	})
}

// Each block counts once, by what it cost: those that a read has had fetched ahead of itself are no hits.
func TestBlocksAreCountedBySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 64 * B})
		count := func() (n [3]float64) {
			for i, source := range []string{"memory", "flight", "origin"} {
				n[i] = r.metric("ashlar_blocks_total", source)
			}
			return n
		}
		r.get("k", gateway.FromTo(0, B-1))
		r.get("k", gateway.Range{})
		if n := count(); n != [3]float64{1, 0, 64} {
			t.Errorf("memory, flight, origin: %v", n)
		}
		r.get("k", gateway.Range{})
		if n := count(); n != [3]float64{65, 0, 64} {
			t.Errorf("memory, flight, origin: %v", n)
		}
	})
}

// P3: overlapping reads of different ranges share what they have in common, and every block is fetched once.
func TestOverlappingReadsShareBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		r := newRig(t, p, 256*B)
		defer r.close()
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			return &origintest.Fault{Latency: 20 * time.Millisecond, Chunk: 1000}
		})
		r.origin.Put("b", "k", origintest.Object{Size: 64*B + 1})
		for _, a := range r.crowd(40, func(i int) answer { return r.get("k", gateway.From(int64(i)*25_000)) }) {
			if a.err != nil {
				t.Fatal(a.err)
			}
		}
		if s := r.origin.Stats(); s.Bytes != 64*B+1 {
			t.Errorf("origin sent %d bytes of an object of %d", s.Bytes, 64*B+1)
		}
	})
}

// P3: the reader for whom a fetch was started leaves, the others are served by it.
func TestLeaderLeaves(t *testing.T) {
	for _, at := range []string{"before the headers", "in the body", "before the headers, known", "in the body, known"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallPolicy(), 256*B)
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 3 * B})
				if strings.HasSuffix(at, "known") { // a flight then, no probe
					r.get("k", gateway.FromTo(0, 0))
					r.memory.evict()
					r.origin.ResetLog()
				}
				f := origintest.Fault{Latency: time.Second}
				if strings.HasPrefix(at, "in the body") {
					f = origintest.Fault{Steps: []origintest.Step{{At: 100, Latency: time.Second}}}
				}
				r.origin.Fail(1, nil, f)
				ctx, cancel := context.WithCancel(t.Context())
				left := make(chan error)
				go func() {
					a := r.read(ctx, gateway.Request{Object: object("k")})
					left <- a.err
				}()
				time.Sleep(50 * time.Millisecond)
				go func() {
					time.Sleep(50 * time.Millisecond)
					cancel()
				}()
				for _, a := range r.crowd(20, func(int) answer { return r.get("k", gateway.Range{}) }) {
					if a.err != nil || len(a.body) != 3*B {
						t.Errorf("read %d bytes: %v", len(a.body), a.err)
					}
				}
				if err := <-left; !errors.Is(err, context.Canceled) {
					t.Errorf("the leader got %v", err)
				}
				if s := r.origin.Stats(); s.Gets != 1 {
					t.Errorf("origin saw %v", r.origin.Log())
				}
			})
		})
	}
}

// P3: when the last reader leaves, what has not been sent is dropped, and what has been is finished.
func TestEverybodyLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B, func(c *gateway.Config) { c.OriginConcurrency = 1 })
		defer r.close()
		r.origin.Put("b", "slow", origintest.Object{Size: 10})
		r.origin.Put("b", "k", origintest.Object{Size: 40 * B})
		r.get("k", gateway.FromTo(0, 9)) // its info is known now
		r.origin.ResetLog()
		r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second})
		read := func(key string, leave time.Duration, rng gateway.Range) {
			ctx, cancel := context.WithTimeout(t.Context(), leave)
			defer cancel()
			if a := r.read(ctx, gateway.Request{Object: object(key), Range: rng}); !errors.Is(a.err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", key, a.err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { read("slow", 100*time.Millisecond, gateway.Range{}) })
		time.Sleep(10 * time.Millisecond)
		for range 3 { // these wait for the only slot: flights, probes and probes by HEAD
			wg.Go(func() { read("k", 200*time.Millisecond, gateway.From(B)) })
			wg.Go(func() { read("unknown", 200*time.Millisecond, gateway.Range{}) })
			wg.Go(func() { read("unknown2", 200*time.Millisecond, gateway.Suffix(1)) })
		}
		wg.Wait()
		time.Sleep(2 * time.Second)
		if log := r.origin.Log(); len(log) != 1 {
			t.Errorf("origin saw %q, want only the slow read", log)
		}
		r.checkIdle()
		r.origin.ResetLog()
		if a := r.get("slow", gateway.Range{}); a.err != nil || r.origin.Stats().Gets != 0 {
			t.Errorf("what had been sent was not kept: %v, %q", a.err, r.origin.Log())
		}
		if a := r.get("k", gateway.From(B)); a.err != nil || len(a.body) != 39*B {
			t.Errorf("a dropped fetch left something behind: %v", a.err)
		}
	})
}

// P3: a panic strands nobody.
func TestPanicStrandsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 3 * B})
		for _, f := range []origintest.Fault{
			{Latency: time.Millisecond, Steps: []origintest.Step{{At: B + 5, Panic: "planted"}}},
			{Before: func() { panic("planted") }},
		} {
			r.memory.evict()
			r.Invalidate(object("k"))
			r.origin.Fail(1, nil, f)
			failed := 0
			for _, a := range r.crowd(10, func(int) answer { return r.get("k", gateway.Range{}) }) {
				if a.err != nil {
					failed++
				} else if len(a.body) != 3*B {
					t.Errorf("%d bytes without an error", len(a.body))
				}
			}
			if failed == 10 {
				t.Errorf("all failed for one panic: %+v", f)
			}
			if a := r.get("k", gateway.Range{}); a.err != nil {
				t.Errorf("after it: %v", a.err)
			}
		}
	})
}

// P8: an error answers one reader. The others ask for themselves, and the next one is served.
func TestErrorsAreNotShared(t *testing.T) {
	for _, status := range []int{301, 403, 404, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallPolicy(), 256*B)
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 10})
				body := []byte("<html>no XML at all</html>")
				r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second, Status: status, Body: body})
				failed := 0
				for _, a := range r.crowd(50, func(int) answer { return r.get("k", gateway.Range{}) }) {
					var e *origin.Error
					switch {
					case a.err == nil:
					case errors.As(a.err, &e) && e.Status == status && bytes.Equal(e.Body, body):
						failed++
					default:
						t.Errorf("an error that is nobody's answer: %v", a.err)
					}
				}
				// Of trouble not even the one hears who asked, if another has been told better by the time that he looks.
				if failed > 1 || failed == 0 && status < 500 {
					t.Errorf("one answer of %d reached %d readers", status, failed)
				}
				if n := r.origin.Stats().Gets; n > 3 {
					t.Errorf("%d GETs: %q", n, r.origin.Log())
				}
			})
		})
	}
}

// P8: a crowd in front of a missing object is not made to queue one by one.
func TestCrowdBeforeMissingObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			return &origintest.Fault{Latency: 20 * time.Millisecond}
		})
		began := time.Now()
		for _, a := range r.crowd(500, func(int) answer { return r.get("nope", gateway.Range{}) }) {
			if !errors.Is(a.err, origin.ErrNotFound) {
				t.Fatal(a.err)
			}
		}
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("500 readers of a missing object took %v at 20 ms each", d)
		}
		if s := r.origin.Stats(); s.MaxConcurrent > 64 {
			t.Errorf("%d requests at once", s.MaxConcurrent)
		}
	})
}

// P8: trouble in a fetch that was joined is tried once more by oneself, and then is an error of ours.
func TestJoinedFetchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 3 * B})
		r.get("k", gateway.FromTo(0, 9))
		r.origin.ResetLog()
		r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second, Status: 503})
		failed := 0
		for _, a := range r.crowd(20, func(int) answer { return r.get("k", gateway.From(B)) }) {
			if a.err != nil {
				failed++
			}
		}
		if failed != 1 || r.origin.Stats().Gets != 2 {
			t.Errorf("%d of 20 failed, %q", failed, r.origin.Log())
		}
		// A sick origin fails everybody, in bounded time, and only one gets its very words.
		r.memory.evict()
		r.origin.Fail(-1, nil, origintest.Fault{Latency: time.Second, Status: 503})
		began, verbatim := time.Now(), 0
		for _, a := range r.crowd(20, func(int) answer { return r.get("k", gateway.From(B)) }) {
			var e *origin.Error
			if errors.As(a.err, &e) {
				verbatim++
			} else if a.err == nil {
				t.Error("served by a sick origin")
			}
		}
		if d := time.Since(began); d > 3*time.Second || verbatim == 0 || verbatim > 3 {
			t.Errorf("took %v, the origin's words reached %d", d, verbatim)
		}
	})
}

// P2: an answer that does not fit the question is an error, and nothing of it stays.
func TestUnusableAnswers(t *testing.T) {
	edit := func(f func(*origin.Response)) origintest.Fault { return origintest.Fault{Edit: f} }
	faults := map[string]origintest.Fault{
		"offset is another":  edit(func(r *origin.Response) { r.Offset++ }),
		"shorter than asked": {Shorten: 1},
		"empty":              edit(func(r *origin.Response) { r.Length = 0 }),
		"longer body":        {Extra: 1},
		"total is another":   edit(func(r *origin.Response) { r.Info.Size++ }),
		"total is smaller":   edit(func(r *origin.Response) { r.Info.Size -= 2 * B }),
		"cut":                {Steps: []origintest.Step{{At: 4 * KiB, Err: io.ErrUnexpectedEOF}}},
		"cut without a sign": {Steps: []origintest.Step{{At: 4 * KiB, Err: io.EOF}}},
		"cut in the 2nd":     {Steps: []origintest.Step{{At: B + 1, Err: io.ErrUnexpectedEOF}}},
		"cut at a block":     {Steps: []origintest.Step{{At: B, Err: io.EOF}}},
		"not modified":       edit(func(r *origin.Response) { r.Body = nil; r.NotModified = true }),
		"range ignored":      {IgnoreRange: true},
		"stalls":             {Stall: true},
		"stalls in the body": {Steps: []origintest.Step{{At: B + 5, Stall: true}}},
		"reset":              {Err: errors.New("connection reset by peer")},
	}
	for name, fault := range faults {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/known=%v", name, known), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, smallPolicy(), 256*B)
					defer r.close()
					tag := r.origin.Put("b", "k", origintest.Object{Size: 3*B + B/2})
					if known {
						r.get("k", gateway.FromTo(0, 9))
					}
					r.origin.Fail(-1, origintest.Gets, fault)
					var got bytes.Buffer
					obj, err := r.Open(t.Context(), gateway.Request{Object: object("k"), Range: gateway.FromTo(B, 3*B-1)})
					if err == nil {
						_, err = obj.WriteTo(&got)
						obj.Close()
					}
					// A consistent lie about the total can't be seen through, and what was cut off at a block may have
					// been asked for again, rightly.
					if err == nil && name != "cut at a block" && name != "cut in the 2nd" && name != "total is another" {
						t.Error("no error")
					}
					if err := origintest.Check(tag, B, got.Bytes()); err != nil {
						t.Errorf("wrong bytes: %v", err)
					}
					r.origin.Heal()
					for range 2 {
						a := r.get("k", gateway.FromTo(B, 3*B-1))
						if a.err != nil || len(a.body) != 2*B {
							t.Errorf("after it: %d bytes, %v", len(a.body), a.err)
						}
					}
				})
			})
		}
	}
}

// P2: a 200 to a ranged request counts from offset 0.
func TestRangeIgnoredFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 3*B + 5})
		r.origin.Fail(-1, nil, origintest.Fault{IgnoreRange: true})
		for range 2 {
			if a := r.get("k", gateway.Range{}); a.err != nil || len(a.body) != 3*B+5 {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			}
		}
	})
}

// P1: overwritten in mid-read. What is there of the pinned version is served, then the read is cut.
func TestOverwrittenInMidRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.FetchWindow, p.ReadWindow = 2, 2
		r := newRig(t, p, 256*B)
		defer r.close()
		first := r.origin.Put("b", "k", origintest.Object{Size: 6 * B})
		obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		second := r.origin.Put("b", "k", origintest.Object{Size: 6 * B})
		var got bytes.Buffer
		_, err = obj.WriteTo(&got)
		obj.Close()
		if !errors.Is(err, gateway.ErrInterrupted) || got.Len() != 2*B {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
		if err := origintest.Check(first, 0, got.Bytes()); err != nil {
			t.Error(err)
		}
		if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.ETag != second {
			t.Errorf("the next read: %v", a.err)
		}

		// All blocks of the pinned version are there: the read is whole.
		obj, err = r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		r.origin.Put("b", "k", origintest.Object{Size: 6 * B})
		r.Invalidate(object("k"))
		got.Reset()
		if _, err = obj.WriteTo(&got); err != nil || origintest.Check(second, 0, got.Bytes()) != nil {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
		obj.Close()
	})
}

// P1: an origin that ignores If-Match is seen through.
func TestIgnoredIfMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Fail(-1, nil, origintest.Fault{IgnoreIfMatch: true})
		r.origin.Put("b", "k", origintest.Object{Size: 20 * B})
		r.get("k", gateway.FromTo(0, 9))
		for _, size := range []int64{20 * B, 17 * B, 2 * B} {
			second := r.origin.Put("b", "k", origintest.Object{Size: size})
			r.memory.evict()
			a := r.get("k", gateway.From(B))
			if a.err != nil || a.obj.Info.ETag != second || int64(len(a.body)) != size-B {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			}
		}
	})
}

// P1: changing at every look is an error, not a loop.
func TestChangesAtEveryLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		put := func() { r.origin.Put("b", "k", origintest.Object{Size: 4 * B}) }
		put()
		r.get("k", gateway.FromTo(0, 9))
		req := gateway.Request{Object: object("k"), Range: gateway.Suffix(B)}
		req.Check = func(i *origin.Info) (gateway.Range, error) {
			put()
			return req.Range, nil
		}
		a := r.read(t.Context(), req)
		r.verify(a)
		// Not the origin's 412: the client has set no condition.
		if !errors.Is(a.err, gateway.ErrUnstable) || errors.As(a.err, new(*origin.Error)) {
			t.Error(a.err)
		}
	})
}

// P4: readers who do not read hold at most a quarter of the memory, and the others go on.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			B     = 256 * KiB // above what a response copies at a time
			limit = 32 * B
		)
		p := policy()
		p.BlockSize = B
		r := newRig(t, p, limit)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 1024 * B})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				off := int64(i) * 3 * B
				a, err := r.Open(ctx, gateway.Request{Object: object("k"), Range: gateway.FromTo(off, off+2*B)})
				if err != nil {
					t.Error(err)
					return
				}
				defer a.Close()
				w := &slowWriter{ctx: ctx, wait: 4 * time.Second}
				n, err := a.WriteTo(w)
				if cerr := origintest.Check(a.Info.ETag, off, w.got.Bytes()); cerr != nil || err == nil && n != 2*B+1 {
					t.Errorf("%d bytes, %v, %v", n, err, cerr)
				}
			})
		}
		time.Sleep(10 * time.Second)
		pinned := r.metric("ashlar_memory_pinned_bytes", "")
		if pinned > limit/4 || pinned < limit/8 {
			t.Errorf("%v bytes pinned of %v", pinned, limit/4)
		}
		for i := range 20 { // a reader beside them, cold and warm
			began := time.Now()
			if a := r.get("k", gateway.FromTo(int64(700+i/2)*B, int64(701+i/2)*B-1)); a.err != nil || len(a.body) != B {
				t.Errorf("beside slow readers: %d bytes, %v", len(a.body), a.err)
			}
			if d := time.Since(began); d > time.Second {
				t.Errorf("beside slow readers: waited %v", d)
			}
		}
		wg.Wait()
		if r.memory.most() > limit {
			t.Errorf("%d bytes of slots, limit %d", r.memory.most(), limit)
		}
		r.checkIdle()
	})
}

// P4: readers who never read at all, and a memory of a few blocks.
func TestStuckReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const B = 128 * KiB // above what a response copies at a time
		p := policy()
		p.BlockSize = B
		r := newRig(t, p, 8*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 1024 * B})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				a := gateway.Request{Object: object("k"), Range: gateway.From(int64(i) * B)}
				obj, err := r.Open(ctx, a)
				if err != nil {
					t.Error(err)
					return
				}
				defer obj.Close()
				_, _ = obj.WriteTo(&slowWriter{ctx: ctx, wait: 24 * time.Hour})
			})
		}
		time.Sleep(time.Minute)
		if a := r.get("k", gateway.FromTo(900*B, 903*B)); a.err != nil || len(a.body) != 3*B+1 {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		cancel()
		wg.Wait()
		r.checkIdle()
	})
}

// slowWriter takes this long for each write.
type slowWriter struct {
	ctx  context.Context
	wait time.Duration
	got  bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	select {
	case <-time.After(w.wait):
		return w.got.Write(p)
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
}

// P6: a read under way during a write is not remembered, and a read that begins after it sees what was written.
func TestWriteDuringProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		first := r.origin.Put("b", "k", origintest.Object{Size: 2 * B})
		for _, f := range []origintest.Fault{
			{Steps: []origintest.Step{{At: 0, Latency: 2 * time.Second}}},              // headers here, body late
			{Edit: func(*origin.Response) { time.Sleep(2 * time.Second) }},             // looked up, headers late
			{Edit: func(*origin.Response) { time.Sleep(2 * time.Second) }, Chunk: KiB}, // and slow
		} {
			r.Invalidate(object("k"))
			r.memory.evict()
			r.origin.Fail(1, nil, f)
			early := make(chan answer)
			go func() { early <- r.get("k", gateway.Range{}) }()
			time.Sleep(time.Second)
			second := r.origin.Put("b", "k", origintest.Object{Size: 3 * B})
			r.Invalidate(object("k"))
			if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.ETag != second {
				t.Errorf("right after the write: %v", describe(a))
			}
			if a := <-early; a.err != nil || a.obj.Info.ETag != first {
				t.Errorf("begun before it: %v", describe(a))
			}
			if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.ETag != second {
				t.Errorf("later: %v", describe(a))
			}
			first = second
		}
		// Deleted.
		r.origin.Delete("b", "k")
		r.Invalidate(object("k"))
		if a := r.get("k", gateway.Range{}); !errors.Is(a.err, origin.ErrNotFound) {
			t.Error(describe(a))
		}
	})
}

// P7: age counts from when the origin was asked, and adds what the answer had spent in caches; a confirmation from the
// future is stale.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 10})
		r.origin.Fail(1, nil, origintest.Fault{Latency: 1500 * time.Millisecond, Age: 50 * time.Second})
		if a := r.get("k", gateway.Range{}); a.obj.Age != 52*time.Second {
			t.Errorf("age %v, want 51.5 s rounded up", a.obj.Age)
		}
		time.Sleep(8 * time.Second)
		if a := r.get("k", gateway.Range{}); a.obj.Age != 60*time.Second || r.origin.Stats().Gets != 1 {
			t.Errorf("age %v after %v", a.obj.Age, r.origin.Log())
		}
		time.Sleep(time.Second)
		if a := r.get("k", gateway.Range{}); a.obj.Age != 0 || r.origin.Stats().Gets != 2 {
			t.Errorf("age %v after %v", a.obj.Age, r.origin.Log())
		}
		r.Invalidate(object("k"))
		r.origin.Fail(1, nil, origintest.Fault{Age: -time.Hour})
		r.get("k", gateway.Range{})
		r.origin.ResetLog()
		if a := r.get("k", gateway.Range{}); a.obj.Age != 0 || r.origin.Stats().Gets != 1 {
			t.Errorf("believed a confirmation from the future: %v", r.origin.Log())
		}
	})
}

// Volatile headers and checksums ride on the info; a later answer without checksums keeps those that are known.
func TestChecksumsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		sum := []origin.Header{{Name: "X-Amz-Checksum-Crc32", Value: "AAAAAA=="}}
		r.origin.Put("b", "k", origintest.Object{Size: 20 * B, Checksums: sum})
		if a := r.get("k", gateway.Range{}); a.obj.Info.ChecksumsKnown {
			t.Error("a part told checksums of the whole")
		}
		head := gateway.Request{Object: object("k"), InfoOnly: true, WantChecksums: true}
		r.origin.ResetLog()
		time.Sleep(time.Second)
		for range 2 {
			if a := r.read(t.Context(), head); len(a.obj.Info.Checksums) != 1 {
				t.Errorf("%v", describe(a))
			}
		}
		if log := strings.Join(r.origin.Log(), ", "); log != "HEAD b/k" {
			t.Error(log)
		}
		r.memory.evict()
		time.Sleep(2 * time.Minute)
		if a := r.get("k", gateway.Range{}); len(a.obj.Info.Checksums) != 0 {
			t.Log("the probe's own info has none")
		}
		if a := r.get("k", gateway.Range{}); len(a.obj.Info.Checksums) != 1 {
			t.Error("forgot the checksums of an unchanged version")
		}
	})
}

// The info cache is bounded in bytes.
func TestInfoIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 256 * KiB
		r := newRig(t, smallPolicy(), 64*B, func(c *gateway.Config) { c.InfoMemory = limit })
		defer r.close()
		meta := []origin.Header{{Name: "X-Amz-Meta-Long", Value: strings.Repeat("x", 2000)}}
		for i := range 2000 {
			key := fmt.Sprintf("k%d", i)
			r.origin.Put("b", key, origintest.Object{Size: 10, Headers: meta})
			r.get(key, gateway.Range{})
			r.get("k0", gateway.Range{}) // hot: stays
		}
		if n := r.metric("ashlar_info_bytes", ""); n > limit || n < limit/2 {
			t.Errorf("%v bytes of info, limit %d", n, limit)
		}
		if n := r.origin.Stats().Gets; n != 2000 {
			t.Errorf("%d GETs, want 2000: the hot object was forgotten", n)
		}
	})
}

// P12: Close ends what is under way.
func TestCloseEndsFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		r.origin.Put("b", "k", origintest.Object{Size: 10})
		r.origin.Fail(-1, nil, origintest.Fault{Stall: true})
		done := make(chan error)
		go func() {
			_, err := r.Open(context.Background(), gateway.Request{Object: object("k")})
			done <- err
		}()
		time.Sleep(time.Second)
		r.Gateway.Close()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Versions of one key are objects of their own, as are spellings with a bare plus, whose info is never taken on trust.
func TestNamesOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		one := r.origin.Put("b", "a+b", origintest.Object{Size: 10, VersionID: "1"})
		two := r.origin.Put("b", "a+b", origintest.Object{Size: 20, VersionID: "2"})
		read := func(o origin.Object, want string, gets int) {
			t.Helper()
			r.origin.ResetLog()
			a := r.read(t.Context(), gateway.Request{Object: o})
			r.verify(a)
			if a.err != nil || a.obj.Info.ETag != want || r.origin.Stats().Gets != gets {
				t.Errorf("%+v: %v, %v", o, describe(a), r.origin.Log())
			}
		}
		plain := object("a+b")
		v1 := origin.Object{Bucket: "b", Key: "a+b", VersionID: "1"}
		raw := origin.Object{Bucket: "b", Key: "a+b", Raw: "a+b"}
		for _, gets := range []int{1, 0} {
			read(plain, two, gets)
			read(v1, one, gets)
		}
		read(raw, two, 1)
		time.Sleep(time.Second)
		read(raw, two, 1) // one 304
		three := r.origin.Put("b", "a+b", origintest.Object{Size: 30, VersionID: "3"})
		r.Invalidate(plain)
		read(plain, three, 1)
		read(v1, one, 1) // known no more: it might have been deleted
		read(raw, three, 1)
	})
}

var _ blockstore.Memory = (*strictMemory)(nil)

// P3: of two readers who wait for a fetch that has not been sent, one leaves. The other is served, by that fetch.
func TestOneOfTwoLeavesBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B, func(c *gateway.Config) { c.OriginConcurrency = 1 })
		defer r.close()
		r.origin.Put("b", "slow", origintest.Object{Size: 10})
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		r.get("k", gateway.FromTo(0, 9))
		r.origin.ResetLog()
		r.origin.Fail(1, nil, origintest.Fault{Latency: time.Second})
		var wg sync.WaitGroup
		wg.Go(func() { r.get("slow", gateway.Range{}) })
		time.Sleep(10 * time.Millisecond)
		for _, leaves := range []bool{true, false} {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if leaves {
					time.AfterFunc(100*time.Millisecond, cancel)
				}
				a := r.read(ctx, gateway.Request{Object: object("k"), Range: gateway.From(B)})
				if leaves != (a.err != nil) {
					t.Errorf("leaves=%v: %v", leaves, a.err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		if n := r.origin.Stats().Gets; n != 2 {
			t.Errorf("%q", r.origin.Log())
		}
	})
}

// P4: a reader gives up in the very moment in which its block is published: the reference made for it goes back.
func TestLeavingAsTheBlockArrives(t *testing.T) {
	for range 50 { // which of two ready channels select takes is chance
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallPolicy(), 256*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 2 * B})
			r.get("k", gateway.FromTo(0, 9))
			ctx, cancel := context.WithCancel(t.Context())
			r.origin.Fail(1, nil, origintest.Fault{Steps: []origintest.Step{{At: 10, Latency: time.Second, Call: cancel}}})
			r.read(ctx, gateway.Request{Object: object("k"), Range: gateway.From(B)})
		})
	}
}

// P4: nothing that a read allocates grows with the object.
func TestAllocationsDoNotGrowWithTheObject(t *testing.T) {
	read := func(size int64) (bytes uint64) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallPolicy(), 256*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: size})
			ctx, cancel := context.WithCancel(t.Context())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			obj, err := r.Open(ctx, gateway.Request{Object: object("k")})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			_, _ = obj.WriteTo(writerFunc(func(p []byte) (int, error) {
				if n++; n == 20 {
					cancel()
					return 0, context.Canceled
				}
				return len(p), nil
			}))
			obj.Close()
			runtime.ReadMemStats(&after)
			bytes = after.TotalAlloc - before.TotalAlloc
		})
		return bytes
	}
	small, huge := read(64*B), read(5<<40)
	if huge > 2*small {
		t.Errorf("the first 20 blocks of 5 TiB took %d bytes, of 1 MiB %d", huge, small)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// P3: a client that gives up and comes back joins the probe it left.
func TestRetryingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 10})
		r.origin.Fail(-1, nil, origintest.Fault{Latency: 4 * time.Second})
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			r.read(ctx, gateway.Request{Object: object("k")})
			cancel()
		}
		if n := r.origin.Stats().Gets; n != 1 {
			t.Errorf("%d GETs", n)
		}
		time.Sleep(5 * time.Second)
		if a := r.get("k", gateway.Range{}); a.err != nil || r.origin.Stats().Gets != 1 {
			t.Errorf("%v after %q", a.err, r.origin.Log())
		}
	})
}

// P7: headers that change without a new ETag are not confirmed by a 304.
func TestVolatileHeadersAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		put := func(v string) {
			r.origin.Put("b", "k", origintest.Object{Size: 10, ETag: `"e"`, LastModified: time.Unix(1e9, 0),
				Volatile: []origin.Header{{Name: "X-Amz-Restore", Value: v}}})
		}
		put("old")
		r.get("k", gateway.Range{})
		put("new")
		time.Sleep(2 * time.Minute)
		if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.Volatile[0].Value != "new" {
			t.Errorf("%v", describe(a))
		}
	})
}

// A server may answer 200 to a range of an empty object (RFC 9110 section 14.2).
func TestEmptyObjectByIgnoredRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{})
		r.origin.Fail(-1, nil, origintest.Fault{IgnoreRange: true})
		if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Length != 0 {
			t.Error(describe(a))
		}
	})
}

// P6: a write spelled with a bare plus may have been one to the name with a space.
func TestWriteSpelledWithPlus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "a b", origintest.Object{Size: 10})
		r.get("a b", gateway.Range{})
		second := r.origin.Put("b", "a b", origintest.Object{Size: 10})
		r.Invalidate(origin.Object{Bucket: "b", Key: "a+b", Raw: "a+b"})
		if a := r.get("a b", gateway.Range{}); a.err != nil || a.obj.Info.ETag != second {
			t.Error(describe(a))
		}
	})
}

// Uploads that send nothing take nothing from readers.
func TestIdleUploadsLeaveReadersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 64 * B})
		for i := range 8 {
			p := r.Populate(object(fmt.Sprint("up", i)), 16*B)
			defer p.Abort()
		}
		r.get("k", gateway.Range{})
		if n := r.origin.Stats().Gets; n != 8 {
			t.Errorf("%d GETs", n)
		}
	})
}
