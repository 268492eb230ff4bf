package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashlar-s3/ashlar/origin"
)

func writable() Auth { return Auth{Mode: Anonymous, AnonymousWrite: true} }

func TestForwardIsVerbatim(t *testing.T) {
	var got struct{ method, query, bucket, rawKey, body, via string }
	h := newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			got.method, got.query, got.bucket, got.rawKey, got.body = r.Method, r.URL.RawQuery, bucket, rawKey, string(b)
			return answer(207, "<their/>", "Content-Type", "application/xml", "X-Amz-Request-Id", "THEIRS", "X-Amz-Id-2", "TOO",
				"Set-Cookie", "a", "Set-Cookie", "b", "Etag", `"e"`, "Connection", "close, X-Hop", "X-Hop", "1", "Keep-Alive", "1",
				"Transfer-Encoding", "x", "X-Ashlar-Snapshot", "1", "Content-Length", "8"), nil
		})})
	r := ask(h, "PUT /bucket/a%2fb//%C3%A4+;?tagging&versionId=v%2B1", "the body", "Content-Type", "x/y")
	if body := want(t, r, 207, ""); body != "<their/>" {
		t.Errorf("body %q", body)
	}
	if got.method != "PUT" || got.query != "tagging&versionId=v%2B1" || got.bucket != "bucket" ||
		got.rawKey != "a%2fb//%C3%A4+;" || got.body != "the body" {
		t.Errorf("%+v", got)
	}
	for name, values := range map[string][]string{
		"X-Amz-Request-Id": {"THEIRS"}, "X-Amz-Id-2": {"TOO"}, "Set-Cookie": {"a", "b"}, "Etag": {`"e"`}, "Connection": nil,
		"X-Hop": nil, "Keep-Alive": nil, "Transfer-Encoding": nil, "X-Ashlar-Snapshot": nil, "Content-Length": {"8"},
		"X-Ashlar-Cache": {"bypass; origin"},
	} {
		if !slices.Equal(r.Header[name], values) {
			t.Errorf("%s: %q, want %q", name, r.Header[name], values)
		}
	}
}

func TestFormUploadsAreRefused(t *testing.T) {
	h := newHandler(t, Config{Auth: writable()})
	want(t, ask(h, "POST /bucket", "x", "Content-Type", "multipart/form-data; boundary=x"), 501, "NotImplemented")
}

func TestCustomerKeysNeedTLSToTheOrigin(t *testing.T) { // A08
	for _, name := range []string{
		"x-amz-server-side-encryption-customer-key", "x-amz-server-side-encryption-customer-algorithm",
		"x-amz-copy-source-server-side-encryption-customer-key",
	} {
		h := newHandler(t, Config{Auth: writable()})
		want(t, ask(h, "GET /bucket/k", "", name, "x"), 400, "InvalidRequest")
		want(t, ask(h, "PUT /bucket/k", "x", name, "x"), 400, "InvalidRequest")
		want(t, ask(h, "PUT /bucket/k?"+name+"=x", "x"), 400, "InvalidRequest")
	}
}

// What a write may have changed is forgotten before the client has its answer, unless it was definitely refused: P6.
func TestWritesInvalidate(t *testing.T) {
	type outcome struct {
		name    string
		answer  func() (*http.Response, error)
		forgets bool
	}
	outcomes := []outcome{
		{"200", func() (*http.Response, error) { return answer(200, "ok"), nil }, true},
		{"204", func() (*http.Response, error) { return answer(204, ""), nil }, true},
		{"301", func() (*http.Response, error) { return answer(301, ""), nil }, true},
		{"400", func() (*http.Response, error) { return answer(400, "no"), nil }, false},
		{"404", func() (*http.Response, error) { return answer(404, "no"), nil }, true},
		{"408", func() (*http.Response, error) { return answer(408, "gave up"), nil }, true},
		{"412", func() (*http.Response, error) { return answer(412, "no"), nil }, true},
		{"500", func() (*http.Response, error) { return answer(500, "?"), nil }, true},
		{"503", func() (*http.Response, error) { return answer(503, "?"), nil }, true},
		{"no answer", func() (*http.Response, error) { return nil, errors.New("reset") }, true},
		{"timeout", func() (*http.Response, error) { return nil, fmt.Errorf("x: %w", origin.ErrTimeout) }, true},
		{"panic", func() (*http.Response, error) { panic("boom") }, true},
	}
	deletion := `<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a&amp;b</Key></Object>` +
		`<Object><Key> ä/'&lt;</Key><VersionId>v</VersionId></Object><Quiet>true</Quiet></Delete>`
	for _, c := range []struct {
		line, body string
		keys       []string
		header     []string
	}{
		{"PUT /bucket/k", "x", []string{"bucket/k"}, nil},
		{"PUT /bucket/a%20b", "x", []string{"bucket/a b"}, nil},
		{"PUT /bucket/k", "", []string{"bucket/k"}, []string{"x-amz-copy-source", "/bucket/source"}},
		{"DELETE /bucket/k", "", []string{"bucket/k"}, nil},
		{"DELETE /bucket/k?versionId=v", "", []string{"bucket/k"}, nil},
		{"POST /bucket/k?uploadId=u", "<x/>", []string{"bucket/k"}, nil},
		{"POST /bucket/k?restore", "<x/>", []string{"bucket/k"}, nil},
		{"PUT /bucket/k?tagging", "<x/>", []string{"bucket/k"}, nil},
		{"DELETE /bucket/k?tagging", "", []string{"bucket/k"}, nil},
		{"POST /bucket?delete", deletion, []string{"bucket/a&b", "bucket/ ä/'<"}, nil},
		{"POST /bucket/k?uploads", "", nil, nil},
		{"PUT /bucket/k?uploadId=u&partNumber=1", "x", nil, nil},
		{"DELETE /bucket/k?uploadId=u", "", nil, nil},
		{"GET /bucket/k?tagging", "", nil, nil},
		{"GET /bucket?list-type=2", "", nil, nil},
	} {
		for _, o := range outcomes {
			f := &fakeReader{}
			h := newHandler(t, Config{Gateway: f, Auth: writable(), Forward: forwardFunc(
				func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
					if r.Body != nil {
						if b, _ := io.ReadAll(r.Body); string(b) != c.body {
							t.Errorf("%s: body %q", c.line, b)
						}
					}
					return o.answer()
				})})
			ask(h, c.line, c.body, c.header...)
			var want []string
			if o.forgets {
				want = c.keys
			}
			if got := f.keys(); !slices.Equal(got, want) {
				t.Errorf("%s, %s: forgot %q, want %q", c.line, o.name, got, want)
			}
		}
	}
}

// C03: an answer of 200 that begins before the write has taken effect is passed on as it comes, and the object is
// forgotten ahead of each piece: what is read in between can't be taken for the object as written.
func TestSlowCompletion(t *testing.T) {
	const pieces = 4
	pr, pw := io.Pipe()
	f := &fakeReader{}
	var told atomic.Int32
	h := newHandler(t, Config{Gateway: f, Auth: writable(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: pr}, nil
		}), Wrote: func([]origin.Object, bool) { told.Add(1) }})
	s := serve(t, h)
	resp, err := s.Client().Post(s.URL+"/bucket/k?uploadId=u", "", strings.NewReader("<x/>"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	count := func() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.gone) }
	for i := range pieces {
		before := count()
		if _, err := pw.Write([]byte("piece")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "piece" { // unbuffered, or this hangs
			t.Fatalf("piece %d: %q %v", i, buf, err)
		}
		if count() == before {
			t.Errorf("piece %d was sent with nothing forgotten since the one before", i)
		}
		if told.Load() != 0 {
			t.Errorf("nodes were told before the write had taken effect, at piece %d", i)
		}
	}
	before := count()
	pw.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	if count() == before {
		t.Error("nothing forgotten at the end")
	}
}

func TestBrokenAnswerIsCut(t *testing.T) {
	for _, length := range []int64{-1, 100} {
		h := newHandler(t, Config{Forward: forwardAs(func() (*http.Response, error) {
			r := answer(200, "")
			r.ContentLength = length
			if length > 0 {
				r.Header.Set("Content-Length", "100")
			}
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), brokenReader{}))
			return r, nil
		})})
		s := serve(t, h)
		r, err := s.Client().Get(s.URL + "/bucket")
		if err != nil {
			continue // cut before the headers had left the buffer
		}
		if b, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("length %d: looks complete: %q", length, b)
		}
		r.Body.Close()
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// An upload that the client breaks off is its own fault, and not the origin's.
func TestIncompleteUpload(t *testing.T) {
	f := &fakeReader{}
	h := newHandler(t, Config{Gateway: f, Auth: writable(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return nil, fmt.Errorf("sending: %w", err)
		})})
	r, w := io.Pipe()
	go w.CloseWithError(io.ErrUnexpectedEOF)
	req, err := http.NewRequest("PUT", "http://gw/bucket/k", r)
	if err != nil {
		t.Fatal(err)
	}
	req.RequestURI, req.ContentLength = "/bucket/k", 10
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	want(t, rec.Result(), 400, "IncompleteBody")
	if len(f.keys()) != 1 {
		t.Errorf("forgot %v", f.keys())
	}
}

func TestDeleteObjectsBodies(t *testing.T) {
	h := newHandler(t, Config{Auth: writable()})
	for _, body := range []string{
		"", "nonsense", "<Delete>", "<Other/>", "<Delete><Object/></Delete>",
		"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
		"<Delete><Object><Key>a</Key><Other/></Object></Delete>",
		"<Delete><Object><Key>team/<Key>priv/z</Key></Key></Object></Delete>",
		"<Delete><Object><Key><x>a</x>team/x</Key></Object></Delete>",
		"<Delete><Objects><Object><Key>a</Key></Object></Objects></Delete>",
		"<Delete></Delete> <Delete><Object><Key>a</Key></Object></Delete>",
		`<?xml version="1.0" encoding="UTF-16"?><Delete><Object><Key>a</Key></Object></Delete>`,
		`<!DOCTYPE d [<!ENTITY k "a">]><Delete><Object><Key>&k;</Key></Object></Delete>`,
		"<Delete>" + strings.Repeat(" ", maxDeleteBody) + "</Delete>",
		"<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", maxDeleteKeys+1) + "</Delete>",
	} {
		want(t, ask(h, "POST /bucket?delete", body), 400, "MalformedXML")
	}
}

// A key that is limited to a prefix deletes nothing outside of it.
func TestDeleteObjectsWithinPrefix(t *testing.T) {
	forwarded := 0
	h := newHandler(t, Config{Forward: forwardAs(func() (*http.Response, error) {
		forwarded++
		return answer(200, "ok"), nil
	})})
	h.auth.Load().anonymous = &grant{rights: Delete, everywhere: true, prefix: "mine/"}
	want(t, ask(h, "POST /bucket?delete", "<Delete><Object><Key>mine/a</Key></Object></Delete>"), 200, "")
	want(t, ask(h, "POST /bucket?delete",
		"<Delete><Object><Key>mine/a</Key></Object><Object><Key>yours</Key></Object></Delete>"), 403, "AccessDenied")
	if forwarded != 1 {
		t.Errorf("forwarded %d times", forwarded)
	}
}

func TestAnonymousWritesOnlyWhereConfigured(t *testing.T) {
	forward := forwardAs(func() (*http.Response, error) {
		return answer(200, ""), nil
	})
	closed, open := newHandler(t, Config{Forward: forward}), newHandler(t, Config{Forward: forward, Auth: writable()})
	for line, status := range map[string][2]int{
		"PUT /bucket/k": {403, 200}, "DELETE /bucket/k": {403, 200}, "POST /bucket/k?uploads": {403, 200},
		"GET /bucket?list-type=2": {200, 200}, "GET /": {200, 200}, "GET /bucket/k?tagging": {200, 200},
		"PUT /bucket": {403, 403}, "PUT /bucket/k?acl": {403, 403}, "GET /bucket?policy": {403, 403},
	} {
		if r := ask(closed, line, ""); r.StatusCode != status[0] {
			t.Errorf("read-only: %s: %d", line, r.StatusCode)
		}
		if r := ask(open, line, ""); r.StatusCode != status[1] {
			t.Errorf("writable: %s: %d", line, r.StatusCode)
		}
	}
}

func TestForwardErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{errors.New("dial: refused"), 503},
		{fmt.Errorf("x: %w", origin.ErrTimeout), 503},
		{fmt.Errorf("x: %w", origin.ErrBadAnswer), 502},
	} {
		h := newHandler(t, Config{Forward: forwardAs(func() (*http.Response, error) {
			return nil, c.err
		})})
		r := ask(h, "GET /bucket", "")
		body := want(t, r, c.status, "")
		if strings.Contains(body, "refused") || c.status == 503 && r.Header.Get("Retry-After") == "" {
			t.Errorf("%v: %s %v", c.err, body, r.Header)
		}
	}
}

// P6: a client that leaves doesn't take its write along: the object is forgotten when the origin has answered.
func TestWriteGoesOnWithoutItsClient(t *testing.T) {
	f, left := &fakeReader{}, make(chan struct{})
	h := newHandler(t, Config{Gateway: f, Auth: writable(), Forward: forwardFunc(
		func(ctx context.Context, _ *http.Request, _, _ string) (*http.Response, error) {
			<-left
			if ctx.Err() != nil || len(f.keys()) != 0 {
				t.Errorf("%v, forgot %v", ctx.Err(), f.keys())
			}
			return answer(200, ""), nil
		})})
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequestWithContext(ctx, "DELETE", "/bucket/k", nil)
	cancel()
	close(left)
	h.ServeHTTP(httptest.NewRecorder(), req)
	if len(f.keys()) == 0 {
		t.Error("not forgotten")
	}
}

// What something on the way says of time or load is no refusal: the write may have been done.
func TestUncertainRefusals(t *testing.T) {
	for status, forgets := range map[int]bool{400: false, 403: false, 404: true, 409: true, 412: true, 408: true, 429: true, 499: true, 500: true} {
		f := &fakeReader{}
		h := newHandler(t, Config{Gateway: f, Auth: writable(), Forward: forwardAs(func() (*http.Response, error) {
			return answer(status, ""), nil
		})})
		ask(h, "DELETE /bucket/k", "")
		if got := len(f.keys()) > 0; got != forgets {
			t.Errorf("%d: forgotten %v", status, got)
		}
	}
}

// Wrote hears of everything that may have changed objects, whatever came of it, after the engine and before the client;
// not of what was refused for certain.
func TestWrote(t *testing.T) {
	for _, c := range []struct {
		line, body string
		status     int
		err        error
		wrote      string
	}{
		{"PUT /bucket/k", "x", 200, nil, "k stored"},
		{"POST /bucket/k?uploadId=u", "<CompleteMultipartUpload/>", 200, nil, "k stored"},
		{"PUT /bucket/k?tagging", "<Tagging/>", 200, nil, "k"},
		{"DELETE /bucket/k", "", 204, nil, "k"},
		{"POST /bucket?delete", "<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>", 200, nil, "a b"},
		{"PUT /bucket/k", "x", 500, nil, "k"},
		{"PUT /bucket/k", "x", 412, nil, "k"},
		{"PUT /bucket/k", "x", 0, origin.ErrTimeout, "k"},
		{"PUT /bucket/k", "x", 403, nil, ""},
		{"GET /bucket?list-type=2", "", 200, nil, ""},
	} {
		for _, length := range []int64{0, -1} {
			engine := &fakeReader{}
			var wrote []string
			var w *httptest.ResponseRecorder
			h := newHandler(t, Config{Gateway: engine, Auth: writable(), Wrote: func(objects []origin.Object, stored bool) {
				for _, o := range objects {
					wrote = append(wrote, o.Key)
				}
				if stored {
					wrote = append(wrote, "stored")
				}
				if len(engine.gone) == 0 {
					t.Errorf("%s %d: told before the engine", c.line, c.status)
				}
				if length == 0 && w.Body.Len() > 0 {
					t.Errorf("%s %d: told after the client", c.line, c.status)
				}
			}, Forward: forwardAs(func() (*http.Response, error) {
				if c.err != nil {
					return nil, c.err
				}
				a := answer(c.status, "")
				a.ContentLength = length
				return a, nil
			})})
			method, target, _ := strings.Cut(c.line, " ")
			r := httptest.NewRequest(method, target, strings.NewReader(c.body))
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := strings.Join(wrote, " "); got != c.wrote {
				t.Errorf("%s, answered by %d %v: told of %q, want %q", c.line, c.status, c.err, got, c.wrote)
			}
		}
	}
}
