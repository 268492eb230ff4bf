package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// P1 without ETags, which nothing pins: what tells another version is its size and its date.
func TestOverwrittenWithoutETag(t *testing.T) {
	for _, immutable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := smallPolicy()
			p.FetchWindow, p.ReadWindow, p.Immutable = 2, 2, immutable
			r := newRig(t, p, 256*B)
			defer r.close()
			put := func() {
				time.Sleep(2 * time.Second) // dates are in seconds
				o := origintest.Object{Size: 6 * B, NoETag: true, LastModified: time.Now()}
				o.Seed = o.LastModified.UTC().Format(http.TimeFormat)
				r.origin.Put("b", "k", o)
			}
			// Between the info and the bytes, each time, but for the last: whatever is read is of the version that it is said
			// to be of.
			put()
			var asked atomic.Int64
			r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
				if n := asked.Add(1); n > 1 && n < 8 {
					return &origintest.Fault{Before: put}
				}
				return nil
			})
			for range 10 {
				a := r.get("k", gateway.Range{})
				if a.obj != nil && a.err == nil && len(a.body) != 6*B {
					t.Errorf("immutable %v: %d bytes, %v", immutable, len(a.body), a.err)
				}
			}
			if a := r.get("k", gateway.Range{}); a.err != nil {
				t.Errorf("immutable %v: %v", immutable, a.err)
			}
		})
	}
}

// What was written is kept only if it is what the origin has: all of it and no more, under an ETag that can be no other's.
func TestWrittenAndNotKept(t *testing.T) {
	for _, immutable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := smallPolicy()
			p.Immutable = immutable
			r := newRig(t, p, 256*B)
			defer r.close()
			body := origintest.Bytes("s", 0, 3*B)
			write := func(size int64, etag string, pieces ...[]byte) bool {
				p := r.Populate(object("k"), size)
				defer p.Abort()
				for _, b := range pieces {
					p.Write(b)
				}
				return p.Commit(etag)
			}
			for name, kept := range map[string]bool{
				"weak":      write(3*B, `W/"e"`, body),
				"no ETag":   write(3*B, "", body),
				"short":     write(3*B, `"e"`, body[:3*B-1]),
				"long":      write(2*B, `"e"`, body),
				"one more":  write(2*B, `"e"`, body[:2*B], body[:1]),
				"too large": write(17*B, `"e"`, make([]byte, 17*B)),
			} {
				if kept {
					t.Errorf("%s: kept", name)
				}
			}
			if !write(3*B, `"e"`, body) {
				t.Error("not kept")
			}
		})
	}
}

// From the smallest to the largest blocks that there may be, over the tier that processes have, and objects that end at a block, before it and
// behind it.
func TestBlockSizes(t *testing.T) {
	for size := int64(64 * KiB); size <= 16*MiB; size *= 16 {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy()
				p.BlockSize = size
				r := newRigOver(t, newRealMemory(t, max(8*size, 16*MiB), size), p)
				defer r.close()
				for _, length := range []int64{0, 1, size - 1, size, size + 1, 3*size - 1} {
					key := fmt.Sprint(length)
					r.origin.Put("b", key, origintest.Object{Size: length})
					for range 2 { // cold and warm
						if a := r.get(key, gateway.Range{}); a.err != nil || int64(len(a.body)) != length {
							t.Errorf("%d bytes of %d, %v", len(a.body), length, a.err)
						}
						if length > 1 {
							if a := r.get(key, gateway.FromTo(length/2, length)); a.err != nil || int64(len(a.body)) != length-length/2 {
								t.Errorf("%d bytes of the second half of %d, %v", len(a.body), length, a.err)
							}
						}
					}
				}
			})
		})
	}
}
