package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// newRouter returns a router among nodes, which set replaces.
func newRouter(t *testing.T, nodes []Node, change func(*RouterConfig)) (r *Router, set func([]Node)) {
	t.Helper()
	m, err := NewMembership(t.Context(), MembershipConfig{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	c := RouterConfig{Membership: m}
	if change != nil {
		change(&c)
	}
	if r, err = NewRouter(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); m.Close() })
	return r, func(nodes []Node) { m.current.Store(snapshot(t, nodes)) }
}

func pick(t *testing.T, r *Router, u Unit, tried ...string) *Lease {
	t.Helper()
	l, err := r.Pick(u, tried...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ranked returns the IDs of a unit's ranking.
func ranked(s *Snapshot, u Unit) []string {
	var ids []string
	for _, i := range s.Rank(u) {
		ids = append(ids, s.Node(i).ID)
	}
	return ids
}

func TestPickFollowsRanking(t *testing.T) {
	nodes := numbered(7)
	for _, weight := range []int{1, 5} {
		nodes[3].Weight = weight
		r, _ := newRouter(t, nodes, nil)
		for b := range 500 {
			u := unitOf(b)
			var tried []string
			for range nodes {
				l := pick(t, r, u, tried...)
				l.Done()
				tried = append(tried, l.Node.ID)
			}
			if want := ranked(r.Snapshot(), u); !slices.Equal(tried, want) {
				t.Fatalf("weight %d, block %d: picked %q, ranking %q", weight, b, tried, want)
			}
			if _, err := r.Pick(u, tried...); !errors.Is(err, ErrNoNodes) {
				t.Fatalf("all tried: %v", err)
			}
		}
	}
}

func TestLoadLimit(t *testing.T) {
	const limit = 3
	r, _ := newRouter(t, numbered(3), func(c *RouterConfig) { c.LoadLimit = limit })
	u := unitOf(1)
	want := ranked(r.Snapshot(), u)
	var leases []*Lease
	for i := range 3*limit + 5 {
		l := pick(t, r, u)
		leases = append(leases, l)
		node, state := want[0], Full // all are full: the owner
		if i < 3*limit {
			node, state = want[i/limit], Ready
		}
		if l.Node.ID != node || l.State != state {
			t.Errorf("request %d goes to %s (%v), want %s (%v)", i, l.Node.ID, l.State, node, state)
		}
	}
	leases[limit].Done()
	leases[limit].Done() // counts once
	for _, node := range []string{want[1], want[0]} {
		if l := pick(t, r, u); l.Node.ID != node {
			t.Errorf("after one came back: %s, want %s", l.Node.ID, node)
		}
	}
}

func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouter(t, numbered(3), nil)
		u := unitOf(1)
		want := ranked(r.Snapshot(), u)
		for _, c := range []struct{ says, holds time.Duration }{
			{2 * time.Second, 2 * time.Second}, {time.Hour, 5 * time.Second},
		} {
			l := pick(t, r, u)
			l.Full(c.says)
			l.Done()
			if l := pick(t, r, u); l.Node.ID != want[1] {
				t.Errorf("full for %v: %s", c.says, l.Node.ID)
			}
			time.Sleep(c.holds - time.Nanosecond)
			if l := pick(t, r, u); l.Node.ID != want[1] {
				t.Errorf("full for %v: taken too early", c.says)
			}
			time.Sleep(time.Nanosecond)
			if l := pick(t, r, u); l.Node.ID != want[0] {
				t.Errorf("full for %v: not taken after %v", c.says, c.holds)
			}
		}
	})
}

// TestDown takes a node down in each way and lets it come back when its health check says so.
func TestDown(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures []Failure
		answered int // an answer comes after this many
		down     bool
	}{
		{"refused once", []Failure{Refused}, 9, true},
		{"two timeouts", []Failure{Timeout, Timeout}, 9, false},
		{"three", []Failure{Timeout, LostHedge, Timeout}, 9, true},
		{"not in a row", []Failure{Timeout, LostHedge, Timeout, LostHedge}, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var probed []string
				r, _ := newRouter(t, numbered(3), func(c *RouterConfig) {
					c.Probe = func(_ context.Context, n Node) error {
						probed = append(probed, time.Since(start).String())
						if len(probed) < 6 {
							return errors.New("not yet")
						}
						return nil
					}
				})
				u := unitOf(1)
				want := ranked(r.Snapshot(), u)
				for i, f := range c.failures {
					if i == c.answered {
						l := pick(t, r, u)
						l.Answered(time.Millisecond)
						l.Done()
					}
					l := pick(t, r, u)
					l.Failed(f, nil)
					l.Done()
				}
				l := pick(t, r, u)
				l.Done()
				if !c.down {
					if l.Node.ID != want[0] {
						t.Errorf("taken down")
					}
					return
				}
				if l.Node.ID != want[1] {
					t.Fatalf("not down: %s", l.Node.ID)
				}
				time.Sleep(4 * time.Minute)
				synctest.Wait()
				// 5 s, then doubling up to a minute.
				if got, want := strings.Join(probed, " "), "5s 15s 35s 1m15s 2m15s 3m15s"; got != want {
					t.Errorf("probed at %s, want %s", got, want)
				}
				if l := pick(t, r, u); l.Node.ID != want[0] {
					t.Errorf("not up again: %s", l.Node.ID)
				}
			})
		})
	}
}

// TestAll is everybody but those who are down: news would wait for them in vain.
func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := numbered(4)
		nodes[3].ID, nodes[3].Addr = "unresolved", ""
		m, err := NewMembership(t.Context(), MembershipConfig{Nodes: numbered(1)})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.current.Store(snapshot(t, nodes))
		r, err := NewRouter(RouterConfig{Membership: m, LoadLimit: 1,
			Probe: func(ctx context.Context, _ Node) error { <-ctx.Done(); return ctx.Err() }})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		down := pick(t, r, unitOf(1))
		down.Failed(Refused, nil)
		down.Done()
		full := pick(t, r, unitOf(1))
		defer full.Done()
		var ids []string
		for _, l := range r.All() {
			ids = append(ids, l.Node.ID)
			l.Done()
		}
		if len(ids) != 2 || slices.Contains(ids, down.Node.ID) || !slices.Contains(ids, full.Node.ID) {
			t.Errorf("%q, with %s down and %s full", ids, down.Node.ID, full.Node.ID)
		}
	})
}

// TestStuckProbe: a health check that is not answered ends, and there is another one.
func TestStuckProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r, _ := newRouter(t, numbered(2), func(c *RouterConfig) {
			c.Probe = func(ctx context.Context, _ Node) error {
				if asked++; asked > 1 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
		})
		u := unitOf(1)
		l := pick(t, r, u)
		l.Failed(Refused, nil)
		l.Done()
		time.Sleep(time.Minute)
		if again := pick(t, r, u); again.Node.ID != l.Node.ID {
			t.Errorf("asked %d times, and not up", asked)
		}
	})
}

// TestAllDown: the owner is asked all the same, and an answer brings it back.
func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRouter(t, numbered(3), func(c *RouterConfig) {
			c.Probe = func(ctx context.Context, _ Node) error { <-ctx.Done(); return ctx.Err() }
		})
		u := unitOf(1)
		want := ranked(r.Snapshot(), u)
		for range 3 {
			l := pick(t, r, u)
			l.Failed(Refused, nil)
			l.Done()
		}
		l := pick(t, r, u)
		if l.Node.ID != want[0] || l.State != Down {
			t.Fatalf("%s, %v", l.Node.ID, l.State)
		}
		l.Answered(time.Millisecond)
		if l = pick(t, r, u); l.Node.ID != want[0] || l.State != Ready {
			t.Errorf("after an answer: %s, %v", l.Node.ID, l.State)
		}
	})
}

// TestAnotherAddress: a node that comes back elsewhere is up, has nothing in flight, and nobody goes on probing the
// old.
func TestAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes := 0
		nodes := numbered(2)
		r, set := newRouter(t, nodes, func(c *RouterConfig) {
			c.Probe = func(context.Context, Node) error { probes++; return errors.New("down") }
		})
		u := unitOf(1)
		want := ranked(r.Snapshot(), u)
		l := pick(t, r, u)
		l.Failed(Refused, nil)
		for i := range nodes {
			if nodes[i].ID == want[0] {
				nodes[i].Addr = "elsewhere:1"
			}
		}
		set(nodes)
		now := pick(t, r, u)
		if now.Node.ID != want[0] || now.Node.Addr != "elsewhere:1" || now.State != Ready {
			t.Errorf("%+v", now)
		}
		l.Done()
		for _, s := range r.Status() {
			if s.Node.ID == want[0] && (s.InFlight != 1 || s.State != Ready) {
				t.Errorf("%+v", s)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if probes != 0 {
			t.Errorf("%d probes of an address that is gone", probes)
		}
	})
}

func TestUnresolved(t *testing.T) {
	r, set := newRouter(t, numbered(2), nil)
	set(nil)
	if _, err := r.Pick(unitOf(1)); !errors.Is(err, ErrNoNodes) {
		t.Errorf("no nodes: %v", err)
	}
	set([]Node{{ID: "a"}, {ID: "b", Addr: "b:1"}})
	for b := range 10 {
		if l := pick(t, r, unitOf(b)); l.Node.ID != "b" {
			t.Errorf("%+v", l)
		}
	}
}

// TestLoadSpreads: many requests for one block spread over the nodes in order of its ranking and no further than
// needed.
func TestLoadSpreads(t *testing.T) {
	r, _ := newRouter(t, numbered(8), func(c *RouterConfig) { c.LoadLimit = 10 })
	u := unitOf(7)
	for range 35 {
		pick(t, r, u)
	}
	var got []string
	for _, i := range r.Snapshot().Rank(u) {
		got = append(got, fmt.Sprint(r.Status()[i].InFlight))
	}
	if s := strings.Join(got, " "); s != "10 10 10 5 0 0 0 0" {
		t.Errorf("in flight by rank: %s", s)
	}
}

// TestRouterSimulation lets nodes come, go, fail and recover under many requests; it says its seed.
func TestRouterSimulation(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		sick := map[string]bool{} // guarded by mu
		all := numbered(9)
		r, set := newRouter(t, all[:5], func(c *RouterConfig) {
			c.LoadLimit = 4
			c.Probe = func(_ context.Context, n Node) error {
				mu.Lock()
				defer mu.Unlock()
				if sick[n.ID] {
					return errors.New("sick")
				}
				return nil
			}
		})
		var open []*Lease
		for range 5000 {
			switch rnd.IntN(20) {
			case 0:
				set(all[rnd.IntN(4) : 5+rnd.IntN(5)])
			case 1:
				id := all[rnd.IntN(len(all))].ID
				mu.Lock()
				sick[id] = !sick[id]
				mu.Unlock()
			case 2:
				time.Sleep(time.Duration(rnd.Int64N(int64(10 * time.Second))))
				synctest.Wait()
			case 3, 4, 5, 6, 7, 8:
				if len(open) > 0 {
					i := rnd.IntN(len(open))
					open[i].Done()
					open = slices.Delete(open, i, i+1)
				}
			default:
				l := pick(t, r, unitOf(rnd.IntN(1000)))
				if sick[l.Node.ID] {
					l.Failed(Failure(rnd.IntN(int(numFailures))), nil)
				} else {
					l.Answered(time.Millisecond)
				}
				open = append(open, l)
			}
		}
		for _, l := range open {
			l.Done()
		}
		mu.Lock()
		clear(sick)
		mu.Unlock()
		set(all)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, s := range r.Status() {
			if s.InFlight != 0 || s.State != Ready {
				t.Errorf("at the end: %+v", s)
			}
		}
	})
}

func TestRouterMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r, _ := newRouter(t, []Node{{ID: "a", Addr: "a:1"}, {ID: "b", Addr: "b:1"}}, func(c *RouterConfig) {
			c.Registerer, c.LoadLimit = reg, 1
		})
		var u Unit
		for b := range 100 {
			if u = unitOf(b); r.Snapshot().Owner(u) == 0 {
				break
			}
		}
		a := pick(t, r, u)
		a.Answered(250 * time.Millisecond)
		b := pick(t, r, u) // a is full
		b.Done()
		a.Failed(Refused, nil)
		pick(t, r, u) // a is down
		want := `
			# HELP ashlar_cluster_node_downs_total Times that a node was held to be down.
			# TYPE ashlar_cluster_node_downs_total counter
			ashlar_cluster_node_downs_total 1
			# HELP ashlar_cluster_node_failures_total Failures of nodes, as far as they count against their health, by kind.
			# TYPE ashlar_cluster_node_failures_total counter
			ashlar_cluster_node_failures_total{kind="lost_hedge"} 0
			ashlar_cluster_node_failures_total{kind="refused"} 1
			ashlar_cluster_node_failures_total{kind="timeout"} 0
			# HELP ashlar_cluster_node_latency_seconds Moving average of the time from sending a request to the node to the headers of its answer.
			# TYPE ashlar_cluster_node_latency_seconds gauge
			ashlar_cluster_node_latency_seconds{node="a"} 0.25
			ashlar_cluster_node_latency_seconds{node="b"} 0
			# HELP ashlar_cluster_node_requests_in_flight Requests to the node from here whose body has not been read to its end.
			# TYPE ashlar_cluster_node_requests_in_flight gauge
			ashlar_cluster_node_requests_in_flight{node="a"} 1
			ashlar_cluster_node_requests_in_flight{node="b"} 1
			# HELP ashlar_cluster_node_state 1 for the state that the node is in, seen from here, 0 for the others.
			# TYPE ashlar_cluster_node_state gauge
			ashlar_cluster_node_state{node="a",state="down"} 1
			ashlar_cluster_node_state{node="a",state="full"} 0
			ashlar_cluster_node_state{node="a",state="ready"} 0
			ashlar_cluster_node_state{node="a",state="unresolved"} 0
			ashlar_cluster_node_state{node="b",state="down"} 0
			ashlar_cluster_node_state{node="b",state="full"} 1
			ashlar_cluster_node_state{node="b",state="ready"} 0
			ashlar_cluster_node_state{node="b",state="unresolved"} 0
			# HELP ashlar_cluster_spills_total Requests that went to another node than the owner from the start, by what the owner was.
			# TYPE ashlar_cluster_spills_total counter
			ashlar_cluster_spills_total{owner="down"} 1
			ashlar_cluster_spills_total{owner="full"} 1
			ashlar_cluster_spills_total{owner="unresolved"} 0
		`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
