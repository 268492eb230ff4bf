package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	clusterclient "github.com/ashlar-s3/ashlar/client" // client is a connection here
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
)

// What finding the nodes of a block costs is measured in this process, among nodes that are not there and are asked
// nothing. Times are of the thread's CPU, so that other processes hardly disturb them.

// Ways of finding nodes.
const (
	ownerEqual    = "owner, equal weights"
	ownerWeighted = "owner, weighted"
	pickNode      = "pick among healthy nodes, and give back"
	planUnits     = "plan of all nodes by rank"
	fullestNode   = "units of the fullest node"
)

const (
	unitNS   = "ns"
	unitMean = "of the mean"

	goalNodes    = 16                    // that the goals of routing are for
	routingLong  = 50 * time.Millisecond // of one run
	planned      = 64                    // units in a plan
	balanceUnits = 100_000
)

// routings returns what is measured among n nodes: functions that find the nodes of so many units, the key's hash taken
// once for all of them, and what releases them.
func routings(ctx context.Context, n int) (ways map[string]func(units int), release func(), err error) {
	nodes := make([]cluster.Node, n)
	for i := range nodes {
		nodes[i] = cluster.Node{ID: fmt.Sprint("node-", i), Addr: fmt.Sprintf("127.0.0.1:%d", 1+i)}
	}
	equal, err := cluster.NewSnapshot(nodes)
	if err != nil {
		return nil, nil, err
	}
	c, err := clusterclient.New(ctx, clusterclient.Config{
		Members: cluster.MembershipConfig{Nodes: nodes}, Region: region,
		Credentials: s3origin.Credentials{Source: s3origin.SourceAnonymous},
	})
	if err != nil {
		return nil, nil, err
	}
	members, err := cluster.NewMembership(ctx, cluster.MembershipConfig{Nodes: nodes})
	if err != nil {
		return nil, nil, err
	}
	router, err := cluster.NewRouter(cluster.RouterConfig{Membership: members})
	if err != nil {
		return nil, nil, err
	}
	heavy := append([]cluster.Node{}, nodes...)
	heavy[0].Weight = 3
	weighted, err := cluster.NewSnapshot(heavy)
	if err != nil {
		return nil, nil, err
	}
	key := cluster.KeyOf(bucket, "some/key")
	owners := func(s *cluster.Snapshot) func(int) {
		return func(units int) {
			for i := range units {
				s.Owner(key.Unit(int64(i)))
			}
		}
	}
	ways = map[string]func(int){
		ownerEqual: owners(equal), ownerWeighted: owners(weighted),
		pickNode: func(units int) {
			for i := range units {
				if l, err := router.Pick(key.Unit(int64(i))); err == nil {
					l.Done()
				}
			}
		},
		planUnits: func(units int) {
			for range units / planned {
				_, _ = c.Owners(bucket, "some/key", clusterclient.Range{Length: planned << 20})
			}
		},
	}
	return ways, func() { c.Close(); router.Close(); members.Close() }, nil
}

// routing measures one way once: the CPU time of each unit, in nanoseconds.
func routing(way func(units int)) (ns, allocs float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for units := planned; ; units *= 2 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := threadCPU()
		way(units)
		took := threadCPU() - start
		if took < routingLong {
			continue
		}
		runtime.ReadMemStats(&after)
		return float64(took) / float64(units), float64(after.Mallocs-before.Mallocs) / float64(units)
	}
}

// fullest is how many units the node has that owns most, in relation to the mean of n nodes.
func fullest(n int) (float64, error) {
	nodes := make([]cluster.Node, n)
	for i := range nodes {
		nodes[i] = cluster.Node{ID: fmt.Sprint("node-", i)}
	}
	s, err := cluster.NewSnapshot(nodes)
	if err != nil {
		return 0, err
	}
	counts, most := make([]int, n), 0
	for i := range balanceUnits {
		owner := s.Owner(cluster.KeyOf(bucket, fmt.Sprint("key-", i/planned)).Unit(int64(i % planned)))
		counts[owner]++
		most = max(most, counts[owner])
	}
	return float64(most) * float64(n) / balanceUnits, nil
}

// routingRuns measures all ways among n nodes, rounds times each.
func routingRuns(ctx context.Context, n, rounds int) ([]result, error) {
	ways, release, err := routings(ctx, n)
	if err != nil {
		return nil, err
	}
	defer release()
	var all []result
	for round := range rounds {
		for _, name := range []string{ownerEqual, ownerWeighted, pickNode, planUnits} {
			x := result{Workload: "nodes, " + name, Contestant: fmt.Sprint(n), Unit: unitNS, Round: round}
			x.Rate, x.Allocs = routing(ways[name])
			all = append(all, x)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// nodesRouted measures what it costs to find the owner of a block, to pick the node of a request, and to plan a read,
// as there are more nodes, and how evenly they share.
func nodesRouted(ctx context.Context, s *scaling, _ *bench) error {
	steps := s.upTo(16, 1, 2, 4, 8, 16, 32, 64)
	for _, n := range steps {
		runs, err := routingRuns(ctx, int(n), s.options.Rounds)
		if err != nil {
			return err
		}
		s.report.Runs = append(s.report.Runs, runs...)
	}
	for _, n := range steps {
		most, err := fullest(int(n))
		if err != nil {
			return err
		}
		s.report.Runs = append(s.report.Runs, result{
			Workload: "nodes, " + fullestNode, Contestant: fmt.Sprint(n), Unit: unitMean, Rate: most,
		})
	}
	return nil
}
