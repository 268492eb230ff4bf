package s3api

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// chunked is an upload in aws-chunked encoding, to be signed, framed and perhaps spoiled.
type chunked struct {
	payload string // of x-amz-content-sha256
	chunks  []string
	trailer string // "name:value"; "" for none
	header  []string
	spoil   func(frame string) string
	length  int // announced; 0 is that of the chunks
}

// request signs and frames it. The length of the frame doesn't depend on the signatures, so they can come later.
func (c chunked) request(t *testing.T, n *node, path string) *http.Request {
	t.Helper()
	body := strings.Join(c.chunks, "")
	length := len(body)
	if c.length > 0 {
		length = c.length
	}
	header := append([]string{"X-Amz-Content-Sha256", c.payload, "Content-Encoding", "aws-chunked",
		"X-Amz-Decoded-Content-Length", fmt.Sprint(length)}, c.header...)
	if name, _, ok := strings.Cut(c.trailer, ":"); ok {
		header = append(header, "X-Amz-Trailer", name)
	}
	frame := c.frame(nil, "", "", "")
	if c.spoil != nil {
		frame = c.spoil(frame)
	}
	r := signed(t, nodeKey, "PUT", n.front.URL+path, strings.Repeat("x", len(frame)), header...)
	found := regexp.MustCompile(`Credential=[^/]*/([^,]*), .*Signature=([0-9a-f]{64})`).
		FindStringSubmatch(r.Header.Get("Authorization"))
	key := []byte("AWS4" + testSecret)
	for _, s := range strings.Split(found[1], "/") {
		key = mac(key, s)
	}
	frame = c.frame(key, r.Header.Get("X-Amz-Date"), found[1], found[2])
	if c.spoil != nil {
		frame = c.spoil(frame)
	}
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(frame)), int64(len(frame)), nil
	return r
}

func (c chunked) frame(key []byte, date, scope, previous string) string {
	var b strings.Builder
	signs := !strings.HasPrefix(c.payload, "STREAMING-UNSIGNED") && strings.HasPrefix(c.payload, "STREAMING")
	sign := func(algorithm string, rest ...string) string {
		if key == nil {
			return strings.Repeat("0", 64)
		}
		previous = hex.EncodeToString(mac(key, strings.Join(append([]string{algorithm, date, scope, previous}, rest...), "\n")))
		return previous
	}
	for _, chunk := range append(c.chunks[:len(c.chunks):len(c.chunks)], "") {
		fmt.Fprintf(&b, "%x", len(chunk))
		if signs {
			b.WriteString(";chunk-signature=" + sign("AWS4-HMAC-SHA256-PAYLOAD", sha(""), sha(chunk)))
		}
		b.WriteString("\r\n" + chunk)
		if chunk != "" {
			b.WriteString("\r\n")
		}
	}
	if c.trailer != "" {
		b.WriteString(c.trailer + "\r\n")
		if signs {
			b.WriteString("x-amz-trailer-signature:" + sign("AWS4-HMAC-SHA256-TRAILER", sha(c.trailer+"\n")) + "\r\n")
		}
	}
	return b.String() + "\r\n"
}

func mac(key []byte, s string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(s))
	return m.Sum(nil)
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

const (
	signedChunks    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

func sumOf(c checksum, body string) string {
	h := c.new()
	_, _ = io.WriteString(h, body)
	return base64Of(h.Sum(nil))
}

func base64Of(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// stored returns what the origin holds, and its headers.
func (n *node) stored(t *testing.T, key string) (string, http.Header) {
	t.Helper()
	r, err := http.NewRequest("GET", n.back.URL+"/bucket/"+key, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Checksum-Mode", "ENABLED")
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("X-Amz-Content-Sha256", sha(""))
	err = v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: originKey, SecretAccessKey: originSecret}, r,
		sha(""), "s3", "us-east-1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.back.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		return fmt.Sprint(resp.StatusCode), nil
	}
	return string(body), resp.Header
}

// U01, U03, U05: uploads in every form are stored byte-identical, with the checksum that came with them, and the next
// read through the node has them.
func TestUploads(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	sums := newChecksums()[:5] // those that the origin knows
	i := 0
	for _, size := range []int{0, 1, 65536, 200_001} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		var chunks []string
		for rest := body; rest != ""; rest = rest[min(len(rest), 65536):] {
			chunks = append(chunks, rest[:min(len(rest), 65536)])
		}
		var requests []func(path string) *http.Request
		add := func(c chunked) {
			requests = append(requests, func(path string) *http.Request { return c.request(t, n, path) })
		}
		plain := func(header ...string) {
			requests = append(requests, func(path string) *http.Request {
				return signed(t, nodeKey, "PUT", n.front.URL+path, body, header...)
			})
		}
		digest := md5.Sum([]byte(body))
		plain()
		plain("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		plain("Content-Md5", base64.StdEncoding.EncodeToString(digest[:]), "Expect", "100-continue")
		add(chunked{payload: signedChunks, chunks: chunks})
		add(chunked{payload: signedChunks, chunks: chunks, header: []string{"Content-Encoding", "gzip"}})
		add(chunked{payload: "UNSIGNED-PAYLOAD", chunks: chunks})
		add(chunked{payload: unsignedTrailer, chunks: chunks})
		for _, c := range sums {
			plain(c.header, sumOf(c, body))
			add(chunked{payload: signedTrailer, chunks: chunks, trailer: c.trailer() + ":" + sumOf(c, body)})
			add(chunked{payload: unsignedTrailer, chunks: chunks, trailer: c.trailer() + ":" + sumOf(c, body),
				header: []string{"X-Amz-Sdk-Checksum-Algorithm", c.name}})
		}
		for _, request := range requests {
			i++
			key := fmt.Sprintf("k%d", i)
			r := request("/bucket/" + key)
			name := fmt.Sprintf("%d bytes, %v", size, r.Header)
			if resp := do(t, n.front, r); resp.StatusCode != 200 {
				t.Errorf("%s: %d %s", name, resp.StatusCode, read(t, resp))
				continue
			}
			got, header := n.stored(t, key)
			if got != body {
				t.Errorf("%s: stored %d bytes", name, len(got))
			}
			encoding := strings.Join(header["Content-Encoding"], ",")
			if strings.Contains(encoding, "aws-chunked") || strings.Contains(strings.Join(r.Header["Content-Encoding"], ","), "gzip") != (encoding == "gzip") {
				t.Errorf("%s: Content-Encoding %q", name, encoding)
			}
			for _, c := range sums {
				asked := r.Header.Get(c.header) != "" || r.Header.Get("X-Amz-Trailer") == c.trailer()
				if asked && header.Get(c.header) != sumOf(c, body) {
					t.Errorf("%s: %s %q", name, c.header, header.Get(c.header))
				}
			}
			resp := do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/"+key, "", "Accept-Encoding", "identity"))
			if back := read(t, resp); resp.StatusCode != 200 || back != body || resp.Header.Get("Etag") != header.Get("Etag") {
				t.Errorf("%s: read back %d, %d bytes", name, resp.StatusCode, len(back))
			}
		}
	}
}

// A client that lies about its body gets S3's error, and nothing changes at the origin.
func TestFalseUploads(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Put("bucket", "k", []byte("old"))
	crc := newChecksums()[0]
	body := strings.Repeat("b", 70_000)
	chunks := []string{body[:65536], body[65536:]}
	pair := strings.Repeat("1", 8192) + strings.Repeat("2", 8192)
	good, other := crc.trailer()+":"+sumOf(crc, body), crc.trailer()+":"+sumOf(crc, "other")
	last := func(s string) string { return strings.Replace(s, "bb\r\n0", "bc\r\n0", 1) }
	plain := func(header ...string) func() *http.Request {
		return func() *http.Request { return signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body, header...) }
	}
	framed := func(c chunked) func() *http.Request {
		return func() *http.Request { return c.request(t, n, "/bucket/k") }
	}
	presigned := func() *http.Request { // with the hash of another body in the signed query
		r, err := http.NewRequest("PUT", n.front.URL+"/bucket/k?X-Amz-Expires=60&X-Amz-Content-Sha256="+sha("other"), nil)
		if err != nil {
			t.Fatal(err)
		}
		uri, header, err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).PresignHTTP(t.Context(),
			aws.Credentials{AccessKeyID: nodeKey, SecretAccessKey: testSecret}, r, sha("other"), "s3", "us-east-1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if r, err = http.NewRequest("PUT", uri, strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
		r.Header = header
		return r
	}
	for _, c := range []struct {
		name    string
		request func() *http.Request
		status  int
		code    string
	}{
		{"hash in a presigned query", presigned, 400, "XAmzContentSHA256Mismatch"},
		{"chunked in disguise", plain("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD", "Content-Encoding", `"aws-chunked"`), 411, "MissingContentLength"},
		{"hash", plain("X-Amz-Content-Sha256", sha("other")), 400, "XAmzContentSHA256Mismatch"},
		{"md5", plain("Content-Md5", "AAAAAAAAAAAAAAAAAAAAAA=="), 400, "BadDigest"},
		{"no md5", plain("Content-Md5", "x"), 400, "InvalidDigest"},
		{"checksum", plain(crc.header, sumOf(crc, "other")), 400, "BadDigest"},
		{"no checksum", plain(crc.header, "x"), 400, "InvalidRequest"},
		{"two checksums", plain(crc.header, sumOf(crc, body), "X-Amz-Checksum-Sha1", "x"), 400, "InvalidRequest"},
		{"another algorithm", plain(crc.header, sumOf(crc, "other"), "X-Amz-Sdk-Checksum-Algorithm", "SHA1"), 400,
			"InvalidRequest"},
		{"last byte of a chunk", framed(chunked{payload: signedChunks, chunks: chunks, spoil: last}), 403, "SignatureDoesNotMatch"},
		{"first byte of a chunk", framed(chunked{payload: signedChunks, chunks: chunks, spoil: func(s string) string {
			return strings.Replace(s, "\r\nb", "\r\nc", 1)
		}}), 403, "SignatureDoesNotMatch"},
		{"last chunk left out", framed(chunked{payload: signedChunks, chunks: chunks, spoil: func(s string) string {
			return s[:strings.LastIndex(s, "\r\n0;")+2]
		}}), 400, "IncompleteBody"},
		{"chunks swapped", framed(chunked{payload: signedChunks, chunks: []string{pair[:8192], pair[8192:]},
			spoil: func(s string) string {
				return strings.NewReplacer(pair[:8192], pair[8192:], pair[8192:], pair[:8192]).Replace(s)
			}}), 403, "SignatureDoesNotMatch"},
		{"small chunk in front", framed(chunked{payload: signedChunks, chunks: []string{"abc", "de"}}), 400,
			"InvalidChunkSizeError"},
		{"small chunk in front, unsigned", framed(chunked{payload: unsignedTrailer, chunks: []string{"abc", "de"},
			trailer: crc.trailer() + ":" + sumOf(crc, "abcde")}), 400, "InvalidChunkSizeError"},
		{"last byte with its checksum wrong", framed(chunked{payload: unsignedTrailer, chunks: chunks, trailer: good, spoil: last}), 400, "BadDigest"},
		{"trailing checksum", framed(chunked{payload: unsignedTrailer, chunks: chunks, trailer: other}), 400, "BadDigest"},
		{"signed trailing checksum", framed(chunked{payload: signedTrailer, chunks: chunks, trailer: other}), 400, "BadDigest"},
		{"trailer not signed", framed(chunked{payload: signedTrailer, chunks: chunks, trailer: good, spoil: func(s string) string {
			return s[:strings.Index(s, "x-amz-trailer-signature")] + "\r\n"
		}}), 403, "SignatureDoesNotMatch"},
		{"trailer changed", framed(chunked{payload: signedTrailer, chunks: chunks, trailer: good, spoil: func(s string) string {
			return strings.Replace(s, good, other, 1)
		}}), 403, "SignatureDoesNotMatch"},
		{"trailer missing", framed(chunked{payload: unsignedTrailer, chunks: chunks, trailer: good, spoil: func(s string) string {
			return strings.Replace(s, good+"\r\n", "", 1)
		}}), 400, "MalformedTrailerError"},
		{"trailer not announced", framed(chunked{payload: unsignedTrailer, chunks: chunks, spoil: func(s string) string {
			return strings.TrimSuffix(s, "\r\n") + good + "\r\n\r\n"
		}}), 400, "MalformedTrailerError"},
		{"another trailer", framed(chunked{payload: unsignedTrailer, chunks: chunks, trailer: "x-other:1"}), 400, "InvalidRequest"},
		{"more than announced", framed(chunked{payload: unsignedTrailer, chunks: chunks, length: 69_999}), 400, "IncompleteBody"},
		{"less than announced", framed(chunked{payload: unsignedTrailer, chunks: chunks, length: 70_001}), 400, "IncompleteBody"},
		{"no frame", framed(chunked{payload: unsignedTrailer, chunks: chunks, spoil: func(string) string { return body }}), 400, "IncompleteBody"},
		{"stops halfway", framed(chunked{payload: unsignedTrailer, chunks: chunks, spoil: func(s string) string { return s[:30_000] }}), 400, "IncompleteBody"},
		{"hash of what is framed", framed(chunked{payload: sha(body), chunks: chunks}), 400, "InvalidRequest"},
	} {
		resp := do(t, n.front, c.request())
		text := read(t, resp)
		if resp.StatusCode != c.status || !strings.Contains(text, "<Code>"+c.code+"<") {
			t.Errorf("%s: %d %s, want %d %s", c.name, resp.StatusCode, text, c.status, c.code)
		}
		if got, _ := n.stored(t, "k"); got != "old" {
			t.Fatalf("%s: the origin has %d bytes now", c.name, len(got))
		}
	}
	resp := do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))
	if got := read(t, resp); got != "old" {
		t.Errorf("through the node: %q", got)
	}
}

// A body without a length is refused, as S3 does; JS streams say how long theirs is decoded.
func TestUploadsWithoutLength(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	for _, c := range []struct {
		payload, header string
		status          int
	}{
		{"UNSIGNED-PAYLOAD", "", 411}, {unsignedTrailer, "", 411}, {unsignedTrailer, "5", 200}, {unsignedTrailer, "-5", 411},
	} {
		body := "5\r\nhello\r\n0\r\n\r\n"
		header := []string{"X-Amz-Content-Sha256", c.payload}
		if c.header != "" {
			header = append(header, "X-Amz-Decoded-Content-Length", c.header)
		}
		r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", "", header...)
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(body)), -1, nil
		resp := do(t, n.front, r)
		if text := read(t, resp); resp.StatusCode != c.status {
			t.Errorf("%+v: %d %s", c, resp.StatusCode, text)
		}
	}
	if got, _ := n.stored(t, "k"); got != "hello" {
		t.Errorf("stored %q", got)
	}
}

// What was written is read from blocks, once its info was confirmed by a HEAD; metadata is the origin's.
func TestPopulate(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	body := strings.Repeat("written", 30_000)
	put := func(header ...string) {
		t.Helper()
		r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body, append(header, "Content-Type", "text/x")...)
		if resp := do(t, n.front, r); resp.StatusCode != 200 {
			t.Fatal(read(t, resp))
		}
	}
	get := func(cache string) {
		t.Helper()
		resp := do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))
		if got := read(t, resp); got != body || resp.Header.Get("Content-Type") != "text/x" {
			t.Errorf("%d bytes, %v", len(got), resp.Header)
		}
		if got := resp.Header.Get("X-Ashlar-Cache"); got != cache {
			t.Errorf("%s, want %s", got, cache)
		}
	}
	put()
	n.origin.ResetCounters()
	get("hit; memory")
	get("hit; memory")
	if log := n.origin.Log(); len(log) != 1 || !strings.HasPrefix(log[0], "HEAD ") {
		t.Errorf("%q", log)
	}
	body = strings.Repeat("another", 20_000)
	put("X-Amz-Checksum-Crc32", sumOf(newChecksums()[0], body))
	get("hit; memory")
	body = strings.Repeat("part", 20_000)
	put("X-Amz-Write-Offset-Bytes", "0") // the origin may have more of it
	get("miss; origin")
	body = strings.Repeat("x", 2<<20) // above populate_max
	put()
	get("miss; origin")
}

// A write to a key spelled with a bare plus is one to a key with a space, where the origin takes it for that: nothing that
// was kept of either stands in for what is there now.
func TestWriteSpelledWithPlus(t *testing.T) {
	for _, space := range []bool{false, true} {
		n := newNodeOver(t, devs3.Config{PlusIsSpace: space}, func(c *Config) {
			c.Auth = Auth{Mode: Anonymous, AnonymousWrite: true} // signers differ about it too
		})
		n.origin.CreateBucket("bucket")
		send := func(method, key, body string) (int, string) {
			t.Helper()
			r, err := http.NewRequest(method, n.front.URL+"/bucket/"+key, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp := do(t, n.front, r)
			return resp.StatusCode, read(t, resp)
		}
		other := "a%2Bb"
		if space {
			other = "a%20b"
		}
		for i, spelled := range []string{other, "a+b", other, "a+b", "a+b"} {
			body := strings.Repeat("x", 100+i)
			if status, said := send("PUT", spelled, body); status != 200 {
				t.Fatal(said)
			}
			for _, key := range []string{other, "a+b", other} {
				if status, got := send("GET", key, ""); status != 200 || got != body {
					t.Errorf("plus is space %v: %d to GET of %s after PUT of %s, %d bytes", space, status, key, spelled, len(got))
				}
			}
		}
	}
}

// A write that overlapped another only invalidates: what is read afterwards is the origin's word.
func TestOverlappingWrites(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	slow, w := io.Pipe()
	one := strings.Repeat("1", 1000)
	r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", one)
	r.Body, r.GetBody = slow, nil
	done := make(chan int)
	go func() {
		resp, err := n.front.Client().Do(r)
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	if _, err := io.WriteString(w, one[:500]); err != nil {
		t.Fatal(err)
	}
	for n.origin.Counters().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	if resp := do(t, n.front, signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", "two")); resp.StatusCode != 200 {
		t.Fatal(read(t, resp))
	}
	_, _ = io.WriteString(w, one[500:])
	w.Close()
	if status := <-done; status != 200 {
		t.Fatal(status)
	}
	want, _ := n.stored(t, "k")
	resp := do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))
	if got := read(t, resp); got != want || resp.Header.Get("X-Ashlar-Cache") != "miss; origin" {
		t.Errorf("%d bytes of %d, %s", len(got), len(want), resp.Header.Get("X-Ashlar-Cache"))
	}
}

// endless yields whatever is in the buffer.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestLargestUpload: what S3 takes in one PUT, 5 GiB, goes through as it comes, and only its last byte waits for its end.
func TestLargestUpload(t *testing.T) {
	size := int64(5 << 30)
	if testing.Short() {
		size = 64 << 20 // the race detector looks at each byte
	}
	body := &io.LimitedReader{R: endless{}, N: size}
	got, ahead := int64(0), int64(0)
	h := newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
			if r.ContentLength != size {
				t.Errorf("announced as %d bytes", r.ContentLength)
			}
			buf := make([]byte, 1<<20)
			for {
				n, err := r.Body.Read(buf)
				got += int64(n)
				ahead = max(ahead, size-body.N-got)
				if body.N > 0 && size-body.N == got {
					t.Errorf("all of the %d bytes that have come were passed on", got)
				}
				if err == io.EOF {
					return answer(200, ""), nil
				}
				if err != nil {
					return nil, err
				}
			}
		})})
	r := httptest.NewRequest("PUT", "/bucket/k", body)
	r.ContentLength = size
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || got != size || ahead > 1<<20 {
		t.Errorf("%d, %d bytes, at most %d of them here", w.Code, got, ahead)
	}
}
