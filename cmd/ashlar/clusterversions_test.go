package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/origin"
)

// TestGatewayNoTurningBack: nodes may remember different versions of an object, and who reads parts of it that they own
// in turn is never told the older one after the newer.
func TestGatewayNoTurningBack(t *testing.T) {
	tc := newTestCluster(t, time.Hour, func(c *Config) { c.Buckets.Consistency.TTL, c.Buckets.Readahead = 0, 0 })
	c := httpClient(t)
	const unit = 64 << 10
	part := func(i int) byte {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, tc.s3.url()+"/bucket/k", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", i*unit, i*unit+9))
		code, body := do(t, c, r)
		if code != 206 || len(body) != 10 {
			t.Fatal(code, body)
		}
		return body[0]
	}
	const units = 12
	owners, err := tc.cluster.Owners("bucket", "k", client.Range{Length: units * unit})
	if err != nil {
		t.Fatal(err)
	}
	tc.store.Put("bucket", "k", bytes.Repeat([]byte{'a'}, units*unit))
	for i := range units { // so that all nodes know of it
		if got := part(i); got != 'a' {
			t.Fatalf("%c", got)
		}
	}
	tc.store.Put("bucket", "k", bytes.Repeat([]byte{'b'}, units*unit))
	first := owners[0].Nodes[0]
	for _, n := range tc.nodes { // one of them comes to know of it
		if n.s3.addr().String() == first.Addr {
			n.gateway.Invalidate(origin.Object{Bucket: "bucket", Key: "k"})
		}
	}
	for i := range units {
		if got := part(i); got != 'b' {
			t.Errorf("part %d is of version %c after part 0 was of b", i, got)
		}
	}

	// Nor that there is an object after it was told that there is none.
	tc.store.Put("bucket", "gone", bytes.Repeat([]byte{'a'}, units*unit))
	code := func(i int) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, tc.s3.url()+"/bucket/gone", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", i*unit, i*unit+9))
		code, _ := do(t, c, r)
		return code
	}
	for i := range units {
		if got := code(i); got != 206 {
			t.Fatal(got)
		}
	}
	if owners, err = tc.cluster.Owners("bucket", "gone", client.Range{Length: units * unit}); err != nil {
		t.Fatal(err)
	}
	for _, n := range tc.nodes {
		if n.s3.addr().String() == owners[0].Nodes[0].Addr {
			n.gateway.Invalidate(origin.Object{Bucket: "bucket", Key: "gone"})
		}
	}
	if err := tc.store.Delete("bucket", "gone"); err != nil {
		t.Fatal(err)
	}
	for i := range units {
		if got := code(i); got != 404 {
			t.Errorf("part %d is answered by %d after part 0 was by 404", i, got)
		}
	}
}

// TestGatewayTellsStale: what nodes answer by because they can't ask the origin is called so at the gateway too.
func TestGatewayTellsStale(t *testing.T) {
	tc := newTestCluster(t, 100*time.Millisecond, nil)
	tc.store.Put("bucket", "k", []byte("hello"))
	c := httpClient(t)
	code, _ := get(t, c, tc.s3.url()+"/bucket/k")
	if code != 200 {
		t.Fatal(code)
	}
	tc.store.Fault(func(*http.Request) *devs3.Fault { return &devs3.Fault{Status: 500} })
	for _, x := range []struct{ method, header, value string }{
		{method: "GET"}, {method: "HEAD"}, {"GET", "If-None-Match", "*"},
	} {
		r, err := http.NewRequest(x.method, tc.s3.url()+"/bucket/k", nil)
		if err != nil {
			t.Fatal(err)
		}
		if x.header != "" {
			r.Header.Set(x.header, x.value)
		}
		eventually(t, fmt.Sprint(x, " is answered as stale"), func() bool {
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 200 && resp.StatusCode != 304 {
				t.Fatal(x, resp.StatusCode)
			}
			return strings.HasPrefix(resp.Header.Get("X-Ashlar-Cache"), "stale")
		})
	}
	if n := metric(t, tc.registry, "ashlar_stale_reads_total"); n == 0 {
		t.Error("no stale read is counted")
	}
	tc.store.Fault(nil)
	eventually(t, "the origin is asked again", func() bool {
		resp, err := c.Get(tc.s3.url() + "/bucket/k")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200 && !strings.HasPrefix(resp.Header.Get("X-Ashlar-Cache"), "stale")
	})
}
