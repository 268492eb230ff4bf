package s3api

import (
	"bufio"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/internal/s3wiretest"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

const (
	nodeKey, nodeSecret     = "NODEKEY", testSecret
	originKey, originSecret = "ORIGINKEY", "secret-of-the-node"
	wireBlock               = 64 << 10
)

// node is a handler over the whole read path and a strict S3 server behind it.
type node struct {
	origin *devs3.Server
	back   *httptest.Server // of origin
	front  *httptest.Server // of the handler
}

// newNode starts one. change, if set, may change the handler's configuration.
func newNode(t testing.TB, change func(*Config)) *node { return newNodeOver(t, devs3.Config{}, change) }

// newNodeOver starts one over another kind of server.
func newNodeOver(t testing.TB, server devs3.Config, change func(*Config)) *node {
	t.Helper()
	server.Keys = map[string]string{originKey: originSecret}
	n := &node{origin: devs3.New(server)}
	n.back = httptest.NewServer(n.origin)
	t.Cleanup(n.back.Close)
	o, err := s3origin.New(context.Background(), s3origin.Config{
		Endpoint: n.back.URL, Region: "us-east-1", Instance: "test",
		Credentials: s3origin.Credentials{Source: s3origin.SourceStatic, AccessKey: originKey, SecretKey: originSecret},
		Wrap: func(base http.RoundTripper) http.RoundTripper {
			base.(*http.Transport).ExpectContinueTimeout = time.Hour // however late the origin's word comes
			return base
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	mem, err := memory.New(memory.Config{Limit: 64 << 20, MaxBlock: wireBlock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mem.Close)
	policy := &gateway.Policy{BlockSize: wireBlock, FetchWindow: 4, ReadWindow: 8, TTL: time.Hour, PopulateMax: 1 << 20,
		Fetch: gateway.Fetch{FirstByte: 10 * time.Second, Attempt: 30 * time.Second}}
	g, err := gateway.New(gateway.Config{Origin: o, Memory: mem, Policy: func(string) *gateway.Policy { return policy }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	c := Config{
		Gateway: g, Forward: o, Domains: []string{"s3.test"}, Region: "us-east-1", InstanceID: "test",
		Auth: Auth{Mode: Static, Keys: []Key{{
			AccessKey: nodeKey, SecretKey: nodeSecret, Buckets: []string{"*"},
			Rights: Read | Write | List | Delete | Admin,
		}}},
	}
	if change != nil {
		change(&c)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n.front = httptest.NewServer(h)
	t.Cleanup(n.front.Close)
	return n
}

// TestWire is all that S3 answers to reads, first and later, in both forms of addresses.
func TestWire(t *testing.T) {
	for _, c := range []struct {
		name                       string
		warm, virtual, anonymously bool
	}{
		{name: "cold"},
		{name: "warm", warm: true},
		{name: "warm-virtual-hosted", warm: true, virtual: true},
		{name: "warm-anonymous", warm: true, anonymously: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(cfg *Config) {
				if c.anonymously {
					cfg.Auth = Auth{Mode: Anonymous}
				}
			})
			target := s3wiretest.Target{
				Endpoint: s3wiretest.Endpoint{URL: n.front.URL, AccessKey: nodeKey, SecretKey: nodeSecret},
				Origin:   s3wiretest.Endpoint{URL: n.back.URL, AccessKey: originKey, SecretKey: originSecret},
				Domain:   "s3.test", VirtualHosted: c.virtual, Warm: c.warm, BlockSize: wireBlock,
			}
			if c.anonymously {
				target.AccessKey, target.SecretKey = "", ""
			}
			s3wiretest.Run(t, target)
		})
	}
}

// TestWritesAreVisible: what was written through the node is what the next read finds, in whatever way it was written.
// C03, C04.
func TestWritesAreVisible(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Put("bucket", "source", []byte("the source"))
	url := n.front.URL + "/bucket/"
	send := func(method, target, body string, header ...string) *http.Response {
		t.Helper()
		return do(t, n.front, signed(t, nodeKey, method, target, body, header...))
	}
	reads := func(key, body string) {
		t.Helper()
		for range 2 {
			r := send("GET", url+key, "")
			if body == "" {
				want(t, r, 404, "NoSuchKey")
			} else if got := want(t, r, 200, ""); got != body {
				t.Errorf("%s reads %.40q, want %.40q", key, got, body)
			}
			status := 200
			if body == "" {
				status = 404
			}
			if r := send("HEAD", url+key, ""); r.StatusCode != status || body != "" && r.ContentLength != int64(len(body)) {
				t.Errorf("HEAD of %s: %d, length %d", key, r.StatusCode, r.ContentLength)
			}
		}
	}
	reads("k", "")
	want(t, send("PUT", url+"k", "one"), 200, "")
	reads("k", "one")
	want(t, send("PUT", url+"k", strings.Repeat("two", 100_000)), 200, "")
	reads("k", strings.Repeat("two", 100_000))
	want(t, send("PUT", url+"k", "refused", "If-None-Match", "*"), 412, "")
	reads("k", strings.Repeat("two", 100_000))
	want(t, send("PUT", url+"k", "", "X-Amz-Copy-Source", "/bucket/source"), 200, "")
	reads("k", "the source")
	tags := "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
	want(t, send("PUT", url+"k?tagging=", tags), 200, "")
	reads("k", "the source")
	want(t, send("DELETE", url+"k", ""), 204, "")
	reads("k", "")

	created := want(t, send("POST", url+"m?uploads=", ""), 200, "")
	id := regexp.MustCompile("<UploadId>(.*)</UploadId>").FindStringSubmatch(created)
	if id == nil {
		t.Fatal("no upload id")
	}
	upload := url + "m?uploadId=" + id[1]
	want(t, send("PUT", url+"m", "before"), 200, "")
	reads("m", "before")
	r := send("PUT", upload+"&partNumber=1", "after")
	want(t, r, 200, "")
	reads("m", "before")
	want(t, send("POST", upload, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+
		strings.ReplaceAll(r.Header.Get("Etag"), `"`, "&quot;")+"</ETag></Part></CompleteMultipartUpload>"), 200, "")
	reads("m", "after")

	for _, key := range []string{"a&b", "c'd", "\u00e4"} {
		want(t, send("PUT", url+sigv4.EncodePath(key), "x"), 200, "")
		reads(sigv4.EncodePath(key), "x")
	}
	body := "<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>c&apos;d</Key></Object>" +
		"<Object><Key>\u00e4</Key></Object></Delete>"
	sum := md5.Sum([]byte(body))
	hash := base64.StdEncoding.EncodeToString(sum[:])
	want(t, send("POST", n.front.URL+"/bucket?delete=", body, "Content-Md5", hash), 200, "")
	for _, key := range []string{"a&b", "c'd", "\u00e4"} {
		reads(sigv4.EncodePath(key), "")
	}
}

// An origin that breaks off leaves the client with a connection that is cut, never with a short body that looks
// complete.
func TestOriginBreaksOff(t *testing.T) {
	n := newNode(t, nil)
	const size = 40 * wireBlock
	n.origin.PutGenerated("bucket", "k", size, 1)
	var asked atomic.Int32
	n.origin.Fault(func(r *http.Request) *devs3.Fault {
		if asked.Add(1) >= 3 {
			return devs3.ResetAfter(wireBlock / 2)
		}
		return nil
	})
	req := signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", "")
	r := do(t, n.front, req)
	if got, err := io.ReadAll(r.Body); err == nil || r.StatusCode != 200 || len(got) >= size {
		t.Errorf("%d, %d of %d bytes, %v", r.StatusCode, len(got), size, err)
	}
}

// Nobody is asked to send a body before it is known who they are.
func TestContinueOnlyAfterAuthentication(t *testing.T) {
	n := newNode(t, nil)
	n.origin.CreateBucket("bucket")
	ask := func(r *http.Request) string {
		t.Helper()
		conn, err := net.Dial("tcp", n.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var head strings.Builder
		fmt.Fprintf(&head, "PUT /bucket/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\nExpect: 100-continue\r\n", r.URL.Host)
		_ = r.Header.Write(&head)
		head.WriteString("\r\n")
		if _, err := io.WriteString(conn, head.String()); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		first, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(first, " 100 ") {
			return first
		}
		if _, err := io.WriteString(conn, "body"); err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadString('\n'); err != nil { // the empty line after 100
			t.Fatal(err)
		}
		second, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return first + second
	}
	good := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", "body")
	if got := ask(good); got != "HTTP/1.1 100 Continue\r\nHTTP/1.1 200 OK\r\n" {
		t.Errorf("signed: %q", got)
	}
	bad := signed(t, "NOBODY", "PUT", n.front.URL+"/bucket/k", "body")
	if got := ask(bad); got != "HTTP/1.1 403 Forbidden\r\n" {
		t.Errorf("unknown key: %q", got)
	}
}
