package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// A probe is the origin request that settles the info of an object: the first fetch group of a read whose info is
// missing or stale. One runs per object and generation; other readers wait for its headers. It carries nothing of the
// client that caused it, runs on its own goroutine, and when it is refused or fails, its answer goes to the reader it
// was made for and to nobody else: the next reader takes the role.

// probeKey: readers who came before a write must not settle for those who came after it.
type probeKey struct {
	object origin.Object
	gen    uint64
}

// probing is the state of settling one object. All fields are guarded by Gateway.mu.
type probing struct {
	readers int           // in settle for this object, leaders and waiters
	running int           // probes queued or in flight
	width   int           // probes that may be: 1, and twice as many after each refusal, see refused
	queued  []*probe      // of the running ones, those not sent yet
	wake    chan struct{} // closed and replaced whenever a probe ends
	result  *known        // of the probe that succeeded
}

// probe is one request. Fields are set before it runs but for those that say otherwise.
type probe struct {
	key     probeKey
	policy  *Policy
	head    bool   // ask for info alone
	noCache bool   // past all caches
	old     *known // stale info that a 304 would confirm; nil asks unconditionally
	first   int64  // first block asked for
	blocks  int64  // how many, at least 1, unless head

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when known or err is set
	known  *known
	flight *flight // that brings the blocks asked for, nil when the answer had none
	err    error
}

// ask says how a reader wants info settled.
type ask struct {
	object  origin.Object
	policy  *Policy
	gen     uint64
	fresh   time.Time // info confirmed before this is not good enough
	head    bool
	noCache bool
	old     *known
	first   int64
	blocks  int64
	taken   *int64 // where to count what the probe takes from Gateway.ahead
}

// recent says whether k was confirmed at or after t, and not in the future.
func (k *known) recent(t time.Time) bool {
	return k != nil && !k.info.Confirmed.Before(t) && !k.info.Confirmed.After(time.Now())
}

// settle returns info confirmed no earlier than a.fresh: another reader's, or by a probe of its own. p is that probe,
// nil when it was another's.
func (g *Gateway) settle(ctx context.Context, a ask) (k *known, p *probe, err error) {
	key := probeKey{a.object, a.gen}
	g.mu.Lock()
	for {
		// Someone may have published between the caller's look and the lock.
		if k := g.infos.get(a.object); k.recent(a.fresh) {
			g.mu.Unlock()
			return k, nil, nil
		}
		e := g.probes[key]
		if e == nil {
			e = &probing{width: 1, wake: make(chan struct{})}
			g.probes[key] = e
		}
		e.readers++
		if e.running < e.width {
			p := g.startProbe(key, e, a)
			g.mu.Unlock()
			select {
			case <-p.done:
			case <-ctx.Done():
			}
			g.mu.Lock()
			g.leave(key, e)
			g.mu.Unlock()
			select {
			case <-p.done:
				return p.known, p, p.err
			default:
				return nil, nil, ctx.Err()
			}
		}
		wake := e.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
		}
		g.mu.Lock()
		g.leave(key, e)
		if k := e.result; k.recent(a.fresh) {
			g.mu.Unlock()
			return k, nil, nil
		}
		if err := ctx.Err(); err != nil {
			g.mu.Unlock()
			return nil, nil, err
		}
	}
}

// leave takes a reader out of e; the last one drops the probes that have not been sent. g.mu is held.
func (g *Gateway) leave(key probeKey, e *probing) {
	e.readers--
	if e.readers > 0 {
		return
	}
	// Probes that have been sent stay to be joined: a client that gives up and comes back must not send another.
	if g.probes[key] == e && e.running == len(e.queued) {
		delete(g.probes, key)
	}
	for _, p := range e.queued {
		p.cancel()
	}
}

// startProbe starts a probe as a asks. g.mu is held.
func (g *Gateway) startProbe(key probeKey, e *probing, a ask) *probe {
	p := &probe{
		key: key, policy: a.policy, head: a.head, noCache: a.noCache, old: a.old,
		first: a.first, done: make(chan struct{}),
	}
	if !p.head {
		n := g.ahead.takeUnits(a.blocks-1, a.policy.BlockSize)
		*a.taken += n * a.policy.BlockSize
		p.blocks = 1 + n
	}
	p.ctx, p.cancel = context.WithCancel(g.ctx)
	e.running++
	e.queued = append(e.queued, p)
	g.metrics.probes.Inc()
	g.wg.Go(func() { g.runProbe(p, e) })
	return p
}

// runProbe queues for the origin, sends the request, publishes what it says, and goes on as the flight of the blocks
// that came with it.
func (g *Gateway) runProbe(p *probe, e *probing) {
	defer p.cancel()
	f, resp, err := g.askOrigin(p, e)
	if err != nil {
		p.err = err
		g.mu.Lock()
		e.running--
		e.dequeue(p)
		if refused(err) {
			e.width = min(2*e.width, maxWidth)
		}
		if e.readers == 0 && e.running == 0 && g.probes[p.key] == e {
			delete(g.probes, p.key)
		}
		close(e.wake)
		e.wake = make(chan struct{})
		g.mu.Unlock()
		if errors.Is(err, origin.ErrNotFound) {
			g.infos.drop(p.key.object, nil)
		}
		close(p.done)
		return
	}
	g.mu.Lock()
	if f != nil && g.enter(f) { // before anyone learns of the version, so that nobody fetches these blocks again
		p.flight = f
	}
	g.infos.put(p.key.object, p.known, p.key.gen)
	e.result = p.known
	if g.probes[p.key] == e {
		delete(g.probes, p.key)
	}
	close(e.wake)
	e.wake = make(chan struct{})
	g.mu.Unlock()
	close(p.done)
	if p.flight != nil {
		g.finish(f, func() error { return g.fill(f, resp) })
	} else if resp != nil {
		_ = resp.Body.Close()
	}
	if f != nil {
		g.slots.Release(1)
	}
}

// maxWidth bounds the probes for one object that run side by side after refusals.
const maxWidth = 32

// refused says whether an error is the origin's answer to the question, rather than trouble in answering. Each reader
// gets an answer of its own, so that one reader's 404 is never another's; to keep a crowd in front of a missing object
// from queueing one behind the other, each refusal lets twice as many ask at once. Trouble does not: a sick origin is
// asked by one reader at a time.
func refused(err error) bool {
	var e *origin.Error
	return errors.As(err, &e) && e.Status < 500 && e.Status != 429
}

// dequeue takes p off the list of unsent probes. Gateway.mu is held.
func (e *probing) dequeue(p *probe) {
	for i, q := range e.queued {
		if q == p {
			e.queued = append(e.queued[:i], e.queued[i+1:]...)
			return
		}
	}
}

// askOrigin sends the probe and sets p.known. When blocks came with the answer it returns them as a flight not yet
// entered in the table, whose owner must release the origin slot that it holds.
func (g *Gateway) askOrigin(p *probe, e *probing) (f *flight, resp *origin.Response, err error) {
	if err := g.slots.Acquire(p.ctx, 1); err != nil {
		return nil, nil, fmt.Errorf("probe of %v dropped: %w", p.key.object, err)
	}
	defer func() {
		if f == nil {
			g.slots.Release(1)
		}
	}()
	defer g.recovered(p.key.object, &err)
	g.mu.Lock()
	if err := p.ctx.Err(); err != nil {
		g.mu.Unlock()
		return nil, nil, err
	}
	e.dequeue(p)
	g.mu.Unlock()

	ctx, cancel := p.policy.attempt(p.ctx)
	if p.head {
		defer cancel()
		return nil, nil, g.askHead(ctx, p)
	}
	span := span{p.first * p.policy.BlockSize, p.blocks * p.policy.BlockSize}
	opts := origin.GetOptions{
		Offset: span.off, Length: span.len, NoCache: p.noCache, FirstByte: p.policy.FirstByte,
	}
	if p.old != nil {
		opts.IfNoneMatch = p.old.pin()
	}
	resp, err = g.get(ctx, p.key.object, opts)
	if err == nil {
		f, err = g.judge(p, opts, resp)
	}
	if f != nil {
		f.ctx, f.cancel = ctx, cancel
		return f, resp, nil
	}
	defer cancel()
	_ = closeBody(resp)
	if errors.Is(err, origin.ErrRange) || errors.Is(err, errAskHead) {
		err = g.askHead(ctx, p)
	}
	return nil, nil, err
}

// errAskHead says that the answer to a probe leaves a question that a HEAD will settle.
var errAskHead = errors.New("to be settled by a HEAD")

// judge holds the answer to a probe against what was asked (P2), sets p.known from it, and returns the flight of the
// blocks whose bytes it brings, nil when it brings none that are of use.
func (g *Gateway) judge(p *probe, opts origin.GetOptions, resp *origin.Response) (*flight, error) {
	if resp.NotModified {
		if opts.IfNoneMatch == "" {
			return nil, fmt.Errorf("%w: 304 to an unconditional request", origin.ErrBadAnswer)
		}
		info, said := *p.old.info, &resp.Info
		if said.ETag != "" && said.ETag != opts.IfNoneMatch {
			return nil, fmt.Errorf("%w: 304 of %s to If-None-Match %s", origin.ErrBadAnswer, said.ETag, opts.IfNoneMatch)
		}
		if said.LastModified != "" && said.LastModified != info.LastModified || len(info.Volatile) > 0 {
			return nil, errAskHead // metadata changed under one ETag, or may have
		}
		info.Confirmed, info.Received = said.Confirmed, said.Received
		p.known = &known{&info, p.old.version}
		return nil, nil
	}
	info := resp.Info
	known := newKnown(p.key.object, &info, p.policy, p.key.gen)
	want := span{opts.Offset, opts.Length}.cut(info.Size)
	switch {
	case known.version == nil:
		// To be streamed; this body is not the one.
	case resp.Offset == 0 && resp.Length == 0 && info.Size == 0:
		// Some servers answer 200 to a range of an empty object.
	case resp.Offset == 0 && want.off > 0 && resp.Length == info.Size:
		// The range was ignored. What the answer says of the object holds, its bytes are of no use here.
	case want.len <= 0 || !fits(resp, want):
		return nil, fmt.Errorf("%w: asked for %v of %v, got %d bytes from %d of %d",
			origin.ErrBadAnswer, span{opts.Offset, opts.Length}, p.key.object, resp.Length, resp.Offset, info.Size)
	default:
		p.known = known
		f := newFlight(p.key.object, known, p.policy, p.first, (want.len+p.policy.BlockSize-1)/p.policy.BlockSize)
		f.started = true
		return f, nil
	}
	p.known = known
	return nil, nil
}

func (g *Gateway) askHead(ctx context.Context, p *probe) error {
	info, err := g.cfg.Origin.Head(ctx, p.key.object, origin.HeadOptions{NoCache: p.noCache, FirstByte: p.policy.FirstByte})
	if err != nil {
		return err
	}
	p.known = newKnown(p.key.object, info, p.policy, p.key.gen)
	return nil
}
