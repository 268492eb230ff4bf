package s3api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// gatherListener accepts as a node does.
type gatherListener struct{ net.Listener }

func (l gatherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// gatherServer serves the objects of an origin over connections that gather.
func gatherServer(t *testing.T) (string, *origintest.Origin) {
	t.Helper()
	o := origintest.New()
	s := httptest.NewUnstartedServer(newHandler(t, Config{Gateway: newEngine(t, o, nil)}))
	s.Listener = gatherListener{s.Listener}
	s.Config.ConnContext = ConnContext
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, o
}

// Bodies of all lengths, parts of them, and what has no body, over one connection.
func TestGatheredAnswers(t *testing.T) {
	url, o := gatherServer(t)
	l, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	in := bufio.NewReader(l)
	ask := func(method, key, header string) (*http.Response, []byte) {
		t.Helper()
		r, err := http.NewRequest(method, url+"/bucket/"+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Set(name, value)
		}
		if err := r.Write(l); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, body
	}
	for i, size := range []int64{0, 1, 511, 512, 513, 3000, 4096, 65535, 65536, 65537, 65536 + 512, 1 << 20} {
		key := fmt.Sprint(size)
		tag := o.Put("bucket", key, origintest.Object{Size: size, Headers: []origin.Header{
			{Name: "X-Amz-Meta-Long", Value: strings.Repeat("m", []int{10, 1900, 9000}[i%3])}}})
		for range 2 { // cold and warm
			resp, body := ask("GET", key, "")
			if err := origintest.Check(tag, 0, body); err != nil || resp.StatusCode != 200 || resp.ContentLength != size ||
				int64(len(body)) != size {
				t.Errorf("%d bytes: %d, %d bytes, %v", size, resp.StatusCode, len(body), err)
			}
		}
		if resp, body := ask("HEAD", key, ""); resp.ContentLength != size || len(body) != 0 {
			t.Errorf("HEAD of %d bytes: %d", size, resp.ContentLength)
		}
		if resp, _ := ask("GET", key, "If-None-Match: "+tag); resp.StatusCode != 304 {
			t.Errorf("304 is %d", resp.StatusCode)
		}
		if resp, body := ask("GET", key, "Range: bytes="+key+"-"); resp.StatusCode != 416 || len(body) == 0 {
			t.Errorf("416 is %d", resp.StatusCode)
		}
		if size > 1 {
			off := size / 3
			resp, body := ask("GET", key, fmt.Sprintf("Range: bytes=%d-", off))
			if err := origintest.Check(tag, off, body); err != nil || resp.StatusCode != 206 || int64(len(body)) != size-off {
				t.Errorf("from %d of %d: %d, %d bytes, %v", off, size, resp.StatusCode, len(body), err)
			}
		}
	}
}

// A body that breaks off is cut off, with what there was of it or without.
func TestGatheredAnswerIsCut(t *testing.T) {
	url, o := gatherServer(t)
	tag := o.Put("bucket", "k", origintest.Object{Size: 1 << 20})
	o.Fail(-1, nil, origintest.Fault{Steps: []origintest.Step{{At: 100_000, Err: io.ErrUnexpectedEOF}}})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url + "/bucket/k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || origintest.Check(tag, 0, body) != nil || len(body) < 512 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// A head of any length is held back as a whole: who writes it has a block in hand, and must not wait for the client.
func TestLongHeadIsHeldBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	c := NewConn(accepted).(*gatherConn)
	h := heads.Get().(*head)
	h.lines = append(h.lines, "a line of ours\n"...)
	c.hold, c.head = true, h
	_ = c.SetWriteDeadline(time.Unix(1, 0)) // whatever is really written fails
	long := bytes.Repeat([]byte("0123456789abcde\n"), 1000)
	for i := 0; i < len(long); i += 4000 {
		if n, err := c.Write(long[i : i+4000]); n != 4000 || err != nil {
			t.Fatalf("at %d: %d, %v", i, n, err)
		}
	}
	if _, err := c.Write(make([]byte, maxHead)); err == nil {
		t.Error("a head without bounds is held")
	}
	_ = c.SetWriteDeadline(time.Time{})
	c.hold = false
	if n, err := c.Write([]byte("body")); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	want := "0123456789abcde\na line of ours\n" + string(long[16:]) + "body"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

// Without a body of an object nothing is held back: errors, and what is forwarded.
func TestNothingIsHeldBack(t *testing.T) {
	s := httptest.NewUnstartedServer(newHandler(t, Config{
		Gateway: failingReader(&origin.Error{Status: 404, Code: "NoSuchKey"}), Forward: forwardAs(func() (*http.Response, error) {
			return answer(200, strings.Repeat("x", 9000)), nil
		})}))
	s.Listener = gatherListener{s.Listener}
	s.Config.ConnContext = ConnContext
	s.Start()
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/bucket/k": 404, "/bucket?list-type=2": 200} {
		resp, err := client.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want || len(b) == 0 {
			t.Errorf("%s: %d, %d bytes, %v", path, resp.StatusCode, len(b), err)
		}
	}
}

// What is prepared of an answer when its handler panics goes nowhere: the client gets a 500, and then whole answers.
func TestPanicBehindPreparedHead(t *testing.T) {
	o := origintest.New()
	o.Put("bucket", "k", origintest.Object{Size: 3000, Headers: []origin.Header{{Name: "X-Amz-Meta-A", Value: "1"}}})
	var panics atomic.Bool
	s := httptest.NewUnstartedServer(newHandler(t, Config{Gateway: newEngine(t, o, nil), Snapshot: func() string {
		if panics.Load() {
			panic("boom")
		}
		return "snapshot"
	}}))
	s.Listener = gatherListener{s.Listener}
	s.Config.ConnContext = ConnContext
	s.Start()
	defer s.Close()
	for _, status := range []int{500, 200} {
		panics.Store(status == 500)
		resp := do(t, s, unsigned(t, "GET", s.URL+"/bucket/k"))
		if want(t, resp, status, ""); (resp.Header.Get("X-Amz-Meta-A") == "1") != (status == 200) ||
			resp.Header.Get("X-Amz-Request-Id") == "" {
			t.Errorf("%d: %v", status, resp.Header)
		}
	}
}
