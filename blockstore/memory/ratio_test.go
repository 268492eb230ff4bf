package memory

import (
	"container/list"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// cache is what a policy looks like to a trace: it is asked for a block, and has it or takes it.
type cache interface{ read(block int64) (hit bool) }

// tierCache is the tier itself.
type tierCache struct {
	t testing.TB
	m *Tier
	v *blockstore.Version
}

func (c tierCache) read(block int64) bool {
	return read(c.t, c.m, blockstore.Key{Version: c.v, Index: block})
}

// listCache is the model of FIFO, and of LRU if touch.
type listCache struct {
	size  int
	touch bool
	order *list.List
	index map[int64]*list.Element
}

func (c *listCache) read(block int64) bool {
	if e, ok := c.index[block]; ok {
		if c.touch {
			c.order.MoveToFront(e)
		}
		return true
	}
	if c.order.Len() >= c.size {
		delete(c.index, c.order.Remove(c.order.Back()).(int64))
	}
	c.index[block] = c.order.PushFront(block)
	return false
}

// s3fifo is the model of S3-FIFO (Yang et al., SOSP 2023): a small queue of a tenth, a main queue, and a ghost as long
// as it.
type s3fifo struct {
	small, main, ghost []int64
	smallSize, size    int
	uses               map[int64]int  // of what is held
	gone               map[int64]bool // what the ghost remembers
}

func (c *s3fifo) read(block int64) bool {
	if n, ok := c.uses[block]; ok {
		c.uses[block] = min(n+1, 3)
		return true
	}
	c.uses[block] = 0
	if c.gone[block] {
		delete(c.gone, block)
		c.admit(block)
		return false
	}
	c.small = append(c.small, block)
	if len(c.small) <= c.smallSize {
		return false
	}
	old := c.small[0]
	c.small = c.small[1:]
	if c.uses[old] > 1 {
		c.uses[old] = 0
		c.admit(old)
		return false
	}
	delete(c.uses, old)
	c.ghost, c.gone[old] = append(c.ghost, old), true
	if len(c.ghost) > c.size-c.smallSize {
		delete(c.gone, c.ghost[0])
		c.ghost = c.ghost[1:]
	}
	return false
}

func (c *s3fifo) admit(block int64) {
	for len(c.main) >= c.size-c.smallSize {
		old := c.main[0]
		c.main = c.main[1:]
		if c.uses[old] == 0 {
			delete(c.uses, old)
			continue
		}
		c.uses[old]--
		c.main = append(c.main, old)
	}
	c.main = append(c.main, block)
}

// zipf returns a source of blocks of a catalogue whose popularity falls with rank^-s.
func zipf(rng *rand.Rand, s float64, catalogue int64) func() int64 {
	sum, sums := 0.0, make([]float64, catalogue)
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	rank := rng.Perm(int(catalogue))
	return func() int64 { return int64(rank[sort.SearchFloat64s(sums, rng.Float64()*sum)]) }
}

// The tier's hit ratios against those of plain policies with as many blocks, as a table. It must beat FIFO and LRU
// where popularity is skewed, and come close to S3-FIFO; what it gives up against it is the price of following phases.
func TestHitRatio(t *testing.T) {
	const (
		seed      = 1
		limit     = 64 << 20
		blockSize = 64 << 10
		size      = limit / (blockSize + blockOverhead)
		reads     = 60 * size
	)
	type trace struct {
		name   string
		steady bool // the popular blocks stay so
		next   func(rng *rand.Rand) func(i int) (block int64, counts bool)
	}
	const far = int64(1) << 30 // blocks nobody else reads
	type source = func(i int) (block int64, counts bool)
	mixed := func(catalogue int64, other func(i int) int64, share int, count bool) func(*rand.Rand) source {
		return func(rng *rand.Rand) source {
			z := zipf(rng, 0.9, catalogue)
			return func(i int) (int64, bool) {
				if share > 0 && i%share == 0 {
					return other(i / share), count
				}
				return z(), true
			}
		}
	}
	traces := []trace{
		{"zipf, 2x", true, mixed(2*size, nil, 0, true)},
		{"zipf, 4x", true, mixed(4*size, nil, 0, true)},
		{"zipf, 4x, beside a scan", true, mixed(4*size, func(i int) int64 { return far + int64(i) }, 4, false)},
		{"zipf, 4x, beside a loop", true,
			mixed(4*size, func(i int) int64 { return far + int64(i%(size*6/5)) }, 2, true)},
		{"zipf, 4x, moving on", false, func(rng *rand.Rand) func(int) (int64, bool) {
			z := zipf(rng, 0.9, 4*size)
			return func(i int) (int64, bool) { return z() + far*int64(i/(15*size)), true }
		}},
	}
	policies := []string{"fifo", "lru", "s3-fifo", "tier"}
	table := fmt.Sprintf("%-26s", "")
	for _, p := range policies {
		table += fmt.Sprintf(" %8s", p)
	}
	for _, tr := range traces {
		ratio := map[string]float64{}
		for _, p := range policies {
			var c cache
			switch p {
			case "fifo", "lru":
				c = &listCache{size: size, touch: p == "lru", order: list.New(), index: map[int64]*list.Element{}}
			case "s3-fifo":
				c = &s3fifo{smallSize: size / 10, size: size, uses: map[int64]int{}, gone: map[int64]bool{}}
			case "tier":
				c = tierCache{t, newTier(t, limit, 1<<20), blockstoretest.Object("trace", 1<<50, blockSize)}
			}
			next := tr.next(rand.New(rand.NewPCG(seed, 0)))
			hits, all := 0, 0
			for i := range reads {
				block, counts := next(i)
				hit := c.read(block)
				if i < reads/4 || !counts { // while it fills, and what can't hit
					continue
				}
				all++
				if hit {
					hits++
				}
			}
			ratio[p] = float64(hits) / float64(all)
		}
		table += fmt.Sprintf("\n%-26s", tr.name)
		for _, p := range policies {
			table += fmt.Sprintf(" %8.3f", ratio[p])
		}
		if ratio["tier"] < ratio["fifo"] || tr.steady && ratio["tier"] < ratio["lru"] {
			t.Errorf("%s: a plain policy has a better hit ratio than the tier's %.3f", tr.name, ratio["tier"])
		}
		if ratio["tier"] < ratio["s3-fifo"]-0.05 {
			t.Errorf("%s: S3-FIFO has a much better hit ratio than the tier's %.3f", tr.name, ratio["tier"])
		}
	}
	t.Logf("seed %d, %d blocks held, hit ratios:\n%s", seed, size, table)
}
