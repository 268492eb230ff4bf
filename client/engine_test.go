package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// TestEngineOverCluster reads through a tier of its own in front of a cluster whose nodes come, fail and go, while
// objects are overwritten: all bytes of a read are of one version, and with a fallback no read fails that could be
// answered.
func TestEngineOverCluster(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) {
		l.Fallback, l.BlockSize = f.origin, 2*blockSize
		l.DownFor, l.DownForMax = time.Millisecond, 10*time.Millisecond
	})
	mem, err := memory.New(memory.Config{Limit: 8 << 20, MaxBlock: blockSize})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	policy := &gateway.Policy{BlockSize: blockSize, FetchWindow: 4, ReadWindow: 4, TTL: time.Millisecond}
	engine, err := gateway.New(gateway.Config{Origin: c.Origin(""), Memory: mem,
		Policy: func(string) *gateway.Policy { return policy }})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()

	const objects, size = 6, 3*blockSize + 77
	name := func(i int) string { return "object/" + string(rune('a'+i)) }
	for i := range objects {
		f.Put("bkt", name(i), origintest.Object{Size: size})
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() { // one node after the other is sick for a while
		rnd := rand.New(rand.NewPCG(seed, 0))
		for i := 0; ; i++ {
			n := f.nodes[i%3]
			switch rnd.IntN(3) {
			case 0:
				n.does(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
			case 1:
				n.does(fails(500))
			case 2:
				n.does(cuts(rnd.IntN(2*blockSize), 0))
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rnd.IntN(10)) * time.Millisecond):
			}
			n.does(nil)
		}
	})
	var readers sync.WaitGroup
	for g := range uint64(4) {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 1+g))
			for range 40 {
				key := name(rnd.IntN(objects))
				if g == 0 && rnd.IntN(10) == 0 {
					f.Put("bkt", key, origintest.Object{Size: size})
				}
				var b bytes.Buffer
				o, err := engine.Open(t.Context(), gateway.Request{Object: origin.Object{Bucket: "bkt", Key: key}})
				if err != nil {
					if !errors.Is(err, gateway.ErrUnstable) { // overwritten twice while it was opened
						t.Error(err)
					}
					continue
				}
				_, err = o.WriteTo(&b)
				info := o.Info
				o.Close()
				// Overwritten in mid-read, an error is all there can be.
				if err != nil && !errors.Is(err, origin.ErrChanged) {
					t.Error(err)
				}
				if err := origintest.Check(info.ETag, 0, b.Bytes()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	wg.Wait()
	for _, s := range c.Status() {
		if s.State == cluster.Unresolved {
			t.Errorf("%+v", s)
		}
	}
}
