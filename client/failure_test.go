package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fails answers every read with an error of the node's own.
func fails(status int, header ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/-/") {
			return false
		}
		w.Header().Set("X-Ashlar-Error", "node")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		return true
	}
}

// stalls answers no read until it ends.
func stalls(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

// cuts lets a node serve reads and breaks the connection off after n bytes of each body, and a while.
func cuts(n int, stall time.Duration) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		c := &cutter{ResponseWriter: w, r: r, left: n, stall: stall}
		handlerOf(r).ServeHTTP(c, r)
		return true
	}
}

// cutter is a ResponseWriter that breaks off.
type cutter struct {
	http.ResponseWriter
	r     *http.Request
	left  int
	stall time.Duration
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c *cutter) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	if _, err := c.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	if c.left -= n; c.left > 0 || n == len(p) {
		return n, nil
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	select {
	case <-c.r.Context().Done():
	case <-time.After(c.stall):
	}
	panic(http.ErrAbortHandler)
}

// TestNoNode: what an address answers that is none of a node says nothing of objects, whatever it says: the next in the
// ranking is asked, and a 404 by all of them is no 404. The log says it once for each.
func TestNoNode(t *testing.T) {
	for _, status := range []int{301, 403, 404, 412, 502} {
		f := newFake(t, 3)
		log := new(bytes.Buffer)
		c := f.client(t, func(l *Config) { l.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		f.origin.Put("bkt", "k", origintest.Object{Size: 100})
		ranked := f.ranked(t, c, "bkt", "k", 0)
		other := func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "page not found", status)
			return true
		}
		ranked[0].does(other)
		for range 3 {
			mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
		}
		if _, err := c.Origin("bkt").Head(t.Context(), origin.Object{Key: "k"}, origin.HeadOptions{}); err != nil {
			t.Error(err)
		}
		if err := c.Warm(t.Context(), "bkt", "k"); err != nil {
			t.Error(err)
		}
		if s := log.String(); strings.Count(s, "what answers as node "+ranked[0].id+" is none") != 1 {
			t.Errorf("%d, logged: %s", status, s)
		}
		for _, s := range c.Status() { // a proxy that does not find its node
			if s.Node.ID == ranked[0].id && (s.State == cluster.Down) != (status >= 500) {
				t.Errorf("%d: %+v", status, s)
			}
		}
		ranked[1].does(other)
		ranked[2].does(other)
		_, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{})
		var e *origin.Error
		if !errors.Is(err, origin.ErrBadAnswer) || errors.As(err, &e) {
			t.Errorf("all answer %d: %v", status, err)
		}
	}
}

// TestErrorsOfNodes: the next in the ranking is asked, and what the origin says is an answer.
func TestErrorsOfNodes(t *testing.T) {
	for _, status := range []int{500, 503, 504, 508} {
		f := newFake(t, 3)
		c := f.client(t)
		f.origin.Put("bkt", "k", origintest.Object{Size: 100})
		ranked := f.ranked(t, c, "bkt", "k", 0)
		ranked[0].does(fails(status))
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
		if _, err := c.Origin("bkt").Head(t.Context(), origin.Object{Key: "k"}, origin.HeadOptions{}); err != nil {
			t.Error(err)
		}
		if len(ranked[0].asked()) == 0 || len(ranked[1].asked()) != 2 || len(ranked[2].asked()) != 0 {
			t.Errorf("%d: asked %d, %d, %d", status, len(ranked[0].asked()), len(ranked[1].asked()), len(ranked[2].asked()))
		}
		// All of them fail: the last one's word is passed on.
		ranked[1].does(fails(status))
		ranked[2].does(fails(status))
		_, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{})
		var e *origin.Error
		if !errors.As(err, &e) || e.Status != status {
			t.Errorf("all fail with %d: %v", status, err)
		}
	}
}

// TestRefusalsAreFew: what nodes say that they can't is not asked of every node there is, and what one refuses us says
// nothing of what it refuses later, in words or without.
func TestRefusalsAreFew(t *testing.T) {
	for name, does := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"busy": fails(503), "refused": fails(403, "X-Amz-Request-Id", "1"),
	} {
		f := newFake(t, 6)
		c := f.client(t)
		f.origin.Put("bkt", "k", origintest.Object{Size: 100})
		for _, n := range f.nodes {
			n.does(does)
		}
		if _, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{}); err == nil {
			t.Errorf("%s: served", name)
		}
		asked := 0
		for _, n := range f.nodes {
			asked += len(n.asked())
		}
		if asked != maxRefusals {
			t.Errorf("%s: %d nodes were asked", name, asked)
		}
		if name == "busy" {
			continue
		}
		for _, n := range f.nodes { // as their origin says, in the only way that there is of a HEAD
			n.does(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Amz-Request-Id", "1")
				w.WriteHeader(403)
				return true
			})
		}
		_, err := c.Origin("bkt").Head(t.Context(), origin.Object{Key: "k"}, origin.HeadOptions{})
		var e *origin.Error
		if !errors.As(err, &e) || e.Status != 403 {
			t.Errorf("what the origin refuses: %v", err)
		}
	}
}

func TestAnswersOfTheOrigin(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	asked := 0
	for _, status := range []int{400, 403, 404, 416, 500, 503} {
		f.origin.Fail(-1, nil, origintest.Fault{Status: status, Code: "Because"})
		_, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{Offset: 1, Length: 5})
		var e *origin.Error
		if !errors.As(err, &e) || e.Status != status || status != 416 && e.Code != "Because" {
			t.Errorf("%d: got %v", status, err)
		}
		f.origin.Heal()
		n := 0
		for _, node := range f.nodes {
			n += len(node.asked())
		}
		if n-asked != 1 {
			t.Errorf("%d: %d nodes asked", status, n-asked)
		}
		asked = n
	}
	for _, s := range c.Status() {
		if s.State != cluster.Ready {
			t.Errorf("%+v", s)
		}
	}
}

// TestFullNode: a node's own 503 keeps requests away for as long as it says.
func TestFullNode(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.DownFor = time.Hour })
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	owner := f.ranked(t, c, "bkt", "k", 0)[0]
	owner.does(fails(503, "Retry-After", "600"))
	for range 5 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	if n := len(owner.asked()); n != 1 {
		t.Errorf("asked %d times", n)
	}
	// As long as it says, and a second where it says nothing that counts.
	for value, want := range map[string]time.Duration{"0": 0, "7": 7 * time.Second, "": time.Second, "soon": time.Second,
		"-1": time.Second} {
		if got := retryAfter(http.Header{"Retry-After": {value}}); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
	c = f.client(t, func(l *Config) { l.DownFor = time.Hour }) // which knows nothing of it yet
	owner.does(fails(503, "Retry-After", "0"))
	n := len(owner.asked())
	for range 3 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	if n = len(owner.asked()) - n; n != 3 {
		t.Errorf("asked %d times, full for no time", n)
	}
}

// TestKilledNode is down at once, and is back when it answers its health check.
func TestKilledNode(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.DownFor, l.DownForMax = time.Millisecond, time.Millisecond })
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	owner := f.ranked(t, c, "bkt", "k", 0)[0]
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	owner.does(func(w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) })
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	state := func() cluster.State {
		for _, s := range c.Status() {
			if s.Node.ID == owner.id {
				return s.State
			}
		}
		return cluster.Unresolved
	}
	if state() != cluster.Down {
		t.Errorf("the node is %v", state())
	}
	n := len(owner.asked())
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if len(owner.asked()) != n {
		t.Error("asked while it is down")
	}
	var checks atomic.Int64
	owner.does(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(500)
		checks.Add(1)
		return true
	})
	eventually(t, "the second health check, after what came of the first", func() bool { return checks.Load() >= 2 })
	if state() != cluster.Down {
		t.Errorf("the node is %v while its health check fails", state())
	}
	owner.does(nil)
	eventually(t, "up again", func() bool { return state() == cluster.Ready })
	owner.kill()
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if state() != cluster.Down {
		t.Errorf("the killed node is %v", state())
	}
}

// TestBrokenBody: what is missing comes from the next node, from the first missing byte on.
func TestBrokenBody(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	tag := f.origin.Put("bkt", "k", origintest.Object{Size: 6*blockSize - 5})
	owner := f.ranked(t, c, "bkt", "k", 2)[0]
	owner.does(cuts(10_000, 0))
	for range 3 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	next := f.ranked(t, c, "bkt", "k", 2)[1]
	want := fmt.Sprintf("bytes=%d-%d", 2*blockSize+10_000, 3*blockSize-1)
	if !slices.ContainsFunc(next.asked(), func(r *http.Request) bool {
		return r.Header.Get("Range") == want && r.Header.Get("If-Match") == tag
	}) {
		t.Errorf("nobody was asked for %s", want)
	}
	if n := testutil.ToFloat64(c.metrics.resumptions); n < 1 {
		t.Errorf("%v resumptions", n)
	}
	// Overwritten before it breaks: an error, and no other version.
	for _, n := range f.nodes {
		n.does(cuts(10_000, 0))
	}
	r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{Length: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	f.Put("bkt", "k", origintest.Object{Size: 6 * blockSize})
	p, err := io.ReadAll(r.Body)
	if !errors.Is(err, origin.ErrChanged) || len(p) != 10_000 {
		t.Errorf("%d bytes, %v", len(p), err)
	}
}

// TestBrokenEverywhere: each node is tried once, and the bytes that came are right.
func TestBrokenEverywhere(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 60_000})
	for _, n := range f.nodes {
		n.does(cuts(7_000, 0))
	}
	r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(p) != 21_000 {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	if err := origintest.Check(r.Info.ETag, 0, p); err != nil {
		t.Error(err)
	}
}

func TestFallback(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.Fallback = f.origin })
	f.origin.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	ranked := f.ranked(t, c, "bkt", "k", 0)
	for _, fault := range []func(http.ResponseWriter, *http.Request) bool{fails(500), cuts(100, 0)} {
		before := testutil.ToFloat64(c.metrics.fallbacks)
		ranked[0].does(fault)
		ranked[1].does(fault)
		third := len(ranked[2].asked())
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{Length: blockSize})
		if len(ranked[2].asked()) != third {
			t.Error("a third node was asked")
		}
		if testutil.ToFloat64(c.metrics.fallbacks) != before+1 {
			t.Error("not counted")
		}
	}
	// Nobody is up: at once.
	for _, n := range f.nodes {
		n.kill()
	}
	for range 6 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	refused := func() (n float64) {
		for _, node := range f.nodes {
			n += testutil.ToFloat64(c.metrics.errors.WithLabelValues(node.id, whyConnection))
		}
		return n
	}
	before := refused()
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if n := refused() - before; n != 0 {
		t.Errorf("nodes that are down were asked %v times", n)
	}
	info, err := c.Origin("bkt").Head(t.Context(), origin.Object{Key: "k"}, origin.HeadOptions{})
	if err != nil || info.Size != 3*blockSize {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestNoNodes(t *testing.T) {
	f := newFake(t, 0)
	members := func(l *Config) {
		l.Members = cluster.MembershipConfig{SRV: "x.test.", Servers: []string{refused(t)}, ResolvConf: "/dev/null"}
	}
	_, err := readAll(t.Context(), f.client(t, members).Origin("bkt"), "k", origin.GetOptions{})
	if !errors.Is(err, cluster.ErrNoNodes) {
		t.Errorf("got %v", err)
	}
	f.origin.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	mustRead(t, f.client(t, members, func(l *Config) { l.Fallback = f.origin }).Origin("bkt"), "k", origin.GetOptions{})
}

// TestBadAnswer: another node is asked, and the node stays up: all objects but one may be well.
func TestBadAnswer(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	owner := f.ranked(t, c, "bkt", "k", 0)[0]
	for _, contentRange := range []string{"", "bytes 0-8/100", "bytes 5-14/100", "bytes 0-9/*"} {
		owner.does(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Range", contentRange)
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(206)
			_, _ = io.WriteString(w, "wrongbytes")
			return true
		})
		n := len(owner.asked())
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{Length: 10})
		if len(owner.asked()) != n+1 {
			t.Error("the owner was not asked")
		}
	}
	for _, s := range c.Status() {
		if s.State != cluster.Ready {
			t.Errorf("%+v", s)
		}
	}
}

// TestBadAddress: an address that is none is a node that is down.
func TestBadAddress(t *testing.T) {
	f := newFake(t, 1)
	c := f.client(t, func(l *Config) {
		l.Members.Nodes = append(l.Members.Nodes, cluster.Node{ID: "odd", Addr: "no host:80"}, cluster.Node{ID: "far:99999"})
	})
	// Enough units for each of the two to come before the node that is one: its port, and so its rank, is chance.
	f.origin.Put("bkt", "k", origintest.Object{Size: 60 * blockSize})
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	for _, s := range c.Status() {
		if up := s.Node.ID == f.nodes[0].id; up != (s.State == cluster.Ready) {
			t.Errorf("%+v", s)
		}
	}
}

// TestStalledNode: another node answers for one that stands still, which is down after three of that.
func TestStalledNode(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) {
		l.Hedge, l.FirstByte, l.DownFor = FixedHedge(10*time.Millisecond, 16), time.Minute, time.Hour
	})
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	owner := f.ranked(t, c, "bkt", "k", 0)[0]
	owner.does(stalls)
	for range 5 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	if n := len(owner.asked()); n > 3 { // on a busy machine a question may be taken back before it comes there
		t.Errorf("the owner was asked %d times", n)
	}
	for _, s := range c.Status() {
		if s.Node.ID == owner.id && s.State != cluster.Down {
			t.Errorf("%+v", s)
		}
	}
	sent, won := testutil.ToFloat64(c.metrics.hedgesSent), testutil.ToFloat64(c.metrics.hedgesWon)
	if sent < 3 || won < 3 {
		t.Errorf("%v hedges, %v won", sent, won)
	}
}

// TestSlowNodeWithoutHedge: its bound on the first byte ends it, and another is asked.
func TestSlowNodeWithoutHedge(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	f.ranked(t, c, "bkt", "k", 0)[0].does(stalls)
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{FirstByte: time.Second}) // which the others have too
}

// countedHedge tells when leave was asked for three times.
type countedHedge struct {
	Hedge
	asked atomic.Int64
	third chan struct{}
}

func (h *countedHedge) Begin() (func(), bool) {
	if h.asked.Add(1) == 3 {
		close(h.third)
	}
	return h.Hedge.Begin()
}

// TestNoLeaveToHedge: without budget there is no second request.
func TestNoLeaveToHedge(t *testing.T) {
	f := newFake(t, 2)
	hedge := &countedHedge{Hedge: FixedHedge(time.Millisecond, 1), third: make(chan struct{})}
	c := f.client(t, func(l *Config) { l.Hedge = hedge })
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	done, ok := hedge.Begin()
	if !ok {
		t.Fatal("no leave")
	}
	defer done()
	ranked := f.ranked(t, c, "bkt", "k", 0)
	ranked[0].does(func(w http.ResponseWriter, r *http.Request) bool {
		<-hedge.third // the test's own, and two in vain
		return false
	})
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if len(ranked[1].asked()) != 0 {
		t.Error("hedged")
	}
}

// TestStalledBody: a body that stands still is continued by another node.
func TestStalledBody(t *testing.T) {
	f := newFake(t, 3)
	// Long enough for the node that will stall to send its headers: where it loses to a hedge before, no body stalls.
	hedge := FixedHedge(500*time.Millisecond, 16)
	reg := prometheus.NewRegistry()
	c := f.client(t, func(l *Config) { l.Hedge, l.Registerer, l.FirstByte = hedge, reg, time.Minute })
	f.origin.Put("bkt", "k", origintest.Object{Size: 9 * blockSize})
	f.ranked(t, c, "bkt", "k", 1)[0].does(cuts(30_000, time.Hour))
	for range 4 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	if n := testutil.ToFloat64(c.metrics.resumptions); n < 1 {
		t.Errorf("%v resumptions", n)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "ashlar_cluster_node_failures_total" && m.GetLabel()[0].GetValue() == "timeout" &&
				m.GetCounter().GetValue() != 0 {
				t.Error("the stalled body was waited for")
			}
		}
	}
	for range 16 {
		eventually(t, "leave to hedge is given back", func() bool { _, ok := hedge.Begin(); return ok })
	}
}

// TestDrippingBody: bytes that come one by one are no progress, and another node is asked for the rest.
func TestDrippingBody(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.Hedge, l.FirstByte = FixedHedge(500*time.Millisecond, 16), time.Minute })
	f.origin.Put("bkt", "k", origintest.Object{Size: 9 * blockSize})
	owner := f.ranked(t, c, "bkt", "k", 1)[0]
	owner.does(func(w http.ResponseWriter, r *http.Request) bool {
		handlerOf(r).ServeHTTP(&dripper{w, r}, r)
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one unit alone would take more than two
	defer cancel()
	if _, err := readAll(ctx, c.Origin("bkt"), "k", origin.GetOptions{}); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(c.metrics.resumptions); n < 1 {
		t.Errorf("%v resumptions", n)
	}
}

// dripper is a ResponseWriter that sends one byte every 2 ms.
type dripper struct {
	http.ResponseWriter
	r *http.Request
}

func (d *dripper) Unwrap() http.ResponseWriter { return d.ResponseWriter }
func (d *dripper) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := d.ResponseWriter.Write(p[i : i+1]); err != nil {
			return i, err
		}
		_ = http.NewResponseController(d.ResponseWriter).Flush()
		select {
		case <-time.After(2 * time.Millisecond):
		case <-d.r.Context().Done():
			return i, d.r.Context().Err()
		}
	}
	return len(p), nil
}

// TestNodesChange: what belongs to a node that has gone goes with it.
func TestNodesChange(t *testing.T) {
	f := newFake(t, 3)
	reg := prometheus.NewRegistry()
	c := f.client(t, func(l *Config) { l.Registerer = reg })
	f.origin.Put("bkt", "k", origintest.Object{Size: 50 * blockSize})
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	count := func(name string) int {
		n, err := testutil.GatherAndCount(reg, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, name := range []string{"ashlar_cluster_bytes_total", "ashlar_cluster_first_byte_seconds",
		"ashlar_cluster_requests_total", "ashlar_cluster_node_requests_in_flight"} {
		if n := count(name); n != 3 {
			t.Errorf("%d series of %s", n, name)
		}
	}
	fewer, err := cluster.NewMembership(t.Context(), cluster.MembershipConfig{Nodes: f.members()[:2]})
	if err != nil {
		t.Fatal(err)
	}
	c.members.Close()
	c.members = fewer
	if _, err := c.conn(f.members()[0]); err != nil {
		t.Fatal(err)
	}
	if n := count("ashlar_cluster_bytes_total"); n != 2 || len(c.conns) != 2 {
		t.Errorf("%d series, %d connections after one has gone", n, len(c.conns))
	}
}

// TestEverythingFails reads under faults of all kinds, with objects overwritten all the while. A read gives the bytes
// of one version, or fails.
func TestEverythingFails(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := newFake(t, 4)
	c := f.client(t, func(l *Config) {
		// What stalls is left to hedges. Where both stall it is the time for an answer, which a busy machine must have too.
		l.Hedge, l.ReadWindow, l.FirstByte = FixedHedge(3*time.Millisecond, 8), 3, 5*time.Second
		l.DownFor, l.DownForMax = 5*time.Millisecond, 20*time.Millisecond
	})
	keys := []string{"a", "b/c", "d e"}
	put := func(key string, n int64) { f.Put("bkt", key, origintest.Object{Size: 3*blockSize + n*1000}) }
	for _, k := range keys {
		put(k, 1)
	}
	for _, n := range f.nodes {
		var calls atomic.Uint64
		n.does(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/-/") {
				return false
			}
			rnd := rand.New(rand.NewPCG(seed, calls.Add(1)))
			switch rnd.IntN(12) {
			case 0:
				panic(http.ErrAbortHandler)
			case 1:
				return fails(500)(w, r)
			case 2:
				return fails(503)(w, r)
			case 3:
				return cuts(rnd.IntN(blockSize), 0)(w, r)
			case 4:
				return cuts(rnd.IntN(blockSize), 300*time.Millisecond)(w, r)
			case 5:
				time.Sleep(time.Duration(rnd.IntN(8)) * time.Millisecond)
			case 6:
				return rnd.IntN(4) == 0 && stalls(w, r)
			}
			return false
		})
	}
	var good, bad atomic.Int64
	var wg sync.WaitGroup
	for g := range uint64(6) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 1000+g))
			for range 30 {
				key := keys[rnd.IntN(len(keys))]
				if rnd.IntN(25) == 0 {
					put(key, rnd.Int64N(100))
				}
				opts := origin.GetOptions{}
				if rnd.IntN(3) > 0 {
					opts = origin.GetOptions{Offset: rnd.Int64N(3 * blockSize), Length: 1 + rnd.Int64N(2*blockSize)}
				}
				if _, err := readAll(t.Context(), c.Origin("bkt"), key, opts); err == nil {
					good.Add(1)
				} else if strings.Contains(err.Error(), "byte ") { // origintest.Check, or a wrong length
					t.Error(err)
				} else {
					bad.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d reads, %d failed", good.Load()+bad.Load(), bad.Load())
	if good.Load() < 90 {
		t.Errorf("only %d of %d reads succeeded", good.Load(), good.Load()+bad.Load())
	}
}
