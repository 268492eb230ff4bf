package s3api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

var alikeSeed = flag.Uint64("alike", 0, "run the script of this seed alone")

// Connections that gather answer each request, whatever it is and whatever came before it, as net/http does by itself:
// the same status, the same header lines, the same bytes, and then a connection that goes on, ends or is cut.
func TestConnectionsAnswerAlike(t *testing.T) {
	o := origintest.New()
	keys := alikeObjects(o)
	t.Cleanup(func() { // after the servers
		if open := o.Stats().Open; open != 0 {
			t.Errorf("%d bodies of the origin are open", open)
		}
	})
	plain, gathering := alikeServer(t, o, false, false), alikeServer(t, o, true, false)
	secure := alikeServer(t, o, true, true) // which gathers nothing
	first, n := rand.Uint64(), 100
	if *alikeSeed != 0 {
		first, n = *alikeSeed, 1
	}
	scripts := make(chan uint64)
	var wg sync.WaitGroup
	for range 4 { // what one connection gives back, others use
		wg.Go(func() {
			for seed := range scripts {
				if t.Failed() {
					continue
				}
				s := newAlikeScript(t, seed, keys)
				want := s.play(t, plain)
				dials := []func() (net.Conn, error){gathering, secure}
				for _, dial := range dials[:1+(seed&3)/3] {
					got := s.play(t, dial)
					i := differ(got, want)
					if i < 0 {
						continue
					}
					t.Errorf("repeat with: go test ./s3api -run AnswerAlike -alike %d\npipelined %v, request %d of %.300v:\n"+
						"%.500q,\nwant\n%.500q", seed, s.pipelined, i, s.requests, got[i:], want[i:])
				}
			}
		})
	}
	for i := range n {
		scripts <- first + uint64(i)
	}
	close(scripts)
	wg.Wait()
}

// differ returns the index of the first strings that differ, -1 for none.
func differ(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) == len(b) {
		return -1
	}
	return min(len(a), len(b))
}

// alikeObjects stores objects of lengths around those at which something changes, with headers of all kinds, and
// returns their keys. Those that begin with "broken" break off, "weak" are not cached.
func alikeObjects(o *origintest.Origin) (keys []string) {
	headers := [][]origin.Header{
		nil,
		{{Name: "Cache-Control", Value: "no-cache"}, {Name: "Content-Type", Value: "text/x"}, {Name: "Expires", Value: "0"}},
		{{Name: "Content-Encoding", Value: "gzip"}, {Name: "X-Amz-Meta-A", Value: "1"},
			{Name: "X-Amz-Meta-A", Value: "tab\tand"}, {Name: "X-Amz-Meta-A", Value: "3"}},
		{{Name: "Content-Type", Value: "a\r\nEvil: 1"}, {Name: "X-Amz-Meta-A", Value: "a\r\n\r\nHTTP/1.1 200 OK"},
			{Name: "X-Amz-Meta-B", Value: " b "}, {Name: "X-Amz-Meta-C", Value: ""}, {Name: "X-Amz-Meta-D:\n", Value: "4"},
			{Name: "X-Amz-Meta-E", Value: "\xc3\xa9\xff\x7f\x00"}, {Name: "X-Amz-Meta-F G", Value: "6"}},
		{{Name: "X-Amz-Meta-Long", Value: strings.Repeat("l", 70_000)}},
		{{Name: "Content-Length", Value: "3"}, {Name: "Trailer", Value: "X"},
			{Name: "Date", Value: "yesterday"}, {Name: "Upgrade", Value: "h2c"}},
	}
	weak := func(r *origintest.Request) bool { return strings.Contains(r.Object.Key, "broken") && r.Op == "GET" }
	for i, size := range []int64{0, 1, 511, 512, 513, 3000, 4096, 8000, 65535, 65536, 65537, 100_000, 300_000} {
		for j, name := range []string{"", "weak", "broken"} {
			key := fmt.Sprint(name, size)
			keys = append(keys, key)
			o.Put("bucket", key, origintest.Object{Size: size, Seed: "seed", Weak: name != "",
				Headers:  headers[(i+j)%len(headers)],
				Volatile: []origin.Header{{Name: "X-Amz-Storage-Class", Value: "COLD"}}})
		}
	}
	o.Fail(-1, weak, origintest.Fault{Steps: []origintest.Step{{At: 600, Err: io.ErrUnexpectedEOF}}})
	return append(keys, "missing", "100000", "300000")
}

// alikeServer serves o to anonymous readers and to the key ALL.
func alikeServer(t *testing.T, o *origintest.Origin, gathers, secure bool) func() (net.Conn, error) {
	t.Helper()
	engine := newEngine(t, o, func(p *gateway.Policy) { p.BlockSize = 256 << 10 }) // more than leaves with a head
	h := newHandler(t, Config{Gateway: engine, Forward: forwardFunc(alikeForward), Auth: Auth{Mode: Static,
		Keys: []Key{{AccessKey: "ALL", SecretKey: testSecret, Buckets: []string{"*"},
			Rights: Read | Write | List | Delete | Admin}}, AnonymousBuckets: []string{"bucket"}}})
	s := httptest.NewUnstartedServer(h)
	if gathers {
		s.Listener = gatherListener{s.Listener}
		s.Config.ConnContext = ConnContext
	}
	s.Config.IdleTimeout, s.Config.ReadHeaderTimeout = time.Minute, time.Minute
	addr := s.Listener.Addr().String()
	if !secure {
		s.Start()
		t.Cleanup(s.Close)
		return func() (net.Conn, error) { return net.Dial("tcp", addr) }
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	trust := s.Client().Transport.(*http.Transport).TLSClientConfig
	return func() (net.Conn, error) { return tls.Dial("tcp", addr, trust) }
}

// alikeForward is the origin of what is forwarded: its answers have a length, or none, or break off.
func alikeForward(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Method == http.MethodDelete:
		return answer(204, ""), nil
	case r.Method == http.MethodPut:
		return answer(200, "", "Etag", `"new"`), nil
	case strings.Contains(r.URL.RawQuery, "broken"):
		a := answer(200, strings.Repeat("x", 9000))
		a.Body = io.NopCloser(io.MultiReader(io.LimitReader(a.Body, 5000), errReader{}))
		return a, nil
	case strings.Contains(r.URL.RawQuery, "stream"):
		a := answer(200, strings.Repeat("x", 9000))
		a.ContentLength = -1
		return a, nil
	case strings.Contains(r.URL.RawQuery, "refused"):
		return nil, errors.New("refused")
	}
	return answer(200, strings.Repeat("x", 9000), "Content-Length", "9000", "Connection", "X-Hop, close", "X-Hop", "1",
		"Keep-Alive", "1", "Trailer", "X", "X-Amz-Meta-A", "1", "X-Amz-Meta-A", "2"), nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// alikeScript is what one client sends over one connection.
type alikeScript struct {
	pipelined bool // all at once; else each request after the answer to the one before
	requests  []alikeRequest
}

type alikeRequest struct {
	method, text string
	ends         bool // the connection may go with the answer
	spills       bool // its body is taken for a next request, which is refused: so goes the connection
}

func newAlikeScript(t *testing.T, seed uint64, keys []string) *alikeScript {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &alikeScript{pipelined: rng.IntN(2) == 0}
	for range 1 + rng.IntN(12) {
		r := newAlikeRequest(t, rng, keys)
		s.requests = append(s.requests, r)
		if r.ends && s.pipelined || r.spills {
			break // what is not read when a connection closes resets it, and takes the end of the answer with it
		}
	}
	return s
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func newAlikeRequest(t *testing.T, rng *rand.Rand, keys []string) alikeRequest {
	key := pick(rng, keys...)
	r := alikeRequest{method: pick(rng, "GET", "GET", "GET", "HEAD")}
	path, proto, signs := "/bucket/"+key, "HTTP/1.1", false
	var query, lines []string
	add := func(line string) { lines = append(lines, line) }
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	if chance(3) {
		n := rng.IntN(70_000)
		add("Range: bytes=" + pick(rng, "0-0", "0-511", "0-510", "100-611", "-5", "-512", fmt.Sprint(n, "-"),
			fmt.Sprintf("%d-%d", n, n+rng.IntN(70_000)), "0-1,5-6", "x", "999999-"))
	}
	if chance(5) {
		tag := fmt.Sprintf("%q", "bucket/"+key+"#1")
		add(pick(rng, "If-None-Match: ", "If-Match: ", "If-Range: ") + pick(rng, tag, `"other"`, "*", "W/"+tag))
	}
	if chance(8) {
		add("If-Modified-Since: " + pick(rng, "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"))
	}
	if chance(8) {
		signs = !chance(4)
		query = append(query, "response-"+pick(rng, "content-disposition", "content-type", "cache-control",
			"content-encoding")+"="+pick(rng, "a", "%0d%0aEvil:1", "", "%20a%20", "a%09b", "%c3%a9", strings.Repeat("a", 5000)))
	}
	if chance(10) {
		r.method, path, signs = "GET", "/bucket", true
		query = []string{"list-type=2", "prefix=" + pick(rng, "x", "stream", "broken", "refused")}
		r.ends = strings.HasSuffix(query[1], "broken")
	}
	if chance(20) {
		r.method, signs = "DELETE", true
	}
	odd := chance(30)
	if odd {
		r.method, path = "GET", pick(rng, "/-/health", "/-/ready", "/", "/BUCKET/k", "/bucket/k?a=%zz")
		query, signs = nil, false
	}
	body := ""
	if !odd && chance(10) {
		if chance(2) {
			r.method, signs, query = "PUT", true, nil
		}
		switch rng.IntN(4) {
		case 0:
			add("Transfer-Encoding: chunked")
			body, r.ends = "3\r\nabc\r\n0\r\n\r\n", true
		case 1:
			add("Expect: 100-continue")
			body, r.ends = "abc", true
			add("Content-Length: 3")
		default:
			body = strings.Repeat("b", pick(rng, 0, 1, 5000))
			add(fmt.Sprint("Content-Length: ", len(body)))
		}
	}
	switch {
	case strings.HasPrefix(key, "broken"):
		r.ends = true
	case chance(30):
		proto, r.ends = "HTTP/1.0", true
	case chance(30):
		proto = "HTTP/1.0"
		add("Connection: keep-alive")
		r.ends = r.ends || len(query) == 2 // no length, no next request
	case chance(30):
		add("Connection: close")
		r.ends = true
	case body == "" && chance(60):
		add("no header")
		r.ends = true
	}
	r.spills = proto == "HTTP/1.0" && slices.Contains(lines, "Transfer-Encoding: chunked") // which is of HTTP/1.1
	target := path
	if len(query) > 0 {
		target += "?" + strings.Join(query, "&")
	}
	if signs {
		target = presign(t, r.method, target)
	}
	add("Host: h")
	r.text = fmt.Sprintf("%s %s %s\r\n%s\r\n\r\n%s", r.method, target, proto, strings.Join(lines, "\r\n"), body)
	return r
}

// presign returns the target of a request to host h, signed by the key ALL.
func presign(t *testing.T, method, target string) string {
	sep := "?"
	if strings.Contains(target, "?") {
		sep = "&"
	}
	r, err := http.NewRequest(method, "http://h"+target+sep+"X-Amz-Expires=600", nil)
	if err != nil {
		t.Error(err)
		return target
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	uri, _, err := signer.PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: "ALL", SecretAccessKey: testSecret}, r,
		"UNSIGNED-PAYLOAD", "s3", "us-east-1", time.Now())
	if err != nil {
		t.Error(err)
	}
	return strings.TrimPrefix(uri, "http://h")
}

// play returns the answers, one for each request that was answered, and how the connection ended.
func (s *alikeScript) play(t *testing.T, dial func() (net.Conn, error)) (answers []string) {
	c, err := dial()
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if s.pipelined {
		var all strings.Builder
		for _, r := range s.requests {
			all.WriteString(r.text)
		}
		go func() { _, _ = io.WriteString(c, all.String()) }() // ends with the connection
	}
	in := bufio.NewReader(c)
	for _, r := range s.requests {
		if !s.pipelined {
			if _, err := io.WriteString(c, r.text); err != nil {
				return append(answers, "cut")
			}
		}
		a, err := readAlike(in, r.method)
		answers = append(answers, a)
		if err != nil {
			return answers
		}
	}
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	if n, err := io.Copy(io.Discard, in); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		answers = append(answers, fmt.Sprintf("%d bytes too many, %v", n, err))
	}
	return answers
}

var alikeIDs = regexp.MustCompile(`<RequestId>\w+</RequestId><HostId>[\w+/=]+</HostId>`)

// readAlike reads one answer, less what no two answers have in common. Of one that is cut, what is left is that it was
// cut: how much of it came is not the same.
func readAlike(in *bufio.Reader, method string) (string, error) {
	var status string
	var lines []string
	length, chunked := int64(-1), false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "cut", err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		switch {
		case status == "":
			status = line
			continue
		case line == "\r\n" && strings.HasPrefix(status, "HTTP/1.1 100"):
			status = ""
			lines = append(lines, "continue")
			continue
		case line != "\r\n":
			switch name {
			case "Date", "Age", "X-Amz-Request-Id", "X-Amz-Id-2", "X-Ashlar-Cache":
				line = name
			case "Content-Length":
				if length, err = strconv.ParseInt(value, 10, 64); err != nil {
					return "", err
				}
			case "Transfer-Encoding":
				chunked = true
			}
			lines = append(lines, line)
			continue
		}
		break
	}
	slices.Sort(lines)
	var body bytes.Buffer
	var err error
	switch code := status[min(9, len(status)):min(12, len(status))]; {
	case method == "HEAD", code == "204", code == "304":
	case chunked:
		if _, err = io.Copy(&body, httputil.NewChunkedReader(in)); err == nil {
			_, err = in.ReadString('\n')
		}
	case length >= 0:
		_, err = io.CopyN(&body, in, length)
	default:
		_, err = io.Copy(&body, in)
	}
	if err != nil {
		return "cut", err
	}
	return status + strings.Join(lines, "") + "\n" + alikeIDs.ReplaceAllString(body.String(), "IDS"), nil
}
