package s3origin

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestConnectionsAreReused: many misses over few connections, whatever their answers are.
func TestConnectionsAreReused(t *testing.T) {
	const workers, each = 64, 50
	s := newServer(t)
	tag := s.Put("bkt", "k", origintest.Object{Size: 1 << 20})
	o := newOrigin(t, s.url)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				opts := origin.GetOptions{Offset: int64(w*each+i) * 100, Length: 4096}
				key := "k"
				switch i % 5 {
				case 1:
					key = "none"
				case 2:
					opts.IfMatch = `"other"`
				case 3:
					opts.IfNoneMatch = tag
				}
				r, err := o.Get(t.Context(), obj(key), opts)
				var e *origin.Error
				switch {
				case errors.As(err, &e):
				case err != nil:
					t.Error(err)
				case r.Body != nil:
					p := make([]byte, r.Length)
					if i%5 == 4 { // closed with a little left
						p = p[:10]
					}
					if _, err := io.ReadFull(r.Body, p); err != nil {
						t.Error(err)
					}
					if err := origintest.Check(tag, r.Offset, p); err != nil {
						t.Error(err)
					}
					_ = r.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	// Were any of the five kinds of answers to cost its connection, there would be 640 more. A few go where the rest of a
	// body is not here in time.
	seen := s.connections()
	if seen > workers*each/10 {
		t.Errorf("%d requests opened %d connections", workers*each, seen)
	}
	within(t, func() { // one that was opened in vain may not be counted yet
		for testutil.ToFloat64(o.metrics.connections) < float64(seen) {
			time.Sleep(time.Millisecond)
		}
	})
}

// TestStaleConnection: a request that meets a dead connection is sent again on another, once, and no other request is.
func TestStaleConnection(t *testing.T) {
	// The transport drops a connection whose write ends long after the answer, so the second request may come down another
	// one; one of these comes down one that was used.
	const most = 50
	ok := lines("HTTP/1.1 206 Partial Content", "Content-Range: bytes 0-1/10", "Content-Length: 2") + "ok"
	read := func(t *testing.T, o *Origin) error {
		r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 2})
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.ReadFull(r.Body, make([]byte, 2))
		return err
	}
	t.Run("closed while idle", func(t *testing.T) {
		s := newRawServer(t, func(int, int) (string, bool) { return ok, false }) // promises to keep it, and doesn't
		o := newOrigin(t, s.url)
		for range 20 {
			if err := read(t, o); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("closed on the next request", func(t *testing.T) {
		var closed atomic.Bool
		s := newRawServer(t, func(_, request int) (string, bool) {
			if request == 2 && !closed.Swap(true) {
				return "", false
			}
			return ok, true
		})
		o := newOrigin(t, s.url)
		reads := 0
		for last := false; !last && reads < most; reads++ {
			last = closed.Load()
			if err := read(t, o); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.requests()); n != reads+1 {
			t.Errorf("%d requests on the wire for %d, one of them sent twice", n, reads)
		}
		if n := testutil.ToFloat64(o.metrics.requests.WithLabelValues(opGet, "2xx")); n != float64(reads) {
			t.Errorf("counted %v of %d", n, reads)
		}
	})
	t.Run("fresh connection", func(t *testing.T) {
		s := newRawServer(t, always(""))
		o := newOrigin(t, s.url)
		if err := read(t, o); err == nil || errors.Is(err, origin.ErrBadAnswer) {
			t.Error(err)
		}
		if n := len(s.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		wantReason(t, o, whyBroken)
	})
	t.Run("after half an answer", func(t *testing.T) {
		s := newRawServer(t, func(_, request int) (string, bool) {
			if request == 1 {
				return ok, true
			}
			return ok[:20], false
		})
		o := newOrigin(t, s.url)
		reads := 0
		for err := error(nil); err == nil && reads < most; reads++ {
			err = read(t, o)
		}
		if reads < 2 || reads == most {
			t.Errorf("half a head is an answer, or a whole one none: %d reads", reads)
		}
		if n := len(s.requests()); n != reads {
			t.Errorf("%d requests for %d reads", n, reads)
		}
	})
	t.Run("a write is not sent twice", func(t *testing.T) {
		s := newRawServer(t, func(_, request int) (string, bool) {
			if request == 1 {
				return lines("HTTP/1.1 200 OK", "Content-Length: 0"), true
			}
			return "", false
		})
		o := newOrigin(t, s.url)
		writes := 0
		for err := error(nil); err == nil && writes < most; writes++ {
			var resp *http.Response
			resp, err = o.Forward(t.Context(), httptest.NewRequest(http.MethodPost, "/", nil), "bkt", "k")
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		if writes < 2 || writes == most {
			t.Errorf("the first failed, or none: %d writes", writes)
		}
		if n := len(s.requests()); n != writes {
			t.Errorf("%d requests for %d writes", n, writes)
		}
	})
}

// TestReset is C09's other half: a connection reset in the middle of a body.
func TestReset(t *testing.T) {
	headers := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = rw.WriteString(head100)
		_, _ = rw.Write(make([]byte, 40))
		_ = rw.Flush()
		<-headers
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}))
	defer srv.Close()
	o := newOrigin(t, srv.URL)
	r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 100})
	close(headers)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := io.ReadAll(r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	wantReason(t, o, whyShort)
}

func TestRefusedConnection(t *testing.T) {
	o := newOrigin(t, "http://s3.example.com", refusing)
	if _, err := o.Get(t.Context(), obj("k"), origin.GetOptions{}); err == nil || errors.Is(err, origin.ErrTimeout) {
		t.Error(err)
	}
	wantReason(t, o, whyConnect)
}

// TestNothingLeaks is field case P08: readers that go early leave no request, body or goroutine behind (the last by
// goleak in TestMain). Half of the answers are cut by the other side.
func TestNothingLeaks(t *testing.T) {
	const seed = 8
	var n atomic.Int64
	s := newServer(t)
	tag := s.Put("bkt", "k", origintest.Object{Size: 1 << 20})
	s.Fail(-1, func(*origintest.Request) bool { return n.Add(1)%2 == 0 }, origintest.Fault{
		Steps: []origintest.Step{{At: 200_000, Err: io.ErrUnexpectedEOF}},
	})
	o := newOrigin(t, s.url)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 12 {
				r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				p := make([]byte, rng.IntN(400_000))
				got, err := io.ReadFull(r.Body, p)
				if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error(err)
				}
				if err := origintest.Check(tag, 0, p[:got]); err != nil {
					t.Error(err)
				}
				_ = r.Body.Close()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		fmt.Println("seed", seed)
	}
}

func BenchmarkGet(b *testing.B) {
	const size = 1 << 20
	block := origintest.Bytes("block", 0, size)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Range"] = []string{"bytes 0-1048575/10485760"}
		w.Header()["Content-Length"] = []string{"1048576"}
		w.WriteHeader(206)
		_, _ = w.Write(block)
	}))
	defer srv.Close()
	o := newOrigin(b, srv.URL)
	p := make([]byte, size)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := o.Get(b.Context(), obj("k"), origin.GetOptions{Length: size})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(r.Body, p); err != nil {
			b.Fatal(err)
		}
		_ = r.Body.Close()
	}
}
