package s3api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeReader answers reads with info alone or an error, and remembers what was invalidated.
type fakeReader struct {
	open func(gateway.Request) (*gateway.Object, error)

	mu   sync.Mutex
	gone []origin.Object
	// when, if set, is called at each invalidation
	when func(origin.Object)
}

func (f *fakeReader) Open(_ context.Context, r gateway.Request) (*gateway.Object, error) {
	if f.open == nil {
		return nil, errors.New("unexpected read")
	}
	return f.open(r)
}

func (f *fakeReader) Invalidate(o origin.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, o)
	if f.when != nil {
		f.when(o)
	}
}

// keys returns the distinct keys that were invalidated, in order.
func (f *fakeReader) keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []string
	seen := map[string]bool{}
	for _, o := range f.gone {
		if k := o.Bucket + "/" + o.Key; !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// newEngine returns a read engine over o. Its blocks are of 64 KiB, 256 KiB at most, info is good for a minute.
func newEngine(t testing.TB, o origin.Origin, change func(*gateway.Policy)) *gateway.Gateway {
	t.Helper()
	mem, err := memory.New(memory.Config{Limit: 16 << 20, MaxBlock: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mem.Close)
	policy := &gateway.Policy{BlockSize: 64 << 10, FetchWindow: 4, ReadWindow: 4, TTL: time.Minute,
		Fetch: gateway.Fetch{FirstByte: time.Minute, Attempt: time.Minute}}
	if change != nil {
		change(policy)
	}
	g, err := gateway.New(gateway.Config{Origin: o, Memory: mem, Policy: func(string) *gateway.Policy { return policy }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// testReader is an engine whose origin holds one object, bucket/k.
func testReader(t testing.TB, change func(*gateway.Policy, *origintest.Object)) *gateway.Gateway {
	o := origintest.New()
	info := testInfo()
	object := origintest.Object{
		Data: []byte(strings.Repeat("0123456789", 60)), ETag: info.ETag, LastModified: info.Modified,
		VersionID: info.VersionID, Headers: info.Headers, Volatile: info.Volatile, Checksums: info.Checksums,
	}
	return newEngine(t, o, func(p *gateway.Policy) {
		if change != nil {
			change(p, &object)
		}
		o.Put("bucket", "k", object)
	})
}

// failingReader fails every read.
func failingReader(err error) *fakeReader {
	return &fakeReader{open: func(gateway.Request) (*gateway.Object, error) { return nil, err }}
}

// forwardFunc is a Forwarder.
type forwardFunc func(ctx context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error)

func (f forwardFunc) Forward(ctx context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
	return f(ctx, r, bucket, rawKey)
}

// forwardAs answers whatever is forwarded, once its body has come.
func forwardAs(answer func() (*http.Response, error)) Forwarder {
	return forwardFunc(func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
		if r.Body != nil {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
		}
		return answer()
	})
}

// answer is a forwarder's answer.
func answer(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}

func unexpectedForward(t *testing.T) Forwarder {
	return forwardFunc(func(_ context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
		t.Errorf("unexpected forward of %s /%s/%s?%s", r.Method, bucket, rawKey, r.URL.RawQuery)
		return answer(500, ""), nil
	})
}

func newHandler(t *testing.T, c Config) *Handler {
	t.Helper()
	if c.Gateway == nil {
		c.Gateway = &fakeReader{}
	}
	if c.Forward == nil {
		c.Forward = unexpectedForward(t)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ask serves one request, given as "METHOD target", without a network.
func ask(h http.Handler, line, body string, header ...string) *http.Response {
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, "/", nil)
	if body != "" {
		r = httptest.NewRequest(method, "/", strings.NewReader(body))
	}
	r.RequestURI, r.Host = target, "127.0.0.1:9000"
	_, r.URL.RawQuery, _ = strings.Cut(target, "?")
	for i := 0; i < len(header); i += 2 {
		switch header[i] {
		case "Host":
			r.Host = header[i+1]
		case "TLS": // the connection is encrypted
			r.TLS = new(tls.ConnectionState)
		default:
			r.Header.Add(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// want checks the status of an answer, and the code of its error where one is given.
func want(t *testing.T, r *http.Response, status int, code string) string {
	t.Helper()
	body := read(t, r)
	if r.StatusCode != status {
		t.Errorf("status %d, want %d: %s", r.StatusCode, status, body)
	}
	if code != "" && !strings.Contains(body, "<Code>"+code+"</Code>") {
		t.Errorf("want code %s in %s", code, body)
	}
	return body
}
