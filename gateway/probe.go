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
// client that caused it but the caches it came by, and runs on its own goroutine. When it is refused, the answer goes to
// the reader it was made for and to nobody else: the next reader takes the role. Nobody asks once more what was asked
// after he came: he takes the info, however old the origin said that it is, or fails as the one who met no answer did.

// probeKey: readers who came before a write must not settle for those who came after it. Nor does a reader wait for a
// probe of others who came by fewer caches: so each wait leads to a probe that comes by more, and two caches that are
// each other's origin can't wait for one another.
type probeKey struct {
	object origin.Object
	gen    uint64
	hops   int // length of Request.Via
}

// probing is the state of settling one object. All fields are guarded by Gateway.mu.
type probing struct {
	readers int           // in settle for this object, leaders and waiters
	running int           // probes queued or in flight
	width   int           // probes that may be: 1, and twice as many after each refusal, see refused
	queued  []*probe      // of the running ones, those not sent yet
	wake    chan struct{} // closed and replaced whenever a probe ends
	ended   *probe        // the last that ended
}

// probe is one request. Fields are set before it runs but for those that say otherwise.
type probe struct {
	key     probeKey
	policy  *Policy
	fetch   *Fetch
	client  string
	hedges  int  // second requests that may still be sent
	head    bool // ask for info alone
	noCache bool // past all caches; guarded by Gateway.mu when it changes
	via     []string
	old     *known // stale info that a 304 would confirm; nil asks unconditionally
	first   int64  // first block asked for
	blocks  int64  // how many, at least 1, unless head: each with its bytes of Gateway.ahead

	ctx    context.Context
	cancel context.CancelFunc
	sent   time.Time     // the last time; zero while it is queued; guarded by Gateway.mu
	began  time.Time     // sent the first time; read when done is closed
	tries  int           // requests sent, hedges aside; likewise
	behind bool          // caches behind this one have tried more than once
	done   chan struct{} // closed when known or err is set
	known  *known
	flight *flight // that brings the blocks asked for, nil when the answer had none
	err    error

	ahead []*pending // the flight's blocks, joined for the reader it was made for: see Object.own
	left  bool       // that reader has left; guarded by Gateway.mu
}

// ask says how a reader wants info settled.
type ask struct {
	object  origin.Object
	policy  *Policy
	fetch   *Fetch
	client  string
	gen     uint64
	fresh   time.Time // info confirmed before this is not good enough
	head    bool
	noCache bool
	via     []string
	old     *known
	first   int64
	blocks  int64
}

// recent says whether k was confirmed at or after t, and not in the future.
func (k *known) recent(t time.Time) bool {
	return k != nil && !k.stale && !k.info.Confirmed.Before(t) && !k.info.Confirmed.After(time.Now())
}

// settle returns info confirmed no earlier than a.fresh, or asked for since the caller came: by another reader, or by a
// probe of its own. p is that probe, nil when it was another's.
func (g *Gateway) settle(ctx context.Context, a ask) (k *known, p *probe, err error) {
	key := probeKey{a.object, a.gen, len(a.via)}
	came := time.Now()
	if t := g.gens.lastTold(a.object); a.fresh.Before(t) {
		a.fresh = t // what this reader's client may know already
	}
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
			return g.lead(ctx, p, e)
		}
		wake := e.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
		}
		g.mu.Lock()
		g.leave(key, e)
		if k, err := e.ended.serves(a, came); k != nil || err != nil {
			g.mu.Unlock()
			return k, nil, err
		}
		if err := ctx.Err(); err != nil {
			g.mu.Unlock()
			return nil, nil, err
		}
	}
}

// lead waits for the probe that was started for the caller.
func (g *Gateway) lead(ctx context.Context, p *probe, e *probing) (*known, *probe, error) {
	left := false
	select {
	case <-p.done:
	case <-ctx.Done():
		left = true
	}
	g.mu.Lock()
	g.leave(p.key, e)
	if !left {
		g.mu.Unlock()
		return p.known, p, p.err
	}
	p.left = true
	ahead := p.ahead
	g.mu.Unlock()
	g.letGo(ahead, p.policy.BlockSize)
	return nil, nil, ctx.Err()
}

// serves says what an ended probe means to another reader, who came then and asks as a does: its info, where that is
// recent enough or was asked for since; the trouble that a question met that was sent since and with no less patience, or
// else a crowd would wait for a sick origin one after the other: silence, or what was no better when it was tried again;
// or nothing. p may be nil.
func (p *probe) serves(a ask, came time.Time) (*known, error) {
	if p == nil {
		return nil, nil
	}
	alike := p.noCache || !a.noCache
	since := alike && !p.sent.Before(came)
	switch {
	case p.err == nil && (since || p.known.recent(a.fresh)):
		return p.known, nil
	case p.err == nil || *p.fetch != *a.fetch:
	case since && errors.Is(p.err, origin.ErrTimeout):
		return nil, fmt.Errorf("%w: %w", errShared, p.err)
	case alike && !p.began.Before(came) && (p.tries > 1 || p.behind) && retried(p.err):
		return nil, fmt.Errorf("%w: %v", errShared, p.err) // not in the origin's words, which are another reader's
	}
	return nil, nil
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
		key: key, policy: a.policy, fetch: a.fetch, client: a.client, hedges: maxHedges, head: a.head, noCache: a.noCache,
		via: a.via, old: a.old, first: a.first, behind: g.cfg.CachesBehind, done: make(chan struct{}),
	}
	if !p.head {
		p.blocks = 1 + g.ahead.takeUnits(a.blocks-1, a.policy.BlockSize)
		g.ahead.used.Add(a.policy.BlockSize) // the first needs no leave
	}
	p.ctx, p.cancel = p.fetch.deadline(g.ctx)
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
	f, s, err := g.askOrigin(p, e)
	if err != nil {
		p.err = err
		g.ahead.give(p.blocks * p.policy.BlockSize)
		g.mu.Lock()
		e.running--
		e.ended = p
		e.dequeue(p)
		if answers(err) {
			e.width = min(2*e.width, maxWidth)
		}
		if e.readers == 0 && e.running == 0 && g.probes[p.key] == e {
			delete(g.probes, p.key)
		}
		close(e.wake)
		e.wake = make(chan struct{})
		g.mu.Unlock()
		switch {
		case errors.Is(err, origin.ErrNotFound):
			g.missing(p)
		case answers(err):
			g.infos.refuse(p.key.object)
		}
		close(p.done)
		return
	}
	g.mu.Lock()
	if f != nil && g.enter(f) { // before anyone learns of the version, so that nobody fetches these blocks again
		p.flight = f
		p.join()
	}
	g.ahead.give((p.blocks - int64(len(p.ahead))) * p.policy.BlockSize)
	g.absent.drop(p.key.object)
	g.infos.put(p.key.object, p.known, p.key.gen, p.sent)
	e.ended = p
	if g.probes[p.key] == e {
		delete(g.probes, p.key)
	}
	close(e.wake)
	e.wake = make(chan struct{})
	g.mu.Unlock()
	close(p.done)
	if p.flight != nil {
		g.finish(f, func() error { return g.fetch(f, s) })
	} else if s != nil {
		s.close()
	}
}

// missing takes in that the origin has no such object. A 404 is remembered where the policy says so, unless somebody
// who asked later has been told otherwise.
func (g *Gateway) missing(p *probe) {
	o := p.key.object
	k := g.infos.get(o)
	g.infos.missing(o)
	var answer *origin.Error
	if p.policy.NegativeTTL > 0 && o.Raw == "" && errors.As(p.err, &answer) && answer.Status == 404 &&
		(k == nil || k.info.Confirmed.Before(p.sent)) {
		g.absent.put(o, answer, p.key.gen, p.sent.Add(-ageOf(answer)))
	}
}

// join makes the reader that the probe was made for the owner of the blocks that it brings. Gateway.mu is held.
func (p *probe) join() {
	if p.left {
		return
	}
	for _, q := range p.flight.blocks {
		if q != nil {
			q.waiters++
			p.ahead = append(p.ahead, q)
		}
	}
}

// maxWidth bounds the probes for one object that run side by side after answers that were no info. Each reader gets an
// answer of its own, so that one reader's 404 is never another's; to keep a crowd in front of a missing object from
// queueing one behind the other, each lets twice as many ask at once. Trouble does not: a sick origin is asked by one
// reader at a time.
const maxWidth = 32

// dequeue takes p off the list of unsent probes. Gateway.mu is held.
func (e *probing) dequeue(p *probe) {
	for i, q := range e.queued {
		if q == p {
			e.queued = append(e.queued[:i], e.queued[i+1:]...)
			return
		}
	}
}

// askOrigin sends the probe, as often as it takes and may, and sets p.known. When blocks came with the answer it returns
// them as a flight not yet entered in the table, with the stream that brings them.
func (g *Gateway) askOrigin(p *probe, e *probing) (f *flight, s *stream, err error) {
	defer g.recovered(p.key.object, &err)
	for n := 1; ; n++ {
		f, s, err = g.askOnce(p, e)
		if f != nil {
			f.tries, f.hedges = n, p.hedges
		}
		if err == nil && g.turnsBack(p) {
			if s != nil {
				s.close()
			}
			g.mu.Lock()
			p.noCache = true
			g.mu.Unlock()
			p.known = nil
			n--
			continue
		}
		if err == nil {
			return f, s, nil
		}
		wanted := func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return e.readers > 0
		}
		if err = g.again(p.ctx, p.fetch, n, err, wanted); err != nil {
			return nil, nil, err
		}
	}
}

// turnsBack says whether a cache behind this one may have answered by a version that is older than the one remembered
// here, or than the news that there is none: caches don't learn of an overwrite all at once, and different ones own
// different parts of an object. It is one that was not asked for at the origin after the other came here. Then the
// origin must be asked past all of them.
func (g *Gateway) turnsBack(p *probe) bool {
	if !g.cfg.CachesBehind || p.noCache {
		return false
	}
	asked := p.known.info.Confirmed
	if asked.Before(g.gens.lastTold(p.key.object)) { // that there is none, perhaps
		return true
	}
	k := g.infos.get(p.key.object)
	return k != nil && !k.info.SameVersion(p.known.info) && asked.Before(k.info.Received)
}

// askOnce is one request of a probe. A HEAD may follow it, where the answer leaves something open.
func (g *Gateway) askOnce(p *probe, e *probing) (f *flight, s *stream, err error) {
	t := newTicket(p.key.object.Bucket, p.client, false)
	if err := g.turn(p.ctx, t); err != nil {
		return nil, nil, fmt.Errorf("probe of %v dropped: %w", p.key.object, err)
	}
	defer func() {
		if f == nil {
			g.queue.release(t)
		}
	}()
	g.mu.Lock()
	if err := p.ctx.Err(); err != nil {
		g.mu.Unlock()
		return nil, nil, timedOut(p.ctx, err)
	}
	e.dequeue(p)
	p.sent = time.Now()
	if p.tries++; p.tries == 1 {
		p.began = p.sent
	}
	g.mu.Unlock()

	q := &question{object: p.key.object, fetch: p.fetch, hedges: &p.hedges}
	q.opts.NoCache, q.opts.Via = p.noCache, p.via
	if p.head {
		return nil, nil, g.askHead(p, q)
	}
	q.opts.Offset, q.opts.Length = p.first*p.policy.BlockSize, p.blocks*p.policy.BlockSize
	if p.old != nil && !(p.noCache && g.cfg.CachesBehind) { // which one that does not listen would answer all the same
		q.opts.IfNoneMatch = p.old.pin()
	}
	s, err = g.get(p.ctx, q)
	if err == nil {
		f, err = g.judge(p, q.opts, s.resp)
		if f != nil {
			f.ctx, f.cancel = p.ctx, p.cancel
			s.done = func() { g.queue.release(t) }
			return f, s, nil
		}
		s.close()
	}
	if errors.Is(err, origin.ErrRange) || errors.Is(err, errAskHead) {
		err = g.askHead(p, q)
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
		info.Confirmed, info.Received, info.Stale = said.Confirmed, said.Received, said.Stale
		p.known = &known{info: &info, version: p.old.version}
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
		f := newFlight(p.key.object, known, p.fetch, p.client, p.first,
			(want.len+p.policy.BlockSize-1)/p.policy.BlockSize)
		f.started = true
		return f, nil
	}
	p.known = known
	return nil, nil
}

func (g *Gateway) askHead(p *probe, q *question) error {
	info, err := g.head(p.ctx, q)
	if err != nil {
		return err
	}
	p.known = newKnown(p.key.object, info, p.policy, p.key.gen)
	return nil
}
