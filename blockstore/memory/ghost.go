package memory

// ghost remembers the hashes of blocks that were lately turned away, without their bytes: a block that is fetched again
// while remembered has earned a place. It has one mark of four bytes per KiB of the tier, in sets that fill a cache
// line; what it forgets too early, or takes for something else, costs a hit, never a wrong answer. Not safe for
// concurrent use.
type ghost struct {
	sets [][setMarks]mark
	unit int64 // bytes turned away per tick of the clock
	away int64 // bytes turned away so far
}

// mark is one remembered hash: 16 bits of it above the tick when the block was turned away. Zero is none.
type mark uint32

const (
	setMarks  = 16
	markBytes = 1 << 10 // of the tier per mark
	ghostAge  = 1 << 14 // ticks for which a mark counts; they wrap at four times that
)

// newGhost returns a ghost that remembers a block until span more bytes have been turned away.
func newGhost(span int64) *ghost {
	sets := int64(1)
	for sets*setMarks*markBytes < span {
		sets *= 2
	}
	return &ghost{sets: make([][setMarks]mark, sets), unit: max(span/ghostAge, 1)}
}

// find returns the marks that the hash may be in, how it is marked there, and the present tick.
func (g *ghost) find(hash uint64) (set *[setMarks]mark, tag mark, now uint16) {
	return &g.sets[hash&uint64(len(g.sets)-1)], mark(hash>>48|1) << 16, uint16(g.away / g.unit)
}

func (m mark) age(now uint16) uint16 { return now - uint16(m) }

// add remembers a block of n bytes that is turned away, in the place of the oldest of its set.
func (g *ghost) add(hash uint64, n int64) {
	g.away += n
	set, tag, now := g.find(hash)
	oldest := 0
	for i, m := range set {
		if m == 0 || m>>16 == tag>>16 {
			oldest = i
			break
		}
		if m.age(now) > set[oldest].age(now) {
			oldest = i
		}
	}
	set[oldest] = tag | mark(now)
}

// take says whether the block is remembered, and forgets it.
func (g *ghost) take(hash uint64) bool {
	set, tag, now := g.find(hash)
	for i, m := range set {
		if m>>16 == tag>>16 {
			set[i] = 0
			return m.age(now) <= ghostAge
		}
	}
	return false
}
