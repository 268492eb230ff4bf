package s3api

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// An origin that answers before it has read the body is heard: its answer reaches the client as it is while the body is
// still on its way, nothing of that body is taken for blocks, and the next upload through the node works.
func TestOriginAnswersEarly(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Put("bucket", "k", []byte("old"))
	for i := range 16 {
		// net/http reads up to 256 KiB that a handler has left, and buffers 2 KiB of an answer: sizes on both sides of these.
		body := strings.Repeat("new", []int{100_000, 300_000}[i/4%2])
		status := []int{403, 412, 503, 307}[i%4]
		text := fmt.Sprintf("<Error><Code>Early%d</Code>%s</Error>", status, strings.Repeat(" ", i/8*10_000))
		n.origin.Fault(func(r *http.Request) *devs3.Fault {
			if r.Method == "PUT" {
				return &devs3.Fault{Status: status, Body: []byte(text), Header: http.Header{"X-Amz-Early": {"yes"}}}
			}
			return nil
		})
		r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body)
		slow, w := io.Pipe()
		r.Body, r.GetBody = slow, nil
		answered := make(chan struct{})
		go func() {
			for rest := body; rest != ""; rest = rest[min(len(rest), 10_000):] {
				if _, err := io.WriteString(w, rest[:min(len(rest), 10_000)]); err != nil {
					break
				}
				if len(rest) < len(body)/2 {
					<-answered
				}
			}
			w.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // far below the 30 s that a client may stand still
		resp, err := n.front.Client().Transport.RoundTrip(r.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		cancel()
		close(answered)
		if err != nil || resp.StatusCode != status || string(got) != text || resp.Header.Get("X-Amz-Early") != "yes" {
			t.Fatalf("%d %q %v %v, want %d %q", resp.StatusCode, got, resp.Header, err, status, text)
		}
		n.origin.Fault(nil)
		if got, _ := n.stored(t, "k"); got != "old" {
			t.Fatalf("stored %d bytes", len(got))
		}
	}
	body := strings.Repeat("new", 200_000)
	if resp := do(t, n.front, signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body)); resp.StatusCode != 200 {
		t.Fatal(read(t, resp))
	}
	if got := read(t, do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))); got != body {
		t.Errorf("%d bytes", len(got))
	}
}

// An upload whose connection to the origin breaks is answered 503, so that it is tried again; whether the origin took it
// or not, the next read is the origin's word.
func TestOriginBreaksInUpload(t *testing.T) {
	for _, applied := range []bool{false, true} {
		n := newNode(t, nil)
		n.origin.Put("bucket", "k", []byte("old"))
		if got := read(t, do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))); got != "old" {
			t.Fatal(got)
		}
		n.origin.Fault(func(r *http.Request) *devs3.Fault {
			if r.Method != "PUT" {
				return nil
			}
			return &devs3.Fault{Apply: applied, Break: &devs3.Break{BeforeHeaders: true}}
		})
		body := strings.Repeat("new", 1_000_000)
		resp := do(t, n.front, signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body))
		want(t, resp, 503, "ServiceUnavailable")
		if resp.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		if !applied {
			body = "old"
		}
		if got := read(t, do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))); got != body {
			t.Errorf("applied %v: %d bytes", applied, len(got))
		}
	}
}

// An origin that acknowledges an upload that it can't have is not believed.
func TestAcknowledgedTooEarly(t *testing.T) {
	for _, line := range []string{"PUT /bucket/k", "PUT /bucket/k?uploadId=u&partNumber=1"} {
		f := &fakeReader{}
		h := newHandler(t, Config{Gateway: f, Auth: writable(), Forward: forwardFunc(
			func(context.Context, *http.Request, string, string) (*http.Response, error) {
				return answer(200, "", "Etag", `"e"`), nil
			})})
		want(t, ask(h, line, "body"), 502, "InternalError")
		if strings.HasSuffix(line, "k") != (len(f.keys()) == 1) {
			t.Errorf("%s: forgot %q", line, f.keys())
		}
	}
}

// A client that leaves when the origin has all of its write may not leave the object as it was before behind: what is
// read until the write takes effect is forgotten after it.
func TestClientLeavesBeforeAnswer(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Put("bucket", "k", []byte("old"))
	hold := make(chan struct{})
	n.origin.Fault(func(r *http.Request) *devs3.Fault {
		if r.Method == "PUT" {
			return &devs3.Fault{Hold: hold}
		}
		return nil
	})
	get := func() string {
		return read(t, do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", "")))
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", "new")
		if resp, err := n.front.Client().Do(r.WithContext(ctx)); err == nil {
			resp.Body.Close()
			t.Error("answered")
		}
	}()
	for n.origin.Counters().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	leave()
	<-gone
	time.Sleep(20 * time.Millisecond) // for the node to notice, which it must not act upon
	if got := get(); got != "old" {
		t.Fatal(got)
	}
	close(hold)
	for start := time.Now(); get() != "new"; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the node still has what was before the write")
		}
	}
}

// A client that is cut off in the middle of an upload, in whatever form, leaves nothing behind.
func TestClientBreaksOff(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Put("bucket", "k", []byte("old"))
	body := strings.Repeat("b", 300_000)
	crc := newChecksums()[0]
	for i, r := range []*http.Request{
		signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body),
		signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body, "X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD"),
		chunked{payload: signedChunks, chunks: []string{body}}.request(t, n, "/bucket/k"),
		chunked{payload: unsignedTrailer, chunks: []string{body}, trailer: crc.trailer() + ":" + sumOf(crc, body)}.
			request(t, n, "/bucket/k"),
	} {
		for _, missing := range []int64{1, 3, 100, r.ContentLength - 1} {
			conn, err := net.Dial("tcp", n.front.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			sent := io.Reader(strings.NewReader(body[:len(body)-1]))
			if i >= 2 {
				all, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(all)))
				sent = strings.NewReader(string(all))
			}
			fmt.Fprintf(conn, "PUT /bucket/k HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", r.URL.Host, r.ContentLength)
			_ = r.Header.Write(conn)
			_, _ = io.WriteString(conn, "\r\n")
			_, _ = io.CopyN(conn, sent, r.ContentLength-missing)
			_ = conn.(*net.TCPConn).CloseWrite()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && resp.StatusCode < 400 {
				t.Errorf("form %d, %d bytes short: %d", i, missing, resp.StatusCode)
			}
			conn.Close()
			if got, _ := n.stored(t, "k"); got != "old" {
				t.Fatalf("form %d, %d bytes short: stored %d bytes", i, missing, len(got))
			}
		}
	}
}

// What an upload has in flight is less than 1 MiB, however large it is and however slow the origin: what was read of the
// client and has not been taken by the origin.
func TestUploadsInFlight(t *testing.T) {
	const size = 32 << 20
	crc := newChecksums()[0]
	for _, form := range []string{"plain", "chunks", "trailer"} {
		var in, out, most atomic.Int64
		h := newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
			func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
				buf := make([]byte, 16<<10)
				for {
					n, err := r.Body.Read(buf)
					most.Store(max(most.Load(), in.Load()-out.Load()))
					out.Add(int64(n))
					if err == io.EOF {
						return answer(200, ""), nil
					}
					if err != nil {
						return nil, err
					}
				}
			})})
		sum := crc.new()
		source := io.TeeReader(io.LimitReader(zeroes{}, size), sum)
		r := httptest.NewRequest("PUT", "/bucket/k", nil)
		r.RequestURI, r.ContentLength = "/bucket/k", size
		if form != "plain" {
			r.Header.Set("X-Amz-Content-Sha256", unsignedTrailer)
			r.Header.Set("X-Amz-Decoded-Content-Length", fmt.Sprint(size))
			source = &framer{in: source, chunk: 1 << 20, end: func() string { return "\r\n" }}
			r.ContentLength = -1
		}
		if form == "trailer" {
			r.Header.Set("X-Amz-Trailer", crc.trailer())
			source.(*framer).end = func() string {
				return crc.trailer() + ":" + base64Of(sum.Sum(nil)) + "\r\n\r\n"
			}
		}
		r.Body = io.NopCloser(counter{source, &in})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want(t, w.Result(), 200, "")
		if most.Load() > 1<<20 || out.Load() < size {
			t.Errorf("%s: %d bytes in flight, %d forwarded", form, most.Load(), out.Load())
		}
	}
}

type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// framer frames what it reads in unsigned chunks.
type framer struct {
	in    io.Reader
	chunk int
	end   func() string
	buf   []byte
	done  bool
}

func (f *framer) Read(p []byte) (int, error) {
	if len(f.buf) == 0 {
		if f.done {
			return 0, io.EOF
		}
		data := make([]byte, f.chunk)
		n, _ := io.ReadFull(f.in, data)
		if n == 0 {
			f.buf, f.done = []byte("0\r\n"+f.end()), true
		} else {
			f.buf = append(fmt.Appendf(nil, "%x\r\n", n), append(data[:n], '\r', '\n')...)
		}
	}
	n := copy(p, f.buf)
	f.buf = f.buf[n:]
	return n, nil
}

// A presigned upload may name the hash of its body in the query: it is held against the body.
func TestPresignedHash(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Fault(func(r *http.Request) *devs3.Fault {
		if got := r.Header.Get("X-Amz-Content-Sha256"); r.Method == "PUT" && got != sha("body") {
			t.Errorf("the origin is told %q", got)
		}
		return nil
	})
	for body, status := range map[string]int{"body": 200, "another": 400, "": 400} {
		n.origin.Put("bucket", "k", []byte("old"))
		r, err := http.NewRequest("PUT", n.front.URL+"/bucket/k?X-Amz-Expires=60&X-Amz-Content-Sha256="+sha("body"), nil)
		if err != nil {
			t.Fatal(err)
		}
		uri, _, err := v4.NewSigner().PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: nodeKey,
			SecretAccessKey: nodeSecret}, r, sha("body"), "s3", "us-east-1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if r, err = http.NewRequest("PUT", uri, strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
		code := ""
		if status == 400 {
			code = "XAmzContentSHA256Mismatch"
		}
		want(t, do(t, n.front, r), status, code)
		if got, _ := n.stored(t, "k"); (got == "old") != (status == 400) {
			t.Errorf("%q: stored %q", body, got)
		}
	}
}

// U01: parts in aws-chunked encoding are stored without it; of a false one nothing is.
func TestChunkedParts(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	url := n.front.URL + "/bucket/k"
	created := want(t, do(t, n.front, signed(t, nodeKey, "POST", url+"?uploads=", "")), 200, "")
	id := regexp.MustCompile("<UploadId>(.*)</UploadId>").FindStringSubmatch(created)[1]
	one, two := strings.Repeat("1", 5<<20), strings.Repeat("2", 100_000)
	crc := newChecksums()[0]
	parts := ""
	for i, c := range []chunked{
		{payload: signedTrailer, chunks: []string{one[:65536], one[65536:]},
			trailer: crc.trailer() + ":" + sumOf(crc, one)},
		{payload: signedChunks, chunks: []string{two}},
	} {
		path := fmt.Sprintf("/bucket/k?partNumber=%d&uploadId=%s", i+1, id)
		c.spoil = func(s string) string { return strings.Replace(s, "11\r\n", "12\r\n", 1) }
		if i == 1 {
			c.spoil = func(s string) string { return strings.Replace(s, "22\r\n", "23\r\n", 1) }
		}
		want(t, do(t, n.front, c.request(t, n, path)), 403, "SignatureDoesNotMatch")
		c.spoil = nil
		resp := do(t, n.front, c.request(t, n, path))
		want(t, resp, 200, "")
		parts += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i+1,
			strings.ReplaceAll(resp.Header.Get("Etag"), `"`, "&quot;"))
	}
	want(t, do(t, n.front, signed(t, nodeKey, "POST", url+"?uploadId="+id,
		"<CompleteMultipartUpload>"+parts+"</CompleteMultipartUpload>")), 200, "")
	if got, _ := n.stored(t, "k"); got != one+two {
		t.Errorf("stored %d bytes", len(got))
	}
	if got := read(t, do(t, n.front, signed(t, nodeKey, "GET", url, ""))); got != one+two {
		t.Errorf("read %d bytes", len(got))
	}
}

// N01: an object that was missing when it was asked for is there once it was written.
func TestMissingUntilWritten(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	url := n.front.URL + "/bucket/new"
	for range 5 {
		want(t, do(t, n.front, signed(t, nodeKey, "GET", url, "")), 404, "NoSuchKey")
	}
	want(t, do(t, n.front, signed(t, nodeKey, "PUT", url, "here")), 200, "")
	if got := want(t, do(t, n.front, signed(t, nodeKey, "GET", url, "")), 200, ""); got != "here" {
		t.Errorf("%q", got)
	}
	n.origin.Put("bucket", "behind", []byte("here")) // and where nobody told the node
	want(t, do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/behind", "")), 200, "")
}

// C02: a read that began before a write and ends after it is of the old version as a whole, and is not what later reads
// get. So for a deletion.
func TestReadAcrossWrite(t *testing.T) {
	for _, method := range []string{"PUT", "DELETE"} {
		n := newNode(t, nil)
		old, written := strings.Repeat("o", 3*wireBlock), strings.Repeat("n", 3*wireBlock)
		n.origin.Put("bucket", "k", []byte(old))
		begun, hold := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release)
		var first atomic.Bool
		n.origin.Fault(func(r *http.Request) *devs3.Fault {
			if r.Method == "GET" && !first.Swap(true) {
				return devs3.CallAfter(100, func() { close(begun); <-hold })
			}
			return nil
		})
		url := n.front.URL + "/bucket/k"
		got := make(chan string)
		go func() {
			resp, err := n.front.Client().Do(signed(t, nodeKey, "GET", url, ""))
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				b = []byte(old) // cut: not taken for a whole one
			}
			got <- string(b)
		}()
		<-begun // the origin's answer is of the old version now
		body := ""
		if method == "PUT" {
			body = written
		}
		if resp := do(t, n.front, signed(t, nodeKey, method, url, body)); resp.StatusCode/100 != 2 {
			t.Fatal(read(t, resp))
		}
		release()
		if b := <-got; b != old && b != body {
			t.Errorf("%s: the read across it has %d bytes", method, len(b))
		}
		for range 2 {
			resp := do(t, n.front, signed(t, nodeKey, "GET", url, "", "Range", "bytes=0-99999"))
			b := read(t, resp)
			if method == "PUT" && b != written[:100_000] || method == "DELETE" && resp.StatusCode != 404 {
				t.Errorf("after %s: %d, %d bytes", method, resp.StatusCode, len(b))
			}
		}
	}
}

// The checksums that are not S3's original five reach the origin as they came; those that can be computed are.
func TestFurtherChecksums(t *testing.T) {
	const body = "what is held against it"
	for _, c := range newChecksums()[5:] {
		value := base64Of(make([]byte, c.size))
		if c.new != nil {
			value = sumOf(c, body)
		}
		for _, good := range []bool{true, false} {
			if !good {
				value = base64Of(make([]byte, c.size))
			}
			var got string
			h := newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
				func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					if int64(len(b)) != r.ContentLength || r.Header.Get("X-Amz-Trailer") != c.trailer() {
						t.Errorf("%s: %d bytes, %v", c.name, len(b), r.Header)
					}
					got = string(b)
					return answer(200, ""), nil
				})})
			frame := fmt.Sprintf("%x\r\n%s\r\n0\r\n%s:%s\r\n\r\n", len(body), body, c.trailer(), value)
			resp := ask(h, "PUT /bucket/k", frame, "x-amz-content-sha256", unsignedTrailer, "x-amz-trailer", c.trailer(),
				"x-amz-decoded-content-length", fmt.Sprint(len(body)))
			if good || c.new == nil {
				want(t, resp, 200, "")
				if got != frame {
					t.Errorf("%s: forwarded %q", c.name, got)
				}
			} else {
				want(t, resp, 400, "BadDigest")
			}
		}
	}
	// The check value of the XXH64 specification: of no bytes, with seed 0.
	for _, c := range newChecksums() {
		if c.name == "XXHASH64" && hex.EncodeToString(c.new().Sum(nil)) != "ef46db3751d8e999" {
			t.Error("XXHASH64 is not XXH64")
		}
	}
}

// An upload that the origin refuses on its headers is refused before the client is told to go on.
func TestExpectRefusedByOrigin(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Fault(func(*http.Request) *devs3.Fault { return devs3.Respond(412, "PreconditionFailed", "") })
	r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", "body", "If-None-Match", "*", "Expect", "100-continue")
	conn, err := net.Dial("tcp", n.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /bucket/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\n", r.URL.Host)
	_ = r.Header.Write(conn)
	_, _ = io.WriteString(conn, "\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 412 ") {
		t.Errorf("%q %v", line, err)
	}
}

// A write lasts as long as it takes while its client is there, and a while after that.
func TestWritesOutlastTheirClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, leave := context.WithCancel(t.Context())
		ctx, cancel := outlast(client, writePatience)
		defer cancel()
		time.Sleep(24 * time.Hour)
		if ctx.Err() != nil {
			t.Error("a long upload was cut off")
		}
		leave()
		time.Sleep(writePatience - time.Second)
		if ctx.Err() != nil {
			t.Error("ended with its client")
		}
		time.Sleep(2 * time.Second)
		if ctx.Err() == nil {
			t.Error("waited for without end")
		}
	})
}
