package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RouterConfig assembles a Router.
type RouterConfig struct {
	Membership *Membership // required; it stays the caller's
	// LoadLimit is how many requests one node has in flight from here before its blocks go to the next in their
	// ranking; 0 means 256.
	LoadLimit int
	// DownFor is how long a node that is down is left alone; then Probe is asked, and the time doubles, up to
	// DownForMax, while it fails. 0 means 5 s and 1 min.
	DownFor, DownForMax time.Duration
	// Failures is how many timeouts and lost hedges in a row take a node down; 0 means 3.
	Failures int
	// Probe says whether a node is up again; it is given 2 s. nil: it is, once DownFor is over.
	Probe func(context.Context, Node) error

	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
}

const probeTimeout = 2 * time.Second

// Router says which node a request goes to, by the ranking and by what is known of the nodes' health and load. Safe for
// concurrent use.
type Router struct {
	cfg     RouterConfig
	metrics *routerMetrics
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup // goroutines that wait for nodes to be up again

	telling sync.Mutex // held while the log is told of a node, so that its last line is what is so; taken before mu

	mu       sync.Mutex
	snapshot *Snapshot // that peers are of; guarded by mu
	peers    []*peer   // by the snapshot's indexes; guarded by mu
}

// peer is what this process knows of a node at one address. Fields but node are guarded by Router.mu.
type peer struct {
	node      Node
	inFlight  int
	failures  int           // timeouts and lost hedges since the last answer
	fullUntil time.Time     // by its own word
	up        chan struct{} // closed when it is up again, or gone; nil while it is up
	toldDown  bool          // what the log says
	latency   time.Duration // moving average of the time to the first byte; 0 is not known
}

// State is what a node is good for.
type State uint8

// Ready: it takes requests. Full: it has as many as it should. Down: it does not answer. Unresolved: its address is not
// known. The order is that in which a request prefers them.
const (
	Ready State = iota
	Full
	Down
	Unresolved
	numStates
)

func (s State) String() string { return [...]string{"ready", "full", "down", "unresolved"}[s] }

// Failure is what was wrong with a node.
type Failure uint8

// Refused: no connection came about, or it broke before an answer; the node is down at once. Timeout: no answer in
// time, or one that broke off. LostHedge: another node that was asked later answered first.
const (
	Refused Failure = iota
	Timeout
	LostHedge
	numFailures
)

func (f Failure) String() string { return [...]string{"refused", "timeout", "lost_hedge"}[f] }

// NewRouter returns a router.
func NewRouter(c RouterConfig) (*Router, error) {
	if c.Membership == nil {
		return nil, errors.New("cluster: a router needs a membership")
	}
	c.LoadLimit = cmp.Or(c.LoadLimit, 256)
	c.DownFor = cmp.Or(c.DownFor, 5*time.Second)
	c.DownForMax = max(c.DownFor, cmp.Or(c.DownForMax, time.Minute))
	c.Failures = cmp.Or(c.Failures, 3)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Router{cfg: c}
	var err error
	if r.metrics, err = newRouterMetrics(c.Registerer, r); err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Close ends what the router does in the background. Leases may still be given back.
func (r *Router) Close() {
	r.mu.Lock() // so that nothing is started after it
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

// Snapshot returns the nodes that are routed among.
func (r *Router) Snapshot() *Snapshot { return r.cfg.Membership.Snapshot() }

// Lease is a request to one node. Give it back by Done.
type Lease struct {
	Node  Node
	State State // of the node when it was picked: Down if no other was left

	r    *Router
	p    *peer
	done bool // guarded by r.mu
}

// Pick chooses the node that a request for u goes to and counts the request as in flight: the first in the ranking that
// is ready; if none is, the first that is full; if none is up, the first that is down, for what is known of it may be
// old. Nodes whose IDs were tried are passed over. ErrNoNodes says that none is left.
func (r *Router) Pick(u Unit, tried ...string) (*Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow()
	now := time.Now()
	best, bestState, ownerState := place{node: -1}, Unresolved, Ready
	owner := place{node: -1}
	for i, p := range r.peers {
		at := r.snapshot.place(u, i)
		state := r.state(p, now)
		if owner.node < 0 || !r.snapshot.before(&owner, &at) {
			owner, ownerState = at, state
		}
		if state == Unresolved || slices.Contains(tried, p.node.ID) {
			continue
		}
		if state < bestState || state == bestState && !r.snapshot.before(&best, &at) {
			best, bestState = at, state
		}
	}
	if best.node < 0 {
		return nil, ErrNoNodes
	}
	if len(tried) == 0 && best.node != owner.node {
		r.metrics.spills[ownerState].Inc()
	}
	p := r.peers[best.node]
	p.inFlight++
	return &Lease{Node: p.node, State: bestState, r: r, p: p}, nil
}

// state returns what p is good for. r.mu is held.
func (r *Router) state(p *peer, now time.Time) State {
	switch {
	case p.node.Addr == "":
		return Unresolved
	case p.up != nil:
		return Down
	case p.inFlight >= r.cfg.LoadLimit || now.Before(p.fullUntil):
		return Full
	}
	return Ready
}

// follow takes the membership's present nodes over. What is known of a node goes on with its ID and address: at another
// address is another process. r.mu is held.
func (r *Router) follow() {
	s := r.cfg.Membership.Snapshot()
	if s == r.snapshot {
		return
	}
	old := make(map[string]*peer, len(r.peers))
	for _, p := range r.peers {
		old[p.node.ID] = p
	}
	peers := make([]*peer, s.Len())
	for i := range peers {
		n := s.nodes[i]
		if p := old[n.ID]; p != nil && p.node.Addr == n.Addr {
			p.node = n
			peers[i] = p
			delete(old, n.ID)
		} else {
			peers[i] = &peer{node: n}
		}
	}
	for _, p := range old {
		p.recover()
	}
	r.snapshot, r.peers = s, peers
}

// recover ends being down. r.mu is held.
func (p *peer) recover() {
	if p.up != nil {
		close(p.up)
		p.up = nil
	}
	p.failures = 0
}

// Done gives the lease back. Only the first call counts.
func (l *Lease) Done() {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if !l.done {
		l.done = true
		l.p.inFlight--
	}
}

// Answered reports that the node answered, the first byte after d: it is up. A d of 0 says nothing of its latency.
func (l *Lease) Answered(d time.Duration) {
	l.r.mu.Lock()
	down := l.p.up != nil
	l.p.recover()
	switch {
	case d == 0:
	case l.p.latency == 0:
		l.p.latency = d
	default:
		l.p.latency += (d - l.p.latency) / 8
	}
	l.r.mu.Unlock()
	if down {
		l.r.tell(l.p)
	}
}

// tell tells the log whether p is down, unless it says so already. why is of one that is, as slog has it.
func (r *Router) tell(p *peer, why ...any) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	node, down := p.node, p.up != nil
	news := down != p.toldDown
	p.toldDown = down
	r.mu.Unlock()
	// By name in the text, since a log may leave out warnings of one text.
	switch log := r.cfg.Logger.With("address", node.Addr); {
	case !news:
	case down:
		log.Warn("node "+node.ID+" is down", why...)
	default:
		log.Info("node " + node.ID + " is up again")
	}
}

// Full reports that the node refused for want of room: it counts as full for that long, at most DownFor.
func (l *Lease) Full(d time.Duration) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.p.fullUntil = time.Now().Add(min(d, l.r.cfg.DownFor))
}

// Failed reports a failure of the node. cause, which may be nil, is for the log.
func (l *Lease) Failed(f Failure, cause error) {
	l.r.metrics.failures[f].Inc()
	if l.r.takeDown(l.p, f) {
		l.r.metrics.downs.Inc()
		why := []any{"reason", f.String()}
		if cause != nil {
			why = append(why, "error", cause)
		}
		l.r.tell(l.p, why...)
	}
}

// takeDown notes a failure of p, and says whether it is down by that.
func (r *Router) takeDown(p *peer, f Failure) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.failures++
	if p.up != nil || f != Refused && p.failures < r.cfg.Failures || r.ctx.Err() != nil {
		return false
	}
	up := make(chan struct{})
	p.up = up
	r.wg.Go(func() { r.await(p, up) })
	return true
}

// await waits until p is up again, which closes up, and finds out by asking it.
func (r *Router) await(p *peer, up <-chan struct{}) {
	wait := r.cfg.DownFor
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-up:
			return
		case <-r.ctx.Done():
			return
		case <-t.C:
		}
		r.mu.Lock()
		r.follow() // p may be gone
		node := p.node
		r.mu.Unlock()
		if r.probe(node) == nil {
			r.mu.Lock()
			down := p.up == up
			if down {
				p.recover()
			}
			r.mu.Unlock()
			if down {
				r.tell(p)
			}
			return
		}
		wait = min(2*wait, r.cfg.DownForMax)
		t.Reset(wait)
	}
}

func (r *Router) probe(n Node) error {
	if r.cfg.Probe == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, probeTimeout)
	defer cancel()
	return r.cfg.Probe(ctx, n)
}

// NodeStatus is what is known here of a node.
type NodeStatus struct {
	Node     Node
	State    State
	InFlight int           // requests from here
	Latency  time.Duration // moving average of the time to the first byte; 0 is not known
}

// Status returns what is known of all nodes, by ascending ID.
func (r *Router) Status() []NodeStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow()
	now := time.Now()
	list := make([]NodeStatus, len(r.peers))
	for i, p := range r.peers {
		list[i] = NodeStatus{p.node, r.state(p, now), p.inFlight, p.latency}
	}
	return list
}

// All returns a lease of each node that is up, for what concerns them all.
func (r *Router) All() []*Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow()
	now := time.Now()
	var list []*Lease
	for _, p := range r.peers {
		if s := r.state(p, now); s < Down {
			p.inFlight++
			list = append(list, &Lease{Node: p.node, State: s, r: r, p: p})
		}
	}
	return list
}
