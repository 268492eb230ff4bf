package s3api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestProbes(t *testing.T) {
	ready := false
	h := newHandler(t, Config{
		Auth: Auth{Mode: Static, Keys: []Key{{AccessKey: "a", SecretKey: "s"}}}, Ready: func() bool { return ready },
		Domains: []string{"s3.example.com"},
	})
	for _, c := range []struct {
		line   string
		status int
	}{
		{"GET /-/health", 200}, {"HEAD /-/health", 200}, {"GET /-/ready", 503}, {"GET /-/health?x=y", 200},
		{"POST /-/health", 405}, {"GET /-/other", 400}, {"POST /-/invalidate", 403},
	} {
		if r := ask(h, c.line, ""); r.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.line, r.StatusCode, c.status)
		}
	}
	ready = true
	r := ask(h, "GET /-/ready", "")
	if body := read(t, r); r.StatusCode != 200 || body != "" {
		t.Errorf("%d %q", r.StatusCode, body)
	}
	// In a bucket's own host name it is a key.
	want(t, ask(h, "GET /-/health", "", "Host", "bucket.s3.example.com"), 403, "AccessDenied")
}

func TestLoopIsRefused(t *testing.T) {
	h := newHandler(t, Config{InstanceID: "1", Gateway: testReader(t, nil)})
	for via, status := range map[string]int{
		"1.1 ashlar-1": 508, "1.1 ashlar-10": 200, "1.1 ashlar-2, 1.1 ashlar-1": 508,
		"1.1 ashlar-2,1.0 ashlar-1 (cached)": 508,
		"ashlar-1":                           200, "1.1 varnish": 200,
		strings.Repeat("1.1 ashlar-2, ", maxHops):   200,
		strings.Repeat("1.1 ashlar-2, ", maxHops+1): 508,
	} {
		if r := ask(h, "HEAD /bucket/k", "", "Via", via); r.StatusCode != status {
			t.Errorf("Via %q: %d, want %d", via, r.StatusCode, status)
		}
	}
	want(t, ask(h, "GET /bucket/k", "", "Via", "1.1 ashlar-1"), 508, "LoopDetected")
}

// What a read came by goes on to the engine: names of our own only.
func TestPathOfAReadIsHandedOn(t *testing.T) {
	var got []string
	f := &fakeReader{open: func(r gateway.Request) (*gateway.Object, error) {
		got = r.Via
		return nil, &origin.Error{Status: 404}
	}}
	ask(newHandler(t, Config{InstanceID: "1", Gateway: f}), "GET /bucket/k", "", "Via", "1.1 ashlar-2, 1.0 varnish",
		"Via", "1.1 ashlar-3 (x),, 1.1 ashlar-"+strings.Repeat("x", 99))
	if want := []string{"ashlar-2", "ashlar-3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The document of an error is well-formed whatever the key, and its ids are those of the headers.
func TestErrorDocument(t *testing.T) {
	h := newHandler(t, Config{Gateway: &fakeReader{open: func(gateway.Request) (*gateway.Object, error) {
		return nil, &origin.Error{Status: 404}
	}}})
	r := ask(h, "GET /bucket/a%3C%26%00%FFb%0A", "")
	body := want(t, r, 404, "NoSuchKey")
	var doc struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string
		Message   string
		Key       string
		Resource  string
		RequestId string
		HostId    string
	}
	if err := xml.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if doc.Key != "a<&\uFFFD\uFFFDb\n" || doc.Resource != "/bucket/"+doc.Key || doc.Message == "" {
		t.Errorf("%+v", doc)
	}
	if doc.RequestId != r.Header.Get("X-Amz-Request-Id") || doc.HostId != r.Header.Get("X-Amz-Id-2") || doc.HostId == "" {
		t.Errorf("%+v, headers %v", doc, r.Header)
	}
	if r.Header.Get("Content-Type") != "application/xml" {
		t.Errorf("%v", r.Header)
	}
}

func TestTargets(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	want(t, ask(h, "HEAD http://elsewhere:80/bucket/k", ""), 200, "")
	want(t, ask(h, "OPTIONS *", ""), 400, "InvalidURI")
	want(t, ask(h, "CONNECT gw:443", ""), 400, "InvalidURI")
	want(t, ask(h, "BREW /bucket/k", ""), 405, "MethodNotAllowed")
	want(t, ask(h, "TRACE /bucket/k", ""), 405, "MethodNotAllowed")
	want(t, ask(h, "GET /bucket/k?a=%zz", ""), 400, "InvalidURI")
	want(t, ask(h, "GET /Bucket/k", ""), 400, "InvalidBucketName")
	want(t, ask(h, "GET /bucket/"+strings.Repeat("k", 1025), ""), 400, "KeyTooLongError")
}

const testSecret = "very-secret-key"

// signed is a request signed by accessKey over a network's URL.
func signed(t *testing.T, accessKey, method, url, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	sum := sha256.Sum256([]byte(body))
	hash := hex.EncodeToString(sum[:])
	if h := r.Header.Get("X-Amz-Content-Sha256"); h != "" {
		hash = h
	}
	r.Header.Set("X-Amz-Content-Sha256", hash)
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(context.Background(),
		aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: testSecret}, r, hash, "s3", "us-east-1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func do(t *testing.T, s *httptest.Server, r *http.Request) *http.Response {
	t.Helper()
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func staticAuth() Auth {
	return Auth{Mode: Static, Keys: []Key{
		{AccessKey: "READER", SecretKey: testSecret, Buckets: []string{"bucket"}, Rights: Read | List},
		{AccessKey: "WRITER", SecretKey: testSecret, Buckets: []string{"bucket"}, Rights: Write},
		{AccessKey: "OTHER", SecretKey: testSecret, Buckets: []string{"other"}, Rights: Read | Write | List | Delete | Admin},
		{AccessKey: "TOKEN", SecretKey: testSecret, SessionToken: "token", Buckets: []string{"*"}, Rights: Read},
	}}
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// Refusals are the same whether an object is cached, exists, or does not, and nothing is read or forwarded for them:
// P10, A04, A05.
func TestRefusalsRevealNothing(t *testing.T) {
	f := &fakeReader{}
	h := newHandler(t, Config{Gateway: f, Auth: staticAuth(), Region: "us-east-1"})
	s := serve(t, h)
	for _, c := range []struct {
		name   string
		code   string
		status int
		ask    func(url string) *http.Request
	}{
		{"anonymous", "AccessDenied", 403, func(u string) *http.Request { r, _ := http.NewRequest("GET", u, nil); return r }},
		{"write only", "AccessDenied", 403, func(u string) *http.Request { return signed(t, "WRITER", "GET", u, "") }},
		{"other bucket", "AccessDenied", 403, func(u string) *http.Request { return signed(t, "OTHER", "GET", u, "") }},
		{"read only", "AccessDenied", 403, func(u string) *http.Request { return signed(t, "READER", "PUT", u, "x") }},
		{"no delete", "AccessDenied", 403, func(u string) *http.Request { return signed(t, "WRITER", "DELETE", u, "") }},
		{"acl", "AccessDenied", 403, func(u string) *http.Request { return signed(t, "WRITER", "PUT", u+"?acl=", "x") }},
		{"copy without reading", "AccessDenied", 403, func(u string) *http.Request {
			return signed(t, "WRITER", "PUT", u, "", "X-Amz-Copy-Source", "/other/k")
		}},
		{"unknown key", "InvalidAccessKeyId", 403, func(u string) *http.Request { return signed(t, "NOBODY", "GET", u, "") }},
		{"session token missing", "", 403, func(u string) *http.Request { return signed(t, "TOKEN", "GET", u, "") }},
		{"other path", "SignatureDoesNotMatch", 403, func(u string) *http.Request {
			r := signed(t, "READER", "GET", u, "")
			r.URL.Path += "x"
			return r
		}},
		{"other method", "SignatureDoesNotMatch", 403, func(u string) *http.Request {
			r := signed(t, "READER", "GET", u, "")
			r.Method = "DELETE"
			return r
		}},
		{"conditions", "AccessDenied", 403, func(u string) *http.Request {
			return signed(t, "WRITER", "GET", u, "", "If-None-Match", "*", "Range", "bytes=9999-")
		}},
	} {
		r := do(t, s, c.ask(s.URL+"/bucket/k"))
		body := read(t, r)
		if c.name == "session token missing" && r.StatusCode >= 400 && r.StatusCode < 404 {
			continue // sigv4 has its own tests of codes
		}
		if r.StatusCode != c.status || !strings.Contains(body, "<Code>"+c.code+"</Code>") {
			t.Errorf("%s: %d %s", c.name, r.StatusCode, body)
		}
		if r.Header.Get("Etag") != "" || r.Header.Get("X-Ashlar-Cache") != "" || strings.Contains(body, testSecret) {
			t.Errorf("%s: %v %s", c.name, r.Header, body)
		}
	}
	if len(f.gone) > 0 {
		t.Errorf("invalidated %v", f.gone)
	}
}

func TestSignedReadsAndOverrides(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil), Auth: staticAuth()})
	s := serve(t, h)
	overridden := s.URL + "/bucket/k?response-content-type=text%2Fhtml"
	r := do(t, s, signed(t, "READER", "GET", overridden+"&response-content-disposition=a", "", "Range", "bytes=1-3"))
	if body := want(t, r, 206, ""); body != "123" || r.Header.Get("Content-Type") != "text/html" ||
		r.Header.Get("Content-Disposition") != "a" {
		t.Errorf("%q %v", body, r.Header)
	}
	r = do(t, s, signed(t, "READER", "GET", overridden, "", "If-None-Match", `"abc"`))
	if want(t, r, 304, ""); r.Header.Get("Content-Type") != "" {
		t.Errorf("304: %v", r.Header)
	}
	r = do(t, s, signed(t, "READER", "GET", s.URL+"/bucket/k", ""))
	if want(t, r, 200, ""); r.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("an override was kept: %v", r.Header)
	}
}

// Whatever a request ends in, its connection carries the next one.
func TestConnectionSurvivesErrors(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil), Forward: forwardFunc(
		func(context.Context, *http.Request, string, string) (*http.Response, error) {
			return nil, errors.New("refused")
		})})
	s := serve(t, h)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, c := range []struct {
		method, path, body string
		header             http.Header
		status             int
	}{
		{"GET", "/bucket/missing", "", nil, 404},
		{"HEAD", "/bucket/missing", "", nil, 404},
		{"GET", "/bucket/k", "", http.Header{"If-Match": {`"x"`}}, 412},
		{"GET", "/bucket/k", "", http.Header{"Range": {"bytes=600-"}}, 416},
		{"HEAD", "/bucket/k", "", http.Header{"Range": {"bytes=600-"}}, 416},
		{"GET", "/bucket/k", "", http.Header{"If-None-Match": {`"abc"`}}, 304},
		{"PUT", "/bucket/k", "a body that nobody reads", nil, 403},
		{"GET", "/bucket/k?tagging", "", nil, 503},
		{"GET", "/bucket/k", "a GET with a body", nil, 200},
		{"GET", "/bucket/k", "", http.Header{"Range": {"bytes=0-9"}}, 206},
	} {
		r, err := http.NewRequest(c.method, s.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.header != nil {
			r.Header = c.header
		}
		if err := r.Write(conn); err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		resp, err := http.ReadResponse(in, r)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || resp.Close {
			t.Errorf("%s %s %v: %d, want %d, close %v, %v", c.method, c.path, c.header, resp.StatusCode, c.status, resp.Close,
				err)
		}
	}
}

func TestPanicIsAnswered(t *testing.T) {
	var logs bytes.Buffer
	h := newHandler(t, Config{
		Gateway: &fakeReader{open: func(gateway.Request) (*gateway.Object, error) { panic("boom") }},
		Logger:  slog.New(slog.NewTextHandler(&logs, nil)),
	})
	want(t, ask(h, "GET /bucket/k", ""), 500, "InternalError")
	if !strings.Contains(logs.String(), "boom") || !strings.Contains(logs.String(), "handler_test.go") {
		t.Errorf("not logged with its stack: %s", logs.String())
	}
}

func TestPanicAfterHeadersCutsTheConnection(t *testing.T) {
	h := newHandler(t, Config{Forward: forwardAs(func() (*http.Response, error) {
		r := answer(200, "")
		r.ContentLength = -1
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), panicReader{}))
		return r, nil
	})})
	s := serve(t, h)
	r, err := s.Client().Get(s.URL + "/bucket")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); err == nil {
		t.Errorf("looks complete: %q", b)
	}
}

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic("boom") }

// A client that is gone is not answered; it counts as 499.
func TestClientGoneBeforeTheAnswer(t *testing.T) {
	reg := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	h := newHandler(t, Config{Registerer: reg, Gateway: &fakeReader{open: func(gateway.Request) (*gateway.Object, error) {
		cancel()
		return nil, context.Canceled
	}}})
	r := httptest.NewRequest("GET", "/bucket/k", nil).WithContext(ctx)
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("ended with %v", p)
			}
		}()
		h.ServeHTTP(w, r)
	}()
	if w.Body.Len() > 0 {
		t.Errorf("answered %q", w.Body)
	}
	if n := testutil.ToFloat64(h.metrics.requests.WithLabelValues("GetObject", "499")); n != 1 {
		t.Errorf("counted %v times", n)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := newHandler(t, Config{Gateway: testReader(t, nil), Registerer: reg})
	if n, err := testutil.GatherAndCount(reg, "ashlar_requests_total"); err != nil || n < 50 || n > 100 {
		t.Errorf("%d series before the first request, %v", n, err)
	}
	for name := range commonStatuses {
		if name != invalidOperation.name && !slices.ContainsFunc(h.table.all, func(o *operation) bool { return o.name == name }) {
			t.Errorf("there is no operation %s", name)
		}
	}
	want(t, ask(h, "GET /bucket/k", ""), 200, "")
	want(t, ask(h, "GET /bucket/k", "", "Range", "bytes=0-9"), 206, "")
	want(t, ask(h, "GET /Bucket/k", ""), 400, "")
	want(t, ask(h, "GET /bucket?acl", ""), 403, "") // a series that there was not
	for labels, n := range map[[2]string]float64{
		{"GetObject", "200"}: 1, {"GetObject", "206"}: 1, {"Invalid", "400"}: 1, {"GetObject", "404"}: 0,
		{"GetBucketAcl", "403"}: 1,
	} {
		if got := testutil.ToFloat64(h.metrics.requests.WithLabelValues(labels[0], labels[1])); got != n {
			t.Errorf("%v: %v, want %v", labels, got, n)
		}
	}
	if got := testutil.ToFloat64(h.metrics.bytes); got < 610 {
		t.Errorf("%v bytes", got)
	}
	if got := testutil.ToFloat64(h.metrics.inFlight); got != 0 {
		t.Errorf("%v in flight", got)
	}
	if _, err := New(Config{Gateway: &fakeReader{}, Forward: unexpectedForward(t), Registerer: reg}); err == nil {
		t.Error("registered twice without an error")
	}
}

// Reads that go past the cache are counted by why they do, and told at level debug; those from blocks, and what is no
// read, are not.
func TestBypassedReads(t *testing.T) {
	reg, log := prometheus.NewRegistry(), new(accessLog)
	config := Config{Registerer: reg, Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Gateway: testReader(t, nil), Forward: forwardAs(func() (*http.Response, error) { return answer(200, "x"), nil })}
	h := newHandler(t, config)
	for _, c := range []struct {
		target string
		header []string
		why    bypass
	}{
		{"GET /bucket/k", nil, ""},
		{"GET /bucket/k", []string{"Range", "bytes=1-2"}, ""},
		{"GET /bucket/k?acl", nil, ""},
		{"GET /bucket?list-type=2", nil, ""},
		{"GET /bucket/k", []string{"Origin", "https://example.com"}, bypassOrigin},
		{"HEAD /bucket/k", []string{"X-Amz-Expected-Bucket-Owner", "1"}, bypassHeader},
		{"GET /bucket/k?partNumber=1", nil, bypassParameter},
		{"GET /bucket/k?versionId=a&versionId=b", nil, bypassParameter},
		{"GET /bucket/k", []string{"If-None-Match", `"a", "b"`}, bypassConditions},
	} {
		before := make(map[bypass]float64)
		for why, counter := range h.metrics.bypassed {
			before[why] = testutil.ToFloat64(counter)
		}
		ask(h, c.target, "", c.header...)
		for why, counter := range h.metrics.bypassed {
			want := before[why]
			if why == c.why {
				want++
			}
			if got := testutil.ToFloat64(counter); got != want {
				t.Errorf("%s %v: %s %v, want %v", c.target, c.header, why, got, want)
			}
		}
	}
	if n := strings.Count(log.lines.String(), `"msg":"read bypasses the cache"`); n != 5 {
		t.Errorf("%d lines:\n%s", n, log.lines.String())
	}

	config.Registerer = nil
	config.Gateway = testReader(t, func(_ *gateway.Policy, o *origintest.Object) { o.ETag = `W/"weak"` })
	h = newHandler(t, config)
	want(t, ask(h, "GET /bucket/k", ""), 200, "")
	if n := testutil.ToFloat64(h.metrics.bypassed[bypassETag]); n != 1 {
		t.Errorf("without a strong ETag: %v", n)
	}
}

func TestAccessLogHoldsNoSecrets(t *testing.T) {
	var logs bytes.Buffer
	h := newHandler(t, Config{
		Gateway: testReader(t, nil), AccessLog: true, Logger: slog.New(slog.NewJSONHandler(&logs, nil)), Auth: staticAuth(),
		OriginTLS: true, Forward: forwardAs(func() (*http.Response, error) {
			return nil, errors.New("refused")
		}),
	})
	s := httptest.NewTLSServer(h) // else the encryption key would be refused
	defer s.Close()
	r := signed(t, "READER", "GET", s.URL+"/bucket/k?x-amz-meta-secret=hush-query", "", "Cookie", "hush-cookie",
		"X-Amz-Server-Side-Encryption-Customer-Key", "hush-key")
	signature := r.Header.Get("Authorization")
	signature = signature[strings.LastIndex(signature, "=")+1:]
	want(t, do(t, s, r), 503, "")
	s.Close() // the line is written after the answer
	line := logs.String()
	for _, part := range []string{
		`"method":"GET"`, `"bucket":"bucket"`, `"key":"k"`, `"status":503`, `"access_key":"READER"`,
		`"operation":"GetObject"`, `"request_id":"`,
	} {
		if !strings.Contains(line, part) {
			t.Errorf("no %s in %s", part, line)
		}
	}
	if strings.Contains(line, "hush") || strings.Contains(line, signature) || strings.Contains(line, testSecret) {
		t.Errorf("a secret in %s", line)
	}
}

// pipeListener serves connections that exist in memory alone, so that their deadlines are in a bubble's time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// P06: a client that doesn't read is cut off, in time that follows from what it was sent. Where it reads in the end,
// all is well.
func TestStuckClientIsCut(t *testing.T) {
	for _, patient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			h := newHandler(t, Config{Forward: forwardAs(func() (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: 1 << 20,
					Body: &endReader{Reader: io.LimitReader(zeroes{}, 1<<20), ended: ended}}, nil
			})})
			l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
			server := &http.Server{Handler: h}
			go server.Serve(l)
			defer server.Close()
			client, conn := net.Pipe()
			l.conns <- conn
			begin := time.Now()
			if _, err := io.WriteString(client, "GET /bucket HTTP/1.1\r\nHost: gw\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if patient {
				time.Sleep(29 * time.Second)
				go io.Copy(io.Discard, client)
			}
			<-ended
			took := time.Since(begin)
			limit := patience + copyBuffer*time.Second/defaultMinRate
			if patient && took > 30*time.Second || !patient && took != limit {
				t.Errorf("patient %v: ended after %v, limit %v", patient, took, limit)
			}
			client.Close()
		})
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// endReader tells when a body is closed.
type endReader struct {
	io.Reader
	ended chan<- error
}

func (r *endReader) Close() error { r.ended <- nil; return nil }
