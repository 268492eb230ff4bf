package s3api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// discardWriter is a ResponseWriter that costs nothing itself.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkHit is the handler's own share of a small hit: everything but net/http and, anonymous, the signature.
func BenchmarkHit(b *testing.B) {
	h, err := New(Config{Gateway: testReader(b, nil), Forward: forwardFunc(nil)})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/bucket/k", nil)
	r.Header = http.Header{
		"Accept-Encoding": {"identity"}, "Amz-Sdk-Invocation-Id": {"x"}, "Amz-Sdk-Request": {"attempt=1"},
		"Range": {"bytes=100-199"}, "User-Agent": {"bench"}, "X-Amz-Content-Sha256": {"UNSIGNED-PAYLOAD"},
		"X-Amz-Date": {"20260101T000000Z"}, "X-Amz-Checksum-Mode": {"ENABLED"},
	}
	w := &discardWriter{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}
