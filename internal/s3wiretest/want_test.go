package s3wiretest

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// reports collects what a check says, instead of failing.
type reports struct {
	testing.TB
	lines []string
}

func (r *reports) Helper() {}

func (r *reports) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// headers makes a header of pairs.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// TestCheck holds good answers and bad ones against what is wanted: the bad ones must be named, in one line each.
func TestCheck(t *testing.T) {
	o := &object{data: []byte("0123456789"), etag: `"e"`, lastMod: "Sun, 09 Sep 2001 01:46:40 GMT"}
	good := func(more ...string) http.Header {
		return headers(append([]string{"ETag", o.etag, "Last-Modified", o.lastMod, "Accept-Ranges", "bytes"}, more...)...)
	}
	all := good("Content-Length", "10")
	some := good("Content-Length", "4", "Content-Range", "bytes 2-5/10")
	xml := func(code, elements string) []byte {
		return []byte("<Error><Code>" + code + "</Code>" + elements + "</Error>")
	}
	is := headers("Content-Type", "application/xml")
	for _, c := range []struct {
		name   string
		want   want
		method string
		answer answer
		report string // "" for none
	}{
		{"whole", whole(o), "GET", answer{200, all, o.data, nil}, ""},
		{"whole by HEAD", whole(o), "HEAD", answer{200, all, nil, nil}, ""},
		{"part", part(o, 2, 5), "GET", answer{206, some, o.data[2:6], nil}, ""},
		{"part by HEAD", part(o, 2, 5), "HEAD", answer{206, some, nil, nil}, ""},
		{"304", notModified(o), "GET", answer{304, good(), nil, nil}, ""},
		{"error", refused(404, "NoSuchKey", "Key", "k"), "GET", answer{404, is, xml("NoSuchKey", "<Key>k</Key>"), nil}, ""},
		{"error by HEAD", refused(404, "NoSuchKey", "Key", "k"), "HEAD", answer{404, is, nil, nil}, ""},
		{"message with a full stop", refused(403, "AccessDenied", "Message", "Request has expired"), "GET",
			answer{403, is, xml("AccessDenied", "<Message>Request has expired.</Message>"), nil}, ""},

		{"status", whole(o), "GET", answer{206, some, o.data[2:6], nil}, "status 206, want 200"},
		{"wrong byte", whole(o), "GET", answer{200, all, []byte("012345678x"), nil}, "byte 9 of 10"},
		{"shifted part", part(o, 2, 5), "GET", answer{206, some, o.data[3:7], nil}, "byte 0 of 4"},
		{"short", whole(o), "GET", answer{200, all, o.data[:9], nil}, "9 bytes, want 10"},
		{"broken off", whole(o), "GET", answer{200, all, o.data[:9], io.ErrUnexpectedEOF}, "broke off after 9 bytes"},
		{"length", whole(o), "HEAD", answer{200, good("Content-Length", "9"), nil, nil}, `Content-Length "9", want 10`},
		{"no length", whole(o), "HEAD", answer{200, good(), nil, nil}, `Content-Length "", want 10`},
		{"content range", part(o, 2, 5), "GET",
			answer{206, good("Content-Length", "4", "Content-Range", "bytes 2-5/11"), o.data[2:6], nil}, "bytes 2-5/11"},
		{"content range on 200", whole(o), "GET",
			answer{200, good("Content-Length", "10", "Content-Range", "bytes 0-9/10"), o.data, nil}, "must not be there"},
		{"two etags", whole(o), "GET", answer{200, good("Content-Length", "10", "ETag", "x"), o.data, nil}, "ETag"},
		{"other header", whole(o).with("X", "a"), "GET", answer{200, good("Content-Length", "10", "X", "b"), o.data, nil},
			`want "a"`},
		{"any header", whole(o).with("X", "*"), "GET", answer{200, all, o.data, nil}, "no X"},
		{"body of HEAD", whole(o), "HEAD", answer{200, all, o.data, nil}, "10 bytes of body"},
		{"body of 304", notModified(o), "GET", answer{304, good(), []byte("x"), nil}, "1 bytes of body"},
		{"304 without etag", notModified(o), "GET", answer{304, headers("Last-Modified", o.lastMod), nil, nil}, "ETag"},
		{"body of HEAD's error", refused(404, "NoSuchKey"), "HEAD", answer{404, is, xml("NoSuchKey", ""), nil},
			"bytes of body"},
		{"code", refused(404, "NoSuchKey"), "GET", answer{404, is, xml("NoSuchBucket", ""), nil}, "code NoSuchBucket"},
		{"element", refused(404, "NoSuchKey", "Key", "k"), "GET", answer{404, is, xml("NoSuchKey", "<Key>l</Key>"), nil},
			`<Key> is "l"`},
		{"element missing", refused(404, "NoSuchKey", "Key", "*"), "GET", answer{404, is, xml("NoSuchKey", ""), nil},
			"<Key>"},
		{"type of error", refused(404, "NoSuchKey"), "GET",
			answer{404, headers("Content-Type", "text/html"), xml("NoSuchKey", ""), nil}, "text/html"},
		{"no XML", refused(404, "NoSuchKey"), "GET", answer{404, is, []byte("404 page not found"), nil}, "no XML"},
		{"half an XML", refused(404, "NoSuchKey"), "GET", answer{404, is, []byte("<Error><Code>NoSuchKey</Code>"), nil},
			"no XML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &reports{TB: t}
			c.want.check(r, "answer", c.method, c.answer)
			if c.report == "" && len(r.lines) > 0 || c.report != "" && (len(r.lines) != 1 ||
				!strings.Contains(r.lines[0], c.report) || !strings.HasPrefix(r.lines[0], "answer: ")) {
				t.Errorf("%q, want one line with %q", r.lines, c.report)
			}
		})
	}
}

// TestQueries has queries that parsers disagree about.
func TestQueries(t *testing.T) {
	for raw, want := range map[string]string{
		"":        "",
		"a":       "a=",
		"a=b;c":   "a=b%3Bc",
		"a=b+c":   "a=b%20c",
		"a=b%2Bc": "a=b%2Bc",
		"b=1&a=/": "b=1&a=%2F",
	} {
		if got := canonicalQuery(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

// TestSkips knows patterns, and what names no row. Rows have names of their own.
func TestSkips(t *testing.T) {
	e := &env{Target: Target{Skips: map[string]string{"*/R04-*": "reason", "no/row": "", "range/[": ""}}, b: 64 << 10}
	rows := e.rows()
	r := &reports{TB: t}
	e.checkSkips(r, rows)
	slices.Sort(r.lines)
	if want := []string{`Skips names "no/row", which is no row`, `Skips names "range/[", which is no row`}; !slices.Equal(
		r.lines, want) {
		t.Errorf("%q", r.lines)
	}
	if reason, ok := e.skipped("head-range/R04-empty-0-0"); !ok || reason != "reason" {
		t.Error("a pattern did not match")
	}
	if _, ok := e.skipped("range/first-last"); ok {
		t.Error("a row is skipped that nothing names")
	}
	names := map[string]bool{}
	for _, r := range rows {
		if names[r.name] {
			t.Errorf("two rows are called %s", r.name)
		}
		names[r.name] = true
	}
}
