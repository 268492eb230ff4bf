package devs3

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
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
