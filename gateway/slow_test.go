package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// Slow clients: what they cost the origin, and the others.

// copying is a rig whose responses copy: sixteen readers hold the quarter that can be pinned. Blocks are of 4 pieces.
// stop lets those readers go.
func copying(t *testing.T) (r *rig, stop func()) {
	p := policy()
	p.BlockSize = 4 * piece
	r = newRig(t, p, 64*p.BlockSize)
	r.origin.Put("b", "stuck", origintest.Object{Size: 16 * p.BlockSize})
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	for i := range int64(16) {
		go func() {
			rng := gateway.FromTo(i*p.BlockSize, (i+1)*p.BlockSize-1)
			obj, err := r.Open(ctx, gateway.Request{Object: object("stuck"), Range: rng})
			if err != nil {
				t.Error(err)
				return
			}
			defer obj.Close()
			_, _ = obj.WriteTo(writerFunc(func([]byte) (int, error) {
				stuck <- struct{}{}
				<-ctx.Done()
				return 0, ctx.Err()
			}))
		}()
		<-stuck
	}
	return r, func() {
		cancel()
		r.close()
	}
}

// piece is what a response copies at a time.
const piece = 64 * KiB

// copyOut reads an object whose block is gone when n pieces of it have been written, and calls then.
func (r *rig) copyOut(rng gateway.Range, n int, then func()) (a answer, pieces int) {
	obj, err := r.Open(context.Background(), gateway.Request{Object: object("k"), Range: rng})
	if err != nil {
		return answer{err: err}, 0
	}
	defer obj.Close()
	var got bytes.Buffer
	_, err = obj.WriteTo(writerFunc(func(p []byte) (int, error) {
		if pieces++; pieces == n {
			synctest.Wait()
			r.memory.evict()
			then()
		}
		return got.Write(p)
	}))
	a = answer{obj, got.Bytes(), err}
	r.verify(a)
	return a, pieces
}

// A response that copies goes back to its block for each piece. When the block is gone meanwhile, no more than the rest
// of it is fetched, by one pinned GET, and the response goes on by blocks.
func TestCopyingReaderFetchesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := copying(t)
		defer stop()
		const B = 4 * piece
		tag := r.origin.Put("b", "k", origintest.Object{Size: 64 * B})
		r.origin.ResetLog()
		a, pieces := r.copyOut(gateway.FromTo(32*B, 40*B-1), 6, func() {})
		if a.err != nil || len(a.body) != 8*B {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		if n := r.origin.Stats().Bytes; n != 8*B+2*piece || pieces != 32 {
			t.Errorf("%d pieces fetched and %d written, want 8 blocks and 2 pieces again, in 32 pieces", n/piece, pieces)
		}
		want := fmt.Sprintf("GET b/k %d-%d if-match=%s", 33*B+2*piece, 34*B-1, tag)
		if n := r.metric("ashlar_block_rests_total", ""); n != 1 || r.origin.Log()[1] != want {
			t.Errorf("%v rests, %q, want %q", n, r.origin.Log(), want)
		}
	})
}

// The end of the range is the end of the rest.
func TestCopyingReaderOfARange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := copying(t)
		defer stop()
		r.origin.Put("b", "k", origintest.Object{Size: 64 * piece})
		r.origin.ResetLog()
		a, _ := r.copyOut(gateway.FromTo(10, 2*piece+9), 1, func() {})
		want := fmt.Sprintf(" %d-%d if-match", piece+10, 2*piece+9)
		if log := r.origin.Log(); a.err != nil || len(a.body) != 2*piece || !strings.Contains(log[1], want) {
			t.Errorf("%d bytes, %v; %q", len(a.body), a.err, log)
		}
	})
}

// P1, P2: the rest of a block is of the pinned version and what was asked for, or the read is cut. What breaks off is
// fetched as a block.
func TestRestOfABlock(t *testing.T) {
	edit := func(f func(*origin.Response)) origintest.Fault { return origintest.Fault{Edit: f} }
	cut := func(err error) origintest.Fault {
		return origintest.Fault{Steps: []origintest.Step{{At: 100, Err: err}}}
	}
	stall := func(at int64) origintest.Fault {
		return origintest.Fault{Steps: []origintest.Step{{At: at, Stall: true}}}
	}
	const B = 4 * piece
	for name, c := range map[string]struct {
		fault   origintest.Fault
		put     int64 // size of an object that takes the place of the first; 0 for none
		err     error // of the read
		written int64
		times   int // that the fault is met; 0 for once
	}{
		"changed":            {put: 3 * B, err: origin.ErrChanged, written: piece},
		"If-Match ignored":   {put: 3 * B, fault: origintest.Fault{IgnoreIfMatch: true}, err: origin.ErrChanged, written: piece},
		"ends earlier":       {put: 10, fault: origintest.Fault{IgnoreIfMatch: true}, err: origin.ErrChanged, written: piece},
		"total is another":   {fault: edit(func(r *origin.Response) { r.Info.Size++ }), err: origin.ErrChanged, written: piece},
		"offset is another":  {fault: edit(func(r *origin.Response) { r.Offset++ }), err: origin.ErrBadAnswer, written: piece},
		"shorter than asked": {fault: origintest.Fault{Shorten: 1}, err: origin.ErrBadAnswer, written: piece},
		"range ignored":      {fault: origintest.Fault{IgnoreRange: true}, err: origin.ErrBadAnswer, written: piece},
		"forbidden":          {fault: origintest.Fault{Status: 403}, err: new(origin.Error), written: piece},
		"busy":               {fault: origintest.Fault{Status: 503}, written: 3 * B},
		"refused":            {fault: origintest.Fault{Err: errors.New("refused")}, written: 3 * B},
		"longer body":        {fault: origintest.Fault{Extra: 1}, written: 3 * B},
		"cut":                {fault: cut(io.ErrUnexpectedEOF), written: 3 * B},
		"cut without a sign": {fault: cut(io.EOF), written: 3 * B},
		"reset":              {fault: cut(errors.New("reset")), written: 3 * B},
		"stalls":             {fault: stall(100), written: 3 * B},
		"keeps stalling":     {fault: stall(100), times: -1, err: origin.ErrTimeout, written: piece + 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, stop := copying(t)
				defer stop()
				r.policy.Fetch.Attempts, r.policy.Fetch.Deadline = 2, time.Minute
				tag := r.origin.Put("b", "k", origintest.Object{Size: 3 * B})
				began := time.Now()
				a, _ := r.copyOut(gateway.Range{}, 1, func() {
					if c.put > 0 {
						tag = r.origin.Put("b", "k", origintest.Object{Size: c.put})
					}
					r.origin.Fail(cmp.Or(c.times, 1), nil, c.fault)
				})
				if d := time.Since(began); d > r.policy.Fetch.Deadline {
					t.Errorf("after %v", d)
				}
				var said *origin.Error
				if c.err == nil && a.err != nil || c.err != nil && !errors.Is(a.err, gateway.ErrInterrupted) ||
					c.err != nil && !errors.Is(a.err, c.err) && !(errors.As(c.err, &said) && errors.As(a.err, &said)) {
					t.Errorf("%v, want %v", a.err, c.err)
				}
				if int64(len(a.body)) != c.written {
					t.Errorf("%d bytes written, want %d", len(a.body), c.written)
				}
				r.origin.Heal()
				if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.ETag != tag {
					t.Errorf("the next read: %v", a.err)
				}
				if n := r.metric("ashlar_object_changed_total", ""); n != 0 {
					t.Error("what was known is still held true")
				}
			})
		})
	}
}

// The deadline that goes on when a rest breaks off is met by the block: what comes later has one of its own.
func TestDeadlineAfterABrokenRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := copying(t)
		defer stop()
		r.policy.Fetch.Attempts, r.policy.Fetch.Deadline = 2, time.Minute
		r.origin.Put("b", "k", origintest.Object{Size: 3 * 4 * piece})
		obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		var got bytes.Buffer
		pieces := 0
		_, err = obj.WriteTo(writerFunc(func(p []byte) (int, error) {
			if pieces++; pieces == 1 || pieces == 6 {
				time.Sleep(2 * time.Minute)
				r.memory.evict()
				f := origintest.Fault{Latency: time.Second}
				if pieces == 1 {
					f.Steps = []origintest.Step{{Err: io.ErrUnexpectedEOF}}
				}
				r.origin.Fail(1, nil, f)
			}
			return got.Write(p)
		}))
		if r.verify(answer{obj, got.Bytes(), err}); err != nil || got.Len() != 3*4*piece {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
		if n := r.metric("ashlar_block_rests_total", ""); n != 2 {
			t.Errorf("%v rests", n)
		}
	})
}

// A tier with as many copying readers as blocks, or more: the origin sends what they were sent twice at most.
func TestCopyingReadersOfATinyTier(t *testing.T) {
	for _, streams := range []int{8, 24} {
		synctest.Test(t, func(t *testing.T) {
			const B, blocks = MiB, 3
			p := policy()
			p.BlockSize = B
			m := newRealMemory(t, 8*B, B)
			r := newRigOver(t, m, p)
			for i := range streams {
				r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: blocks * B})
			}
			r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
				return &origintest.Fault{Latency: 20 * time.Millisecond}
			})
			r.crowd(streams, func(i int) answer {
				a := r.readSlowly(t.Context(), fmt.Sprint(i), MiB)
				if a.err != nil || len(a.body) != blocks*B {
					t.Errorf("%d bytes, %v", len(a.body), a.err)
				}
				return a
			})
			if n := r.origin.Stats().Bytes; n > int64(2*streams*blocks*B) {
				t.Errorf("%d streams: the origin sent %.1f times what was asked", streams, float64(n)/float64(streams*blocks*B))
			}
			r.close()
			m.Close()
		})
	}
}

// readSlowly reads an object at rate bytes a second, until ctx ends, and checks its bytes.
func (r *rig) readSlowly(ctx context.Context, key string, rate int) answer {
	obj, err := r.Open(ctx, gateway.Request{Object: object(key)})
	if err != nil {
		return answer{err: err}
	}
	defer obj.Close()
	var got bytes.Buffer
	_, err = obj.WriteTo(writerFunc(func(p []byte) (int, error) {
		select {
		case <-time.After(time.Duration(len(p)) * time.Second / time.Duration(rate)):
			return got.Write(p)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}))
	a := answer{obj, got.Bytes(), err}
	r.verify(a)
	return a
}

// The deadline bounds the wait for the headers too, where nothing else does.
func TestDeadlineOfAnUncacheableObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.Fetch = gateway.Fetch{Deadline: time.Minute}
		r := newRig(t, p, 64*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B, ETag: `W/"weak"`})
		if a := r.get("k", gateway.Range{}); a.err != nil { // its info is known from now on
			t.Fatal(a.err)
		}
		r.origin.Fail(-1, origintest.Gets, origintest.Fault{Stall: true})
		began := time.Now()
		if a := r.get("k", gateway.Range{}); !errors.Is(a.err, origin.ErrTimeout) || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), a.err)
		}
	})
}

// Slow readers leave the others what they may have fetched ahead, those that stand still as well.
func TestFastStreamsBesideSlowReaders(t *testing.T) {
	gets := func(slow, rate int) (n int) {
		synctest.Test(t, func(t *testing.T) {
			const fast, blocks = 16, 64
			m := newRealMemory(t, 1024*B, B)
			r := newRigOver(t, m, smallPolicy())
			r.slow()
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range slow {
				key := fmt.Sprint("slow", i)
				r.origin.Put("b", key, origintest.Object{Size: 4000 * B})
				wg.Go(func() {
					if a := r.readSlowly(ctx, key, rate); !errors.Is(a.err, context.Canceled) {
						t.Error(a.err)
					}
				})
			}
			time.Sleep(5 * time.Minute)
			for i := range fast {
				r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: blocks * B})
			}
			r.origin.ResetLog()
			r.crowd(fast, func(i int) answer {
				a := r.get(fmt.Sprint(i), gateway.Range{})
				if a.err != nil {
					t.Error(a.err)
				}
				return a
			})
			n = r.origin.Stats().Gets
			cancel()
			wg.Wait()
			r.close()
			m.Close()
		})
		return n
	}
	alone := gets(0, 1)
	for _, rate := range []int{1, B / 8} {
		if n := gets(40, rate); n > alone*3/2 {
			t.Errorf("%d GETs beside 40 readers at %d bytes a second, %d without them", n, rate, alone)
		}
	}
}

// While there is room, a slow reader's blocks are fetched by few requests as well.
func TestSlowReaderWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 1024*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 64 * B})
		a := r.readSlowly(t.Context(), "k", B/8)
		if n := r.origin.Stats().Gets; a.err != nil || n != 8 {
			t.Errorf("%d GETs, %v", n, a.err)
		}
	})
}

// What slow readers have to let go of, and a full tier turns away, is little more than the 15 blocks each that they had
// fetched before they were found slow. From then on they fetch what they write.
func TestSlowReadersInAFullTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, blocks = 40, 48
		m := newRealMemory(t, 1024*B, B)
		r := newRigOver(t, m, smallPolicy())
		r.slow()
		r.origin.Put("b", "old", origintest.Object{Size: 4096 * B})
		for range 2 { // full, of blocks that were used
			r.get("old", gateway.FromTo(0, 1000*B))
		}
		for i := range slow {
			r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: blocks * B})
		}
		r.origin.ResetLog()
		r.crowd(slow, func(i int) answer {
			a := r.readSlowly(t.Context(), fmt.Sprint(i), B/8)
			if a.err != nil || len(a.body) != blocks*B {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			}
			return a
		})
		if n := r.origin.Stats().Bytes / B; n > slow*blocks*3/2 {
			t.Errorf("%d blocks fetched of %d", n, slow*blocks)
		}
		r.close()
		m.Close()
	})
}

// A body that was not written to its end is not passed on with a gap in it.
func TestWriterFailsInABody(t *testing.T) {
	for _, tag := range []string{"", `W/"weak"`} {
		synctest.Test(t, func(t *testing.T) {
			r, stop := copying(t)
			defer stop()
			r.origin.Put("b", "k", origintest.Object{Size: 4 * piece, ETag: tag})
			obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
			if err != nil {
				t.Fatal(err)
			}
			defer obj.Close()
			var got bytes.Buffer
			full, pieces := errors.New("full"), 0
			write := writerFunc(func(p []byte) (int, error) {
				if pieces++; pieces == 1 {
					r.memory.evict()
				}
				if pieces == 2 {
					got.Write(p[:100])
					return 100, full
				}
				return got.Write(p)
			})
			if _, err := obj.WriteTo(write); !errors.Is(err, full) {
				t.Error(err)
			}
			_, err = obj.WriteTo(write)
			if tag == "" && (err != nil || got.Len() != 4*piece) || tag != "" && !errors.Is(err, gateway.ErrInterrupted) {
				t.Errorf("%q: %d bytes, %v", tag, got.Len(), err)
			}
			r.verify(answer{obj, got.Bytes(), nil})
		})
	}
}
