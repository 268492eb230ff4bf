package s3wiretest

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// conditionCase is a set of conditions, in terms of the object that is asked for, and what becomes of the request.
type conditionCase struct {
	name   string
	header func(o *object) []string
	want   func(o *object) want
}

func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// conditionRows are conditions on reads, each by GET and by HEAD. RFC 9110 section 13.2.2 has their order.
func (e *env) conditionRows() []row {
	const other = `"0123456789abcdef0123456789abcdef"`
	fixed := func(h ...string) func(*object) []string { return func(*object) []string { return h } }
	etag := func(name, before, after string) func(*object) []string {
		return func(o *object) []string { return []string{name, before + o.etag + after} }
	}
	bare := func(name string) func(*object) []string {
		return func(o *object) []string { return []string{name, strings.Trim(o.etag, `"`)} }
	}
	date := func(name string, d time.Duration) func(*object) []string {
		return func(o *object) []string { return []string{name, httpDate(o.modified.Add(d))} }
	}
	all := func(parts ...func(*object) []string) func(*object) []string {
		return func(o *object) []string {
			var h []string
			for _, p := range parts {
				h = append(h, p(o)...)
			}
			return h
		}
	}
	fails := func(name string) func(*object) want { return func(*object) want { return precondition(name) } }
	ranged := fixed("Range", "bytes=2-5")
	behind := fixed("Range", "bytes=100-")
	const hour = time.Hour
	cases := []conditionCase{
		{"if-match", etag("If-Match", "", ""), whole},
		{"if-match-other", fixed("If-Match", other), fails("If-Match")},
		{"if-match-any", fixed("If-Match", "*"), whole},
		{"if-match-unquoted", bare("If-Match"), whole},
		{"if-match-unquoted-other", fixed("If-Match", strings.Trim(other, `"`)), fails("If-Match")},
		{"if-match-list", etag("If-Match", other+", ", ""), whole},
		{"if-match-list-other", fixed("If-Match", other+`, "x"`), fails("If-Match")},
		{"if-match-weak", etag("If-Match", "W/", ""), fails("If-Match")},
		{"if-none-match", etag("If-None-Match", "", ""), notModified},
		{"if-none-match-other", fixed("If-None-Match", other), whole},
		{"if-none-match-any", fixed("If-None-Match", "*"), notModified},
		{"if-none-match-unquoted", bare("If-None-Match"), notModified},
		{"if-none-match-list", etag("If-None-Match", other+", ", ""), notModified},
		{"if-none-match-list-other", fixed("If-None-Match", other+`, "x"`), whole},
		{"if-none-match-weak", etag("If-None-Match", "W/", ""), notModified},
		{"if-modified-since-same-second", date("If-Modified-Since", 0), notModified},
		{"if-modified-since-before", date("If-Modified-Since", -hour), whole},
		{"if-modified-since-future", date("If-Modified-Since", 24*hour), whole},
		{"if-modified-since-no-date", fixed("If-Modified-Since", "yesterday"), whole},
		{"if-unmodified-since-same-second", date("If-Unmodified-Since", 0), whole},
		{"if-unmodified-since-before", date("If-Unmodified-Since", -hour), fails("If-Unmodified-Since")},
		{"if-unmodified-since-after", date("If-Unmodified-Since", hour), whole},
		{"if-unmodified-since-no-date", fixed("If-Unmodified-Since", "yesterday"), whole},
		{"V02-if-match-rules-over-if-unmodified-since",
			all(etag("If-Match", "", ""), date("If-Unmodified-Since", -hour)), whole},
		{"if-match-false-if-unmodified-since-true",
			all(fixed("If-Match", other), date("If-Unmodified-Since", hour)), fails("If-Match")},
		{"if-none-match-hit-modified", all(etag("If-None-Match", "", ""), date("If-Modified-Since", -hour)), notModified},
		{"if-none-match-miss-not-modified", all(fixed("If-None-Match", other), date("If-Modified-Since", 0)), whole},
		{"if-match-and-if-none-match", all(etag("If-Match", "", ""), etag("If-None-Match", "", "")), notModified},
		{"if-match-false-and-if-none-match", all(fixed("If-Match", other), etag("If-None-Match", "", "")),
			fails("If-Match")},
		{"if-unmodified-since-false-and-if-none-match",
			all(date("If-Unmodified-Since", -hour), etag("If-None-Match", "", "")), fails("If-Unmodified-Since")},
		{"if-match-true-and-not-modified", all(etag("If-Match", "", ""), date("If-Modified-Since", 0)), notModified},
		{"range-if-match", all(ranged, etag("If-Match", "", "")), func(o *object) want { return part(o, 2, 5) }},
		{"range-if-match-other", all(ranged, fixed("If-Match", other)), fails("If-Match")},
		{"range-if-none-match", all(ranged, etag("If-None-Match", "", "")), notModified},
		{"range-not-modified", all(ranged, date("If-Modified-Since", 0)), notModified},
		{"V02-before-bad-range-412", all(behind, fixed("If-Match", other)), fails("If-Match")},
		{"V02-before-bad-range-304", all(behind, etag("If-None-Match", "", "")), notModified},
		{"bad-range-if-match", all(behind, etag("If-Match", "", "")),
			func(o *object) want { return unsatisfied(o, "bytes=100-") }},
	}
	var rows []row
	for _, c := range cases {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			name := "condition/" + c.name
			if method == http.MethodHead {
				name = "head-condition/" + c.name
			}
			rows = append(rows, row{name, func(t *testing.T, e *env) {
				o := e.put(t, 10)
				e.expect(t, o, request{method: method, header: c.header(o)}, c.want(o))
			}})
		}
	}
	return append(rows,
		row{"condition/304-headers", func(t *testing.T, e *env) {
			o := e.put(t, 10, "Cache-Control", "max-age=60", "Expires", "Wed, 21 Oct 2037 07:28:00 GMT")
			e.expect(t, o, request{header: []string{"If-None-Match", o.etag}},
				notModified(o).with("Cache-Control", "max-age=60", "Expires", "Wed, 21 Oct 2037 07:28:00 GMT"))
		}},
		row{"condition/V02-multipart-etag", func(t *testing.T, e *env) {
			o := e.multipart(t)
			ask := func(h ...string) request {
				return request{method: http.MethodHead, bucket: o.bucket, key: o.key, header: h}
			}
			e.expect(t, nil, ask("If-Match", o.etag), whole(o))
			e.expect(t, nil, ask("If-None-Match", o.etag), notModified(o))
			e.expect(t, nil, ask("If-Match", strings.Replace(o.etag, "-3", "", 1)), precondition("If-Match"))
		}},
		row{"condition/missing-object", func(t *testing.T, e *env) {
			for _, h := range [][]string{{"If-Match", other}, {"If-None-Match", "*"}, {"If-Match", "*"},
				{"If-Modified-Since", httpDate(time.Now().Add(-hour))}} {
				e.expect(t, nil, request{key: "missing-" + random(), header: h}, refused(404, "NoSuchKey"))
			}
		}},
	)
}

// ifRangeRows are about RFC 9110 section 13.1.5.
func (e *env) ifRangeRows() []row {
	whole := func(o *object, value string) want { return whole(o) }
	partial := func(o *object, value string) want { return part(o, 2, 5) }
	cases := []struct {
		name  string
		value func(o *object) string
		want  func(o *object, value string) want
	}{
		{"match", func(o *object) string { return o.etag }, partial},
		{"other", func(*object) string { return `"x"` }, whole},
		{"weak", func(o *object) string { return "W/" + o.etag }, whole},
		{"other-date", func(o *object) string { return httpDate(o.modified.Add(-time.Hour)) }, whole},
		{"later-date", func(o *object) string { return httpDate(o.modified.Add(time.Hour)) }, whole},
	}
	var rows []row
	for _, c := range cases {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			rows = append(rows, row{"if-range/" + c.name + "-" + strings.ToLower(method), func(t *testing.T, e *env) {
				o := e.put(t, 10)
				value := c.value(o)
				e.expect(t, o, request{method: method, header: []string{"Range", "bytes=2-5", "If-Range", value}}, c.want(o, value))
			}})
		}
	}
	return append(rows,
		row{"if-range/without-range", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, request{header: []string{"If-Range", o.etag}}, whole(o, ""))
		}},
		row{"if-range/other-and-bad-range", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, request{header: []string{"Range", "bytes=100-", "If-Range", `"x"`}}, whole(o, ""))
		}},
		row{"if-range/match-and-bad-range", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, request{header: []string{"Range", "bytes=100-", "If-Range", o.etag}}, unsatisfied(o, "bytes=100-"))
		}},
		row{"if-range/match-and-if-none-match", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, request{header: []string{"Range", "bytes=2-5", "If-Range", o.etag, "If-None-Match", o.etag}},
				notModified(o))
		}},
	)
}
