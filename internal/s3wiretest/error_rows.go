package s3wiretest

import (
	"bufio"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// errorRows are the errors that a read can come to, besides those about ranges, conditions, versions and signatures.
func (e *env) errorRows() []row {
	common := []string{"Message", "*", "Resource", "*", "RequestId", "*", "HostId", "*"}
	elements := func(own ...string) []string { return append(own, common...) }
	return []row{
		{"error/no-such-key", func(t *testing.T, e *env) {
			key := "missing-" + random()
			w := refused(http.StatusNotFound, "NoSuchKey", elements("Key", key)...)
			e.expect(t, nil, request{key: key}, w)
			e.expect(t, nil, request{key: key, header: []string{"Range", "bytes=0-9"}}, w)
			e.expect(t, nil, request{key: key, header: []string{"Range", "bytes=-9"}}, w)
		}},
		{"error/no-such-key-head", func(t *testing.T, e *env) {
			e.expect(t, nil, request{method: http.MethodHead, key: "missing-" + random()},
				refused(http.StatusNotFound, "NoSuchKey"))
		}},
		{"error/no-such-key-escaped", func(t *testing.T, e *env) {
			key := `missing <a> & "b" 'c' ` + random()
			e.expect(t, nil, request{key: key}, refused(http.StatusNotFound, "NoSuchKey", "Key", key))
		}},
		{"error/no-such-bucket", func(t *testing.T, e *env) {
			name := "wire-none-" + random()
			w := refused(http.StatusNotFound, "NoSuchBucket", elements("BucketName", name)...)
			e.expect(t, nil, request{bucket: name, key: "k"}, w)
		}},
		{"error/no-such-bucket-head", func(t *testing.T, e *env) {
			e.expect(t, nil, request{method: http.MethodHead, bucket: "wire-none-" + random(), key: "k"},
				refused(http.StatusNotFound, "NoSuchBucket"))
		}},
		{"error/invalid-range", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			w := unsatisfied(o, "bytes=10-20")
			w.elements = elements(w.elements...)
			e.expect(t, o, request{header: []string{"Range", "bytes=10-20"}}, w)
		}},
		{"error/precondition-failed", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			w := precondition("If-Match")
			w.elements = elements(w.elements...)
			e.expect(t, o, request{header: []string{"If-Match", `"x"`}}, w)
		}},
		{"error/R13-connection-stays-usable", oneConnection},
	}
}

// oneConnection sends requests whose answers have no body, or an error's, down one connection. A byte too many or too
// few breaks the answer behind it.
func oneConnection(t *testing.T, e *env) {
	u, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "http" {
		t.Skip("over plain HTTP only")
	}
	conn, err := net.DialTimeout("tcp", u.Host, timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	o, empty := e.put(t, 600), e.put(t, 0)
	in := bufio.NewReader(conn)
	for _, step := range []struct {
		name string
		r    request
		want want
	}{
		{"head", request{method: http.MethodHead, key: o.key}, whole(o)},
		{"head of nothing", request{method: http.MethodHead, key: "missing"}, refused(404, "NoSuchKey")},
		{"get of nothing", request{key: "missing"}, refused(404, "NoSuchKey")},
		{"304", request{key: o.key, header: []string{"If-None-Match", o.etag}}, notModified(o)},
		{"head 304", request{method: http.MethodHead, key: o.key, header: []string{"If-None-Match", o.etag}}, notModified(o)},
		{"412", request{key: o.key, header: []string{"If-Match", `"x"`}}, precondition("If-Match")},
		{"head 412", request{method: http.MethodHead, key: o.key, header: []string{"If-Match", `"x"`}},
			precondition("If-Match")},
		{"416", request{key: o.key, header: []string{"Range", "bytes=600-"}}, unsatisfied(o, "bytes=600-")},
		{"head 416", request{method: http.MethodHead, key: o.key, header: []string{"Range", "bytes=600-"}},
			unsatisfied(o, "bytes=600-")},
		{"head range", request{method: http.MethodHead, key: o.key, header: []string{"Range", "bytes=1-2"}}, part(o, 1, 2)},
		{"range", request{key: o.key, header: []string{"Range", "bytes=1-2"}}, part(o, 1, 2)},
		{"empty", request{key: empty.key}, whole(empty)},
		{"head of empty", request{method: http.MethodHead, key: empty.key}, whole(empty)},
		{"get", request{key: o.key}, whole(o)},
	} {
		req := e.build(t, e.Endpoint, step.r)
		if err := req.Write(conn); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		resp, err := http.ReadResponse(in, req)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if resp.Close {
			t.Fatalf("%s: the answer closes the connection: %d %v", step.name, resp.StatusCode, resp.Header)
		}
		step.want.check(t, step.name, req.Method, readAnswer(resp))
		if n := in.Buffered(); n > 0 {
			extra, _ := in.Peek(n)
			t.Fatalf("%s: bytes behind the answer: %q", step.name, strings.ToValidUTF8(string(clip(extra)), "?"))
		}
	}
}
