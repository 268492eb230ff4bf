package s3api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

func clusterAuth() Auth {
	return Auth{Mode: Static, Keys: []Key{
		{AccessKey: "PEER", SecretKey: testSecret, Buckets: []string{"bucket"}, Prefix: "k", Rights: Read | Cluster},
		{AccessKey: "DEAF", SecretKey: testSecret, Buckets: []string{"*"}, Rights: Cluster},
		{AccessKey: "USER", SecretKey: testSecret, Buckets: []string{"*"}, Rights: ^(Cluster | Admin)},
	}}
}

// What processes of a cluster say to each other counts from those who have the right, and from nobody else.
func TestMessages(t *testing.T) {
	var got gateway.Request
	var left time.Duration
	reader := &contextReader{open: func(ctx context.Context, r gateway.Request) (*gateway.Object, error) {
		got, left = r, 0
		if d, ok := ctx.Deadline(); ok {
			left = time.Until(d)
		}
		return nil, errors.New("trouble")
	}}
	said := []string{routedHeader, "1", deadlineHeader, "3600000", "Cache-Control", "max-age=0, No-Cache"}
	counts := func(whose string, should bool) {
		t.Helper()
		if got.Routed != should || got.NoCache != should || (left > 50*time.Minute) != should || got.OnlyIfCached {
			t.Errorf("%s: routed %v, no-cache %v, %v left; should count: %v", whose, got.Routed, got.NoCache, left, should)
		}
	}
	s := serve(t, newHandler(t, Config{Gateway: reader, Auth: clusterAuth()}))
	for _, key := range []string{"PEER", "USER"} {
		want(t, do(t, s, signed(t, key, "GET", s.URL+"/bucket/k", "", said...)), 503, "")
		counts(key, key == "PEER")
	}
	open := newHandler(t, Config{Gateway: reader})
	want(t, ask(open, "GET /bucket/k", "", said...), 503, "")
	counts("anonymous from elsewhere", false)
	trusting := newHandler(t, Config{Gateway: reader, Auth: Auth{TrustNetwork: true}})
	want(t, ask(trusting, "GET /bucket/k", "", said...), 503, "")
	counts("anonymous from a network that is trusted", true)
	s = serve(t, open)
	r, err := http.NewRequest("GET", s.URL+"/bucket/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(said); i += 2 {
		r.Header.Set(said[i], said[i+1])
	}
	want(t, do(t, s, r), 503, "")
	counts("anonymous from here", true)
}

// contextReader is a Reader that looks at contexts.
type contextReader struct {
	fakeReader
	open func(context.Context, gateway.Request) (*gateway.Object, error)
}

func (c *contextReader) Open(ctx context.Context, r gateway.Request) (*gateway.Object, error) {
	return c.open(ctx, r)
}

// A gateway that is taken for a node says so, to those whose word counts; others are answered.
func TestRoutedToAGateway(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil), Auth: clusterAuth(), RefuseRouted: true,
		Snapshot: func() string { return "0123456789abcdef" }})
	s := serve(t, h)
	for _, target := range []string{"GET /bucket/k", "POST " + warmPath, "POST " + invalidatePath} {
		method, path, _ := strings.Cut(target, " ")
		want(t, do(t, s, signed(t, "PEER", method, s.URL+path, "", routedHeader, "1")), 508, "LoopDetected")
	}
	r := do(t, s, signed(t, "USER", "GET", s.URL+"/bucket/k", "", routedHeader, "1"))
	if want(t, r, 200, ""); r.Header.Get(snapshotHeader) != "0123456789abcdef" || r.Header.Get(blockSizeHeader) != "" {
		t.Errorf("answer says %v", r.Header)
	}
	r = do(t, s, signed(t, "PEER", "GET", s.URL+"/bucket/k", ""))
	if want(t, r, 200, ""); r.Header.Get(blockSizeHeader) != "65536" {
		t.Errorf("answer says %v", r.Header)
	}
}

// only-if-cached is answered by 504 where the origin would have to be asked; so is what blocks don't answer.
func TestOnlyIfCached(t *testing.T) {
	s := serve(t, newHandler(t, Config{Gateway: testReader(t, nil), Auth: clusterAuth()}))
	held := func(status int, header ...string) {
		t.Helper()
		header = append(header, "Cache-Control", "only-if-cached")
		want(t, do(t, s, signed(t, "PEER", "GET", s.URL+"/bucket/k", "", header...)), status,
			map[int]string{504: "NotCached"}[status])
	}
	held(504)
	want(t, do(t, s, signed(t, "PEER", "GET", s.URL+"/bucket/k", "")), 200, "")
	held(200)
	held(504, "Origin", "http://example.com")
}

// A failure of the process itself is told from what the origin said.
func TestWhoseFailure(t *testing.T) {
	for name, c := range map[string]struct {
		h   *Handler
		own bool
	}{
		"closed engine": {newHandler(t, Config{Gateway: failingReader(context.Canceled)}), true},
		"fault":         {newHandler(t, Config{Gateway: failingReader(gateway.ErrPanic)}), true},
		"panic": {newHandler(t, Config{Gateway: &fakeReader{
			open: func(gateway.Request) (*gateway.Object, error) { panic("fault") }}}), true},
		"refused itself": {newHandler(t, Config{Gateway: failingReader(origin.ErrCredentials)}), true},
		"origin's 503":   {newHandler(t, Config{Gateway: failingReader(&origin.Error{Status: 503})}), false},
		"origin is down": {newHandler(t, Config{Gateway: failingReader(&gateway.DownError{})}), false},
		"origin is late": {newHandler(t, Config{Gateway: failingReader(origin.ErrTimeout)}), false},
		"changing":       {newHandler(t, Config{Gateway: failingReader(gateway.ErrUnstable)}), false},
	} {
		r := askThrough(c.h, "GET /bucket/k")
		if r.StatusCode < 500 || (r.Header.Get(errorHeader) == "node") != c.own {
			t.Errorf("%s: %d %v, want the node's own: %v", name, r.StatusCode, r.Header, c.own)
		}
	}
	h := newHandler(t, Config{Gateway: failingReader(errors.New("unread")), Limits: Limits{Requests: 1}})
	h.inFlight.Add(1)
	if r := ask(h, "GET /bucket/k", ""); r.StatusCode != 503 || r.Header.Get(errorHeader) != "node" {
		t.Errorf("shed: %d %v", r.StatusCode, r.Header)
	}
}

// So is a refusal: by this process, or by its origin.
func TestWhoseRefusal(t *testing.T) {
	s := serve(t, newHandler(t, Config{Gateway: failingReader(&origin.Error{Status: 403}), Auth: clusterAuth()}))
	for name, c := range map[string]struct {
		r   *http.Request
		own bool
	}{
		"no signature": {signed(t, "PEER", "GET", s.URL+"/bucket/k", ""), true},
		"unknown key":  {signed(t, "NOBODY", "GET", s.URL+"/bucket/k", ""), true},
		"no right":     {signed(t, "USER", "POST", s.URL+warmPath, ""), true},
		"the origin's": {signed(t, "PEER", "GET", s.URL+"/bucket/k", ""), false},
	} {
		if name == "no signature" {
			c.r.Header.Del("Authorization")
		}
		r := do(t, s, c.r)
		if r.StatusCode != 403 || (r.Header.Get(errorHeader) == "node") != c.own {
			t.Errorf("%s: %d %v, want the process's own: %v", name, r.StatusCode, r.Header, c.own)
		}
	}
}

// askThrough is ask, past the panic that ends a request after a fault.
func askThrough(h http.Handler, line string) *http.Response {
	var r *http.Response
	ask(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			r = w.(interface{ Result() *http.Response }).Result()
		}()
		h.ServeHTTP(w, req)
	}), line, "")
	return r
}

// A reader that has no time left is told so, not cut off.
func TestDeadlineOfAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := origintest.New()
		o.Put("bucket", "k", origintest.Object{Size: 10})
		o.Fail(-1, nil, origintest.Fault{Latency: time.Hour})
		h := newHandler(t, Config{Gateway: newEngine(t, o, nil), Auth: Auth{TrustNetwork: true}})
		began := time.Now()
		want(t, ask(h, "GET /bucket/k", "", deadlineHeader, "1500"), 503, "ServiceUnavailable")
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("after %v", took)
		}
	})
}

// A process of the cluster has keys forgotten, and nothing else, within what its key reaches.
func TestInvalidateByPeers(t *testing.T) {
	p := &purgingReader{}
	s := serve(t, newHandler(t, Config{Gateway: p, Auth: clusterAuth()}))
	for _, c := range []struct {
		who, body string
		status    int
	}{
		{"PEER", `{"bucket":"bucket","keys":["k","k2"]}`, 204},
		{"PEER", `{"bucket":"bucket","keys":["k","other"]}`, 403},
		{"PEER", `{"bucket":"other","keys":["k"]}`, 403},
		{"PEER", `{"bucket":"bucket","prefix":"k"}`, 403},
		{"PEER", `{"bucket":"bucket","keys":["k"],"dry_run":true}`, 403},
		{"USER", `{"bucket":"bucket","keys":["k"]}`, 403},
	} {
		p.gone = nil
		want(t, do(t, s, signed(t, c.who, "POST", s.URL+invalidatePath, c.body, routedHeader, "1")), c.status, "")
		if got := strings.Join(p.keys(), " "); got != map[int]string{204: "bucket/k bucket/k2"}[c.status] {
			t.Errorf("%s %s: forgotten: %s", c.who, c.body, got)
		}
	}
	want(t, do(t, s, signed(t, "PEER", "POST", s.URL+invalidatePath, `{"bucket":"bucket","keys":["k"]}`)), 403, "")

	// Without signatures it counts from here; not from elsewhere, and not from a page in a browser.
	open := newHandler(t, Config{Gateway: p})
	s = serve(t, open)
	const body = `{"bucket":"bucket","keys":["k"]}`
	for typ, status := range map[string]int{"application/json": 204, "text/plain": 400} {
		p.gone = nil
		r, err := http.NewRequest("POST", s.URL+invalidatePath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", typ)
		r.Header.Set(routedHeader, "1")
		if want(t, do(t, s, r), status, ""); (len(p.gone) == 1) != (status == 204) {
			t.Errorf("%s: %v", typ, p.gone)
		}
	}
	want(t, ask(open, "POST "+invalidatePath, body, routedHeader, "1", "Content-Type", "application/json"), 403, "")
}

func TestWarm(t *testing.T) {
	o := origintest.New()
	tag := o.Put("bucket", "k", origintest.Object{Size: 10 << 16})
	o.Put("bucket", "kweak", origintest.Object{Size: 10, ETag: `W/"weak"`})
	engine := newEngine(t, o, nil)
	s := serve(t, newHandler(t, Config{Gateway: engine, Auth: clusterAuth()}))
	for _, c := range []struct {
		name, who, body string
		status          int
	}{
		{"two blocks", "PEER", `{"bucket":"bucket","key":"k","etag":"TAG","ranges":[[0,65536],[196608,1]]}`, 204},
		{"another version", "PEER", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[[0,1]]}`, 412},
		{"no strong ETag", "PEER", `{"bucket":"bucket","key":"kweak","etag":"W/\"weak\"","ranges":[[0,1]]}`, 409},
		{"missing", "PEER", `{"bucket":"bucket","key":"k404","etag":"\"x\"","ranges":[[0,1]]}`, 404},
		{"another prefix", "PEER", `{"bucket":"bucket","key":"other","etag":"\"x\"","ranges":[[0,1]]}`, 403},
		{"another bucket", "PEER", `{"bucket":"other","key":"k","etag":"\"x\"","ranges":[[0,1]]}`, 403},
		{"no right to read", "DEAF", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[[0,1]]}`, 403},
		{"no right", "USER", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[[0,1]]}`, 403},
		{"no ranges", "PEER", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[]}`, 400},
		{"an empty range", "PEER", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[[0,0]]}`, 400},
		{"an endless range", "PEER", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[[1,9223372036854775807]]}`, 400},
		{"behind the end", "PEER", `{"bucket":"bucket","key":"k","etag":"TAG","ranges":[[1000000,1]]}`, 416},
		{"no bucket", "PEER", `{"bucket":"*","key":"k","etag":"\"x\"","ranges":[[0,1]]}`, 400},
		{"unknown field", "PEER", `{"bucket":"bucket","key":"k","etag":"\"x\"","ranges":[[0,1]],"range":[]}`, 400},
	} {
		body := strings.ReplaceAll(c.body, "TAG", strings.ReplaceAll(tag, `"`, `\"`))
		t.Run(c.name, func(t *testing.T) {
			text := want(t, do(t, s, signed(t, c.who, "POST", s.URL+warmPath, body, routedHeader, "1")), c.status, "")
			if c.status == 204 && text != "" {
				t.Errorf("answered %q", text)
			}
		})
	}
	for rng, held := range map[string]int{"bytes=0-65535": 206, "bytes=196608-262143": 206, "bytes=131072-131073": 504} {
		want(t, do(t, s, signed(t, "PEER", "GET", s.URL+"/bucket/k", "", "Range", rng, "Cache-Control", "only-if-cached")),
			held, "")
	}
	want(t, do(t, s, signed(t, "PEER", "GET", s.URL+warmPath, "")), 405, "MethodNotAllowed")
}
