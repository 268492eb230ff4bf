package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-s3/ashlar/internal/hedge"
	"github.com/ashlar-s3/ashlar/origin"
)

// Every request to the origin is made here: it waits for its turn, is kept back while the origin is known to be down,
// and gets company by a second one when its headers take long.

// stream is an answer with a body, and what it holds until it is closed.
type stream struct {
	resp   *origin.Response
	left   int64           // of the body, as announced
	ctx    context.Context // of the request
	cancel context.CancelFunc
	done   func() // gives its place in front of the origin back; nil for one that has none
}

func (s *stream) close() {
	s.cancel()
	_ = closeBody(s.resp)
	if s.done != nil {
		s.done()
		s.done = nil
	}
}

// question is what is asked of the origin, by one request or two.
type question struct {
	object origin.Object
	opts   origin.GetOptions // FirstByte is Fetch's
	fetch  *Fetch
	check  func(*origin.Response) error // nil: any answer will do
	hedges *int                         // second requests that the thing asked for may still have
}

// maxHedges bounds the second requests for one fetch group, over all its attempts: one for headers and one for blocks are
// what is to be expected.
const maxHedges = 2

// The two moments in which a request may be found to be late.
const (
	stageHeaders = iota // its headers are not there
	stageBlock          // a block is not complete
	numStages
)

// turn waits for a place in front of the origin.
func (g *Gateway) turn(ctx context.Context, t *ticket) error {
	waited, err := g.queue.acquire(ctx, t)
	g.metrics.queueSeconds.Observe(waited.Seconds())
	if err != nil {
		return timedOut(ctx, err)
	}
	return nil
}

// attempt returns the context of one origin request.
func (f *Fetch) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.Attempt == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, f.Attempt)
}

// deadline returns the context of the work on one thing.
func (f *Fetch) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.Deadline == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, f.Deadline)
}

// get asks for bytes, a second time if the headers take long. What it returns is the caller's to close.
func (g *Gateway) get(ctx context.Context, q *question) (*stream, error) {
	return race(g, ctx, q, func(ctx context.Context, cancel context.CancelFunc) (*stream, error) {
		return g.getOnce(ctx, cancel, q)
	}, (*stream).close)
}

// head asks for info alone, likewise.
func (g *Gateway) head(ctx context.Context, q *question) (*origin.Info, error) {
	return race(g, ctx, q, func(ctx context.Context, cancel context.CancelFunc) (*origin.Info, error) {
		defer cancel()
		opts := origin.HeadOptions{NoCache: q.opts.NoCache, Via: q.opts.Via, FirstByte: q.fetch.FirstByte}
		return call(g, ctx, q, func() (*origin.Info, error) { return g.cfg.Origin.Head(ctx, q.object, opts) })
	}, func(*origin.Info) {})
}

// race runs one of the above, and a second time beside it when it takes longer than the rule has it.
func race[T any](
	g *Gateway, ctx context.Context, q *question, once func(context.Context, context.CancelFunc) (T, error), drop func(T),
) (T, error) {
	g.hedges.Request()
	first, cancel := q.fetch.attempt(ctx)
	if !q.fetch.Hedge.On() || *q.hedges == 0 {
		return once(first, cancel)
	}
	began := time.Now()
	r := hedge.Race[T]{
		Delay: q.fetch.Hedge.Delay(g.headers),
		Run:   func() (T, error) { return once(first, cancel) },
		Stop:  cancel,
		Backup: func() (func() (T, error), func()) {
			return backup(g, ctx, q, stageHeaders, once)
		},
		// What came of the first when its time was up would be too late from the second, too.
		Final: func(err error) bool { return !retried(err) || errors.Is(err, origin.ErrTimeout) },
		Drop:  drop,
		Go:    g.wg.Go,
	}
	v, won, err := r.Do()
	if won {
		g.metrics.hedgesWon[stageHeaders].Inc()
		g.headers.Record(time.Since(began)) // the first would have taken longer still
	}
	return v, err
}

// backup takes leave for a second request, and returns it; nil where there is none.
func backup[T any](
	g *Gateway, ctx context.Context, q *question, stage int, once func(context.Context, context.CancelFunc) (T, error),
) (run func() (T, error), stop func()) {
	if *q.hedges == 0 || !g.hedges.Take() {
		return nil, nil
	}
	*q.hedges--
	g.metrics.hedges[stage].Inc()
	ctx, cancel := q.fetch.attempt(ctx)
	return func() (v T, err error) {
		defer g.hedges.Done()
		defer g.recovered(q.object, &err)
		return once(ctx, cancel)
	}, cancel
}

// getOnce is one GET. cancel, of ctx, becomes the stream's.
func (g *Gateway) getOnce(ctx context.Context, cancel context.CancelFunc, q *question) (*stream, error) {
	opts := q.opts
	opts.FirstByte = q.fetch.FirstByte
	resp, err := call(g, ctx, q, func() (*origin.Response, error) { return g.cfg.Origin.Get(ctx, q.object, opts) })
	if err == nil && q.check != nil {
		err = q.check(resp)
	}
	if err != nil {
		_ = closeBody(resp)
		cancel()
		return nil, err
	}
	return &stream{resp: resp, left: resp.Length, ctx: ctx, cancel: cancel}, nil
}

// call sends one request for q, unless the origin is known to be down. Where caches are behind, none is kept back: some
// of them may be well, or have what is wanted. Stale info is used sooner all the same, see settle.
func call[T any](g *Gateway, ctx context.Context, q *question, send func() (T, error)) (v T, err error) {
	if !g.cfg.CachesBehind {
		if err := g.breaker.allow(q.fetch.hasty); err != nil {
			return v, err
		}
	}
	sent := time.Now()
	v, err = send()
	if err != nil {
		err = timedOut(ctx, err)
	} else {
		g.headers.Record(time.Since(sent))
	}
	g.breaker.report(q.object, q.fetch.hasty, sent, err)
	return v, err
}

// timedOut names deadlines as what they are.
func timedOut(ctx context.Context, err error) error {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	if late && !errors.Is(err, origin.ErrTimeout) {
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
