package s3origin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestBadAnswers has answers that contradict themselves or the question: field cases R02, R03 and C09. Nothing that is
// wrong may read to io.EOF.
func TestBadAnswers(t *testing.T) {
	ten := origin.GetOptions{Offset: 10, Length: 10}
	for _, c := range []struct {
		name   string
		opts   origin.GetOptions
		answer string
		err    error // of Get; nil: the body fails
		body   error // of reading the body
	}{
		{"no Content-Range", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10") + "0123456789",
			origin.ErrBadAnswer, nil},
		{"two Content-Ranges", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 10-19/100", "Content-Range: bytes 20-29/100") + "0123456789", origin.ErrBadAnswer, nil},
		{"size unknown", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 10-19/*") + "0123456789", origin.ErrBadAnswer, nil},
		{"size too small", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 10-19/19") + "0123456789", origin.ErrBadAnswer, nil},
		{"no numbers", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes */100") + "0123456789", origin.ErrBadAnswer, nil},
		{"reversed", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 19-10/100") + "0123456789", origin.ErrBadAnswer, nil},
		{"reversed, to the end of the connection", ten, lines("HTTP/1.1 206 Partial Content",
			"Content-Range: bytes 19-10/100") + "0123456789", origin.ErrBadAnswer, nil},
		{"other unit", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: lines 10-19/100") + "0123456789", origin.ErrBadAnswer, nil},
		{"signs", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes +10-19/100") + "0123456789", origin.ErrBadAnswer, nil},
		{"beyond 63 bits", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 10-19/99999999999999999999") + "0123456789", origin.ErrBadAnswer, nil},
		{"several parts", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Type: multipart/byteranges; boundary=x") + "0123456789", origin.ErrBadAnswer, nil},
		{"length disagrees", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 11",
			"Content-Range: bytes 10-19/100") + "0123456789a", origin.ErrBadAnswer, nil},
		{"206 to no range", origin.GetOptions{}, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 0-9/10") + "0123456789", origin.ErrBadAnswer, nil},
		{"200 without length", origin.GetOptions{}, lines("HTTP/1.1 200 OK", "Transfer-Encoding: chunked") +
			"a\r\n0123456789\r\n0\r\n\r\n", origin.ErrBadAnswer, nil},
		{"200 to the end of the connection", origin.GetOptions{}, lines("HTTP/1.1 200 OK") + "0123456789",
			origin.ErrBadAnswer, nil},
		{"304 unasked", origin.GetOptions{}, lines("HTTP/1.1 304 Not Modified"), origin.ErrBadAnswer, nil},
		{"two ETags", origin.GetOptions{}, lines("HTTP/1.1 200 OK", "Content-Length: 0", `ETag: "a"`, `ETag: "b"`),
			origin.ErrBadAnswer, nil},

		{"short", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 10-19/100") + "0123", nil, io.ErrUnexpectedEOF},
		{"short whole", origin.GetOptions{}, lines("HTTP/1.1 200 OK", "Content-Length: 10") + "0123",
			nil, io.ErrUnexpectedEOF},
		{"nothing", ten, lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: bytes 10-19/100"), nil, io.ErrUnexpectedEOF},
		{"short, chunked", ten, lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "4\r\n0123\r\n0\r\n\r\n", nil, io.ErrUnexpectedEOF},
		{"chunks cut", ten, lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "4\r\n0123\r\n", nil, io.ErrUnexpectedEOF},
		{"last chunk missing", ten, lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "a\r\n0123456789\r\n", nil, io.ErrUnexpectedEOF},
		{"chunks broken", ten, lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "4\r\n0123\r\nzz\r\n", nil, io.ErrUnexpectedEOF},
		{"long, chunked", ten, lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "b\r\n0123456789a\r\n0\r\n\r\n", nil, origin.ErrBadAnswer},
		{"long, chunk after chunk", ten, lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "a\r\n0123456789\r\n1\r\na\r\n0\r\n\r\n", nil, origin.ErrBadAnswer},
		{"short to the end of the connection", ten, lines("HTTP/1.1 206 Partial Content",
			"Content-Range: bytes 10-19/100") + "0123", nil, io.ErrUnexpectedEOF},
		{"long to the end of the connection", ten, lines("HTTP/1.1 206 Partial Content",
			"Content-Range: bytes 10-19/100") + "0123456789a", nil, origin.ErrBadAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := lines("HTTP/1.1 206 Partial Content", "Content-Length: 10", "Content-Range: bytes 10-19/100") + "abcdefghij"
			s := newRawServer(t, func(conn, _ int) (string, bool) {
				if conn == 1 {
					return c.answer, false
				}
				return good, false
			})
			o := newOrigin(t, s.url)
			r, err := o.Get(t.Context(), obj("k"), c.opts)
			if c.err != nil {
				if !errors.Is(err, c.err) {
					t.Fatalf("Get: %+v, %v; want %v", r, err, c.err)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				// With a buffer of exactly the length: ReadFull must not be satisfied before the end is known.
				p := make([]byte, r.Length)
				if n, err := io.ReadFull(r.Body, p); !errors.Is(err, c.body) {
					t.Errorf("ReadFull: %d, %v; want %v", n, err, c.body)
				}
				if _, err := r.Body.Read(p); err == nil || err == io.EOF {
					t.Errorf("after the error: %v", err)
				}
				_ = r.Body.Close()
			}
			// The next answer is not touched by what this one left behind.
			r, err = o.Get(t.Context(), obj("k"), ten)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := io.ReadAll(r.Body); string(p) != "abcdefghij" || err != nil {
				t.Errorf("next: %q, %v", p, err)
			}
			_ = r.Body.Close()
			var failures float64
			for _, why := range []string{whyBadAnswer, whyShort} {
				failures += testutil.ToFloat64(o.metrics.errors.WithLabelValues(why))
			}
			if failures != 1 {
				t.Errorf("counted as %v failures", failures)
			}
		})
	}
}

// TestOddButUsableAnswers: what was not asked for but agrees with itself is for the caller to judge.
func TestOddButUsableAnswers(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         string // body
		off, size    int64
	}{
		{"200 to a range", lines("HTTP/1.1 200 OK", "Content-Length: 30") + strings.Repeat("0123456789", 3),
			strings.Repeat("0123456789", 3), 0, 30},
		{"shifted", lines("HTTP/1.1 206 Partial Content", "Content-Length: 10", "Content-Range: bytes 11-20/100") +
			"0123456789", "0123456789", 11, 100},
		{"shorter than asked", lines("HTTP/1.1 206 Partial Content", "Content-Length: 4",
			"Content-Range: bytes 10-13/100") + "0123", "0123", 10, 100},
		{"chunked", lines("HTTP/1.1 206 Partial Content", "Transfer-Encoding: chunked",
			"Content-Range: bytes 10-19/100") + "a\r\n0123456789\r\n0\r\n\r\n", "0123456789", 10, 100},
		{"to the end of the connection", lines("HTTP/1.1 206 Partial Content", "Content-Range: bytes 10-19/100") +
			"0123456789", "0123456789", 10, 100},
		{"upper-case unit", lines("HTTP/1.1 206 Partial Content", "Content-Length: 10",
			"Content-Range: Bytes 10-19/100") + "0123456789", "0123456789", 10, 100},
		{"5 TiB", lines("HTTP/1.1 206 Partial Content", "Content-Length: 1",
			"Content-Range: bytes 5497558138879-5497558138879/5497558138880") + "x", "x", 5<<40 - 1, 5 << 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrigin(t, newRawServer(t, always(c.answer)).url)
			r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Offset: 10, Length: 10})
			if err != nil {
				t.Fatal(err)
			}
			p, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if string(p) != c.want || err != nil || r.Offset != c.off || r.Info.Size != c.size || r.Length != int64(len(p)) {
				t.Errorf("%q, %v, %+v", p, err, r)
			}
		})
	}
}

func TestBadHeads(t *testing.T) {
	for name, answer := range map[string]string{
		"no length": lines("HTTP/1.1 200 OK"),
		"206":       lines("HTTP/1.1 206 Partial Content", "Content-Length: 10", "Content-Range: bytes 0-9/10"),
		"304":       lines("HTTP/1.1 304 Not Modified"),
	} {
		o := newOrigin(t, newRawServer(t, always(answer)).url)
		if i, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{}); !errors.Is(err, origin.ErrBadAnswer) {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
	}
}

// TestInfo has one header of each kind that there is.
func TestInfo(t *testing.T) {
	head := []string{
		`ETag: "9b2cf535f27731c974343645a3985328-3"`,
		"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT",
		"Date: Thu, 22 Oct 2015 07:28:00 GMT",
		"Age: 90",
		"Cache-Control: max-age=1", "Cache-Control: private",
		"Content-Disposition: inline", "Content-Encoding: zstd", "Content-Language: en",
		"Content-Type: application/x", "Expires: 0",
		"X-Amz-Meta-B: two", "x-amz-meta-a: one  and  half", "X-Amz-Missing-Meta: 2",
		"X-Amz-Server-Side-Encryption: aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id: arn",
		"X-Amz-Server-Side-Encryption-Bucket-Key-Enabled: true", "X-Amz-Website-Redirect-Location: /y",
		"X-Amz-Version-Id: v7",
		"X-Amz-Storage-Class: GLACIER_IR", `X-Amz-Restore: ongoing-request="false"`, "X-Amz-Expiration: soon",
		"X-Amz-Replication-Status: COMPLETED", "X-Amz-Archive-Status: ARCHIVE_ACCESS",
		"X-Amz-Checksum-Crc32: AAAAAA==", "X-Amz-Checksum-Type: FULL_OBJECT",
		// Of one request or one requester, never kept.
		"Accept-Ranges: bytes", "Server: x", "Set-Cookie: a=b", "Vary: Origin", "Access-Control-Allow-Origin: *",
		"X-Amz-Request-Id: r", "X-Amz-Id-2: i", "X-Amz-Request-Charged: requester", "X-Amz-Tagging-Count: 1",
		"X-Amz-Object-Lock-Mode: COMPLIANCE", "X-Amz-Object-Lock-Retain-Until-Date: x", "X-Amz-Mp-Parts-Count: 3",
		"X-Amz-Server-Side-Encryption-Customer-Algorithm: AES256", "X-Amz-Server-Side-Encryption-Customer-Key-Md5: m",
		"X-Ashlar-Cache: hit", "X-Cache: y", "Via: 1.1 z", "Connection: close", "X-Amz-Delete-Marker: false",
	}
	kept := []origin.Header{
		{Name: "Cache-Control", Value: "max-age=1"},
		{Name: "Cache-Control", Value: "private"},
		{Name: "Content-Disposition", Value: "inline"},
		{Name: "Content-Encoding", Value: "zstd"},
		{Name: "Content-Language", Value: "en"},
		{Name: "Content-Type", Value: "application/x"},
		{Name: "Expires", Value: "0"},
		{Name: "X-Amz-Meta-A", Value: "one  and  half"},
		{Name: "X-Amz-Meta-B", Value: "two"},
		{Name: "X-Amz-Missing-Meta", Value: "2"},
		{Name: "X-Amz-Server-Side-Encryption", Value: "aws:kms"},
		{Name: "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", Value: "arn"},
		{Name: "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled", Value: "true"},
		{Name: "X-Amz-Website-Redirect-Location", Value: "/y"},
	}
	volatile := []origin.Header{
		{Name: "X-Amz-Archive-Status", Value: "ARCHIVE_ACCESS"},
		{Name: "X-Amz-Expiration", Value: "soon"},
		{Name: "X-Amz-Replication-Status", Value: "COMPLETED"},
		{Name: "X-Amz-Restore", Value: `ongoing-request="false"`},
		{Name: "X-Amz-Storage-Class", Value: "GLACIER_IR"},
	}
	checksums := []origin.Header{
		{Name: "X-Amz-Checksum-Crc32", Value: "AAAAAA=="},
		{Name: "X-Amz-Checksum-Type", Value: "FULL_OBJECT"},
	}
	for _, c := range []struct {
		name      string
		status    string
		extra     string
		get       *origin.GetOptions // nil: HEAD
		checksums bool
	}{
		{"whole", "200 OK", "Content-Length: 4", &origin.GetOptions{}, true},
		{"whole to a range", "200 OK", "Content-Length: 4", &origin.GetOptions{Length: 2}, true},
		{"range that is all", "206 Partial Content", "Content-Range: bytes 0-3/4", &origin.GetOptions{Length: 9}, true},
		{"range", "206 Partial Content", "Content-Range: bytes 0-3/5", &origin.GetOptions{Length: 4}, false},
		{"HEAD", "200 OK", "Content-Length: 4", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := lines(append([]string{"HTTP/1.1 " + c.status, c.extra}, head...)...)
			if c.get != nil {
				answer += "body"
			}
			o := newOrigin(t, newRawServer(t, always(answer)).url)
			var i *origin.Info
			before := time.Now()
			if c.get == nil {
				var err error
				if i, err = o.Head(t.Context(), obj("k"), origin.HeadOptions{}); err != nil {
					t.Fatal(err)
				}
			} else {
				r, err := o.Get(t.Context(), obj("k"), *c.get)
				if err != nil {
					t.Fatal(err)
				}
				if p, err := io.ReadAll(r.Body); string(p) != "body" || err != nil {
					t.Errorf("%q, %v", p, err)
				}
				_ = r.Body.Close()
				i = &r.Info
			}
			after := time.Now()
			if !slices.Equal(i.Headers, kept) {
				t.Errorf("Headers\n%v\nwant\n%v", i.Headers, kept)
			}
			if !slices.Equal(i.Volatile, volatile) {
				t.Errorf("Volatile %v", i.Volatile)
			}
			want := checksums
			if !c.checksums {
				want = nil
			}
			if !slices.Equal(i.Checksums, want) || i.ChecksumsKnown != c.checksums {
				t.Errorf("Checksums %v, known %v", i.Checksums, i.ChecksumsKnown)
			}
			if i.ETag != `"9b2cf535f27731c974343645a3985328-3"` || i.VersionID != "v7" ||
				i.LastModified != "Wed, 21 Oct 2015 07:28:00 GMT" ||
				!i.Modified.Equal(time.Date(2015, 10, 21, 7, 28, 0, 0, time.UTC)) {
				t.Errorf("%+v", i)
			}
			const age = 90 * time.Second
			if i.Confirmed.Before(before.Add(-age)) || i.Confirmed.After(after.Add(-age)) ||
				i.Received.Before(i.Confirmed.Add(age)) || i.Received.After(after) {
				t.Errorf("between %v and %v: Confirmed %v, Received %v", before, after, i.Confirmed, i.Received)
			}
		})
	}
}

func TestAge(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "1.5": 0, "x": 0, "": 0,
		"4294967296": 1 << 31 * time.Second, "99999999999999999999": 1 << 31 * time.Second,
	} {
		if got := age(http.Header{"Age": {value}}); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// TestNotModified: a 304 may carry little; what it carries is there.
func TestNotModified(t *testing.T) {
	opts := origin.GetOptions{Length: 1, IfNoneMatch: `"x"`}
	o := newOrigin(t, newRawServer(t, always(lines("HTTP/1.1 304 Not Modified", `ETag: "x"`, "Age: 10",
		"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT", "Content-Length: 1234"))).url)
	r, err := o.Get(t.Context(), obj("k"), opts)
	if err != nil || !r.NotModified || r.Body != nil || r.Info.ChecksumsKnown || r.Info.Size != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.Info.ETag != `"x"` || r.Info.Modified.IsZero() || time.Since(r.Info.Confirmed) < 10*time.Second {
		t.Errorf("%+v", r.Info)
	}
	o = newOrigin(t, newRawServer(t, always(lines("HTTP/1.1 304 Not Modified"))).url)
	if r, err = o.Get(t.Context(), obj("k"), opts); err != nil || !r.NotModified || r.Info.LastModified != "" {
		t.Errorf("bare: %+v, %v", r, err)
	}
}

// TestErrorAnswers: whatever is not 200, 206 or 304 comes back as it was, redirects included.
func TestErrorAnswers(t *testing.T) {
	xml := func(code string) string {
		return `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>" + code + "</Code><Message>m</Message></Error>"
	}
	for _, c := range []struct {
		status   int
		headers  []string
		body     string
		code     string
		sentinel error
		want     []origin.Header
	}{
		{403, []string{"Content-Type: application/xml", "X-Amz-Request-Id: r1", "Date: x", "Server: y", "Set-Cookie: c",
			"Connection: close", "X-Ashlar-Error: node"}, xml("AccessDenied"), "AccessDenied", nil,
			[]origin.Header{{Name: "Content-Type", Value: "application/xml"}, {Name: "X-Amz-Request-Id", Value: "r1"}}},
		{404, []string{"X-Amz-Delete-Marker: true"}, xml("NoSuchKey"), "NoSuchKey", origin.ErrNotFound,
			[]origin.Header{{Name: "X-Amz-Delete-Marker", Value: "true"}}},
		{405, []string{"Allow: DELETE"}, xml("MethodNotAllowed"), "MethodNotAllowed", origin.ErrNotFound,
			[]origin.Header{{Name: "Allow", Value: "DELETE"}}},
		{412, nil, xml("PreconditionFailed"), "PreconditionFailed", origin.ErrChanged, nil},
		{416, []string{"Content-Range: bytes */10"}, xml("InvalidRange"), "InvalidRange", origin.ErrRange,
			[]origin.Header{{Name: "Content-Range", Value: "bytes */10"}}},
		{503, []string{"Retry-After: 7"}, xml("SlowDown"), "SlowDown", nil,
			[]origin.Header{{Name: "Retry-After", Value: "7"}}},
		{500, []string{"Content-Type: text/html"}, "<html><Code>x</Code></html>", "", nil,
			[]origin.Header{{Name: "Content-Type", Value: "text/html"}}},
		{301, []string{"Location: http://elsewhere.invalid/"}, xml("PermanentRedirect"), "PermanentRedirect", nil,
			[]origin.Header{{Name: "Location", Value: "http://elsewhere.invalid/"}}},
		{307, []string{"Location: /self"}, xml("TemporaryRedirect"), "TemporaryRedirect", nil,
			[]origin.Header{{Name: "Location", Value: "/self"}}},
		{401, []string{"WWW-Authenticate: Basic"}, "", "", nil, []origin.Header{{Name: "Www-Authenticate", Value: "Basic"}}},
		{400, nil, xml("a b<x/>"), "", nil, nil},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			head := append([]string{fmt.Sprintf("HTTP/1.1 %d X", c.status), fmt.Sprintf("Content-Length: %d", len(c.body))},
				c.headers...)
			s := newRawServer(t, func(int, int) (string, bool) { return lines(head...) + c.body, true })
			o := newOrigin(t, s.url)
			_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 1})
			var e *origin.Error
			if !errors.As(err, &e) || e.Status != c.status || e.Code != c.code || string(e.Body) != c.body {
				t.Fatalf("%v; body %q", err, e.Body)
			}
			if !slices.Equal(e.Header, c.want) {
				t.Errorf("headers %v, want %v", e.Header, c.want)
			}
			if c.sentinel != nil && !errors.Is(err, c.sentinel) {
				t.Errorf("%v does not match %v", err, c.sentinel)
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestErrorBodyIsBounded(t *testing.T) {
	long := "<Error><Code>Long</Code>" + strings.Repeat("x", 200_000) + "</Error>"
	head := lines("HTTP/1.1 500 X", fmt.Sprintf("Content-Length: %d", len(long)))
	o := newOrigin(t, newRawServer(t, always(head+long)).url)
	_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{})
	var e *origin.Error
	if !errors.As(err, &e) || len(e.Body) != origin.MaxErrorBody || e.Status != 500 {
		t.Errorf("%v, %d bytes", err, len(e.Body))
	}
	// One that breaks off keeps its status.
	o = newOrigin(t, newRawServer(t, always(lines("HTTP/1.1 503 X", "Content-Length: 1000")+"<Error>")).url)
	if _, err = o.Get(t.Context(), obj("k"), origin.GetOptions{}); !errors.As(err, &e) || string(e.Body) != "<Error>" {
		t.Errorf("%v", err)
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	huge := lines("HTTP/1.1 200 OK", "Content-Length: 0", "X-Amz-Meta-A: "+strings.Repeat("x", 2*maxHeaderBytes))
	o := newOrigin(t, newRawServer(t, always(huge)).url)
	if _, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{}); err == nil {
		t.Error("accepted")
	}
}

// Servers differ in whether a part that is the whole object tells its checksums: without them nothing is known.
func TestPartOfAllBytesWithoutChecksums(t *testing.T) {
	answer := lines("HTTP/1.1 206 Partial Content", `Etag: "e"`, "Content-Length: 4", "Content-Range: bytes 0-3/4") + "body"
	o := newOrigin(t, newRawServer(t, always(answer)).url)
	r, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.Info.ChecksumsKnown {
		t.Error("holds the absence of checksums for known")
	}
}

// Other successes are no answers: a transforming proxy's 203 is not the object.
func TestOtherSuccesses(t *testing.T) {
	for _, status := range []string{"202 Accepted", "203 Non-Authoritative Information", "204 No Content", "299 What"} {
		answer := lines("HTTP/1.1 "+status, `Etag: "e"`, "Content-Length: 0")
		o := newOrigin(t, newRawServer(t, always(answer)).url)
		if _, err := o.Get(t.Context(), obj("k"), origin.GetOptions{Length: 9}); !errors.Is(err, origin.ErrBadAnswer) {
			t.Errorf("%s: %v", status, err)
		}
	}
}
