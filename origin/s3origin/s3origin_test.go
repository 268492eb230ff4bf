package s3origin

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSuite(t *testing.T) {
	origintest.Suite(t, func(t *testing.T) (origin.Origin, origintest.Backend) {
		s := newServer(t)
		return newOrigin(t, s.url), s
	})
}

// TestWirePath captures what is sent for each spelling of a key: the very bytes, path-style and virtual-hosted, with a
// signature over the canonical form.
func TestWirePath(t *testing.T) {
	type testCase struct {
		object origin.Object
		path   string // after the bucket's slash
	}
	cases := []testCase{
		{origin.Object{Key: "a+b", Raw: "a+b"}, "a+b"},
		{origin.Object{Key: "a+b c", Raw: "a+b%20c"}, "a+b%20c"},
		{origin.Object{Key: "p+q/r", Raw: "p+q%2Fr"}, "p+q%2Fr"},
		{origin.Object{Key: "//+//..", Raw: "//+//.."}, "//+//.."},
		{origin.Object{Key: "a+b", VersionID: "v/1 +", Raw: "a+b"}, "a+b?versionId=v%2F1%20%2B"},
	}
	for _, k := range origintest.OddKeys {
		cases = append(cases, testCase{origin.Object{Key: k}, uri(k, false)})
	}
	var mu sync.Mutex
	var uris, hosts []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		uris, hosts = append(uris, r.RequestURI), append(hosts, r.Host)
		if err := verify(r, testSecret); err != nil {
			t.Errorf("%s: %v", r.RequestURI, err)
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")

	for _, mode := range []struct {
		name, endpoint string
		virtual        bool
		host, prefix   string
	}{
		{"path-style", srv.URL, false, addr, "/bkt/"},
		{"base path", srv.URL + "/storage/v1%20x/", false, addr, "/storage/v1%20x/bkt/"},
		{"IP address", srv.URL, true, addr, "/bkt/"},
		{"virtual-hosted", "http://S3.Example.COM:80", true, "bkt.s3.example.com", "/"},
		{"virtual-hosted, base path", "http://s3.example.com:8080/base", true, "bkt.s3.example.com:8080", "/base/"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			o := newOrigin(t, mode.endpoint, func(c *Config) {
				c.VirtualHosted = mode.virtual
				c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			for _, c := range cases {
				mu.Lock()
				uris, hosts = nil, nil
				mu.Unlock()
				c.object.Bucket = "bkt"
				r, err := o.Get(t.Context(), c.object, origin.GetOptions{})
				if err != nil {
					t.Errorf("%q: %v", c.object.Key, err)
					continue
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				// The same through Forward, spelled by the client.
				path, query, _ := strings.Cut(c.path, "?")
				fr := httptest.NewRequest("GET", "/x", nil)
				fr.URL.RawQuery = query
				resp, err := o.Forward(t.Context(), fr, "bkt", path)
				if err != nil {
					t.Errorf("Forward %q: %v", c.path, err)
					continue
				}
				_ = resp.Body.Close()
				mu.Lock()
				if want := mode.prefix + c.path; !slices.Equal(uris, []string{want, want}) {
					t.Errorf("key %q: sent %q, want %q twice", c.object.Key, uris, want)
				}
				if hosts[0] != mode.host {
					t.Errorf("key %q: sent to host %q, want %q", c.object.Key, hosts[0], mode.host)
				}
				mu.Unlock()
			}
		})
	}
}

func TestBucketInHostName(t *testing.T) {
	for _, c := range []struct {
		bucket         string
		plain, overTLS bool // whether it goes into the host name
	}{
		{"bkt", true, true}, {"a-b-1", true, true}, {"a.b", true, false}, {"a", true, true},
		{"Bkt", false, false}, {"a_b", false, false}, {"-a", false, false}, {"a-", false, false}, {"a..b", false, false},
		{".a", false, false}, {"10.0.0.1", false, false}, {strings.Repeat("a", 64), false, false},
	} {
		for _, scheme := range []string{"http", "https"} {
			e, err := parseEndpoint(scheme+"://s3.example.com", "r", true)
			if err != nil {
				t.Fatal(err)
			}
			host, path, err := e.place(c.bucket, "k")
			if err != nil {
				t.Fatal(err)
			}
			wantHost, wantPath := "s3.example.com", "/"+c.bucket+"/k"
			if (scheme == "http" && c.plain) || (scheme == "https" && c.overTLS) {
				wantHost, wantPath = c.bucket+".s3.example.com", "/k"
			}
			if host != wantHost || path != wantPath {
				t.Errorf("%s, %q: host %q, path %q", scheme, c.bucket, host, path)
			}
		}
	}
	// Names that could reach another host or bucket never leave.
	o := newOrigin(t, "http://127.0.0.1:1", func(c *Config) {
		c.VirtualHosted = true
		c.Dial = func(context.Context, string, string) (net.Conn, error) { t.Error("dialed"); return nil, net.ErrClosed }
	})
	for _, bucket := range []string{
		"..", ".", "a/b", "evil.example/", "a@b", "a:1", "a b", "ä", "a\r\nb", "a?b", "a#b", "a%2Fb",
	} {
		var e *origin.Error
		_, err := o.Get(t.Context(), origin.Object{Bucket: bucket, Key: "k"}, origin.GetOptions{})
		if !errors.As(err, &e) || e.Status != 400 || e.Code != "InvalidBucketName" {
			t.Errorf("bucket %q: %v", bucket, err)
		}
		if _, err := o.Forward(t.Context(), httptest.NewRequest("PUT", "/", nil), bucket, ""); !errors.As(err, &e) {
			t.Errorf("Forward to bucket %q: %v", bucket, err)
		}
	}
	if _, err := o.Get(t.Context(), origin.Object{Bucket: "b"}, origin.GetOptions{}); err == nil {
		t.Error("a read without a key would list the bucket")
	}
}

// TestNoRequestInARequest: nothing that a path or query holds can end the request line or begin another request.
func TestNoRequestInARequest(t *testing.T) {
	o := newOrigin(t, "http://s3.example.com", func(c *Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) { t.Error("dialed"); return nil, net.ErrClosed }
	})
	for _, c := range []struct{ rawKey, query string }{
		{"a b", ""}, {"a HTTP/1.1\r\nHost: x\r\n\r\nDELETE /k", ""}, {"a?acl", ""}, {"a\x00", ""}, {"a\x7f", ""}, {"%zz", ""},
		{"%", ""}, {"k", "a=b c"}, {"k", "a\r\nX-Y: z"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = c.query
		var e *origin.Error
		if _, err := o.Forward(t.Context(), r, "bkt", c.rawKey); !errors.As(err, &e) || e.Code != "InvalidURI" {
			t.Errorf("%q?%q: %v", c.rawKey, c.query, err)
		}
		if c.query == "" {
			_, err := o.Get(t.Context(), origin.Object{Bucket: "bkt", Key: "k", Raw: c.rawKey}, origin.GetOptions{})
			if !errors.As(err, &e) || e.Code != "InvalidURI" {
				t.Errorf("Get %q: %v", c.rawKey, err)
			}
		}
	}
}

// TestProxy: a plain-http proxy gets the absolute form, with the path as it is.
func TestProxy(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 200 OK", "Content-Length: 0")))
	proxy, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t, "http://s3.example.com", func(c *Config) { c.VirtualHosted = true })
	// What ProxyFromEnvironment sets, which reads the environment only once per process.
	o.transport.Proxy = http.ProxyURL(proxy)
	o.proxied = func(u *url.URL) bool { return u.Scheme == "http" }
	for _, key := range []string{"a+b/%2e//../", "/x"} {
		r, err := o.Get(t.Context(), origin.Object{Bucket: "bkt", Key: "k", Raw: key}, origin.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	got := s.requests()
	for i, want := range []string{
		"GET http://bkt.s3.example.com/a+b/%2e//../ HTTP/1.1\r\nHost: bkt.s3.example.com\r\n",
		"GET http://bkt.s3.example.com//x HTTP/1.1\r\nHost: bkt.s3.example.com\r\n",
	} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("%q\nwant %q", got[i], want)
		}
	}
}

func TestRequestHeaders(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 304 Not Modified")))
	o := newOrigin(t, s.url)
	_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{
		Offset: 1 << 40, Length: 10, IfMatch: `"m"`, IfNoneMatch: `"n"`, NoCache: true,
		Via: []string{"ashlar-a", "ashlar-b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = o.Get(t.Context(), obj("k"), origin.GetOptions{})
	_, _ = o.Head(t.Context(), obj("k"), origin.HeadOptions{})
	got := s.requests()
	for _, want := range []string{
		"GET /bkt/k HTTP/1.1\r\n", "\r\nRange: bytes=1099511627776-1099511627785\r\n", "\r\nIf-Match: \"m\"\r\n",
		"\r\nIf-None-Match: \"n\"\r\n", "\r\nCache-Control: no-cache\r\n",
		"\r\nVia: 1.1 ashlar-a\r\nVia: 1.1 ashlar-b\r\nVia: 1.1 ashlar-test\r\n",
		"\r\nAccept-Encoding: identity\r\n", "\r\nX-Amz-Checksum-Mode: ENABLED\r\n",
		"\r\nX-Amz-Content-Sha256: " + emptyHash + "\r\n", "\r\nUser-Agent: ashlar\r\n",
		"SignedHeaders=host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date,",
	} {
		if !strings.Contains(got[0], want) {
			t.Errorf("no %q in\n%s", want, got[0])
		}
	}
	for _, head := range got[1:] {
		for _, not := range []string{"Range:", "If-Match:", "If-None-Match:", "Cache-Control:"} {
			if strings.Contains(head, not) {
				t.Errorf("%s unasked in\n%s", not, head)
			}
		}
	}
	if !strings.HasPrefix(got[2], "HEAD /bkt/k HTTP/1.1\r\n") {
		t.Errorf("%s", got[2])
	}
}

func TestRangeHeaderStaysWithin63Bits(t *testing.T) {
	for _, c := range []struct {
		off, n int64
		want   string
	}{
		{0, 1, "bytes=0-0"},
		{5, 1<<63 - 1, "bytes=5-9223372036854775807"},
		{1<<63 - 2, 1, "bytes=9223372036854775806-9223372036854775806"},
	} {
		if got := rangeHeader(c.off, c.n); got != c.want {
			t.Errorf("%d+%d: %s", c.off, c.n, got)
		}
	}
	o := newOrigin(t, "http://127.0.0.1:1")
	for _, opts := range []origin.GetOptions{{Offset: -1, Length: 1}, {Length: -1}, {Offset: 1}} {
		if _, err := o.Get(t.Context(), obj("k"), opts); err == nil {
			t.Errorf("%+v accepted", opts)
		}
	}
}

func TestAnonymousSignsNothing(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 200 OK", "Content-Length: 0")))
	o := newOrigin(t, s.url, func(c *Config) { c.Credentials = Credentials{Source: SourceAnonymous} })
	if _, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{}); err != nil {
		t.Fatal(err)
	}
	head := s.requests()[0]
	for _, not := range []string{"Authorization", "X-Amz-Date", "X-Amz-Content-Sha256"} {
		if strings.Contains(head, not) {
			t.Errorf("%s in\n%s", not, head)
		}
	}
	if id, err := o.Resolve(t.Context()); err != nil || id.Source != SourceAnonymous || id.AccessKey != "" {
		t.Errorf("%+v, %v", id, err)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("spoke %s", r.Proto)
		}
		_, _ = io.WriteString(w, "ok")
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()

	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t, srv.URL, func(c *Config) { c.CAFile = ca })
	r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := io.ReadAll(r.Body); err != nil || string(p) != "ok" {
		t.Errorf("%q, %v", p, err)
	}
	_ = r.Body.Close()

	// Without it the certificate is refused, and that is a failure to connect.
	o = newOrigin(t, srv.URL)
	if _, err := o.Get(t.Context(), obj("k"), origin.GetOptions{}); err == nil {
		t.Error("unknown authority accepted")
	}
	if n := testutil.ToFloat64(o.metrics.errors.WithLabelValues(whyConnect)); n != 1 {
		t.Errorf("%v connect errors", n)
	}
}

func TestConfigErrors(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	static := Credentials{Source: SourceStatic, AccessKey: "a", SecretKey: "hidden"}
	for _, c := range []struct {
		config Config
		says   string
	}{
		{Config{Endpoint: "s3.example.com"}, "http"},
		{Config{Endpoint: "ftp://s3.example.com"}, "http"},
		{Config{Endpoint: "https://"}, "http"},
		{Config{Endpoint: "https://h:99999"}, "port"},
		{Config{Endpoint: "https://h/?x"}, "query"},
		{Config{Endpoint: "https://u:hidden@h"}, "user name"},
		{Config{Endpoint: "https://u:hidden@h:bad"}, "not a URL"},
		{Config{Endpoint: "https://h", CAFile: "/nonexistent/ca.pem"}, "/nonexistent/ca.pem"},
		{Config{Endpoint: "https://h", CAFile: empty}, "no PEM certificate"},
		{Config{Endpoint: "https://h", Credentials: Credentials{Source: SourceStatic, AccessKey: "a"}}, "secret key"},
		{Config{Endpoint: "https://h", Credentials: Credentials{Source: "magic"}}, "magic"},
	} {
		c.config.Region = "r"
		if c.config.Credentials == (Credentials{}) {
			c.config.Credentials = static
		}
		_, err := New(t.Context(), c.config)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", c.says, err)
		}
	}
	reg := prometheus.NewRegistry()
	c := Config{Endpoint: "https://h", Region: "r", Credentials: static, Registerer: reg}
	if _, err := New(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), c); err == nil {
		t.Error("metrics registered twice")
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, c); strings.Contains(s, "hidden") {
			t.Errorf("%s shows the secret: %s", format, s)
		}
	}
}

func TestDefaultEndpoint(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	for region, want := range map[string]string{
		"eu-central-1": "https://s3.eu-central-1.amazonaws.com",
		"cn-north-1":   "https://s3.cn-north-1.amazonaws.com.cn",
	} {
		if got := newOrigin(t, "", func(c *Config) { c.Region = region }).Endpoint(); got != want {
			t.Errorf("%s: %s", region, got)
		}
	}
}

func TestProbe(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 403 Forbidden", "Content-Length: 0")))
	if err := newOrigin(t, s.url).Probe(t.Context()); err != nil {
		t.Error(err)
	}
	head := s.requests()[0]
	if !strings.HasPrefix(head, "HEAD / HTTP/1.1\r\n") || strings.Contains(head, "Authorization") {
		t.Error(head)
	}
	if err := newOrigin(t, "http://s3.example.com", refusing).Probe(t.Context()); err == nil {
		t.Error("a closed port answers")
	}
}

// TestGzipUntouched is field case E01.
func TestGzipUntouched(t *testing.T) {
	s := newServer(t)
	stored := append([]byte("\x1f\x8b\x08\x00"), origintest.Bytes("gzip", 0, 10_001)...)
	s.Put("bkt", "k", origintest.Object{
		Data: stored, Headers: []origin.Header{{Name: "Content-Encoding", Value: "gzip"}},
	})
	o := newOrigin(t, s.url)
	for _, opts := range []origin.GetOptions{{}, {Length: 100}} {
		r, err := o.Get(t.Context(), obj("k"), opts)
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || !bytes.Equal(p, stored[:r.Length]) || r.Info.Size != int64(len(stored)) {
			t.Errorf("%+v: %d bytes, %v, info %+v", opts, len(p), err, r.Info)
		}
		if !slices.Contains(r.Info.Headers, origin.Header{Name: "Content-Encoding", Value: "gzip"}) {
			t.Errorf("%+v: %v", opts, r.Info.Headers)
		}
	}
}

func TestMetrics(t *testing.T) {
	s := newServer(t)
	s.Put("bkt", "k", origintest.Object{Size: 1000})
	reg := prometheus.NewPedanticRegistry()
	o := newOrigin(t, s.url, func(c *Config) { c.Registerer = reg })
	n, err := testutil.GatherAndCount(reg, "ashlar_origin_requests_total", "ashlar_origin_errors_total")
	if err != nil || n != 22 {
		t.Errorf("%d series before the first request, %v", n, err)
	}
	r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 100})
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(o.metrics.inFlight); n != 1 {
		t.Errorf("%v in flight with a body open", n)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	_, _ = o.Head(t.Context(), obj("none"), origin.HeadOptions{})
	for _, c := range []struct {
		what      prometheus.Collector
		got, want float64
	}{
		{o.metrics.requests, testutil.ToFloat64(o.metrics.requests.WithLabelValues(opGet, "2xx")), 1},
		{o.metrics.requests, testutil.ToFloat64(o.metrics.requests.WithLabelValues(opHead, "4xx")), 1},
		{o.metrics.bytes, testutil.ToFloat64(o.metrics.bytes), 100},
		{o.metrics.connections, testutil.ToFloat64(o.metrics.connections), float64(s.connections())},
		{o.metrics.inFlight, testutil.ToFloat64(o.metrics.inFlight), 0},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWrap(t *testing.T) {
	s := newServer(t)
	s.Put("bkt", "k", origintest.Object{Data: []byte("data")})
	var status []int
	o := newOrigin(t, s.url, func(c *Config) {
		c.Wrap = func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Authorization") == "" {
					t.Error("not signed yet")
				}
				r.Header.Set("X-Ashlar-Routed", "1") // the server checks the signature
				resp, err := base.RoundTrip(r)
				if err == nil {
					status = append(status, resp.StatusCode)
				}
				return resp, err
			})
		}
	})
	if _, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := o.Head(t.Context(), obj("none"), origin.HeadOptions{}); !errors.Is(err, origin.ErrNotFound) {
		t.Error(err)
	}
	if !slices.Equal(status, []int{200, 404}) {
		t.Errorf("saw %v", status)
	}
}
