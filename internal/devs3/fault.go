package devs3

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/internal/latencies"
)

// Fault spoils the answer of one request. Its parts work together: a delayed 206 with a wrong Content-Range whose body
// is reset half-way is one Fault. The constructors below make the usual ones.
type Fault struct {
	// Delay passes before anything else happens. It ends early when the client goes.
	Delay time.Duration
	// Hold, if not nil, is waited for after Delay: until it is closed, or the client goes.
	Hold <-chan struct{}

	// Status, if not 0, answers with this status, Header and Body, and does nothing else...
	Status int
	Header http.Header
	Body   []byte
	// Apply carries the request out all the same and throws its answer away, before Status, or before Break where that
	// breaks off before the headers: "failed, but applied".
	Apply bool

	// IgnoreRange answers as if the request had no Range.
	IgnoreRange bool
	// Edit, if not nil, may change the true answer's headers and returns the status to send, usually the one given.
	Edit func(status int, h http.Header) int
	// Resize changes the length of the body, Content-Length with it and nothing else: negative cuts bytes off the end,
	// positive adds zero bytes.
	Resize int64
	// Break, if not nil, breaks the answer off.
	Break *Break
	// CloseIdle closes the connection after a proper answer that did not announce it, as a server does that is tired of
	// an idle connection.
	CloseIdle bool
}

// Break says where and how an answer breaks off.
type Break struct {
	// BeforeHeaders breaks off before anything was sent. After is not looked at.
	BeforeHeaders bool
	// After is how many bytes of the body are sent first.
	After int64
	Kind  BreakKind
	// Until ends a BreakStall when it is closed: the answer goes on. nil never does.
	Until <-chan struct{}
	// Call is what a BreakCall calls.
	Call func()
}

// BreakKind is how an answer breaks off.
type BreakKind int

// The kinds of Break.
const (
	// BreakReset resets the TCP connection (RST). Bytes on their way may be lost.
	BreakReset BreakKind = iota
	// BreakClose closes it in order (FIN): the body is shorter than its Content-Length.
	BreakClose
	// BreakStall sends nothing more until Break.Until is closed or the client goes.
	BreakStall
	// BreakCall calls Break.Call and goes on: an overwrite there leaves the answer at its version.
	BreakCall
)

// Respond answers with an S3 error. retryAfter goes out as Retry-After when it is not "".
func Respond(status int, code, retryAfter string) *Fault {
	h := http.Header{"Content-Type": {"application/xml"}}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &Fault{Status: status, Header: h,
		Body: []byte(xmlHeader + "<Error><Code>" + code + "</Code><Message>Fault on purpose.</Message></Error>")}
}

// ResetBeforeHeaders resets the connection instead of answering.
func ResetBeforeHeaders() *Fault { return &Fault{Break: &Break{BeforeHeaders: true}} }

// ResetAfter resets the connection after n bytes of the body.
func ResetAfter(n int64) *Fault { return &Fault{Break: &Break{After: n}} }

// ShortBody ends the connection in order after n bytes of the body, fewer than Content-Length says.
func ShortBody(n int64) *Fault { return &Fault{Break: &Break{After: n, Kind: BreakClose}} }

// StallAfter sends nothing after n bytes of the body until the channel is closed or the client goes.
func StallAfter(n int64, until <-chan struct{}) *Fault {
	return &Fault{Break: &Break{After: n, Kind: BreakStall, Until: until}}
}

// StallBeforeHeaders sends nothing until the channel is closed or the client goes.
func StallBeforeHeaders(until <-chan struct{}) *Fault { return &Fault{Hold: until} }

// Silent never answers: the connection is accepted, the request is taken, and that is all.
func Silent() *Fault { return &Fault{Hold: make(chan struct{})} }

// CallAfter calls f in the middle of an answer, after n bytes of the body: to overwrite the object that is being read.
func CallAfter(n int64, f func()) *Fault {
	return &Fault{Break: &Break{After: n, Kind: BreakCall, Call: f}}
}

// Burst is a function for Server.Fault that gives the next n requests a fault, and leaves all later ones alone: Respond
// with 500 InternalError or 503 SlowDown is what an S3 under load does.
func Burst(n int64, f *Fault) func(*http.Request) *Fault {
	var given atomic.Int64
	return func(*http.Request) *Fault {
		if given.Add(1) > n {
			return nil
		}
		return f
	}
}

// Latencies is one that delays every answer by what l draws.
func Latencies(l *latencies.Source) func(*http.Request) *Fault {
	return func(*http.Request) *Fault { return &Fault{Delay: l.Draw()} }
}

// IgnoreRange answers 200 with the whole object to a ranged request.
func IgnoreRange() *Fault { return &Fault{IgnoreRange: true} }

// ContentRange replaces the Content-Range of a 206; "" removes it.
func ContentRange(value string) *Fault {
	return replaceHeader("Content-Range", value, http.StatusPartialContent)
}

// ETag replaces the ETag of 200, 206 and 304 answers, e.g. by a weak one; "" removes it.
func ETag(value string) *Fault {
	return replaceHeader("ETag", value, http.StatusOK, http.StatusPartialContent, http.StatusNotModified)
}

// NotModifiedWithoutETag removes the ETag of a 304, as some servers do.
func NotModifiedWithoutETag() *Fault { return replaceHeader("ETag", "", http.StatusNotModified) }

func replaceHeader(name, value string, statuses ...int) *Fault {
	return &Fault{Edit: func(status int, h http.Header) int {
		for _, s := range statuses {
			if s == status {
				h.Del(name)
				if value != "" {
					h.Set(name, value)
				}
			}
		}
		return status
	}}
}

// edit applies what a fault changes in the headers.
func (f *Fault) edit(status int, h http.Header) int {
	if f.Edit != nil {
		status = f.Edit(status, h)
	}
	if n := contentLength(h); n >= 0 && f.Resize != 0 {
		h.Set("Content-Length", strconv.FormatInt(max(0, n+f.Resize), 10))
	}
	return status
}

func (c *call) serveFault(f *Fault) {
	ctx := c.r.Context()
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	wait(ctx, f.Hold)
	before := f.Break != nil && f.Break.BeforeHeaders
	if f.Apply && (f.Status != 0 || before) {
		applied := *c
		applied.w = &writer{w: discard{}, c: &applied, left: -1}
		applied.serve()
	}
	if before {
		f.Break.run(c.w)
	}
	c.w.fault = f
	if f.Break != nil && !before {
		c.w.left = f.Break.After
	}
	c.answer(f)
	if f.CloseIdle {
		c.w.hangUp(false)
	}
}

// answer serves the request with the fault in place, body resized.
func (c *call) answer(f *Fault) {
	if f.Resize != 0 {
		inner := c.w.w
		c.w.w = &resizer{ResponseWriter: inner, grow: f.Resize}
		defer func() { c.w.w.(*resizer).finish(c.w); c.w.w = inner }()
	}
	if f.Status == 0 {
		c.ignoreRange = f.IgnoreRange
		c.serve()
		return
	}
	h := c.w.Header()
	for name, values := range f.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	h.Set("Content-Length", strconv.Itoa(len(f.Body)))
	c.w.WriteHeader(f.Status)
	if c.r.Method != http.MethodHead {
		c.w.Write(f.Body)
	}
}

// resizer cuts or lengthens a body. The Content-Length was changed by Fault.edit.
type resizer struct {
	http.ResponseWriter
	grow int64
	left int64 // bytes that may still be written
	init bool
}

func (r *resizer) Write(p []byte) (int, error) {
	if !r.init {
		r.left, r.init = max(0, contentLength(r.Header())), true
	}
	n := min(int64(len(p)), r.left)
	r.left -= n
	if _, err := r.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (r *resizer) finish(w *writer) {
	if r.grow > 0 && r.init && w.c.r.Method != http.MethodHead {
		r.ResponseWriter.Write(make([]byte, r.left))
	}
}

// Unwrap is for http.ResponseController.
func (r *resizer) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// run breaks off. Only a stall and a call return.
func (b *Break) run(w *writer) {
	if b.Kind == BreakCall {
		b.Call()
		return
	}
	if b.Kind == BreakStall {
		http.NewResponseController(w.w).Flush()
		wait(w.c.r.Context(), b.Until)
		if w.c.r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	if !b.BeforeHeaders {
		http.NewResponseController(w.w).Flush()
	}
	w.hangUp(b.Kind == BreakReset)
	panic(http.ErrAbortHandler)
}

// hangUp closes the connection, by RST or FIN, after what was written. Where the connection can't be had (HTTP/2, a
// recorder) the request is aborted instead.
func (w *writer) hangUp(reset bool) {
	ctl := http.NewResponseController(w.w)
	if w.status != 0 {
		ctl.Flush()
	}
	conn, _, err := ctl.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if reset {
		raw := conn
		if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
			raw = t.NetConn()
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			tcp.SetLinger(0)
			tcp.Close()
			return
		}
	}
	conn.Close()
}

// wait returns when ch is closed or the context ends. A nil channel does not wait at all.
func wait(ctx context.Context, ch <-chan struct{}) {
	if ch == nil {
		return
	}
	select {
	case <-ch:
	case <-ctx.Done():
	}
}

// discard throws an answer away.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) WriteHeader(int)             {}
func (discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
