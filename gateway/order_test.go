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

// TestNoTurningBack has two probes of one object side by side, as a write that begins between them brings about. The
// first to be asked sees a second write that nobody has acknowledged yet, the other does not. Once a reader was told of it,
// no later reader may see what was before.
func TestNoTurningBack(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		slow    time.Duration // how long the answer of the second probe, which has the old version, takes
		next    time.Duration // when the next reader comes
		deletes bool          // the write is a deletion
	}{
		{"old version remembered", 19 * ms, 31 * ms, false},
		{"old version arrives later", 34 * ms, 41 * ms, false},
		{"old version on its way", 34 * ms, 35 * ms, false},
		{"deletion, old version remembered", 19 * ms, 31 * ms, true},
		{"deletion, old version arrives later", 34 * ms, 41 * ms, true},
		{"deletion, old version on its way", 34 * ms, 35 * ms, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallPolicy(), 256*B)
				defer r.close()
				start := time.Now()
				at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
				read := func() <-chan answer {
					a := make(chan answer, 1)
					go func() { a <- r.get("k", gateway.Range{}) }()
					return a
				}
				first := r.origin.Put("b", "k", origintest.Object{Size: 2 * B})
				// Looked up after 20 ms, here after 30.
				r.origin.Fail(1, nil, origintest.Fault{Before: func() { at(20 * ms) },
					Edit: func(*origin.Response) { at(30 * ms) }})
				early := read()
				at(5 * ms)
				r.Invalidate(object("k"))
				at(6 * ms)
				r.origin.Fail(1, nil, origintest.Fault{Edit: func(*origin.Response) { time.Sleep(c.slow) }})
				late := read()
				at(15 * ms)
				second := ""
				if c.deletes {
					r.origin.Delete("b", "k")
				} else {
					second = r.origin.Put("b", "k", origintest.Object{Size: 3 * B})
				}
				sees := func(who, etag string, a answer) {
					t.Helper()
					if etag == "" && !errors.Is(a.err, origin.ErrNotFound) || etag != "" && (a.err != nil || a.obj.Info.ETag != etag) {
						t.Errorf("%s: %v, want %q", who, describe(a), etag)
					}
				}
				at(c.next)
				next := read()
				sees("first", second, <-early)
				sees("second", first, <-late)
				sees("next", second, <-next)
				sees("and then", second, <-read())
				if !c.deletes {
					before := r.origin.Stats().Gets
					sees("remembered", second, <-read())
					if n := r.origin.Stats().Gets - before; n != 0 {
						t.Errorf("%d GETs for what is known", n)
					}
				}
			})
		})
	}
}

// TestNoTurningBackAfterMissingBlock is the same where the reader is told of the deletion because a block of the version
// that is remembered can't be had any more.
func TestNoTurningBackAfterMissingBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 2 * B})
		if a := r.get("k", gateway.FromTo(0, 0)); a.err != nil { // of which nobody learns checksums
			t.Fatal(a.err)
		}
		r.memory.evict()
		time.Sleep(time.Millisecond)
		head := gateway.Request{Object: object("k"), InfoOnly: true, WantChecksums: true}
		r.origin.Fail(1, nil, origintest.Fault{Edit: func(*origin.Response) { time.Sleep(20 * time.Millisecond) }})
		early := make(chan answer)
		go func() { early <- r.read(t.Context(), head) }()
		time.Sleep(10 * time.Millisecond)
		r.origin.Delete("b", "k")
		if a := r.get("k", gateway.Range{}); !errors.Is(a.err, origin.ErrNotFound) {
			t.Errorf("after the deletion: %v", describe(a))
		}
		if a := <-early; a.err != nil {
			t.Errorf("begun before it: %v", describe(a))
		}
		head.WantChecksums = false
		if a := r.read(t.Context(), head); !errors.Is(a.err, origin.ErrNotFound) {
			t.Errorf("later: %v", describe(a))
		}
	})
}

// TestCrowdBeforeDeletedObject has readers who join a fetch of a block of an object that was deleted meanwhile: they are
// told so, each by an answer of their own.
func TestCrowdBeforeDeletedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 256*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 2 * B})
		if a := r.get("k", gateway.Range{}); a.err != nil {
			t.Fatal(a.err)
		}
		r.memory.evict()
		r.origin.Delete("b", "k")
		r.origin.Fail(-1, nil, origintest.Fault{Latency: 10 * time.Millisecond})
		const crowd = 10
		answers := make(chan answer)
		for range crowd {
			go func() { answers <- r.get("k", gateway.Range{}) }()
		}
		for range crowd {
			if a := <-answers; !errors.Is(a.err, origin.ErrNotFound) || errors.Is(a.err, gateway.ErrUnstable) {
				t.Error(describe(a))
			}
		}
	})
}

// An origin that is a cache itself answers with some Age. What readers were told once is no reason to remember nothing
// from then on.
func TestAgedAnswersAreRemembered(t *testing.T) {
	for _, overlap := range []func(r *rig){
		func(r *rig) {
			time.AfterFunc(10*time.Millisecond, func() { r.Invalidate(object("k")) })
			r.get("k", gateway.Range{})
		},
		func(r *rig) {
			r.origin.Delete("b", "k")
			r.get("k", gateway.Range{})
			r.origin.Put("b", "k", origintest.Object{Size: 10})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallPolicy(), 64*B)
			defer r.close()
			r.origin.Put("b", "k", origintest.Object{Size: 10})
			r.origin.Fail(-1, nil, origintest.Fault{Latency: 20 * time.Millisecond, Age: time.Second})
			overlap(r)
			before := r.origin.Stats().Gets
			for range 3000 { // five minutes
				r.get("k", gateway.Range{})
				time.Sleep(100 * time.Millisecond)
			}
			if n := r.origin.Stats().Gets - before; n > 8 {
				t.Errorf("%d GETs in five minutes, with a ttl of one", n)
			}
		})
	}
}

// Who asks for versions that there are not keeps nobody from remembering the object.
func TestVersionsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallPolicy(), 64*B)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 10})
		r.origin.Fail(-1, nil, origintest.Fault{Latency: 50 * time.Millisecond})
		stop := make(chan struct{})
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					o := object("k")
					o.VersionID = fmt.Sprint("none", i)
					go r.read(t.Context(), gateway.Request{Object: o, InfoOnly: true})
				}
			}
		}()
		time.Sleep(time.Second)
		for range 100 {
			r.get("k", gateway.Range{})
			time.Sleep(100 * time.Millisecond)
		}
		close(stop)
		time.Sleep(time.Second)
		gets := 0
		for _, line := range r.origin.Log() {
			if strings.HasPrefix(line, "GET b/k ") && !strings.Contains(line, "none") {
				gets++
			}
		}
		if gets > 3 {
			t.Errorf("%d GETs of what is known", gets)
		}
	})
}
