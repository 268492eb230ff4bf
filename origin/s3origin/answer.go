package s3origin

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

func badAnswer(format string, args ...any) error {
	return fmt.Errorf("%w: %s", origin.ErrBadAnswer, fmt.Sprintf(format, args...))
}

// response judges the answer to a GET. ranged and conditional say whether it had a Range and an If-None-Match.
func (c *call) response(resp *http.Response, ranged, conditional bool) (*origin.Response, error) {
	r := &origin.Response{}
	switch resp.StatusCode {
	case http.StatusOK:
		if resp.ContentLength < 0 {
			return nil, badAnswer("200 without Content-Length")
		}
		r.Info.Size, r.Length = resp.ContentLength, resp.ContentLength
	case http.StatusPartialContent:
		if !ranged {
			return nil, badAnswer("206 to a request without Range")
		}
		values := resp.Header["Content-Range"]
		if len(values) != 1 {
			return nil, badAnswer("206 with %d Content-Range headers", len(values))
		}
		first, last, size, ok := parseContentRange(values[0])
		if !ok {
			return nil, badAnswer("206 with Content-Range %q", values[0])
		}
		r.Offset, r.Length, r.Info.Size = first, last-first+1, size
		if resp.ContentLength >= 0 && resp.ContentLength != r.Length {
			return nil, badAnswer("Content-Range %q with Content-Length %d", values[0], resp.ContentLength)
		}
	case http.StatusNotModified:
		if !conditional {
			return nil, badAnswer("304 to a request without If-None-Match")
		}
		r.NotModified = true
	default:
		return nil, c.answerError(resp)
	}
	if err := c.info(resp, &r.Info, r.Length == r.Info.Size && !r.NotModified); err != nil {
		return nil, err
	}
	if !r.NotModified {
		r.Body = &body{s: c.newStream(resp, true), left: r.Length}
	}
	return r, nil
}

// headInfo judges the answer to a HEAD.
func (c *call) headInfo(resp *http.Response) (*origin.Info, error) {
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent, http.StatusNotModified:
		return nil, badAnswer("%d to a plain HEAD", resp.StatusCode)
	default:
		return nil, c.answerError(resp)
	}
	if resp.ContentLength < 0 {
		return nil, badAnswer("HEAD answered without Content-Length")
	}
	info := &origin.Info{Size: resp.ContentLength}
	if err := c.info(resp, info, true); err != nil {
		return nil, err
	}
	return info, nil
}

// parseContentRange parses "bytes first-last/size", all three of them numbers (RFC 9110 section 14.4).
func parseContentRange(s string) (first, last, size int64, ok bool) {
	const unit = "bytes "
	if len(s) < len(unit) || !strings.EqualFold(s[:len(unit)], unit) {
		return 0, 0, 0, false
	}
	span, total, ok1 := strings.Cut(s[len(unit):], "/")
	from, to, ok2 := strings.Cut(span, "-")
	first, ok3 := digits(from)
	last, ok4 := digits(to)
	size, ok5 := digits(total)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || first > last || last >= size {
		return 0, 0, 0, false
	}
	return first, last, size, true
}

// digits parses digits and nothing else.
func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// info fills in what headers tell of a version; whole says whether the answer was about all of it, so that checksums in
// it are the object's own.
func (c *call) info(resp *http.Response, i *origin.Info, whole bool) error {
	for _, name := range []string{"Etag", "Last-Modified", "X-Amz-Version-Id"} {
		values := resp.Header[name]
		if len(slices.Compact(slices.Clone(values))) > 1 {
			return badAnswer("%d differing values of %s", len(values), name)
		}
	}
	i.ETag = resp.Header.Get("Etag")
	i.LastModified = resp.Header.Get("Last-Modified")
	if t, err := http.ParseTime(i.LastModified); err == nil {
		i.Modified = t.UTC()
	}
	i.VersionID = resp.Header.Get("X-Amz-Version-Id")
	i.Confirmed, i.Received = c.sent.Add(-age(resp.Header)), c.received
	for name, values := range resp.Header {
		var list *[]origin.Header
		switch classify(name) {
		case headerKept:
			list = &i.Headers
		case headerVolatile:
			list = &i.Volatile
		case headerChecksum:
			if whole {
				list = &i.Checksums
			}
		}
		if list != nil {
			for _, v := range values {
				*list = append(*list, origin.Header{Name: name, Value: v})
			}
		}
	}
	sortHeaders(i.Headers)
	sortHeaders(i.Volatile)
	sortHeaders(i.Checksums)
	// All reads ask for checksums. Servers differ in whether a part that is the whole tells them, so their absence from
	// one says nothing.
	i.ChecksumsKnown = whole && (resp.StatusCode != http.StatusPartialContent || len(i.Checksums) > 0)
	return nil
}

// age is the time that an answer has spent in caches (RFC 9111 section 5.1); what is no number counts as none.
func age(h http.Header) time.Duration {
	const most = 1 << 31 // seconds (RFC 9111 section 1.2.2)
	s := strings.TrimSpace(h.Get("Age"))
	if n, ok := digits(s); ok {
		return time.Duration(min(n, most)) * time.Second
	}
	if s != "" && strings.Trim(s, "0123456789") == "" { // more digits than 63 bits hold
		return most * time.Second
	}
	return 0
}

func sortHeaders(h []origin.Header) {
	slices.SortStableFunc(h, func(a, b origin.Header) int { return cmp.Compare(a.Name, b.Name) })
}

type headerClass uint8

const (
	headerDropped  headerClass = iota // of one request or requester, or unknown
	headerKept                        // the version's own
	headerVolatile                    // can change under one ETag
	headerChecksum                    // of the body it came with
)

// classify sorts the headers of an answer about an object. What is not known is dropped: a header of one requester that
// is kept for others is a leak, one that is missing is a gap. ETag, Last-Modified and x-amz-version-id are not listed;
// Info has fields for them.
func classify(name string) headerClass {
	switch name {
	case "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires",
		"X-Amz-Website-Redirect-Location",
		"X-Amz-Missing-Meta": // number of metadata entries that no HTTP header can hold
		return headerKept
	case "X-Amz-Storage-Class", "X-Amz-Restore", "X-Amz-Expiration", "X-Amz-Replication-Status", "X-Amz-Archive-Status":
		return headerVolatile
	}
	switch {
	case strings.HasPrefix(name, "X-Amz-Meta-"):
		return headerKept
	case strings.HasPrefix(name, "X-Amz-Server-Side-Encryption-Customer-"):
		return headerDropped
	case strings.HasPrefix(name, "X-Amz-Server-Side-Encryption"):
		return headerKept
	case strings.HasPrefix(name, "X-Amz-Checksum-"):
		return headerChecksum
	}
	return headerDropped
}

// answerError makes an *origin.Error of an answer, reading its body. A success of another kind than was asked for, and what
// is no status, is none: passed on it would look like the object.
func (c *call) answerError(resp *http.Response) error {
	if resp.StatusCode < 300 || resp.StatusCode > 599 {
		return badAnswer("status %d", resp.StatusCode)
	}
	s := c.newStream(resp, true)
	p, err := io.ReadAll(io.LimitReader(s, origin.MaxErrorBody+1))
	if err != nil && c.parent.Err() != nil {
		return c.parent.Err()
	}
	// A body that broke off is passed on as far as it came: it is the status that matters.
	if err := c.judgeSignature(resp, p); err != nil {
		return err
	}
	e := &origin.Error{Status: resp.StatusCode, Body: p[:min(len(p), origin.MaxErrorBody)], Code: parseError(p).Code}
	for name, values := range resp.Header {
		if errorHeader(name) {
			for _, v := range values {
				e.Header = append(e.Header, origin.Header{Name: name, Value: v})
			}
		}
	}
	sortHeaders(e.Header)
	return e
}

// errorHeader says whether a header of an error answer goes on to the client with it.
func errorHeader(name string) bool {
	switch name {
	case "Allow", "Content-Encoding", "Content-Language", "Content-Range", "Content-Type", "Etag", "Last-Modified",
		"Location", "Retry-After", "Www-Authenticate":
		return true
	}
	return strings.HasPrefix(name, "X-Amz-")
}

// errorDocument is the body of an S3 error.
type errorDocument struct {
	XMLName xml.Name `xml:"Error"`
	Code    string   // letters and digits, "" for none
	Message string   // of the origin, for the log
}

// parseError reads an S3 error document; what is none has no code.
func parseError(p []byte) (doc errorDocument) {
	if !bytes.Contains(p, []byte("<Error")) {
		return errorDocument{}
	}
	if err := xml.Unmarshal(p, &doc); err != nil || len(doc.Code) > 64 {
		return errorDocument{}
	}
	for i := range len(doc.Code) {
		if c := doc.Code[i]; !isAlnum(c) && c != '.' && c != '-' && c != '_' {
			return errorDocument{}
		}
	}
	return doc
}
