package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/origin"
)

// span is a run of bytes of an object.
type span struct{ off, len int64 }

// cut returns the part of s that lies within an object of size bytes; its len is <= 0 when there is none.
func (s span) cut(size int64) span { return span{s.off, min(s.len, size-s.off)} }

func (s span) String() string { return fmt.Sprintf("bytes %d-%d", s.off, s.off+s.len-1) }

// blockID is a block's name as a map key.
type blockID struct {
	version blockstore.Version
	index   int64
}

// flight is a fetch group on its way from the origin: blocks [first, first+n) of one version by one GET. It belongs to
// no reader, so a reader that leaves fails nobody; one that nobody wants any more before it was sent is dropped. Blocks
// are handed out one by one as they are complete.
type flight struct {
	object origin.Object
	known  *known
	policy *Policy
	first  int64
	blocks []*pending // by index-first; nil for one that was already held or on its way by another flight
	ctx    context.Context
	cancel context.CancelFunc

	by      *read // the read that started it, nil for a probe's
	readers int   // reads that still want a block of it; guarded by Gateway.mu
	started bool  // sent, or about to be: no longer dropped; guarded by Gateway.mu
}

// pending is a block that is on its way.
type pending struct {
	flight  *flight
	done    chan struct{}     // closed when block or err is set; the pending has left the table by then
	waiters int               // readers that wait for done, each of whom will own a reference; guarded by Gateway.mu
	block   *blockstore.Block // set before done is closed
	err     error             // likewise
}

var (
	errDropped = errors.New("fetch dropped: nobody wants it any more")
	errShared  = errors.New("a fetch started for another read failed")
)

func newFlight(o origin.Object, k *known, p *Policy, first, n int64) *flight {
	return &flight{object: o, known: k, policy: p, first: first, blocks: make([]*pending, n)}
}

// last returns the index of the flight's last block.
func (f *flight) last() int64 { return f.first + int64(len(f.blocks)) - 1 }

func (f *flight) id(j int) blockID { return blockID{*f.known.version, f.first + int64(j)} }

// enter puts the flight's blocks into the table, but for those that are there or in memory already, and says whether any
// went in. g.mu is held.
func (g *Gateway) enter(f *flight) bool {
	any := false
	for j := range f.blocks {
		id := f.id(j)
		if g.pending[id] != nil || g.mem.Contains(blockstore.Key{Version: f.known.version, Index: id.index}) {
			continue
		}
		p := &pending{flight: f, done: make(chan struct{})}
		f.blocks[j] = p
		g.pending[id] = p
		any = true
	}
	return any
}

// start enters a flight for blocks [first, first+n), none of which is held or pending, and lets it go. g.mu is held.
func (g *Gateway) start(o origin.Object, k *known, p *Policy, first, n int64) *flight {
	f := newFlight(o, k, p, first, n)
	f.ctx, f.cancel = context.WithCancel(g.ctx)
	g.enter(f)
	g.wg.Go(func() { g.finish(f, func() error { return g.fetch(f) }) })
	return f
}

// abandon takes a reader off the flight. One that nobody wants and that has not been sent leaves the table at once, so
// that nobody joins what will never come. g.mu is held.
func (g *Gateway) abandon(f *flight) {
	f.readers--
	if f.readers > 0 || f.started {
		return
	}
	g.fail(f, errDropped)
	f.cancel()
}

// fail ends all blocks of f that are still pending. g.mu is held.
func (g *Gateway) fail(f *flight, err error) {
	for j, p := range f.blocks {
		if p == nil || p.block != nil || p.err != nil {
			continue
		}
		delete(g.pending, f.id(j))
		p.err = err
		close(p.done)
	}
}

// finish runs the work of a flight and leaves nobody waiting, whatever becomes of it.
func (g *Gateway) finish(f *flight, work func() error) {
	err := func() (err error) {
		defer g.recovered(f.object, &err)
		return work()
	}()
	f.cancel()
	if err == nil {
		return
	}
	g.mu.Lock()
	g.fail(f, err)
	g.mu.Unlock()
	if errors.Is(err, origin.ErrChanged) || errors.Is(err, origin.ErrNotFound) {
		g.infos.drop(f.object, f.known)
	}
	if !errors.Is(err, context.Canceled) {
		g.log.Warn("fetching from the origin failed", "object", f.object.String(), "first_block", f.first,
			"blocks", len(f.blocks), "error", err)
	}
}

// fetch queues for the origin and gets the flight's bytes.
func (g *Gateway) fetch(f *flight) error {
	if err := g.slots.Acquire(f.ctx, 1); err != nil {
		return err
	}
	defer g.slots.Release(1)
	g.mu.Lock()
	f.started = f.ctx.Err() == nil
	g.mu.Unlock()
	if !f.started {
		return f.ctx.Err()
	}
	ctx, cancel := f.policy.attempt(f.ctx)
	defer cancel()
	f.ctx = ctx

	v := f.known.version
	want := span{f.first * v.BlockSize, int64(len(f.blocks)) * v.BlockSize}.cut(v.Size)
	resp, err := g.get(ctx, f.object, origin.GetOptions{
		Offset: want.off, Length: want.len, IfMatch: f.known.pin(), FirstByte: f.policy.FirstByte,
	})
	if errors.Is(err, origin.ErrRange) {
		return fmt.Errorf("%w: %v is beyond its end now: %w", origin.ErrChanged, want, err)
	}
	if err != nil {
		return err
	}
	if err := f.check(resp, want); err != nil {
		_ = closeBody(resp)
		return err
	}
	return g.fill(f, resp)
}

// check compares an answer with what was asked of the pinned version (P2).
func (f *flight) check(resp *origin.Response, want span) error {
	pinned := f.known.info
	switch {
	case resp.NotModified:
		return fmt.Errorf("%w: 304 to an unconditional request", origin.ErrBadAnswer)
	case resp.Info.ETag != pinned.ETag:
		return fmt.Errorf("%w: ETag %s became %s", origin.ErrChanged, pinned.ETag, resp.Info.ETag)
	case !resp.Info.SameVersion(pinned) && !pinned.Strong():
		return fmt.Errorf("%w: size or Last-Modified is another", origin.ErrChanged)
	case resp.Info.Size != pinned.Size: // one of the two answers lied
		return fmt.Errorf("%w: ETag %s has %d bytes now, had %d", origin.ErrChanged, pinned.ETag, resp.Info.Size, pinned.Size)
	case !fits(resp, want):
		return fmt.Errorf("%w: asked for %v, got %d bytes from %d", origin.ErrBadAnswer, want, resp.Length, resp.Offset)
	}
	return nil
}

// fits says whether an answer brings just the bytes wanted, or is the whole object where these are its beginning.
func fits(resp *origin.Response, want span) bool {
	return resp.Offset == want.off && (resp.Length == want.len || want.off == 0 && resp.Length == resp.Info.Size)
}

// fill cuts the body into blocks and publishes each as soon as it is complete. It closes the body. The flight's slot in
// memory is one block at a time, and it holds none while it waits for the next.
func (g *Gateway) fill(f *flight, resp *origin.Response) (err error) {
	defer func() { _ = closeBody(resp) }()
	left := resp.Length
	for j, p := range f.blocks {
		key := blockstore.Key{Version: f.known.version, Index: f.first + int64(j)}
		n := key.Len()
		left -= n
		if p == nil {
			_, err = io.CopyN(io.Discard, resp.Body, n)
		} else {
			err = g.fillBlock(f, p, key, resp.Body, left == 0)
		}
		if err != nil {
			return g.bodyError(f.ctx, err)
		}
	}
	return nil
}

// fillBlock reads one block and publishes it. The last one is published only after the body has ended where it said.
func (g *Gateway) fillBlock(f *flight, p *pending, key blockstore.Key, body io.Reader, last bool) error {
	began := time.Now()
	b, err := g.mem.Alloc(f.ctx, key.Len())
	if err != nil {
		return fmt.Errorf("memory for %v: %w", key, err)
	}
	defer b.Release() // the filler's own reference, published or not, panic or not
	n, err := io.ReadFull(body, b.Buf())
	if err != nil {
		return err
	}
	if last {
		var more [1]byte
		if n, err := io.ReadFull(body, more[:]); n > 0 || !errors.Is(err, io.EOF) {
			if n > 0 {
				err = fmt.Errorf("%w: body longer than announced", origin.ErrBadAnswer)
			}
			return err
		}
	}
	b.Seal(key, n)
	g.mem.Put(b)
	g.mu.Lock()
	delete(g.pending, blockID{*key.Version, key.Index})
	b.Acquire(p.waiters)
	p.block = b
	close(p.done)
	g.mu.Unlock()
	g.metrics.blockSeconds.Observe(time.Since(began).Seconds())
	return nil
}

// bodyError names what went wrong in a body.
func (g *Gateway) bodyError(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: body ended early: %w", origin.ErrBadAnswer, io.ErrUnexpectedEOF)
	}
	return timedOut(ctx, err)
}

// get is Origin.Get with deadlines named as what they are.
func (g *Gateway) get(ctx context.Context, o origin.Object, opts origin.GetOptions) (*origin.Response, error) {
	resp, err := g.cfg.Origin.Get(ctx, o, opts)
	if err != nil {
		return nil, timedOut(ctx, err)
	}
	return resp, nil
}

func timedOut(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, origin.ErrTimeout) ||
		errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, origin.ErrTimeout) {
		return fmt.Errorf("%w: %w", origin.ErrTimeout, err)
	}
	return err
}

func closeBody(r *origin.Response) error {
	if r == nil || r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

// recovered turns a panic into an error, so that it strands nobody. To be deferred.
func (g *Gateway) recovered(o origin.Object, err *error) {
	if r := recover(); r != nil {
		g.log.Error("panic while fetching", "object", o.String(), "panic", r, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic while fetching %v: %v", o, r)
	}
}
