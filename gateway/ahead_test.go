package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// P3: a full tier turns blocks away that nobody has read yet, but a read keeps those that it has had fetched ahead.
func TestColdStreamsThroughAFullTier(t *testing.T) {
	for _, streams := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(streams), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const blocks = 200
				m := newRealMemory(t, 512*B, B)
				r := newRigOver(t, m, smallPolicy())
				r.origin.Put("b", "old", origintest.Object{Size: 2048 * B})
				for range 2 { // full, of blocks that were used
					r.get("old", gateway.FromTo(0, 500*B))
				}
				for i := range streams {
					r.origin.Put("b", fmt.Sprint(i), origintest.Object{Size: blocks * B})
				}
				r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
					return &origintest.Fault{Latency: 20 * time.Millisecond}
				})
				before := r.origin.Stats()
				r.crowd(streams, func(i int) answer {
					obj, err := r.Open(t.Context(), gateway.Request{Object: object(fmt.Sprint(i))})
					if err != nil {
						t.Error(err)
						return answer{err: err}
					}
					defer obj.Close()
					var got bytes.Buffer
					_, err = obj.WriteTo(writerFunc(func(p []byte) (int, error) { // at paces of their own
						time.Sleep(time.Duration(1+i%5) * time.Millisecond)
						return got.Write(p)
					}))
					a := answer{obj, got.Bytes(), err}
					if r.verify(a); err != nil || len(a.body) != blocks*B {
						t.Errorf("%d bytes, %v", len(a.body), err)
					}
					return a
				})
				after := r.origin.Stats()
				if n := after.Bytes - before.Bytes; n != int64(streams)*blocks*B {
					t.Errorf("%d blocks fetched, want %d", n/B, streams*blocks)
				}
				if n, most := after.Gets-before.Gets, streams*blocks/2; n > most {
					t.Errorf("%d GETs, want at most %d", n, most)
				}
				r.close()
				m.Close()
			})
		})
	}
}

// Small blocks are never pinned: each may hold up a run of pages that holds others too.
func TestSmallBlocksAreNotPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(), 64*MiB)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 1000})
		obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		_, err = obj.WriteTo(writerFunc(func(p []byte) (int, error) {
			if n := r.metric("ashlar_memory_pinned_bytes", ""); n != 0 {
				t.Errorf("%v bytes pinned while 1000 are written", n)
			}
			return len(p), nil
		}))
		if err != nil {
			t.Error(err)
		}
	})
}

// A tier before this one may answer with info that is older than the ttl. A crowd takes it, and does not ask once each.
func TestCrowdBeforeAnAgedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.origin.Fail(-1, nil, origintest.Fault{Latency: time.Second, Age: time.Hour})
		began := time.Now()
		for _, a := range r.crowd(50, func(i int) answer {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond) // some come before the first is sent, others after
			return r.get("k", gateway.Range{})
		}) {
			if a.err != nil || len(a.body) != B {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			}
		}
		if n, d := r.origin.Stats().Gets, time.Since(began); n > 3 || d > 3*time.Second {
			t.Errorf("%d GETs, the last reader was served after %v", n, d)
		}
	})
}

// An origin that never answers makes readers fail within its bound, not one after the other.
func TestCrowdBeforeAStallingOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.origin.Fail(-1, nil, origintest.Fault{Stall: true})
		r.crowd(50, func(i int) answer {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			began := time.Now()
			a := r.get("k", gateway.Range{})
			if d := time.Since(began); !errors.Is(a.err, origin.ErrTimeout) || d > 2*r.policy.Fetch.FirstByte {
				t.Errorf("after %v: %v", d, a.err)
			}
			return a
		})
	})
}

// Stale info whose first block is gone: the bytes that are there are not fetched again.
func TestStaleWithTheFirstBlockGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStrictMemory(256 * B)
		r := newRigOver(t, m, smallPolicy())
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
		r.get("k", gateway.Range{})
		time.Sleep(2 * r.policy.TTL)
		m.evictOldest(2)
		before := r.origin.Stats()
		if a := r.get("k", gateway.Range{}); a.err != nil || len(a.body) != 8*B {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		after := r.origin.Stats()
		if n, bytes := after.Gets-before.Gets, after.Bytes-before.Bytes; n != 1 || bytes != 2*B {
			t.Errorf("%d GETs of %d blocks, want one of the 2 that were gone", n, bytes/B)
		}
	})
}

// Stale info whose first block is on its way already: a 304 is enough.
func TestStaleWithTheFirstBlockPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
		r.get("k", gateway.FromTo(0, 0))
		r.memory.evict()
		time.Sleep(r.policy.TTL - time.Second)
		r.origin.Fail(1, nil, origintest.Fault{Latency: 3 * time.Second})
		for i, a := range r.crowd(2, func(i int) answer {
			time.Sleep(time.Duration(i) * 2 * time.Second) // fresh for the first, stale for the second
			return r.get("k", gateway.Range{})
		}) {
			if a.err != nil || len(a.body) != 8*B {
				t.Errorf("reader %d: %d bytes, %v", i, len(a.body), a.err)
			}
		}
		if s := r.origin.Stats(); s.Bytes != 9*B {
			t.Errorf("%d blocks fetched, want 1, then 8: %q", s.Bytes/B, r.origin.Log())
		}
	})
}

// Info that was remembered under another block size says nothing of the blocks of this one.
func TestBlockSizeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 10*B + 1})
		for _, size := range []int64{B, 2 * B, B / 2, B} {
			r.policy.BlockSize = size
			a := r.get("k", gateway.Range{})
			if a.err != nil || len(a.body) != 10*B+1 {
				t.Errorf("blocks of %d: %d bytes, %v", size, len(a.body), a.err)
			}
		}
		// And while a read is under way.
		obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		r.policy.BlockSize = 2 * B
		var got bytes.Buffer
		if _, err := obj.WriteTo(&got); err != nil || origintest.Check(obj.Info.ETag, 0, got.Bytes()) != nil {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
	})
}

// Info too large to be remembered takes what was remembered before with it.
func TestInfoThatOutgrowsTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B, func(c *gateway.Config) { c.InfoMemory = 16 * 2 * KiB })
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B, ETag: `"one"`})
		r.get("k", gateway.Range{})
		r.origin.Put("b", "k", origintest.Object{Size: B, ETag: `"two"`,
			Headers: []origin.Header{{Name: "X-Amz-Meta-Long", Value: string(bytes.Repeat([]byte("x"), 3*KiB))}}})
		time.Sleep(2 * r.policy.TTL)
		for range 3 {
			if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.ETag != `"two"` {
				t.Errorf("%+v, %v", a.obj, a.err)
			}
			r.policy.TTL += 10 * time.Minute // what was remembered first would be fresh by this
		}
	})
}

// A reader who leaves while its probe is out leaves no block behind, whenever that is.
func TestLeaderLeavesAtEveryMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		for i := range 40 {
			key := fmt.Sprint(i)
			r.origin.Put("b", key, origintest.Object{Size: 8 * B})
			r.origin.Fail(1, nil, origintest.Fault{Latency: 10 * time.Millisecond, Steps: []origintest.Step{
				{At: B, Latency: 10 * time.Millisecond}, {At: 3 * B, Latency: 10 * time.Millisecond},
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			if obj, err := r.Open(ctx, gateway.Request{Object: object(key)}); err == nil {
				_, _ = obj.WriteTo(io.Discard)
				obj.Close()
			}
			cancel()
			time.Sleep(time.Second)
			r.checkIdle()
			r.origin.Heal()
		}
	})
}
