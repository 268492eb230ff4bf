package devs3

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Error is a refusal in S3's words: what the XML body of an error answer says.
type Error struct {
	Status  int    // HTTP status
	Code    string // e.g. NoSuchKey
	Message string

	fields []field     // further elements, in order
	header http.Header // further headers; nil for none
}

type field struct{ name, value string }

func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message) }

func newError(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

// with adds an XML element.
func (e *Error) with(name, value string) *Error {
	e.fields = append(e.fields, field{name, value})
	return e
}

// withHeader adds a header.
func (e *Error) withHeader(name, value string) *Error {
	if e.header == nil {
		e.header = http.Header{}
	}
	e.header.Set(name, value)
	return e
}

// asError makes an internal error of what is none of S3's. Its text is for the log, not for the client.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return newError(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
}

func errNotImplemented() *Error {
	return newError(http.StatusNotImplemented, "NotImplemented",
		"A header or query you provided implies functionality that is not implemented.")
}

func errMethodNotAllowed() *Error {
	return newError(http.StatusMethodNotAllowed, "MethodNotAllowed",
		"The specified method is not allowed against this resource.")
}

func errInvalidURI() *Error {
	return newError(http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
}

func errInvalidBucketName(name string) *Error {
	return newError(http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid.").
		with("BucketName", name)
}

func errNoSuchBucket(name string) *Error {
	return newError(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist").with("BucketName", name)
}

func errNoSuchKey(key string) *Error {
	return newError(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.").with("Key", key)
}

func errNoSuchVersion(key, version string) *Error {
	return newError(http.StatusNotFound, "NoSuchVersion", "The specified version does not exist.").
		with("Key", key).with("VersionId", version)
}

func errNoSuchUpload(id string) *Error {
	return newError(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist. The upload ID may be "+
		"invalid, or the upload may have been aborted or completed.").with("UploadId", id)
}

func errAccessDenied(message string) *Error {
	return newError(http.StatusForbidden, "AccessDenied", message)
}

func errInvalidArgument(name, value, message string) *Error {
	return newError(http.StatusBadRequest, "InvalidArgument", message).
		with("ArgumentName", name).with("ArgumentValue", value)
}

func errInvalidRequest(message string) *Error {
	return newError(http.StatusBadRequest, "InvalidRequest", message)
}

func errPrecondition(condition string) *Error {
	return newError(http.StatusPreconditionFailed, "PreconditionFailed",
		"At least one of the pre-conditions you specified did not hold").with("Condition", condition)
}

func errMalformedXML() *Error {
	return newError(http.StatusBadRequest, "MalformedXML",
		"The XML you provided was not well-formed or did not validate against our published schema")
}

// writeError answers with e. An answer already begun can't become an error: its connection is broken off instead, so
// that it can't pass for a whole one.
func (c *call) writeError(e *Error) {
	if c.w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	h := c.w.Header()
	for name, values := range e.header {
		h[name] = values
	}
	h.Set("Content-Type", "application/xml")
	body := e.xml(c)
	if c.r.Method == http.MethodHead {
		c.w.WriteHeader(e.Status)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(e.Status)
	c.w.Write([]byte(body))
}

func (e *Error) xml(c *call) string {
	var b strings.Builder
	b.WriteString(xmlHeader + "<Error>")
	element(&b, "Code", e.Code)
	element(&b, "Message", e.Message)
	for _, f := range e.fields {
		element(&b, f.name, f.value)
	}
	resource := "/" + c.bucket
	if c.key != "" {
		resource += "/" + c.key
	}
	element(&b, "Resource", resource)
	element(&b, "RequestId", c.id)
	element(&b, "HostId", c.id2)
	b.WriteString("</Error>")
	return b.String()
}

const xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

// element writes <name>text</name>.
func element(b *strings.Builder, name, text string) {
	b.WriteString("<" + name + ">")
	escapeXML(b, text)
	b.WriteString("</" + name + ">")
}

// escapeXML writes control characters as references, as S3 does. XML 1.0 has no such characters, and parsers refuse
// them: that is why encoding-type=url exists.
func escapeXML(b *strings.Builder, text string) {
	for _, r := range text {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&quot;")
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(b, "&#x%x;", r)
		default:
			b.WriteRune(r)
		}
	}
}

// writeXML answers 200 with an XML body.
func (c *call) writeXML(body string) error {
	h := c.w.Header()
	h.Set("Content-Type", "application/xml")
	h.Set("Content-Length", strconv.Itoa(len(xmlHeader)+len(body)))
	c.w.WriteHeader(http.StatusOK)
	_, err := c.w.Write([]byte(xmlHeader + body))
	return abortOn(err)
}

// abortOn turns a failed write into nothing to report: the client has gone, and an error answer has no one to go to.
func abortOn(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
