package s3api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// An answer of more than net/http buffers leaves by one system call, its head included.
func TestOneWriteForAnAnswer(t *testing.T) {
	writes := func() int {
		text, err := os.ReadFile("/proc/self/io")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "syscw: "); ok {
				v, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		t.Fatalf("no syscw in %s", text)
		return 0
	}
	url, o := gatherServer(t)
	o.Put("bucket", "k", origintest.Object{Size: 4096})
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	get := func() {
		if _, err := c.Write([]byte("GET /bucket/k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
	}
	get()
	const n = 500
	before := writes()
	for range n {
		get()
	}
	// One for the request, one for the answer, and a few of the runtime's.
	if got := writes() - before; got > n*5/2 {
		t.Errorf("%d writes for %d requests and answers", got, n)
	}
}
