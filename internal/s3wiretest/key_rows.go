package s3wiretest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// keyRows are about keys: what they may hold, and that each is an object of its own.
func (e *env) keyRows() []row {
	longest := strings.Repeat("0123456789abcdef/", 61) // of 17 bytes, as file systems have shorter names than S3 has keys
	longest = longest[:1024-3] + "end"
	alone := []struct{ name, key string }{
		{"trailing-slash", "folder/"}, {"semicolon", "a;b=c"}, {"tilde", "a~b"}, {"question-mark", "a?b=c"}, {"hash", "a#b"},
		{"ampersand", "a&b=c&d"}, {"quotes", `a"b'c`}, {"backslash", `a\b`}, {"brackets", "a[b]{c}<d>(e)"},
		{"punctuation", "!$*,:@^`|"}, {"percent-sign", "100%"}, {"tab", "a\tb"}, {"newline", "a\nb"}, {"return", "a\rb"},
		{"control-byte", "a\x01b\x1f"}, {"delete-byte", "a\x7fb"}, {"umlauts", "äöü/ß"}, {"emoji", "🗿/🧱.bin"},
		{"cjk", "文件/键"}, {"leading-space", " a"}, {"trailing-space", "a "}, {"leading-dot", ".hidden"}, {"dots", "a..b/...c"},
		{"host-like", "http://host:80/x"}, {"versionid-like", "a?versionId=null"}, {"1024-bytes", longest},
		{"K04-space-and-ampersand", "a b/c&d"}, {"K04-percent-in-the-middle", "p/100%/x"},
	}
	var rows []row
	for _, k := range alone {
		rows = append(rows, row{"key/" + k.name, func(t *testing.T, e *env) { e.readKeys(t, k.key) }})
	}
	rows = append(rows,
		row{"key/K01-slashes", func(t *testing.T, e *env) { e.readKeys(t, "/foo", "foo", "a//b", "a/b", "//", "a///b") }},
		row{"key/K01-folders", func(t *testing.T, e *env) { e.readKeys(t, "dir/", "dir//", "dir") }},
		row{"key/dot-segments", func(t *testing.T, e *env) {
			e.readKeys(t, "x/../y", "y", "x/./y", "x/y", "./y", "../y", "x/..", "x/.")
		}},
		row{"key/only-dots", func(t *testing.T, e *env) { e.readKeys(t, ".", "..", "...") }},
		row{"key/K02-plus-space-percent", func(t *testing.T, e *env) {
			e.readKeys(t, "a b", "a+b", "a%20b", "a%2Bb", "ä+é", "t=2026-01-01T00:00:00+00:00/f")
		}},
		row{"key/normal-forms", func(t *testing.T, e *env) { e.readKeys(t, "caf\u00e9", "cafe\u0301") }},
		row{"key/case", func(t *testing.T, e *env) { e.readKeys(t, "Case", "case", "CASE") }},
		row{"key/K04-percent-2F", func(t *testing.T, e *env) { e.readKeys(t, "p%2Fq", "p/q") }},
		row{"key/1025-bytes", func(t *testing.T, e *env) {
			e.expect(t, nil, request{key: longest + "x"}, refused(http.StatusBadRequest, "KeyTooLongError"))
			e.expect(t, nil, request{method: http.MethodHead, key: longest + "x"},
				refused(http.StatusBadRequest, "KeyTooLongError"))
		}},
		row{"key/bytes-not-characters-count", func(t *testing.T, e *env) {
			e.expect(t, nil, request{key: strings.Repeat("ä", 513)}, refused(http.StatusBadRequest, "KeyTooLongError"))
		}},
	)
	for _, s := range []struct{ name, key, raw string }{
		{"K02-percent-20", "sp a b", "sp%20a%20b"},
		{"K02-literal-plus", "lp a+b", "lp%20a+b"},
		{"K02-percent-2B", "pp a+b", "pp%20a%2Bb"},
		{"K02-percent-2520", "dp a%20b", "dp%20a%2520b"},
		{"K04-percent-2F-is-a-slash", "slash/q", "slash%2Fq"},
		{"lower-case-percent", "ä/%", "%c3%a4/%25"},
		{"needless-percent", "needless-abc", "%6eeedless-%61b%63"},
		{"percent-dots", "up/../down", "up/%2E%2E/down"},
		{"unencoded-marks", "marks-!$&'()*,;=:@", "marks-!$&'()*,;=:@"},
	} {
		rows = append(rows, row{"spelling/" + s.name, func(t *testing.T, e *env) {
			o := e.putKey(t, e.bucket, s.key)
			for _, style := range e.styles() {
				e.expect(t, o, request{raw: s.raw, style: style}, whole(o))
				e.expect(t, o, request{method: http.MethodHead, raw: s.raw, style: style}, whole(o))
				e.expect(t, o, request{raw: s.raw, style: style, header: []string{"Range", "bytes=2-4"}}, part(o, 2, 4))
				if e.AccessKey != "" {
					e.expect(t, o, request{raw: s.raw, style: style, presign: 60}, whole(o))
				}
			}
		}})
	}
	return rows
}

// styles are the ways of addressing that the target has.
func (e *env) styles() []addressStyle {
	if e.Domain == "" {
		return []addressStyle{stylePath}
	}
	return []addressStyle{stylePath, styleHost}
}

// readKeys puts objects under all keys before it reads any of them, in every style.
func (e *env) readKeys(t *testing.T, keys ...string) {
	t.Helper()
	bucket := "wire-k-" + random() // of its own, as on some servers keys get in each other's way
	e.makeBucket(t, bucket)
	var objects []*object
	for _, key := range keys {
		objects = append(objects, e.putKey(t, bucket, key))
	}
	for _, o := range objects {
		for _, style := range e.styles() {
			e.expect(t, o, request{bucket: o.bucket, key: o.key, style: style}, whole(o))
			e.expect(t, o, request{method: http.MethodHead, bucket: o.bucket, key: o.key, style: style}, whole(o))
			e.expect(t, o, request{bucket: o.bucket, key: o.key, style: style, header: []string{"Range", "bytes=1-3"}},
				part(o, 1, 3))
			if e.AccessKey != "" {
				e.expect(t, o, request{bucket: o.bucket, key: o.key, style: style, presign: 60}, whole(o))
			}
		}
	}
}

// addressRows are about buckets in host names, and hosts that name none.
func (e *env) addressRows() []row {
	port := func() string {
		u, err := url.Parse(e.URL)
		if err != nil {
			return ""
		}
		return u.Port()
	}
	hosted := func(name string, run func(t *testing.T, e *env)) row {
		return row{"address/" + name, func(t *testing.T, e *env) {
			if e.Domain == "" {
				t.Skip("the target has no domain")
			}
			run(t, e)
		}}
	}
	inHost := func(host string) request { return request{style: styleHost, host: host} }
	inPath := func(host string) request { return request{style: stylePath, host: host} }
	read := func(t *testing.T, e *env, r request) {
		t.Helper()
		o := e.put(t, 10)
		r.bucket, r.key = o.bucket, o.key
		e.expect(t, o, r, whole(o))
		r.method = http.MethodHead
		e.expect(t, o, r, whole(o))
	}
	return []row{
		hosted("host-style", func(t *testing.T, e *env) { read(t, e, inHost("")) }),
		hosted("host-style-upper-case", func(t *testing.T, e *env) {
			read(t, e, inHost(strings.ToUpper(e.bucket+"."+e.Domain)+":"+port()))
		}),
		hosted("host-style-other-port", func(t *testing.T, e *env) { read(t, e, inHost(e.bucket+"."+e.Domain+":1")) }),
		hosted("host-style-no-port", func(t *testing.T, e *env) { read(t, e, inHost(e.bucket+"."+e.Domain)) }),
		hosted("host-style-bucket-with-dots", func(t *testing.T, e *env) {
			name := "wire.dots." + random()
			e.makeBucket(t, name)
			o := e.putKey(t, name, "k")
			e.expect(t, o, request{style: styleHost, bucket: name, key: o.key}, whole(o))
			e.expect(t, o, request{style: stylePath, bucket: name, key: o.key}, whole(o))
		}),
		hosted("host-style-no-such-bucket", func(t *testing.T, e *env) {
			name := "wire-none-" + random()
			e.expect(t, nil, request{style: styleHost, bucket: name, key: "k"},
				refused(http.StatusNotFound, "NoSuchBucket", "BucketName", name))
		}),
		hosted("domain-itself-is-path-style", func(t *testing.T, e *env) { read(t, e, inPath(e.Domain+":"+port())) }),
		hosted("both-styles-one-object", func(t *testing.T, e *env) {
			o := e.put(t, 2*e.b)
			e.expect(t, o, request{style: styleHost, bucket: o.bucket, key: o.key}, whole(o))
			e.expect(t, o, request{style: stylePath, bucket: o.bucket, key: o.key}, whole(o))
		}),
		{"address/unknown-host-is-path-style", func(t *testing.T, e *env) { read(t, e, inPath("elsewhere.example:1234")) }},
		{"address/A01-host-with-port", func(t *testing.T, e *env) { read(t, e, inPath("127.0.0.1:"+port())) }},
		{"address/A01-host-without-port", func(t *testing.T, e *env) { read(t, e, inPath("127.0.0.1")) }},
		{"address/A01-ipv6-literal", func(t *testing.T, e *env) { read(t, e, inPath("[::1]:"+port())) }},
		{"address/A01-forwarded-host-does-not-count", func(t *testing.T, e *env) {
			r := inPath("")
			r.unsigned = []string{"X-Forwarded-Host", "other.example", "X-Forwarded-Port", "1", "X-Forwarded-Proto", "https"}
			read(t, e, r)
		}},
		{"address/A01-signed-for-forwarded-host", func(t *testing.T, e *env) {
			if e.AccessKey == "" {
				t.Skip("the target wants no signatures")
			}
			o := e.put(t, 10)
			r := request{style: stylePath, key: o.key, host: "front.example",
				unsigned: []string{"X-Forwarded-Host", "front.example"},
				tamper:   func(req *http.Request) { req.Host = "127.0.0.1:" + port() }}
			e.expect(t, o, r, refused(http.StatusForbidden, "SignatureDoesNotMatch"))
		}},
	}
}
