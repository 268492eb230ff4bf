package s3api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// pipe serves h on connections in memory, in the time of the bubble that it is called in. It returns one connection.
func pipe(t *testing.T, h http.Handler) (client net.Conn, in *bufio.Reader) {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	client, conn := net.Pipe()
	t.Cleanup(func() { client.Close() })
	l.conns <- conn
	return client, bufio.NewReader(client)
}

// statusOf reads an answer to its end and returns its status, 0 where the connection was cut.
func statusOf(in *bufio.Reader, method string) (int, string) {
	r, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

func (m *metrics) count(r shedReason) float64 { return testutil.ToFloat64(m.shed[r]) }

// heldReader holds reads of the key "held", which is nothing.
type heldReader struct {
	Reader
	began chan<- struct{}
	until <-chan struct{}
}

func (h heldReader) Open(ctx context.Context, r gateway.Request) (*gateway.Object, error) {
	if r.Object.Key != "held" {
		return h.Reader.Open(ctx, r)
	}
	h.began <- struct{}{}
	<-h.until
	return nil, &origin.Error{Status: 404}
}

// Half of Limits.Requests may be forwarded ones: what an origin that hangs holds up leaves room for hits. Those beyond
// are turned away, with their bodies unread, and a place that is free again is given away.
func TestTooManyForwards(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	h := newHandler(t, Config{Gateway: testReader(t, nil), Auth: writable(), Limits: Limits{Requests: 5},
		Forward: forwardAs(func() (*http.Response, error) {
			began <- struct{}{}
			<-release
			return answer(200, "ok"), nil
		})})
	want(t, ask(h, "GET /bucket/k", ""), 200, "") // and it is cached from now on
	done := make(chan int, 3)
	for _, line := range []string{"GET /bucket", "PUT /bucket/k", "DELETE /bucket/k"} {
		go func() { done <- ask(h, line, "").StatusCode }()
		<-began
	}
	for _, line := range []string{"GET /bucket", "PUT /bucket/k", "GET /bucket/k?partNumber=1"} {
		r := ask(h, line, "")
		want(t, r, 503, "SlowDown")
		if r.Header.Get("Retry-After") == "" || r.Header.Get("Connection") != "" {
			t.Errorf("%s: %v", line, r.Header)
		}
	}
	r := ask(h, "PUT /bucket/k", "body")
	want(t, r, 503, "SlowDown")
	if r.Header.Get("Connection") != "close" {
		t.Errorf("%v", r.Header)
	}
	want(t, ask(h, "GET /bucket/k", ""), 200, "")
	if n := h.metrics.count(shedForwards); n != 4 {
		t.Errorf("counted %v", n)
	}
	close(release)
	for range 3 {
		if status := <-done; status != 200 {
			t.Errorf("a request that was let in: %d", status)
		}
	}
	if n := h.forwards.Load(); n != 0 {
		t.Errorf("%d forwarded at the end", n)
	}
}

// Beyond Limits.Requests, requests are turned away before anything is asked of anybody: reads that would be hits, too.
// Health checks are answered all the same, and a place that is free again is given away.
func TestTooManyRequests(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := heldReader{testReader(t, nil), began, release}
	h := newHandler(t, Config{Gateway: f, Limits: Limits{Requests: 2}, Forward: forwardAs(func() (*http.Response, error) {
		began <- struct{}{}
		<-release
		return answer(200, "ok"), nil
	})})
	want(t, ask(h, "GET /bucket/k", ""), 200, "") // and it is cached from now on
	done := make(chan int, 2)
	for _, line := range []string{"GET /bucket", "GET /bucket/held"} {
		go func() { done <- ask(h, line, "").StatusCode }()
		<-began
	}
	// Not even a look at the signature: no key is needed to be told.
	h.auth.Load().verifier, h.auth.Load().anonymous = nil, nil
	for _, line := range []string{"GET /bucket/k", "PUT /bucket/k", "GET /bucket?list-type=2", "GET /Nonsense"} {
		r := ask(h, line, "")
		want(t, r, 503, "SlowDown")
		if r.Header.Get("Retry-After") == "" || r.Header.Get("Connection") != "" {
			t.Errorf("%s: %v", line, r.Header)
		}
	}
	// Of an upload nobody wants to read the body.
	r := ask(h, "PUT /bucket/k", "body")
	want(t, r, 503, "SlowDown")
	if r.Header.Get("Connection") != "close" {
		t.Errorf("%v", r.Header)
	}
	want(t, ask(h, "HEAD /bucket/k", ""), 503, "")
	for _, line := range []string{"GET /-/health", "GET /-/ready"} {
		want(t, ask(h, line, ""), 200, "")
	}
	if n := h.metrics.count(shedRequests); n != 6 {
		t.Errorf("counted %v", n)
	}
	close(release)
	if a, b := <-done, <-done; a+b != 200+404 {
		t.Errorf("requests that were let in: %d, %d", a, b)
	}
	if err := h.SetAuth(Auth{}); err != nil {
		t.Fatal(err)
	}
	want(t, ask(h, "GET /bucket/k", ""), 200, "")
	if n := h.inFlight.Load(); n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
}

func TestTooManyHeaders(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil), Limits: Limits{Headers: 10}})
	lines := func(n int, same bool) (header []string) {
		for i := range n {
			name := "X-Same"
			if !same {
				name = fmt.Sprint("X-", i)
			}
			header = append(header, name, "v")
		}
		return header
	}
	for _, same := range []bool{false, true} {
		want(t, ask(h, "GET /bucket/k", "", lines(10, same)...), 200, "")
		want(t, ask(h, "GET /bucket/k", "", lines(11, same)...), 400, "RequestHeaderSectionTooLarge")
	}
	if n := h.metrics.count(shedHeaders); n != 2 {
		t.Errorf("counted %v", n)
	}
}

// uploads answers PUTs when their body has been read.
func uploads(got *string) Forwarder {
	return forwardFunc(func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		*got = string(b)
		if err != nil {
			return nil, err
		}
		return answer(200, "ok"), nil
	})
}

// A client that sends a body more slowly than the least rate is told so, and its connection closed, whether it
// stalls, or sends a byte now and then, or stalls after a fast start.
func TestSlowUpload(t *testing.T) {
	for name, c := range map[string]struct {
		first int           // bytes at once
		every time.Duration // then one by one
		limit time.Duration // from the first byte on
	}{
		"stalls":             {0, time.Hour, patience},
		"one byte":           {0, 10 * time.Second, patience + time.Second},
		"after a fast start": {10 << 20, time.Hour, patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got string
				h := newHandler(t, Config{Auth: writable(), Forward: uploads(&got)})
				client, in := pipe(t, h)
				begin := time.Now()
				go func() {
					fmt.Fprintf(client, "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\n\r\n", 1<<30)
					_, err := io.WriteString(client, strings.Repeat("x", c.first))
					for err == nil {
						select {
						case <-time.After(c.every):
							_, err = io.WriteString(client, "x")
						case <-t.Context().Done():
							return
						}
					}
				}()
				code, body := statusOf(in, "PUT")
				if took := time.Since(begin); code != 400 || !strings.Contains(body, "RequestTimeout") || took > c.limit ||
					took < patience-time.Second {
					t.Errorf("%d %s after %v", code, body, took)
				}
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("not closed: %v", err)
				}
				if n := h.metrics.count(shedSlowUpload); n != 1 {
					t.Errorf("counted %v", n)
				}
			})
		})
	}
}

// An upload at the least rate goes through, however long it takes, and so does one whose reader, the origin, is slow.
func TestSteadyUpload(t *testing.T) {
	const pieces = 200
	for _, slowOrigin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var got int64
			h := newHandler(t, Config{Auth: writable(), Limits: Limits{MinRate: 100}, Forward: forwardFunc(
				func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
					for buf := make([]byte, 1000); ; {
						n, err := io.ReadFull(r.Body, buf)
						got += int64(n)
						if slowOrigin {
							time.Sleep(time.Minute)
						}
						if errors.Is(err, io.EOF) {
							return answer(200, "ok"), nil
						} else if err != nil {
							return nil, err
						}
					}
				})})
			client, in := pipe(t, h)
			go func() {
				fmt.Fprintf(client, "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\n\r\n", pieces*1000)
				for range pieces {
					if !slowOrigin {
						time.Sleep(10 * time.Second) // 1000 bytes at the least rate
					}
					io.WriteString(client, strings.Repeat("x", 1000))
				}
			}()
			if code, body := statusOf(in, "PUT"); code != 200 || got != pieces*1000 {
				t.Errorf("slow origin %v: %d %s, %d bytes", slowOrigin, code, body, got)
			}
		})
	}
}

// Deadlines of one request are none of the next one's on the same connection, nor of what net/http does meanwhile: a
// write that takes the origin long after the body was read, a pause longer than any deadline, answers without a body,
// and "100 Continue".
func TestDeadlinesEndWithTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		inner := uploads(&got)
		h := newHandler(t, Config{Auth: writable(), Gateway: testReader(t, nil), Forward: forwardFunc(
			func(ctx context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
				resp, err := inner.Forward(ctx, r, bucket, rawKey)
				select {
				case <-ctx.Done():
					return nil, fmt.Errorf("the client is taken for gone: %w", ctx.Err())
				case <-time.After(3 * patience): // far beyond the deadline of the last Read
				}
				return resp, err
			})})
		client, in := pipe(t, h)
		for i := range 3 {
			go io.WriteString(client, "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: 4\r\n\r\nbody")
			if code, body := statusOf(in, "PUT"); code != 200 || got != "body" {
				t.Fatalf("upload %d: %d %s", i, code, body)
			}
			time.Sleep(2 * patience)
			for _, method := range []string{"HEAD", "GET"} {
				go fmt.Fprintf(client, "%s /bucket/k HTTP/1.1\r\nHost: gw\r\n\r\n", method)
				if code, body := statusOf(in, method); code != 200 {
					t.Fatalf("%s %d: %d %s", method, i, code, body)
				}
				time.Sleep(2 * patience)
			}
			go io.WriteString(client, "GET /-/health HTTP/1.1\r\nHost: gw\r\n\r\n")
			if code, body := statusOf(in, "GET"); code != 200 {
				t.Fatalf("health %d: %d %s", i, code, body)
			}
			time.Sleep(2 * patience)
			go io.WriteString(client, "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
			if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
				t.Fatalf("continue %d: %q %v", i, line, err)
			}
			in.ReadString('\n')
			go io.WriteString(client, "body")
			if code, body := statusOf(in, "PUT"); code != 200 {
				t.Fatalf("after continue %d: %d %s", i, code, body)
			}
			time.Sleep(2 * patience)
		}
	})
}

// A body that the handler doesn't want is read for the sake of the next request, but not for ever.
func TestUnwantedBodyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{})
		client, in := pipe(t, h)
		begin := time.Now()
		go io.WriteString(client, "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: 1000\r\n\r\n")
		code, _ := statusOf(in, "PUT")
		if _, err := in.ReadByte(); err == nil || time.Since(begin) > 2*patience {
			t.Errorf("%d, %v after %v", code, err, time.Since(begin))
		}
	})
}

// A client that takes an answer at the least rate gets all of it, one that is slower is cut off and counted, also where
// it takes a byte now and then.
func TestSlowDownload(t *testing.T) {
	const size = 100_000
	for _, c := range []struct {
		every time.Duration // for each 1000 bytes
		ok    bool
	}{{9 * time.Second, true}, {20 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, Config{Limits: Limits{MinRate: 100}, Forward: forwardAs(func() (*http.Response, error) {
				return answer(200, strings.Repeat("x", size), "Content-Length", fmt.Sprint(size)), nil
			})})
			client, in := pipe(t, h)
			go io.WriteString(client, "GET /bucket HTTP/1.1\r\nHost: gw\r\n\r\n")
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			var n int64
			for err == nil {
				var m int64
				m, err = io.CopyN(io.Discard, r.Body, 1000)
				n += m
				time.Sleep(c.every)
			}
			if ok := err == io.EOF && n == size; ok != c.ok {
				t.Errorf("%v per 1000 bytes: %d of %d, %v", c.every, n, size, err)
			}
			synctest.Wait()
			if n := h.metrics.count(shedSlowDownload); (n == 0) != c.ok {
				t.Errorf("counted %v", n)
			}
		})
	}
}

// A client that takes nothing at all is cut off wherever something small is written for it: the header of an answer
// whose body is still to come, a health check, "100 Continue".
func TestClientThatTakesNothing(t *testing.T) {
	for name, request := range map[string]string{
		"header":   "GET /bucket HTTP/1.1\r\nHost: gw\r\n\r\n",
		"health":   "GET /-/health HTTP/1.1\r\nHost: gw\r\n\r\n",
		"continue": "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
					func(ctx context.Context, r *http.Request, _, _ string) (*http.Response, error) {
						if r.Method == http.MethodPut {
							_, err := io.ReadAll(r.Body)
							return nil, err
						}
						return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1,
							Body: io.NopCloser(untilDone{ctx})}, nil
					})})
				closed := make(chan struct{})
				l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
				server := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
					if s == http.StateClosed {
						close(closed)
					}
				}}
				go server.Serve(l)
				defer server.Close()
				client, conn := net.Pipe()
				defer client.Close()
				l.conns <- conn
				begin := time.Now()
				if _, err := io.WriteString(client, request); err != nil {
					t.Fatal(err)
				}
				select {
				case <-closed:
				case <-time.After(time.Hour):
					t.Error("never cut off")
				}
				if took := time.Since(begin); took > 2*patience {
					t.Errorf("cut off after %v", took)
				}
			})
		})
	}
}

// Whoever is not known, or asks for nothing that takes one, is soon answered and cut off when he announces a body and
// sends none: connections, and the goroutine of each, are for clients.
func TestAnnouncedBodiesOfStrangers(t *testing.T) {
	const conns = 100
	for name, c := range map[string]struct {
		request string
		length  int
		status  int
		limits  Limits
	}{
		"no signature":        {"PUT /bucket/k", 4, 403, Limits{}},
		"no signature, large": {"PUT /bucket/k", 1 << 30, 403, Limits{}},
		"bad signature":       {"PUT /bucket/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=x", 4, 400, Limits{}},
		"not allowed":         {"PUT /public/k", 4, 403, Limits{}},
		"shed":                {"PUT /bucket/k", 4, 400, Limits{Headers: 1}},
		"health":              {"GET /-/health", 4, 200, Limits{}},
		"ready":               {"GET /-/ready", 4, 200, Limits{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				auth := staticAuth()
				auth.AnonymousBuckets = []string{"public"}
				l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
				var open atomic.Int64
				server := &http.Server{Handler: newHandler(t, Config{Auth: auth, Limits: c.limits}),
					ConnState: func(_ net.Conn, s http.ConnState) {
						switch s {
						case http.StateNew:
							open.Add(1)
						case http.StateClosed:
							open.Add(-1)
						}
					}}
				go server.Serve(l)
				defer server.Close()
				begin := time.Now()
				for range conns {
					client, conn := net.Pipe()
					defer client.Close()
					l.conns <- conn
					go func() {
						fmt.Fprintf(client, "%s HTTP/1.1\r\nHost: gw\r\nX-A: b\r\nContent-Length: %d\r\n\r\n", c.request, c.length)
						code, body := statusOf(bufio.NewReader(client), "PUT")
						if took := time.Since(begin); code != c.status || took > unwantedPatience {
							t.Errorf("%d %s after %v", code, body, took)
						}
					}()
				}
				time.Sleep(unwantedPatience + time.Second) // the last one is net/http's, lest answers be lost
				if n := open.Load(); n != 0 {
					t.Errorf("%d connections are still open", n)
				}
			})
		})
	}
}

// untilDone is a body that has nothing to say until its request ends.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}
