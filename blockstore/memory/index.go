package memory

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// entry is a block that the tier holds a reference to. In its life it is linked in the window's queue, then, if it is
// admitted, in that of the main part, and then it is gone.
type entry struct {
	block *blockstore.Block
	hash  uint64
	use   usage

	where      *queue // that it is linked in, or nil; guarded by order.mu, like the links
	prev, next *entry
}

// cost is what the entry counts in a queue: the bytes of its slot and its overhead.
func (e *entry) cost() int64 { return int64(e.block.Cap()) + blockOverhead }

// usage says how often, and when last, a block was used since it entered its queue: the tick of the last use, or of its
// entering the main part, in the upper 30 bits, the number of uses, at most maxUses, in the lower two.
type usage struct{ atomic.Uint32 }

// note notes a use. It isn't one step, so that uses at the same moment may count as one; and most write nothing, since
// the readers of a hot block share this line.
func (u *usage) note(tick uint32) {
	old := u.Load()
	if now := tick<<2 | min(old&3+1, maxUses); now != old {
		u.Store(now)
	}
}

func (u *usage) reset(tick uint32) { u.Store(tick << 2) }

func (u *usage) used() bool { return u.Load()&3 != 0 }

// age returns the ticks since the last use.
func (u *usage) age(tick uint32) uint32 { return tick - u.Load()>>2 }

// spend takes one use away, if there is one that is no more than useTicks old, and says whether there was.
func (u *usage) spend(tick uint32) bool {
	old := u.Load()
	if old&3 == 0 || tick-old>>2 > useTicks {
		return false
	}
	u.Store(old - 1)
	return true
}

// acquire returns the entry's block with a reference if it is the block of that key and still alive. e may be nil.
func (e *entry) acquire(k blockstore.Key, tick uint32) *blockstore.Block {
	if e == nil || !e.block.TryAcquire() {
		return nil
	}
	if !e.block.Key().Equal(k) {
		e.block.Release()
		return nil
	}
	e.use.note(tick)
	return e.block
}

// is says whether this is the entry of that key. e may be nil.
func (e *entry) is(k blockstore.Key) bool {
	return e != nil && e.block.Key().Equal(k) && e.block.Refs() > 0
}

// index finds the entries of the window by hash; of two with one hash it has the newer one.
type index struct {
	shards [256]shard
}

type shard struct {
	mu      sync.RWMutex // taken before order.mu and ristretto's locks
	entries map[uint64]*entry
	closed  bool
	_       [88]byte // to a multiple of 128 bytes: shards share no cache line, nor a pair of them
}

func (x *index) init() {
	for i := range x.shards {
		x.shards[i].entries = make(map[uint64]*entry)
	}
}

// shard takes the upper bits: ristretto uses the lower ones for its own shards.
func (x *index) shard(hash uint64) *shard { return &x.shards[hash>>56] }

// forget takes the entry out, if it is still the one under its hash.
func (x *index) forget(e *entry) {
	s := x.shard(e.hash)
	s.mu.Lock()
	if s.entries[e.hash] == e {
		delete(s.entries, e.hash)
	}
	s.mu.Unlock()
}

// close empties the index for good.
func (x *index) close() {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		s.closed, s.entries = true, nil
		s.mu.Unlock()
	}
}

// queue is a list of entries in the order in which they came; guarded by order.mu.
type queue struct {
	root entry // root.next is the oldest, root.prev the newest
	n    int
	cost int64 // of all entries
}

func (q *queue) oldest() *entry {
	if q.n == 0 {
		return nil
	}
	return q.root.next
}

func (q *queue) push(e *entry) {
	if q.root.next == nil {
		q.root.next, q.root.prev = &q.root, &q.root
	}
	e.where, e.prev, e.next = q, q.root.prev, &q.root
	e.prev.next, e.next.prev = e, e
	q.n++
	q.cost += e.cost()
}

func (q *queue) remove(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.where, e.prev, e.next = nil, nil, nil
	q.n--
	q.cost -= e.cost()
}

// order keeps the two queues and what the decisions about them need.
type order struct {
	mu      sync.Mutex // a leaf but for arena.mu
	window  queue
	main    queue
	target  int64 // bytes the window may have at present
	ghost   *ghost
	put     int64         // bytes put since the last tick
	perTick int64         // bytes
	tick    atomic.Uint32 // the clock of usage: useTicks ticks for each limit's worth of bytes put; written under mu

	evicted, rejected uint64 // blocks taken out of the main part; turned away at its door
}

// enter links a new entry into the window. If it replaces one that is in the window, that one is unlinked and returned;
// its reference is the caller's to release. It also returns by how much the window is above its target.
func (o *order) enter(e, old *entry) (gone *entry, over int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if old != nil && old.where == &o.window { // else the mover has it in hand
		o.window.remove(old)
		gone = old
	}
	o.window.push(e)
	if o.put += e.cost(); o.put >= o.perTick {
		o.put = 0
		o.tick.Add(1)
	}
	return gone, o.window.cost - o.target
}

// popWindow unlinks the oldest entry of the window; nil when there is none.
func (o *order) popWindow() *entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.window.oldest()
	if e != nil {
		o.window.remove(e)
	}
	return e
}
