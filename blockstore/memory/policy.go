package memory

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// The numbers of the policy; ARCHITECTURE.md has the measurements behind them.
const (
	windowPercent = 6                    // of the limit: what the window may always have
	spareShare    = 64                   // one part in so many is kept free, so that an Alloc seldom has to evict
	maxUses       = 2                    // that a block of the main part is passed over for; more are not counted
	useTicks      = 32                   // for which a use counts: while as many bytes are put as the limit
	staleTicks    = 8 * useTicks         // without a use after which a block of the main part yields to any other
	moveBatch     = 256                  // entries that wait for ristretto together
	pollEvery     = 2 * time.Millisecond // while someone waits for room
	counterShare  = 2 << 10              // bytes of the limit per counter of ristretto's frequencies
)

// policy is the state of the one who decides; mu makes sure that there is only one at a time, the mover or an Alloc in
// need.
type policy struct {
	mu     sync.Mutex // taken before every other lock
	closed bool
	batch  []*entry // scratch
	drops  []*entry // scratch

	waits atomic.Uint64
}

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

// exit drops the reference of an entry that left ristretto by whatever way. It is called once per entry, and with nil
// when ristretto was asked to delete what it had not got.
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
//
// Who waits is served when a slot is freed, and the mover is woken when a block is put. But a reader who leaves a block
// that the tier has too is seen by nobody, and makes it possible to evict it: hence the poll, while someone waits.
func (t *Tier) move() {
	defer close(t.done)
	poll := time.NewTimer(pollEvery)
	defer poll.Stop()
	for {
		if t.arena.waiting.Load() > 0 {
			poll.Reset(pollEvery)
		} else {
			poll.Stop()
		}
		select {
		case <-t.stop:
			return
		case <-t.kick:
		case <-poll.C:
		}
		t.policy.mu.Lock()
		t.drain(0)
		var last *waiter // one who still waits after room was made can't be helped: the system would not take pages back
		for w := t.arena.next(); w != nil && w != last && t.makeRoom(w.class, true); w = t.arena.next() {
			last = w
		}
		t.policy.mu.Unlock()
	}
}

// plan divides the memory: it sets what the window may have, and returns what the main part may have if room bytes are
// to stay free. t.policy.mu and t.order.mu are held, and no entry is in the mover's hand.
//
// Outside are the bytes of neither: blocks being filled, blocks evicted but still read, and remainders of shared pages.
// Whatever is in flight will be put soon, so the window must have room for as much. Once it has landed and the window
// shrinks again, the main part gains what was outside: the blocks of a burst find room there.
func (t *Tier) plan(room int64) (main int64) {
	o := &t.order
	outside := max(t.arena.inUse()-o.window.cost-o.main.cost, 0)
	o.target = max(t.base, min(outside, (t.arena.limit-outside)/2))
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

// offer decides about a block that leaves the window, and says whether it, and the window's reference, went to
// ristretto.
//
// While there is room every block is admitted. Then: one that was turned away lately and has been fetched again gets
// the place of the blocks that were unused for longest. Of the others those that were used in the window are let
// compete by frequency, as ristretto does; those that nobody asked for again are turned away, and remembered. So that a
// working set larger than what is remembered doesn't find the place taken for ever, anyone gets the place of a block
// that was not used while eight times the limit was put.
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
	for full && deserved && t.evictMain() {
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

// makeRoom evicts blocks that nobody reads until there is room for a slot of the class, and says whether there is:
// blocks of the main part, and of the window only if all of it may go. t.policy.mu is held.
func (t *Tier) makeRoom(ci int, all bool) bool {
	short := t.arena.short(ci)
	if short <= 0 {
		return true
	}
	t.drain(short)
	for t.arena.short(ci) > 0 {
		if !t.evictMain() && !(all && t.evictWindow()) {
			return false
		}
	}
	return true
}

// evictMain takes out the block of the main part that was unused for longest, giving those that were used, and those
// that are being read, another round. It says whether there was one.
func (t *Tier) evictMain() bool {
	o := &t.order
	o.mu.Lock()
	for tries := (maxUses + 1) * o.main.n; tries > 0; tries-- {
		e := o.main.oldest()
		o.main.remove(e)
		if e.use.spend(o.tick.Load()) || e.block.Refs() > 1 {
			o.main.push(e)
			continue
		}
		o.evicted++
		o.mu.Unlock()
		t.main.Del(e.hash) // calls exit
		return true
	}
	o.mu.Unlock()
	return false
}

// evictWindow takes out the oldest block of the window that nobody reads, and says whether there was one.
func (t *Tier) evictWindow() bool {
	o := &t.order
	o.mu.Lock()
	e := o.window.oldest()
	for e != nil && e.block.Refs() > 1 {
		if e = e.next; e == &o.window.root {
			e = nil
		}
	}
	if e == nil {
		o.mu.Unlock()
		return false
	}
	o.window.remove(e)
	o.turnAway(e)
	o.mu.Unlock()
	t.index.forget(e)
	e.block.Release()
	return true
}
