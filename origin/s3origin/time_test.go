package s3origin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// pipeOrigin returns an origin whose connections are pipes to serve, which gets each request's head. It lives in a
// bubble of synctest; serve must return when done ends.
func pipeOrigin(t *testing.T, serve func(w io.Writer, done <-chan struct{}), change ...func(*Config)) *Origin {
	done := make(chan struct{})
	o := newOrigin(t, "http://s3.example.com", append([]func(*Config){func(c *Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				br := bufio.NewReader(server)
				for {
					if _, err := readHead(br); err != nil {
						return
					}
					serve(server, done)
				}
			}()
			return client, nil
		}
	}}, change...)...)
	t.Cleanup(func() { close(done) })
	return o
}

func wantReason(t *testing.T, o *Origin, why string) {
	t.Helper()
	if n := testutil.ToFloat64(o.metrics.errors.WithLabelValues(why)); n != 1 {
		t.Errorf("%v errors counted as %s", n, why)
	}
}

func TestFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(_ io.Writer, done <-chan struct{}) { <-done })
		start := time.Now()
		_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{FirstByte: 3 * time.Second})
		if !errors.Is(err, origin.ErrTimeout) || time.Since(start) != 3*time.Second {
			t.Errorf("Get after %v: %v", time.Since(start), err)
		}
		wantReason(t, o, whyTimeout)
		start = time.Now()
		_, err = o.Head(t.Context(), obj("k"), origin.HeadOptions{FirstByte: time.Minute})
		if !errors.Is(err, origin.ErrTimeout) || time.Since(start) != time.Minute {
			t.Errorf("Head after %v: %v", time.Since(start), err)
		}
	})
}

func TestFirstByteCoversConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrigin(t, "http://s3.example.com", func(c *Config) {
			c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Minute):
					return nil, errors.New("unreachable")
				}
			}
		})
		start := time.Now()
		_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{FirstByte: 3 * time.Second})
		if !errors.Is(err, origin.ErrTimeout) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

type slowCredentials struct{}

func (slowCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	return aws.Credentials{}, errors.New("the metadata service is asleep")
}

func TestFirstByteCoversCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(io.Writer, <-chan struct{}) {}, func(c *Config) {
			c.Credentials = Credentials{Provider: slowCredentials{}}
		})
		start := time.Now()
		_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{FirstByte: 3 * time.Second})
		if !errors.Is(err, origin.ErrTimeout) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		// Without a bound it is their error that comes out.
		if _, err = o.Get(t.Context(), obj("k"), origin.GetOptions{}); err == nil || errors.Is(err, origin.ErrTimeout) {
			t.Error(err)
		}
		wantReason(t, o, whyCredentials)
		time.Sleep(time.Minute) // for the cache's own attempt to end
	})
}

const head100 = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/1000\r\nContent-Length: 100\r\n\r\n"

func TestIdleBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(w io.Writer, done <-chan struct{}) {
			_, _ = io.WriteString(w, head100)
			for range 5 { // a trickle is no stall
				time.Sleep(29 * time.Second)
				_, _ = w.Write(make([]byte, 10))
			}
			<-done
		})
		r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 100, FirstByte: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		p := make([]byte, 10)
		for range 5 {
			if _, err := io.ReadFull(r.Body, p); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		_, err = io.ReadFull(r.Body, p)
		if !errors.Is(err, origin.ErrTimeout) || time.Since(start) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		wantReason(t, o, whyTimeout)
	})
}

// TestSlowReader: the bound is on waiting for the origin, not on the reader.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(w io.Writer, _ <-chan struct{}) {
			_, _ = io.WriteString(w, head100)
			for range 10 {
				_, _ = w.Write(make([]byte, 10))
			}
		})
		r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 100, FirstByte: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(time.Hour)
			if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Body.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		_ = r.Body.Close()
	})
}

func TestIdleErrorBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(w io.Writer, done <-chan struct{}) {
			_, _ = io.WriteString(w, "HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\n<Error>")
			<-done
		})
		_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{})
		var e *origin.Error
		if !errors.As(err, &e) || e.Status != 503 {
			t.Errorf("%v", err)
		}
	})
}

func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(w io.Writer, done <-chan struct{}) {
			time.Sleep(10 * time.Second)
			_, _ = io.WriteString(w, head100)
			<-done
		})
		// While waiting for headers.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := o.Get(ctx, obj("k"), origin.GetOptions{Length: 100, FirstByte: time.Hour})
		if err != context.DeadlineExceeded {
			t.Errorf("deadline: %v", err)
		}
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err = o.Head(ctx, obj("k"), origin.HeadOptions{FirstByte: time.Hour}); err != context.Canceled {
			t.Errorf("cancel: %v", err)
		}
		// While waiting for the body.
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, cancel)
		r, err := o.Get(ctx, obj("k"), origin.GetOptions{Length: 100})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.ReadAll(r.Body); err != context.Canceled {
			t.Errorf("cancel in the body: %v", err)
		}
		_ = r.Body.Close()
		// Close ends a Read that waits.
		if r, err = o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 100}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = r.Body.Close() })
		if _, err = io.ReadAll(r.Body); err == nil || errors.Is(err, origin.ErrTimeout) {
			t.Errorf("Close in the body: %v", err)
		}
		synctest.Wait() // for Close, which ends the Read first
	})
}

// TestForwardIsPatient: an upload may be completed for minutes before the answer comes, and between its parts.
func TestForwardIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(w io.Writer, done <-chan struct{}) {
			time.Sleep(10 * time.Minute)
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n ")
			time.Sleep(10 * time.Minute)
			_, _ = io.WriteString(w, "x")
		})
		r := httptest.NewRequest("POST", "/?uploadId=1", nil)
		resp, err := o.Forward(t.Context(), r, "bkt", "k")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := io.ReadAll(resp.Body); string(p) != " x" || err != nil {
			t.Errorf("%q, %v", p, err)
		}
		_ = resp.Body.Close()
	})
}

// What the origin says is as old as the question, not as its answer: it may have looked long before that came.
func TestAgeCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := pipeOrigin(t, func(w io.Writer, done <-chan struct{}) {
			time.Sleep(3 * time.Second)
			_, _ = io.WriteString(w, lines("HTTP/1.1 200 OK", `ETag: "x"`, "Age: 10", "Content-Length: 0"))
		})
		check := func(i *origin.Info, asked time.Time) {
			t.Helper()
			if !i.Confirmed.Equal(asked.Add(-10*time.Second)) || !i.Received.Equal(asked.Add(3*time.Second)) {
				t.Errorf("asked at %v: Confirmed %v, Received %v", asked, i.Confirmed, i.Received)
			}
		}
		asked := time.Now()
		r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		check(&r.Info, asked)
		_ = r.Body.Close()
		asked = time.Now()
		i, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		check(i, asked)
	})
}
