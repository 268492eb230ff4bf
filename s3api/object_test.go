package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

func TestHeadHeaders(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	began := time.Now()
	r := ask(h, "HEAD /bucket/k", "")
	if body := want(t, r, 200, ""); body != "" {
		t.Errorf("body %q", body)
	}
	// Rounded up: 1, unless it took longer.
	if age, err := strconv.Atoi(r.Header.Get("Age")); err != nil || age < 1 || age > 1+int(time.Since(began)/time.Second) {
		t.Errorf("Age: %q", r.Header["Age"])
	}
	for name, value := range map[string]string{
		"Content-Length": "600", "Etag": `"abc"`, "Last-Modified": "Sun, 01 Mar 2026 12:00:00 GMT", "Accept-Ranges": "bytes",
		"Cache-Control": "max-age=60", "Content-Type": "text/plain", "Expires": "Thu, 01 Dec 2033 16:00:00 GMT",
		"X-Amz-Version-Id": "v1", "X-Amz-Storage-Class": "STANDARD_IA", "X-Ashlar-Cache": "miss; origin",
	} {
		if got := r.Header[name]; len(got) != 1 || got[0] != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	if got := r.Header[strings.ToLower("X-Amz-Meta-Two")]; len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("metadata, repeated, in lower case as S3 sends it: %q", got)
	}
	for _, absent := range []string{"Content-Range", "X-Amz-Checksum-Crc32", "X-Amz-Checksum-Type"} {
		if got := r.Header[absent]; got != nil {
			t.Errorf("%s: %q", absent, got)
		}
	}
	if r.Header.Get("X-Amz-Request-Id") == "" || r.Header.Get("X-Amz-Id-2") == "" {
		t.Errorf("no request ids: %v", r.Header)
	}
	again := ask(h, "HEAD /bucket/k", "")
	if again.Header.Get("X-Amz-Request-Id") == r.Header.Get("X-Amz-Request-Id") {
		t.Error("one request id twice")
	}
}

func TestHeadRange(t *testing.T) { // R12
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	r := ask(h, "HEAD /bucket/k", "", "Range", "bytes=590-700")
	want(t, r, 206, "")
	if r.Header.Get("Content-Range") != "bytes 590-599/600" || r.Header.Get("Content-Length") != "10" {
		t.Errorf("%v", r.Header)
	}
	r = ask(h, "HEAD /bucket/k", "", "Range", "bytes=600-")
	if body := want(t, r, 416, ""); body != "" || r.Header.Get("Content-Range") != "bytes */600" {
		t.Errorf("%q %v", body, r.Header)
	}
}

func TestNotModifiedHeaders(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	for _, method := range []string{"GET", "HEAD"} {
		r := ask(h, method+" /bucket/k", "", "If-None-Match", `"abc"`)
		if body := want(t, r, 304, ""); body != "" {
			t.Errorf("body %q", body)
		}
		for _, name := range []string{"Etag", "Last-Modified", "Cache-Control", "Expires", "Age", "X-Amz-Request-Id"} {
			if len(r.Header[name]) != 1 {
				t.Errorf("%s: %s: %q", method, name, r.Header[name])
			}
		}
		for _, name := range []string{"Content-Type", "Content-Length", "x-amz-meta-two"} {
			if len(r.Header[name]) != 0 {
				t.Errorf("%s: %s: %q", method, name, r.Header[name])
			}
		}
	}
}

func TestChecksumsWhenAskedAndWhole(t *testing.T) { // U06
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	for _, c := range []struct {
		line   string
		header []string
		want   bool
	}{
		{"HEAD /bucket/k", nil, false},
		{"HEAD /bucket/k", []string{"x-amz-checksum-mode", "ENABLED"}, true},
		{"HEAD /bucket/k?x-amz-checksum-mode=ENABLED", nil, true},
		{"HEAD /bucket/k", []string{"x-amz-checksum-mode", "ENABLED", "Range", "bytes=4-7"}, false},
		{"HEAD /bucket/k", []string{"x-amz-checksum-mode", "ENABLED", "Range", "bytes=0-"}, false},
	} {
		r := ask(h, c.line, "", c.header...)
		got := r.Header.Get("X-Amz-Checksum-Crc32") != "" && r.Header.Get("X-Amz-Checksum-Type") != ""
		if got != c.want {
			t.Errorf("%s %v: %v", c.line, c.header, r.Header)
		}
	}
}

func TestVolatileHeadersOnlyWithinTTL(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, func(p *gateway.Policy, _ *origintest.Object) {
		p.Immutable, p.TTL = true, 0
	})})
	if r := ask(h, "GET /bucket/k", ""); r.Header.Get("X-Amz-Storage-Class") == "" {
		t.Errorf("just asked: %v", r.Header)
	}
	if r := ask(h, "GET /bucket/k", ""); r.Header.Get("X-Amz-Storage-Class") != "" || r.Header.Get("Content-Type") == "" {
		t.Errorf("remembered for longer than the ttl: %v", r.Header)
	}
}

func TestNoContentTypeIsMadeUp(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, func(_ *gateway.Policy, o *origintest.Object) { o.Headers = nil })})
	for _, line := range []string{"HEAD /bucket/k", "GET /bucket/k"} {
		if r := ask(h, line, ""); len(r.Header["Content-Type"]) != 0 {
			t.Errorf("%v", r.Header)
		}
	}
}

// What blocks have no answer to is the origin's, with the same right.
func TestReadsThatAreForwarded(t *testing.T) {
	for _, c := range []struct {
		line   string
		header []string
	}{
		{"GET /bucket/k?partNumber=1", nil},
		{"HEAD /bucket/k?partNumber=1", nil},
		{"GET /bucket/k?acl", nil},
		{"GET /bucket/k?tagging", nil},
		{"GET /bucket/k?attributes", nil},
		{"GET /bucket/k?torrent", nil},
		{"GET /bucket/k?uploadId=u", nil},
		{"GET /bucket/k?cachebuster=1", nil},
		{"GET /bucket/k?versionId=a&versionId=b", nil},
		{"GET /bucket/k?x-amz-unknown=1", nil},
		{"GET /bucket/k", []string{"x-amz-request-payer", "requester"}},
		{"GET /bucket/k", []string{"x-amz-expected-bucket-owner", "1"}},
		{"GET /bucket/k", []string{"x-amz-unknown", "1"}},
		{"GET /bucket/k", []string{"x-amz-checksum-mode", "whatever"}},
		{"GET /bucket/k", []string{"If-None-Match", `"a", "b"`}},
		{"HEAD /bucket/k", []string{"If-Match", `W/"a"`}},
		{"GET /bucket/k", []string{"x-amz-server-side-encryption-customer-algorithm", "AES256", "TLS", ""}}, // A08
		{"GET /bucket/k", []string{"Origin", "https://example.com"}},                                        // its browser needs CORS headers
		{"HEAD /bucket/k?versionId=v", []string{"Origin", "null", "Range", "bytes=0-1"}},
	} {
		forwarded := 0
		h := newHandler(t, Config{OriginTLS: true, Forward: forwardFunc(
			func(_ context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
				forwarded++
				if bucket != "bucket" || rawKey != "k" {
					t.Errorf("%s: forwarded to %s/%s", c.line, bucket, rawKey)
				}
				return answer(200, "the origin's"), nil
			})})
		r := ask(h, c.line, "", c.header...)
		if r.StatusCode != 200 || forwarded != 1 || r.Header.Get("X-Ashlar-Cache") != "bypass; origin" {
			t.Errorf("%s %v: %d, forwarded %d times, %v", c.line, c.header, r.StatusCode, forwarded, r.Header)
		}
	}
}

// What says nothing of the object is no reason to forward.
func TestReadsThatAreServed(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	for _, line := range []string{
		"HEAD /bucket/k?x-id=HeadObject",
		"HEAD /bucket/k?versionId=v1",
		"HEAD /bucket/k?X-Amz-Algorithm=a&X-Amz-Credential=c&X-Amz-Date=d&X-Amz-Expires=1&X-Amz-SignedHeaders=h" +
			"&X-Amz-Security-Token=t&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&X-Amz-Signature=s",
	} {
		r := ask(h, line, "", "x-amz-date", "d", "x-amz-content-sha256", "UNSIGNED-PAYLOAD", "x-amz-security-token", "t",
			"x-amz-user-agent", "js", "amz-sdk-request", "attempt=1", "Cache-Control", "no-cache", "Pragma", "x",
			"Accept-Encoding", "gzip", "Referer", "https://example.com")
		want(t, r, 200, "")
	}
}

func TestVersionIDs(t *testing.T) {
	var asked origin.Object
	f := &fakeReader{open: func(r gateway.Request) (*gateway.Object, error) {
		asked = r.Object
		return nil, &origin.Error{Status: 404}
	}}
	h := newHandler(t, Config{Gateway: f})
	want(t, ask(h, "HEAD /bucket/a%20b?versionId=null", ""), 404, "")
	if (asked != origin.Object{Bucket: "bucket", Key: "a b", VersionID: "null"}) {
		t.Errorf("%+v", asked)
	}
	want(t, ask(h, "HEAD /bucket/a+b", ""), 404, "")
	if (asked != origin.Object{Bucket: "bucket", Key: "a+b", Raw: "a+b"}) {
		t.Errorf("%+v", asked)
	}
	for _, bad := range []string{"", "a%20b", "%0a", strings.Repeat("v", 1025)} {
		body := want(t, ask(h, "GET /bucket/k?versionId="+bad, ""), 400, "InvalidArgument")
		if !strings.Contains(body, "<ArgumentName>versionId</ArgumentName>") {
			t.Error(body)
		}
	}
}

func TestOverridesNeedASignature(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	want(t, ask(h, "GET /bucket/k?response-content-type=text/html", ""), 400, "InvalidRequest")

	// Signed, and on 200 and 206 only.
	x := exchangeFor(t, h, "HEAD /bucket/k?response-content-type=text/html&response-expires=never", nil)
	x.who = identity{accessKey: "AKIA"}
	p, ok, err := x.plainRead()
	html := origin.Header{Name: "Content-Type", Value: "text/html"}
	if !ok || err != nil || len(p.overrides) != 2 || p.overrides[0] != html {
		t.Errorf("%+v %v %v", p, ok, err)
	}
	x = exchangeFor(t, h, "HEAD /bucket/k?response-content-type=a%0d%0aSet-Cookie:%20x", nil)
	x.who = identity{accessKey: "AKIA"}
	if _, _, err := x.plainRead(); err == nil {
		t.Error("a line break in a header value")
	}
}

func TestRangeNotSatisfiable(t *testing.T) { // R04, R09
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	r := ask(h, "GET /bucket/k", "", "Range", "bytes=600-700")
	body := want(t, r, 416, "InvalidRange")
	if r.Header.Get("Content-Range") != "bytes */600" ||
		!strings.Contains(body, "<RangeRequested>bytes=600-700</RangeRequested><ActualObjectSize>600</ActualObjectSize>") {
		t.Errorf("%v %s", r.Header, body)
	}
}

func TestPreconditionFailed(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	body := want(t, ask(h, "GET /bucket/k", "", "If-Match", `"x"`), 412, "PreconditionFailed")
	if !strings.Contains(body, "<Condition>If-Match</Condition>") {
		t.Error(body)
	}
}

func TestErrorsOfReads(t *testing.T) {
	const xmlBody = `<?xml version="1.0"?><Error><Code>NoSuchKey</Code><RequestId>THEIRS</RequestId></Error>`
	for _, c := range []struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		{fmt.Errorf("wrapped: %w", origin.ErrTimeout), 503, "ServiceUnavailable", "1"},
		{fmt.Errorf("wrapped: %w", origin.ErrCredentials), 503, "ServiceUnavailable", "1"},
		{errors.New("dial tcp: connection refused"), 503, "ServiceUnavailable", "1"},
		{context.DeadlineExceeded, 503, "ServiceUnavailable", "1"},
		{fmt.Errorf("%w: 206 without Content-Range", origin.ErrBadAnswer), 502, "InternalError", ""},
		{fmt.Errorf("%w: body ended early: %w", origin.ErrBadAnswer, io.ErrUnexpectedEOF), 503, "ServiceUnavailable", "1"},
		{fmt.Errorf("twice: %w", origin.ErrChanged), 503, "ServiceUnavailable", "1"},
		{&origin.Error{Status: 412, Body: []byte("x")}, 503, "ServiceUnavailable", "1"},
		{&origin.Error{Status: 404, Body: []byte(xmlBody)}, 404, "NoSuchKey", ""},
		{&origin.Error{Status: 404}, 404, "NoSuchKey", ""},
		{&origin.Error{Status: 403}, 403, "AccessDenied", ""},
		{&origin.Error{Status: 405}, 405, "MethodNotAllowed", ""},
		{&origin.Error{Status: 500}, 500, "InternalError", ""},
		{&origin.Error{Status: 404, Code: "NoSuchBucket"}, 404, "NoSuchBucket", ""},
		{&origin.Error{Status: 503, Header: []origin.Header{{Name: "Retry-After", Value: "7"}}}, 503, "SlowDown", "7"},
	} {
		h := newHandler(t, Config{Gateway: failingReader(c.err)})
		r := ask(h, "GET /bucket/k", "")
		body := want(t, r, c.status, c.code)
		if r.Header.Get("Retry-After") != c.retryAfter {
			t.Errorf("%v: Retry-After %q", c.err, r.Header.Get("Retry-After"))
		}
		if strings.Contains(body, "connection refused") || strings.Contains(body, "Content-Range") {
			t.Errorf("%v: told to the client: %s", c.err, body)
		}
		r = ask(h, "HEAD /bucket/k", "")
		if body := want(t, r, c.status, ""); body != "" {
			t.Errorf("%v: HEAD with a body %q", c.err, body)
		}
	}
}

// An error of the origin reaches the client as it came: N02.
func TestOriginErrorAsItCame(t *testing.T) {
	e := &origin.Error{Status: 503, Code: "SlowDown", Body: []byte("<html>busy</html>"), Header: []origin.Header{
		{Name: "Content-Type", Value: "text/html"}, {Name: "Content-Length", Value: "999"}, {Name: "Retry-After", Value: "3"},
		{Name: "X-Amz-Request-Id", Value: "THEIRS"}, {Name: "Date", Value: "Thu, 01 Jan 1970 00:00:00 GMT"},
		{Name: "Connection", Value: "close"}, {Name: "X-Ashlar-Error", Value: "node"},
		{Name: "X-Amz-Delete-Marker", Value: "true"},
	}}
	h := newHandler(t, Config{Gateway: failingReader(e)})
	r := ask(h, "GET /bucket/k", "")
	if body := want(t, r, 503, ""); body != "<html>busy</html>" {
		t.Errorf("body %q", body)
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html", "Content-Length": "17", "Retry-After": "3", "X-Amz-Request-Id": "THEIRS", "Date": "",
		"Connection": "", "X-Ashlar-Error": "", "X-Amz-Delete-Marker": "true",
	} {
		if got := r.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

// What SDKs send with every read is no reason to ask the origin.
func TestReadsOfSDKsAreServed(t *testing.T) {
	h := newHandler(t, Config{Gateway: testReader(t, nil)})
	for _, sdk := range []struct {
		name   string
		header []string
	}{
		{"C++, and so PyArrow", []string{"x-amz-api-version", "2006-03-01", "x-amz-checksum-mode", "enabled"}},
		{"Java 2", []string{"x-amz-checksum-crc32", "AAAAAA==", "x-amz-te", "append-md5"}},
	} {
		for range 2 {
			r := ask(h, "GET /bucket/k", "", sdk.header...)
			if got := r.Header.Get("X-Ashlar-Cache"); r.StatusCode != 200 || strings.HasPrefix(got, "bypass") {
				t.Errorf("%s: %d, %s", sdk.name, r.StatusCode, got)
			}
		}
	}
}
