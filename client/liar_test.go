package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// TestLiars: one of three nodes answers in ways that no node does, as one of another kind, of another setup, or
// something between might. What can be told is told, another node is asked, and the read is right; no byte is wrong in
// any case.
func TestLiars(t *testing.T) {
	header := func(name string, values ...string) func(*httptest.ResponseRecorder) {
		return func(w *httptest.ResponseRecorder) { w.Header()[name] = values }
	}
	status := func(code int, also ...func(*httptest.ResponseRecorder)) func(*httptest.ResponseRecorder) {
		return func(w *httptest.ResponseRecorder) {
			w.Code = code
			for _, do := range also {
				do(w)
			}
		}
	}
	content := func(w *httptest.ResponseRecorder) string { return w.Header().Get("Content-Range") }
	for name, lie := range map[string]func(*httptest.ResponseRecorder){
		"shifted":       func(w *httptest.ResponseRecorder) { header("Content-Range", "bytes 1-65536/393216")(w) },
		"no range":      func(w *httptest.ResponseRecorder) { delete(w.Header(), "Content-Range") },
		"ranges":        func(w *httptest.ResponseRecorder) { header("Content-Range", content(w), content(w))(w) },
		"junk range":    header("Content-Range", "bytes */*"),
		"200 of a part": status(200),
		"204":           status(204),
		"304":           status(304),
		"508":           status(508, header("X-Ashlar-Error", "node")),
		"age":           header("Age", "-1, 99999999999999999999"),
		"junk": func(w *httptest.ResponseRecorder) {
			for _, h := range []string{"Last-Modified", "X-Ashlar-Block-Size", "X-Ashlar-Cache", "Retry-After"} {
				w.Header().Set(h, strings.Repeat("\xff;,=\"", 100))
			}
		},
		"gzip":      header("Content-Encoding", "gzip"),
		"short":     func(w *httptest.ResponseRecorder) { w.Body.Truncate(w.Body.Len() / 2) },
		"empty":     func(w *httptest.ResponseRecorder) { w.Body.Reset() },
		"long":      func(w *httptest.ResponseRecorder) { w.Body.WriteString("more") },
		"weak ETag": func(w *httptest.ResponseRecorder) { header("Etag", "W/"+w.Header().Get("Etag"))(w) },
		"no ETag":   func(w *httptest.ResponseRecorder) { delete(w.Header(), "Etag") },
		"two ETags": func(w *httptest.ResponseRecorder) { header("Etag", w.Header().Get("Etag"), `"other"`)(w) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 3)
			c := f.client(t, func(l *Config) { l.FirstByte = 20 * time.Second })
			tag := f.origin.Put("bkt", "k", origintest.Object{Size: 6 * blockSize})
			f.ranked(t, c, "bkt", "k", 1)[0].does(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
					return false
				}
				got := httptest.NewRecorder()
				handlerOf(r).ServeHTTP(got, r)
				got.Header().Del("Content-Length") // in pieces, so that nothing but the length is wrong
				lie(got)
				for name, values := range got.Header() {
					w.Header()[name] = values
				}
				w.WriteHeader(got.Code)
				_, _ = w.Write(got.Body.Bytes())
				_ = http.NewResponseController(w).Flush()
				return true
			})
			for _, opts := range []origin.GetOptions{
				{}, {Length: 6 * blockSize, IfMatch: tag}, {Offset: 7, Length: 5 * blockSize},
			} {
				r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, opts)
				if err != nil {
					t.Fatal(err)
				}
				p, err := io.ReadAll(r.Body)
				_ = r.Body.Close()
				changed := strings.Contains(name, "ETag") && errors.Is(err, origin.ErrChanged)
				if err != nil && !changed || err == nil && int64(len(p)) != r.Length {
					t.Errorf("%+v: %d bytes, %v", opts, len(p), err)
				}
				if !bytes.Equal(p, origintest.Bytes(tag, r.Offset, int64(len(p)))) {
					t.Errorf("%+v: wrong bytes", opts)
				}
			}
		})
	}
}
