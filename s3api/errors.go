package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// Error is a refusal in S3's own words. Its text is for the client; what the log needs to know besides is in Cause.
type Error struct {
	Status  int           // HTTP, 400 to 599
	Code    string        // of S3's list of error codes, e.g. "NoSuchKey"
	Message string        // one sentence, S3's own where there is one
	Fields  []sigv4.Field // further XML elements, in order; values may hold any byte
	Header  []origin.Header
	Cause   error // nil, or what happened; it is logged and never sent
}

// Error returns code, message and cause: a text for the log.
func (e *Error) Error() string {
	s := e.Code + ": " + e.Message
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes a failed condition match gateway.ErrUnsatisfied, so that it is not answered on remembered info alone.
func (e *Error) Is(target error) bool {
	return target == gateway.ErrUnsatisfied && e.Status == http.StatusPreconditionFailed
}

// The refusals that carry nothing of the request. They are shared, so nobody may change them.
var (
	errAccessDenied = &Error{Status: 403, Code: "AccessDenied", Message: "Access Denied"}
	errInvalidURI   = &Error{Status: 400, Code: "InvalidURI", Message: "Couldn't parse the specified URI."}
	errMethod       = &Error{Status: 405, Code: "MethodNotAllowed",
		Message: "The specified method is not allowed against this resource."}
	errLoop = &Error{Status: 508, Code: "LoopDetected",
		Message: "The request came back to this instance: its origin leads to itself."}
	errPostForm = &Error{Status: 501, Code: "NotImplemented", Message: "Uploads by HTML form are not implemented."}
	errPlainSSE = &Error{Status: 400, Code: "InvalidRequest",
		Message: "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure " +
			"connection, and the connection to the origin is not one."}
	errPlainClientSSE = &Error{Status: 400, Code: "InvalidRequest",
		Message: "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure " +
			"connection."}
	errOverrides = &Error{Status: 400, Code: "InvalidRequest",
		Message: "Request specific response headers cannot be used for anonymous GET requests."}
	errMalformedXML = &Error{Status: 400, Code: "MalformedXML",
		Message: "The XML you provided was not well-formed or did not validate against our published schema"}
	errIncompleteBody = &Error{Status: 400, Code: "IncompleteBody",
		Message: "You did not provide the number of bytes specified by the Content-Length HTTP header"}
	errSlowDown = &Error{Status: 503, Code: "SlowDown", Message: "Please reduce your request rate.",
		Header: []origin.Header{{Name: "Retry-After", Value: "1"}}}
	errHeaderSection = &Error{Status: 400, Code: "RequestHeaderSectionTooLarge",
		Message: "Your request header section exceeds the maximum allowed size."}
	errSlowUpload = &Error{Status: 400, Code: "RequestTimeout",
		Message: "Your socket connection to the server was not read from or written to within the timeout period. Idle " +
			"connections will be closed."}
	errInternal = &Error{Status: 500, Code: "InternalError",
		Message: "We encountered an internal error. Please try again."}
)

func errBucketName(name string) *Error {
	return &Error{Status: 400, Code: "InvalidBucketName", Message: "The specified bucket is not valid.",
		Fields: []sigv4.Field{{Name: "BucketName", Value: name}}}
}

func errKeyTooLong(n int) *Error {
	return &Error{Status: 400, Code: "KeyTooLongError", Message: "Your key is too long",
		Fields: []sigv4.Field{{Name: "Size", Value: strconv.Itoa(n)}, {Name: "MaxSizeAllowed", Value: strconv.Itoa(maxKey)}}}
}

func errArgument(message, name, value string) *Error {
	return &Error{Status: 400, Code: "InvalidArgument", Message: message,
		Fields: []sigv4.Field{{Name: "ArgumentName", Value: name}, {Name: "ArgumentValue", Value: value}}}
}

func errCopySource(message, value string) *Error {
	return errArgument(message, "x-amz-copy-source", value)
}

func errPrecondition(header string) *Error {
	return &Error{Status: 412, Code: "PreconditionFailed",
		Message: "At least one of the pre-conditions you specified did not hold.",
		Fields:  []sigv4.Field{{Name: "Condition", Value: header}}}
}

// errNotModified is the answer to a true If-None-Match or a false If-Modified-Since: a 304, told from info.
type errNotModified struct{ info *origin.Info }

func (e *errNotModified) Error() string { return "not modified" }

// refusal translates what ended a request into S3's words. Answers of the origin (*origin.Error) are passed on instead.
func (x *exchange) refusal(err error) *Error {
	var own *Error
	var signature *sigv4.Error
	var rng *gateway.RangeError
	var down *gateway.DownError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &signature):
		return &Error{Status: signature.Status, Code: signature.Code, Message: signature.Message, Fields: signature.Fields}
	case errors.Is(err, gateway.ErrNotCached):
		return errNotCached
	case errors.As(err, &rng):
		size := strconv.FormatInt(rng.Size, 10)
		return &Error{Status: 416, Code: "InvalidRange", Message: "The requested range is not satisfiable",
			Fields: []sigv4.Field{
				{Name: "RangeRequested", Value: x.r.Header.Get("Range")},
				{Name: "ActualObjectSize", Value: size},
			},
			// RFC 9110 section 15.5.17.
			Header: []origin.Header{{Name: "Content-Range", Value: "bytes */" + size}}}
	case errors.As(err, &down):
		e := unavailable("The origin is down. Please try again.", err)
		e.Header = []origin.Header{{Name: "Retry-After", Value: formatInt(max(1, int64((down.RetryAfter+time.Second-1)/time.Second)))}}
		return e
	case errors.Is(err, origin.ErrChanged):
		// The engine pins versions, the client's own conditions don't reach the origin: a 412 of the origin is not one
		// for the client.
		return unavailable("The object changed while it was being read. Please try again.", err)
	case errors.Is(err, origin.ErrCredentials):
		return unavailable("The origin does not accept the credentials of this cache.", err)
	case errors.Is(err, origin.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return unavailable("The origin did not answer in time. Please try again.", err)
	case errors.Is(err, origin.ErrBadAnswer) && errors.Is(err, io.ErrUnexpectedEOF):
		return unavailable("The answer of the origin broke off. Please try again.", err)
	case errors.Is(err, origin.ErrBadAnswer):
		return &Error{Status: 502, Code: errInternal.Code, Message: errInternal.Message, Cause: err}
	}
	return unavailable("The origin could not be reached. Please try again.", err)
}

// unavailable is what SDKs retry with backoff.
func unavailable(message string, cause error) *Error {
	return &Error{Status: 503, Code: "ServiceUnavailable", Message: message, Cause: cause,
		Header: []origin.Header{{Name: "Retry-After", Value: "1"}}}
}

// unspoken gives words to an answer of the origin that came without any, as answers to HEAD do.
func (x *exchange) unspoken(e *origin.Error) *Error {
	out := &Error{Status: e.Status, Code: e.Code, Cause: e}
	switch {
	case out.Code != "":
	case e.Status == 404 && x.object.VersionID != "":
		out.Code = "NoSuchVersion"
	case e.Status == 404:
		out.Code = "NoSuchKey"
	case e.Status == 403:
		out.Code = "AccessDenied"
	case e.Status == 405:
		out.Code = "MethodNotAllowed"
	case e.Status == 416:
		out.Code = "InvalidRange"
	case e.Status == 429, e.Status == 503:
		out.Code = "SlowDown"
	case e.Status >= 500:
		out.Code = "InternalError"
	case e.Status >= 400:
		out.Code = "InvalidRequest"
	default:
		out.Code = "TemporaryRedirect"
	}
	switch out.Code {
	case "NoSuchKey":
		out.Message = "The specified key does not exist."
		out.Fields = []sigv4.Field{{Name: "Key", Value: x.object.Key}}
	case "NoSuchVersion":
		out.Message = "The specified version does not exist."
		out.Fields = []sigv4.Field{{Name: "Key", Value: x.object.Key}, {Name: "VersionId", Value: x.object.VersionID}}
	case "NoSuchBucket":
		out.Message = "The specified bucket does not exist"
		out.Fields = []sigv4.Field{{Name: "BucketName", Value: x.object.Bucket}}
	case "AccessDenied":
		out.Message = errAccessDenied.Message
	case "MethodNotAllowed":
		out.Message = errMethod.Message
	default:
		out.Message = "The origin answered " + strconv.Itoa(e.Status) + "."
	}
	return out
}

// fail answers a request that ended in err. Nothing is said twice: once headers are out, and where the client is gone,
// all that is left is to cut the connection.
func (x *exchange) fail(err error) {
	if x.status != 0 {
		x.abort(err)
	}
	if x.body != nil && x.body.slow.Load() {
		// net/http takes the client for gone, but it is only slow, and may be told so.
		x.h.metrics.shed[shedSlowUpload].Inc()
		x.shed(errSlowUpload)
		return
	}
	if x.r.Context().Err() != nil {
		// To return here would send an empty 200 where the server, not the client, gave up.
		x.status = statusClientGone
		x.abort(x.r.Context().Err())
	}
	var stale *gateway.StaleError
	if errors.As(err, &stale) {
		x.cache = cacheStale
	}
	var unmodified *errNotModified
	if errors.As(err, &unmodified) {
		x.answerNotModified(unmodified.info)
		return
	}
	var absent *gateway.AbsentError
	if errors.As(err, &absent) {
		x.cache = cacheNegative
		x.set("Age", formatInt(int64(absent.Age/time.Second)))
	}
	var answer *origin.Error
	if errors.As(err, &answer) && !errors.Is(err, origin.ErrChanged) {
		x.passOn(answer)
		if failed(answer.Status) {
			x.warn("request failed", err)
		}
		return
	}
	refusal := x.refusal(err)
	var signature *sigv4.Error
	if errors.Is(err, context.Canceled) || errors.Is(err, gateway.ErrPanic) || errors.Is(err, origin.ErrCredentials) ||
		errors.As(err, &signature) || refusal == errAccessDenied {
		// The client is still there: the engine has been closed, or failed by itself, or has credentials that are no good.
		// Or the client was refused here, and not by the origin.
		x.set(errorHeader, "node")
	}
	x.identify()
	// Of our credentials the origin's client warns, once for all requests.
	if failed(refusal.Status) && refusal != errNotCached && !errors.Is(err, origin.ErrCredentials) {
		x.warn("request failed", refusal)
	}
	x.writeError(refusal)
}

// failed says whether a status is of a failure on our side of the client: 501 and 508 are its own trouble.
func failed(status int) bool { return status >= 500 && status != 501 && status != 508 }

// passOn sends an error of the origin as it came.
func (x *exchange) passOn(e *origin.Error) {
	h := x.w.Header()
	h["Content-Type"] = nil
	for _, l := range e.Header {
		// The length is that of the body in hand, which may be cut or missing, and Date is now.
		if name := http.CanonicalHeaderKey(l.Name); passes(name) && name != "Content-Length" && name != "Date" {
			h[name] = append(h[name], l.Value)
		}
	}
	if len(e.Body) == 0 && e.Status >= 400 {
		x.writeError(x.unspoken(e))
		return
	}
	x.begin(e.Status, int64(len(e.Body)))
	if x.r.Method != http.MethodHead && bodyAllowed(e.Status) {
		x.finishBody(x.Write(e.Body))
	}
}

// writeError sends an error as S3 does.
func (x *exchange) writeError(e *Error) {
	for _, l := range e.Header {
		x.set(l.Name, l.Value)
	}
	x.set("Content-Type", "application/xml")
	delete(x.w.Header(), "Content-Encoding")
	x.identify()
	if x.r.Method == http.MethodHead {
		x.begin(e.Status, -1)
		return
	}
	body := e.document(x.object.resource(), x.id, x.hostID)
	x.begin(e.Status, int64(len(body)))
	x.finishBody(x.Write(body))
}

// document is the XML of S3's REST errors.
func (e *Error) document(resource, id, hostID string) []byte {
	var b bytes.Buffer
	b.Grow(512)
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error>")
	element := func(name, value string) {
		b.WriteString("<" + name + ">")
		_ = xml.EscapeText(&b, []byte(value)) // a bytes.Buffer does not fail
		b.WriteString("</" + name + ">")
	}
	element("Code", e.Code)
	element("Message", e.Message)
	for _, f := range e.Fields {
		element(f.Name, f.Value)
	}
	element("Resource", resource)
	element("RequestId", id)
	element("HostId", hostID)
	b.WriteString("</Error>")
	return b.Bytes()
}

// logText is the text of an error for the log, less the URL of a *url.Error: a query can carry what must not be logged.
func logText(err error) string {
	text := err.Error()
	var u *url.Error
	if errors.As(err, &u) {
		text = strings.ReplaceAll(text, u.Error(), u.Op+": "+u.Err.Error())
	}
	return text
}
