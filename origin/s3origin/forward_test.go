package s3origin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// proxy is a front that forwards everything, as a handler of s3api would.
func newProxy(t *testing.T, o *Origin) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _, _ := strings.Cut(r.RequestURI, "?")
		bucket, rawKey, _ := strings.Cut(strings.TrimPrefix(raw, "/"), "/")
		resp, err := o.Forward(r.Context(), r, bucket, rawKey)
		if err != nil {
			http.Error(w, err.Error(), 502)
			return
		}
		defer resp.Body.Close()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = rc.Flush()
			if err == io.EOF {
				return
			}
			if err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

// TestForwardWire compares what a client sent with what the origin got, byte by byte.
func TestForwardWire(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 200 OK", "Content-Length: 2", "X-Ashlar-Cache: hit", "Connection: X-Hop",
		"X-Hop: 1", "Keep-Alive: timeout=5", "X-Amz-Request-Id: r", "Set-Cookie: a", "Set-Cookie: b")+"ok"))
	o := newOrigin(t, s.url)
	proxy := newProxy(t, o)

	conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, lines(
		"PROPFIND /bkt/a//../%2e%2F+;x?zz=1&X-Amz-Algorithm=A&list-type=2&X-Amz-Signature=secretsig&prefix=a+b%20c;d"+
			"&X%2DAmz%2DCredential=c&X-Amz-Date=d&X-Amz-Expires=e&X-Amz-SignedHeaders=h&X-Amz-Security-Token=secrettoken"+
			"&x-id=Foo&delimiter=%2F&bare&&a=%zz HTTP/1.1",
		"Host: gateway.example.com:9000",
		"Authorization: AWS4-HMAC-SHA256 secretauth",
		"X-Amz-Date: 20200101T000000Z", "X-Amz-Security-Token: secrettoken",
		"X-Ashlar-Routed: 1", "X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4",
		"Connection: keep-alive, X-Drop", "X-Drop: 1", "Keep-Alive: 5", "TE: trailers", "Proxy-Authorization: secretproxy",
		"Upgrade: h2c", "Via: 1.0 fred", "X-Amz-Meta-A: 1", "X-Amz-Meta-A:  two  words ", "Range: bytes=0-9", "X-Other: kept",
		"Content-Type: text/plain",
	))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || string(body) != "ok" {
		t.Errorf("%d %q, %v", resp.StatusCode, body, err)
	}
	if h := resp.Header; h.Get("X-Ashlar-Cache") != "" || h.Get("X-Hop") != "" || h.Get("Keep-Alive") != "" ||
		h.Get("X-Amz-Request-Id") != "r" || len(h["Set-Cookie"]) != 2 {
		t.Errorf("answer's headers %v", h)
	}

	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(s.requests()[0] + "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := "/bkt/a//../%2e%2F+;x?zz=1&list-type=2&prefix=a+b%20c;d&x-id=Foo&delimiter=%2F&bare&a=%zz"
	if req.Method != "PROPFIND" || req.RequestURI != want {
		t.Errorf("%s %s\nwant %s", req.Method, req.RequestURI, want)
	}
	if err := verify(req, testSecret); err != nil {
		t.Error(err)
	}
	h := req.Header
	for name, want := range map[string][]string{
		"Via": {"1.0 fred", "1.1 ashlar-test"}, "X-Amz-Meta-A": {"1", "two  words"}, "Range": {"bytes=0-9"},
		"X-Other": {"kept"}, "Content-Type": {"text/plain"}, "X-Amz-Content-Sha256": {emptyHash},
		"X-Ashlar-Routed": nil, "X-Forwarded-For": nil, "Forwarded": nil, "X-Drop": nil, "Keep-Alive": nil, "Te": nil,
		"Proxy-Authorization": nil, "Upgrade": nil, "Connection": nil, "X-Amz-Security-Token": nil,
		"User-Agent": nil, "Accept-Encoding": nil, "Content-Length": nil, "Transfer-Encoding": nil,
	} {
		if !slices.Equal(h[name], want) {
			t.Errorf("%s: %q, want %q", name, h[name], want)
		}
	}
	for _, not := range []string{"secret", "20200101", "gateway.example"} {
		if head := s.requests()[0]; strings.Contains(head, not) {
			t.Errorf("%q of the client's reached the origin:\n%s", not, head)
		}
	}
}

// TestForwardAnonymous: an origin that is not signed for gets none of the client's authentication either.
func TestForwardAnonymous(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 200 OK", "Content-Length: 0")))
	o := newOrigin(t, s.url, func(c *Config) { c.Credentials = Credentials{Source: SourceAnonymous} })
	r := httptest.NewRequest("GET", "/?X-Amz-Signature=secret&prefix=p", nil)
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		r.Header.Set(name, "secret")
	}
	resp, err := o.Forward(t.Context(), r, "bkt", "")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	head := s.requests()[0]
	if !strings.HasPrefix(head, "GET /bkt?prefix=p HTTP/1.1\r\n") || strings.Contains(head, "secret") {
		t.Error(head)
	}
}

// TestForwardPayloadHash: what the client declared is signed; else an empty body is, and another is not.
func TestForwardPayloadHash(t *testing.T) {
	var hash, body string
	var length int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := verify(r, testSecret); err != nil {
			t.Error(err)
		}
		p, _ := io.ReadAll(r.Body)
		hash, body, length = r.Header.Get("X-Amz-Content-Sha256"), string(p), r.ContentLength
	}))
	defer srv.Close()
	o := newOrigin(t, srv.URL)
	const literal = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for _, c := range []struct {
		declared, body string
		chunked        bool
		want           string
	}{
		{"", "", false, emptyHash},
		{"", "hello", false, unsignedPayload},
		{"", "hello", true, unsignedPayload},
		{literal, "hello", false, literal},
		{unsignedPayload, "hello", false, unsignedPayload},
		{unsignedPayload, "", false, unsignedPayload},
	} {
		r := httptest.NewRequest("PUT", "/", strings.NewReader(c.body))
		wantLength := int64(len(c.body))
		if c.chunked {
			r.ContentLength, wantLength = -1, -1
		}
		if c.declared != "" {
			r.Header.Set("X-Amz-Content-Sha256", c.declared)
		}
		before := r.Header.Clone()
		resp, err := o.Forward(t.Context(), r, "bkt", "k")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if hash != c.want || body != c.body || length != wantLength {
			t.Errorf("%+v: hash %s, body %q, length %d", c, hash, body, length)
		}
		if len(r.Header) != len(before) || r.URL.Path != "/" {
			t.Errorf("the client's request was changed: %v", r.Header)
		}
	}
}

// TestForwardStreams: nothing is held back in either direction.
func TestForwardStreams(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		br := bufio.NewReader(r.Body)
		for { // each line is answered before the next one comes
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "got "+line)
			_ = rc.Flush()
		}
	}))
	defer srv.Close()
	o := newOrigin(t, srv.URL)
	within(t, func() {
		pr, pw := io.Pipe()
		r := httptest.NewRequest("POST", "/", nil)
		r.Body, r.ContentLength = pr, -1
		go func() { _, _ = io.WriteString(pw, "one\n") }()
		resp, err := o.Forward(t.Context(), r, "bkt", "k")
		if err != nil {
			t.Error(err)
			return
		}
		br := bufio.NewReader(resp.Body)
		for _, word := range []string{"one", "two", "three"} {
			if word != "one" {
				_, _ = io.WriteString(pw, word+"\n")
			}
			if line, err := br.ReadString('\n'); line != "got "+word+"\n" || err != nil {
				t.Errorf("%q, %v", line, err)
			}
		}
		_ = pw.Close()
		if rest, err := io.ReadAll(br); len(rest) != 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		_ = resp.Body.Close()
	})
}

// TestForwardEarlyAnswer: an origin that refuses an upload without reading it is heard at once.
func TestForwardEarlyAnswer(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 403 Forbidden", "Content-Length: 4")+"nope"))
	o := newOrigin(t, s.url)
	within(t, func() {
		pr, pw := io.Pipe()
		defer pw.Close()
		r := httptest.NewRequest("PUT", "/", nil)
		r.Body, r.ContentLength = pr, 1<<40
		resp, err := o.Forward(t.Context(), r, "bkt", "k")
		if err != nil {
			t.Error(err)
			return
		}
		if p, err := io.ReadAll(resp.Body); string(p) != "nope" || err != nil || resp.StatusCode != 403 {
			t.Errorf("%d %q, %v", resp.StatusCode, p, err)
		}
		_ = resp.Body.Close()
	})
}

func TestForwardExpectContinue(t *testing.T) {
	for _, accept := range []bool{true, false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") != "100-continue" {
				t.Errorf("Expect %q", r.Header.Get("Expect"))
			}
			if !accept {
				w.WriteHeader(403)
				return
			}
			p, err := io.ReadAll(r.Body) // net/http sends the 100 here
			if err != nil || len(p) != 5 {
				t.Errorf("%q, %v", p, err)
			}
		}))
		o := newOrigin(t, srv.URL)
		o.transport.ExpectContinueTimeout = time.Hour // however late the origin's word comes
		proxy := newProxy(t, o)
		conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, lines("PUT /bkt/k HTTP/1.1", "Host: x", "Content-Length: 5", "Expect: 100-continue"))
		br := bufio.NewReader(conn)
		line, err := br.ReadString('\n')
		want := "HTTP/1.1 403 Forbidden\r\n"
		if accept {
			want = "HTTP/1.1 100 Continue\r\n"
		}
		if line != want || err != nil {
			t.Errorf("accept %v: %q, %v", accept, line, err)
		}
		if accept {
			_, _ = br.ReadString('\n')
			_, _ = io.WriteString(conn, "hello")
			if line, err = br.ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" || err != nil {
				t.Errorf("after the body: %q, %v", line, err)
			}
		}
		_ = conn.Close()
		proxy.Close()
		srv.Close()
	}
}

// TestForwardAnswersPassThrough: status, body and redirects untouched, bytes never recoded.
func TestForwardAnswersPassThrough(t *testing.T) {
	gz := []byte("\x1f\x8b not gzip at all")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bkt/moved":
			w.Header().Set("Location", "/bkt/other")
			w.WriteHeader(307)
		case "/bkt/slow":
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(503)
			_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code></Error>")
		case "/bkt":
			_, _ = io.WriteString(w, "list "+r.URL.RawQuery)
		case "/":
			_, _ = io.WriteString(w, "buckets")
		default:
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gz)
		}
	}))
	defer srv.Close()
	o := newOrigin(t, srv.URL)
	for _, c := range []struct {
		method, bucket, key, query string
		status                     int
		header, value, body        string
	}{
		{"PUT", "bkt", "moved", "", 307, "Location", "/bkt/other", ""},
		{"GET", "bkt", "slow", "", 503, "Retry-After", "3", "<Error><Code>SlowDown</Code></Error>"},
		{"GET", "bkt", "", "list-type=2&prefix=%2F", 200, "", "", "list list-type=2&prefix=%2F"},
		{"GET", "", "", "", 200, "", "", "buckets"},
		{"GET", "bkt", "k", "partNumber=1", 200, "Content-Encoding", "gzip", string(gz)},
		{"HEAD", "bkt", "k", "", 200, "Content-Length", fmt.Sprint(len(gz)), ""},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.URL.RawQuery = c.query
		resp, err := o.Forward(t.Context(), r, c.bucket, c.key)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		p, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || string(p) != c.body {
			t.Errorf("%+v: %d, %q, %v", c, resp.StatusCode, p, err)
		}
		if c.header != "" && resp.Header.Get(c.header) != c.value {
			t.Errorf("%+v: %v", c, resp.Header)
		}
	}
}

// TestForwardBrokenBodies: what breaks on either side looks whole on neither.
func TestForwardBrokenBodies(t *testing.T) {
	t.Run("the client's", func(t *testing.T) {
		got := make(chan error, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			got <- err
		}))
		defer srv.Close()
		o := newOrigin(t, srv.URL)
		gone := errors.New("client went away")
		for _, length := range []int64{-1, 1000} {
			r := httptest.NewRequest("PUT", "/", nil)
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 100)), errReader{gone}))
			r.ContentLength = length
			if resp, err := o.Forward(t.Context(), r, "bkt", "k"); !errors.Is(err, gone) {
				t.Errorf("length %d: %v, %v", length, resp, err)
			}
			if err := <-got; err == nil {
				t.Errorf("length %d: the origin took half a body for a whole one", length)
			}
		}
	})
	t.Run("the origin's", func(t *testing.T) {
		for _, answer := range []string{
			lines("HTTP/1.1 200 OK", "Content-Length: 10") + "0123",
			lines("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") + "4\r\n0123\r\n",
		} {
			o := newOrigin(t, newRawServer(t, always(answer)).url)
			resp, err := o.Forward(t.Context(), httptest.NewRequest("GET", "/", nil), "bkt", "")
			if err != nil {
				t.Fatal(err)
			}
			if p, err := io.ReadAll(resp.Body); string(p) != "0123" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q, %v", p, err)
			}
			_ = resp.Body.Close()
		}
	})
	t.Run("canceled", func(t *testing.T) {
		s := newRawServer(t, func(int, int) (string, bool) {
			return lines("HTTP/1.1 200 OK", "Content-Length: 10") + "0123", true
		})
		o := newOrigin(t, s.url)
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := o.Forward(ctx, httptest.NewRequest("GET", "/", nil), "bkt", "")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		_ = resp.Body.Close()
		if _, err := o.Forward(ctx, httptest.NewRequest("GET", "/", nil), "bkt", ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestForwardClosesTheBodyOnFailure(t *testing.T) {
	o := newOrigin(t, "http://s3.example.com", refusing)
	for _, bucket := range []string{"bkt", "no bucket"} { // fails in connecting, and before
		b := &closeCounter{Reader: strings.NewReader("x")}
		r := httptest.NewRequest("PUT", "/", nil)
		r.Body, r.ContentLength = b, 1
		if _, err := o.Forward(t.Context(), r, bucket, "k"); err == nil || errors.Is(err, origin.ErrTimeout) {
			t.Error(err)
		}
		if b.closed == 0 {
			t.Errorf("%s: left open", bucket)
		}
	}
	if n := testutil.ToFloat64(o.metrics.requests.WithLabelValues(opForward, "none")); n != 1 {
		t.Errorf("%v counted", n)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

// What gives a request its meaning is not about one connection, whatever its Connection header says: that is not signed,
// so anybody on the way could take a hash or a condition off another's request.
func TestNominatedHeadersStay(t *testing.T) {
	names := []string{"X-Amz-Content-Sha256", "X-Amz-Copy-Source", "If-None-Match", "If-Match", "Content-Encoding", "Content-Md5"}
	h := http.Header{"Connection": {strings.ToLower(strings.Join(names, ", ")) + ", X-Hop"}, "X-Hop": {"1"}}
	for _, name := range names {
		h[name] = []string{"v"}
	}
	got := forwardHeader(h)
	for _, name := range names {
		if len(got[name]) != 1 {
			t.Errorf("%s is gone", name)
		}
	}
	if got["X-Hop"] != nil || got["Connection"] != nil {
		t.Errorf("%v", got)
	}
}

// There are servers that store what they have got of a body when the connection ends. To them, as to all, half a request
// ends in a reset, over TLS too.
func TestHalfARequestIsReset(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	for name, config := range map[string]*tls.Config{"TCP": nil, "TLS": {Certificates: srv.TLS.Certificates}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		got, begun := make(chan error, 1), make(chan struct{})
		go func() {
			conn, err := l.Accept()
			if err == nil {
				defer func() { _ = conn.Close() }()
				if config != nil {
					conn = tls.Server(conn, config)
				}
				r := bufio.NewReader(conn)
				for line := ""; err == nil && line != "\r\n"; {
					line, err = r.ReadString('\n')
				}
				close(begun)
				if err == nil {
					_, err = io.Copy(io.Discard, r) // until the client goes: nil is a mere end
				}
			}
			got <- err
		}()
		url, change := "http://"+l.Addr().String(), func(*Config) {}
		if config != nil {
			url = "https://" + l.Addr().String()
			change = func(c *Config) { c.TLS = &tls.Config{InsecureSkipVerify: true} } // of this test's own server
		}
		o := newOrigin(t, url, change)
		r := httptest.NewRequest("PUT", "/", nil)
		in, w := io.Pipe()
		r.Body, r.ContentLength = in, 1<<20
		go func() {
			_, _ = w.Write(make([]byte, 64<<10))
			<-begun
			_ = w.CloseWithError(errors.New("refused"))
		}()
		if resp, err := o.Forward(t.Context(), r, "bkt", "k"); err == nil {
			t.Errorf("%s: answered %d", name, resp.StatusCode)
		}
		if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: half a body ended in %v", name, err)
		}
	}
}
