package devs3

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

func signingKey(secret, date, region string) []byte {
	return mac(mac(mac(mac([]byte("AWS4"+secret), date), region), "s3"), "aws4_request")
}

// published is the key and scope of the examples in the AWS documentation of SigV4 for S3.
func published(signature string) *chunkSeed {
	return &chunkSeed{signature: signature, date: "20130524T000000Z", scope: "20130524/us-east-1/s3/aws4_request",
		key: signingKey("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1")}
}

// TestPublishedChunks reads the two examples that the AWS documentation has of signed chunks, byte by byte too.
func TestPublishedChunks(t *testing.T) {
	data := strings.Repeat("a", 66560)
	frame := func(sig1, sig2, last string) string {
		return "10000;chunk-signature=" + sig1 + "\r\n" + data[:65536] + "\r\n" +
			"400;chunk-signature=" + sig2 + "\r\n" + data[65536:] + "\r\n0;chunk-signature=" + last + "\r\n"
	}
	for _, c := range []struct {
		name     string
		payload  payload
		body     string
		declared []string
	}{
		{"chunks", payload{kind: payloadSigned,
			seed: published("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9")},
			frame("ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
				"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
				"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9") + "\r\n", nil},
		{"trailer", payload{kind: payloadSignedTrailer,
			seed: published("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e")},
			frame("b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
				"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
				"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992") +
				"x-amz-checksum-crc32c:sOO8/Q==\r\n" +
				"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
			[]string{"x-amz-checksum-crc32c"}},
	} {
		for _, in := range []io.Reader{strings.NewReader(c.body), iotest.OneByteReader(strings.NewReader(c.body))} {
			got, err := io.ReadAll(newChunkReader(in, c.payload, int64(len(data)), c.declared))
			if err != nil || string(got) != data {
				t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
			}
		}
		// Fewer bytes than were announced are no body.
		_, err := io.ReadAll(newChunkReader(strings.NewReader(c.body), c.payload, int64(len(data))+1, c.declared))
		if err == nil || err == io.EOF {
			t.Errorf("%s: a byte is missing, and it is taken: %v", c.name, err)
		}
		// Any byte of it that is another makes it no body at all.
		for _, i := range []int{0, 7, 30, 100, 70000, len(c.body) - 3, len(c.body) - 1} {
			bad := []byte(c.body)
			bad[i%len(bad)] ^= 1
			_, err := io.ReadAll(newChunkReader(bytes.NewReader(bad), c.payload, int64(len(data)), c.declared))
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%s: byte %d changed: %v", c.name, i, err)
			}
		}
	}
}

// chunked is an aws-chunked upload as a client sends it.
type chunked struct {
	kind    string // x-amz-content-sha256
	chunks  []string
	trailer []string // lines without their end
	decoded string   // x-amz-decoded-content-length; "" is right
	header  []string
	spoil   func(string) string // of the framed body
	signing bool
}

const testSecret = "secret-of-the-test"

// send signs and sends the upload, signatures of chunks included.
func (u chunked) send(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	total := 0
	for _, chunk := range u.chunks {
		total += len(chunk)
	}
	if u.decoded == "" {
		u.decoded = fmt.Sprint(total)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Content-Sha256", u.kind)
	req.Header.Set("X-Amz-Decoded-Content-Length", u.decoded)
	req.Header.Set("Content-Encoding", "aws-chunked")
	for i := 0; i < len(u.header); i += 2 {
		req.Header.Set(u.header[i], u.header[i+1])
	}
	now := time.Now().UTC()
	err = v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: testSecret}, req,
		u.kind, "s3", "us-east-1", now, func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		t.Fatal(err)
	}
	_, previous, _ := strings.Cut(req.Header.Get("Authorization"), "Signature=")
	date := now.Format("20060102T150405Z")
	scope := date[:8] + "/us-east-1/s3/aws4_request"
	key := signingKey(testSecret, date[:8], "us-east-1")
	sign := func(algorithm, hashes string) string {
		previous = hex.EncodeToString(mac(key, algorithm+"\n"+date+"\n"+scope+"\n"+previous+"\n"+hashes))
		return previous
	}
	var b strings.Builder
	for _, chunk := range append(u.chunks, "") {
		fmt.Fprintf(&b, "%x", len(chunk))
		if strings.HasPrefix(u.kind, "STREAMING-AWS4") {
			sum := sha256.Sum256([]byte(chunk))
			b.WriteString(";chunk-signature=" + sign("AWS4-HMAC-SHA256-PAYLOAD", emptySHA256+"\n"+hex.EncodeToString(sum[:])))
		}
		b.WriteString("\r\n")
		if chunk != "" {
			b.WriteString(chunk + "\r\n")
		}
	}
	for _, line := range u.trailer {
		b.WriteString(line + "\r\n")
	}
	if u.signing {
		sum := sha256.Sum256([]byte(strings.Join(u.trailer, "\n") + "\n"))
		b.WriteString("x-amz-trailer-signature:" + sign("AWS4-HMAC-SHA256-TRAILER", hex.EncodeToString(sum[:])) + "\r\n")
	}
	b.WriteString("\r\n")
	body := b.String()
	if u.spoil != nil {
		body = u.spoil(body)
	}
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// TestChunkedUploads sends all forms of aws-chunked bodies, good and bad. A bad one leaves the object as it was.
func TestChunkedUploads(t *testing.T) {
	const (
		signed          = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
		signedTrailer   = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
		unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
		crc             = "x-amz-checksum-crc32:DUoRhQ==" // of "hello world"
	)
	hello := []string{"hello ", "world"}
	crcTrailer := []string{"X-Amz-Trailer", "x-amz-checksum-crc32"}
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for _, c := range []struct {
		name   string
		u      chunked
		status int
		code   string
	}{
		{"signed", chunked{kind: signed, chunks: hello}, 200, ""},
		{"signed, empty", chunked{kind: signed}, 200, ""},
		{"signed, data altered", chunked{kind: signed, chunks: hello, spoil: replace("world", "wOrld")}, 403,
			"SignatureDoesNotMatch"},
		{"signed, no signatures", chunked{kind: signed, chunks: hello,
			spoil: func(string) string { return "b\r\nhello world\r\n0\r\n\r\n" }}, 400, "InvalidRequest"},
		{"signed, chunks left out", chunked{kind: signed, chunks: hello, decoded: "12"}, 400, "IncompleteBody"},
		{"signed, more than said", chunked{kind: signed, chunks: hello, decoded: "10"}, 400, "IncompleteBody"},
		{"signed, length missing", chunked{kind: signed, chunks: hello, decoded: "x"}, 411, "MissingContentLength"},
		{"signed, something behind", chunked{kind: signed, chunks: hello, spoil: func(s string) string { return s + "x" }},
			400, "InvalidRequest"},
		{"signed, broken off", chunked{kind: signed, chunks: hello, spoil: func(s string) string { return s[:len(s)-2] }},
			400, "IncompleteBody"},
		{"signed, size with sign", chunked{kind: signed, chunks: hello, spoil: replace("6;", "+6;")}, 400, "InvalidRequest"},
		{"signed, bare LF", chunked{kind: signed, chunks: hello, spoil: replace("hello \r\n", "hello \n")}, 400,
			"InvalidRequest"},
		{"unsigned trailer", chunked{kind: unsignedTrailer, chunks: hello, trailer: []string{crc}, header: crcTrailer},
			200, ""},
		{"unsigned trailer, wrong sum", chunked{kind: unsignedTrailer, chunks: hello,
			trailer: []string{"x-amz-checksum-crc32:AAAAAA=="}, header: crcTrailer}, 400, "BadDigest"},
		{"unsigned trailer, no sum", chunked{kind: unsignedTrailer, chunks: hello,
			trailer: []string{"x-amz-checksum-crc32:AAAA"}, header: crcTrailer}, 400, "InvalidRequest"},
		{"unsigned trailer, missing", chunked{kind: unsignedTrailer, chunks: hello, header: crcTrailer}, 400,
			"MalformedTrailerError"},
		{"unsigned trailer, undeclared", chunked{kind: unsignedTrailer, chunks: hello, trailer: []string{crc}}, 400,
			"MalformedTrailerError"},
		{"unsigned trailer, another", chunked{kind: unsignedTrailer, chunks: hello,
			trailer: []string{"x-amz-checksum-sha1:Kq5sNclPz7QV2+lfQIuc6R7oRu0="}, header: crcTrailer}, 400,
			"MalformedTrailerError"},
		{"unsigned trailer, one too many", chunked{kind: unsignedTrailer, chunks: hello,
			trailer: []string{crc, "x-amz-meta-a:b"}, header: crcTrailer}, 400, "MalformedTrailerError"},
		{"signed trailer", chunked{kind: signedTrailer, chunks: hello, trailer: []string{crc}, header: crcTrailer,
			signing: true}, 200, ""},
		{"signed trailer, no signature", chunked{kind: signedTrailer, chunks: hello, trailer: []string{crc},
			header: crcTrailer}, 400, "MalformedTrailerError"},
		{"signed trailer, altered", chunked{kind: signedTrailer, chunks: hello, trailer: []string{crc}, header: crcTrailer,
			signing: true, spoil: replace("DUoRhQ==", "DUoRhA==")}, 403, "SignatureDoesNotMatch"},
		{"not chunked at all", chunked{kind: "UNSIGNED-PAYLOAD",
			spoil: func(string) string { return "hello world" }}, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Config{Keys: map[string]string{"AKID": testSecret}, AnonymousRead: true})
			s.Put("bucket", "k", []byte("old"))
			url, client := start(t, s)
			status, answer := c.u.send(t, client, url+"/bucket/k")
			if status != c.status || c.code != "" && !strings.Contains(answer, "<Code>"+c.code+"</Code>") {
				t.Fatalf("%d %s", status, answer)
			}
			want, encoding := "old", ""
			if status == 200 {
				want = strings.Join(c.u.chunks, "")
			}
			if c.u.kind == "UNSIGNED-PAYLOAD" { // aws-chunked is then a claim about bytes that are none of S3's business
				want, encoding = "hello world", "aws-chunked"
			}
			resp, got := do(t, client, "GET", url+"/bucket/k", "")
			if got != want || resp.Header.Get("Content-Encoding") != encoding {
				t.Errorf("%q in %q, want %q in %q", got, resp.Header.Get("Content-Encoding"), want, encoding)
			}
		})
	}
}
