package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// warmed is what nodes were asked to warm, by node.
type warmed struct {
	mu   sync.Mutex
	reqs map[string][]warmRequest
}

// serve lets the nodes answer POST /-/warm with a status.
func (w *warmed) serve(t *testing.T, n *fakeNode, status int, own bool) {
	n.does(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/-/warm" {
			return false
		}
		var req warmRequest
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &req) != nil || r.Method != "POST" || r.Header.Get("Authorization") == "" ||
			len(r.Header.Get("X-Amz-Content-Sha256")) != 64 || r.Header.Get("X-Ashlar-Routed") != "1" {
			t.Errorf("%s %v: %s", r.Method, r.Header, body)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.reqs == nil {
			w.reqs = map[string][]warmRequest{}
		}
		w.reqs[n.id] = append(w.reqs[n.id], req)
		if own {
			rw.Header().Set("X-Ashlar-Error", "node")
		}
		rw.Header().Set("X-Amz-Request-Id", "0123456789ABCDEF")
		rw.WriteHeader(status)
		return true
	})
}

// units returns which node was asked for each unit last.
func (w *warmed) units() map[int64]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	units := map[int64]string{}
	for id, reqs := range w.reqs {
		for _, r := range reqs {
			for _, part := range r.Ranges {
				units[part[0]/blockSize] = id
			}
		}
	}
	return units
}

func TestWarm(t *testing.T) {
	const units = 30
	f := newFake(t, 3)
	c := f.client(t)
	tag := f.origin.Put("bkt", "k", origintest.Object{Size: units*blockSize - 9})
	w := &warmed{}
	for _, n := range f.nodes {
		w.serve(t, n, 204, false)
	}
	if err := c.Warm(t.Context(), "bkt", "k"); err != nil {
		t.Fatal(err)
	}
	got := w.units()
	for i := range int64(units) {
		if owner := f.ranked(t, c, "bkt", "k", i)[0].id; got[i] != owner {
			t.Errorf("unit %d was warmed by %s, belongs to %s", i, got[i], owner)
		}
	}
	bytes := int64(0)
	for id, reqs := range w.reqs {
		if len(reqs) != 1 || reqs[0].Bucket != "bkt" || reqs[0].Key != "k" || reqs[0].ETag != tag {
			t.Errorf("node %s: %+v", id, reqs)
		}
		for _, r := range reqs[0].Ranges {
			bytes += r[1]
		}
	}
	if bytes != units*blockSize-9 {
		t.Errorf("%d bytes asked for", bytes)
	}
	// Ranges, of which one ends beyond the object.
	w.reqs = nil
	if err := c.Warm(t.Context(), "bkt", "k", Range{10, 20}, Range{(units - 1) * blockSize, 1 << 40}); err != nil {
		t.Fatal(err)
	}
	if got := w.units(); len(got) != 2 || got[0] == "" || got[units-1] == "" {
		t.Errorf("%v", got)
	}
}

// TestWarmFailover: what a node fails to do, the next in rank does.
func TestWarmFailover(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 30 * blockSize})
	w := &warmed{}
	for _, n := range f.nodes {
		w.serve(t, n, 204, false)
	}
	w.serve(t, f.nodes[1], 503, true)
	if err := c.Warm(t.Context(), "bkt", "k"); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	delete(w.reqs, f.nodes[1].id)
	w.mu.Unlock()
	got := w.units()
	for i := range int64(30) {
		ranked := f.ranked(t, c, "bkt", "k", i)
		want := ranked[0].id
		if ranked[0] == f.nodes[1] {
			want = ranked[1].id
		}
		if got[i] != want {
			t.Errorf("unit %d was warmed by %s, want %s", i, got[i], want)
		}
	}
}

func TestWarmErrors(t *testing.T) {
	f := newFake(t, 2)
	c := f.client(t)
	if err := c.Warm(t.Context(), "bkt", "none"); !errors.Is(err, origin.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	f.Put("bkt", "weak", origintest.Object{Size: 10, Weak: true})
	if err := c.Warm(t.Context(), "bkt", "weak"); err == nil {
		t.Error("an object without strong ETag is warmed")
	}
	f.Put("bkt", "k", origintest.Object{Size: 10})
	if err := c.Warm(t.Context(), "bkt", "k", Range{-1, 1}); err == nil {
		t.Error("a negative offset is warmed")
	}
	w := &warmed{}
	for _, n := range f.nodes {
		w.serve(t, n, 412, false)
	}
	if err := c.Warm(t.Context(), "bkt", "k"); !errors.Is(err, origin.ErrChanged) {
		t.Errorf("changed: %v", err)
	}
	for _, n := range f.nodes {
		w.serve(t, n, 500, true)
	}
	if err := c.Warm(t.Context(), "bkt", "k"); err == nil || !strings.Contains(err.Error(), "1 routing units") ||
		!strings.Contains(err.Error(), "answered 500") { // and why
		t.Errorf("all fail: %v", err)
	}
}

// TestInvalidate: the nodes' own endpoint understands what is sent.
func TestInvalidate(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 10})
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	tag := f.origin.Put("bkt", "k", origintest.Object{Size: 20})
	if r := mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{}); r.Info.ETag == tag {
		t.Fatal("nothing was remembered, so nothing is shown")
	}
	if err := c.Invalidate(t.Context(), "bkt", "k", "other", "\xff"); err != nil {
		t.Fatal(err)
	}
	if r := mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{}); r.Info.ETag != tag {
		t.Errorf("still %s", r.Info.ETag)
	}
	f.nodes[0].kill()
	if err := c.Invalidate(t.Context(), "bkt", "k"); err == nil || !strings.Contains(err.Error(), f.nodes[0].id) {
		t.Errorf("with one node gone: %v", err)
	}
	if err := c.Invalidate(t.Context(), "bkt", "k"); err != nil {
		t.Errorf("a node that is down is told: %v", err)
	}
}

// TestInvalidateStalledNode: nodes that don't confirm what they are told are held down as those that don't answer
// reads.
func TestInvalidateStalledNode(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.DownFor = time.Hour })
	f.nodes[1].does(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body) // else net/http does not see the client go
		return stalls(w, r)
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := c.Invalidate(t.Context(), "bkt", "k"); !errors.Is(err, origin.ErrTimeout) ||
				!strings.Contains(err.Error(), f.nodes[1].id) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	for _, s := range c.Status() {
		if down := s.State == cluster.Down; down != (s.Node.ID == f.nodes[1].id) {
			t.Errorf("%+v", s)
		}
	}
	if err := c.Invalidate(t.Context(), "bkt", "k"); err != nil {
		t.Errorf("a node that is down is told: %v", err)
	}
}
