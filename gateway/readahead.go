package gateway

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// Readahead: a client that reads an object by one range after the other is about to read what follows. Within one read
// the same is done by a window that grows, see Object.window. What is read ahead waits in a lane of its own in front of
// the origin, see queue, and belongs to nobody until a reader comes for it.

// scan is one client's way through one object. It does no I/O.
type scan struct {
	next  int64 // where it goes on if it is sequential, in bytes
	block int64 // the last block that it has read
	ramp  int64 // blocks to have asked for beyond that
	upto  int64 // blocks below this have been
}

// step takes in a read of bytes [off, end), and returns the blocks [from, to) to ask for: none at first, and then 1, 2, 4
// and so on up to most beyond the one read last, or as many as the read itself has, for as long as each read begins where
// the one before it ended, or less than a block behind that, and comes to another block. Small reads here and there in one
// block ask for nothing: who looks things up in it has no use for the next; only where they leave no gap, and have come to
// its second half, they do. So that they are asked for by few requests, nothing is until half of them have been read, or
// group. Where there is room for two groups they end where one does, from the second block on, and are twice what the read
// has, or a group: all of a sudden they would all come at once, and then nothing for as long as the origin takes.
func (s *scan) step(off, end, size, most, group int64) (from, to int64) {
	last := (end - 1) / size
	if off < s.next || off-s.next >= size || s.next == 0 {
		*s = scan{next: end, block: last, upto: last + 1}
		return 0, 0
	}
	n, next := 1+last-off/size, last > s.block
	if next || s.ramp == 0 && off == s.next && 2*(end-last*size) >= size {
		s.ramp = min(max(n, 2*s.ramp), most)
	}
	s.next, s.block = end, last
	from, to = max(s.upto, last+1), last+1+s.ramp
	if next && most >= 2*group {
		to = min((min(to, from+2*n)+group-1)/group, (last+1+most)/group) * group
	}
	if from >= to || to-from < min(s.ramp-s.ramp/2, group) {
		return 0, 0
	}
	s.upto = to
	return from, to
}

// scans remembers a number of them, each in the place that its name's hash gives it: two that share one take each other
// for random access, and lose nothing but readahead. Safe for concurrent use.
type scans struct {
	seed  maphash.Seed
	slots [1024]scanSlot
}

type scanSlot struct {
	mu      sync.Mutex
	name    uint64    // guarded by mu
	scan    scan      // guarded by mu
	flights []*flight // that hold what was read ahead, in order; guarded by mu
}

func newScans() *scans { return &scans{seed: maphash.MakeSeed()} }

// slot returns the place of the scan that r is part of, and its name there.
func (s *scans) slot(r *Request) (*scanSlot, uint64) {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, part := range [...]string{r.Object.Bucket, r.Object.Key, r.Object.VersionID, r.Client} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	name := h.Sum64()
	return &s.slots[name%uint64(len(s.slots))], name
}

// findAhead puts what was read ahead for this read back into memory, where a full tier has turned it away. It says
// whether there may be more to come of it.
func (o *Object) findAhead() bool {
	if o.policy.Readahead == 0 || !o.Partial {
		return false
	}
	g := o.g
	slot, name := g.scans.slot(&o.request)
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.name != name || len(slot.flights) == 0 {
		return false
	}
	first, last := o.Offset/o.size, o.lastBlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range slot.flights {
		for _, p := range f.held {
			if p.block != nil && p.index >= first && p.index <= last && !g.mem.Contains(p.block.Key()) {
				g.mem.Put(p.block)
			}
		}
	}
	return true
}

// step is scan.step for the scan that r is part of. What lies behind it is held no longer.
func (s *scans) step(r *Request, off, end, size, most, group int64) (slot *scanSlot, from, to int64) {
	slot, name := s.slot(r)
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.name != name {
		slot.name, slot.scan = name, scan{}
	}
	from, to = slot.scan.step(off, end, size, most, group)
	at := off / size
	if slot.scan.ramp == 0 { // another scan, or none
		at = 1<<63 - 1
	}
	for len(slot.flights) > 0 && slot.flights[0].last() < at {
		close(slot.flights[0].passed)
		slot.flights = slot.flights[1:]
	}
	return slot, from, to
}

// holdAhead is how long a block that was read ahead is held for a reader who does not come.
const holdAhead = 5 * time.Second

// hold keeps the blocks of a flight that was read ahead until the reader is past them: a block that nobody has read is the
// first that a full tier turns away. They count as bytes of Gateway.ahead for as long.
func (g *Gateway) hold(f *flight) {
	// What has failed holds nothing.
	if slices.ContainsFunc(f.blocks, func(p *pending) bool { return p != nil && p.block != nil }) {
		t := time.NewTimer(holdAhead)
		defer t.Stop()
		select {
		case <-f.passed:
		case <-t.C:
		case <-g.ctx.Done():
		}
	}
	g.mu.Lock()
	held := f.held
	f.held = nil
	g.mu.Unlock()
	for _, p := range held {
		g.unjoin(p)
	}
	g.ahead.give(int64(len(f.blocks)) * f.known.version.BlockSize)
}

// readAhead starts to fetch what this client is likely to ask for next.
func (o *Object) readAhead() {
	g, most := o.g, int64(o.policy.Readahead)
	if most == 0 || o.request.Routed || o.stale || !o.Partial {
		return
	}
	slot, from, to := g.scans.step(&o.request, o.Offset, o.Offset+o.Length, o.size, most, int64(o.group()))
	to = min(to, (o.known.info.Size+o.size-1)/o.size)
	if from >= to {
		return
	}
	slot.mu.Lock()
	defer slot.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	missing := func(i int64) bool {
		key := blockKey(o.known, i)
		return g.lacks(key) && !g.onDisk(key)
	}
	for from < to {
		if !missing(from) {
			from++
			continue
		}
		n, end := int64(1), min(to-1, o.groupEnd(from))
		for from+n <= end && missing(from+n) {
			n++
		}
		take := g.takeSpare
		if from <= o.lastBlock()+int64(o.group()) { // where one that reads a whole object would wait
			take = g.ahead.take
		}
		if !take(n * o.size) {
			slot.scan.upto = min(slot.scan.upto, from) // to be asked for when there is leave again
			return
		}
		f := newFlight(o.request.Object, o.known, o.fetch, o.request.Client, from, n)
		f.ahead, f.hedges, f.passed = true, 0, make(chan struct{})
		f.readers = 1 // nobody's leaving drops it
		g.start(f)
		for _, p := range f.blocks {
			if p != nil {
				p.waiters++
				f.held = append(f.held, p)
			}
		}
		slot.flights = append(slot.flights, f)
		from += n
	}
}

// window is how many blocks the read may have asked for when it is at block i: four more for each that it has come along,
// up to Policy.Readahead, so that it does not wait at the edge of ReadWindow. Not more than it gets along in a second,
// though: a slow client would hold them for long, and on a slow link what is wanted next would share it with all of them.
func (o *Object) window(i int64) int64 {
	n, done := int64(o.policy.ReadWindow), i-o.Offset/o.size
	if o.request.Routed || done == 0 {
		return n
	}
	pace := float64(done) / max(time.Since(o.began), time.Millisecond).Seconds()
	return n + min(4*done, int64(o.policy.Readahead), int64(pace))
}

// takeSpare takes n bytes of Gateway.ahead for what nobody waits for yet, and leaves a quarter of them for others: a read
// that has none left goes to the origin block by block.
func (g *Gateway) takeSpare(n int64) bool { return g.ahead.takeUpTo(g.ahead.limit*3/4, n) }
