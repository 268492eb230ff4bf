//go:build !race

package disk

// What the policy keeps, measured. One goroutine does it all, and so much that the race detector, which would find nothing,
// would take minutes.

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// zipf returns a source of blocks of a catalogue whose popularity falls with rank^-s.
func zipf(rng *rand.Rand, s float64, catalogue int) func() int64 {
	sum, sums := 0.0, make([]float64, catalogue)
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	rank := rng.Perm(catalogue)
	return func() int64 { return int64(rank[sort.SearchFloat64s(sums, rng.Float64()*sum)]) }
}

// ratio plays reads of a Zipf catalogue twice the tier, and as many of a scan that no one repeats if scan, and returns
// the hit ratio of the former in the second half.
func ratio(read func(block int64) bool, size, rounds int, scan bool) float64 {
	z := zipf(rand.New(rand.NewPCG(1, 2)), 0.9, 2*size)
	hits, n := 0, 0
	for i := range rounds * size {
		if hit := read(z()); i >= rounds*size/2 {
			n++
			if hit {
				hits++
			}
		}
		if scan && i >= rounds*size/4 {
			read(1<<40 + int64(i))
		}
	}
	return float64(hits) / float64(n)
}

// model is the log by itself: regions of blocks, nothing of them stored.
type model struct {
	regions, per int  // regions of the disk, blocks of a region
	keep         int  // blocks of a region that may survive
	admit        bool // by a second offer

	log   [][]int64
	at    map[int64]int // of a block: the number of its region
	reads map[int64]bool
	first int
	ghost *ghost
	wrote int
}

func (m *model) put(b int64) {
	last := len(m.log) - 1
	if last < 0 || len(m.log[last]) == m.per {
		m.log = append(m.log, nil)
		for len(m.log) > m.regions {
			old, number, kept := m.log[0], m.first, 0
			m.log = m.log[1:]
			m.first++
			for _, b := range old {
				if m.at[b] != number {
					continue
				}
				delete(m.at, b)
				if m.reads[b] && kept < m.keep {
					kept++
					m.write(b)
				}
				delete(m.reads, b)
			}
		}
	}
	m.write(b)
}

func (m *model) write(b int64) {
	last := len(m.log) - 1
	m.log[last] = append(m.log[last], b)
	m.at[b] = m.first + last
	m.wrote++
}

// selective is Tier.selective.
func (m *model) selective() bool {
	if !m.admit || len(m.log) < m.regions {
		return false
	}
	n := 0
	for _, b := range m.log[0] {
		if m.at[b] == m.first && m.reads[b] {
			n++
		}
	}
	return n*8 > len(m.log[0])
}

func (m *model) read(b int64) bool {
	if _, ok := m.at[b]; ok {
		m.reads[b] = true
		return true
	}
	if !m.selective() || m.ghost.take(uint64(b+1)*0x9e3779b97f4a7c15) {
		m.put(b)
	}
	return false
}

// The policy against plain FIFO, by models with 200 regions, and how much each writes. What the tier does must be
// better than FIFO, lose less than 5 points beside a scan, and follow a working set that is another one each phase.
func TestPolicy(t *testing.T) {
	const regions, per = 200, 63
	type result struct{ zipf, scan, wrote, wroteScan float64 }
	measure := func(keep int, admit bool) (r result, phases []float64) {
		newModel := func() *model {
			return &model{regions: regions, per: per, keep: keep, admit: admit, at: map[int64]int{},
				reads: map[int64]bool{}, ghost: newGhost(2 * regions * per)}
		}
		const size = regions * per
		m := newModel()
		r.zipf, r.wrote = ratio(m.read, size, 20, false), float64(m.wrote)/size
		m = newModel()
		r.scan, r.wroteScan = ratio(m.read, size, 20, true), float64(m.wrote)/size
		m = newModel()
		for phase := range int64(3) {
			for range 4 {
				hits := 0
				for b := range int64(size * 8 / 10) {
					if m.read(phase<<40 + b) {
						hits++
					}
				}
				phases = append(phases, float64(hits)/float64(size*8/10))
			}
		}
		return r, phases
	}
	fifo, fifoPhases := measure(0, false)
	kept, keptPhases := measure(per*3/4, false)
	tier, phases := measure(per*3/4, true)
	for _, row := range []struct {
		name   string
		r      result
		phases []float64
	}{{"FIFO", fifo, fifoPhases}, {"blocks that were read survive", kept, keptPhases}, {"tier", tier, phases}} {
		t.Logf("%-30s zipf %.3f, writes %4.1f capacities; beside a scan %.3f, %4.1f; passes of three working sets %.2f",
			row.name, row.r.zipf, row.r.wrote, row.r.scan, row.r.wroteScan, row.phases)
	}
	if tier.zipf < fifo.zipf+0.03 || tier.scan < fifo.scan+0.2 {
		t.Error("FIFO is as good")
	}
	if tier.scan < tier.zipf-0.05 {
		t.Error("a scan costs more than 5 points")
	}
	if phases[1] < 1 || phases[7] < 1 || phases[11] < 1 {
		t.Error("a working set that fits is not kept")
	}
}

// The same with a real tier.
func TestScan(t *testing.T) {
	const size, length = 16 * 64, 64 << 10 // blocks that fit, about
	v := blockstoretest.Object("scan", 1<<60, length)
	play := func(scan bool) float64 {
		d := openTier(t, Config{}, newMemDir())
		defer closeTier(t, d)
		n := 0
		return ratio(func(b int64) bool {
			k := blockstore.Key{Version: v, Index: b}
			got := d.Get(k)
			if got != nil {
				got.Release()
				return true
			}
			put(t, d, k)
			if n++; n%16 == 0 {
				flush(t, d)
			}
			return false
		}, size, 8, scan)
	}
	alone, beside := play(false), play(true)
	t.Logf("zipf %.3f, beside a scan %.3f", alone, beside)
	if alone < 0.75 || beside < alone-0.05 {
		t.Error("a scan costs more than 5 points")
	}
}
