package s3origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// call is one request to the origin, from its start until its body is closed. It owns the context under which the
// connection works.
type call struct {
	o      *Origin
	op     string
	parent context.Context // of whoever asked
	ctx    context.Context // parent's child; its cause is one of the errors below when it was ended here
	cancel context.CancelCauseFunc
	once   sync.Once

	sent, received time.Time // when the request went out, and its answer's headers were here
}

// Causes that a call's context is ended with.
var (
	errFirstByte = errors.New("no answer in time")
	errIdle      = errors.New("no more bytes in time")
	errClosed    = errors.New("s3origin: read of a closed body")
)

func (o *Origin) start(ctx context.Context, op string) *call {
	c := &call{o: o, op: op, parent: ctx}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	o.metrics.inFlight.Inc()
	return c
}

// end releases what the call holds. Only the first call counts.
func (c *call) end() {
	c.once.Do(func() {
		c.cancel(errClosed)
		c.o.metrics.inFlight.Dec()
	})
}

// read sends a request for an object and returns its answer, headers within firstByte if that is set.
func (c *call) read(method string, obj origin.Object, h http.Header, firstByte time.Duration) (*http.Response, error) {
	if obj.Bucket == "" || obj.Key == "" {
		return nil, errors.New("s3origin: an object needs a bucket and a key")
	}
	rawKey := obj.Raw
	if rawKey == "" {
		rawKey = encode(obj.Key, true)
	}
	var params []param
	if obj.VersionID != "" {
		params = []param{{name: "versionId", value: obj.VersionID}}
	}
	req := &http.Request{Method: method, Header: h}
	if c.o.creds != nil {
		h["X-Amz-Content-Sha256"] = []string{emptyHash}
	}
	if firstByte <= 0 {
		return c.send(req, obj.Bucket, rawKey, canonicalQuery(params), params)
	}
	// The bound covers all that can keep the answer from coming: credentials, connecting, the origin.
	t := time.AfterFunc(firstByte, func() { c.cancel(errFirstByte) })
	resp, err := c.send(req, obj.Bucket, rawKey, canonicalQuery(params), params)
	if !t.Stop() && err == nil { // just too late: the connection is being torn down
		_ = resp.Body.Close()
		return nil, errFirstByte
	}
	return resp, err
}

// send addresses, signs and sends req, whose URL is not set yet. query is sent as it is; params are its contents.
func (c *call) send(req *http.Request, bucket, rawKey, query string, params []param) (*http.Response, error) {
	host, path, err := c.o.endpoint.place(bucket, rawKey)
	if err != nil {
		return nil, err
	}
	if err := checkTarget(path, query); err != nil {
		return nil, err
	}
	canonical, err := canonicalPath(path)
	if err != nil {
		return nil, err
	}
	req.URL = c.o.url(host, path)
	req.URL.RawQuery = query
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	if err := c.o.sign(c.ctx, req, canonical, canonicalQuery(params)); err != nil {
		return nil, err
	}
	// Only RoundTrip: an http.Client would follow redirects.
	c.sent = time.Now()
	resp, err := c.o.sender.RoundTrip(req.WithContext(c.ctx))
	if err != nil {
		return nil, err
	}
	c.received = time.Now()
	c.o.metrics.answered(c.op, resp.StatusCode, c.received.Sub(c.sent))
	if resp.StatusCode < 400 || resp.StatusCode == http.StatusNotFound {
		c.o.accepted()
	}
	return resp, nil
}

// fail ends a call that got no answer, and returns the error as package origin words it.
func (c *call) fail(err error) error {
	var refused *origin.Error
	if errors.As(err, &refused) { // of our own making: nothing was sent
		c.end()
		return err
	}
	why, err := c.explain(err)
	c.end()
	c.o.metrics.requests.WithLabelValues(c.op, "none").Inc()
	c.o.metrics.errors.WithLabelValues(why).Inc()
	return err
}

// explain finds out why a call without answer failed.
func (c *call) explain(err error) (why string, _ error) {
	var (
		timeout net.Error
		creds   *credentialsError
	)
	switch {
	case c.parent.Err() != nil && errors.Is(context.Cause(c.parent), origin.ErrTimeout):
		return whyTimeout, context.Cause(c.parent)
	case c.parent.Err() != nil:
		return whyCanceled, c.parent.Err()
	case context.Cause(c.ctx) == errFirstByte || errors.Is(err, errFirstByte):
		return whyTimeout, fmt.Errorf("%w: %w", origin.ErrTimeout, errFirstByte)
	case errors.As(err, &creds):
		return whyCredentials, err
	case errors.As(err, &timeout) && timeout.Timeout():
		return whyTimeout, fmt.Errorf("%w: %w", origin.ErrTimeout, err)
	case isConnect(err):
		return whyConnect, fmt.Errorf("s3origin: connecting: %w", err)
	}
	return whyBroken, fmt.Errorf("s3origin: %w", err)
}

// refuse ends a call whose answer is not one that was asked for, and returns err.
func (c *call) refuse(resp *http.Response, obj origin.Object, err error) error {
	if errors.Is(err, origin.ErrBadAnswer) {
		c.o.metrics.errors.WithLabelValues(whyBadAnswer).Inc()
		c.o.log.Debug("unusable answer from "+c.o.name, "object", obj.String(), "operation", c.op,
			"status", resp.StatusCode, "error", err)
	}
	c.discard(resp)
	return err
}

// discard ends a call whose answer's body is not wanted or has been read.
func (c *call) discard(resp *http.Response) {
	_ = resp.Body.Close()
	c.end()
}

// stream is the body of an answer as it comes, each Read bounded in time, bytes and errors counted.
type stream struct {
	c      *call
	rc     io.ReadCloser
	idle   *time.Timer // nil: no bound
	closed atomic.Bool
	failed bool
}

// newStream wraps an answer's body. bounded says whether Config.Idle applies.
func (c *call) newStream(resp *http.Response, bounded bool) *stream {
	s := &stream{c: c, rc: resp.Body}
	if bounded {
		s.idle = time.AfterFunc(c.o.idle, func() { c.cancel(errIdle) })
		s.idle.Stop()
	}
	return s
}

func (s *stream) Read(p []byte) (int, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	if s.idle != nil {
		s.idle.Reset(s.c.o.idle)
	}
	n, err := s.rc.Read(p)
	if s.idle != nil {
		s.idle.Stop()
	}
	if n > 0 {
		s.c.o.metrics.bytes.Add(float64(n))
	}
	if err != nil && err != io.EOF {
		err = s.explain(err)
	}
	return n, err
}

// explain says why the body ended before its end.
func (s *stream) explain(err error) error {
	why := whyShort
	switch {
	case s.closed.Load():
		return errClosed
	case s.c.parent.Err() != nil && errors.Is(context.Cause(s.c.parent), origin.ErrTimeout):
		err, why = context.Cause(s.c.parent), whyTimeout
	case s.c.parent.Err() != nil:
		err, why = s.c.parent.Err(), whyCanceled
	case context.Cause(s.c.ctx) == errIdle:
		err, why = fmt.Errorf("%w: %w", origin.ErrTimeout, errIdle), whyTimeout
	case err == io.ErrUnexpectedEOF:
	default: // a reset, broken chunks
		err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	if !s.failed {
		s.failed = true
		s.c.o.metrics.errors.WithLabelValues(why).Inc()
	}
	return err
}

// Close may be called while a Read waits, which it ends. What was not read costs the connection.
func (s *stream) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	s.c.end()
	_ = s.rc.Close()
	return nil
}

// body is the body of an object's answer: exactly as many bytes as were promised, or an error.
type body struct {
	s    *stream
	mu   sync.Mutex // held by Read, so that Close knows whether one waits
	left int64      // bytes still to come
	end  bool       // the other side's end of body has been seen
	err  error      // what Read goes on to return
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s.closed.Load() {
		return 0, errClosed
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.left == 0 {
		b.finish()
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := b.s.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.end = err == io.EOF
	switch {
	case err != nil && !b.end:
		b.err = err
		return n, b.err
	case b.left > 0 && b.end:
		b.err = b.s.explain(io.ErrUnexpectedEOF)
		return n, b.err
	case b.left == 0:
		// The last bytes are handed out only when the end is known to be right behind them: io.ReadFull and others
		// drop an error that comes with all they wanted.
		if b.finish(); b.err != io.EOF {
			return 0, b.err
		}
		return n, nil
	}
	return n, nil
}

// finish makes sure that nothing comes after the last byte, and sets err. Where Content-Length framed the body the end
// is known already and nothing is read.
func (b *body) finish() {
	if b.err != nil {
		return
	}
	var more [1]byte
	for !b.end {
		n, err := b.s.Read(more[:])
		switch {
		case n > 0:
			b.err = fmt.Errorf("%w: the body is longer than its Content-Range", origin.ErrBadAnswer)
			b.s.c.o.metrics.errors.WithLabelValues(whyBadAnswer).Inc()
			return
		case err != nil && err != io.EOF:
			b.err = err
			return
		}
		b.end = err == io.EOF
	}
	b.err = io.EOF
}

// A remainder of at most drainMax bytes is read in Close, for no longer than drainFor, so that the connection can be
// used again.
const (
	drainMax = 64 << 10
	drainFor = 20 * time.Millisecond
)

// Close may be called at any time and more than once.
func (b *body) Close() error {
	if !b.s.closed.Load() && b.mu.TryLock() {
		if b.err == nil && b.left <= drainMax {
			t := time.AfterFunc(drainFor, func() { b.s.c.cancel(errClosed) })
			n, _ := io.CopyN(io.Discard, b.s.rc, b.left+1) // beyond the last byte, to see the end
			t.Stop()
			b.s.c.o.metrics.bytes.Add(float64(n))
		}
		b.mu.Unlock()
	}
	return b.s.Close()
}
