package s3wiretest

import (
	"net/http"
	"strconv"
	"testing"
)

// versionRows are about versionId and delete markers.
func (e *env) versionRows() []row {
	put := func(t *testing.T, e *env) (v versioned, first, second *object) {
		v = e.versionedBucket(t)
		e.serial++
		key := "v" + strconv.Itoa(e.serial)
		first = e.putKey(t, v.bucket, key)
		second = e.putKey(t, v.bucket, key)
		if first.version == "" || first.version == second.version {
			t.Fatalf("preparing: version ids %q and %q", first.version, second.version)
		}
		return v, first, second
	}
	named := func(o *object) string { return "versionId=" + encodeQuery(o.version) }
	withID := func(w want, o *object) want { return w.with("x-amz-version-id", o.version) }
	return []row{
		{"version/named", func(t *testing.T, e *env) {
			_, first, second := put(t, e)
			for _, o := range []*object{first, second} {
				for _, s := range shapes(o) {
					s.r.query = named(o)
					e.expect(t, o, s.r, withID(s.want, o))
				}
			}
		}},
		{"version/newest", func(t *testing.T, e *env) {
			for i := range shapes(&object{data: make([]byte, 10)}) {
				_, _, second := put(t, e)
				s := shapes(second)[i]
				e.expect(t, second, s.r, withID(s.want, second))
			}
		}},
		{"version/conditions", func(t *testing.T, e *env) {
			_, first, second := put(t, e)
			e.expect(t, first, request{query: named(first), header: []string{"If-None-Match", first.etag}}, notModified(first))
			e.expect(t, first, request{query: named(first), header: []string{"If-Match", second.etag}}, precondition("If-Match"))
		}},
		{"version/null", func(t *testing.T, e *env) {
			v := e.versionedBucket(t)
			for _, s := range shapes(v.null) {
				s.r.query, s.r.bucket, s.r.key = "versionId=null", v.bucket, v.null.key
				e.expect(t, v.null, s.r, s.want)
			}
		}},
		{"version/null-without-versioning", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, request{query: "versionId=null"}, whole(o))
		}},
		{"version/missing", func(t *testing.T, e *env) {
			v, first, _ := put(t, e)
			e.origin(t, request{method: http.MethodDelete, bucket: v.bucket, key: first.key, query: named(first)})
			r := request{bucket: v.bucket, key: first.key, query: named(first)}
			e.expect(t, nil, r, refused(http.StatusNotFound, "NoSuchVersion"))
			r.method = http.MethodHead
			e.expect(t, nil, r, refused(http.StatusNotFound, "NoSuchVersion"))
		}},
		{"version/malformed", func(t *testing.T, e *env) {
			v, first, _ := put(t, e)
			r := request{bucket: v.bucket, key: first.key, query: "versionId=%22nonsense%22"}
			e.expect(t, nil, r, refused(http.StatusBadRequest, "InvalidArgument"))
		}},
		{"version/delete-marker", func(t *testing.T, e *env) {
			v, first, second := put(t, e)
			a := e.origin(t, request{method: http.MethodDelete, bucket: v.bucket, key: first.key})
			marker := a.header.Get("x-amz-version-id")
			r := request{bucket: v.bucket, key: first.key}
			w := refused(http.StatusNotFound, "NoSuchKey").with("x-amz-delete-marker", "true")
			e.expect(t, nil, r, w)
			r.method = http.MethodHead
			e.expect(t, nil, r, w)
			r.query = "versionId=" + encodeQuery(marker)
			w = refused(http.StatusMethodNotAllowed, "MethodNotAllowed").with("x-amz-delete-marker", "true")
			e.expect(t, nil, r, w)
			r.method = http.MethodGet
			e.expect(t, nil, r, w)
			e.expect(t, second, request{query: named(second)}, withID(whole(second), second))
		}},
	}
}

// partRows are about partNumber.
func (e *env) partRows() []row {
	numbered := func(n string) string { return "partNumber=" + n }
	both := func(t *testing.T, e *env, r request, w want) {
		t.Helper()
		for _, r.method = range []string{http.MethodGet, http.MethodHead} {
			e.expect(t, nil, r, w)
		}
	}
	tooHigh := refused(http.StatusRequestedRangeNotSatisfiable, "InvalidPartNumber")
	return []row{
		{"part/R15-first-of-one", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			both(t, e, request{key: o.key, query: numbered("1")}, part(o, 0, 9))
			e.expect(t, o, request{}, whole(o))
			both(t, e, request{key: o.key, query: numbered("1")}, part(o, 0, 9))
		}},
		{"part/R15-second-of-one", func(t *testing.T, e *env) {
			o := e.put(t, 10)
			both(t, e, request{key: o.key, query: numbered("2")}, tooHigh)
		}},
		{"part/R15-of-three", func(t *testing.T, e *env) {
			o := e.multipart(t)
			for n, w := range []want{
				part(o, 0, partSize-1), part(o, partSize, 2*partSize-1), part(o, 2*partSize, len(o.data)-1),
			} {
				both(t, e, request{key: o.key, query: numbered(strconv.Itoa(n + 1))}, w.with("x-amz-mp-parts-count", "3"))
			}
		}},
		{"part/R15-fourth-of-three", func(t *testing.T, e *env) {
			both(t, e, request{key: e.multipart(t).key, query: numbered("4")}, tooHigh)
		}},
		{"part/R15-and-range", func(t *testing.T, e *env) {
			r := request{key: e.multipart(t).key, query: numbered("2"), header: []string{"Range", "bytes=0-1"}}
			both(t, e, r, refused(http.StatusBadRequest, "InvalidRequest"))
		}},
		{"part/multipart-whole", func(t *testing.T, e *env) {
			o := e.multipart(t)
			e.expect(t, o, request{}, whole(o))
			e.expect(t, o, request{header: []string{"Range", "bytes=5242870-10485769"}}, part(o, 5242870, 10485769))
		}},
	}
}
