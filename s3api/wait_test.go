package s3api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hang is a forwarder that reads of a body what take says, then holds the request until its context ends.
func hang(take func(body io.Reader)) Forwarder {
	return forwardFunc(func(ctx context.Context, r *http.Request, _, _ string) (*http.Response, error) {
		if take != nil {
			take(r.Body)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// A forwarded request whose origin takes it and says nothing ends: sooner where no work is to be expected.
func TestOriginThatNeverAnswers(t *testing.T) {
	for _, c := range []struct {
		line, code string
		header     []string
		bound      time.Duration
	}{
		{"GET /bucket?list-type=2", "ServiceUnavailable", nil, answerPatience},
		{"HEAD /bucket", "", nil, answerPatience},
		{"DELETE /bucket/k", "ServiceUnavailable", nil, answerPatience},
		{"PUT /bucket/k", "ServiceUnavailable", nil, answerPatience},
		{"PUT /bucket/k", "ServiceUnavailable", []string{"x-amz-copy-source", "/bucket/other"}, workPatience},
		{"POST /bucket/k?uploadId=u", "ServiceUnavailable", nil, workPatience},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, Config{Auth: writable(), Forward: hang(nil)})
			begin := time.Now()
			r := ask(h, c.line, "", c.header...)
			want(t, r, 503, c.code)
			if took := time.Since(begin); took != c.bound || r.Header.Get("Retry-After") == "" {
				t.Errorf("%s: after %v, %v", c.line, took, r.Header)
			}
		})
	}
}

// While a body flows its time doesn't count; from its end, or where the origin takes no more of it, it does.
func TestOriginThatStopsTaking(t *testing.T) {
	const piece, pieces = 1 << 10, 100
	for name, take := range map[string]func(io.Reader){
		"takes all": func(body io.Reader) { _, _ = io.Copy(io.Discard, body) },
		"stops":     func(body io.Reader) { _, _ = io.ReadFull(body, make([]byte, pieces/2*piece)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var last time.Time
			h := newHandler(t, Config{Auth: writable(), Limits: Limits{MinRate: 1}, Forward: hang(func(body io.Reader) {
				take(body)
				last = time.Now()
			})})
			pr, pw := io.Pipe()
			go func() {
				for range pieces {
					time.Sleep(10 * time.Second)
					if _, err := pw.Write(make([]byte, piece)); err != nil {
						return
					}
				}
				pw.Close()
			}()
			r, _ := http.NewRequest("PUT", "/bucket/k", pr)
			r.RequestURI, r.ContentLength = "/bucket/k", pieces*piece
			w := newRecorder()
			h.ServeHTTP(w, r)
			pr.Close()
			synctest.Wait()
			if took := time.Since(last); w.status != 503 || took != answerPatience {
				t.Errorf("%s: %d, %v after the last piece was taken", name, w.status, took)
			}
		})
	}
}

// An answer may pause, but not for ever. It is cut then: what came of it must not look complete.
func TestOriginThatStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 20
		pr, pw := io.Pipe()
		h := newHandler(t, Config{Forward: forwardFunc(
			func(ctx context.Context, _ *http.Request, _, _ string) (*http.Response, error) {
				context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) })
				return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: pr}, nil
			})})
		var last time.Time
		go func() {
			for range pieces {
				time.Sleep(answerPatience - time.Second)
				_, _ = pw.Write([]byte("piece"))
				last = time.Now()
			}
		}()
		client, in := pipe(t, h)
		go func() { _, _ = io.WriteString(client, "GET /bucket HTTP/1.1\r\nHost: gw\r\n\r\n") }()
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		synctest.Wait()
		if took := time.Since(last); !errors.Is(err, io.ErrUnexpectedEOF) || took != answerPatience ||
			string(body) != strings.Repeat("piece", pieces) {
			t.Errorf("%q, %v, after %v", body, err, took)
		}
	})
}

// What was classified and authorised is what is sent, whatever else net/http made of the target.
func TestForwardedQueryIsTheOneThatWasResolved(t *testing.T) {
	var got string
	h := newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
			got = r.URL.RawQuery
			return answer(200, ""), nil
		})})
	for _, target := range []string{
		"/bucket/k?tagging&versionId=%2b;", "/bucket/k?", "http://gw/bucket/k?tagging", "/bucket/k",
	} {
		r, _ := http.NewRequest("PUT", "/", http.NoBody)
		r.RequestURI, r.URL = target, &url.URL{Path: "/other", RawQuery: "acl"}
		h.ServeHTTP(newRecorder(), r)
		if _, want, _ := strings.Cut(target, "?"); got != want {
			t.Errorf("%s: %q was sent", target, got)
		}
	}
}

// recorder is a ResponseWriter of nothing but a status.
type recorder struct {
	header http.Header
	status int
}

func newRecorder() *recorder                        { return &recorder{header: http.Header{}} }
func (r *recorder) Header() http.Header             { return r.header }
func (r *recorder) WriteHeader(status int)          { r.status = status }
func (r *recorder) Write(p []byte) (n int, e error) { return len(p), nil }
