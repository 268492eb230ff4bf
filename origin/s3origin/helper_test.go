package s3origin

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey    = "AKIDEXAMPLE"
	testSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	testRegion = "eu-test-1"
)

// newOrigin returns an origin at endpoint with static credentials. At the end of the test nothing may be in flight.
func newOrigin(t testing.TB, endpoint string, change ...func(*Config)) *Origin {
	t.Helper()
	c := Config{
		Endpoint:    endpoint,
		Region:      testRegion,
		Instance:    "test",
		Credentials: Credentials{Source: SourceStatic, AccessKey: testKey, SecretKey: testSecret},
	}
	for _, f := range change {
		f(&c)
	}
	o, err := New(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.Close()
		if n := testutil.ToFloat64(o.metrics.inFlight); n != 0 {
			t.Errorf("%v requests still in flight", n)
		}
	})
	return o
}

// s3server is an S3 endpoint over an origintest.Origin, path-style. It refuses requests that are not signed correctly.
type s3server struct {
	*origintest.Origin
	url string

	mu    sync.Mutex
	conns int
}

func newServer(t testing.TB) *s3server {
	t.Helper()
	s := &s3server{Origin: origintest.New()}
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conns++
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// connections returns how many there have been.
func (s *s3server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *s3server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := verify(r, testSecret); err != nil {
		http.Error(w, "<Error><Code>SignatureDoesNotMatch</Code></Error>", 403)
		return
	}
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	bucket, rawKey, _ := strings.Cut(strings.TrimPrefix(raw, "/"), "/")
	key, err := url.PathUnescape(rawKey)
	if err != nil {
		http.Error(w, "bad path", 400)
		return
	}
	obj := origin.Object{Bucket: bucket, Key: key, VersionID: r.URL.Query().Get("versionId")}
	noCache := r.Header.Get("Cache-Control") == "no-cache"
	if r.Method == http.MethodHead {
		info, err := s.Head(r.Context(), obj, origin.HeadOptions{NoCache: noCache})
		if err != nil {
			s.fail(w, err)
			return
		}
		s.headers(w, info)
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
		return
	}
	opts := origin.GetOptions{
		IfMatch: r.Header.Get("If-Match"), IfNoneMatch: r.Header.Get("If-None-Match"), NoCache: noCache,
	}
	if h := r.Header.Get("Range"); h != "" {
		from, to, _ := strings.Cut(strings.TrimPrefix(h, "bytes="), "-")
		first, err1 := strconv.ParseInt(from, 10, 64)
		last, err2 := strconv.ParseInt(to, 10, 64)
		if err1 != nil || err2 != nil {
			http.Error(w, "bad range", 400)
			return
		}
		opts.Offset, opts.Length = first, last-first+1
	}
	resp, err := s.Get(r.Context(), obj, opts)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.headers(w, &resp.Info)
	if resp.NotModified {
		w.WriteHeader(304)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(resp.Length, 10))
	if opts.Length > 0 {
		w.Header().Set("Content-Range",
			fmt.Sprintf("bytes %d-%d/%d", resp.Offset, resp.Offset+resp.Length-1, resp.Info.Size))
		w.WriteHeader(206)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *s3server) headers(w http.ResponseWriter, i *origin.Info) {
	h := w.Header()
	for _, list := range [][]origin.Header{i.Headers, i.Volatile, i.Checksums} {
		for _, line := range list {
			h[line.Name] = append(h[line.Name], line.Value)
		}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or net/http would guess one
	}
	h["Last-Modified"] = []string{i.LastModified}
	if i.ETag != "" {
		h["ETag"] = []string{i.ETag}
	}
	if i.VersionID != "" {
		h["X-Amz-Version-Id"] = []string{i.VersionID}
	}
}

func (s *s3server) fail(w http.ResponseWriter, err error) {
	var e *origin.Error
	if !errors.As(err, &e) {
		panic(http.ErrAbortHandler)
	}
	for _, h := range e.Header {
		w.Header().Add(h.Name, h.Value)
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(e.Body)
}

// verify checks a header signature, written from the AWS documentation without regard to how the client makes it.
func verify(r *http.Request, secret string) error {
	auth := r.Header.Get("Authorization")
	fields := map[string]string{}
	for f := range strings.SplitSeq(strings.TrimPrefix(auth, "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(f), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[0] != testKey || scope[2] != testRegion || scope[3] != "s3" {
		return fmt.Errorf("credential %q", fields["Credential"])
	}
	signed := strings.Split(fields["SignedHeaders"], ";")
	for name := range r.Header {
		if n := strings.ToLower(name); strings.HasPrefix(n, "x-amz-") && !slices.Contains(signed, n) {
			return fmt.Errorf("%s is not signed", n)
		}
	}
	if !slices.Contains(signed, "host") {
		return errors.New("host is not signed")
	}
	var headers strings.Builder
	for _, n := range signed {
		values := r.Header.Values(n)
		if n == "host" {
			values = []string{r.Host}
		}
		trimmed := make([]string, len(values))
		for i, v := range values {
			for strings.Contains(v, "  ") {
				v = strings.ReplaceAll(v, "  ", " ")
			}
			trimmed[i] = strings.TrimSpace(v)
		}
		fmt.Fprintf(&headers, "%s:%s\n", n, strings.Join(trimmed, ","))
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return err
	}
	var pairs []string
	for p := range strings.SplitSeq(query, "&") {
		if p == "" {
			continue
		}
		name, value, _ := strings.Cut(p, "=")
		pairs = append(pairs, uri(unplus(name), true)+"="+uri(unplus(value), true))
	}
	slices.Sort(pairs)
	canonical := strings.Join([]string{
		r.Method, uri(decoded, false), strings.Join(pairs, "&"), headers.String(), fields["SignedHeaders"],
		r.Header.Get("X-Amz-Content-Sha256"),
	}, "\n")
	date := r.Header.Get("X-Amz-Date")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{
		"AWS4-HMAC-SHA256", date, strings.Join(scope[1:], "/"), hex.EncodeToString(sum[:]),
	}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(slices.Clone(scope[1:]), text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	if hex.EncodeToString(key) != fields["Signature"] {
		return fmt.Errorf("signature differs; canonical request:\n%s", canonical)
	}
	if !strings.HasPrefix(date, scope[1]) {
		return fmt.Errorf("date %s, scope %s", date, scope[1])
	}
	return nil
}

// uri is UriEncode of the AWS documentation, the slow way.
func uri(s string, slash bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", c) >= 0 ||
			(c == '/' && !slash) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func unplus(s string) string {
	u, err := url.PathUnescape(strings.ReplaceAll(s, "+", " "))
	if err != nil {
		return s
	}
	return u
}

// rawServer accepts connections and hands each, with what it has been asked, to serve. It records request heads.
type rawServer struct {
	url   string
	mu    sync.Mutex
	heads []string
}

// newRawServer calls serve for each request with the number of the connection and of the request on it, both from 1.
// What serve returns is written as it is; the connection is closed when keep is false.
func newRawServer(t testing.TB, serve func(conn, request int) (answer string, keep bool)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{url: "http://" + l.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				br := bufio.NewReader(conn)
				for i := 1; ; i++ {
					head, err := readHead(br)
					if err != nil {
						return
					}
					s.mu.Lock()
					s.heads = append(s.heads, head)
					s.mu.Unlock()
					answer, keep := serve(n, i)
					if _, err := io.WriteString(conn, answer); err != nil || !keep {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return s
}

func readHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "\r\n" {
			return head.String(), nil
		}
		head.WriteString(line)
	}
}

// requests returns the request lines and headers seen so far.
func (s *rawServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heads)
}

// always answers every request with the same bytes and closes the connection.
func always(answer string) func(int, int) (string, bool) {
	return func(int, int) (string, bool) { return answer, false }
}

// lines joins header lines to the head of an answer.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

func obj(key string) origin.Object { return origin.Object{Bucket: "bkt", Key: key} }

// refusing makes an origin whose connections are all refused.
func refusing(c *Config) {
	c.Dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
}

// within fails the test when f takes unreasonably long; it is no measurement.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("hangs")
	}
}
