package s3api

import (
	"net/http"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
)

// conditions are the conditional headers of a read (RFC 9110 section 13.1), with S3's way of combining them. The zero
// value has none.
type conditions struct {
	ifMatch, ifNoneMatch  string // "*" or one entity tag with its quotes; "" when absent
	modifiedSince         time.Time
	unmodifiedSince       time.Time // zero when absent or not a date, which is ignored
	ifRange               string    // as received
	hasRange, ignoreRange bool      // ignoreRange: If-Range is there and can't be true
}

// parseConditions reads the conditional headers. ok is false where a read from blocks has no answer: lists of tags,
// weak tags, and what can't be made out. now tells dates in the future.
func parseConditions(h http.Header, rng gateway.Range, now time.Time) (c conditions, ok bool) {
	if c.ifMatch, ok = parseTag(h["If-Match"]); !ok {
		return c, false
	}
	if c.ifNoneMatch, ok = parseTag(h["If-None-Match"]); !ok {
		return c, false
	}
	if c.unmodifiedSince, ok = parseDate(h["If-Unmodified-Since"]); !ok {
		return c, false
	}
	if c.modifiedSince, ok = parseDate(h["If-Modified-Since"]); !ok {
		return c, false
	}
	if c.modifiedSince.After(now) {
		c.modifiedSince = time.Time{}
	}
	// If-Range without Range is nothing (RFC 9110 section 13.1.5).
	if v := h["If-Range"]; len(v) > 0 && !rng.Whole() {
		c.hasRange = true
		if len(v) == 1 {
			c.ifRange = v[0]
		} else {
			c.ignoreRange = true
		}
	}
	return c, true
}

// none says whether there is nothing to decide.
func (c *conditions) none() bool {
	return c.ifMatch == "" && c.ifNoneMatch == "" && c.modifiedSince.IsZero() && c.unmodifiedSince.IsZero() && !c.hasRange
}

// check decides the conditions against info, and says which range remains of rng. The error is an *Error with status
// 412 or an *errNotModified.
func (c *conditions) check(info *origin.Info, rng gateway.Range) (gateway.Range, error) {
	known := !info.Modified.IsZero()
	switch {
	case c.ifMatch != "":
		if !matches(c.ifMatch, info.ETag, info.Strong()) {
			return rng, errPrecondition("If-Match")
		}
	case !c.unmodifiedSince.IsZero() && known && info.Modified.After(c.unmodifiedSince):
		return rng, errPrecondition("If-Unmodified-Since")
	}
	switch {
	case c.ifNoneMatch != "":
		// Weak comparison (RFC 9110 section 13.1.2).
		if matches(c.ifNoneMatch, strings.TrimPrefix(info.ETag, "W/"), true) {
			return rng, &errNotModified{info}
		}
	case !c.modifiedSince.IsZero() && known && !info.Modified.After(c.modifiedSince):
		return rng, &errNotModified{info}
	}
	if c.hasRange && (c.ignoreRange || !c.sameForRange(info)) {
		return gateway.Range{}, nil
	}
	return rng, nil
}

// sameForRange says whether If-Range names this very version: by a strong tag, or by the exact date.
func (c *conditions) sameForRange(info *origin.Info) bool {
	if tag, ok := parseTag([]string{c.ifRange}); ok && tag != "" && tag != "*" && tag == info.ETag {
		return info.Strong()
	}
	date, err := http.ParseTime(c.ifRange)
	return err == nil && !info.Modified.IsZero() && date.Equal(info.Modified)
}

// matches compares a tag of a request with an object's. "*" is any object there is.
func matches(tag, etag string, strong bool) bool {
	return tag == "*" || strong && tag == etag
}

// parseTag reads one entity tag, which S3 accepts without quotes too, or "*". "" is an absent header.
func parseTag(values []string) (tag string, ok bool) {
	if len(values) == 0 {
		return "", true
	}
	v := values[0]
	if len(values) > 1 || v == "" {
		return "", false
	}
	if v == "*" {
		return v, true
	}
	if v[0] == '"' {
		if len(v) < 2 || v[len(v)-1] != '"' || strings.IndexByte(v[1:len(v)-1], '"') >= 0 {
			return "", false // a list, or nothing
		}
		return v, true
	}
	if strings.ContainsAny(v, "\", ") || strings.HasPrefix(v, "W/") {
		return "", false
	}
	return `"` + v + `"`, true
}

// parseDate reads a date; one that is none is as if it were absent (RFC 9110 sections 13.1.3 and 13.1.4). ok is false
// for several.
func parseDate(values []string) (t time.Time, ok bool) {
	if len(values) == 0 {
		return time.Time{}, true
	}
	if len(values) > 1 {
		return time.Time{}, false
	}
	t, err := http.ParseTime(values[0])
	if err != nil {
		return time.Time{}, true
	}
	return t, true
}
