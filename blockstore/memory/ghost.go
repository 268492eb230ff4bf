package memory

// ghost remembers the hashes of blocks that were lately turned away, without their bytes: a block that is fetched again
// while remembered has earned a place. It holds one mark per 4 KiB of the tier, eight bytes each, in sets of four; what it
// forgets too early costs a hit, never a wrong answer. Not safe for concurrent use.
type ghost struct {
	sets [][4]mark
	away int64 // bytes turned away so far: the clock
	span uint32
}

// mark is one remembered hash; the zero mark is none.
type mark struct {
	tag uint32 // upper half of the hash, lowest bit set
	at  uint32 // clock when it was turned away, in units of ghostUnit, modulo 2^32
}

const ghostUnit = 4 << 10

// newGhost returns a ghost that remembers a block until span more bytes have been turned away.
func newGhost(span int64) *ghost {
	sets := int64(1)
	for sets*4*ghostUnit < span {
		sets *= 2
	}
	return &ghost{sets: make([][4]mark, sets), span: uint32(min(span/ghostUnit, 1<<31))}
}

func (g *ghost) set(hash uint64) (*[4]mark, uint32) {
	return &g.sets[hash&uint64(len(g.sets)-1)], uint32(hash>>32) | 1
}

// add remembers a block of n bytes that is turned away, over the oldest of its set.
func (g *ghost) add(hash uint64, n int64) {
	g.away += n
	now := uint32(g.away / ghostUnit)
	set, tag := g.set(hash)
	oldest := 0
	for i, m := range set {
		if m.tag == tag || m.tag == 0 {
			oldest = i
			break
		}
		if now-m.at > now-set[oldest].at {
			oldest = i
		}
	}
	set[oldest] = mark{tag, now}
}

// take says whether the block is remembered, and forgets it.
func (g *ghost) take(hash uint64) bool {
	now := uint32(g.away / ghostUnit)
	set, tag := g.set(hash)
	for i, m := range set {
		if m.tag == tag {
			set[i] = mark{}
			return now-m.at <= g.span
		}
	}
	return false
}
