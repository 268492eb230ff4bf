package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"runtime/debug"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/internal/hedge"
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

// flight is a fetch group on its way from the origin, blocks [first, first+n) of one version by one GET, or one block on
// its way from the disk. It belongs to no reader, so a reader that leaves fails nobody; one that nobody wants any more
// before it was sent is dropped. Blocks are handed out one by one as they are complete.
type flight struct {
	object origin.Object
	known  *known
	fetch  *Fetch
	client string
	first  int64
	blocks []*pending // by index-first; nil for one that was already held or on its way by another flight
	next   int        // the first that is unfinished
	tries  int        // requests sent, hedges aside
	hedges int        // second requests that may still be sent
	ctx    context.Context
	cancel context.CancelFunc

	by      *read         // the read that started it, nil for a probe's
	disk    bool          // to be looked for on the disk first
	passed  chan struct{} // of what is read ahead: closed when the reader has come past it; else nil
	held    []*pending    // its blocks, until then: see hold; guarded by Gateway.mu
	readers int           // reads that still want a block of it; guarded by Gateway.mu
	started bool          // sent, or about to be: no longer dropped; guarded by Gateway.mu
	ahead   bool          // nobody waits for it yet; guarded by Gateway.mu
	ticket  *ticket       // of the request under way; guarded by Gateway.mu
}

// pending is a block that is on its way.
type pending struct {
	flight  *flight
	index   int64             // of the block
	done    chan struct{}     // closed when block or err is set; the pending has left the table by then
	waiters int               // references that readers will own when it is done; guarded by Gateway.mu
	block   *blockstore.Block // set before done is closed
	source  Source            // of block: disk or origin
	err     error             // likewise
}

var (
	errDropped = errors.New("fetch dropped: nobody wants it any more")
	errShared  = errors.New("a fetch started for another read failed")
	errNoRoom  = errors.New("no memory for a second request")
)

func newFlight(o origin.Object, k *known, f *Fetch, client string, first, n int64) *flight {
	return &flight{object: o, known: k, fetch: f, client: client, first: first, hedges: maxHedges,
		blocks: make([]*pending, n)}
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
		p := &pending{flight: f, index: id.index, done: make(chan struct{})}
		f.blocks[j] = p
		g.pending[id] = p
		any = true
	}
	return any
}

// start enters a flight, none of whose blocks is held or pending, and lets it go. g.mu is held.
func (g *Gateway) start(f *flight) {
	f.ctx, f.cancel = f.fetch.deadline(g.ctx)
	g.enter(f)
	g.wg.Go(func() {
		g.finish(f, func() error {
			if f.disk && g.load(f) {
				return nil
			}
			return g.fetch(f, nil)
		})
		if f.passed != nil {
			g.hold(f)
		}
	})
}

// load gets the flight's block from the disk, and says whether it could.
func (g *Gateway) load(f *flight) bool {
	if f.ctx.Err() != nil {
		return false
	}
	b := g.disk.Get(blockstore.Key{Version: f.known.version, Index: f.first})
	if b == nil {
		return false
	}
	g.publish(f.blocks[0], b, SourceDisk)
	b.Release()
	return true
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
	switch { // before readers are told
	case errors.Is(err, origin.ErrNotFound):
		g.gens.overwritten(f.object)
		g.infos.missing(f.object)
	case errors.Is(err, origin.ErrChanged):
		g.gens.overwritten(f.object)
		g.infos.drop(f.object, f.known)
	case answers(err):
		g.infos.refuse(f.object)
	}
	g.mu.Lock()
	g.fail(f, err)
	g.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		g.log.Debug("fetching from the origin failed", "object", f.object.String(), "first_block", f.first,
			"blocks", len(f.blocks), "error", err)
	}
}

// fetch gets the flight's bytes, by as many requests as it takes and may take. Each resumes at the first block that is
// unfinished. s is the answer to the first, nil when it is still to be asked for.
func (g *Gateway) fetch(f *flight, s *stream) (err error) {
	for {
		if s == nil {
			s, err = g.request(f)
		}
		if err == nil {
			err = g.fill(f, s)
		}
		if err == nil {
			return nil
		}
		s = nil
		if err = g.again(f.ctx, f.fetch, f.tries, err, func() bool { return g.wanted(f) }); err != nil {
			return err
		}
	}
}

// wanted says whether somebody waits for f, or may do so: the reader of a probe's flight may not have come for it yet.
func (g *Gateway) wanted(f *flight) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.by == nil {
		return !f.ahead
	}
	return f.readers > 0
}

// request waits for its turn and asks for what of f is unfinished.
func (g *Gateway) request(f *flight) (*stream, error) {
	g.mu.Lock()
	t := newTicket(f.object.Bucket, f.client, f.ahead)
	f.ticket = t
	g.mu.Unlock()
	if err := g.turn(f.ctx, t); err != nil {
		return nil, err
	}
	s, err := g.send(f)
	if err != nil {
		g.queue.release(t)
		return nil, err
	}
	s.done = func() { g.queue.release(t) }
	return s, nil
}

func (g *Gateway) send(f *flight) (*stream, error) {
	g.mu.Lock()
	f.started = f.ctx.Err() == nil
	g.mu.Unlock()
	if !f.started {
		return nil, timedOut(f.ctx, f.ctx.Err())
	}
	for f.blocks[f.next] == nil { // there is one that is not, or there would be no flight
		f.next++
	}
	f.tries++
	s, err := g.get(f.ctx, f.question())
	if errors.Is(err, origin.ErrRange) {
		return nil, fmt.Errorf("%w: it ends earlier now: %w", origin.ErrChanged, err)
	}
	return s, err
}

// question asks for the unfinished blocks of f, of its version alone.
func (f *flight) question() *question {
	v := f.known.version
	first := f.first + int64(f.next)
	want := span{first * v.BlockSize, (f.last() + 1 - first) * v.BlockSize}.cut(v.Size)
	return &question{
		object: f.object, fetch: f.fetch, hedges: &f.hedges,
		opts:  origin.GetOptions{Offset: want.off, Length: want.len, IfMatch: f.known.pin()},
		check: func(resp *origin.Response) error { return f.known.check(resp, want) },
	}
}

// check compares an answer with what was asked of the pinned version (P2).
func (k *known) check(resp *origin.Response, want span) error {
	pinned := k.info
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

// fill cuts the body into blocks and publishes each as soon as it is complete. It closes the stream, and those that take
// its place. The flight's slot in memory is one block at a time, and it holds none while it waits for the next.
func (g *Gateway) fill(f *flight, s *stream) (err error) {
	defer func() { s.close() }()
	for ; f.next < len(f.blocks); f.next++ {
		key := blockstore.Key{Version: f.known.version, Index: f.first + int64(f.next)}
		if p := f.blocks[f.next]; p != nil {
			s, err = g.fillBlock(f, p, key, s)
		} else {
			_, err = io.CopyN(io.Discard, s.resp.Body, key.Len())
			s.left -= key.Len()
		}
		if err != nil {
			return g.bodyError(s.ctx, err)
		}
	}
	return nil
}

// fillBlock reads one block and publishes it. It returns the stream to go on with, which is another one where s was late.
func (g *Gateway) fillBlock(f *flight, p *pending, key blockstore.Key, s *stream) (*stream, error) {
	began := time.Now()
	b, err := g.mem.Alloc(f.ctx, key.Len())
	if err != nil {
		return s, fmt.Errorf("memory for %v: %w", key, err)
	}
	x := part{s, b}
	defer func() { x.block.Release() }() // the filler's own reference, published or not, panic or not
	if x, err = g.readPart(f, key, x); err != nil {
		return s, err
	}
	x.block.Seal(key, int(key.Len()))
	g.publish(p, x.block, SourceOrigin)
	if g.disk != nil && f.known.pin() != "" { // other tags mean something to this process only
		g.disk.Put(x.block)
	}
	g.metrics.blockSeconds.Observe(time.Since(began).Seconds())
	return x.stream, nil
}

// part is a block and the stream that it is read from.
type part struct {
	*stream
	block *blockstore.Block
}

func (x part) drop() {
	x.close()
	x.block.Release()
}

// read fills the block. The last one of a body is complete only after the body has ended where it said.
func (x part) read(key blockstore.Key) error {
	if _, err := io.ReadFull(x.resp.Body, x.block.Buf()[:key.Len()]); err != nil {
		return err
	}
	if x.left -= key.Len(); x.left > 0 {
		return nil
	}
	var more [1]byte
	n, err := io.ReadFull(x.resp.Body, more[:])
	switch {
	case n > 0:
		return fmt.Errorf("%w: body longer than announced", origin.ErrBadAnswer)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// readPart fills the block of x. When that takes long, a second request asks for what the flight still owes, and the
// first of the two that has the block goes on: the other's stream and block are let go of. On an error x is as it was.
func (g *Gateway) readPart(f *flight, key blockstore.Key, x part) (part, error) {
	took := g.fills[bits.Len64(uint64(key.Len()))]
	began := time.Now()
	run := func() (part, error) { return x, x.read(key) }
	if !f.fetch.Hedge.On() || f.hedges == 0 {
		_, err := run()
		if err == nil {
			took.Record(time.Since(began))
		}
		return x, err
	}
	q := f.question()
	r := hedge.Race[part]{
		Delay: f.fetch.Hedge.Delay(took),
		Run:   run,
		Stop:  x.cancel,
		Backup: func() (func() (part, error), func()) {
			return backup(g, f.ctx, q, stageBlock, func(ctx context.Context, cancel context.CancelFunc) (part, error) {
				return g.readSecond(ctx, cancel, q, key)
			})
		},
		Final: func(err error) bool { return !retried(g.bodyError(x.ctx, err)) },
		Drop: func(y part) {
			if y != x { // it is let go of below
				y.drop()
			}
		},
		Go: g.wg.Go,
	}
	y, won, err := r.Do()
	if err != nil {
		return x, err
	}
	took.Record(time.Since(began)) // of a loser: it would have taken longer still
	if won {
		g.metrics.hedgesWon[stageBlock].Inc()
		y.done, x.done = x.done, nil // the place in front of the origin
		x.drop()
	}
	return y, nil
}

// readSecond asks for the rest of a flight, and reads its next block, if there is memory for it at once.
func (g *Gateway) readSecond(ctx context.Context, cancel context.CancelFunc, q *question, key blockstore.Key) (
	x part, err error) {
	if x.block = g.mem.TryAlloc(key.Len()); x.block == nil {
		cancel()
		return x, errNoRoom
	}
	done := false
	defer func() { // a panic too
		switch {
		case done:
		case x.stream != nil:
			x.drop()
		default:
			x.block.Release()
		}
	}()
	if x.stream, err = g.getOnce(ctx, cancel, q); err != nil {
		return x, err
	}
	err = x.read(key)
	done = err == nil
	return x, err
}

// publish makes a block known to memory and to those who wait for it. p may be nil, of a block that came by another way
// meanwhile.
func (g *Gateway) publish(p *pending, b *blockstore.Block, src Source) {
	g.mem.Put(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	if p == nil || p.err != nil {
		return
	}
	delete(g.pending, p.flight.id(int(p.index-p.flight.first)))
	b.Acquire(p.waiters)
	p.block, p.source = b, src
	close(p.done)
}

// bodyError names what went wrong in a body.
func (g *Gateway) bodyError(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: body ended early: %w", origin.ErrBadAnswer, io.ErrUnexpectedEOF)
	}
	return timedOut(ctx, err)
}

// recovered turns a panic into an error, so that it strands nobody. To be deferred.
func (g *Gateway) recovered(o origin.Object, err *error) {
	if r := recover(); r != nil {
		g.log.Error("panic while fetching", "object", o.String(), "panic", r, "stack", string(debug.Stack()))
		*err = fmt.Errorf("%w %v: %v", ErrPanic, o, r)
	}
}

// hurry moves what was to be read ahead to those who wait now.
func (g *Gateway) hurry(f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !f.ahead {
		return
	}
	f.ahead = false
	if f.ticket != nil {
		g.queue.promote(f.ticket)
	}
}
