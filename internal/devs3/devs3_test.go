package devs3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// start serves s until the test ends and returns its URL and a client of its own.
func start(t *testing.T, s *Server) (string, *http.Client) {
	t.Helper()
	h := httptest.NewServer(s)
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		h.Close()
	})
	return h.URL, &http.Client{Transport: tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do sends one request and reads the whole answer. Headers are pairs.
func do(t *testing.T, c *http.Client, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	resp, answer, err := try(t.Context(), c, method, url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return resp, answer
}

// try is do for goroutines other than the test's.
func try(
	ctx context.Context, c *http.Client, method, url, body string, header ...string,
) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func TestPutGetDelete(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := New(Config{Dir: dir})
		url, c := start(t, s)
		do(t, c, "PUT", url+"/bucket", "")
		resp, body := do(t, c, "PUT", url+"/bucket/a//../b", "hello", "Content-Type", "text/plain", "x-amz-meta-A", "1")
		if resp.StatusCode != 200 || resp.Header.Get("ETag") != `"5d41402abc4b2a76b9719d911017c592"` {
			t.Fatal(resp, body)
		}
		resp, body = do(t, c, "GET", url+"/bucket/a//../b", "", "Range", "bytes=1-2")
		if resp.StatusCode != 206 || body != "el" || resp.Header.Get("Content-Range") != "bytes 1-2/5" {
			t.Fatal(resp, body)
		}
		if resp, _ = do(t, c, "GET", url+"/bucket/b", ""); resp.StatusCode != 404 {
			t.Fatal(resp)
		}
		if dir != "" {
			s = New(Config{Dir: dir})
			url, c = start(t, s)
			if resp, body = do(t, c, "GET", url+"/bucket/a//../b", ""); body != "hello" ||
				resp.Header.Get("Content-Type") != "text/plain" || resp.Header.Get("x-amz-meta-a") != "1" {
				t.Fatal(resp, body)
			}
		}
		if resp, _ = do(t, c, "DELETE", url+"/bucket/a//../b", ""); resp.StatusCode != 204 {
			t.Fatal(resp)
		}
		if resp, _ = do(t, c, "DELETE", url+"/bucket", ""); resp.StatusCode != 204 {
			t.Fatal(resp)
		}
	}
}

// TestOperations sends what the server does not do, and what is no request of S3.
func TestOperations(t *testing.T) {
	s := New(Config{})
	s.Put("bucket", "k", []byte("hello"))
	url, c := start(t, s)
	for _, r := range []struct {
		method, target string
		status         int
		code           string
	}{
		{"GET", "/bucket/k?acl", 501, "NotImplemented"},
		{"GET", "/bucket/k?torrent", 501, "NotImplemented"},
		{"GET", "/bucket/k?x=y", 200, ""},
		{"PUT", "/bucket?policy", 501, "NotImplemented"},
		{"GET", "/bucket?cors", 501, "NotImplemented"},
		{"POST", "/bucket/k?restore", 501, "NotImplemented"},
		{"POST", "/bucket", 501, "NotImplemented"},
		{"PATCH", "/bucket/k", 501, "NotImplemented"},
		{"DELETE", "/", 501, "NotImplemented"},
		{"GET", "/BUCKET/k", 400, "InvalidBucketName"},
		{"GET", "/b/k", 400, "InvalidBucketName"},
		{"GET", "/bucket%2Fk", 400, "InvalidBucketName"},
		{"GET", "/bucket/%ff", 400, "InvalidURI"},
		{"GET", "/none/k", 404, "NoSuchBucket"},
		{"DELETE", "/bucket", 409, "BucketNotEmpty"},
		{"DELETE", "/bucket/none", 204, ""},
		{"PUT", "/bucket", 200, ""},
		{"GET", "/bucket/k?attributes", 400, "InvalidArgument"},
		{"GET", "/bucket?max-keys=x", 400, "InvalidArgument"},
		{"GET", "/bucket?list-type=2&continuation-token=", 400, "InvalidArgument"},
		{"GET", "/bucket?encoding-type=x", 400, "InvalidArgument"},
	} {
		resp, body := do(t, c, r.method, url+r.target, "")
		if resp.StatusCode != r.status || r.code != "" && !strings.Contains(body, "<Code>"+r.code+"</Code>") {
			t.Errorf("%s %s: %d %s", r.method, r.target, resp.StatusCode, body)
		}
	}
}

func TestRegion(t *testing.T) {
	s := New(Config{Region: "eu-central-2"})
	s.CreateBucket("bucket")
	url, c := start(t, s)
	if resp, body := do(t, c, "PUT", url+"/bucket", ""); resp.StatusCode != 409 {
		t.Error(resp.StatusCode, body)
	}
	if _, body := do(t, c, "GET", url+"/bucket?location", ""); !strings.Contains(body, ">eu-central-2<") {
		t.Error(body)
	}
	if resp, body := do(t, c, "PUT", url+"/other", "<CreateBucketConfiguration><LocationConstraint>eu-west-1"+
		"</LocationConstraint></CreateBucketConfiguration>"); resp.StatusCode != 400 {
		t.Error(resp.StatusCode, body)
	}
	if resp, _ := do(t, c, "HEAD", url+"/bucket", ""); resp.Header.Get("x-amz-bucket-region") != "eu-central-2" {
		t.Error(resp.Header)
	}
}

// TestAnonymousRead lets everyone read, and no one do more.
func TestAnonymousRead(t *testing.T) {
	s := New(Config{Keys: map[string]string{"AKID": "secret"}, AnonymousRead: true})
	s.Put("bucket", "k", []byte("hello"))
	url, c := start(t, s)
	for _, r := range []struct {
		method, target string
		status         int
	}{
		{"GET", "/bucket/k", 200}, {"HEAD", "/bucket/k", 200}, {"GET", "/bucket?list-type=2", 200}, {"HEAD", "/bucket", 200},
		{"GET", "/bucket/k?response-expires=x", 400}, {"GET", "/", 403}, {"PUT", "/bucket/k", 403},
		{"DELETE", "/bucket/k", 403}, {"PUT", "/other", 403}, {"GET", "/bucket/k?tagging", 403},
		{"GET", "/bucket/k?X-Amz-Signature=x", 400},
	} {
		if resp, body := do(t, c, r.method, url+r.target, ""); resp.StatusCode != r.status {
			t.Errorf("%s %s: %d %s", r.method, r.target, resp.StatusCode, body)
		}
	}
}

func TestPlusIsSpace(t *testing.T) {
	for _, space := range []bool{false, true} {
		s := New(Config{PlusIsSpace: space})
		s.Put("bucket", "a b", []byte("space"))
		s.Put("bucket", "a+b", []byte("plus"))
		url, c := start(t, s)
		want := map[bool]string{false: "plus", true: "space"}[space]
		if _, got := do(t, c, "GET", url+"/bucket/a+b", ""); got != want {
			t.Errorf("PlusIsSpace %v: %s", space, got)
		}
		if _, got := do(t, c, "GET", url+"/bucket/a%2Bb", ""); got != "plus" {
			t.Errorf("PlusIsSpace %v: %%2B is %s", space, got)
		}
	}
}

// TestCountersAndLog keeps the books of a few requests, and secrets out of them.
func TestCountersAndLog(t *testing.T) {
	s := New(Config{LogLen: 3})
	s.Put("bucket", "k", []byte("0123456789"))
	url, c := start(t, s)
	do(t, c, "GET", url+"/bucket/k", "", "Range", "bytes=2-3")
	do(t, c, "HEAD", url+"/bucket/k", "")
	do(t, c, "GET", url+"/bucket/k?x-id=GetObject&X-Amz-Signature=SIG&X-Amz-Credential=CRED"+
		"&AWSAccessKeyId=AK&Signature=S2", "")
	do(t, c, "PUT", url+"/bucket/l", "x")
	do(t, c, "GET", url+"/bucket/none", "", "If-Match", `"x"`)
	// A request counts as done when its handler has returned, which the client does not wait for.
	for s.Counters().InFlight > 0 {
		runtime.Gosched()
	}
	n := s.Counters()
	if n.Requests != 5 || n.ByMethod["GET"] != 3 || n.ByOperation["GetObject"] != 3 || n.ByOperation["PutObject"] != 1 ||
		n.ByOperation["HeadObject"] != 1 || n.MaxInFlight < 1 {
		t.Errorf("%+v", n)
	}
	if o := n.Objects["bucket/k"]; o != (ObjectCounters{Gets: 2, Heads: 1, BytesSent: 12}) {
		t.Errorf("%+v", o)
	}
	log := s.Log()
	if len(log) != 3 || log[0] != "GET /bucket/k?x-id=GetObject 200 10" || log[1] != "PUT /bucket/l 200 0" ||
		!strings.HasPrefix(log[2], `GET /bucket/none if-match="x" 404 `) {
		t.Errorf("%q", log)
	}
	s.ResetCounters()
	if n := s.Counters(); n.Requests != 0 || len(n.Objects) != 0 || len(s.Log()) != 0 {
		t.Errorf("%+v", n)
	}
}

// TestGenerate has the same bytes whichever way they are asked for, and different ones at every word.
func TestGenerate(t *testing.T) {
	whole := make([]byte, 4099)
	Generate(whole, 0, 7)
	for off := range 40 {
		for _, n := range []int{0, 1, 5, 8, 13, 4000} {
			part := make([]byte, n)
			Generate(part, int64(off), 7)
			if !bytes.Equal(part, whole[off:off+n]) {
				t.Fatalf("%d bytes from %d on are others", n, off)
			}
		}
	}
	seen := map[string]bool{}
	for i := 0; i+8 <= len(whole); i += 8 {
		if w := string(whole[i : i+8]); seen[w] {
			t.Fatalf("word %d was there before", i/8)
		} else {
			seen[w] = true
		}
	}
	s := New(Config{})
	const size = 5 << 40
	etag := s.PutGenerated("bucket", "k", size, 7)
	url, c := start(t, s)
	ranged := fmt.Sprintf("bytes=%d-", int64(size)-100)
	resp, body := do(t, c, "GET", url+"/bucket/k", "", "Range", ranged, "If-Match", etag)
	want := make([]byte, 100)
	Generate(want, size-100, 7)
	if resp.StatusCode != 206 || body != string(want) {
		t.Error(resp)
	}
	if resp, _ := do(t, c, "HEAD", url+"/bucket/k", ""); resp.ContentLength != size {
		t.Error(resp)
	}
}

func TestSeededParts(t *testing.T) {
	s := New(Config{})
	etag := s.Put("bucket", "k", []byte("0123456789"), PutOptions{Parts: []int64{4, 4, 2}, Checksum: "CRC32",
		Modified: time.Unix(1e9, 0), Tags: map[string]string{"a": "b"}})
	if !strings.HasSuffix(etag, `-3"`) {
		t.Error(etag)
	}
	url, c := start(t, s)
	resp, body := do(t, c, "GET", url+"/bucket/k?partNumber=2", "")
	if body != "4567" || resp.Header.Get("x-amz-mp-parts-count") != "3" || resp.Header.Get("ETag") != etag ||
		resp.Header.Get("Last-Modified") != "Sun, 09 Sep 2001 01:46:40 GMT" || resp.Header.Get("x-amz-tagging-count") != "1" {
		t.Error(resp, body)
	}
	if resp, _ = do(t, c, "HEAD", url+"/bucket/k", "", "x-amz-checksum-mode", "ENABLED"); resp.Header.Get(
		"x-amz-checksum-crc32") != "poTHxg==" {
		t.Error(resp.Header)
	}
}
