package s3api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
	"github.com/prometheus/client_golang/prometheus"
)

// Reader is what the handler needs of the read engine; *gateway.Gateway is one.
type Reader interface {
	Open(ctx context.Context, r gateway.Request) (*gateway.Object, error)
	Invalidate(o origin.Object)
}

// Forwarder sends requests that are not object reads to the origin. Implementations are safe for concurrent use.
type Forwarder interface {
	// Forward sends a client's request, signed anew with the origin's credentials, and returns the origin's answer with
	// its body unread; the caller closes it. bucket "" is the service itself; rawKey is the percent-encoded key exactly
	// as the client spelled it, "" at bucket level. Of r are used Method, URL.RawQuery, Header, Body, ContentLength and
	// TransferEncoding; r is not changed. No redirect is followed, and the client's own authentication, hop-by-hop
	// headers and X-Ashlar-* don't reach the origin.
	Forward(ctx context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error)
}

// Config assembles a Handler.
type Config struct {
	Gateway Reader    // answers object reads; required
	Forward Forwarder // answers everything else; required

	// Domains are the host names whose subdomains are buckets ("s3.example.com" makes bucket.s3.example.com one). A host
	// that is none of them and below none is path-style.
	Domains []string
	Region  string // that signatures must name; "" accepts any
	Auth    Auth   // until SetAuth
	Limits  Limits

	// InstanceID names this process: a request that carries "ashlar-<InstanceID>" in Via has been here and is refused.
	InstanceID string
	// OriginTLS says that the connection to the origin is encrypted. Where it is not, requests that carry the client's
	// own encryption keys (SSE-C) are refused.
	OriginTLS bool
	// Ready answers GET /-/ready: 200 or 503. nil is always ready.
	Ready func() bool

	AccessLog  bool                  // one line per request, at level info
	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
}

// Handler answers S3 requests. It is safe for concurrent use. It is made for the root of a server: it reads the raw
// request target, so nothing in front of it may clean or redirect paths, as http.ServeMux does.
type Handler struct {
	gateway   Reader
	forwarder Forwarder
	hosts     hosts
	table     *table
	region    string
	auth      atomic.Pointer[authority] // replaced as a whole by SetAuth
	limits    Limits
	inFlight  atomic.Int64 // requests being served
	instance  string       // as it stands in Via
	originTLS bool
	ready     func() bool
	accessLog bool
	metrics   *metrics
	logger    *slog.Logger
	purger    purger // nil where the engine is none

	checksums  []checksum
	cacheNames cacheNames
	buffers    sync.Pool // of *[copyBuffer]byte, for forwarded bodies
}

// New returns a Handler.
func New(c Config) (*Handler, error) {
	if c.Gateway == nil || c.Forward == nil {
		return nil, errors.New("s3api: a gateway and a forwarder are required")
	}
	auth, err := newAuthority(c.Auth, c.Region)
	if err != nil {
		return nil, fmt.Errorf("s3api: %w", err)
	}
	hosts, err := newHosts(c.Domains)
	if err != nil {
		return nil, fmt.Errorf("s3api: %w", err)
	}
	table := newTable()
	m, err := newMetrics(c.Registerer, table)
	if err != nil {
		return nil, fmt.Errorf("s3api: %w", err)
	}
	h := &Handler{
		gateway:   c.Gateway,
		forwarder: c.Forward,
		hosts:     hosts,
		table:     table,
		region:    c.Region,
		limits:    c.Limits,
		originTLS: c.OriginTLS,
		ready:     c.Ready,
		accessLog: c.AccessLog,
		metrics:   m,
		logger:    c.Logger,

		checksums:  newChecksums(),
		cacheNames: newCacheNames(),
	}
	h.auth.Store(auth)
	h.purger, _ = c.Gateway.(purger)
	if h.limits.MinRate <= 0 {
		h.limits.MinRate = defaultMinRate
	}
	if c.InstanceID != "" {
		h.instance = "ashlar-" + c.InstanceID
	}
	if h.ready == nil {
		h.ready = func() bool { return true }
	}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	h.buffers.New = func() any { return new([copyBuffer]byte) }
	return h, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.serveProbe(w, r) {
		return
	}
	x := &exchange{h: h, w: w, rc: http.NewResponseController(w), r: r, start: time.Now(), op: &invalidOperation,
		pace: newPace(h.limits.MinRate)}
	if r.Body != nil && r.Body != http.NoBody {
		x.body = newPacedBody(r.Body, x.rc, h.limits.MinRate)
		// In a copy: net/http looks at the type of the body in its own, to tell whether the client is still to be asked for it.
		x.r = r.WithContext(r.Context())
		x.r.Body = x.body
	}
	n := h.inFlight.Add(1)
	h.metrics.inFlight.Inc()
	defer x.end()
	if err := h.admit(r, n); err != nil {
		x.shed(err)
		return
	}
	if err := h.serve(x); err != nil {
		x.fail(err)
	}
}

// admit decides whether the n-th of the requests being served is served at all. It comes first, and costs next to
// nothing.
func (h *Handler) admit(r *http.Request, n int64) *Error {
	if h.limits.Requests > 0 && n > int64(h.limits.Requests) {
		h.metrics.shed[shedRequests].Inc()
		return errSlowDown
	}
	if h.limits.Headers > 0 {
		lines := 0
		for _, values := range r.Header {
			lines += len(values)
		}
		if lines > h.limits.Headers {
			h.metrics.shed[shedHeaders].Inc()
			return errHeaderSection
		}
	}
	return nil
}

// shed answers a request that isn't served. Where it has a body, the connection goes too: that is cheaper than reading
// what nobody wants.
func (x *exchange) shed(e *Error) {
	if x.body != nil {
		x.set("Connection", "close")
	}
	x.writeError(e)
}

// SetAuth replaces who may do what, all at once: each request is judged by what held when it began. The new keys count
// at once, and what was derived from the old ones is forgotten. On an error nothing has changed. Safe for concurrent use.
func (h *Handler) SetAuth(a Auth) error {
	auth, err := newAuthority(a, h.region)
	if err != nil {
		return fmt.Errorf("s3api: %w", err)
	}
	if old := h.auth.Swap(auth); old.verifier != nil {
		old.verifier.Forget()
	}
	return nil
}

// serve is the path of one request. An error means that it is to be answered as an error, unless headers are out.
func (h *Handler) serve(x *exchange) error {
	if h.looped(x.r) {
		return errLoop
	}
	if h.ownEndpoint(x.r) {
		return h.invalidate(x)
	}

	// What is asked for, of what. The raw target is authoritative: nothing has been cleaned.
	var err error
	if x.query, err = x.resolve(); err != nil {
		return err
	}
	if x.preflight() {
		return x.forwardPreflight()
	}
	x.amz = scanAmz(x.r.Header, x.query)
	op := h.table.classify(x.r.Method, x.object.level(), x.query, &x.amz)
	if op == nil {
		return errMethod
	}
	x.op = op
	switch {
	case op.form:
		return errPostForm
	case x.amz.badSource:
		return errCopySource
	}

	// By whom, and whether they may. Before anything about the object is known, let alone revealed.
	if x.who, err = h.auth.Load().identify(x.r); err != nil {
		return err
	}
	if err := x.authorize(); err != nil {
		return err
	}

	if x.amz.customKey && x.r.TLS == nil {
		return errPlainClientSSE
	}

	// Object reads that blocks can answer are served, everything else is the origin's.
	if x.op.read {
		read, ok, err := x.plainRead()
		if err != nil {
			return err
		}
		if ok {
			return x.serveObject(read)
		}
	}
	return x.forward()
}

// preflight says whether a request is a browser's question whether a page of another site may send a request
// (CORS-preflight request of the Fetch standard). Such a question can't be signed.
func (x *exchange) preflight() bool {
	h := x.r.Header
	return x.r.Method == http.MethodOptions && x.object.level() != atService && len(h["Origin"]) == 1 &&
		len(h["Access-Control-Request-Method"]) == 1
}

// forwardPreflight lets the origin answer a preflight, whoever asks: the answer is the bucket's CORS configuration, and
// says nothing of objects. The request is signed with the origin's credentials, so no more of it is passed on than the
// question: no query, no body, no other headers.
func (x *exchange) forwardPreflight() error {
	x.op = x.h.table.classify(http.MethodOptions, x.object.level(), nil, &x.amz)
	r := x.r.Clone(x.r.Context())
	r.URL.RawQuery = ""
	r.Header = make(http.Header)
	for _, name := range [...]string{"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers",
		"User-Agent"} {
		if v, ok := x.r.Header[name]; ok {
			r.Header[name] = v
		}
	}
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	x.r = r
	return x.forward()
}

// serveProbe answers the health checks, which are nobody's objects: a bucket can't be called "-". Requests to a
// bucket's own host name are not theirs.
func (h *Handler) serveProbe(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.RequestURI, "/-/") || h.hosts.bucket(r.Host) != "" {
		return false
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	ok := true
	switch path {
	case "/-/health":
	case "/-/ready":
		ok = h.ready()
	default:
		return false
	}
	status := http.StatusOK
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		status = http.StatusMethodNotAllowed
	case !ok:
		status = http.StatusServiceUnavailable
	}
	// A client that takes nothing holds its connection no longer than others do. An error means that the transport knows
	// no deadlines.
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(patience))
	if r.Body != nil && r.Body != http.NoBody { // net/http reads the rest of a body before it answers
		_ = rc.SetReadDeadline(time.Now().Add(patience))
	}
	w.Header()["Cache-Control"] = []string{"no-store"}
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(status)
	return true
}

// looped says whether a request has been here before. Each hop writes "1.1 ashlar-<id>" (RFC 9110 section 7.6.3).
func (h *Handler) looped(r *http.Request) bool {
	if h.instance == "" {
		return false
	}
	for _, line := range r.Header["Via"] {
		for hop := range strings.SplitSeq(line, ",") {
			if f := strings.Fields(hop); len(f) >= 2 && f[1] == h.instance {
				return true
			}
		}
	}
	return false
}

// exchange is one request and its answer. It belongs to the goroutine of the request.
type exchange struct {
	h     *Handler
	w     http.ResponseWriter
	rc    *http.ResponseController
	r     *http.Request
	start time.Time

	object address
	query  sigv4.Query
	amz    amz
	op     *operation // never nil
	who    identity
	body   *pacedBody // of the request, nil for none
	pace   pace       // of the client taking the answer

	id, hostID string // x-amz-request-id and x-amz-id-2, "" until identify
	cache      string // X-Ashlar-Cache, "" where it does not apply
	status     int    // of the answer, 0 until headers are out
	written    int64  // bytes of the body so far

	// Values of headers of the answer: each needs a slice, and they are parts of one.
	values []string
	room   [20]string
}

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
	var id [16]byte
	for i, b := range raw[:8] {
		id[2*i], id[2*i+1] = upper[b>>4], upper[b&15]
	}
	x.id, x.hostID = string(id[:]), base64.StdEncoding.EncodeToString(raw[:])
	x.set("X-Amz-Request-Id", x.id)
	x.set("X-Amz-Id-2", x.hostID)
}

// set sets a header of the answer. name is canonical.
func (x *exchange) set(name, value string) {
	if x.values == nil {
		x.values = x.room[:0]
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
	n, err := x.w.Write(p)
	x.pace.passed(n, time.Since(begin))
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
	cause := "client"
	if x.r.Context().Err() == nil && (errors.Is(err, gateway.ErrInterrupted) || errors.Is(err, errAnswerBroken)) {
		cause = "origin"
		x.warn("answer cut short", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
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
			p = x.answerPanic()
		} else {
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
}

// answerPanic says 500 where nothing has been said, and returns what is left to panic with.
func (x *exchange) answerPanic() (left any) {
	defer func() { left = recover() }()
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
