package s3api

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus"
)

// discardWriter is a ResponseWriter that costs nothing itself.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkHit is the handler's own share of a small hit: everything but net/http and, anonymous, the signature; and what
// the access log adds to that, and what counting a request is of it.
func BenchmarkHit(b *testing.B) {
	r := httptest.NewRequest("GET", "/bucket/k", nil)
	r.Header = http.Header{
		"Accept-Encoding": {"identity"}, "Amz-Sdk-Invocation-Id": {"x"}, "Amz-Sdk-Request": {"attempt=1"},
		"Range": {"bytes=100-199"}, "User-Agent": {"bench"}, "X-Amz-Content-Sha256": {"UNSIGNED-PAYLOAD"},
		"X-Amz-Date": {"20260101T000000Z"}, "X-Amz-Checksum-Mode": {"ENABLED"},
	}
	devNull, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = devNull.Close() }()
	newHandler := func(accessLog bool) *Handler {
		h, err := New(Config{Gateway: testReader(b, nil), Forward: forwardFunc(nil), AccessLog: accessLog,
			Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewJSONHandler(devNull, nil))})
		if err != nil {
			b.Fatal(err)
		}
		return h
	}
	for name, accessLog := range map[string]bool{"whole": false, "with access log": true} {
		b.Run(name, func(b *testing.B) {
			h, w := newHandler(accessLog), &discardWriter{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
	b.Run("counting", func(b *testing.B) {
		h := newHandler(false)
		x := exchange{h: h, r: r, op: h.table.classify("GET", atObject, nil, &amz{}), status: 206, start: time.Now()}
		b.ReportAllocs()
		for b.Loop() {
			h.metrics.inFlight.Inc()
			h.metrics.observe(&x)
		}
	})
}

// BenchmarkServe is a small hit with all of net/http around it, over connections of their own, anonymous. Its client
// allocates nothing.
func BenchmarkServe(b *testing.B) {
	engine := testReader(b, func(_ *gateway.Policy, o *origintest.Object) { o.Data = make([]byte, 64<<10) })
	h, err := New(Config{Gateway: engine, Forward: forwardFunc(nil)})
	if err != nil {
		b.Fatal(err)
	}
	addr := serveHits(b, h)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 16<<10)
		for pb.Next() {
			if err := hit(c, buf); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// serveHits serves as a node does, and returns its address.
func serveHits(tb testing.TB, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Listener = gatherListener{s.Listener}
	s.Config.ConnContext = ConnContext
	s.Config.ReadHeaderTimeout, s.Config.IdleTimeout = 10*time.Second, 2*time.Minute
	s.Start()
	tb.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

var hitRequest = []byte("GET /bucket/k HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=1000-5095\r\nUser-Agent: bench\r\n" +
	"Amz-Sdk-Invocation-Id: x\r\nX-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\nX-Amz-Date: 20260101T000000Z\r\n\r\n")

// hit asks for 4 KiB and reads the answer into buf. It allocates nothing.
func hit(c net.Conn, buf []byte) error {
	if _, err := c.Write(hitRequest); err != nil {
		return err
	}
	for n, end := 0, 0; end == 0 || n < end; {
		m, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
		if i := bytes.Index(buf[:n], []byte("\r\n\r\n")); i >= 0 {
			end = i + 4 + 4096
		}
	}
	return nil
}

// TestHitAllocations: a small hit allocates next to nothing beyond what net/http does for a bare handler that sends as
// much: the Object, which is never used again, since who holds it may close it more than once; the request ids; and
// what is set of headers that net/http must know.
func TestHitAllocations(t *testing.T) {
	engine := testReader(t, func(_ *gateway.Policy, o *origintest.Object) { o.Data = make([]byte, 64<<10) })
	h, err := New(Config{Gateway: engine, Forward: forwardFunc(nil)})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4096)
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"], w.Header()["Content-Length"] = nil, []string{"4096"}
		_, _ = w.Write(data)
	})
	allocations := func(h http.Handler) float64 {
		c, err := net.Dial("tcp", serveHits(t, h))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 16<<10)
		return testing.AllocsPerRun(2000, func() {
			if err := hit(c, buf); err != nil {
				t.Fatal(err)
			}
		})
	}
	ours, theirs := allocations(h), allocations(bare)
	if t.Logf("%v allocations, %v of a bare handler", ours, theirs); ours > theirs+10 { // 6; the race detector has pools lose some
		t.Errorf("a hit allocates %v times, a bare handler %v times", ours, theirs)
	}
}
