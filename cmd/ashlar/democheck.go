package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// checkTime bounds a whole check, which takes two seconds on a machine that has them to itself, and many times that on a
// busy one.
const checkTime = 5 * time.Minute

// checkClients is how many requests a check has under way at once.
const checkClients = 8

// read is one request of a check: a whole object, or a part of it.
type read struct {
	object        sample
	first, length int64
	whole         bool
}

// workload is one row of the table.
type workload struct {
	name  string
	reads []read
}

// workloads returns what a check reads. The 4 KiB ranges are chosen at random, but the same each time.
func (d *demo) workloads() []workload {
	w := []workload{{name: "whole 64 MiB object"}, {name: "4 KiB ranges"}, {name: "small objects"}, {name: "odd keys"},
		{name: "empty object"}}
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range d.bucket {
		if s.kind != sampleTable {
			w[s.kind].reads = append(w[s.kind].reads, read{object: s, length: s.size, whole: true})
			continue
		}
		for range 512 {
			const n = 4096
			w[s.kind].reads = append(w[s.kind].reads, read{object: s, first: random.Int64N(s.size - n + 1), length: n})
		}
	}
	return w
}

// tally is what one pass over a workload cost.
type tally struct {
	took           time.Duration
	bytes          int64
	originRequests int64
	hits           int // answers that needed nothing of the origin, by their X-Ashlar-Cache
	answers        int
}

// check reads every workload twice, through the node and over HTTP as any client would, and prints what it cost. The
// error says what was not as it must be.
func (d *demo) check(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("the check took longer than %v", checkTime))
	defer cancel()
	transport := &http.Transport{MaxIdleConnsPerHost: checkClients, DisableCompression: true}
	defer transport.CloseIdleConnections()

	fmt.Fprintf(w, "%-20s  %8s  %s\n", "", "", strings.Repeat("-", 12)+" first read "+strings.Repeat("-", 12)+
		"  "+strings.Repeat("-", 11)+" second read "+strings.Repeat("-", 12))
	fmt.Fprintf(w, "%-20s  %8s  %8s %10s %9s %6s  %8s %10s %9s %6s\n", "", "requests",
		"time", "bytes", "origin", "hits", "time", "bytes", "origin", "hits")
	var bytes int64
	var wrong []error
	for _, load := range d.workloads() {
		first, err := d.pass(ctx, transport, d.node, load, nil)
		second, err2 := d.pass(ctx, transport, d.node, load, nil)
		fmt.Fprintf(w, "%-20s  %8d  %v  %v\n", load.name, len(load.reads), first, second)
		bytes += first.bytes + second.bytes
		if err = cmp.Or(err, err2); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", load.name, err))
		} else if second.originRequests > 0 {
			wrong = append(wrong, fmt.Errorf("%s: the second read made %d requests to the origin, want none", load.name,
				second.originRequests))
		}
	}
	if len(wrong) == 0 {
		n, err := d.checkCluster(ctx, transport, w)
		if bytes += n; err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("demo --check failed:\n%w", err)
	}
	fmt.Fprintf(w, "\n%s read in all, every byte as it must be.\n", amount(bytes))
	return nil
}

// String is the columns of one pass.
func (t tally) String() string {
	return fmt.Sprintf("%8s %10s %9d %6s", fmt.Sprintf("%d ms", t.took.Milliseconds()), amount(t.bytes), t.originRequests,
		fmt.Sprintf("%d %%", 100*t.hits/max(t.answers, 1)))
}

// pass makes all reads of a workload through a gateway, and verifies their bytes. then, if not nil, is called when some
// reads have been answered and others are under way.
func (d *demo) pass(ctx context.Context, transport *http.Transport, gateway *node, load workload, then func()) (tally, error) {
	before, began := d.originReads(), time.Now()
	var t tally
	var mu sync.Mutex
	var g errgroup.Group // the first error of several; the other reads go on
	g.SetLimit(checkClients)
	for _, r := range load.reads {
		g.Go(func() error {
			n, hit, err := r.do(ctx, transport, gateway.s3.url())
			mu.Lock()
			defer mu.Unlock()
			t.bytes += n
			t.answers++
			if t.answers == thenAfter && then != nil {
				then()
			}
			if hit {
				t.hits++
			}
			if err != nil {
				return fmt.Errorf("%q: %w", r.object.key, err)
			}
			return nil
		})
	}
	err := g.Wait()
	t.took = time.Since(began)
	t.originRequests = d.originReads() - before
	return t, err
}

// thenAfter is after how many answers.
const thenAfter = 20

// do makes one read and compares each byte with what the object must hold.
func (r read) do(ctx context.Context, transport *http.Transport, endpoint string) (n int64, hit bool, err error) {
	last, status := r.first+r.length-1, http.StatusPartialContent
	if r.whole {
		last, status = -1, http.StatusOK
	}
	req, err := signedGet(ctx, endpoint, demoBucket, r.object.key, r.first, last)
	if err != nil {
		return 0, false, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, false, errors.Join(err, context.Cause(ctx))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != status {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return 0, false, fmt.Errorf("status %s, want %d: %s", resp.Status, status, body)
	}
	if resp.ContentLength != r.length {
		return 0, false, fmt.Errorf("a body of %d bytes is announced, want %d", resp.ContentLength, r.length)
	}
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for n < r.length {
		piece := min(r.length-n, int64(len(got)))
		m, err := io.ReadFull(resp.Body, got[:piece])
		devs3.Generate(want[:m], r.first+n, r.object.seed)
		if !bytes.Equal(got[:m], want[:m]) {
			return n, false, fmt.Errorf("wrong bytes between %d and %d of the object", r.first+n, r.first+n+int64(m))
		}
		n += int64(m)
		if err != nil {
			return n, false, fmt.Errorf("body cut short at %d of %d bytes: %w", n, r.length, err)
		}
	}
	return n, strings.HasPrefix(resp.Header.Get("X-Ashlar-Cache"), "hit"), nil
}

// originReads returns how many requests for objects the origin has had so far.
func (d *demo) originReads() int64 {
	n := d.store.Counters().ByOperation
	return n["GetObject"] + n["HeadObject"]
}
