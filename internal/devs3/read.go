package devs3

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// versionIDForm is what version ids look like here; S3 refuses others before it looks.
var versionIDForm = regexp.MustCompile(`^(null|[0-9a-f]{32})$`)

// versionID reads ?versionId=, "" for none.
func (c *call) versionID() (string, error) {
	id, given := c.query.lookup("versionId")
	switch {
	case !given:
		return "", nil
	case id == "":
		return "", errInvalidArgument("versionId", id, "Version id cannot be the empty string")
	case !versionIDForm.MatchString(id):
		return "", errInvalidArgument("versionId", id, "Invalid version id specified")
	}
	return id, nil
}

// current finds the version that a read is for, a delete marker being the error that S3 makes of it.
func (c *call) current() (*version, versioning, error) {
	id, err := c.versionID()
	if err != nil {
		return nil, "", err
	}
	v, state, err := c.s.store.lookup(c.bucket, c.key, id)
	if err != nil || !v.Marker {
		return v, state, err
	}
	e := errNoSuchKey(c.key)
	if id != "" {
		e = errMethodNotAllowed().with("Method", c.r.Method).with("ResourceType", "DeleteMarker").
			withHeader("Allow", "DELETE").withHeader("Last-Modified", httpTime(v.Modified))
	}
	return nil, state, e.withHeader("x-amz-delete-marker", "true").withHeader("x-amz-version-id", v.ID)
}

func httpTime(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// getObject answers GetObject and HeadObject.
func (c *call) getObject() error {
	for range 100 {
		v, state, err := c.current()
		if err != nil {
			return err
		}
		data, done, err := v.content.open()
		if gone(err) { // deleted between lookup and open
			continue
		}
		if err != nil {
			return err
		}
		defer done()
		return c.serveVersion(v, state, data)
	}
	return newError(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
}

func (c *call) serveVersion(v *version, state versioning, data io.ReaderAt) error {
	overrides, err := c.responseOverrides()
	if err != nil {
		return err
	}
	rangeHeader := strings.Join(c.r.Header.Values("Range"), ",")
	if c.ignoreRange {
		rangeHeader = ""
	}
	partNumber, hasPart := c.query.lookup("partNumber")
	if hasPart && rangeHeader != "" {
		return errInvalidRequest("Cannot specify both Range header and partNumber query parameter")
	}
	now := time.Now()
	refused, notModified := readConditions(c.r.Header, v.ETag, v.Modified, now)
	if refused != "" {
		return errPrecondition(refused)
	}
	h := c.w.Header()
	h.Set("ETag", v.ETag)
	h.Set("Last-Modified", httpTime(v.Modified))
	if notModified {
		for _, name := range []string{"Cache-Control", "Expires"} {
			if value, ok := v.Header[name]; ok {
				h.Set(name, value)
			}
		}
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	offset, length, partial := int64(0), v.Size, false
	if hasPart {
		offset, length, partial, err = c.part(v, partNumber)
	} else if r, ok := parseRange(rangeHeader); ok && ifRange(c.r.Header, v.ETag, v.Modified, now) {
		offset, length, partial, err = resolve(r, rangeHeader, v.Size)
	}
	if err != nil {
		clear(h)
		return err
	}
	c.objectHeaders(v, state, overrides, offset == 0 && length == v.Size)
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, v.Size))
	}
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	buf := c.s.buffers.Get().(*[]byte)
	defer c.s.buffers.Put(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{c.w}, struct{ io.Reader }{io.NewSectionReader(data, offset, length)}, *buf)
	if err == nil && n < length {
		err = io.ErrUnexpectedEOF
	}
	return abortOn(err)
}

func resolve(r byteRange, header string, size int64) (offset, length int64, partial bool, err error) {
	offset, length, whole, ok := r.within(size)
	if !ok {
		return 0, 0, false, newError(http.StatusRequestedRangeNotSatisfiable, "InvalidRange",
			"The requested range is not satisfiable").
			with("RangeRequested", header).with("ActualObjectSize", strconv.FormatInt(size, 10)).
			withHeader("Content-Range", fmt.Sprintf("bytes */%d", size))
	}
	return offset, length, !whole, nil
}

// part resolves ?partNumber=: the bytes of a part, or of the whole object when it was not made of parts.
func (c *call) part(v *version, number string) (offset, length int64, partial bool, err error) {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > maxParts {
		return 0, 0, false, errInvalidArgument("partNumber", number,
			"Part number must be an integer between 1 and 10000, inclusive")
	}
	missing := newError(http.StatusRequestedRangeNotSatisfiable, "InvalidPartNumber",
		"The requested partnumber is not satisfiable").
		with("PartNumberRequested", number).with("ActualPartCount", strconv.Itoa(max(1, len(v.Parts))))
	if len(v.Parts) == 0 {
		if n > 1 {
			return 0, 0, false, missing
		}
		return 0, v.Size, v.Size > 0, nil
	}
	if n > len(v.Parts) {
		return 0, 0, false, missing
	}
	for _, p := range v.Parts[:n-1] {
		offset += p.Size
	}
	c.w.Header().Set("x-amz-mp-parts-count", strconv.Itoa(len(v.Parts)))
	length = v.Parts[n-1].Size
	return offset, length, length > 0, nil
}

// objectHeaders sets what 200 and 206 have in common. whole says that the answer has all bytes of the object, though it
// be a 206: only then can a client check it against a checksum of the object.
func (c *call) objectHeaders(v *version, state versioning, overrides map[string]string, whole bool) {
	h := c.w.Header()
	h.Set("Accept-Ranges", "bytes")
	for name, value := range v.Header {
		h.Set(name, value)
	}
	if state != versioningOff {
		h.Set("x-amz-version-id", v.ID)
	}
	if n := len(v.Tags); n > 0 {
		h.Set("x-amz-tagging-count", strconv.Itoa(n))
	}
	if whole && strings.EqualFold(c.r.Header.Get("X-Amz-Checksum-Mode"), "ENABLED") {
		setChecksums(h, v.Checksums, v.SumType)
	}
	for name, value := range overrides {
		h.Set(name, value)
	}
}

func setChecksums(h http.Header, sums map[string]string, sumType string) {
	for _, a := range algorithms() {
		if sum, ok := sums[a.name]; ok {
			h.Set(a.header(), sum)
			h.Set("x-amz-checksum-type", sumType)
		}
	}
}

// overridable are the headers that response-* parameters replace.
var overridable = map[string]string{
	"response-cache-control":       "Cache-Control",
	"response-content-disposition": "Content-Disposition",
	"response-content-encoding":    "Content-Encoding",
	"response-content-language":    "Content-Language",
	"response-content-type":        "Content-Type",
	"response-expires":             "Expires",
}

func (c *call) responseOverrides() (map[string]string, error) {
	var out map[string]string
	for _, p := range c.query {
		name, ok := overridable[p.name]
		if !ok {
			continue
		}
		if !c.signed {
			return nil, errInvalidRequest("Request specific response headers cannot be used for anonymous GET requests.")
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = p.value
	}
	return out, nil
}
