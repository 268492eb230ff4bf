package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// TestWrongCredentialsForTheOrigin: they are warned of at start, and no client takes the origin's answer for one about
// its own signature, or learns whose key we use.
func TestWrongCredentialsForTheOrigin(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		asAdmin(c)
		c.Auth.AnonymousBuckets = []string{"public"}
		c.Origin.Credentials.SecretKey = "not-it"
	})
	n.store.Put("public", "k", []byte("hello"))
	eventually(t, "a warning", func() bool {
		return strings.Contains(n.log.String(), `level=WARN msg="the origin does not accept our credentials`) &&
			strings.Contains(n.log.String(), "code=SignatureDoesNotMatch")
	})
	c := httpClient(t)
	for _, path := range []string{"/public/k", "/public/k?partNumber=1"} { // read from blocks, and forwarded
		code, body := get(t, c, n.s3.url()+path)
		if code != 503 || !strings.Contains(body, "<Code>ServiceUnavailable</Code>") || strings.Contains(body, "AKIA") ||
			strings.Contains(body, "StringToSign") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	resp, err := c.Head(n.s3.url() + "/public/k")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
	if n := strings.Count(n.log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// TestTwoNodesInACircle: two nodes that are each other's origin say so at once, whatever is asked of which of them, and
// when both are asked for one object at a time. The origin's time for an answer is far beyond the client's here.
func TestTwoNodesInACircle(t *testing.T) {
	// The first node's origin is the second, whose port is not known yet: something between them passes on what it is sent.
	second, transport := make(chan *url.URL, 1), new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	between := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		select {
		case to := <-second:
			second <- to
			r.SetURL(to)
		case <-r.In.Context().Done():
		}
	}})
	t.Cleanup(between.Close)
	join := func(origin string) *testNode {
		return newTestNode(t, func(c *Config) {
			c.Origin.Endpoint, c.Origin.Credentials = origin, Credentials{Source: "anonymous"}
			c.Buckets.Fetch.FirstByte, c.Buckets.Fetch.Attempt, c.Buckets.Fetch.Deadline = maxTimeout, maxTimeout, maxTimeout
		})
	}
	b := join(between.URL)
	a := join(b.s3.url())
	to, err := url.Parse(a.s3.url())
	if err != nil {
		t.Fatal(err)
	}
	second <- to
	c := httpClient(t)
	ask := func(method, url string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, n := range []*testNode{a, b} {
		for _, line := range []string{"GET /bucket/k", "HEAD /bucket/k", "GET /bucket", "GET /bucket/k?partNumber=1"} {
			method, path, _ := strings.Cut(line, " ")
			if code := ask(method, n.s3.url()+path); code != http.StatusLoopDetected {
				t.Errorf("%s: %d", line, code)
			}
		}
	}
	var wg sync.WaitGroup
	for range 20 {
		for _, n := range []*testNode{a, b} {
			wg.Go(func() {
				if code := ask("GET", n.s3.url()+"/bucket/both"); code != http.StatusLoopDetected {
					t.Errorf("side by side: %d", code)
				}
			})
		}
	}
	wg.Wait()
}

// TestNodeBehindANode: a chain is no circle, and what is asked for through it is fetched once.
func TestNodeBehindANode(t *testing.T) {
	back := newTestNode(t, nil)
	back.store.Put("bucket", "k", []byte("hello"))
	front := newTestNode(t, func(c *Config) {
		c.Origin.Endpoint, c.Origin.Credentials = back.s3.url(), Credentials{Source: "anonymous"}
	})
	c := httpClient(t)
	for _, n := range []*testNode{front, back, front} {
		if code, body := get(t, c, n.s3.url()+"/bucket/k"); code != 200 || body != "hello" {
			t.Errorf("%d %q", code, body)
		}
	}
	if n := back.store.Counters().ByOperation["GetObject"]; n != 1 {
		t.Errorf("%d GETs at the store", n)
	}
}

// TestAbortedRequestsLeaveNothing: clients that leave at any point, many of them, leave no connection, goroutine or
// request to the origin behind, while that hangs.
func TestAbortedRequestsLeaveNothing(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Auth.AnonymousWrite = true
		c.Buckets.Fetch.FirstByte, c.Buckets.Fetch.Attempt, c.Buckets.Fetch.Deadline = maxTimeout, maxTimeout, maxTimeout
	})
	release := make(chan struct{})
	n.store.Put("bucket", "k", make([]byte, 10*mib))
	n.store.Fault(func(r *http.Request) *devs3.Fault {
		if r.Method != http.MethodGet || r.URL.Path == "/bucket/k" || r.URL.Path == "/" { // the node's look at its origin
			return nil
		}
		return &devs3.Fault{Hold: release}
	})
	eventually(t, "the look at the origin ends", func() bool {
		return strings.Contains(n.log.String(), "credentials for the")
	})
	before := runtime.NumGoroutine()
	requests := []string{
		"", "GET /bucket/k HT", "GET /bucket/k HTTP/1.1\r\nHost: gw\r\n\r\n",
		"GET /bucket?list-type=2 HTTP/1.1\r\nHost: gw\r\n\r\n",
		"PUT /bucket/new HTTP/1.1\r\nHost: gw\r\nContent-Length: 100000\r\n\r\nx",
		"PUT /bucket/new HTTP/1.1\r\nHost: gw\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
		"PUT /bucket/new HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
	}
	for range 40 {
		for _, r := range requests {
			conn, err := net.Dial("tcp", n.s3.addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprint(conn, r)
			_ = conn.Close()
		}
	}
	c := httpClient(t)
	get(t, c, n.s3.url()+"/-/health") // connections are accepted in order: all of the above have been
	c.CloseIdleConnections()
	eventually(t, "all connections are counted out", func() bool { return n.s3.limit.open.Load() == 0 })
	idle := func() bool {
		_, metrics := get(t, c, n.admin.url()+"/metrics")
		return strings.Contains(metrics, "ashlar_requests_in_flight 0\n") &&
			strings.Contains(metrics, "ashlar_origin_requests_in_flight 0\n")
	}
	eventually(t, "all requests end, here and at the origin", idle)
	// Idle connections to the origin have two each, and the store's side of them one; the client to ask for metrics too.
	eventually(t, "their goroutines end", func() bool {
		n.origin.Close() // a connection may have come to be idle since
		c.CloseIdleConnections()
		return runtime.NumGoroutine() <= before+10
	})
	close(release)
}
