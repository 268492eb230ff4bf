package s3wiretest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

// shapes are the four ways to ask for an object's headers: they all bring the same.
func shapes(o *object) []struct {
	name string
	r    request
	want want
} {
	last := min(len(o.data), 6) - 1
	ranged := []string{"Range", fmt.Sprintf("bytes=1-%d", last)}
	return []struct {
		name string
		r    request
		want want
	}{
		{"get", request{}, whole(o)},
		{"get-range", request{header: ranged}, part(o, 1, last)},
		{"head", request{method: http.MethodHead}, whole(o)},
		{"head-range", request{method: http.MethodHead, header: ranged}, part(o, 1, last)},
	}
}

// headerRows are about the headers that are kept with an object, and those of every answer.
func (e *env) headerRows() []row {
	kept := []struct {
		name   string
		header []string
	}{
		{"cache-control", []string{"Cache-Control", "public, max-age=31536000, immutable"}},
		{"content-disposition", []string{"Content-Disposition",
			`attachment; filename="a; b.txt"; filename*=UTF-8''%e2%82%ac`}},
		{"content-encoding", []string{"Content-Encoding", "zstd"}},
		{"content-language", []string{"Content-Language", "de-CH, en"}},
		{"content-type", []string{"Content-Type", "text/html; charset=utf-8"}},
		{"expires", []string{"Expires", "Thu, 01 Dec 2044 16:00:00 GMT"}},
		{"metadata", []string{"x-amz-meta-a", "1", "x-amz-meta-two-words", "value, with: signs = and  spaces",
			"x-amz-meta-Upper", "CASE"}},
		{"website-redirect-location", []string{"x-amz-website-redirect-location", "/elsewhere"}},
		{"server-side-encryption", []string{"x-amz-server-side-encryption", "AES256"}},
		{"all-at-once", []string{"Cache-Control", "no-store", "Content-Disposition", "inline", "Content-Encoding", "br",
			"Content-Language", "fr", "Content-Type", "application/x-thing", "Expires", "Thu, 01 Dec 2044 16:00:00 GMT",
			"x-amz-meta-m", "v"}},
		{"many-metadata", manyMetadata()},
	}
	var rows []row
	for _, k := range kept {
		rows = append(rows, row{"header/" + k.name, func(t *testing.T, e *env) {
			for _, s := range shapes(&object{data: make([]byte, 10)}) {
				t.Run(s.name, func(t *testing.T) {
					o := e.put(t, 10, k.header...)
					for _, own := range shapes(o) {
						if own.name == s.name {
							e.expect(t, o, own.r, own.want.with(k.header...))
						}
					}
				})
			}
		}})
	}
	return append(rows,
		row{"header/E01-gzip", func(t *testing.T, e *env) { e.storedGzip(t) }},
		row{"header/no-compression", func(t *testing.T, e *env) {
			e.serial++
			o := e.putData(t, e.bucket, fmt.Sprintf("text%d", e.serial), bytes.Repeat([]byte("compressible "), 5000),
				"Content-Type", "text/plain")
			for _, accept := range []string{"gzip", "gzip, br, zstd, *"} {
				e.expect(t, o, request{header: []string{"Accept-Encoding", accept}}, whole(o).with("Content-Encoding", ""))
			}
		}},
		row{"header/no-length-in-chunks", func(t *testing.T, e *env) {
			o := e.put(t, 2*e.b+1)
			e.expect(t, o, request{}, whole(o).with("Transfer-Encoding", "", "Content-Length", fmt.Sprint(2*e.b+1)))
		}},
		row{"header/date-is-now", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			for range 2 {
				a := e.send(t, request{key: o.key})
				d, err := http.ParseTime(a.header.Get("Date"))
				if err != nil || time.Since(d).Abs() > 2*time.Minute {
					t.Errorf("Date %q (%v)", a.header.Get("Date"), err)
				}
			}
		}},
		row{"header/request-ids-are-fresh", freshIDs},
	)
}

func manyMetadata() []string {
	var h []string
	for i := range 40 {
		h = append(h, fmt.Sprintf("x-amz-meta-name-%02d", i), strings.Repeat(string(rune('a'+i%26)), 30))
	}
	return h
}

// storedGzip reads an object of compressed bytes: they are the object.
func (e *env) storedGzip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, e.b*23/10)
	for i := range text {
		text[i] = byte(rnd.Uint32())
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"", "identity", "gzip", "gzip;q=0", "br"} {
		e.serial++
		o := e.putData(t, e.bucket, fmt.Sprintf("gzip%d", e.serial), z.Bytes(), "Content-Encoding", "gzip")
		var h []string
		if accept != "" {
			h = []string{"Accept-Encoding", accept}
		}
		ranged := append([]string{"Range", "bytes=0-99"}, h...)
		e.expect(t, o, request{header: h}, whole(o).with("Content-Encoding", "gzip"))
		e.expect(t, o, request{header: ranged}, part(o, 0, 99).with("Content-Encoding", "gzip"))
		e.expect(t, o, request{method: http.MethodHead, header: h}, whole(o).with("Content-Encoding", "gzip"))
	}
}

// freshIDs looks at the request ids of answers of every kind.
func freshIDs(t *testing.T, e *env) {
	o := e.put(t, 10)
	seen := map[string]string{}
	for range 2 {
		for name, r := range map[string]request{
			"200": {}, "206": {header: []string{"Range", "bytes=0-1"}}, "304": {header: []string{"If-None-Match", o.etag}},
			"HEAD": {method: http.MethodHead}, "416": {header: []string{"Range", "bytes=99-"}},
			"412": {header: []string{"If-Match", `"x"`}}, "404": {key: "missing"},
		} {
			if r.key == "" {
				r.key = o.key
			}
			a := e.send(t, r)
			for _, h := range []string{"x-amz-request-id", "x-amz-id-2"} {
				id := a.header.Get(h)
				if id == "" || seen[h+id] != "" {
					t.Errorf("%s: %s %q, seen before on %q", name, h, id, seen[h+id])
				}
				seen[h+id] = name
			}
			if a.status < 400 {
				continue
			}
			if got, want := a.element("RequestId"), a.header.Get("x-amz-request-id"); got != want {
				t.Errorf("%s: <RequestId> %q, header %q", name, got, want)
			}
			if got, want := a.element("HostId"), a.header.Get("x-amz-id-2"); got != want {
				t.Errorf("%s: <HostId> %q, header %q", name, got, want)
			}
		}
	}
}

// checksum is one of S3's algorithms: its header, and its sum of sample(10, …) is computed where it is used.
type checksum struct {
	name, header string
	sum          func([]byte) string
}

var noChecksum = []string{"x-amz-checksum-crc32", "", "x-amz-checksum-crc32c", "", "x-amz-checksum-crc64nvme", "",
	"x-amz-checksum-sha1", "", "x-amz-checksum-sha256", "", "x-amz-checksum-type", ""}

// checksumRows are about x-amz-checksum-*: on whole objects, when asked for, and never on a part.
func (e *env) checksumRows() []row {
	var rows []row
	mode := []string{"x-amz-checksum-mode", "ENABLED"}
	for _, c := range checksums() {
		rows = append(rows, row{"checksum/U06-" + c.name, func(t *testing.T, e *env) {
			put := func() (*object, []string) {
				e.serial++
				data := sample(2*e.b+1, uint64(e.serial))
				o := e.putData(t, e.bucket, fmt.Sprintf("sum%d", e.serial), data, c.header, c.sum(data))
				return o, []string{c.header, c.sum(data), "x-amz-checksum-type", "FULL_OBJECT"}
			}
			o, has := put()
			e.expect(t, o, request{header: mode}, whole(o).with(has...))
			e.expect(t, o, request{}, whole(o).with(noChecksum...))
			o, has = put()
			e.expect(t, o, request{}, whole(o).with(noChecksum...))
			e.expect(t, o, request{header: mode}, whole(o).with(has...))
			o, has = put()
			e.expect(t, o, request{method: http.MethodHead, header: mode}, whole(o).with(has...))
			e.expect(t, o, request{method: http.MethodHead}, whole(o).with(noChecksum...))
			o, has = put()
			ranged := append([]string{"Range", "bytes=4-7"}, mode...)
			e.expect(t, o, request{header: ranged}, part(o, 4, 7).with(noChecksum...))
			e.expect(t, o, request{method: http.MethodHead, header: ranged}, part(o, 4, 7).with(noChecksum...))
			// A cache that has seen a part alone knows no checksum, and learns it from a HEAD.
			e.expect(t, o, request{method: http.MethodHead, header: mode}, whole(o).with(has...))
			e.expect(t, o, request{header: mode}, whole(o).with(has...))
		}})
		rows = append(rows, row{"checksum/U06-range-of-all-bytes-" + c.name, func(t *testing.T, e *env) {
			e.serial++
			data := sample(2*e.b+1, uint64(e.serial))
			o := e.putData(t, e.bucket, fmt.Sprintf("sum%d", e.serial), data, c.header, c.sum(data))
			all := append([]string{"Range", fmt.Sprintf("bytes=0-%d", len(data)-1)}, mode...)
			e.expect(t, o, request{header: all}, part(o, 0, len(data)-1).with(noChecksum...))
		}})
	}
	return append(rows, row{"checksum/U06-composite", func(t *testing.T, e *env) {
		o := e.multipart(t)
		ask := request{method: http.MethodHead, bucket: o.bucket, key: o.key, header: mode}
		e.expect(t, nil, ask,
			whole(o).with("x-amz-checksum-crc32", o.header["composite"], "x-amz-checksum-type", "COMPOSITE"))
		ask.header = append([]string{"Range", "bytes=4-7"}, mode...)
		ask.method = http.MethodGet
		e.expect(t, nil, ask, part(o, 4, 7).with(noChecksum...))
	}})
}

// overrideRows are about response-* parameters.
func (e *env) overrideRows() []row {
	stored := []string{"Content-Type", "text/plain", "Cache-Control", "max-age=1"}
	params := []struct{ name, query, header, value string }{
		{"cache-control", "response-cache-control=no-cache", "Cache-Control", "no-cache"},
		{"content-disposition", "response-content-disposition=attachment%3B%20filename%3D%22x.txt%22", "Content-Disposition",
			`attachment; filename="x.txt"`},
		{"content-encoding", "response-content-encoding=x-custom", "Content-Encoding", "x-custom"},
		{"content-language", "response-content-language=it", "Content-Language", "it"},
		{"content-type", "response-content-type=application%2Fx-y", "Content-Type", "application/x-y"},
		{"expires", "response-expires=Thu%2C%2001%20Dec%202044%2016%3A00%3A00%20GMT", "Expires",
			"Thu, 01 Dec 2044 16:00:00 GMT"},
		{"plus-is-space", "response-content-disposition=a+b", "Content-Disposition", "a b"},
		{"semicolon-is-data", "response-content-disposition=a;b", "Content-Disposition", "a;b"},
	}
	var rows []row
	for _, p := range params {
		rows = append(rows, row{"override/" + p.name, func(t *testing.T, e *env) {
			if e.AccessKey == "" {
				t.Skip("only on signed requests")
			}
			o := e.put(t, 10, stored...)
			for _, s := range shapes(o) {
				s.r.query = p.query
				e.expect(t, o, s.r, s.want.with(p.header, p.value))
			}
			e.expect(t, o, request{}, whole(o).with("Content-Type", "text/plain", "Cache-Control", "max-age=1"))
		}})
	}
	return append(rows,
		row{"override/cold", func(t *testing.T, e *env) {
			if e.AccessKey == "" {
				t.Skip("only on signed requests")
			}
			o := e.put(t, 10, stored...)
			e.expect(t, o, request{query: "response-content-type=a%2Fb&response-content-language=rm"},
				whole(o).with("Content-Type", "a/b", "Content-Language", "rm", "Cache-Control", "max-age=1"))
			e.expect(t, o, request{}, whole(o).with("Content-Type", "text/plain", "Content-Language", ""))
		}},
		row{"override/presigned", func(t *testing.T, e *env) {
			if e.AccessKey == "" {
				t.Skip("only on signed requests")
			}
			o := e.put(t, 10, stored...)
			e.expect(t, o, request{query: "response-content-type=a%2Fb", presign: 60}, whole(o).with("Content-Type", "a/b"))
		}},
		row{"override/anonymous", func(t *testing.T, e *env) {
			if e.AccessKey != "" {
				t.Skip("the target wants signatures")
			}
			o := e.put(t, 10, stored...)
			e.expect(t, o, request{query: "response-content-type=a%2Fb"}, refused(http.StatusBadRequest, "InvalidRequest"))
		}},
		row{"override/x-id", func(t *testing.T, e *env) {
			o := e.put(t, 10, stored...)
			e.expect(t, o, request{query: "x-id=GetObject"}, whole(o).with("Content-Type", "text/plain"))
			e.expect(t, o, request{query: "x-id=GetObject", header: []string{"Range", "bytes=1-2"}}, part(o, 1, 2))
		}},
	)
}
