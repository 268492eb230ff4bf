package disk

import "sync"

// ghost remembers which blocks were offered and not kept. It has a mark of four bytes for each, in sets that are
// queues: a new mark pushes the oldest of its set out. What it forgets too early, or takes for something else, costs a
// hit or a write, never a wrong answer. Safe for concurrent use.
type ghost struct {
	mu   sync.Mutex
	sets [][ghostSet]uint32
}

const ghostSet = 16 // marks; they fill a cache line

func newGhost(marks int64) *ghost {
	sets := int64(1)
	for 2*sets*ghostSet <= marks {
		sets *= 2
	}
	return &ghost{sets: make([][ghostSet]uint32, sets)}
}

// take says whether the block is remembered, and forgets it; if it is not, it is from now on.
func (g *ghost) take(hash uint64) bool {
	set, mark := &g.sets[hash&uint64(len(g.sets)-1)], uint32(hash>>32)|1
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, m := range set {
		if m == mark {
			set[i] = 0
			return true
		}
	}
	copy(set[1:], set[:ghostSet-1])
	set[0] = mark
	return false
}
