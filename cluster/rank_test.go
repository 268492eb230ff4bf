package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"
)

const blocks = 1_000_000

// unitOf returns the n-th of many blocks: of objects of up to 1000 units.
func unitOf(n int) Unit {
	return KeyOf("bucket", "data/part-"+strconv.Itoa(n/1000)).Unit(int64(n % 1000))
}

// rule is a way to find the owner of a block among nodes that are numbered.
type rule struct {
	name string
	make func(nodes int) func(block int) int
}

// rules are this package's, and those that are measured beside it.
var rules = []rule{
	{"rendezvous", func(nodes int) func(int) int {
		s, err := NewSnapshot(numbered(nodes))
		if err != nil {
			panic(err)
		}
		number := map[string]int{}
		for i, n := range numbered(nodes) {
			number[n.ID] = i
		}
		of := make([]int, nodes)
		for i := range of {
			of[i] = number[s.Node(i).ID]
		}
		return func(b int) int { return of[s.Owner(unitOf(b))] }
	}},
	{"modulo", func(nodes int) func(int) int {
		return func(b int) int { return int(uint64(unitOf(b)) % uint64(nodes)) }
	}},
	{"FNV-1a rendezvous, no finalizer", func(nodes int) func(int) int {
		fnv1a := func(h uint64, text []byte) uint64 {
			for _, c := range text {
				h = (h ^ uint64(c)) * 0x100000001b3
			}
			return h
		}
		var ids []uint64
		for _, n := range numbered(nodes) {
			ids = append(ids, fnv1a(0xcbf29ce484222325, []byte(n.ID)))
		}
		return func(b int) int {
			text := fmt.Appendf(nil, "/bucket/data/part-%d/%d", b/1000, b%1000)
			best, top := 0, uint64(0)
			for i, id := range ids {
				if s := fnv1a(id, text); s > top {
					best, top = i, s
				}
			}
			return best
		}
	}},
	{"ring of 160 points a node", func(nodes int) func(int) int {
		type point struct {
			at   uint64
			node int
		}
		var ring []point
		for i, n := range numbered(nodes) {
			for j := range 160 {
				ring = append(ring, point{uint64(KeyOf(n.ID, strconv.Itoa(j)).Unit(0)), i})
			}
		}
		slices.SortFunc(ring, func(a, b point) int { return cmp.Compare(a.at, b.at) })
		return func(b int) int {
			u := uint64(unitOf(b))
			return ring[sort.Search(len(ring), func(i int) bool { return ring[i].at >= u })%len(ring)].node
		}
	}},
}

func (r rule) owners(nodes int) []int16 {
	owner := r.make(nodes)
	to := make([]int16, blocks)
	for b := range to {
		to[b] = int16(owner(b))
	}
	return to
}

// maxOverMean is how much more the fullest node has than the average.
func maxOverMean(owners []int16, nodes int) float64 {
	count := make([]int, nodes)
	for _, n := range owners {
		count[n]++
	}
	return float64(slices.Max(count)) * float64(nodes) / float64(len(owners))
}

// TestArithmetic measures what docs/cluster.md has a table of: go test ./cluster -run Arithmetic -v prints it.
func TestArithmetic(t *testing.T) {
	t.Logf("%-32s | max/mean | 8 to 9 moves | between old nodes", "rule")
	for _, r := range rules {
		eight, nine := r.owners(8), r.owners(9)
		moved, between := 0, 0
		for b := range eight {
			if eight[b] != nine[b] {
				moved++
				if nine[b] != 8 {
					between++
				}
			}
		}
		balance := maxOverMean(eight, 8)
		t.Logf("%-32s | %8.3f | %11.2f%% | %.2f%%", r.name, balance, 100*float64(moved)/blocks, 100*float64(between)/blocks)
		if r.name != "rendezvous" {
			continue
		}
		if balance > 1.01 {
			t.Errorf("max/mean is %.4f", balance)
		}
		if share := 100 * float64(moved) / blocks; share < 10.8 || share > 11.4 {
			t.Errorf("8 to 9 moves %.2f%%", share)
		}
		if between != 0 {
			t.Errorf("%d blocks moved between old nodes", between)
		}
		// Back again: what the ninth held goes to all others in like parts, and each block to its next in rank.
		s := snapshot(t, numbered(9))
		took := make([]int, 8)
		for b := 0; b < blocks; b++ {
			if nine[b] != 8 {
				continue
			}
			took[eight[b]]++
			if b%100 == 0 && s.Node(s.Rank(unitOf(b))[1]).ID != numbered(8)[eight[b]].ID {
				t.Fatalf("block %d does not go to the next in its ranking", b)
			}
		}
		for i, n := range took {
			if share := float64(n) * 8 / float64(moved); share < 0.95 || share > 1.05 {
				t.Errorf("node %d takes over %.3f of its share", i, share)
			}
		}
	}
}

func TestWeights(t *testing.T) {
	nodes := []Node{{ID: "a", Weight: 4}, {ID: "b", Weight: 4}, {ID: "c", Weight: 1}, {ID: "d", Weight: 1}}
	s := snapshot(t, nodes)
	var count [4]int
	for b := range blocks {
		count[s.Owner(unitOf(b))]++
	}
	for i, want := range []float64{40, 40, 10, 10} {
		got := 100 * float64(count[i]) / blocks
		t.Logf("weight %d of 10: %.2f%%", nodes[i].Weight, got)
		if got < want-1 || got > want+1 {
			t.Errorf("weight %d of 10 has %.2f%%", nodes[i].Weight, got)
		}
	}
	// Raising one weight takes blocks from others and moves nothing between them.
	nodes[2].Weight = 2
	heavier := snapshot(t, nodes)
	for b := range blocks / 10 {
		if was, is := s.Owner(unitOf(b)), heavier.Owner(unitOf(b)); was != is && is != 2 {
			t.Fatalf("block %d moved from %d to %d", b, was, is)
		}
	}
}

// TestEqualWeightsRankAlike holds the two rules against each other, score by score.
func TestEqualWeightsRankAlike(t *testing.T) {
	plain := snapshot(t, numbered(50))
	weighted := snapshot(t, numbered(50))
	weighted.log = newLogTable()
	for b := range 20_000 {
		u := unitOf(b)
		if plain.Owner(u) != weighted.Owner(u) || b%100 == 0 && !slices.Equal(plain.Rank(u), weighted.Rank(u)) {
			t.Fatalf("block %d ranks otherwise by logarithms", b)
		}
	}
}

func TestLogarithmNeverRises(t *testing.T) {
	table := newLogTable()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200_000 {
		score := r.Uint64() >> r.IntN(64)
		if r.IntN(2) == 0 {
			score &= ^uint64(0) << r.IntN(64) // at the edges of the table's steps
		}
		if score > 0 && table.negLog2(score-1) < table.negLog2(score) {
			t.Fatalf("seed %d: rises from %x to %x", seed, score-1, score)
		}
	}
}

func TestThousandNodes(t *testing.T) {
	s := snapshot(t, numbered(1000))
	owners := make([]int16, blocks)
	for b := range owners {
		owners[b] = int16(s.Owner(unitOf(b)))
	}
	// 1000 blocks a node, give or take 32: the fullest of 1000 has some 3.2 deviations more.
	if m := maxOverMean(owners, 1000); m > 1.15 {
		t.Errorf("max/mean is %.3f", m)
	}
}

func TestListsInAnyOrder(t *testing.T) {
	nodes := numbered(100)
	for i := range nodes {
		nodes[i].Weight = 1 + i%3
	}
	want := snapshot(t, nodes)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		other := slices.Concat(nodes, nodes[r.IntN(100):], nodes[:50])
		r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		for i := range other {
			other[i].Weight *= 7
		}
		got := snapshot(t, other)
		if got.Digest() != want.Digest() || !slices.Equal(got.Nodes(), want.Nodes()) {
			t.Fatalf("seed %d: another snapshot", seed)
		}
		for b := range 1000 {
			if got.Owner(unitOf(b)) != want.Owner(unitOf(b)) {
				t.Fatalf("seed %d: block %d has another owner", seed, b)
			}
		}
	}
}

func TestDigest(t *testing.T) {
	base := []Node{{ID: "a", Addr: "1:1"}, {ID: "b", Addr: "2:2"}}
	digest := snapshot(t, base).Digest()
	same := [][]Node{
		{{ID: "b"}, {ID: "a", Addr: "elsewhere:1"}},
		{{ID: "a", Weight: 6}, {ID: "b", Weight: 6}},
	}
	for _, n := range same {
		if got := snapshot(t, n).Digest(); got != digest {
			t.Errorf("%v: digest %s, want %s", n, got, digest)
		}
	}
	for _, n := range [][]Node{{}, {{ID: "a"}}, {{ID: "a"}, {ID: "c"}}, {{ID: "a", Weight: 2}, {ID: "b"}}, {{ID: "ab"}}} {
		if snapshot(t, n).Digest() == digest {
			t.Errorf("%v has the same digest", n)
		}
	}
}

func TestBadLists(t *testing.T) {
	for _, nodes := range [][]Node{
		{{Addr: "a:1"}},
		{{ID: "a", Weight: -1}},
		{{ID: "a", Weight: MaxWeight + 1}},
		{{ID: "a", Addr: "a:1"}, {ID: "b"}, {ID: "a", Addr: "a:2"}},
		{{ID: "a", Weight: 2}, {ID: "a"}},
	} {
		if _, err := NewSnapshot(nodes); err == nil {
			t.Errorf("%v makes a snapshot", nodes)
		}
	}
	if s := snapshot(t, nil); s.Owner(unitOf(1)) != -1 || len(s.Rank(unitOf(1))) != 0 {
		t.Error("without nodes there is an owner")
	}
}

func TestOwnerAllocatesNothing(t *testing.T) {
	nodes := numbered(16)
	for _, weight := range []int{1, 3} {
		nodes[0].Weight = weight
		s := snapshot(t, nodes)
		key := "some/key"
		if n := testing.AllocsPerRun(100, func() { s.Owner(KeyOf("bucket", key).Unit(7)) }); n != 0 {
			t.Errorf("weight %d: %v allocations", weight, n)
		}
	}
}

func BenchmarkOwner(b *testing.B) {
	for _, weight := range []int{1, 3} {
		nodes := numbered(16)
		nodes[0].Weight = weight
		s, err := NewSnapshot(nodes)
		if err != nil {
			b.Fatal(err)
		}
		name := "equal"
		if weight > 1 {
			name = "weighted"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			key, sum := KeyOf("bucket", "some/key"), 0
			for i := range b.N {
				sum += s.Owner(key.Unit(int64(i)))
			}
			if sum < 0 {
				b.Fatal()
			}
		})
	}
}
