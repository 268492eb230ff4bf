package s3api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// headOf sends a request and returns the status line and the sorted lines of the answer's head, less those that no two
// answers have in common, and its body, n bytes long.
func headOf(t *testing.T, addr, request string, n int) (status string, lines []string, body []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(line, ":")
		switch {
		case status == "":
			status = line
		case line == "\r\n":
			body = make([]byte, n)
			if _, err := io.ReadFull(in, body); err != nil {
				t.Fatal(err)
			}
			slices.Sort(lines)
			return status, lines, body
		case slices.Contains([]string{"Date", "Age", "X-Amz-Request-Id", "X-Amz-Id-2", "X-Ashlar-Cache"}, name):
			lines = append(lines, name)
		default:
			lines = append(lines, line)
		}
	}
}

// An answer whose head leaves with its body has the lines that it has where net/http writes them all, whatever the
// origin tells of an object.
func TestGatheredHeads(t *testing.T) {
	o := origintest.New()
	gathered := httptest.NewUnstartedServer(newHandler(t, Config{Gateway: newEngine(t, o, nil)}))
	gathered.Listener = gatherListener{gathered.Listener}
	gathered.Config.ConnContext = ConnContext
	gathered.Start()
	defer gathered.Close()
	plain := httptest.NewServer(newHandler(t, Config{Gateway: newEngine(t, o, nil)}))
	defer plain.Close()

	const size = 5000
	for i, headers := range [][]origin.Header{
		nil,
		{{Name: "Cache-Control", Value: "no-cache"}, {Name: "Content-Encoding", Value: "gzip"},
			{Name: "Content-Type", Value: "text/x"}, {Name: "Expires", Value: "0"}},
		{{Name: "X-Amz-Meta-A", Value: "1"}, {Name: "X-Amz-Meta-A", Value: "2"}, {Name: "X-Amz-Meta-B", Value: "3"}},
		{{Name: "X-Amz-Meta-A", Value: "1"}, {Name: "X-Amz-Meta-A", Value: "tab\tand"}, {Name: "X-Amz-Meta-A", Value: "4"}},
		{{Name: "X-Amz-Meta-A", Value: "a\r\nEvil: 1"}, {Name: "X-Amz-Meta-B", Value: " b "},
			{Name: "X-Amz-Meta-C", Value: ""}},
		{{Name: "X-Amz-Meta-A", Value: "\xc3\xa9\xff"}, {Name: "X-Amz-Meta-B", Value: "\x7f\x00"}},
		{{Name: "X-Amz-Meta-A B", Value: "1"}, {Name: "X-Amz-Meta-C:", Value: "2"},
			{Name: "X-Amz-Meta-D\r\nEvil", Value: "3"}},
		{{Name: "X-Amz-Meta-Long", Value: strings.Repeat("l", 9000)}},
	} {
		key := fmt.Sprint(i)
		tag := o.Put("bucket", key, origintest.Object{Size: size, Headers: headers})
		for _, request := range []string{
			"GET /bucket/%s HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET /bucket/%s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			"GET /bucket/%s HTTP/1.0\r\n\r\n",
			"GET /bucket/%s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			"GET /bucket/%s HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
			"GET /bucket/%s HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
			"GET /bucket/%s HTTP/1.1\r\nHost: h\r\nX-Amz-Checksum-Mode: ENABLED\r\n\r\n",
		} {
			request = fmt.Sprintf(request, key)
			for range 2 { // cold and warm
				status, lines, body := headOf(t, gathered.Listener.Addr().String(), request, size)
				wantStatus, want, _ := headOf(t, plain.Listener.Addr().String(), request, size)
				if status != wantStatus || !slices.Equal(lines, want) {
					t.Errorf("%q: %q %q,\nwant %q %q", request, status, lines, wantStatus, want)
				}
				if err := origintest.Check(tag, 0, body); err != nil {
					t.Errorf("%q: %v", request, err)
				}
			}
		}
	}
}

// Requests at the same time, on many connections, get each their own head: what a request has used is lent to others.
func TestManyHeadsAtOnce(t *testing.T) {
	url, o := gatherServer(t)
	addr := strings.TrimPrefix(url, "http://")
	const keys = 16
	tags := make([]string, keys)
	for i := range keys {
		tags[i] = o.Put("bucket", fmt.Sprint(i), origintest.Object{Size: 3000, Headers: []origin.Header{
			{Name: "X-Amz-Meta-Key", Value: fmt.Sprint(i)}}})
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := range 50 {
				i := (w + n) % keys
				method, size := "GET", 3000
				if n%5 == 4 {
					method, size = "HEAD", 0
				}
				_, lines, body := headOf(t, addr, fmt.Sprintf("%s /bucket/%d HTTP/1.1\r\nHost: h\r\n\r\n", method, i), size)
				if !slices.Contains(lines, fmt.Sprintf("x-amz-meta-key: %d\r\n", i)) ||
					!slices.Contains(lines, "Etag: "+tags[i]+"\r\n") {
					t.Errorf("key %d got %q", i, lines)
				}
				if err := origintest.Check(tags[i], 0, body); err != nil {
					t.Errorf("key %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}

// Where the request has a body nothing is gathered: net/http waits for the body before it answers, and the first block
// would be held for as long.
func TestBodiesOfReads(t *testing.T) {
	conn := &gatherConn{}
	for _, body := range []*pacedBody{nil, {}} {
		r := httptest.NewRequestWithContext(ConnContext(t.Context(), conn), "GET", "/bucket/k", nil)
		x := &exchange{w: struct {
			*httptest.ResponseRecorder
			io.ReaderFrom
		}{httptest.NewRecorder(), nil}, r: r, body: body}
		x.gather(1<<20, false)
		if (x.gathers == conn) != (body == nil) {
			t.Errorf("body %v: gathers %v", body != nil, x.gathers != nil)
		}
	}
}
