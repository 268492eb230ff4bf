package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
)

var errBodyClosed = errors.New("client: read of a closed body")

// body is the body of a read: the bodies of routing units one after the other, several of them asked for ahead. What is
// ahead is received as it comes where there is room for it (ahead.go); else it waits in its connection.
type body struct {
	c         *Client
	ctx       context.Context // ends with the caller's, the client and Close
	cancel    context.CancelFunc
	object    origin.Object
	key       cluster.Key
	firstByte time.Duration
	start     int64 // first byte that was asked for
	pinned    bool  // by the caller

	closed atomic.Bool
	opened chan struct{} // closed when the response is out: what parts there are is settled, and size and etag stay

	mu    sync.Mutex // held by Read and Close, and not needed before the response is out
	etag  string     // that pins the version; "" when there is none
	size  int64      // of the object, once known
	parts []*part    // being read or ahead, in order
	next  int64      // first byte that no part asks for
	end   int64      // behind the last byte wanted
	err   error      // what Read goes on to return
}

// part is what is read of one routing unit. What says so is guarded by mu, because the timer of a stalled body looks at
// it; all else belongs to whoever holds body.mu.
type part struct {
	b      *body
	ctx    context.Context
	cancel context.CancelFunc
	q      *question
	ready  chan struct{} // closed when the first reply has come
	whole  bool          // not of a unit, but all there is to read
	ahead

	mu    sync.Mutex
	off   int64    // next byte to be read; guarded by mu
	r     *reply   // guarded by mu once ready
	tried []string // IDs of nodes asked; guarded by mu once ready

	end   int64 // behind the last byte
	watch *watch
}

// part adds the part that begins at b.next.
func (b *body) part() *part {
	unit := b.c.cfg.BlockSize
	end := b.end
	if left := unit - b.next%unit; end-b.next > left {
		end = b.next + left
	}
	t := &part{b: b, q: b.question(b.next, end), off: b.next, end: end, ready: make(chan struct{}),
		ahead: ahead{received: make(chan struct{})}}
	t.ctx, t.cancel = context.WithCancel(b.ctx)
	b.parts = append(b.parts, t)
	b.next = end
	return t
}

// start asks for the part, and receives it ahead of its Read.
func (t *part) start() {
	t.b.c.spawn(func() {
		t.r = t.b.c.route(t.ctx, t.q, &t.tried)
		close(t.ready)
		t.receive()
	})
}

// reply waits for the first answer.
func (t *part) reply() (*reply, error) {
	<-t.ready // which ends with the context
	return t.r, t.r.err
}

// fill asks for parts as far ahead as a read may.
func (b *body) fill() {
	for len(b.parts) < b.c.cfg.ReadWindow && b.next < b.end {
		b.part().start()
	}
}

// single asks one node, the one that the first part was asked of if it can be, for everything by one request, in place
// of all parts.
func (b *body) single(opts origin.GetOptions) (*reply, error) {
	b.drop(0)
	opts.FirstByte = b.firstByte
	q := b.question(opts.Offset, opts.Offset+opts.Length)
	q.opts, q.whole = opts, true
	t := &part{b: b, q: q, off: opts.Offset, ready: make(chan struct{}), whole: true,
		ahead: ahead{received: make(chan struct{})}}
	t.skip()
	t.ctx, t.cancel = context.WithCancel(b.ctx)
	b.parts = []*part{t}
	t.start()
	return t.reply()
}

// arrived tells what the first answer brings: bytes [off, end).
func (b *body) arrived(off, end int64) {
	first := b.parts[0]
	first.off, first.end = off, min(end, b.end)
	for i, t := range b.parts {
		if i > 0 && (t.off >= b.end || first.end == b.end) { // asked for before it was known what there is
			b.drop(i)
			break
		}
		t.end = min(t.end, b.end)
	}
	if first.end == b.end {
		b.next = b.end
	}
	b.pass()
}

// drop gives up all parts from the i-th on, without waiting for their answers.
func (b *body) drop(i int) {
	for _, t := range b.parts[i:] {
		t.cancel()
		b.c.spawn(t.close)
	}
	b.parts = b.parts[:i]
}

// pass leaves parts behind that have been read.
func (b *body) pass() {
	for len(b.parts) > 0 && b.parts[0].over() {
		b.parts[0].close()
		b.parts = b.parts[1:]
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.closed.Load():
			return 0, errBodyClosed
		case b.err != nil:
			return 0, b.err
		case len(b.parts) == 0:
			b.err = io.EOF
			return 0, b.err
		case len(p) == 0:
			return 0, nil
		}
		n, err := b.parts[0].read(p)
		if err != nil {
			if b.ctx.Err() != nil && !b.closed.Load() {
				err = ended(b.ctx)
			}
			if errors.Is(err, origin.ErrChanged) && !b.pinned {
				b.confirm()
			}
			b.err = err
		} else {
			b.pass()
			b.fill()
		}
		if n > 0 {
			return n, nil
		}
	}
}

// confirm has the node that told of a version which is gone ask its origin, so that the next read begins with the one
// that is there now, and not only when the node's ttl is over. The Read that failed waits for it, but not for long.
func (b *body) confirm() {
	q := &question{unit: b.key.Unit(b.start / b.c.cfg.BlockSize), object: b.object, head: true,
		opts: origin.GetOptions{NoCache: true, FirstByte: b.firstByte}}
	var tried []string
	ctx, cancel := context.WithTimeout(b.ctx, confirmFor)
	defer cancel()
	b.c.route(ctx, q, &tried).close()
}

// Close may be called at any time and more than once. It waits for nothing but a Read that it ends.
func (b *body) Close() error {
	b.closed.Store(true)
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(0)
	return nil
}

// close gives back what the part holds.
func (t *part) close() {
	<-t.ready
	t.wanted.Store(true)
	<-t.received
	t.free(t.b.c)
	t.r.close()
	t.cancel()
}

// over says whether all of the part has been read.
func (t *part) over() bool {
	select {
	case <-t.received:
		return t.off >= t.end && len(t.held) == 0 && t.err == nil
	default:
		return false
	}
}

// read reads on: what has been received ahead, and then what comes.
func (t *part) read(p []byte) (int, error) {
	t.wanted.Store(true)
	<-t.received
	switch {
	case len(t.held) > 0:
		n := copy(p, t.held)
		if t.held = t.held[n:]; len(t.held) == 0 {
			t.free(t.b.c)
		}
		return n, nil
	case t.err != nil:
		return 0, t.err
	}
	return t.get(p)
}

// get reads on from a node, from another one where that breaks off.
func (t *part) get(p []byte) (int, error) {
	for {
		switch {
		case t.r.err != nil:
			return 0, t.r.err
		case t.r.resp.Info.Size != t.b.size:
			return 0, fmt.Errorf("%w: ETag %s has %d bytes and %d bytes", origin.ErrChanged, t.b.etag, t.b.size,
				t.r.resp.Info.Size)
		}
		n, err := t.take(p[:min(int64(len(p)), t.end-t.off)])
		if n > 0 {
			t.mu.Lock()
			t.off += int64(n)
			t.mu.Unlock()
			if t.r.n != nil {
				t.r.n.bytes.Add(float64(n))
			}
			return n, nil
		}
		if err == nil {
			continue
		}
		if err := t.resume(err); err != nil {
			return 0, err
		}
	}
}

// resume asks another node for what is missing, because of what broke the body off.
func (t *part) resume(cause error) error {
	b, old := t.b, t.r
	if errors.Is(cause, io.EOF) {
		cause = io.ErrUnexpectedEOF
	}
	switch {
	case b.ctx.Err() != nil:
		return ended(b.ctx)
	case old.n == nil: // the fallback's
		return cause
	}
	if errors.Is(cause, origin.ErrTimeout) { // a node cuts bodies off for its origin's sake too: no fault of its own
		old.lease.Failed(cluster.Timeout, cause)
	}
	b.c.metrics.errors.WithLabelValues(old.lease.Node.ID, whyBody).Inc()
	if b.etag == "" || t.whole {
		return cause
	}
	tried := slices.Clone(t.tried)
	r := b.c.route(t.ctx, b.question(t.off, t.end), &tried)
	if r.err != nil {
		r.close()
		if errors.Is(r.err, cluster.ErrNoNodes) {
			return cause
		}
		return r.err
	}
	t.change(r, tried)
	return nil
}

// change goes on with another reply.
func (t *part) change(r *reply, tried []string) {
	t.b.c.metrics.resumptions.Inc()
	t.r.close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r, t.tried = r, tried
}

// watch is a timer that runs while a body is waited for, and the other body that is asked for when it ends.
type watch struct {
	timer *time.Timer
	spent time.Duration // waiting, since the last progress
	got   int           // bytes since then
	over  chan struct{} // closed when the Read has ended, after the timer
	other chan *rescue  // gets one after the timer has ended
}

// rescue is a second body of what a stalled one has not delivered. r is nil when there is none.
type rescue struct {
	r     *reply
	tried []string
}

// A body must bring progress bytes within dripFor, or the time after which a hedge is sent where that is more: to drip is
// to stand still. A node is not held to blame, since it may be the link that many parts share.
const (
	progress = 4 << 10
	dripFor  = time.Second
)

// confirmFor bounds how long a Read that fails waits for nodes to confirm what is there now.
const confirmFor = time.Second

// take is one Read of the body. While it stalls, and there is leave to hedge, another node is asked for the same bytes;
// if its answer comes first, the part goes on with that, and take returns 0, nil.
func (t *part) take(p []byte) (int, error) {
	after, ok := t.b.c.cfg.Hedge.After()
	if !ok || t.b.etag == "" || t.whole || t.r.n == nil {
		return t.r.resp.Body.Read(p)
	}
	w := t.watch
	if w == nil {
		w = &watch{over: make(chan struct{}), other: make(chan *rescue, 1)}
		w.timer = time.AfterFunc(after, func() { w.other <- t.rescue(w.over, after) })
		t.watch = w
	} else {
		if w.spent >= max(after, dripFor) {
			w.spent, w.got = 0, 0
			over := make(chan struct{})
			close(over) // no Read waits: if there is no leave now, the body goes on
			if s := t.rescue(over, after); s.r != nil {
				t.change(s.r, s.tried)
				t.b.c.metrics.hedgesWon.Inc()
				return 0, nil
			}
		}
		w.timer.Reset(after)
	}
	began := time.Now()
	n, err := t.r.resp.Body.Read(p)
	if w.timer.Stop() {
		w.spent += time.Since(began)
		if w.got += n; w.got >= progress {
			w.spent, w.got = 0, 0
		}
		return n, err
	}
	close(w.over)
	t.watch = nil
	if n > 0 {
		t.b.c.spawn(func() {
			if s := <-w.other; s.r != nil {
				s.r.close()
			}
		})
		return n, nil
	}
	s := <-w.other
	if s.r == nil {
		return 0, err
	}
	t.rescued(s)
	return 0, nil
}

// rescued goes on with what another node was asked for because of a stall.
func (t *part) rescued(s *rescue) {
	t.r.lease.Failed(cluster.LostHedge, nil)
	t.b.c.metrics.hedgesWon.Inc()
	t.change(s.r, s.tried)
}

// rescue asks another node for what is missing of the part, and ends the Read of the stalled body when it has an
// answer. Until that Read is over it tries again, since there may be no leave yet, or no node that is well.
func (t *part) rescue(over <-chan struct{}, after time.Duration) *rescue {
	c := t.b.c
	t.mu.Lock()
	stalled := t.r.resp.Body
	node := t.r.lease.Node.ID
	q := t.b.question(t.off, t.end)
	t.mu.Unlock()
	for {
		if done, ok := c.cfg.Hedge.Begin(); ok {
			c.metrics.hedgesSent.Inc()
			tried := []string{node} // what failed before it may be well by now
			r := c.route(t.ctx, q, &tried)
			done()
			if r.err == nil {
				_ = stalled.Close()
				return &rescue{r, tried}
			}
			r.close()
			// The version is gone, most likely: the stalled node alone may have it still. Or it is us that others refuse.
			if !r.again || errors.Is(r.err, origin.ErrCredentials) {
				return &rescue{}
			}
		}
		select {
		case <-over:
			return &rescue{}
		case <-t.ctx.Done():
			return &rescue{}
		case <-time.After(after):
		}
	}
}
