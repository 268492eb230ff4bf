package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// testNode is a node on free ports in front of a store, with everything at debug level in a log.
type testNode struct {
	*node
	store *devs3.Server
	log   *syncBuffer
}

// newTestNode starts a node, without hedging, since tests count requests on machines that may be busy; change, if not
// nil, has the last word on its configuration.
func newTestNode(t *testing.T, change func(*Config)) *testNode {
	t.Helper()
	store := devs3.New(devs3.Config{Keys: map[string]string{"AKIAORIGIN": "s3cr3t-of-origin"}})
	origin := httptest.NewServer(store)
	t.Cleanup(origin.Close)
	tn := &testNode{store: store, log: new(syncBuffer)}
	c := defaults()
	c.Server.Listen, c.Server.Admin, c.Server.AccessLog = "127.0.0.1:0", "127.0.0.1:0", true
	c.Origin.Endpoint = origin.URL
	c.Origin.Credentials = Credentials{Source: "static", AccessKey: "AKIAORIGIN", SecretKey: "s3cr3t-of-origin"}
	c.Cache.Memory = 64 * mib
	c.Buckets.Fetch.Hedge.Factor = 0
	c.Server.Drain = Duration(patience)
	if change != nil {
		change(c)
	}
	s := newSources("test.toml")
	c.validate(s)
	c.resolve(s)
	if ps := s.done(); len(ps) > 0 {
		t.Fatal(ps)
	}
	var err error
	tn.node, err = startNode(t.Context(), c, newLogger(tn.log, Log{Level: "debug", Format: "text"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tn.stop)
	return tn
}

// testDisk is a disk tier of 32 MiB.
func testDisk(dir string) Disk {
	return Disk{Path: dir, Capacity: 32 * mib, RegionSize: 4 * mib, Recover: "quiet"}
}

// nobody is where nobody listens. A port that was free a moment ago may be anybody's by now.
const nobody = "127.0.0.1:1"

// patience is what tests wait at most for what does come, on a machine that does much else.
const patience = 2 * time.Minute

// httpClient is an HTTP client that leaves nothing behind.
func httpClient(t *testing.T) *http.Client {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// oneConn sends requests by one connection. http.Transport makes another one where it comes to hold, by the time that
// something took, that the first is better not used again, so by it a test can't see whether a server has closed one.
type oneConn struct {
	net.Conn
	r *bufio.Reader
}

// newOneConn returns a client that has one connection and never another.
func newOneConn(t *testing.T, c net.Conn, err error) *http.Client {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &oneConn{c, bufio.NewReader(c)}}
}

// RoundTrip implements http.RoundTripper. The body before must have been read.
func (c *oneConn) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Write(c); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, r)
}

// get returns status and body of a GET.
func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, c, r)
}

// do returns status and body of the answer to a request.
func do(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// eventually polls a condition that another goroutine brings about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// refuses waits until connections to an address are refused: at once, unless another process has the port meanwhile.
func refuses(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func TestNodeServes(t *testing.T) {
	n := newTestNode(t, nil)
	n.store.Put("bucket", "k", []byte("hello"))
	c := httpClient(t)
	for range 2 {
		if code, body := get(t, c, n.s3.url()+"/bucket/k"); code != 200 || body != "hello" {
			t.Errorf("%d %q", code, body)
		}
	}
	if got := n.store.Counters().ByOperation["GetObject"]; got != 1 {
		t.Errorf("%d origin GETs for two reads, want 1", got)
	}
	for _, base := range []string{n.s3.url(), n.admin.url()} {
		for _, path := range []string{"/-/health", "/-/ready"} {
			if code, _ := get(t, c, base+path); code != 200 {
				t.Errorf("%s%s: %d", base, path, code)
			}
		}
	}
	code, metrics := get(t, c, n.admin.url()+"/metrics")
	for _, name := range []string{"ashlar_build_info{", "go_goroutines ", "process_resident_memory_bytes ",
		`ashlar_blocks_total{source="origin"} 1`, `ashlar_blocks_total{source="memory"} 1`,
		"ashlar_memory_limit_bytes 6.7108864e+07", "ashlar_origin_"} {
		if code != 200 || !strings.Contains(metrics, name) {
			t.Errorf("/metrics, %d, lacks %s", code, name)
		}
	}
	if code, _ := get(t, c, n.admin.url()+"/debug/pprof/cmdline"); code != 200 {
		t.Errorf("pprof on loopback: %d", code)
	}
	if code, _ := get(t, c, n.admin.url()+"/bucket/k"); code != 404 {
		t.Errorf("an object on the admin listener: %d", code)
	}
}

func TestNoProfilesBeyondLoopback(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Server.Admin = "0.0.0.0:0" })
	c := httpClient(t)
	if code, _ := get(t, c, n.admin.url()+"/debug/pprof/"); code != 404 {
		t.Errorf("pprof: %d, want 404", code)
	}
	if code, _ := get(t, c, n.admin.url()+"/metrics"); code != 200 {
		t.Errorf("metrics: %d", code)
	}
}

func TestNoAdminListener(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Server.Admin = "" })
	if code, _ := get(t, httpClient(t), n.s3.url()+"/-/ready"); code != 200 {
		t.Errorf("ready: %d", code)
	}
}

// TestOriginDownAtStart: an origin that can't be reached is a warning; the node is ready, and fails reads plainly.
func TestOriginDownAtStart(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Origin.Endpoint = "http://" + nobody })
	eventually(t, "a warning", func() bool {
		return strings.Contains(n.log.String(), `level=WARN msg="the origin can't be reached`)
	})
	if !n.origin.failing.Load() {
		t.Error("nothing will be told when the origin comes up")
	}
	c := httpClient(t)
	if code, _ := get(t, c, n.admin.url()+"/-/ready"); code != 200 {
		t.Errorf("ready: %d", code)
	}
	if code, _ := get(t, c, n.s3.url()+"/bucket/k"); code < 500 {
		t.Errorf("a read: %d", code)
	}
}

// TestEndpointOfTheEnvironmentIsIgnored: AWS_ENDPOINT_URL is what clients of the node set, and would lead it to itself.
func TestEndpointOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAORIGIN")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-of-origin")
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_PROFILE", "")
	n := newTestNode(t, func(c *Config) { c.Origin.Credentials = Credentials{Source: "default"} })
	n.store.Put("bucket", "k", []byte("hello"))
	if code, body := get(t, httpClient(t), n.s3.url()+"/bucket/k"); code != 200 || body != "hello" {
		t.Errorf("%d %q", code, body)
	}
}

// TestShutdown is P12: readiness fails first, then the listener closes, then a response under way finishes, whole; the
// admin listener tells of it until the end.
func TestShutdown(t *testing.T) {
	n := newTestNode(t, nil)
	const size = 48 << 20 // more than the sockets hold, so that the response is under way until it is read
	n.store.PutGenerated("bucket", "k", size, 1)
	c := httpClient(t)
	resp, err := c.Get(n.s3.url() + "/bucket/k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()

	// Between the step that fails readiness and the one that closes the listener, it still answers, and says no.
	names := make([]string, len(n.stops))
	for i := range n.stops {
		names[i] = n.stops[i].name
	}
	order := []string{"origin", "memory", "gateway", "admin listener", "S3 listener", "readiness", "look at the origin"}
	if !slices.Equal(names, order) {
		t.Errorf("started %v, want %v; stop goes the other way", names, order)
	}
	readiness := slices.Index(names, "readiness")
	n.stops = slices.Insert(n.stops, readiness, step{"test", func() {
		if code, _ := get(t, c, n.s3.url()+"/-/ready"); code != 503 {
			t.Errorf("ready on the S3 listener, before it closes: %d, want 503", code)
		}
		if code, _ := get(t, c, n.s3.url()+"/-/health"); code != 200 {
			t.Errorf("health on the S3 listener, before it closes: %d, want 200", code)
		}
	}})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		n.stop()
	}()
	refuses(t, n.s3.addr().String())
	if code, _ := get(t, c, n.admin.url()+"/-/ready"); code != 503 {
		t.Errorf("ready on the admin listener, while responses finish: %d, want 503", code)
	}
	select {
	case <-stopped:
		t.Fatal("stopped with a response under way")
	default:
	}

	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < size; off += int64(len(got)) {
		if _, err := io.ReadFull(resp.Body, got); err != nil {
			t.Fatalf("the response under way broke at %d: %v", off, err)
		}
		if devs3.Generate(want, off, 1); !bytes.Equal(got, want) {
			t.Fatalf("wrong bytes at %d", off)
		}
	}
	<-stopped
	refuses(t, n.admin.addr().String())
}

// TestDrainIsBounded: who does not read is cut off after server.drain, and sees that the body is short.
func TestDrainIsBounded(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Server.Drain = Duration(20 * time.Millisecond) })
	const size = 48 << 20
	n.store.PutGenerated("bucket", "k", size, 1)
	resp, err := httpClient(t).Get(n.s3.url() + "/bucket/k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	n.stop()
	if got, err := io.Copy(io.Discard, resp.Body); err == nil || got >= size {
		t.Errorf("read %d bytes, %v; want an error before %d", got, err, size)
	}
	if !strings.Contains(n.log.String(), "did not finish in time") {
		t.Error("no warning of the cut")
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, key := range []string{"listen", "admin"} {
		other := map[string]string{"listen": "admin", "admin": "listen"}[key]
		file := writeFile(t, "a.toml", fmt.Sprintf("[server]\n%s = %q\n%s = \"127.0.0.1:0\"\n[cache]\nmemory = \"64 MiB\"\n"+
			"[origin]\nendpoint = \"http://127.0.0.1:1\"\ncredentials = { source = \"anonymous\" }\n", key, l.Addr(), other))
		code, _, stderr := runFor(t.Context(), "serve", "--config", file)
		for _, part := range []string{"ashlar: server." + key + ": cannot listen on " + l.Addr().String() + ": ",
			"the port is in use", ":" + port, envName("server." + key)} {
			if code != exitFailed || !strings.Contains(stderr, part) {
				t.Errorf("code %d, %q, want 1 and %q", code, stderr, part)
			}
		}
	}
}

// TestServeUntilCancelled runs the command itself, from file to exit code.
func TestServeUntilCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := writeFile(t, "a.toml", "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n"+
		"[cache]\nmemory = \"64 MiB\"\n"+
		"[origin]\nendpoint = \"http://127.0.0.1:1\"\ncredentials = { source = \"anonymous\" }\n[log]\nformat = \"json\"\n")
	t.Setenv("GOMEMLIMIT", "off")
	var log syncBuffer
	done := make(chan int)
	go func() { done <- run(ctx, []string{"serve", "--config", file}, nil, io.Discard, &log) }()
	eventually(t, "serving", func() bool { return strings.Contains(log.String(), `"msg":"serving"`) })
	cancel()
	if code := <-done; code != exitOK || !strings.Contains(log.String(), `"msg":"stopped"`) {
		t.Errorf("code %d, log %s", code, log.String())
	}
}

// TestNoSecretsInLogs makes good and bad requests of every kind and searches the log, at its most talkative.
func TestNoSecretsInLogs(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Auth.Mode = "static"
		k := newAuthKey()
		k.AccessKey, k.SecretKey, k.Write = demoAccessKey, demoSecretKey, true
		c.Auth.Keys = []AuthKey{k}
	})
	n.store.Put(demoBucket, "k", []byte("hello"))
	c := httpClient(t)
	var secrets []string
	do := func(r *http.Request, want int) {
		t.Helper()
		if _, sig, ok := strings.Cut(r.Header.Get("Authorization"), "Signature="); ok {
			secrets = append(secrets, sig)
		}
		if sig := r.URL.Query().Get("X-Amz-Signature"); sig != "" {
			secrets = append(secrets, sig)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s %s: %d, want %d", r.Method, r.URL.Path, resp.StatusCode, want)
		}
	}
	signed := func(key string) *http.Request {
		r, err := signedGet(t.Context(), n.s3.url(), demoBucket, key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	do(signed("k"), 200)
	do(signed("missing"), 404)
	spoiled := signed("k")
	auth := spoiled.Header.Get("Authorization")
	spoiled.Header.Set("Authorization", auth[:len(auth)-4]+"0000")
	do(spoiled, 403)
	url, err := presign(n.s3.url(), demoBucket, "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{url, url + "0", strings.Replace(url, "X-Amz-Expires=604800", "X-Amz-Expires=604800x", 1)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		do(r, map[bool]int{true: 200, false: 403 - 3*strings.Count(u, "x&")}[u == url])
	}
	n.store.Fault(func(*http.Request) *devs3.Fault { return &devs3.Fault{Status: 503} })
	do(signed("forwarded?acl"), 503)
	n.stop()
	log := n.log.String()
	for _, s := range append(secrets, demoSecretKey, "s3cr3t-of-origin", "Signature=", "AWS4-HMAC") {
		if strings.Contains(log, s) {
			t.Errorf("%q is in the log:\n%s", s, log)
		}
	}
	if len(secrets) < 5 || !strings.Contains(log, demoAccessKey) && !strings.Contains(log, "status=200") {
		t.Errorf("%d signatures, log:\n%s", len(secrets), log)
	}
}

// What a node had on disk is there after a restart, and what it knew of the objects too: nothing is asked of the origin.
func TestRestartWithDisk(t *testing.T) {
	dir := t.TempDir()
	first := newTestNode(t, func(c *Config) { c.Cache.Disk = testDisk(dir) })
	body := strings.Repeat("0123456789abcdef", 3<<16) // 3 MiB
	for i := range 5 {
		first.store.Put("bucket", fmt.Sprint(i), []byte(body[i:]))
	}
	read := func(n *testNode, want string) {
		t.Helper()
		for i := range 5 {
			r, err := httpClient(t).Get(fmt.Sprintf("%s/bucket/%d", n.s3.url(), i))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.StatusCode != 200 || string(got) != body[i:] {
				t.Fatalf("object %d: %d, %d bytes, %v", i, r.StatusCode, len(got), err)
			}
			if h := r.Header.Get("X-Ashlar-Cache"); !strings.HasPrefix(h, want) {
				t.Errorf("object %d: %s, want %s", i, h, want)
			}
		}
	}
	read(first, "miss")
	first.stop()
	first.store.ResetCounters()
	second := newTestNode(t, func(c *Config) {
		c.Cache.Disk, c.Origin.Endpoint = testDisk(dir), first.config.Origin.Endpoint
	})
	eventually(t, "recovery", func() bool { return second.disk.Stats().Blocks >= 15 })
	read(second, "hit")
	if n := first.store.Counters().Objects; len(n) > 0 {
		t.Errorf("requests to the origin after the restart: %q", first.store.Log())
	}
	second.stop()

	// Somebody else's directory, and one that another process has.
	third := newTestNode(t, func(c *Config) { c.Cache.Disk = testDisk(dir) })
	c := *third.config
	if _, err := startNode(t.Context(), &c, newLogger(io.Discard, Log{Level: "error", Format: "text"})); err == nil ||
		!errors.As(err, new(inputError)) || !strings.Contains(err.Error(), dir) {
		t.Errorf("two nodes on one directory: %v", err)
	}
}

// A write that is still under way when the node stops may take effect when nobody can forget what it changes. So what was
// known is not trusted by the next process.
func TestStopDuringWrite(t *testing.T) {
	dir := t.TempDir()
	first := newTestNode(t, func(c *Config) {
		c.Cache.Disk, c.Server.Drain = testDisk(dir), Duration(20*time.Millisecond)
		c.Auth.AnonymousWrite = true
		c.Buckets.Consistency.Mode = "immutable"
	})
	first.s3.grace = 20 * time.Millisecond
	first.store.Put("bucket", "k", bytes.Repeat([]byte("old"), 1000))
	get(t, httpClient(t), first.s3.url()+"/bucket/k")
	begun, finish := make(chan struct{}), make(chan struct{})
	first.store.Fault(func(r *http.Request) *devs3.Fault {
		if r.Method == http.MethodDelete {
			close(begun)
			<-finish
		}
		return nil
	})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r, _ := http.NewRequest(http.MethodDelete, first.s3.url()+"/bucket/k", nil)
		if resp, err := httpClient(t).Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-begun
	first.stop()
	if err := first.store.Delete("bucket", "k"); err != nil { // what the origin comes to do
		t.Fatal(err)
	}
	close(finish)
	<-gone
	second := newTestNode(t, func(c *Config) {
		c.Cache.Disk, c.Origin.Endpoint = testDisk(dir), first.config.Origin.Endpoint
		c.Buckets.Consistency.Mode = "immutable"
	})
	if code, body := get(t, httpClient(t), second.s3.url()+"/bucket/k"); code != http.StatusNotFound {
		t.Errorf("%d, %d bytes of what was deleted", code, len(body))
	}
}

func TestPolicies(t *testing.T) {
	c, err := load(t, "[buckets]\nread_window = 5\n[[bucket]]\nname = \"a*\"\nblock_size = \"2 MiB\"\n"+
		"[[bucket]]\nname = \"ab\"\nblock_size = \"4 MiB\"\n[[bucket]]\nname = \"c?\"\nconsistency.mode = \"immutable\"\n")
	if err != nil {
		t.Fatal(err)
	}
	policy := c.policies()
	for bucket, want := range map[string]int64{"a": 2 << 20, "ab": 2 << 20, "c": 1 << 20, "cc": 1 << 20, "x": 1 << 20} {
		p := policy(bucket)
		if p.BlockSize != want || p.ReadWindow != 5 || p.FetchWindow != 8 || p.Immutable != (bucket == "cc") ||
			p.TTL != time.Minute || p.Fetch.FirstByte != 5*time.Second || p.Fetch.Attempt != 30*time.Second || p.PopulateMax != 16<<20 {
			t.Errorf("%s: %+v", bucket, p)
		}
	}
	other, err := load(t, "[buckets]\nnegative_ttl = \"7s\"\nstale_if_error = \"3m\"\npopulate_max = \"1 MiB\"\nreadahead = 9\n"+
		"fetch_window = 3\nconsistency.ttl = \"9s\"\n[buckets.fetch]\nattempts = 2\nbackoff = \"1s\"\nbackoff_max = \"3s\"\n"+
		"first_byte = \"4s\"\nattempt = \"5s\"\ndeadline = \"6s\"\nhedge = { factor = 2.0, min = \"1ms\", max = \"1s\" }\n")
	if err != nil {
		t.Fatal(err)
	}
	want := gateway.Policy{BlockSize: 1 << 20, FetchWindow: 3, ReadWindow: 16, Readahead: 9, TTL: 9 * time.Second,
		NegativeTTL: 7 * time.Second, StaleIfError: 3 * time.Minute, PopulateMax: 1 << 20, Fetch: gateway.Fetch{Attempts: 2,
			Backoff: time.Second, BackoffMax: 3 * time.Second, FirstByte: 4 * time.Second, Attempt: 5 * time.Second,
			Deadline: 6 * time.Second, Hedge: gateway.Hedge{Factor: 2, Min: time.Millisecond, Max: time.Second}}}
	if p := other.policies()("x"); *p != want {
		t.Errorf("got %+v, want %+v", *p, want)
	}
	if p := policy("x"); p.Readahead != 64 || p.StaleIfError != time.Hour || p.NegativeTTL != 0 || p.Fetch != (gateway.Fetch{
		Attempts: 3, Backoff: 50 * time.Millisecond, BackoffMax: 2 * time.Second, FirstByte: 5 * time.Second,
		Attempt: 30 * time.Second, Deadline: time.Minute,
		Hedge: gateway.Hedge{Factor: 3, Min: 50 * time.Millisecond, Max: 2 * time.Second},
	}) {
		t.Errorf("the default is %+v", p)
	}
	if c.largestBlock() != 4*mib {
		t.Errorf("largest block: %v", c.largestBlock())
	}
	if n := testing.AllocsPerRun(100, func() { policy("cc") }); n != 0 {
		t.Errorf("%v allocations per look-up", n)
	}
}

func TestHeapLimit(t *testing.T) {
	for _, tc := range []struct{ memory, info, want Size }{
		{256 * mib, 64 * mib, 112 * mib},
		{4 * gib, 64 * mib, 1072 * mib},
		{64 * mib, 64 * mib, 112 * mib}, // info asks for more than the formula leaves
		{64 * mib, 8 * mib, 64 * mib},
	} {
		c := defaults()
		c.Cache.Memory, c.Cache.InfoMemory = tc.memory, tc.info
		if got := Size(c.heapLimit()); got != tc.want {
			t.Errorf("memory %v, info %v: %v, want %v", tc.memory, tc.info, got, tc.want)
		}
	}
}

// BenchmarkStart is the time until clients can connect, and back down.
func BenchmarkStart(b *testing.B) {
	c := defaults()
	c.Server.Listen, c.Server.Admin, c.Origin.Endpoint = "127.0.0.1:0", "127.0.0.1:0", "http://127.0.0.1:1"
	c.Origin.Credentials.Source = "anonymous"
	for b.Loop() {
		n, err := startNode(b.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		n.stop()
	}
}
