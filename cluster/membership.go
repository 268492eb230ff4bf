package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MembershipConfig says where the nodes are learnt from: exactly one of Nodes, DNS and SRV.
type MembershipConfig struct {
	// Nodes is a list that stays as it is. An ID that is "" is the address, and the other way round.
	Nodes []Node
	// DNS is host:port. Each of the host's A records is a node, or where it has none each AAAA record. Its ID is
	// ip:port: a node that comes back with another address is another node, and its blocks are other nodes' meanwhile.
	DNS string
	// SRV is the name of SRV records, such as _s3._tcp.nodes.example.com. Each target of the lowest priority is a node.
	// Its ID is the target's name, so that it keeps its blocks when its address changes; its weight is the record's,
	// where 0 counts as 1. A target that is named twice counts once, with its lowest port.
	SRV string
	// Refresh is how often DNS is asked; 0 means 10 s. It is asked sooner when the answer lives shorter, but not sooner
	// than a second later, and sooner after a failure.
	Refresh time.Duration

	// ResolvConf is the file that says whom to ask, and search and ndots for names without a dot at the end; "" means
	// /etc/resolv.conf. It is read again at each refresh.
	ResolvConf string
	// Servers are asked instead of those that ResolvConf names: ip:port.
	Servers []string

	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
}

const (
	defaultRefresh = 10 * time.Second
	minRefresh     = time.Second     // whatever the TTL
	firstLookup    = 5 * time.Second // bounds what NewMembership waits for
)

// Membership knows the nodes of a cluster. Safe for concurrent use.
type Membership struct {
	current atomic.Pointer[Snapshot]
	lookup  lookup // nil: a list that stays
	refresh time.Duration
	metrics *membershipMetrics
	log     *slog.Logger
	good    atomic.Int64 // when DNS last gave a usable answer, Unix nanoseconds; 0 is never

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine that refreshes has ended
}

// lookup asks DNS for the nodes.
type lookup func(context.Context) (answer, error)

// answer is what a lookup found.
type answer struct {
	nodes   []Node
	ttl     time.Duration
	refused int // records that could not be used beside others that could
}

// NewMembership returns the nodes of a cluster. What is learnt from DNS is looked up before it returns, within ctx and
// 5 s; when that fails there are no nodes until an answer comes. Errors say what is wrong with the configuration.
func NewMembership(ctx context.Context, c MembershipConfig) (*Membership, error) {
	nodes, lookup, err := c.source()
	if err != nil {
		return nil, err
	}
	return newMembership(ctx, c, nodes, lookup)
}

func newMembership(ctx context.Context, c MembershipConfig, nodes []Node, lookup lookup) (*Membership, error) {
	snapshot, err := NewSnapshot(nodes)
	if err != nil {
		return nil, err
	}
	m := &Membership{lookup: lookup, refresh: c.Refresh, log: c.Logger, done: make(chan struct{})}
	m.current.Store(snapshot)
	if m.refresh <= 0 {
		m.refresh = defaultRefresh
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.metrics, err = newMembershipMetrics(c.Registerer, m); err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	if m.lookup == nil {
		close(m.done)
		return m, nil
	}
	first, stop := context.WithTimeout(ctx, firstLookup)
	wait := m.ask(first, 0)
	stop()
	go m.run(background, wait)
	return m, nil
}

// source returns the nodes of a list, or how to look them up.
func (c *MembershipConfig) source() ([]Node, lookup, error) {
	given := 0
	for _, is := range []bool{len(c.Nodes) > 0, c.DNS != "", c.SRV != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, nil, errors.New("cluster: exactly one of a list of nodes, a DNS name and an SRV name is needed")
	}
	r := &resolver{file: c.ResolvConf, servers: c.Servers}
	if r.file == "" {
		r.file = "/etc/resolv.conf"
	}
	for _, s := range c.Servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			return nil, nil, fmt.Errorf("cluster: DNS server %q is not ip:port", s)
		}
	}
	switch {
	case c.SRV != "":
		return nil, func(ctx context.Context) (answer, error) { return r.bySRV(ctx, c.SRV) }, nil
	case c.DNS != "":
		host, port, err := net.SplitHostPort(c.DNS)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || host == "" {
			return nil, nil, fmt.Errorf("cluster: DNS name %q is not host:port", c.DNS)
		}
		return nil, func(ctx context.Context) (answer, error) { return r.byAddress(ctx, host, port) }, nil
	}
	var nodes []Node
	for _, n := range c.Nodes {
		if n.ID == "" {
			n.ID = n.Addr
		}
		if n.Addr == "" {
			n.Addr = n.ID
		}
		if host, port, err := net.SplitHostPort(n.Addr); err != nil || host == "" || port == "" {
			return nil, nil, fmt.Errorf("cluster: node %q is not at host:port", n.Addr)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil, nil
}

// Snapshot returns the nodes as they are known now.
func (m *Membership) Snapshot() *Snapshot { return m.current.Load() }

// Close ends refreshing.
func (m *Membership) Close() {
	m.cancel()
	<-m.done
}

// run asks DNS again and again, the first time after wait.
func (m *Membership) run(ctx context.Context, wait time.Duration) {
	defer close(m.done)
	failures := 0
	if m.good.Load() == 0 {
		failures = 1
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		before := m.good.Load()
		wait := m.ask(ctx, failures)
		if failures++; m.good.Load() != before {
			failures = 0
		}
		t.Reset(wait)
	}
}

// ask looks the nodes up, once, and returns when to do it again: after the TTL within its bounds, and after failures in
// a second, two, four and so on up to the refresh. An answer that is none changes nothing.
func (m *Membership) ask(ctx context.Context, failures int) time.Duration {
	a, err := m.lookup(ctx)
	if errors.Is(ctx.Err(), context.Canceled) { // by Close
		return m.refresh
	}
	var s *Snapshot
	if err == nil {
		m.keepAddresses(a.nodes)
		if s, err = NewSnapshot(a.nodes); err == nil && s.Len() == 0 {
			err = errEmpty
		}
	}
	m.metrics.asked(a, err)
	if err != nil {
		m.log.Warn("the nodes of the cluster could not be looked up; those known before stay",
			"nodes", m.Snapshot().Len(), "error", err)
		return max(minRefresh, min(m.refresh, minRefresh<<min(failures, 16)))
	}
	if a.refused > 0 {
		m.log.Warn("some records of the cluster's nodes can't be used: targets named twice, or port 0", "records", a.refused)
	}
	m.good.Store(time.Now().UnixNano())
	old := m.Snapshot()
	m.current.Store(s)
	if old.Digest() != s.Digest() {
		m.log.Info("the cluster has other nodes", "nodes", s.Len(), "before", old.Len(), "digest", s.Digest())
	}
	return max(minRefresh, min(m.refresh, a.ttl))
}

// keepAddresses gives nodes that could not be resolved the address that they had.
func (m *Membership) keepAddresses(nodes []Node) {
	known := make(map[string]string)
	for _, n := range m.Snapshot().nodes {
		known[n.ID] = n.Addr
	}
	for i := range nodes {
		if nodes[i].Addr == "" {
			nodes[i].Addr = known[nodes[i].ID]
		}
	}
}
