package disk

import (
	"sync"
	"sync/atomic"
)

// index says where blocks are. It costs at most indexBytes per block, the hashes that regions keep and the ghost's mark
// included (TestIndexBytes).
const (
	indexBytes  = 64
	indexShards = 256
)

type index struct {
	n      atomic.Int64
	shards [indexShards]shard
}

type shard struct {
	mu     sync.Mutex
	places map[hash32]place
}

// hash32 is a hash in halves: an 8-byte word would be aligned to 8 bytes, and cost 4 more per block.
type hash32 struct{ hi, lo uint32 }

// place is where a block is. The check tells most keys of one hash apart; the key in the record tells all.
type place struct {
	check  uint32
	region uint32
	at     uint32 // offset in the region, a multiple of unit, and flags
}

const flagRead = 1 // the block was read since it was written

func (p place) offset() int64 { return int64(p.at &^ (unit - 1)) }
func (p place) read() bool    { return p.at&flagRead != 0 }

// same says whether two places are one, read or not.
func (p place) same(o place) bool { return p.region == o.region && p.offset() == o.offset() }

func newIndex() *index {
	x := new(index)
	for i := range x.shards {
		x.shards[i].places = make(map[hash32]place)
	}
	return x
}

func (x *index) shard(hash uint64) (*shard, hash32) {
	return &x.shards[hash%indexShards], hash32{uint32(hash >> 32), uint32(hash)}
}

func (x *index) find(hash uint64) (place, bool) {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.places[h]
	return p, ok
}

// set puts a block at a place, whatever was there.
func (x *index) set(hash uint64, p place) {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	x.put(s, h, p)
}

func (x *index) put(s *shard, h hash32, p place) {
	before := len(s.places)
	s.places[h] = p
	x.n.Add(int64(len(s.places) - before))
}

// setIfNewer is set, unless the block is at a newer place already.
func (x *index) setIfNewer(hash uint64, p place) {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.places[h]; !ok || old.region < p.region || old.region == p.region && old.at < p.at {
		x.put(s, h, p)
	}
}

// move is set for a block that is still at the place it was.
func (x *index) move(hash uint64, from, to place) {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.places[h]; ok && p.same(from) {
		s.places[h] = to
	}
}

// markRead notes that the block was read there, and says whether that is news.
func (x *index) markRead(hash uint64, at place) bool {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.places[h]
	if !ok || !p.same(at) || p.read() {
		return false
	}
	p.at |= flagRead
	s.places[h] = p
	return true
}

// remove forgets a block that is still at that place.
func (x *index) remove(hash uint64, at place) {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.places[h]; ok && p.same(at) {
		delete(s.places, h)
		x.n.Add(-1)
	}
}

// removeFrom forgets a block that is in a region.
func (x *index) removeFrom(hash uint64, region uint32) {
	s, h := x.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.places[h]; ok && p.region == region {
		delete(s.places, h)
		x.n.Add(-1)
	}
}
