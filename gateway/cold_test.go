package gateway_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// link is an origin that answers after latency, and whose bodies all come through one wire of rate bytes per second.
type link struct {
	origin.Origin
	latency time.Duration
	rate    int64

	mu   sync.Mutex
	free time.Time // when the wire has sent what it was given; guarded by mu
}

func (l *link) Get(ctx context.Context, o origin.Object, opts origin.GetOptions) (*origin.Response, error) {
	time.Sleep(l.latency)
	resp, err := l.Origin.Get(ctx, o, opts)
	if err == nil {
		resp.Body = &linkBody{resp.Body, l}
	}
	return resp, err
}

type linkBody struct {
	io.ReadCloser
	l *link
}

func (b *linkBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 4*KiB)])
	b.l.mu.Lock()
	if now := time.Now(); b.l.free.Before(now) {
		b.l.free = now
	}
	b.l.free = b.l.free.Add(time.Duration(n) * time.Second / time.Duration(b.l.rate))
	free := b.l.free
	b.l.mu.Unlock()
	time.Sleep(time.Until(free))
	return n, err
}

// TestColdRead reads a cold object of 256 blocks, in simulated time, through a wire that takes half a millisecond for
// each, from an origin that takes 20 ms to answer: 148 ms are the least.
func TestColdRead(t *testing.T) {
	const blocks = 256
	for _, c := range []struct {
		name string
		each int64 // blocks of a request
		most time.Duration
		gets int
	}{
		{"whole", blocks, 178 * time.Millisecond, 32},
		{"ranges of a block", 1, 204 * time.Millisecond, 34},
		{"ranges of a group", 8, 310 * time.Millisecond, 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := smallPolicy()
				p.Readahead = 64
				r := newRig(t, p, 1024*B, func(cfg *gateway.Config) {
					cfg.Origin = &link{Origin: cfg.Origin, latency: 20 * time.Millisecond, rate: 2000 * B}
				})
				defer r.close()
				r.origin.Put("b", "k", origintest.Object{Size: blocks * B})
				began := time.Now()
				for off := int64(0); off < blocks; off += c.each {
					rng := gateway.FromTo(off*B, (off+c.each)*B-1)
					if c.each == blocks {
						rng = gateway.Range{}
					}
					obj, err := r.Open(t.Context(), gateway.Request{Object: object("k"), Range: rng})
					if err != nil {
						t.Fatal(err)
					}
					if n, err := obj.WriteTo(io.Discard); err != nil || n != c.each*B {
						t.Fatalf("%d bytes, %v", n, err)
					}
					obj.Close()
				}
				took := time.Since(began)
				gets := r.origin.Stats().Gets
				t.Logf("%v, %d requests", took, gets)
				if took > c.most || gets > c.gets {
					t.Errorf("took %v by %d requests, want at most %v and %d", took, gets, c.most, c.gets)
				}
			})
		})
	}
}

// What one read has had fetched ahead leaves others room for whole fetch groups, and so does what ranges have.
func TestColdReadLeavesRoom(t *testing.T) {
	for name, ranges := range map[string]bool{"a whole object": false, "ranges": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := smallPolicy()
				p.Readahead = 1000
				r := newRig(t, p, 1024*B) // 128 blocks may be fetched ahead
				defer r.close()
				r.origin.Put("b", "first", origintest.Object{Size: 512 * B})
				r.origin.Put("b", "second", origintest.Object{Size: 128 * B})
				var obj *gateway.Object
				for i := range int64(32) {
					var err error
					req := gateway.Request{Object: object("first")}
					if ranges {
						req.Range = gateway.FromTo(i*B, (i+1)*B-1)
					}
					if obj, err = r.Open(t.Context(), req); err != nil {
						t.Fatal(err)
					}
					if !ranges {
						break
					}
					obj.Close()
				}
				defer obj.Close()
				stopped, goOn := make(chan struct{}), make(chan struct{})
				var wg sync.WaitGroup
				if !ranges {
					n := 0
					wg.Go(func() {
						_, _ = obj.WriteTo(writerFunc(func(p []byte) (int, error) {
							if n++; n == 32 {
								close(stopped)
								<-goOn
							}
							return len(p), nil
						}))
					})
					<-stopped
				}
				synctest.Wait()
				if n := r.metric("ashlar_ahead_bytes", ""); n < 64*B || n > 96*B {
					t.Errorf("%v blocks ahead of the first", n/B)
				}
				before := r.origin.Stats().Gets
				if a := r.get("second", gateway.Range{}); a.err != nil {
					t.Error(a.err)
				}
				if n := r.origin.Stats().Gets - before; n > 128/8 {
					t.Errorf("the second took %d requests", n)
				}
				close(goOn)
				wg.Wait()
			})
		})
	}
}

// Eight clients that read an object each by ranges of a block leave each other room for whole fetch groups.
func TestColdScansBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scans, blocks = 8, 128
		p := smallPolicy()
		p.Readahead = 64
		r := newRig(t, p, 1024*B, func(cfg *gateway.Config) {
			cfg.Origin = &link{Origin: cfg.Origin, latency: 20 * time.Millisecond, rate: 2000 * B}
		})
		defer r.close()
		var keys []string
		taken := make(map[uint64]bool)
		for i := 0; len(keys) < scans; i++ {
			key := fmt.Sprint(i)
			place := r.ScanPlace(gateway.Request{Object: object(key)})
			if taken[place] {
				continue // eight have two such once in forty times
			}
			taken[place] = true
			keys = append(keys, key)
			r.origin.Put("b", key, origintest.Object{Size: blocks * B})
		}
		r.crowd(scans, func(i int) (a answer) {
			for off := int64(0); off < blocks*B; off += B {
				if a = r.get(keys[i], gateway.FromTo(off, off+B-1)); a.err != nil {
					t.Error(a.err)
				}
			}
			return a
		})
		if s := r.origin.Stats(); s.Bytes != scans*blocks*B || s.Gets > scans*22 {
			t.Errorf("%d requests for %d blocks of %d", s.Gets, s.Bytes/B, scans*blocks)
		}
	})
}

// A slow reader does not go on to fetch as far ahead as one that keeps up.
func TestSlowReaderStaysNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.Readahead = 64
		r := newRig(t, p, 1024*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 64 * B})
		obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		n := 0
		if _, err := obj.WriteTo(writerFunc(func(p []byte) (int, error) {
			time.Sleep(3 * time.Second)
			if held := r.metric("ashlar_ahead_bytes", ""); held > 16*B {
				t.Errorf("%v blocks ahead of block %d", held/B, n)
			}
			n++
			return len(p), nil
		})); err != nil {
			t.Error(err)
		}
	})
}

// On a link of 16 blocks a second, what is wanted next does not share it with all that may be read ahead.
func TestColdReadThroughASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.Readahead = 64
		r := newRig(t, p, 1024*B, func(cfg *gateway.Config) {
			cfg.Origin = &link{Origin: cfg.Origin, latency: 20 * time.Millisecond, rate: 16 * B}
		})
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 256 * B})
		obj, err := r.Open(t.Context(), gateway.Request{Object: object("k")})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		began, last := time.Now(), time.Now()
		if _, err := obj.WriteTo(writerFunc(func(p []byte) (int, error) {
			if waited := time.Since(last); waited > time.Second {
				t.Errorf("%v without a byte, after %v", waited, time.Since(began))
			}
			last = time.Now()
			return len(p), nil
		})); err != nil {
			t.Error(err)
		}
		t.Log(time.Since(began))
	})
}
