package s3api

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
)

var testModified = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testInfo() *origin.Info {
	return &origin.Info{
		Size: 600, ETag: `"abc"`, Modified: testModified, LastModified: testModified.Format(http.TimeFormat),
		VersionID: "v1",
		Headers: []origin.Header{
			{Name: "Cache-Control", Value: "max-age=60"}, {Name: "Content-Type", Value: "text/plain"},
			{Name: "Expires", Value: "Thu, 01 Dec 2033 16:00:00 GMT"}, {Name: "X-Amz-Meta-Two", Value: "1"},
			{Name: "X-Amz-Meta-Two", Value: "2"},
		},
		Volatile: []origin.Header{{Name: "X-Amz-Storage-Class", Value: "STANDARD_IA"}},
		Checksums: []origin.Header{
			{Name: "X-Amz-Checksum-Crc32", Value: "AAAAAA=="}, {Name: "X-Amz-Checksum-Type", Value: "FULL_OBJECT"},
		},
	}
}

func TestConditions(t *testing.T) {
	before, same := testModified.Add(-time.Second).Format(http.TimeFormat), testModified.Format(http.TimeFormat)
	after := testModified.Add(time.Second).Format(http.TimeFormat)
	now := testModified.Add(24 * time.Hour)
	future := now.Add(time.Hour).Format(http.TimeFormat)
	const forward, ok, part = -1, 200, 206
	type h map[string]string
	for _, c := range []struct {
		headers h
		want    int
		which   string // the <Condition> of a 412
	}{
		{h{}, ok, ""},
		{h{"If-Match": `"abc"`}, ok, ""},
		{h{"If-Match": `abc`}, ok, ""},
		{h{"If-Match": `*`}, ok, ""},
		{h{"If-Match": `"x"`}, 412, "If-Match"},
		{h{"If-Match": `"abc", "x"`}, forward, ""},
		{h{"If-Match": `abc, x`}, forward, ""},
		{h{"If-Match": `W/"abc"`}, forward, ""},
		{h{"If-Match": `"abc`}, forward, ""},
		{h{"If-Match": ``}, forward, ""},
		{h{"If-None-Match": `"abc"`}, 304, ""},
		{h{"If-None-Match": `abc`}, 304, ""},
		{h{"If-None-Match": `*`}, 304, ""},
		{h{"If-None-Match": `"x"`}, ok, ""},
		{h{"If-None-Match": `"x", "abc"`}, forward, ""},
		{h{"If-None-Match": `W/"abc"`}, forward, ""},
		{h{"If-Unmodified-Since": before}, 412, "If-Unmodified-Since"},
		{h{"If-Unmodified-Since": same}, ok, ""},
		{h{"If-Unmodified-Since": after}, ok, ""},
		{h{"If-Unmodified-Since": "yesterday"}, ok, ""},
		{h{"If-Modified-Since": before}, ok, ""},
		{h{"If-Modified-Since": same}, 304, ""},
		{h{"If-Modified-Since": after}, 304, ""},
		{h{"If-Modified-Since": future}, ok, ""},
		{h{"If-Modified-Since": "yesterday"}, ok, ""},
		// The pairs of the S3 API reference, GetObject.
		{h{"If-Match": `"abc"`, "If-Unmodified-Since": before}, ok, ""},
		{h{"If-Match": `"x"`, "If-Unmodified-Since": after}, 412, "If-Match"},
		{h{"If-None-Match": `"abc"`, "If-Modified-Since": before}, 304, ""},
		{h{"If-None-Match": `"x"`, "If-Modified-Since": after}, ok, ""},
		{h{"If-Match": `"x"`, "If-None-Match": `"abc"`}, 412, "If-Match"},
		{h{"If-Match": `"abc"`, "If-None-Match": `"abc"`}, 304, ""},
		{h{"If-Unmodified-Since": before, "If-None-Match": `"abc"`}, 412, "If-Unmodified-Since"},
		// Conditions before Range.
		{h{"If-Match": `"x"`, "Range": "bytes=600-"}, 412, "If-Match"},
		{h{"If-None-Match": `"abc"`, "Range": "bytes=600-"}, 304, ""},
		{h{"Range": "bytes=0-9"}, part, ""},
		{h{"Range": "bytes=600-"}, 416, ""},
		// If-Range.
		{h{"If-Range": `"abc"`, "Range": "bytes=0-9"}, part, ""},
		{h{"If-Range": same, "Range": "bytes=0-9"}, part, ""},
		{h{"If-Range": `"x"`, "Range": "bytes=0-9"}, ok, ""},
		{h{"If-Range": `W/"abc"`, "Range": "bytes=0-9"}, ok, ""},
		{h{"If-Range": before, "Range": "bytes=0-9"}, ok, ""},
		{h{"If-Range": after, "Range": "bytes=0-9"}, ok, ""},
		{h{"If-Range": "*", "Range": "bytes=0-9"}, ok, ""},
		{h{"If-Range": "nonsense here", "Range": "bytes=0-9"}, ok, ""},
		{h{"If-Range": `"x"`, "Range": "bytes=600-"}, ok, ""},
		{h{"If-Range": `"x"`}, ok, ""},
	} {
		header := http.Header{}
		for k, v := range c.headers {
			header.Set(k, v)
		}
		rng := parseRange(header["Range"])
		cond, served := parseConditions(header, rng, now)
		if !served {
			if c.want != forward {
				t.Errorf("%v: forwarded, want %d", c.headers, c.want)
			}
			continue
		}
		got, which := status(cond, rng, testInfo())
		if got != c.want || which != c.which {
			t.Errorf("%v: %d %s, want %d %s", c.headers, got, which, c.want, c.which)
		}
	}
}

// status is how a read ends by its conditions and its range.
func status(c conditions, rng gateway.Range, info *origin.Info) (int, string) {
	rng, err := c.check(info, rng)
	var e *Error
	var unmodified *errNotModified
	switch {
	case errors.As(err, &e):
		if !errors.Is(err, gateway.ErrUnsatisfied) {
			return 0, "a failed condition that is not confirmed at the origin"
		}
		return e.Status, e.Fields[0].Value
	case errors.As(err, &unmodified):
		if errors.Is(err, gateway.ErrUnsatisfied) {
			return 0, "a 304 taken for a refusal"
		}
		return 304, ""
	}
	_, _, partial, err := rng.Resolve(info.Size)
	switch {
	case err != nil:
		return 416, ""
	case partial:
		return 206, ""
	}
	return 200, ""
}

// Objects without a strong tag, and without a date, match only what can be told of them.
func TestConditionsWithoutValidators(t *testing.T) {
	date := testModified.Format(http.TimeFormat)
	for _, c := range []struct {
		etag   string
		header string
		value  string
		want   int
	}{
		{`W/"abc"`, "If-Match", `"abc"`, 412},
		{`W/"abc"`, "If-None-Match", `"abc"`, 304},
		{`W/"abc"`, "If-Range", `"abc"`, 200},
		{"", "If-Match", `"abc"`, 412},
		{"", "If-Match", `*`, 200},
		{"", "If-None-Match", `"abc"`, 200},
		{"", "If-Modified-Since", date, 200},
		{"", "If-Unmodified-Since", date, 200},
		{"", "If-Range", date, 200},
	} {
		info := &origin.Info{Size: 600, ETag: c.etag}
		header := http.Header{c.header: {c.value}}
		rng := gateway.Range{}
		if c.header == "If-Range" {
			rng = gateway.FromTo(0, 9)
		}
		cond, ok := parseConditions(header, rng, testModified.Add(time.Hour))
		if !ok {
			t.Fatalf("%+v: forwarded", c)
		}
		if got, _ := status(cond, rng, info); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestRepeatedConditionsAreForwarded(t *testing.T) {
	date := testModified.Format(http.TimeFormat)
	for _, h := range []http.Header{
		{"If-Match": {`"a"`, `"b"`}}, {"If-None-Match": {`"a"`, `"b"`}},
		{"If-Modified-Since": {date, date}}, {"If-Unmodified-Since": {date, date}},
	} {
		if _, ok := parseConditions(h, gateway.Range{}, testModified); ok {
			t.Errorf("%v: served", h)
		}
	}
}
