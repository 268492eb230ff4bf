package devs3

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// tags is an If-Match or If-None-Match: RFC 9110 sections 13.1.1 and 13.1.2.
type tags struct {
	any  bool
	list []string // opaque tags with their quotes, W/ in front of weak ones
}

// parseTags reads a list of entity tags. A tag without quotes is taken for one with, as S3 does.
func parseTags(values []string) tags {
	var t tags
	rest := strings.Join(values, ",")
	for rest != "" {
		var tag string
		rest = strings.TrimLeft(rest, " \t,")
		end := strings.IndexByte(rest, ',')
		if start := strings.IndexByte(rest, '"'); start >= 0 && (end < 0 || start < end) {
			if close := strings.IndexByte(rest[start+1:], '"'); close >= 0 {
				end = start + 1 + close + 1
			}
		}
		if end < 0 || end > len(rest) {
			end = len(rest)
		}
		tag, rest = strings.TrimSpace(rest[:end]), rest[end:]
		switch {
		case tag == "":
		case tag == "*":
			t.any = true
		case strings.HasPrefix(tag, `"`) || strings.HasPrefix(tag, "W/"):
			t.list = append(t.list, tag)
		default:
			t.list = append(t.list, `"`+tag+`"`)
		}
	}
	return t
}

// matchStrong compares by RFC 9110 section 8.8.3.2: weak tags are equal to nothing.
func (t tags) matchStrong(etag string) bool {
	if t.any {
		return true
	}
	for _, tag := range t.list {
		if tag == etag && !strings.HasPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// matchWeak compares without W/.
func (t tags) matchWeak(etag string) bool {
	if t.any {
		return true
	}
	for _, tag := range t.list {
		if strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}

// readConditions evaluates the conditions of a GET or HEAD in the order of RFC 9110 section 13.2.2. refused names the
// condition that a 412 is for, "" for none.
func readConditions(h http.Header, etag string, modified, now time.Time) (refused string, notModified bool) {
	modified = modified.Truncate(time.Second)
	if v := h.Values("If-Match"); len(v) > 0 {
		if !parseTags(v).matchStrong(etag) {
			return "If-Match", false
		}
	} else if t, err := http.ParseTime(h.Get("If-Unmodified-Since")); err == nil && modified.After(t) {
		return "If-Unmodified-Since", false
	}
	if v := h.Values("If-None-Match"); len(v) > 0 {
		return "", parseTags(v).matchWeak(etag)
	}
	if t, err := http.ParseTime(h.Get("If-Modified-Since")); err == nil && !t.After(now) {
		return "", !modified.After(t)
	}
	return "", false
}

// ifRange says whether a Range may be honoured: RFC 9110 section 13.1.5. A date counts only when it is exactly the
// Last-Modified of a version that was a second old or more.
func ifRange(h http.Header, etag string, modified, now time.Time) bool {
	v := h.Get("If-Range")
	if v == "" {
		return true
	}
	if strings.HasPrefix(v, `"`) {
		return v == etag
	}
	modified = modified.Truncate(time.Second)
	t, err := http.ParseTime(v)
	return err == nil && t.Equal(modified) && now.Sub(modified) >= time.Second
}

// byteRange is a Range header that asks for one range. A header that asks for anything else is no range at all.
type byteRange struct {
	first, last int64 // last is math.MaxInt64 when it was not given
	suffix      int64 // of bytes=-n; -1 otherwise
}

// parseRange reads a Range header; ok is false when S3 ignores it.
func parseRange(v string) (r byteRange, ok bool) {
	spec, found := strings.CutPrefix(v, "bytes=")
	if !found {
		return r, false
	}
	from, to, found := strings.Cut(spec, "-")
	if !found || from == "" && to == "" {
		return r, false
	}
	if from == "" {
		n, ok := parseDigits(to)
		return byteRange{suffix: n}, ok
	}
	r.suffix = -1
	if r.first, ok = parseDigits(from); !ok {
		return r, false
	}
	r.last = math.MaxInt64
	if to != "" {
		if r.last, ok = parseDigits(to); !ok {
			return r, false
		}
	}
	return r, r.first <= r.last
}

// parseDigits reads a number of digits only that fits 63 bits.
func parseDigits(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// within cuts the range to an object of size bytes. whole says that it is no part but the object: the suffix of an
// empty one. ok is false for 416.
func (r byteRange) within(size int64) (offset, length int64, whole, ok bool) {
	if r.suffix >= 0 {
		if r.suffix == 0 {
			return 0, 0, false, false
		}
		n := min(r.suffix, size)
		return size - n, n, size == 0, true
	}
	if r.first >= size {
		return 0, 0, false, false
	}
	return r.first, min(r.last, size-1) - r.first + 1, false, true
}
