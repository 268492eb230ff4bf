package cluster

import (
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// The routing, which testdata/routing_vectors.json fixes:
//
//	key   = xxHash64(bucket "/" key)            seed 0; a bucket has no slash in it
//	unit  = mix(key + (index+1) * golden)       index is the offset divided by the size of a routing unit
//	score = mix(unit XOR xxHash64(node ID))
//
// all modulo 2^64, mix being the finalizer of MurmurHash3. With equal weights nodes rank by descending score. Otherwise
// they rank by descending weight / -log2(score / 2^64), the logarithm taken in fixed point as logTable does and the
// quotients compared as exact fractions; nodes whose fractions are equal rank by score, so that equal weights rank
// alike by either rule. Ties go to the lower ID.
//
// Weighted rendezvous by logarithm: Schindler and Schomaker, "Weighted Distributed Hash Tables" (2005). FNV in place of
// xxHash, or a sum without the finalizer, leaves scores that depend on each other: docs/cluster.md has the figures.
const (
	algorithm = "ashlar-rendezvous-1"
	golden    = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd
)

// mix is the finalizer of MurmurHash3: a bijection in which every bit of x moves every bit of the result.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Key is the hash of an object's bucket and key, to be computed once for all its units.
type Key uint64

// KeyOf returns the hash of an object.
func KeyOf(bucket, key string) Key {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(bucket)
	_, _ = d.WriteString("/")
	_, _ = d.WriteString(key)
	return Key(d.Sum64())
}

// Unit is the hash of one routing unit of an object: what is ranked for.
type Unit uint64

// Unit returns the hash of the object's routing unit with an index.
func (k Key) Unit(index int64) Unit { return Unit(mix(uint64(k) + (uint64(index)+1)*golden)) }

// place is what decides about a node's rank for one unit.
type place struct {
	node   int
	score  uint64
	weight uint64
	log    uint64 // -log2(score/2^64) in fixed point; with equal weights unused
}

func (s *Snapshot) place(u Unit, i int) place {
	p := place{node: i, score: mix(uint64(u) ^ s.hashes[i]), weight: s.weights[i]}
	if s.log != nil {
		p.log = s.log.negLog2(p.score)
	}
	return p
}

// before says whether p ranks before q, whose node has a greater index and so a greater ID.
func (s *Snapshot) before(p, q *place) bool {
	if s.log != nil {
		// p.weight/p.log against q.weight/q.log; the products have 62 bits at most
		if x, y := p.weight*q.log, q.weight*p.log; x != y {
			return x > y
		}
	}
	return p.score >= q.score
}

// Owner returns the index of the node that a unit belongs to, -1 when there are no nodes. It allocates nothing.
func (s *Snapshot) Owner(u Unit) int {
	if len(s.hashes) == 0 {
		return -1
	}
	if s.log == nil {
		best, top := 0, uint64(0)
		for i, h := range s.hashes {
			score := mix(uint64(u) ^ h)
			if score > top { // two ifs of one assignment each: no branch to mispredict
				best = i
			}
			top = max(top, score)
		}
		return best
	}
	best := s.place(u, 0)
	for i := 1; i < len(s.hashes); i++ {
		score, weight := mix(uint64(u)^s.hashes[i]), s.weights[i]
		if score <= best.score && weight <= best.weight {
			continue // the same by logarithms, which cost more
		}
		if p := (place{i, score, weight, s.log.negLog2(score)}); !s.before(&best, &p) {
			best = p
		}
	}
	return best.node
}

// lower returns two places in the order of their nodes' IDs.
func lower(p, q *place) (*place, *place) {
	if p.node < q.node {
		return p, q
	}
	return q, p
}

// Rank returns the indexes of all nodes as they rank for a unit, the owner first.
func (s *Snapshot) Rank(u Unit) []int {
	places := make([]place, len(s.hashes))
	for i := range places {
		places[i] = s.place(u, i)
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.node < b.node == s.before(lower(&a, &b)) {
			return -1
		}
		return 1
	})
	rank := make([]int, len(places))
	for i := range places {
		rank[i] = places[i].node
	}
	return rank
}

// logTable holds log2(1 + i/logSteps), rounded to the nearest multiple of 2^-logBits.
type logTable [logSteps + 1]uint64

const (
	logBits  = 40
	logShift = 10
	logSteps = 1 << logShift
)

// newLogTable computes the table in integers: bit by bit, by squaring a number in [1, 2) and halving it when it reaches
// 2 (Knuth, The Art of Computer Programming, section 1.2.2, exercise 25).
func newLogTable() *logTable {
	t := new(logTable)
	for i := 1; i < logSteps; i++ {
		x := uint64(logSteps+i) << (63 - logShift) // in units of 2^-63
		var log uint64
		for range logBits + 1 { // one bit more, to round by
			hi, lo := bits.Mul64(x, x) // in units of 2^-126
			log <<= 1
			if x = hi; hi>>63 == 1 {
				log |= 1
			} else {
				x = hi<<1 | lo>>63
			}
		}
		t[i] = (log + 1) >> 1
	}
	t[logSteps] = 1 << logBits
	return t
}

// negLog2 returns -log2(score/2^64) in units of 2^-logBits, between table entries on a straight line, so that it never
// rises with the score. 0 counts as 1.
func (t *logTable) negLog2(score uint64) uint64 {
	score = max(score, 1)
	zeros := bits.LeadingZeros64(score)
	fraction := score << zeros << 1 // of a number in [1, 2), in units of 2^-64
	i := fraction >> (64 - logShift)
	between, _ := bits.Mul64(t[i+1]-t[i], fraction<<logShift)
	return uint64(zeros+1)<<logBits - t[i] - between
}
