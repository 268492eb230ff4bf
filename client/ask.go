package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
)

// question is a read of one routing unit, or of as much as one node is to be asked for.
type question struct {
	unit   cluster.Unit
	object origin.Object
	head   bool
	opts   origin.GetOptions // of a HEAD: NoCache and FirstByte
	whole  bool              // an answer that ignores the range and brings the whole object will do: nothing was read yet
	// check, if set, holds an answer against the question. Its errors are trouble of the node, but for ErrChanged.
	check func(*origin.Response) error
}

// reply is what came of a question. Its owner calls close.
type reply struct {
	n     *conn          // nil: the fallback's
	lease *cluster.Lease // nil: the fallback's
	resp  *origin.Response
	info  *origin.Info // of a HEAD
	err   error
	again bool // err is trouble of the node: another may do better
	spoke bool // it is the node itself that says so

	cancel context.CancelFunc
	hedge  bool   // asked while another was slow
	leave  func() // gives leave to hedge back
}

// close closes the body and gives everything back. It may be called twice.
func (r *reply) close() {
	if r.resp != nil && r.resp.Body != nil {
		_ = r.resp.Body.Close()
	}
	r.cancel()
	if r.lease != nil {
		r.lease.Done()
	}
}

// infoOf returns what a successful answer says of the object.
func (r *reply) infoOf() *origin.Info {
	if r.resp != nil {
		return &r.resp.Info
	}
	return r.info
}

// errStranger is of an answer to a read past all caches from a node that does not listen to us.
var errStranger = errors.New("client: the node does not confirm what it remembers: our key there lacks cluster = true")

// alienError is of an answer that no node gave.
func alienError(status int) error {
	return fmt.Errorf("%w: %d without a request id, as nothing says it that speaks S3", origin.ErrBadAnswer, status)
}

// fallbackAfter is how many nodes are asked before the fallback, where there is one.
const fallbackAfter = 2

// maxRefusals is how many nodes may answer that they can't before no more are asked. One or two of them may be busy, or
// configured badly. What more than that have in common, such as credentials that the origin does not accept, they all
// have, and each question would come to nodes and origin once for every node.
const maxRefusals = 3

// route asks nodes one after the other, in the order of the unit's ranking, until one answers; another too while one is
// slow, if Config.Hedge gives leave. Nodes in tried are passed over, and those asked are added to it. The reply is
// never nil. All that it holds ends with ctx.
func (c *Client) route(ctx context.Context, q *question, tried *[]string) *reply {
	results := make(chan *reply) // from those in flight
	refusals := 0
	var flight []*reply
	ask := func(hedge bool, leave func()) bool {
		lease := c.pick(q.unit, *tried)
		if lease == nil {
			return false
		}
		*tried = append(*tried, lease.Node.ID)
		r := &reply{lease: lease, hedge: hedge, leave: leave}
		askCtx, cancel := context.WithCancel(ctx)
		r.cancel = cancel
		flight = append(flight, r)
		c.spawn(func() {
			c.ask(askCtx, q, r)
			r.leave()
			results <- r
		})
		return true
	}
	// drop ends what is still in flight, without waiting for it.
	drop := func() {
		for _, r := range flight {
			r.cancel()
		}
		left := len(flight)
		c.spawn(func() {
			for range left {
				(<-results).close()
			}
		})
	}

	if !ask(false, func() {}) {
		return c.fallback(ctx, q, cluster.ErrNoNodes)
	}
	slow, stop := c.slow()
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			drop()
			return &reply{err: ended(ctx), cancel: func() {}}
		case <-slow:
			done, ok := c.cfg.Hedge.Begin()
			if !ok { // not now
				slow, stop = c.slow()
				continue
			}
			slow = nil
			if ask(true, done) {
				c.metrics.hedgesSent.Inc()
			} else {
				done()
			}
		case r := <-results:
			flight = slices.DeleteFunc(flight, func(x *reply) bool { return x == r })
			if !r.again {
				if r.hedge && r.err == nil {
					c.metrics.hedgesWon.Inc()
					for _, loser := range flight {
						loser.lease.Failed(cluster.LostHedge, nil)
					}
				}
				drop()
				return r
			}
			r.close()
			if r.spoke {
				refusals++
			}
			if len(flight) > 0 {
				continue // a hedge is on its way
			}
			if refusals >= maxRefusals || !ask(false, func() {}) {
				return c.fallback(ctx, q, r.err)
			}
			c.metrics.failovers.Inc()
			stop()
			slow, stop = c.slow()
		}
	}
}

// slow returns a channel that says when it is time for a hedge, and what stops it.
func (c *Client) slow() (<-chan time.Time, func() bool) {
	after, ok := c.cfg.Hedge.After()
	if !ok {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(after)
	return t.C, t.Stop
}

// ended says why a context has: by its cause where whoever asked calls that a timeout.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, origin.ErrTimeout) {
		return cause
	}
	return ctx.Err()
}

// pick returns the node to ask next, nil when there is none that should be: with a fallback, after two, and if none is
// up.
func (c *Client) pick(u cluster.Unit, tried []string) *cluster.Lease {
	if c.cfg.Fallback != nil && len(tried) >= fallbackAfter {
		return nil
	}
	lease, err := c.router.Pick(u, tried...)
	if err != nil {
		return nil
	}
	if c.cfg.Fallback != nil && lease.State == cluster.Down {
		lease.Done()
		return nil
	}
	return lease
}

// ask asks one node and reports how it went.
func (c *Client) ask(ctx context.Context, q *question, r *reply) {
	op := opGet
	if q.head {
		op = opHead
	}
	r.err = func() error {
		var err error
		if r.n, err = c.conn(r.lease.Node); err != nil {
			if r.again = !errors.Is(err, errClosed); r.again { // an address that is none
				c.metrics.errors.WithLabelValues(r.lease.Node.ID, whyLocal).Inc()
				r.lease.Failed(cluster.Refused, err)
			}
			return err
		}
		note := new(said)
		began := time.Now()
		status := 0
		if q.head {
			opts := origin.HeadOptions{NoCache: q.opts.NoCache, FirstByte: q.opts.FirstByte}
			r.info, err = r.n.s3.Head(context.WithValue(ctx, saidKey{}, note), q.object, opts)
		} else {
			r.resp, err = r.n.s3.Get(context.WithValue(ctx, saidKey{}, note), q.object, q.opts)
		}
		var answer *origin.Error
		switch {
		case err == nil:
			status = 200
			r.infoOf().Stale = note.stale
		case errors.As(err, &answer):
			status = answer.Status
		}
		if ctx.Err() != nil { // a lost hedge, or whoever asked has gone: nothing is known of the node
			return ended(ctx)
		}
		c.metrics.answered(r.lease.Node.ID, op, status)
		if answer != nil && note.alien {
			err, answer = alienError(status), nil
		}
		if err == nil && q.opts.NoCache && note.stranger {
			err = errStranger
		}
		if err == nil && q.check != nil && !r.resp.NotModified {
			err = q.check(r.resp)
		}
		took := time.Since(began)
		if status != 0 {
			r.n.firstByte.Observe(took.Seconds())
		}
		c.judge(r, note, answer, took, err)
		if answer != nil && answer.Status >= http.StatusInternalServerError { // whose log says more
			err = ofNode(r.lease.Node.ID, err)
		}
		return err
	}()
}

// judge decides what an outcome means for the node, and whether another is to be asked. took is how long a read took to
// be answered, 0 of what is none.
func (c *Client) judge(r *reply, note *said, answer *origin.Error, took time.Duration, err error) {
	trouble := func(why string) {
		r.again = why != whyLocal
		c.metrics.errors.WithLabelValues(r.lease.Node.ID, why).Inc()
	}
	switch {
	case answer != nil && (note.node || answer.Status == http.StatusLoopDetected): // a gateway, this one even, is no node
		trouble(whyNode)
		r.spoke = true
		if answer.Status == http.StatusServiceUnavailable {
			r.lease.Full(note.retryAfter)
		} else {
			r.lease.Failed(cluster.Timeout, err)
		}
	case err == nil, answer != nil, errors.Is(err, origin.ErrChanged): // an answer, the origin's perhaps
		r.lease.Answered(took)
		if took > 0 {
			c.cfg.Hedge.Answered(took)
		}
	case errors.Is(err, origin.ErrBadAnswer): // which may be about this object alone, so it is not held against the node
		trouble(whyBadAnswer)
		if note.alien && note.status >= http.StatusInternalServerError { // something before the node says that it is not there
			r.lease.Failed(cluster.Timeout, err)
		}
	case errors.Is(err, errStranger):
		trouble(whyNode)
	case !note.sent: // no credentials
		trouble(whyLocal)
	case errors.Is(err, origin.ErrCredentials): // one node's configuration may be at fault, its health is not
		trouble(whyCredentials)
		r.spoke = true
	case errors.Is(err, origin.ErrTimeout):
		trouble(whyTimeout)
		r.lease.Failed(cluster.Timeout, err)
	default:
		trouble(whyConnection)
		r.lease.Failed(cluster.Refused, err)
	}
}

// fallback asks the fallback, if there is one; else err stands.
func (c *Client) fallback(ctx context.Context, q *question, err error) *reply {
	ctx, cancel := context.WithCancel(ctx)
	r := &reply{cancel: cancel}
	if c.cfg.Fallback == nil {
		r.err, r.again = err, true
		var answer *origin.Error
		if !errors.As(err, &answer) { // which is passed on as it is
			r.err = fmt.Errorf("client: no node of the cluster answers: %w", err)
		}
		return r
	}
	c.metrics.fallbacks.Inc()
	if q.head {
		r.info, r.err = c.cfg.Fallback.Head(ctx, q.object,
			origin.HeadOptions{NoCache: q.opts.NoCache, FirstByte: q.opts.FirstByte})
		return r
	}
	r.resp, r.err = c.cfg.Fallback.Get(ctx, q.object, q.opts)
	if r.err == nil && q.check != nil && !r.resp.NotModified {
		r.err = q.check(r.resp)
	}
	return r
}
