package devs3

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// faulty serves one object b/k of ten bytes, every request spoiled by f.
func faulty(t *testing.T, f *Fault) (s *Server, url string, c *http.Client) {
	t.Helper()
	s = New(Config{})
	s.Put("bucket", "k", []byte("0123456789"))
	url, c = start(t, s)
	s.Fault(func(*http.Request) *Fault { return f })
	return s, url + "/bucket/k", c
}

// get reads an object and returns what came of it, whole or not.
func get(t *testing.T, c *http.Client, url string, header ...string) (resp *http.Response, body string, err error) {
	t.Helper()
	return try(t.Context(), c, http.MethodGet, url, "", header...)
}

func TestFaultOfHeaders(t *testing.T) {
	for _, c := range []struct {
		name          string
		fault         *Fault
		request       []string
		status        int
		body          string
		header, value string
	}{
		{"none", nil, nil, 200, "0123456789", "ETag", `"781e5e245d69b566979b86e28d23f2c7"`},
		{"status", Respond(503, "SlowDown", "7"), nil, 503, "*", "Retry-After", "7"},
		{"ignore range", IgnoreRange(), []string{"Range", "bytes=2-3"}, 200, "0123456789", "Content-Range", ""},
		{"content range", ContentRange("bytes 3-4/10"), []string{"Range", "bytes=2-3"}, 206, "23",
			"Content-Range", "bytes 3-4/10"},
		{"no content range", ContentRange(""), []string{"Range", "bytes=2-3"}, 206, "23", "Content-Range", ""},
		{"no etag", ETag(""), nil, 200, "0123456789", "ETag", ""},
		{"weak etag", ETag(`W/"x"`), []string{"Range", "bytes=2-3"}, 206, "23", "ETag", `W/"x"`},
		{"304 without etag", NotModifiedWithoutETag(), []string{"If-None-Match", "*"}, 304, "", "ETag", ""},
		{"304 keeps others", NotModifiedWithoutETag(), nil, 200, "0123456789", "ETag", `"781e5e245d69b566979b86e28d23f2c7"`},
		{"shorter", &Fault{Resize: -3}, nil, 200, "0123456", "Content-Length", "7"},
		{"longer", &Fault{Resize: 2}, []string{"Range", "bytes=2-3"}, 206, "23\x00\x00", "Content-Range", "bytes 2-3/10"},
		{"stall that ends", StallAfter(4, closed()), nil, 200, "0123456789", "Content-Length", "10"},
		{"hold that ends", StallBeforeHeaders(closed()), nil, 200, "0123456789", "Content-Length", "10"},
		{"break behind the end", ResetAfter(10), nil, 200, "0123456789", "Content-Length", "10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, url, client := faulty(t, c.fault)
			resp, body, err := get(t, client, url, c.request...)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || c.body != "*" && body != c.body || resp.Header.Get(c.header) != c.value {
				t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
			}
		})
	}
}

func closed() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

func TestFaultBreaksOff(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   *Fault
		headers bool   // the answer's headers arrive
		body    string // what arrives of the body; "*" is any part of it
		reset   bool   // by RST
	}{
		{"reset before headers", ResetBeforeHeaders(), false, "", true},
		{"closed before headers", &Fault{Break: &Break{BeforeHeaders: true, Kind: BreakClose}}, false, "", false},
		{"reset", ResetAfter(4), true, "*", true},
		{"short", ShortBody(4), true, "0123", false},
		{"short of everything", ShortBody(0), true, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, url, client := faulty(t, c.fault)
			resp, body, err := get(t, client, url)
			if err == nil {
				t.Fatalf("a whole answer: %d %q", resp.StatusCode, body)
			}
			if c.reset != errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reset: %v, want %v: %v", !c.reset, c.reset, err)
			}
			// A reset may overtake the bytes in front of it, headers included.
			if reset := c.body == "*"; !reset && c.headers != (resp != nil) {
				t.Errorf("headers arrived: %v", resp != nil)
			}
			if resp != nil && resp.ContentLength != 10 {
				t.Errorf("Content-Length %d is not honest", resp.ContentLength)
			}
			if c.body != "*" && body != c.body || !strings.HasPrefix("0123", body) {
				t.Errorf("body %q", body)
			}
			s.Fault(nil)
			if _, body, err := get(t, client, url); body != "0123456789" || err != nil {
				t.Errorf("without the fault: %q %v", body, err)
			}
		})
	}
}

// TestFaultStalls has clients give up on answers that don't come.
func TestFaultStalls(t *testing.T) {
	for name, fault := range map[string]*Fault{
		"before headers": StallBeforeHeaders(make(chan struct{})),
		"in the body":    StallAfter(4, make(chan struct{})),
		"delay":          {Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s, url, client := faulty(t, fault)
			client.Timeout = 50 * time.Millisecond
			if _, body, err := get(t, client, url); err == nil || !strings.HasPrefix("0123", body) {
				t.Errorf("%q %v", body, err)
			}
			client.Timeout = 0
			s.Fault(nil)
			if _, body, err := get(t, client, url); body != "0123456789" || err != nil {
				t.Errorf("without the fault: %q %v", body, err)
			}
		})
	}
}

// TestFaultApplied has requests fail that were carried out.
func TestFaultApplied(t *testing.T) {
	for name, fault := range map[string]*Fault{
		"status": {Status: 500, Apply: true},
		"reset":  {Break: &Break{BeforeHeaders: true}, Apply: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, url, client := faulty(t, fault)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("new"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			if err == nil && resp.StatusCode != 500 {
				t.Errorf("status %d", resp.StatusCode)
			}
			s.Fault(nil)
			if _, body, _ := get(t, client, url); body != "new" {
				t.Errorf("%q was not applied", body)
			}
		})
	}
}

// TestFaultCloseIdle reads twice down one connection that the server closes in between: the answer itself is whole and
// announces nothing.
func TestFaultCloseIdle(t *testing.T) {
	_, url, client := faulty(t, &Fault{CloseIdle: true})
	for range 3 {
		resp, body, err := get(t, client, url)
		if err != nil || body != "0123456789" || resp.Close {
			t.Fatalf("%q %v", body, err)
		}
	}
}

// TestFaultOnHead has faults of the body leave a HEAD alone.
func TestFaultOnHead(t *testing.T) {
	for name, fault := range map[string]*Fault{
		"resize": {Resize: 5}, "reset": ResetAfter(3), "status": Respond(503, "SlowDown", ""),
	} {
		t.Run(name, func(t *testing.T) {
			_, url, client := faulty(t, fault)
			resp, err := client.Head(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); len(b) > 0 || err != nil {
				t.Errorf("%q %v", b, err)
			}
		})
	}
}

// TestClientLeaves stops reading a large object.
func TestClientLeaves(t *testing.T) {
	s := New(Config{})
	s.PutGenerated("bucket", "large", 1<<40, 1)
	url, client := start(t, s)
	resp, err := client.Get(url + "/bucket/large")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1<<20)
	if _, err := io.ReadFull(resp.Body, p); err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}
