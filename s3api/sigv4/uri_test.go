package sigv4

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestSplitTarget(t *testing.T) {
	for _, c := range []struct {
		target, path, query string
		ok                  bool
	}{
		{"/", "/", "", true},
		{"/b/k?a=1?b", "/b/k", "a=1?b", true},
		{"/b/k?", "/b/k", "", true},
		{"//b//k/../x", "//b//k/../x", "", true},
		{"/b/http://x", "/b/http://x", "", true},
		// net/http takes the query from the first '?': these would be two targets.
		{"http:o?acl&a=://h/bucket", "", "", false},
		{"http:o/x?acl&a=://h/bucket", "", "", false},
		{"x:y://h/bucket", "", "", false},
		{"/b#c", "/b#c", "", true}, // a request has no fragment
		{"http://h", "/", "", true},
		{"http://h/", "/", "", true},
		{"http://h?a", "/", "a", true},
		{"https://u@h:9000//b?a/b", "//b", "a/b", true},
		{"*", "", "", false},
		{"h:443", "", "", false},
		{"mailto:x", "", "", false},
		{"", "", "", false},
	} {
		path, query, ok := SplitTarget(c.target)
		if path != c.path || query != c.query || ok != c.ok {
			t.Errorf("%q: %q %q %v", c.target, path, query, ok)
		}
	}
}

// Field cases K02 and K04: a path is decoded once and encoded once, and '+' in it is a plus.
func TestPaths(t *testing.T) {
	for _, c := range []struct{ raw, decoded, canonical string }{
		{"", "", ""},
		{"/", "/", "/"},
		{"/a%20b", "/a b", "/a%20b"},
		{"/a+b", "/a+b", "/a%2Bb"},
		{"/a%2Bb", "/a+b", "/a%2Bb"},
		{"/a%2bb", "/a+b", "/a%2Bb"},
		{"/a%2520b", "/a%20b", "/a%2520b"},
		{"/p%2Fq", "/p/q", "/p/q"},
		{"/a%20b/c&d", "/a b/c&d", "/a%20b/c%26d"},
		{"/p/100%25/x", "/p/100%/x", "/p/100%25/x"},
		{"//a/./b/../c/", "//a/./b/../c/", "//a/./b/../c/"},
		{"/%2e%2E/%7E-_.~", "/../~-_.~", "/../~-_.~"},
		{"/t=2026-01-01T00:00:00+00:00/f", "/t=2026-01-01T00:00:00+00:00/f",
			"/t%3D2026-01-01T00%3A00%3A00%2B00%3A00/f"},
		{"/\xff%00é", "/\xff\x00é", "/%FF%00%C3%A9"},
		{"/a;b,c", "/a;b,c", "/a%3Bb%2Cc"},
	} {
		decoded, err := DecodePath(c.raw)
		if err != nil || decoded != c.decoded {
			t.Errorf("DecodePath(%q) = %q, %v", c.raw, decoded, err)
		}
		if canonical, ok := appendCanonical(nil, c.raw, pathPart); !ok || string(canonical) != c.canonical {
			t.Errorf("appendCanonical(%q) = %q, %t, want %q", c.raw, canonical, ok, c.canonical)
		}
	}
	for _, raw := range []string{"/%", "/%2", "/%zz", "/%2g", "/%g2", "/a%"} {
		if _, err := DecodePath(raw); err != ErrMalformed {
			t.Errorf("DecodePath(%q): %v", raw, err)
		}
		if canonical, ok := appendCanonical(nil, raw, pathPart); ok {
			t.Errorf("appendCanonical(%q) = %q", raw, canonical)
		}
	}
}

// Every byte is encoded as the S3 API reference has it, in path and query.
func TestEncodeEveryByte(t *testing.T) {
	const unreservedBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	for i := range 256 {
		c := byte(i)
		s := string([]byte{c})
		stays := strings.Contains(unreservedBytes, s)
		if got := unreserved(c); got != stays {
			t.Errorf("unreserved(%q) = %v", s, got)
		}
		want := s
		if !stays && s != "/" {
			want = strings.ToUpper("%" + string([]byte{"0123456789abcdef"[c>>4], "0123456789abcdef"[c&15]}))
		}
		if got := EncodePath(s); got != want {
			t.Errorf("EncodePath(%q) = %q", s, got)
		}
		if s == "/" {
			want = "%2F"
		}
		if got := string(appendEncoded(nil, s, queryPart)); got != want {
			t.Errorf("encoded in a query, %q is %q", s, got)
		}
	}
}

func TestParseQuery(t *testing.T) {
	for raw, want := range map[string]Query{
		"":                  nil,
		"&&":                {},
		"a":                 {{"a", ""}},
		"a=":                {{"a", ""}},
		"=a":                {{"", "a"}},
		"a=b=c":             {{"a", "b=c"}},
		"b=2&a=1&b=1":       {{"b", "2"}, {"a", "1"}, {"b", "1"}},
		"a+b=c+d%2B":        {{"a b", "c d+"}},
		"a;b=c;d&e":         {{"a;b", "c;d"}, {"e", ""}},
		"%61=%26%3d&list%2": nil,
		"a=%":               nil,
		"%zz":               nil,
	} {
		got, err := ParseQuery(raw)
		if malformed := want == nil && raw != ""; malformed != (err == ErrMalformed) || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
	q, err := ParseQuery("a=1&b=2&a=3")
	if v, ok := q.Get("a"); err != nil || v != "1" || !ok {
		t.Errorf("a: %q %v", v, ok)
	}
	if v, ok := q.Get("A"); v != "" || ok {
		t.Errorf("A: %q %v", v, ok)
	}
	if q, err := ParseQuery(strings.Repeat("a&", maxParams)); err != nil || len(q) != maxParams {
		t.Errorf("%d parameters, %v", len(q), err)
	}
	if _, err := ParseQuery(strings.Repeat("a&", maxParams+1)); err != ErrTooMany {
		t.Error(err)
	}
}

// canonicalQuery is what a signature covers of a query.
func canonicalQuery(raw string, presigned bool) (string, bool) {
	b, ok := new(scratch).appendQuery(nil, raw, presigned)
	return string(b), ok
}

func TestCanonicalQuery(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                  "",
		"acl":                               "acl=",
		"b&a":                               "a=&b=",
		"a=2&a=1&a":                         "a=&a=1&a=2",
		"a%2Fb=1&a-b=1&a=1":                 "a=1&a%2Fb=1&a-b=1", // sorted as encoded
		"p=a/b&p=a-b":                       "p=a%2Fb&p=a-b",
		"prefix=a+b&x=a%20b":                "prefix=a%20b&x=a%20b",
		"prefix=a%2bb":                      "prefix=a%2Bb",
		"a;b=c":                             "a%3Bb=c",
		"a1=1&a=2":                          "a=2&a1=1", // by name first: "a1=" sorts before "a=2" as a whole
		"&&a=1&&":                           "a=1",
		"a=b=c":                             "a=b%3Dc",
		"X-Amz-Signature=s&x=1":             "x=1",
		"X%2dAmz%2dSignature=s&x=1":         "x=1",
		"x-amz-signature=s&X-Amz-Expires=1": "X-Amz-Expires=1&x-amz-signature=s",
	} {
		if got, ok := canonicalQuery(raw, true); got != want || !ok {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
	if got, _ := canonicalQuery("X-Amz-Signature=s", false); got != "X-Amz-Signature=s" {
		t.Errorf("left out of a request that is not presigned: %q", got)
	}
}

func TestCanonicalValue(t *testing.T) {
	for value, want := range map[string]string{
		"": "", " ": "", " \t ": "", "a": "a", " a ": "a", "a b": "a b", "a  b": "a b", "  a   b  c ": "a b c",
		"\ta\t b": "a\t b", "\"a  b\"": "\"a b\"", "a,  b": "a, b",
	} {
		if got := string(appendValue(nil, value)); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// Headers that are repeated are one list; the names in SignedHeaders may come in any order, they are signed sorted.
func TestCanonicalHeaders(t *testing.T) {
	r := parse(t, "GET /b/k HTTP/1.1\nHost: h\nX-Amz-Meta-B:  1  2 \nx-amz-meta-b: 3\n"+
		"X-Amz-Meta-A: x\nRange: bytes=0-1\n\n")
	s := new(scratch)
	c := claim{signedHeaders: "x-amz-meta-b;missing;host;x-amz-meta-a", contentSHA256: "hash"}
	err := s.canonicalRequest(r, "/b/k", "", &c)
	if err != nil {
		t.Fatal(err)
	}
	const want = "GET\n/b/k\n\nhost:h\nmissing:\nx-amz-meta-a:x\nx-amz-meta-b:1 2,3\n\n" +
		"host;missing;x-amz-meta-a;x-amz-meta-b\nhash"
	if got := string(s.canonical); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzDecodePath(f *testing.F) {
	for _, s := range []string{"/", "/a%20b", "/a+b", "/%2F%2f", "/%zz", "/%", "/é\xff", "//../."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		decoded, err := DecodePath(raw)
		if want, wantErr := url.PathUnescape(raw); (err == nil) != (wantErr == nil) || err == nil && decoded != want {
			t.Fatalf("%q: %q, %v, but net/url says %q, %v", raw, decoded, err, want, wantErr)
		}
		streamed, ok := appendCanonical(nil, raw, pathPart)
		if ok != (err == nil) {
			t.Fatalf("%q: decoding says %v, canonical encoding %v", raw, err, ok)
		}
		if err != nil {
			return
		}
		encoded := EncodePath(decoded)
		if string(streamed) != encoded {
			t.Fatalf("%q: %q in one pass, %q in two", raw, streamed, encoded)
		}
		if again, err := DecodePath(encoded); err != nil || again != decoded {
			t.Fatalf("%q: encoded %q, decoded %q, %v", raw, encoded, again, err)
		}
		if again, ok := appendCanonical(nil, encoded, pathPart); !ok || string(again) != encoded {
			t.Fatalf("%q: not canonical, %q becomes %q", raw, encoded, again)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	for _, s := range []string{"", "a", "a=1&b=2&a=", "&&", "=", "a+b=%2B", "a;b", "%", "X-Amz-Signature=1", "é=\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := ParseQuery(raw)
		canonical, ok := canonicalQuery(raw, false)
		if err == ErrTooMany {
			return
		}
		if ok != (err == nil) {
			t.Fatalf("%q: parsing says %v, canonical encoding %v", raw, err, ok)
		}
		// net/url refuses semicolons, and is otherwise the same.
		if want, wantErr := url.ParseQuery(strings.ReplaceAll(raw, ";", "%3B")); (wantErr == nil) != (err == nil) {
			t.Fatalf("%q: %v, but net/url says %v", raw, err, wantErr)
		} else if err == nil {
			got := url.Values{}
			for _, p := range q {
				got.Add(p.Name, p.Value)
			}
			if got.Encode() != want.Encode() {
				t.Fatalf("%q: %q, but net/url says %q", raw, got, want)
			}
		}
		if err != nil {
			return
		}
		// What is signed means what was sent: the same parameters, in another order.
		signed, err := ParseQuery(canonical)
		if err != nil {
			t.Fatal(err)
		}
		byName := func(a, b Param) int {
			if c := strings.Compare(a.Name, b.Name); c != 0 {
				return c
			}
			return strings.Compare(a.Value, b.Value)
		}
		slices.SortFunc(q, byName)
		slices.SortFunc(signed, byName)
		if !slices.Equal(q, signed) {
			t.Fatalf("%q: %q is signed as %q", raw, q, signed)
		}
		if again, ok := canonicalQuery(canonical, false); !ok || again != canonical {
			t.Fatalf("%q: not canonical, %q becomes %q", raw, canonical, again)
		}
	})
}
