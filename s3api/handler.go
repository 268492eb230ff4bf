package s3api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
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
	// RefuseRouted: this is a gateway. What is meant for a node of a cluster is answered by 508.
	RefuseRouted bool
	// Snapshot, of a gateway, names the nodes that it reads from, for answers to reads.
	Snapshot func() string
	// Wrote, if set, is called when a write may have changed objects, all of one bucket, and before its answer goes out where
	// that is short; stored says that they were stored, as opposed to deleted. The answer waits for it.
	Wrote func(objects []origin.Object, stored bool)
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
	forwards  atomic.Int64 // of them, those being forwarded
	instance  string       // as it stands in Via
	originTLS bool
	ready     func() bool
	accessLog bool
	snapshot  func() string // nil where there is none
	wrote     func(objects []origin.Object, stored bool)
	metrics   *metrics
	logger    *slog.Logger
	purger    purger // nil where the engine is none

	refuseRouted bool

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
	m, err := newMetrics(c.Registerer)
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
		snapshot:  c.Snapshot,
		wrote:     c.Wrote,

		refuseRouted: c.RefuseRouted,

		checksums:  newChecksums(),
		cacheNames: newCacheNames(),
	}
	h.auth.Store(auth)
	h.purger, _ = c.Gateway.(purger)
	if h.limits.MinRate <= 0 {
		h.limits.MinRate = defaultMinRate
	}
	if c.InstanceID != "" {
		h.instance = viaPrefix + c.InstanceID
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
	if len(r.TransferEncoding) > 0 {
		// The request may have had a Content-Length too, which net/http doesn't tell. Something in front of us may have
		// gone by that, and what it takes for the next request is part of this one, or the reverse (RFC 9112 section
		// 6.1).
		w.Header()["Connection"] = []string{"close"}
	}
	if h.serveProbe(w, r) {
		return
	}
	x := exchanges.Get().(*exchange)
	*x = exchange{h: h, w: w, rc: *http.NewResponseController(w), r: r, start: time.Now(), op: &invalidOperation,
		pace: newPace(h.limits.MinRate)}
	if r.Body != nil && r.Body != http.NoBody {
		x.body = newPacedBody(r.Body, &x.rc, h.limits.MinRate)
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
		x.err = err
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
	x.err = e
	if e == errSlowDown {
		x.set(errorHeader, "node")
	}
	if x.body != nil {
		x.set("Connection", "close")
		x.body.hurry()
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
	via, ok := h.path(x.r)
	if !ok {
		return errLoop
	}
	x.via = via
	if endpoint := h.ownEndpoint(x.r); endpoint != nil {
		return endpoint(x)
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
	if op.form {
		return errPostForm
	}

	// By whom, and whether they may. Before anything about the object is known, let alone revealed.
	if x.who, err = h.auth.Load().identify(x.r); err == nil {
		x.judgeVendorHeaders()
		err = x.authorize()
	}
	if err == nil {
		err = x.hear()
	}
	if err != nil {
		if x.body != nil && x.who.accessKey == "" {
			x.body.hurry() // of a stranger
		}
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
		x.bypasses(x.forwardedFor(read))
		if x.heard.onlyIfCached {
			return errNotCached
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
	x.rawQuery = ""
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
	if r.Body != nil && r.Body != http.NoBody { // net/http reads on for a while, after the answer where that is the last
		w.Header()["Connection"] = []string{"close"}
		_ = rc.SetReadDeadline(time.Now().Add(unwantedPatience))
	}
	w.Header()["Cache-Control"] = []string{"no-store"}
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(status)
	return true
}
