package gateway_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// What the origin was asked before a purge is not remembered after it, whether its reader still waits or has left: the
// next read asks again and sees what was overwritten meanwhile.
func TestPurgeDuringProbe(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallPolicy(), 256*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 10})
			// The answer is decided at once, and takes a second to arrive.
			r.origin.Fail(1, nil, origintest.Fault{Edit: func(*origin.Response) { time.Sleep(time.Second) }})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				if a := r.read(ctx, gateway.Request{Object: object("k")}); (a.err != nil) != leaves {
					t.Errorf("leaves %v: %v", leaves, a.err)
				}
			})
			time.Sleep(10 * time.Millisecond)
			if leaves {
				cancel()
				synctest.Wait()
			}
			r.origin.Put("b", "k", origintest.Object{Size: 20})
			r.Purge(func(o origin.Object) bool { return o.Bucket == "b" }, false)
			wg.Wait()
			time.Sleep(2 * time.Second)
			if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.Size != 20 {
				t.Errorf("leaves %v: %v", leaves, describe(a))
			}
		})
	}
}

// Purge of one bucket leaves the info of others alone, but for a confirmation of names by version.
func TestPurgeLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		for _, k := range []string{"a", "b", "c"} {
			r.origin.Put("b", k, origintest.Object{Size: 10})
			r.get(k, gateway.Range{})
		}
		if n := r.Purge(func(o origin.Object) bool { return o.Key == "b" }, false); n != 1 {
			t.Errorf("purged %d", n)
		}
		if n := r.metric("ashlar_info_objects", ""); n != 2 {
			t.Errorf("%v objects are left", n)
		}
		r.origin.ResetLog()
		r.get("a", gateway.Range{})
		r.get("c", gateway.Range{})
		if log := r.origin.Log(); len(log) > 0 {
			t.Errorf("%q", log)
		}
	})
}
