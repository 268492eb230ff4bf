package s3api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client that sends a body and has the connection end with the answer gets the answer, whether its body is wanted or
// not, and no reset.
func TestRefusedBodyOfLastRequest(t *testing.T) {
	s := serve(t, newHandler(t, Config{Auth: staticAuth()}))
	for _, head := range []string{
		"PUT /bucket/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 200000\r\n\r\n",
		"PUT /bucket/k HTTP/1.0\r\nHost: h\r\nContent-Length: 200000\r\n\r\n",
	} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, head+strings.Repeat("x", 200_000)); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		want(t, resp, 403, "AccessDenied")
		if n, err := io.Copy(io.Discard, in); n != 0 || err != nil {
			t.Errorf("%q: %d more bytes, %v", head, n, err)
		}
	}
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "PUT /bucket/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\n"+
		"Content-Length: 200000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403") ||
		strings.Contains(string(answer), " 100 ") {
		t.Errorf("not asked for its body: %q, %v", answer, err)
	}
}
