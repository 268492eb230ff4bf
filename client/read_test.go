package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// readAll reads a range and checks its bytes against the version that the answer names.
func readAll(ctx context.Context, o origin.Origin, key string, opts origin.GetOptions) (*origin.Response, error) {
	r, err := o.Get(ctx, origin.Object{Bucket: "bkt", Key: key}, opts)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err != nil {
		return r, err
	}
	if int64(len(p)) != r.Length {
		return r, fmt.Errorf("%d bytes, Length says %d", len(p), r.Length)
	}
	return r, origintest.Check(r.Info.ETag, r.Offset, p)
}

func mustRead(t *testing.T, o origin.Origin, key string, opts origin.GetOptions) *origin.Response {
	t.Helper()
	r, err := readAll(t.Context(), o, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventually polls, since what a test waits for happens in another process, as it were.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never happened: " + what)
		}
	}
}

// TestUnits: each unit is asked of its owner, once, and what the requests say.
func TestUnits(t *testing.T) {
	const units = 40
	f := newFake(t, 3)
	c := f.client(t)
	tag := f.origin.Put("bkt", "k", origintest.Object{Size: units*blockSize - 7})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := readAll(ctx, c.Origin("bkt"), "k", origin.GetOptions{NoCache: true}); err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for _, n := range f.nodes {
		got := n.asked()
		if len(got) == 0 { // how even the shares are is the ranking's matter; ports, and so these nodes' names, are chance
			t.Errorf("node %s got none of %d requests", n.id, units)
		}
		for _, r := range got {
			from, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
			off, err := strconv.ParseInt(from, 10, 64)
			if err != nil || off%blockSize != 0 {
				t.Fatalf("Range %q", r.Header.Get("Range"))
			}
			unit := off / blockSize
			if seen[unit] || f.ranked(t, c, "bkt", "k", unit)[0] != n {
				t.Errorf("unit %d was asked twice, or of another than its owner", unit)
			}
			seen[unit] = true
			pin, noCache := tag, ""
			if unit == 0 {
				pin, noCache = "", "no-cache"
			}
			left, err := strconv.Atoi(r.Header.Get("X-Ashlar-Deadline"))
			if r.Header.Get("If-Match") != pin || r.Header.Get("Cache-Control") != noCache ||
				r.Header.Get("X-Ashlar-Routed") != "1" || err != nil || left <= 0 || left > 3_600_000 ||
				!strings.Contains(r.Header.Get("Via"), "ashlar-test") {
				t.Errorf("unit %d was asked for with %v", unit, r.Header)
			}
		}
	}
	if len(seen) != units {
		t.Errorf("%d units asked for", len(seen))
	}
	// Each block is held by one node: what the nodes fetched is the object, once.
	if got := f.origin.Stats().Bytes; got != units*blockSize-7 {
		t.Errorf("%d bytes fetched from the origin", got)
	}
}

// TestPinnedReadsAskAtOnce: where the version is known, the second unit does not wait for the first.
func TestPinnedReadsAskAtOnce(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	tag := f.origin.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	second := make(chan struct{})
	var once atomic.Bool
	for _, n := range f.nodes {
		n.does(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
				select {
				case <-second:
				case <-r.Context().Done():
				}
			} else if once.CompareAndSwap(false, true) {
				close(second)
			}
			return false
		})
	}
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{Length: 3 * blockSize, IfMatch: tag})
	// Of an object that has become shorter than was thought.
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{Length: 9 * blockSize, IfMatch: tag})
	f.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	_, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{Length: 3 * blockSize, IfMatch: tag})
	if !errors.Is(err, origin.ErrChanged) {
		t.Errorf("another version: %v", err)
	}
}

// TestRangeIgnored: a node that answers with the whole object is believed, and its bytes are not read twice.
func TestRangeIgnored(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	tag := f.origin.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	for _, n := range f.nodes {
		n.does(func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			return false
		})
	}
	for _, x := range []struct {
		opts origin.GetOptions
		want int64 // bytes, from 0 on
	}{
		{origin.GetOptions{}, 3 * blockSize},
		{origin.GetOptions{Length: 3 * blockSize, IfMatch: tag}, 3 * blockSize},
		{origin.GetOptions{Length: 10}, 10},
		{origin.GetOptions{Offset: 5, Length: 2 * blockSize}, 3 * blockSize},
	} {
		if r := mustRead(t, c.Origin("bkt"), "k", x.opts); r.Offset != 0 || r.Length != x.want {
			t.Errorf("%+v: %d bytes from %d on", x.opts, r.Length, r.Offset)
		}
	}
}

func TestReadWindow(t *testing.T) {
	const window = 3
	f := newFake(t, 2)
	c := f.client(t, func(l *Config) { l.ReadWindow = window })
	f.origin.Put("bkt", "k", origintest.Object{Size: 20 * blockSize})
	var now, most atomic.Int64
	f.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
		total := int64(0)
		for _, s := range c.Status() {
			total += int64(s.InFlight)
		}
		for m := most.Load(); total > m && !most.CompareAndSwap(m, total); m = most.Load() {
		}
		now.Add(1)
		return nil
	})
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if now.Load() != 20 || most.Load() > window || most.Load() < 2 {
		t.Errorf("%d fetches, up to %d requests in flight", now.Load(), most.Load())
	}
}

// TestUnpinned: what has no strong ETag is read by one request.
func TestUnpinned(t *testing.T) {
	for _, o := range []origintest.Object{{Weak: true}, {NoETag: true}} {
		f := newFake(t, 3)
		c := f.client(t)
		o.Data = origintest.Bytes("weak", 0, 5*blockSize)
		f.origin.Put("bkt", "k", o)
		for _, opts := range []origin.GetOptions{{}, {Offset: 100, Length: 3 * blockSize}, {Length: 10}} {
			r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, opts)
			if err != nil {
				t.Fatal(err)
			}
			p, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			want := o.Data
			if opts.Length > 0 {
				want = o.Data[opts.Offset : opts.Offset+opts.Length]
			}
			if err != nil || !bytes.Equal(p, want) || r.Length != int64(len(want)) {
				t.Errorf("%+v: %d bytes, %v", opts, len(p), err)
			}
		}
		for _, n := range f.nodes {
			for _, r := range n.asked() {
				if r.Header.Get("If-Match") != "" {
					t.Errorf("If-Match: %s", r.Header.Get("If-Match"))
				}
				asked := r.Header.Get("Range")
				if asked != "" && !strings.HasPrefix(asked, "bytes=0-") && !strings.HasPrefix(asked, "bytes=100-") {
					t.Errorf("%s: asked for in parts, which may be of two versions", asked)
				}
			}
		}
	}
}

// TestOverwrittenInMidRead: the rest of a version that is gone is an error, and never another version.
func TestOverwrittenInMidRead(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.ReadWindow = 1 })
	f.Put("bkt", "k", origintest.Object{Size: 8 * blockSize})
	r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p := make([]byte, blockSize)
	if _, err := io.ReadFull(r.Body, p); err != nil {
		t.Fatal(err)
	}
	f.Put("bkt", "k", origintest.Object{Size: 8 * blockSize})
	rest, err := io.ReadAll(r.Body)
	if !errors.Is(err, origin.ErrChanged) {
		t.Errorf("got %v", err)
	}
	if err := origintest.Check(r.Info.ETag, 0, append(p, rest...)); err != nil {
		t.Error(err)
	}
	if n, again := r.Body.Read(p); n != 0 || again != err {
		t.Errorf("then %d, %v", n, again)
	}
}

// TestOverwrittenBehindNodes: of a version that nodes remember and that is gone at the origin one read fails, and the
// next one gets what is there now, long before the nodes' ttl is over.
func TestOverwrittenBehindNodes(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	const size = 6 * blockSize
	for _, opts := range []origin.GetOptions{{}, {Offset: 4*blockSize + 7, Length: size - 4*blockSize - 7}} {
		first := opts.Offset / blockSize
		key := ""
		for i := 0; ; i++ { // whose first unit's owner has no other, by which it would find out
			key = fmt.Sprint("k", i)
			owner := f.ranked(t, c, "bkt", key, first)[0]
			unit := first + 1
			for unit*blockSize < size && f.ranked(t, c, "bkt", key, unit)[0] != owner {
				unit++
			}
			if unit*blockSize == size {
				break
			}
		}
		f.Put("bkt", key, origintest.Object{Size: size})
		old := mustRead(t, c.Origin("bkt"), key, origin.GetOptions{Offset: opts.Offset, Length: 1})
		owner := f.ranked(t, c, "bkt", key, first)[0]
		o, err := owner.engine.Open(t.Context(), gateway.Request{Object: origin.Object{Bucket: "bkt", Key: key}, InfoOnly: true,
			WantChecksums: true}) // so that a HEAD has no reason of its own to ask the origin
		if err != nil {
			t.Fatal(err)
		}
		o.Close()
		tag := f.origin.Put("bkt", key, origintest.Object{Size: size}) // nodes don't hear of it
		began := time.Now()
		r, err := readAll(t.Context(), c.Origin("bkt"), key, opts)
		if !errors.Is(err, origin.ErrChanged) || r.Info.ETag != old.Info.ETag {
			t.Fatalf("%+v: got %v", opts, err)
		}
		for err != nil && time.Since(began) >= confirmFor { // a busy machine: it may have waited in vain, and the next asks again
			began = time.Now()
			_, err = readAll(t.Context(), c.Origin("bkt"), key, opts)
		}
		if r := mustRead(t, c.Origin("bkt"), key, opts); r.Info.ETag != tag {
			t.Errorf("%+v: read of %s, want %s", opts, r.Info.ETag, tag)
		}
	}
}

// TestAge: an answer is as old as the node says.
func TestAge(t *testing.T) {
	f := newFake(t, 1)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 10})
	f.origin.Fail(1, nil, origintest.Fault{Age: 30 * time.Second})
	for range 2 {
		r := mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
		if age := r.Info.Received.Sub(r.Info.Confirmed); age < 30*time.Second || age > 50*time.Second {
			t.Errorf("age %v", age)
		}
		info, err := c.Origin("bkt").Head(t.Context(), origin.Object{Key: "k"}, origin.HeadOptions{})
		if err != nil || time.Since(info.Confirmed) < 30*time.Second {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

// TestCauseOfTheEnd: where whoever asked calls it a timeout, that is what is said.
func TestCauseOfTheEnd(t *testing.T) {
	f := newFake(t, 2)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 400 * blockSize})
	why := fmt.Errorf("%w: of the attempt", origin.ErrTimeout)
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := c.Origin("bkt").Get(ctx, origin.Object{Key: "k"}, origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	cancel(why)
	if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, why) {
		t.Errorf("body: %v", err)
	}
	if _, err := c.Origin("bkt").Get(ctx, origin.Object{Key: "k"}, origin.GetOptions{}); !errors.Is(err, why) {
		t.Errorf("Get: %v", err)
	}
}

// TestCloseOfClient ends reads that are open.
func TestCloseOfClient(t *testing.T) {
	f := newFake(t, 2)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 400 * blockSize})
	r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		t.Error("read to its end")
	}
	_ = r.Body.Close()
	if _, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{}); err == nil {
		t.Error("Get after Close")
	}
}

func TestNamesAndRanges(t *testing.T) {
	f := newFake(t, 1)
	c := f.client(t)
	for _, obj := range []origin.Object{{Bucket: "other", Key: "k"}, {Key: ""}} {
		if _, err := c.Origin("bkt").Get(t.Context(), obj, origin.GetOptions{}); err == nil {
			t.Errorf("%v is read", obj)
		}
		if _, err := c.Origin("bkt").Head(t.Context(), obj, origin.HeadOptions{}); err == nil {
			t.Errorf("%v is read", obj)
		}
	}
	if _, err := c.Origin("").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{}); err == nil {
		t.Error("a key without bucket is read")
	}
	for _, opts := range []origin.GetOptions{{Offset: -1, Length: 1}, {Length: -1}, {Offset: 1}} {
		if _, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, opts); err == nil {
			t.Errorf("%+v is read", opts)
		}
	}
	if n := len(f.nodes[0].asked()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestOwners(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	list, err := c.Owners("bkt", "k", Range{blockSize - 10, blockSize + 20})
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, want := range []struct{ off, n int64 }{{blockSize - 10, 10}, {blockSize, blockSize}, {2 * blockSize, 10}} {
		p := list[i]
		owner := c.Snapshot().Owner(cluster.KeyOf("bkt", "k").Unit(int64(i)))
		if p.Index != int64(i) || p.Offset != want.off || p.Length != want.n || len(p.Nodes) != 3 ||
			p.Nodes[0] != c.Snapshot().Node(owner) {
			t.Errorf("%+v", p)
		}
	}
	for _, r := range []Range{{0, 0}, {-1, 5}, {0, -5}, {0, 1 << 60}} {
		if _, err := c.Owners("bkt", "k", r); err == nil {
			t.Errorf("%v has owners", r)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	nodes := cluster.MembershipConfig{Nodes: []cluster.Node{{ID: "127.0.0.1:1"}}}
	for _, c := range []Config{
		{Credentials: testCredentials},
		{Members: nodes, BlockSize: -1, Credentials: testCredentials},
		{Members: nodes, Credentials: testCredentials, ReadWindow: -1},
		{Members: nodes, Credentials: testCredentials, LoadLimit: -1},
		{Members: nodes, Credentials: s3origin.Credentials{Source: "none such"}},
	} {
		if l, err := New(t.Context(), c); err == nil {
			l.Close()
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestBlockSizeMismatch is logged and counted.
func TestBlockSizeMismatch(t *testing.T) {
	f := newFake(t, 1)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 10})
	for _, size := range []string{"65536", "32768", "", "131072", "7"} {
		f.nodes[0].does(func(w http.ResponseWriter, r *http.Request) bool {
			edit := func(h http.Header) { h.Set("X-Ashlar-Block-Size", size) }
			handlerOf(r).ServeHTTP(&editor{w, edit}, r)
			return true
		})
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	if n := testutil.ToFloat64(c.metrics.blockSize); n != 2 {
		t.Errorf("%v mismatches counted", n)
	}
}

// TestStrangerToItsNodes: a node that holds our key to be any client's is logged, once, and counted.
func TestStrangerToItsNodes(t *testing.T) {
	log := new(bytes.Buffer)
	f := newFake(t, 1)
	c := f.client(t, func(l *Config) { l.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	f.origin.Put("bkt", "k", origintest.Object{Size: 10})
	for _, peer := range []bool{true, false, false, true} {
		f.nodes[0].does(func(w http.ResponseWriter, r *http.Request) bool {
			edit := func(h http.Header) {
				if !peer {
					h.Del("X-Ashlar-Block-Size")
				}
			}
			handlerOf(r).ServeHTTP(&editor{w, edit}, r)
			return true
		})
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	// What is to be confirmed can't be by such a node.
	deaf := func(w http.ResponseWriter, r *http.Request) bool {
		handlerOf(r).ServeHTTP(&editor{w, func(h http.Header) { h.Del("X-Ashlar-Block-Size") }}, r)
		return true
	}
	f3 := newFake(t, 3)
	c3 := f3.client(t)
	f3.origin.Put("bkt", "k", origintest.Object{Size: 10})
	ranked := f3.ranked(t, c3, "bkt", "k", 0)
	ranked[0].does(deaf)
	mustRead(t, c3.Origin("bkt"), "k", origin.GetOptions{NoCache: true})
	if n := len(ranked[1].asked()); n != 1 {
		t.Errorf("the next node was asked %d times", n)
	}
	ranked[1].does(deaf)
	ranked[2].does(deaf)
	_, err := readAll(t.Context(), c3.Origin("bkt"), "k", origin.GetOptions{NoCache: true})
	if !errors.Is(err, errStranger) {
		t.Errorf("no node listens: %v", err)
	}
	mustRead(t, c3.Origin("bkt"), "k", origin.GetOptions{})
	if n := testutil.ToFloat64(c.metrics.strangers); n != 2 || strings.Count(log.String(), "cluster = true") != 1 {
		t.Errorf("%v counted; logged: %s", n, log)
	}
}
