package s3api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// exchange is one request and its answer. It belongs to the goroutine of the request.
type exchange struct {
	h    *Handler
	w    http.ResponseWriter
	conn *gatherConn // that takes the body itself; nil while net/http does
	// Where the head leaves together with the body: the connection, the head, and whether it has lines that net/http does
	// not know.
	gathers *gatherConn
	head    *head
	apart   bool
	rc      http.ResponseController
	sends   body // that send hands over
	r       *http.Request
	start   time.Time

	object   address
	rawQuery string
	query    sigv4.Query // rawQuery, parsed
	amz      amz
	via      []string   // names of our own that it came by
	op       *operation // never nil
	who      identity
	heard    heard
	body     *pacedBody // of the request, nil for none
	pace     pace       // of the client taking the answer

	id, hostID string // x-amz-request-id and x-amz-id-2, "" until identify
	cache      string // X-Ashlar-Cache, "" where it does not apply
	status     int    // of the answer, 0 until headers are out
	written    int64  // bytes of the body so far, as far as the connection took them
	err        error  // what ended the request, nil for nothing
	code       string // that the body of an error began with
	cut        string // why the connection was cut, "" if it wasn't
	served     bool   // from blocks, to the end

	values []string // of headers of the answer: each needs a slice, and they are parts of one
}

// exchanges lends exchanges to requests that are answered from blocks, of which nothing is left when that is done. What
// belongs to others may be in the hands of a transport that is late.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// statusClientGone stands in logs and metrics for a request whose client left before it was answered. It is never sent.
const statusClientGone = 499

// resolve finds out which object, bucket or service the raw target names.
func (x *exchange) resolve() (sigv4.Query, error) {
	rawPath, rawQuery, ok := sigv4.SplitTarget(x.r.RequestURI)
	if !ok {
		return nil, errInvalidURI
	}
	var err error
	if x.object, err = x.h.hosts.resolve(x.r.Host, rawPath); err != nil {
		return nil, err
	}
	x.rawQuery = rawQuery
	if rawQuery == "" {
		return nil, nil
	}
	q, err := sigv4.ParseQuery(rawQuery)
	if err != nil {
		return nil, errInvalidURI
	}
	if x.object.level() == atObject {
		x.object.VersionID, _ = q.Get("versionId")
	}
	return q, nil
}

// identify makes sure that the answer carries request ids: those that are in the headers already, or fresh ones.
func (x *exchange) identify() {
	// From here on bytes may go out, by Flush too, and a client that takes none must not hold the request for ever.
	x.extend(0)
	if x.body != nil {
		x.body.bound()
	}
	if x.id != "" {
		return
	}
	h := x.w.Header()
	if v := h["X-Amz-Request-Id"]; len(v) > 0 && v[0] != "" {
		x.id = v[0]
		if v := h["X-Amz-Id-2"]; len(v) > 0 {
			x.hostID = v[0]
		}
		return
	}
	// One random number is both: 16 hex digits, and a longer form as S3 has it.
	var raw [24]byte
	for i := 0; i < len(raw); i += 8 {
		binary.BigEndian.PutUint64(raw[i:], rand.Uint64())
	}
	const upper = "0123456789ABCDEF"
	var ids [16 + 32]byte
	for i, b := range raw[:8] {
		ids[2*i], ids[2*i+1] = upper[b>>4], upper[b&15]
	}
	base64.StdEncoding.Encode(ids[16:], raw[:])
	both := string(ids[:])
	x.id, x.hostID = both[:16], both[16:]
	x.set("X-Amz-Request-Id", x.id)
	x.set("X-Amz-Id-2", x.hostID)
}

// set sets a header of the answer. name is canonical.
func (x *exchange) set(name, value string) {
	if x.line(name, value) {
		return
	}
	name = wireName(name)
	if x.values == nil {
		n := 20
		if x.apart {
			n = 2
		}
		x.values = make([]string, 0, n)
	}
	x.values = append(x.values, value)
	n := len(x.values)
	x.w.Header()[name] = x.values[n-1 : n : n]
}

// begin sends the status and the headers set so far. length is that of the body, or -1 where it isn't said.
func (x *exchange) begin(status int, length int64) {
	x.identify()
	if length >= 0 {
		x.set("Content-Length", formatInt(length))
	} else {
		delete(x.w.Header(), "Content-Length")
	}
	if x.cache != "" {
		x.set("X-Ashlar-Cache", x.cache)
	}
	x.status = status
	x.w.WriteHeader(status)
}

// extend gives the client the time that it has for the next n bytes, and returns when that began. Who takes them more
// slowly is cut off, so that it doesn't hold blocks for ever.
func (x *exchange) extend(n int) time.Time {
	now := time.Now()
	// An error here means that the transport knows no deadlines, as in tests of handlers.
	_ = x.rc.SetWriteDeadline(now.Add(x.pace.allow(n)))
	return now
}

// Write sends a piece of the body.
func (x *exchange) Write(p []byte) (int, error) {
	begin := x.extend(len(p))
	n, err := x.out().Write(p)
	x.pace.passed(n, time.Since(begin))
	if x.written == 0 && x.status >= 400 {
		x.code = codeIn(p)
	}
	x.written += int64(n)
	return n, err
}

// finishBody ends a body of one piece.
func (x *exchange) finishBody(_ int, err error) {
	if err != nil {
		x.abort(err)
	}
}

// abort cuts the connection (HTTP/1.1) or the stream (HTTP/2), so that a short answer never looks complete.
func (x *exchange) abort(err error) {
	x.identify()
	x.err, x.cut = err, cutByClient
	cause := cutByClient
	if x.r.Context().Err() == nil && (errors.Is(err, gateway.ErrInterrupted) || errors.Is(err, errAnswerBroken)) {
		cause, x.cut = cutByOrigin, cutByOrigin
		x.warn("answer cut short", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.cut = cutForSlow
		x.h.metrics.shed[shedSlowDownload].Inc()
	}
	x.h.metrics.aborted[cause].Inc()
	panic(http.ErrAbortHandler)
}

// end accounts for a request, and answers for a panic.
func (x *exchange) end() {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		x.h.logger.LogAttrs(context.WithoutCancel(x.r.Context()), slog.LevelError, "panic while serving a request",
			slog.String("operation", x.op.name), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		if x.status == 0 {
			clear(x.w.Header())
			x.gathers, x.head, x.apart = nil, nil, false
			p = x.answerPanic()
		} else {
			x.cut = cutByPanic
			p = http.ErrAbortHandler
		}
	}
	x.h.inFlight.Add(-1)
	x.h.metrics.observe(x)
	x.extend(0) // net/http writes what it has buffered once the handler is done
	if x.body != nil {
		x.body.end()
	}
	if x.h.accessLog {
		x.logAccess()
	}
	if p != nil {
		panic(http.ErrAbortHandler)
	}
	// A client that is still to be asked for its body sends none. Of an answer without length net/http has still to write
	// the end.
	if x.body != nil && x.r.Close && x.r.Header["Expect"] == nil && x.w.Header()["Content-Length"] != nil &&
		x.rc.Flush() == nil {
		x.body.drain()
	}
	if x.served && x.body == nil {
		*x = exchange{}
		exchanges.Put(x)
	}
}

// answerPanic says 500 where nothing has been said, and returns what is left to panic with.
func (x *exchange) answerPanic() (left any) {
	defer func() { left = recover() }()
	x.err = errInternal
	x.set(errorHeader, "node")
	x.writeError(errInternal)
	return nil
}

// warn logs what the client is not told.
func (x *exchange) warn(message string, err error) {
	x.h.logger.LogAttrs(x.r.Context(), slog.LevelWarn, message,
		slog.String("operation", x.op.name), slog.String("bucket", x.object.Bucket), slog.String("key", x.object.Key),
		slog.String("request_id", x.id), slog.String("error", logText(err)))
}

var _ io.Writer = (*exchange)(nil)
