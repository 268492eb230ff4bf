package s3api

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

func unsigned(t *testing.T, method, url string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// sameBut renders an answer without what differs between any two, and without the key that was asked for.
func sameBut(t *testing.T, r *http.Response, key string) string {
	t.Helper()
	body := read(t, r)
	for _, name := range []string{"X-Amz-Request-Id", "X-Amz-Id-2"} {
		id := r.Header.Get(name)
		if id == "" {
			t.Errorf("no %s", name)
		}
		body = strings.ReplaceAll(body, id, name)
		r.Header.Del(name)
	}
	r.Header.Del("Date")
	var b strings.Builder
	fmt.Fprintln(&b, r.Status, r.ContentLength, strings.ReplaceAll(body, key, "KEY"))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintln(&b, name, r.Header[name])
	}
	return b.String()
}

// To one without rights, what is cached, what is not, and what does not exist look alike, whatever is asked: P10, A05.
func TestCachedUncachedAndMissingLookAlike(t *testing.T) {
	o := origintest.New()
	for _, key := range []string{"cached-", "cold---"} {
		o.Put("bucket", key, origintest.Object{Data: []byte("secret")})
	}
	auth := staticAuth()
	auth.AnonymousBuckets = []string{"public-*"}
	auth.Keys = append(auth.Keys, Key{AccessKey: "TEAM", SecretKey: testSecret, Buckets: []string{"*"}, Prefix: "team/",
		Rights: Read | List})
	h := newHandler(t, Config{Gateway: newEngine(t, o, nil), Auth: auth})
	s := serve(t, h)
	want(t, do(t, s, signed(t, "READER", "GET", s.URL+"/bucket/cached-", "")), 200, "")
	o.ResetLog()
	for _, who := range []string{"", "WRITER", "OTHER", "TEAM", "NOBODY"} {
		for _, c := range []struct {
			method, query string
			header        []string
		}{
			{"GET", "", nil},
			{"HEAD", "", nil},
			{"GET", "", []string{"Range", "bytes=0-1"}},
			{"GET", "", []string{"Range", "bytes=100-"}},
			{"GET", "", []string{"If-None-Match", "*"}},
			{"GET", "", []string{"If-Match", `"x"`}},
			{"GET", "", []string{"Origin", "https://example.com"}},
			{"GET", "?versionId=null", nil},
			{"GET", "?partNumber=1", nil},
			{"GET", "?acl", nil},
			{"GET", "?attributes", nil},
		} {
			var first string
			for _, key := range []string{"cached-", "cold---", "missing"} {
				u := s.URL + "/bucket/" + key + c.query
				r := unsigned(t, c.method, u, c.header...)
				if who != "" {
					r = signed(t, who, c.method, u, "", c.header...)
				}
				resp := do(t, s, r)
				if who == "WRITER" && resp.StatusCode != 403 || resp.StatusCode < 400 {
					t.Errorf("%q %s %s %v: %d", who, c.method, c.query, c.header, resp.StatusCode)
				}
				got := sameBut(t, resp, key)
				if first == "" {
					first = got
				} else if got != first {
					t.Errorf("%q %s %s %v: of %s\n%s\nof one that is cached\n%s", who, c.method, c.query, c.header, key, got, first)
				}
			}
		}
	}
	if log := o.Log(); len(log) > 0 {
		t.Errorf("the origin was asked: %q", log)
	}
}

// Without any authentication, the objects of chosen buckets can be read, and nothing else can be done; who has a key has
// the key's rights there, and a bad signature is refused there too.
func TestAnonymousBuckets(t *testing.T) {
	o := origintest.New()
	for _, bucket := range []string{"public-1", "private", "bucket"} {
		o.Put(bucket, "k", origintest.Object{Data: []byte("contents")})
	}
	auth := staticAuth()
	auth.AnonymousBuckets = []string{"public-*", "exact"}
	forwarded := 0
	h := newHandler(t, Config{Gateway: newEngine(t, o, nil), Auth: auth, Forward: forwardAs(func() (*http.Response, error) {
		forwarded++
		return answer(200, "forwarded"), nil
	})})
	s := serve(t, h)
	ask := func(method, target string, header ...string) *http.Response {
		return do(t, s, unsigned(t, method, s.URL+target, header...))
	}
	for range 2 { // cold and warm
		if body := want(t, ask("GET", "/public-1/k"), 200, ""); body != "contents" {
			t.Errorf("read %q", body)
		}
	}
	want(t, ask("HEAD", "/public-1/k"), 200, "")
	want(t, ask("GET", "/public-1/k", "Range", "bytes=0-1"), 206, "")
	want(t, ask("GET", "/public-1/missing"), 404, "")
	want(t, ask("GET", "/public-1/k?partNumber=1"), 200, "")
	want(t, ask("GET", "/public-1/k", "Origin", "https://example.com"), 200, "")
	if forwarded != 2 {
		t.Errorf("forwarded %d times", forwarded)
	}
	for _, line := range []string{
		"GET /private/k", "GET /exactly/k", "GET /not-public-1/k", "HEAD /private/k", "GET /", "GET /public-1", "HEAD /public-1",
		"GET /public-1?list-type=2&prefix=k", "GET /public-1?location", "GET /public-1?versions", "GET /public-1/k?acl",
		"GET /public-1/k?tagging", "GET /public-1/k?attributes", "GET /public-1/k?uploadId=u", "GET /public-1/k?versionId=null",
		"GET /public-1/k?versionId=", "GET /public-1/k?VersionID=null", "GET /public-1/k?%76ersionId=null",
		"HEAD /public-1/k?versionId=v", "GET /public-1/k?unknown", "PUT /public-1/k", "DELETE /public-1/k", "POST /public-1/k?uploads",
		"POST /public-1?delete", "PUT /public-1", "OPTIONS /public-1/k", "POST /public-1/k?select&select-type=2",
	} {
		method, target, _ := strings.Cut(line, " ")
		if r := ask(method, target); r.StatusCode != 403 {
			t.Errorf("%s: %d", line, r.StatusCode)
		}
	}
	want(t, ask("GET", "/public-1/k?response-content-type=text/html"), 400, "InvalidRequest")
	want(t, ask("GET", "/public-1/k?response-content-type=text/html", "X-Amz-Unknown", "1"), 400, "InvalidRequest")
	want(t, ask("PUT", "/public-1/k", "X-Amz-Copy-Source", "/public-1/k"), 403, "AccessDenied")

	// With authentication it is the key that counts.
	bad := signed(t, "READER", "GET", s.URL+"/public-1/k", "")
	bad.Header.Set("Authorization", bad.Header.Get("Authorization")[:150])
	if r := do(t, s, bad); r.StatusCode != 403 && r.StatusCode != 400 {
		t.Errorf("a bad signature: %d", r.StatusCode)
	}
	tampered := signed(t, "READER", "GET", s.URL+"/public-1/k", "")
	tampered.URL.Path = "/public-1/other"
	want(t, do(t, s, tampered), 403, "SignatureDoesNotMatch")
	want(t, do(t, s, signed(t, "NOBODY", "GET", s.URL+"/public-1/k", "")), 403, "InvalidAccessKeyId")
	want(t, do(t, s, signed(t, "READER", "GET", s.URL+"/public-1/k", "")), 403, "AccessDenied") // has a right elsewhere
	want(t, ask("GET", "/public-1/k?X-Amz-Signature=x"), 400, "")
	want(t, ask("GET", "/public-1/k?AWSAccessKeyId=x&Signature=y&Expires=1"), 400, "InvalidRequest")
	if forwarded != 2 {
		t.Errorf("forwarded %d times", forwarded)
	}
}

// SetAuth counts for requests that begin after it, on the connections that there are; those before it go on; and what
// was derived from old secrets is of no use any more.
func TestSetAuth(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	h := newHandler(t, Config{Gateway: testReader(t, nil), Auth: staticAuth(), Region: "us-east-1",
		Forward: forwardAs(func() (*http.Response, error) {
			began <- struct{}{}
			<-release
			return answer(200, "ok"), nil
		})})
	s := serve(t, h)
	asks := func(key string, status int, code string) {
		t.Helper()
		want(t, do(t, s, signed(t, key, "GET", s.URL+"/bucket/k", "")), status, code)
	}
	asks("READER", 200, "")
	asks("NEW", 403, "InvalidAccessKeyId")
	var wg sync.WaitGroup
	wg.Go(func() { want(t, do(t, s, signed(t, "READER", "GET", s.URL+"/bucket", "")), 200, "") })
	<-began

	old := h.auth.Load()
	if err := h.SetAuth(Auth{Mode: Static, Keys: []Key{
		{AccessKey: "READER", SecretKey: "another", Buckets: []string{"*"}, Rights: Read},
		{AccessKey: "NEW", SecretKey: testSecret, Buckets: []string{"*"}, Rights: Read},
		{AccessKey: "WRITER", SecretKey: testSecret, Buckets: []string{"other"}, Rights: Read},
	}}); err != nil {
		t.Fatal(err)
	}
	asks("READER", 403, "SignatureDoesNotMatch")
	asks("NEW", 200, "")
	asks("WRITER", 403, "AccessDenied")
	asks("TOKEN", 403, "InvalidAccessKeyId")
	close(release)
	wg.Wait()

	for _, bad := range []Auth{{Mode: Static}, {Mode: 9},
		{Mode: Static, AnonymousBuckets: []string{"["}, Keys: []Key{{AccessKey: "a", SecretKey: "b"}}}} {
		if err := h.SetAuth(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	asks("NEW", 200, "")
	if h.auth.Load() == old {
		t.Error("not replaced")
	}
}

// A key that is limited to a prefix lists at or below it and nowhere else, in every kind of listing, whatever else the
// listing asks for.
func TestListingWithinPrefix(t *testing.T) {
	h := newHandler(t, Config{})
	g := &grant{rights: List, everywhere: true, prefix: "team/a/"}
	kinds := []string{"", "list-type=2&", "versions&", "uploads&", "list-type=1&"}
	for _, c := range []struct {
		query string
		ok    bool
	}{
		{"prefix=team/a/", true},
		{"prefix=team%2Fa%2F", true},
		{"%70refix=team/a/", true},
		{"prefix=team/a/b/c", true},
		{"prefix=team/a/&delimiter=/", true},
		{"prefix=team/a/&delimiter=a", true},                               // common prefixes begin with the prefix too
		{"prefix=team/a/x&delimiter=&encoding-type=url&max-keys=1", false}, // of uploads it is max-uploads

		{"", false},
		{"prefix=", false},
		{"prefix", false},
		{"delimiter=/", false},
		{"prefix=team/", false},
		{"prefix=team/&delimiter=a/", false},
		{"prefix=team/a", false}, // as team/ab
		{"prefix=team/b/", false},
		{"prefix=/team/a/", false},
		{"prefix=Team/a/", false},
		{"prefix=team/a/../b/", false},
		{"prefix=team/a/..", false},
		{"prefix=team/a/&prefix=team/b/", false},
		{"prefix=team/b/&prefix=team/a/", false},
		{"prefix=team/a/&%50refix=team/b/", false}, // a name that isn't known needs more than List
		{"prefix=team/a/&policy", false},
		{"delimiter=team/a/", false},
		{"start-after=team/a/", false},
		{"marker=team/a/&key-marker=team/a/", false},
		{"x-id=prefix&x-amz-prefix=team/a/", false},
		{"prefix=team%252Fa%252F", false},
	} {
		for _, kind := range kinds {
			if c.query == "prefix=team/a/x&delimiter=&encoding-type=url&max-keys=1" && kind != "uploads&" {
				continue
			}
			for _, line := range []string{"GET /bucket?" + kind + c.query, "GET /bucket/?" + kind + c.query} {
				x := exchangeFor(t, h, line, nil)
				x.who.grant = g
				if err := x.authorize(); (err == nil) != c.ok {
					t.Errorf("%s (%s): %v, want allowed %v", line, x.op.name, err, c.ok)
				}
			}
		}
	}
	for line, ok := range map[string]bool{
		"GET /": false, "HEAD /bucket": true, "GET /bucket?location": true, "GET /bucket?policy": false, "PUT /bucket": false,
	} {
		x := exchangeFor(t, h, line, nil)
		x.who.grant = g
		if err := x.authorize(); (err == nil) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// What a listing asks for and what the origin answers, tokens above all, pass through byte for byte.
func TestListingsAreVerbatim(t *testing.T) {
	const body = "<?xml version='1.0'?>\n<ListBucketResult><NextContinuationToken>1/+==%2B&amp;\u00e4</NextContinuationToken>" +
		"<Key>a&#x9;b</Key></ListBucketResult>\n\n"
	for _, query := range []string{
		"list-type=2&continuation-token=1%2F%2B%3D%3D%252B&prefix=a+b%20c&delimiter=%2f",
		"list-type=2&continuation-token=1/+==&start-after=",
		"marker=a%2Bb&max-keys=07&encoding-type=url",
		"versions&key-marker=%00&version-id-marker=null",
		"uploads=&upload-id-marker=~.-_&key-marker=%C3%A4",
	} {
		var got string
		h := newHandler(t, Config{Forward: forwardFunc(
			func(_ context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
				got = r.URL.RawQuery
				return answer(200, body, "Content-Type", "text/xml; charset=x", "X-Amz-Bucket-Region", "r"), nil
			})})
		r := ask(h, "GET /bucket?"+query, "")
		if answer := want(t, r, 200, ""); answer != body || r.Header.Get("Content-Type") != "text/xml; charset=x" {
			t.Errorf("%s: %q %v", query, answer, r.Header)
		}
		if got != query {
			t.Errorf("asked %s, forwarded %s", query, got)
		}
	}
}

// A browser's preflight can't be signed, so the origin answers it whoever asks, and gets no more of it than the question.
func TestPreflight(t *testing.T) {
	type question struct {
		method, bucket, rawKey, query string
		header                        http.Header
		body                          bool
	}
	var got *question
	h := newHandler(t, Config{Auth: staticAuth(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
			got = &question{r.Method, bucket, rawKey, r.URL.RawQuery, r.Header, r.Body != nil && r.Body != http.NoBody}
			return answer(200, "", "Access-Control-Allow-Origin", "https://example.com", "Vary", "Origin"), nil
		})})
	asks := []string{"Origin", "https://example.com", "Access-Control-Request-Method", "PUT",
		"Access-Control-Request-Headers", "x-amz-date,authorization"}
	for _, target := range []string{"/bucket/a%2Fb+c", "/bucket/a%2Fb+c?uploadId=u&partNumber=1",
		"/bucket/a%2Fb+c?X-Amz-Signature=s&X-Amz-Credential=c&policy&acl", "/bucket/a%2Fb+c?versionId="} {
		got = nil
		r := ask(h, "OPTIONS "+target, "a body", append(asks, "Authorization", "secret", "X-Amz-Copy-Source", "/other/k",
			"X-Amz-Server-Side-Encryption-Customer-Key", "k", "Cookie", "c", "Range", "bytes=0-1")...)
		want(t, r, 200, "")
		if r.Header.Get("Access-Control-Allow-Origin") != "https://example.com" || r.Header.Get("Vary") != "Origin" {
			t.Errorf("%s: %v", target, r.Header)
		}
		if got == nil || got.method != "OPTIONS" || got.bucket != "bucket" || got.rawKey != "a%2Fb+c" || got.query != "" ||
			got.body || len(got.header) != 3 || got.header.Get("Access-Control-Request-Headers") != "x-amz-date,authorization" {
			t.Errorf("%s: forwarded %+v", target, got)
		}
	}
	want(t, ask(h, "OPTIONS /bucket?list-type=2", "", asks...), 200, "")

	// Whatever is no preflight needs a key.
	got = nil
	for _, c := range []struct {
		line   string
		header []string
	}{
		{"OPTIONS /bucket/k", nil},
		{"OPTIONS /bucket/k", asks[:2]},
		{"OPTIONS /bucket/k", asks[2:]},
		{"OPTIONS /bucket/k", append(asks, "Origin", "https://another.com")},
		{"OPTIONS /", asks},
		{"GET /bucket/k", asks},
		{"PUT /bucket/k", asks},
		{"DELETE /bucket/k", asks},
	} {
		want(t, ask(h, c.line, "", c.header...), 403, "AccessDenied")
	}
	if got != nil {
		t.Errorf("forwarded %+v", got)
	}
}

// A client's own encryption keys travel over encrypted connections alone, on both sides; such a read comes from the
// origin every time, and such an object is never in blocks: A08.
func TestCustomerKeysNeedTLS(t *testing.T) {
	const name = "X-Amz-Server-Side-Encryption-Customer-Key"
	for _, originTLS := range []bool{false, true} {
		forwarded := 0
		h := newHandler(t, Config{Auth: writable(), OriginTLS: originTLS,
			Gateway: &fakeReader{open: func(gateway.Request) (*gateway.Object, error) {
				t.Error("read from blocks")
				return nil, &origin.Error{Status: 404}
			}},
			Forward: forwardFunc(func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
				forwarded++
				if r.Header.Get(name) != "key" && !strings.Contains(r.URL.RawQuery, name) {
					t.Error("the key is missing")
				}
				return answer(200, "plain"), nil
			})})
		plain := serve(t, h)
		encrypted := httptest.NewTLSServer(h)
		for _, s := range []*httptest.Server{plain, encrypted} {
			for range 2 {
				for _, method := range []string{"GET", "HEAD", "PUT"} {
					status := 400
					if originTLS && s == encrypted {
						status = 200
					}
					r := do(t, s, unsigned(t, method, s.URL+"/bucket/k", name, "key"))
					if _, _ = io.Copy(io.Discard, r.Body); r.StatusCode != status {
						t.Errorf("%s, origin TLS %v: %d, want %d", method, originTLS, r.StatusCode, status)
					}
					r = do(t, s, unsigned(t, method, s.URL+"/bucket/k?"+name+"=key"))
					if _, _ = io.Copy(io.Discard, r.Body); r.StatusCode != status {
						t.Errorf("%s in the query, origin TLS %v: %d, want %d", method, originTLS, r.StatusCode, status)
					}
				}
			}
		}
		encrypted.Close()
		if n := map[bool]int{true: 12}[originTLS]; forwarded != n {
			t.Errorf("origin TLS %v: forwarded %d times, want %d", originTLS, forwarded, n)
		}
	}
}
