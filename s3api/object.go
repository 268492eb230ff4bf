package s3api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// plainRead is a GET or HEAD of an object that blocks can answer.
type plainRead struct {
	rng        gateway.Range
	conditions conditions
	overrides  []origin.Header // of response-* parameters
}

// overridden names the header of the answer that a parameter of a signed request sets (S3 API reference, GetObject).
func overridden(param string) (header string, ok bool) {
	switch param {
	case "response-cache-control":
		return "Cache-Control", true
	case "response-content-disposition":
		return "Content-Disposition", true
	case "response-content-encoding":
		return "Content-Encoding", true
	case "response-content-language":
		return "Content-Language", true
	case "response-content-type":
		return "Content-Type", true
	case "response-expires":
		return "Expires", true
	}
	return "", false
}

// plainRead reads what is asked. ok is false where a part of it is for the origin to answer.
func (x *exchange) plainRead() (p plainRead, ok bool, err error) {
	if x.who.accessKey == "" && slices.ContainsFunc(x.query, func(q sigv4.Param) bool {
		_, override := overridden(q.Name)
		return override
	}) {
		return p, false, errOverrides // whoever answers: the origin is asked with a signature
	}
	if x.amz.beyondRead || x.r.Header["Origin"] != nil {
		// To a page of another site: its browser needs the bucket's CORS headers, which depend on who asks from where and
		// are never stored.
		return p, false, nil
	}
	for i, q := range x.query {
		name, override := overridden(q.Name)
		switch {
		case transportParam(q.Name):
			continue
		case override:
			if !printable(q.Value) {
				return p, false, errArgument("Header value cannot be represented using ISO-8859-1.", q.Name, q.Value)
			}
			p.overrides = append(p.overrides, origin.Header{Name: name, Value: q.Value})
		case q.Name == "versionId":
			if !validVersionID(q.Value) {
				return p, false, errArgument("Invalid version id specified", q.Name, q.Value)
			}
		default:
			return p, false, nil
		}
		for _, earlier := range x.query[:i] {
			if earlier.Name == q.Name {
				return p, false, nil // which of the two counts is the origin's to know
			}
		}
	}
	p.rng = parseRange(x.r.Header["Range"])
	p.conditions, ok = parseConditions(x.r.Header, p.rng, x.start)
	return p, ok, nil
}

// printable says whether a value may stand in a header (RFC 9110 section 5.5).
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// validVersionID leaves out what is no version to any server. Which form it has is the origin's own affair.
func validVersionID(s string) bool {
	if s == "" || len(s) > 1024 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// serveObject answers a read from blocks.
func (x *exchange) serveObject(p plainRead) error {
	head := x.r.Method == http.MethodHead
	tuning, err := x.tuning()
	if err != nil {
		return err
	}
	request := gateway.Request{Object: x.object.Object, Range: p.rng, InfoOnly: head, WantChecksums: x.amz.checksums,
		Via: x.via, Client: x.client(), Tune: tuning, Routed: x.heard.routed || x.heard.onlyIfCached,
		NoCache: x.heard.noCache, OnlyIfCached: x.heard.onlyIfCached}
	if !p.conditions.none() {
		request.Check = p.check()
	}
	ctx, cancel := x.context()
	defer cancel()
	o, err := x.h.gateway.Open(ctx, request)
	if err != nil {
		return err
	}
	defer o.Close()

	if o.Status == gateway.Bypass {
		x.bypasses(bypassETag)
	}
	if !head {
		x.gather(o.Length, len(p.overrides) == 0)
	}
	x.describe(o)
	if x.amz.checksums && !o.Partial {
		// Never with a part: clients compare any checksum they see with the bytes they got.
		x.setAll(o.Info.Checksums)
	}
	for _, l := range p.overrides {
		x.set(l.Name, l.Value)
	}
	status := http.StatusOK
	if o.Partial {
		status = http.StatusPartialContent
		x.setContentRange(o.Offset, o.Length, o.Info.Size)
	}
	x.cache = x.h.cacheNames[o.Status][o.Source]
	x.begin(status, o.Length)
	if head {
		x.served = true
		return nil
	}
	n, err := x.send(o)
	if err == nil && n != o.Length {
		err = gateway.ErrInterrupted
	}
	x.served = err == nil
	return err // fail cuts the connection: headers are out
}

// check returns what decides p's conditions.
func (p plainRead) check() func(*origin.Info) (gateway.Range, error) {
	return func(info *origin.Info) (gateway.Range, error) { return p.conditions.check(info, p.rng) }
}

// describe sets the headers that are the version's own.
func (x *exchange) describe(o *gateway.Object) {
	info := o.Info
	x.w.Header()["Content-Type"] = nil // none unless the object has one: net/http would guess
	x.setAll(info.Headers)
	if !o.TTLExceeded {
		x.setAll(info.Volatile)
	}
	x.set("Accept-Ranges", "bytes")
	x.describeVersion(info)
	if info.VersionID != "" {
		x.set("X-Amz-Version-Id", info.VersionID)
	}
	x.set("Age", formatInt(int64(o.Age/time.Second)))
	if x.heard.peer && o.BlockSize() > 0 {
		x.set(blockSizeHeader, formatInt(o.BlockSize()))
	}
	if x.h.snapshot != nil {
		x.set(snapshotHeader, x.h.snapshot())
	}
}

// describeVersion sets the validators.
func (x *exchange) describeVersion(info *origin.Info) {
	if info.ETag != "" {
		x.set("Etag", info.ETag)
	}
	if info.LastModified != "" {
		x.set("Last-Modified", info.LastModified)
	}
}

// setAll sets headers that are sorted by name.
func (x *exchange) setAll(lines []origin.Header) {
	for i, l := range lines {
		if i == 0 || lines[i-1].Name != l.Name {
			x.set(l.Name, l.Value)
		} else if !x.line(l.Name, l.Value) {
			h, name := x.w.Header(), wireName(l.Name)
			h[name] = append(h[name], l.Value)
		}
	}
}

const metaPrefix = "X-Amz-Meta-"

// wireName is a canonical name as it is sent: user metadata in lower case, as S3 does, since clients (boto3) take its
// names as they come.
func wireName(name string) string {
	if strings.HasPrefix(name, metaPrefix) {
		return strings.ToLower(name)
	}
	return name
}

// answerNotModified sends a 304.
func (x *exchange) answerNotModified(info *origin.Info) {
	x.describeVersion(info)
	for _, l := range info.Headers {
		if l.Name == "Cache-Control" || l.Name == "Expires" {
			x.set(l.Name, l.Value)
		}
	}
	if age := time.Since(info.Confirmed); !info.Confirmed.IsZero() && age >= 0 {
		x.set("Age", formatInt(int64((age+time.Second-1)/time.Second)))
	}
	x.begin(http.StatusNotModified, -1)
}

// cacheNames are the values of X-Ashlar-Cache: what was found, and where the first bytes came from.
type cacheNames [gateway.Bypass + 1][gateway.SourceOrigin + 1]string

func newCacheNames() (names cacheNames) {
	for status := range names {
		for source := range names[status] {
			names[status][source] = gateway.Status(status).String() + "; " + gateway.Source(source).String()
		}
	}
	return names
}

// cacheNegative is X-Ashlar-Cache of a 404 that is remembered.
const cacheNegative = "negative"

// cacheStale is X-Ashlar-Cache of an answer without an object, such as a 304, that goes by stale info.
const cacheStale = "stale"

// cacheForwarded is X-Ashlar-Cache of what is not an object read.
const cacheForwarded = "bypass; origin"

// setContentRange sets Content-Range.
func (x *exchange) setContentRange(offset, length, size int64) {
	if !x.apart {
		x.set("Content-Range", string(appendContentRange(nil, offset, length, size)))
		return
	}
	l := append(x.head.lines, "Content-Range: "...)
	x.head.lines = append(appendContentRange(l, offset, length, size), "\r\n"...)
}

// appendContentRange appends the value of Content-Range (RFC 9110 section 14.4) of length > 0 bytes to b.
func appendContentRange(b []byte, offset, length, size int64) []byte {
	b = append(b, "bytes "...)
	b = strconv.AppendInt(b, offset, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, offset+length-1, 10)
	b = append(b, '/')
	return strconv.AppendInt(b, size, 10)
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// bodyAllowed says whether an answer of this status has a body (RFC 9110 section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// passes says whether a header of the origin's answer, by its canonical name, reaches the client. Those that end with a
// connection don't (RFC 9110 section 7.6.1), nor do trailers, nor what our own processes say to each other.
func passes(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return false
	}
	return !strings.HasPrefix(name, "X-Ashlar-")
}
