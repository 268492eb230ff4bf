package memory

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// The numbers of the policy; ARCHITECTURE.md has the measurements behind them.
const (
	windowPercent = 6            // of the limit: what the window may always have
	spareShare    = 64           // one part in so many is kept free, so that an Alloc seldom has to evict by itself
	maxUses       = 2            // a block of the main part is passed over at most so often before it must have been used again
	useTicks      = 32           // for which a use counts: while as many bytes are put as the limit
	staleTicks    = 8 * useTicks // without a use after which a block of the main part yields to any other
	moveBatch     = 256          // entries that wait for ristretto together
	counterShare  = 2 << 10      // bytes of the limit per counter of ristretto's frequencies
)

// policy is the state of the one who decides; mu makes sure that there is only one at a time, the mover or an Alloc in need.
type policy struct {
	mu     sync.Mutex // taken before every other lock
	closed bool
	batch  []*entry // scratch
	drops  []*entry // scratch

	waits atomic.Uint64
}

// effort says what may be evicted to make room.
type effort int

const (
	cheap   effort = iota // blocks that nobody reads, of the main part
	sparing               // of the window too, when there are none
	any                   // blocks that are being read too: their readers' release will make the room
)

func (t *Tier) newMain(limit int64) (*ristretto.Cache[uint64, *entry], error) {
	return ristretto.NewCache(&ristretto.Config[uint64, *entry]{
		NumCounters:        max(limit/counterShare, 4096),
		MaxCost:            limit,
		BufferItems:        64,
		IgnoreInternalCost: true,
		// Keys are hashes already. Without a second hash the newer of two that collide replaces the older.
		KeyToHash: func(h uint64) (uint64, uint64) { return h, 0 },
		OnReject:  func(i *ristretto.Item[*entry]) { t.rejected(i.Value) },
		OnExit:    t.exit,
		// Nothing expires; the ticker need not wake anyone.
		TtlTickerDurationInSec: math.MaxInt32,
	})
}

// exit drops the reference of an entry that left ristretto by whatever way. It is called once per entry, and with nil when
// ristretto was asked to delete what it had not got.
func (t *Tier) exit(e *entry) {
	if e == nil {
		return
	}
	t.order.mu.Lock()
	if e.where == &t.order.main {
		t.order.main.remove(e)
		t.order.evicted++
	}
	t.order.mu.Unlock()
	e.block.Release()
}

// rejected notes an entry that ristretto turned away; exit follows.
func (t *Tier) rejected(e *entry) {
	t.order.mu.Lock()
	if e.where == &t.order.main {
		t.order.main.remove(e)
		t.order.turnAway(e)
	}
	t.order.mu.Unlock()
}

func (o *order) turnAway(e *entry) {
	o.ghost.add(e.hash, e.cost())
	o.rejected++
}

// move is the mover: it brings what is too much for the window to the main part, and evicts for those who wait.
func (t *Tier) move() {
	defer close(t.done)
	for {
		select {
		case <-t.stop:
			return
		case <-t.kick:
		}
		t.policy.mu.Lock()
		t.drain(0)
		for {
			ci, ok := t.arena.head()
			if !ok || !t.makeRoom(ci, any) {
				break
			}
		}
		t.policy.mu.Unlock()
	}
}

// plan divides the memory: it sets what the window may have, and returns what the main part may have if room bytes are to
// stay free. t.policy.mu and t.order.mu are held, and no entry is in the mover's hand.
//
// Outside are the bytes of neither: blocks being filled, blocks evicted but still read, and remainders of shared pages.
// Whatever is in flight will be put soon, so the window must have room for as much; and when it has just landed the window
// must not shrink at once, or it would lose the first blocks of a burst: burst follows outside upward at once, and downward
// by a quarter of the bytes that leave the window.
func (t *Tier) plan(room int64) (main int64) {
	o := &t.order
	outside := max(t.arena.inUse()-o.window.cost-o.main.cost, 0)
	o.burst = max(o.burst, outside)
	o.target = max(t.base, min(o.burst, (t.arena.limit-outside)/2))
	return t.arena.limit - o.target - outside - max(room, t.spare)
}

// drain moves entries from the window to the main part until the window is down to its target, leaving room bytes free
// if what the main part has is worth less than what comes. t.policy.mu is held.
//
// While an entry moves it stays findable in the index of the window, until ristretto has it.
func (t *Tier) drain(room int64) {
	p, o := &t.policy, &t.order
	for {
		batch, drops := p.batch[:0], p.drops[:0]
		o.mu.Lock()
		capacity := t.plan(room)
		for o.window.cost > o.target && len(batch) < moveBatch {
			e := o.window.oldest()
			o.window.remove(e)
			batch = append(batch, e)
			o.burst -= e.cost() / 4
		}
		o.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		t.main.UpdateMaxCost(max(capacity, 1))
		for _, e := range batch {
			if !t.offer(e, capacity) {
				drops = append(drops, e)
			}
		}
		t.main.Wait()
		for _, e := range batch {
			t.index.forget(e)
		}
		for _, e := range drops {
			e.block.Release()
		}
		clear(batch)
		clear(drops)
		p.batch, p.drops = batch, drops
	}
}

// offer decides about a block that leaves the window, and says whether it, and the window's reference, went to ristretto.
//
// While there is room every block is admitted. Then: one that was turned away lately and has been fetched again gets the
// place of the blocks that were unused for longest. Of the others those that were used in the window are let compete by
// frequency, as ristretto does; those that nobody asked for again are turned away, and remembered. So that a working set
// larger than what is remembered doesn't find the place taken for ever, anyone gets the place of a block that was not used
// while eight times the limit was put.
func (t *Tier) offer(e *entry, capacity int64) bool {
	o := &t.order
	o.mu.Lock()
	tick := o.tick.Load()
	deserved := o.ghost.take(e.hash)
	if old := o.main.oldest(); old != nil && old.use.age(tick) > staleTicks {
		deserved = true
	}
	full := o.main.cost+e.cost() > capacity
	if full && !deserved && !e.use.used() {
		o.turnAway(e)
		o.mu.Unlock()
		return false
	}
	o.mu.Unlock()
	for full && deserved && t.evictMain(false) > 0 {
		o.mu.Lock()
		full = o.main.cost+e.cost() > capacity
		o.mu.Unlock()
	}
	o.mu.Lock()
	e.use.reset(tick)
	o.main.push(e) // before Set: exit may come at any time after it
	o.mu.Unlock()
	for !t.main.Set(e.hash, e, e.cost()) { // its buffer is full; nothing else than us fills it
		t.main.Wait()
	}
	return true
}

// makeRoom evicts until there is room for a slot of the class, and says whether there is. t.policy.mu is held.
func (t *Tier) makeRoom(ci int, how effort) bool {
	short := t.arena.short(ci)
	if short <= 0 {
		return true
	}
	t.drain(short)
	for t.arena.short(ci) > 0 {
		if t.evictMain(false) == 0 && (how == cheap || t.evictWindow(false) == 0) {
			break
		}
	}
	// What is being read is evicted only as far as those bytes, once they come back, will do: then it is the release by
	// its readers that wakes who waits. Blocks that stay in the tier can become free unseen.
	if how == any {
		for short = t.arena.short(ci); short > 0; {
			n := t.evictMain(true)
			if n == 0 {
				n = t.evictWindow(true)
			}
			if n == 0 {
				break
			}
			short -= n
		}
	}
	return t.arena.short(ci) <= 0
}

// evictMain takes out the block of the main part that was unused for longest, giving those that were used, and those that
// are being read, another round; or, if inUse, simply the oldest. It returns the cost of the block, 0 when there was none.
func (t *Tier) evictMain(inUse bool) int64 {
	o := &t.order
	o.mu.Lock()
	for tries := (maxUses + 1) * o.main.n; tries > 0; tries-- {
		e := o.main.oldest()
		o.main.remove(e)
		if !inUse && (e.use.spend(o.tick.Load()) || e.block.Refs() > 1) {
			o.main.push(e)
			continue
		}
		o.evicted++
		o.mu.Unlock()
		t.main.Del(e.hash) // calls exit
		return e.cost()
	}
	o.mu.Unlock()
	return 0
}

// evictWindow takes out the oldest block of the window that nobody reads; or, if inUse, simply the oldest. It returns the
// cost of the block, 0 when there was none.
func (t *Tier) evictWindow(inUse bool) int64 {
	o := &t.order
	o.mu.Lock()
	for e := o.window.oldest(); e != nil && e != &o.window.root; e = e.next {
		if !inUse && e.block.Refs() > 1 {
			continue
		}
		o.window.remove(e)
		o.turnAway(e)
		o.mu.Unlock()
		t.index.forget(e)
		e.block.Release()
		return e.cost()
	}
	o.mu.Unlock()
	return 0
}
