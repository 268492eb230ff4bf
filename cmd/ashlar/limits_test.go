package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/s3api"
)

// TestTooManyConnections: beyond the limit, connections are accepted, told to slow down, and closed; those that there are
// go on, and one that ends makes room. The admin listener has a limit of its own.
func TestTooManyConnections(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Server.Limits.MaxConnections = 2 })
	n.store.Put("bucket", "k", []byte("hello"))
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", n.s3.addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn) (*http.Response, string) {
		t.Helper()
		_, _ = io.WriteString(c, "GET /bucket/k HTTP/1.1\r\nHost: gw\r\n\r\n") // may be closed already
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	one, two := dial(), dial()
	for _, c := range []net.Conn{one, two} {
		if resp, body := ask(c); resp.StatusCode != 200 || body != "hello" {
			t.Fatalf("%d %q", resp.StatusCode, body)
		}
	}
	for range 3 {
		resp, body := ask(dial())
		if resp.StatusCode != 503 || !strings.Contains(body, "<Code>SlowDown</Code>") || resp.Header.Get("Retry-After") == "" ||
			!resp.Close {
			t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
		}
	}
	_, metrics := get(t, httpClient(t), n.admin.url()+"/metrics")
	for _, line := range []string{`ashlar_connections{listener="server.listen"} 2`,
		`ashlar_connections_shed_total{listener="server.listen"} 3`, `ashlar_connections_shed_total{listener="server.admin"} 0`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	if resp, _ := ask(one); resp.StatusCode != 200 {
		t.Errorf("a connection that there was: %d", resp.StatusCode)
	}
	_ = two.Close()
	eventually(t, "a connection is counted out", func() bool { return n.s3.limit.open.Load() == 1 })
	if resp, _ := ask(dial()); resp.StatusCode != 200 {
		t.Errorf("with room again: %d", resp.StatusCode)
	}
}

// TestRefusalIsNotReset: what the client of a refused connection sends is read before the connection is closed. With
// unread bytes it would be reset, and the answer might be lost.
func TestRefusalIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still meanwhile: there is a second for all of it
		client, conn := net.Pipe()
		defer func() { _ = client.Close() }()
		go refuse(conn)
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("X-Ashlar-Error") != "node" { // so gateways ask the next
			t.Fatalf("%+v, %v", resp, err)
		}
		if _, err := io.WriteString(client, "GET /bucket/k HTTP/1.1\r\nHost: gw\r\n\r\n"); err != nil {
			t.Error(err)
		}
	})
}

// TestTooManyConnectionsOverTLS: a handshake is what costs most, so none is made.
func TestTooManyConnectionsOverTLS(t *testing.T) {
	ca := newTestCA(t)
	n := newTestNode(t, func(c *Config) {
		c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t)
		c.Server.Limits.MaxConnections = 1
	})
	dialed, err := tls.Dial("tcp", n.s3.addr().String(), &tls.Config{RootCAs: ca.pool})
	kept := newOneConn(t, dialed, err)
	if code, _ := get(t, kept, n.s3.url()+"/-/health"); code != 200 {
		t.Fatal(code)
	}
	conn, err := net.Dial("tcp", n.s3.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if code, _ := get(t, kept, n.s3.url()+"/-/health"); code != 200 {
		t.Error(code)
	}
}

// TestLimitsReachRequests: what is configured is what is kept.
func TestLimitsReachRequests(t *testing.T) {
	l := Limits{MaxConnections: 1, MaxRequests: 2, MaxHeader: 3, MaxHeaderCount: 4, MinRate: 5}
	if got, want := l.ofRequests(), (s3api.Limits{Requests: 2, Headers: 4, MinRate: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// A node keeps them: with one request under way, the next one has to wait outside.
	n := newTestNode(t, func(c *Config) { c.Server.Limits.MaxRequests = 1 })
	began, release := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	n.store.Fault(func(r *http.Request) *devs3.Fault {
		if r.URL.Path == "/bucket/slow" {
			begin()
			<-release
		}
		return nil
	})
	c, done := httpClient(t), make(chan int)
	go func() {
		resp, err := c.Get(n.s3.url() + "/bucket/slow")
		if err != nil {
			done <- 0
			return
		}
		_ = resp.Body.Close()
		done <- resp.StatusCode
	}()
	<-began
	if code, body := get(t, c, n.s3.url()+"/bucket/k"); code != 503 || !strings.Contains(body, "SlowDown") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(t, c, n.s3.url()+"/-/health"); code != 200 {
		t.Errorf("health: %d", code)
	}
	close(release)
	if code := <-done; code != 404 {
		t.Errorf("the request under way: %d", code)
	}
}

// TestAnonymousBucketsOfANode: they are open to everyone, and the others are not.
func TestAnonymousBucketsOfANode(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		asAdmin(c)
		c.Auth.AnonymousBuckets = []string{"public-?"}
	})
	for bucket, want := range map[string]int{"public-1": 200, "public-10": 403, demoBucket: 403} {
		n.store.Put(bucket, "k", []byte("hello"))
		if code, body := get(t, httpClient(t), n.s3.url()+"/"+bucket+"/k"); code != want {
			t.Errorf("%s: %d %s", bucket, code, body)
		}
	}
}

// TestHeadersAreBounded: in bytes and in lines.
func TestHeadersAreBounded(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Server.Limits.MaxHeader, c.Server.Limits.MaxHeaderCount = 8*kib, 20
	})
	n.store.Put("bucket", "k", []byte("hello"))
	c := httpClient(t)
	ask := func(change func(http.Header)) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.s3.url()+"/bucket/k", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r.Header)
		code, _ := do(t, c, r)
		return code
	}
	if code := ask(func(h http.Header) { h.Set("X-Long", strings.Repeat("x", 7<<10)) }); code != 200 {
		t.Errorf("7 KiB: %d", code)
	}
	if code := ask(func(h http.Header) { h.Set("X-Long", strings.Repeat("x", 17<<10)) }); code != 431 {
		t.Errorf("17 KiB: %d", code)
	}
	if code := ask(func(h http.Header) {
		for i := range 21 {
			h.Set(fmt.Sprint("X-", i), "x")
		}
	}); code != 400 {
		t.Errorf("21 lines: %d", code)
	}
}

// TestSlowHeaders: a header that doesn't come to its end in time gets no more of it, on both listeners, and a connection
// that asks for nothing is closed.
func TestSlowHeaders(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Server.Limits.ReadHeaderTimeout, c.Server.Limits.IdleTimeout = minTimeout, minTimeout
	})
	for _, s := range []*server{n.s3, n.admin} {
		if s.http.ReadHeaderTimeout != time.Duration(minTimeout) || s.http.IdleTimeout != time.Duration(minTimeout) {
			t.Errorf("%s: %+v", s.key, s.http)
		}
	}
	for _, began := range []string{"", "GET /bucket/k HT", "GET /bucket/k HTTP/1.1\r\nHost: gw\r\nX-"} {
		synctest.Test(t, func(t *testing.T) {
			e := endpoint{key: "server.listen", addr: "127.0.0.1:0", limits: n.config.Server.Limits}
			s, p := listenInMemory(t, e, http.NotFoundHandler())
			defer s.close()
			conn, dialed := p.dial(), time.Now()
			if _, err := io.WriteString(conn, began); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil || len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 408") &&
				!strings.HasPrefix(string(answer), "HTTP/1.1 400") {
				t.Errorf("%q: %q, %v; want the connection closed", began, answer, err)
			}
			if took := time.Since(dialed); took != time.Duration(minTimeout) {
				t.Errorf("%q: closed after %v", began, took)
			}
		})
	}
}

func TestMemoryLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const meminfo = "MemTotal:       16777216 kB\nMemFree:         1234 kB\n"
	for name, tc := range map[string]struct {
		root   fstest.MapFS
		limit  Size
		source string
	}{
		"nothing known": {fstest.MapFS{}, 0, ""},
		"no group":      {fstest.MapFS{"proc/meminfo": file(meminfo)}, 16 * gib, "the machine"},
		"version 2": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("2147483648\n"), "sys/fs/cgroup/a/memory.max": file("max\n")},
			2 * gib, "the control group"},
		"a group around it": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("1073741824\n")},
			gib, "the control group"},
		"container": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("536870912\n")}, 512 * mib, "the control group"},
		"version 1": {fstest.MapFS{"proc/meminfo": file(meminfo),
			"proc/self/cgroup":                                file("9:cpu,cpuacct:/\n8:memory:/docker/x\n0::/none\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":      file("268435456\n"),
			"sys/fs/cgroup/cpu,cpuacct/memory.limit_in_bytes": file("1\n")}, 256 * mib, "the control group"},
		"version 1 without a limit": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("8:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, 16 * gib, "the machine"},
		"more than the machine": {fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("68719476736\n")}, 16 * gib, "the machine"},
	} {
		if limit, source := memoryLimit(tc.root); limit != tc.limit || source != tc.source {
			t.Errorf("%s: %v of %q, want %v of %q", name, limit, source, tc.limit, tc.source)
		}
	}

	root := fstest.MapFS{"proc/meminfo": file(meminfo)}
	for memory, warns := range map[Size]bool{gib: false, 12 * gib: false, 13 * gib: true, 64 * gib: true} {
		c, log := defaults(), new(syncBuffer)
		c.Cache.Memory = memory
		c.warnOfMemory(root, slog.New(slog.NewTextHandler(log, nil)))
		if got := strings.Contains(log.String(), "level=WARN"); got != warns {
			t.Errorf("%v: %s", memory, log)
		}
	}
}

// TestWarnings: what is allowed but will not work on this machine, or is likely not meant, is a warning, and an ordinary
// configuration on an ordinary machine has none.
func TestWarnings(t *testing.T) {
	limits := func(files, space string) fstest.MapFS {
		return fstest.MapFS{"proc/self/limits": &fstest.MapFile{Data: []byte(
			"Limit                     Soft Limit           Hard Limit           Units     \n" +
				"Max open files            " + files + "                8192                 files     \n" +
				"Max address space         " + space + "            unlimited            bytes     \n")}}
	}
	anonymous := func(c *Config) {
		c.Auth.AnonymousWrite, c.Auth.AllowAnonymousNetwork, c.Server.Listen = true, true, ":9000"
	}
	for name, tc := range map[string]struct {
		root   fstest.MapFS
		change func(*Config)
		want   string
	}{
		"nothing known": {fstest.MapFS{}, nil, ""},
		"enough":        {limits("8192", "unlimited"), nil, ""},
		"unlimited":     {limits("unlimited", "unlimited"), nil, ""},
		"files":         {limits("1024", "unlimited"), nil, "ulimit -n"},
		"fewer connections": {limits("1024", "unlimited"), func(c *Config) {
			c.Server.Limits.MaxConnections, c.Server.Limits.MaxRequests = 500, 300
		}, ""},
		"address space": {limits("8192", "4294967296"), nil, "ulimit -v"},
		"less memory": {limits("8192", "4294967296"), func(c *Config) {
			c.Cache.Memory = 8 * mib
		}, ""},
		"anonymous writes": {fstest.MapFS{}, anonymous, "auth.anonymous_write"},
		"disk": {fstest.MapFS{}, func(c *Config) {
			c.Cache.Disk.Path, c.Cache.Disk.Capacity = filepath.Join(t.TempDir(), "not/yet/there"), 1<<60
		}, "cache.disk.capacity"},
		"reserve": {fstest.MapFS{}, func(c *Config) {
			c.Cache.Disk.Path, c.Cache.Disk.Capacity, c.Cache.Disk.Reserve = t.TempDir(), mib, 1<<60
		}, "cache.disk.reserve"},
		"small disk": {fstest.MapFS{}, func(c *Config) {
			c.Cache.Disk.Path, c.Cache.Disk.Capacity, c.Cache.Disk.Reserve = t.TempDir(), mib, 0
		}, ""},
		"among friends": {fstest.MapFS{}, func(c *Config) {
			anonymous(c)
			c.Server.Listen = "127.0.0.1:9000"
		}, ""},
	} {
		c, log := defaults(), new(syncBuffer)
		if tc.change != nil {
			tc.change(c)
		}
		c.warnings(tc.root, newLogger(log, Log{}))
		lines := 1
		if tc.want == "" {
			lines = 0
		}
		if got := log.String(); strings.Count(got, "level=WARN") != lines || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
