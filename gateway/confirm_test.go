package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// A read with NoCache is answered by what the origin says after it came, and by nothing else: neither info nor a 404
// that is remembered, nor stale info while the origin is in trouble. Its probe goes past the caches behind us.
func TestNoCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.NegativeTTL, p.StaleIfError = time.Minute, time.Hour
		r := newRig(t, p, 256*B)
		defer r.close()
		reads := func(what string) {
			t.Helper()
			time.Sleep(time.Second)
			a := r.read(t.Context(), gateway.Request{Object: object("k"), NoCache: true})
			if !strings.Contains(describe(a), what) {
				t.Errorf("%s, want %s", describe(a), what)
			}
		}
		r.get("k", gateway.Range{})
		r.origin.Put("b", "k", origintest.Object{Size: 10})
		reads("10 bytes") // not the 404
		r.origin.Put("b", "k", origintest.Object{Size: 20})
		r.origin.ResetLog()
		reads("20 bytes")
		if log := strings.Join(r.origin.Log(), "\n"); strings.Count(log, "no-cache") != 1 {
			t.Errorf("asked for by\n%s", log)
		}
		r.origin.Fail(-1, nil, origintest.Fault{Status: 500})
		reads("error: the origin's 500")
		if a := r.get("k", gateway.Range{}); a.err != nil {
			t.Error(a.err)
		}
	})
}

// A read with OnlyIfCached never asks the origin.
func TestOnlyIfCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 4 * B})
		reads := func(rng gateway.Range, held bool) {
			t.Helper()
			r.origin.ResetLog()
			a := r.read(t.Context(), gateway.Request{Object: object("k"), Range: rng, OnlyIfCached: true, Routed: true})
			if held && a.err != nil || !held && !errors.Is(a.err, gateway.ErrNotCached) || len(r.origin.Log()) > 0 {
				t.Errorf("%s, want held %v; asked for by %v", describe(a), held, r.origin.Log())
			}
		}
		begin := gateway.FromTo(0, 2*B-1)
		reads(begin, false)
		r.get("k", begin)
		reads(begin, true)
		reads(gateway.Range{}, false) // other blocks
		time.Sleep(2 * time.Minute)
		reads(begin, false) // stale info
		r.get("k", gateway.Range{})
		reads(gateway.Range{}, true)
		r.memory.evict()
		reads(begin, false)
	})
}

// Where the origin has caches, what they hold is asked for however much of the rest fails.
func TestNoBreakerBeforeCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B, func(c *gateway.Config) { c.CachesBehind = true })
		defer r.close()
		r.origin.Put("b", "held", origintest.Object{Size: 10})
		r.origin.Fail(-1, func(q *origintest.Request) bool { return q.Object.Key != "held" },
			origintest.Fault{Latency: time.Second, Status: 503})
		for i := range 20 {
			if a := r.get(fmt.Sprint(i), gateway.Range{}); a.err == nil || errors.Is(a.err, gateway.ErrDown) {
				t.Errorf("read %d: %v", i, a.err)
			}
		}
		if a := r.get("held", gateway.Range{}); a.err != nil {
			t.Error(a.err)
		}
		if r.metric("ashlar_origin_breaker_open", "") != 0 {
			t.Error("the breaker is said to be open")
		}
	})
}

// Where the origin has caches, info is asked for past them for a ttl after a write, and after that as usual.
func TestCachesBehind(t *testing.T) {
	for _, behind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallPolicy(), 256*B, func(c *gateway.Config) { c.CachesBehind = behind })
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 10})
			asks := func(past bool) {
				t.Helper()
				r.origin.ResetLog()
				a := r.get("k", gateway.Range{})
				log := strings.Join(r.origin.Log(), "\n")
				if a.err != nil || strings.Contains(log, "no-cache") != past || log == "" {
					t.Errorf("caches behind: %v: %s, asked for by\n%s\nwant past them: %v", behind, describe(a), log, past)
				}
			}
			asks(false)
			r.Invalidate(object("k"))
			asks(behind)
			time.Sleep(smallPolicy().TTL - time.Second)
			r.Purge(func(o origin.Object) bool { return o.Key == "k" }, false)
			asks(behind)
			time.Sleep(smallPolicy().TTL + time.Second)
			asks(false)
		})
	}
}

// A body that broke off at an overwritten or deleted object is the only one: what answered the last probe may go on to
// say what it remembers, so the next one goes past it.
func TestCachesBehindAfterBrokenBody(t *testing.T) {
	for _, behind := range []bool{false, true} {
		for _, deleted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallPolicy(), 256*B, func(c *gateway.Config) { c.CachesBehind = behind })
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
				r.get("k", gateway.FromTo(0, B-1))
				if deleted {
					r.origin.Delete("b", "k")
				} else {
					r.origin.Put("b", "k", origintest.Object{Size: 8 * B})
				}
				if a := r.get("k", gateway.Range{}); !errors.Is(a.err, gateway.ErrInterrupted) {
					t.Fatalf("%s, want a body that breaks off", describe(a))
				}
				r.origin.ResetLog()
				a := r.get("k", gateway.Range{})
				if log := strings.Join(r.origin.Log(), "\n"); strings.Contains(log, "no-cache") != behind {
					t.Errorf("caches behind: %v, deleted: %v: %s, asked for by\n%s", behind, deleted, describe(a), log)
				}
			})
		}
	}
}

// What a cache behind this one could not confirm is told as such, and never taken for fresh, however young it says it is: the
// next read asks again.
func TestStaleBehind(t *testing.T) {
	for _, immutable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := smallPolicy()
			p.Immutable = immutable
			r := newRig(t, p, 256*B, func(c *gateway.Config) { c.CachesBehind = true })
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 2 * B})
			r.origin.Fail(2, nil, origintest.Fault{Edit: func(resp *origin.Response) { resp.Info.Stale = true }})
			for i, stale := range []bool{true, true, false, false} {
				if a := r.get("k", gateway.FromTo(0, 9)); a.err != nil || (a.obj.Status == gateway.Stale) != stale {
					t.Errorf("immutable %v, read %d: %s", immutable, i, describe(a))
				}
				time.Sleep(time.Second)
			}
			if n := r.origin.Stats(); n.Gets+n.Heads != 3 {
				t.Errorf("immutable %v: asked %d times", immutable, n.Gets+n.Heads)
			}
		})
	}
}
