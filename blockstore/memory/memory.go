// Package memory is the tier of blocks in RAM. A block that was just put is a hit, whatever else is going on, as long
// as evicting other blocks can make room; the tier never occupies more than its limit, blocks that are being filled or
// still read after their eviction included; and a slot is never reused while anyone holds a reference to its block.
//
// A block lives in three places, in this order. Its bytes are in a slot of the arena, off the Go heap (arena.go). From
// Put on it is in the window, a FIFO queue of 6% of the tier or what is being filled, whichever is more. From there it
// is moved to the main part, a ristretto cache, if it deserves it (policy.go). A Get looks into both.
//
// Ristretto alone is not a block cache: it applies a Set some time after it returned, and then may reject it, so that a
// block just fetched would be fetched again at once. Hence the window. And frequencies alone lock a new working set out
// for a long time, since they age only by accesses, of which large blocks see few. Hence the rules of admission.
package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/dgraph-io/ristretto/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// blockOverhead is what a block costs on the Go heap: the Block itself and its entries in the indexes. It is charged
// against the limit, so that a tier full of tiny objects stays as bounded as one of large blocks. Not charged is what
// an empty tier has: less than 1% of the limit for counters and what is remembered of blocks turned away.
// TestBlockOverhead measures both.
const blockOverhead = 320

// minLimit is the smallest tier there can be, in bytes: below it rounding to pages and classes would eat it up.
const minLimit = 1 << 20

var (
	// ErrClosed is returned by Alloc once Close was called.
	ErrClosed = errors.New("memory tier is closed")
	// ErrSize is matched by the errors of Alloc for lengths that the tier has no slot for: 0 or less, or above
	// MaxBlock.
	ErrSize = errors.New("no slot for a block of this length")
)

// Config says how large a tier is.
type Config struct {
	// Limit is what the tier may occupy in bytes, all together: slots, by whole pages, and 320 bytes per block for what
	// it costs on the Go heap. At least MinLimit(MaxBlock).
	Limit int64
	// MaxBlock is the length of the largest block in bytes, 1 to 16 MiB.
	MaxBlock int64
	// Registerer gets the tier's metrics; Close takes them out again. Nil registers nothing.
	Registerer prometheus.Registerer
}

// MinLimit returns the smallest Limit that New accepts for blocks of up to maxBlock bytes: eight of the largest blocks,
// so that one can be filled and a quarter of the tier pinned by slow readers while there is still room to work; and 1
// MiB.
func MinLimit(maxBlock int64) int64 { return max(8*maxBlock, minLimit) }

// AddressSpace returns how many bytes of address space New reserves for a tier.
func AddressSpace(limit, maxBlock int64) int64 {
	return strideOf(limit) * int64(len(layouts(maxBlock, int64(os.Getpagesize()))))
}

// Tier implements blockstore.Memory. All methods are safe for concurrent use.
type Tier struct {
	arena *arena
	index index
	main  *ristretto.Cache[uint64, *entry] // called with policy.mu held, but for Get
	base  int64                            // bytes the window may always have
	spare int64                            // bytes that the mover tries to keep free

	policy policy
	order  order

	kick  chan struct{} // wakes the mover; holds at most one wake-up
	stop  chan struct{}
	done  chan struct{} // closed when the mover has ended
	once  sync.Once
	unreg func()
}

var _ blockstore.Memory = (*Tier)(nil)

// New returns an empty tier. It reserves address space, up to 65 times the limit, but no memory; a system that accounts
// for address space (Linux with vm.overcommit_memory = 2) may refuse that. Close the tier.
func New(c Config) (*Tier, error) {
	if c.MaxBlock < 1 || c.MaxBlock > maxSlot {
		return nil, fmt.Errorf("memory: largest block of %d bytes, want 1 to %d", c.MaxBlock, maxSlot)
	}
	if c.Limit < MinLimit(c.MaxBlock) {
		return nil, fmt.Errorf("memory: a limit of %d bytes is too small for blocks of %d bytes: want at least %d",
			c.Limit, c.MaxBlock, MinLimit(c.MaxBlock))
	}
	a, err := newArena(c.Limit, c.MaxBlock)
	if err != nil {
		return nil, err
	}
	t := &Tier{
		arena: a,
		base:  max(c.Limit*windowPercent/100, a.classes[len(a.classes)-1].slot+blockOverhead),
		spare: c.Limit / spareShare,
		kick:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	t.index.init()
	t.order.target = t.base
	t.order.ghost = newGhost(c.Limit)
	t.order.perTick = c.Limit / useTicks
	t.order.tick.Store(1)
	if t.main, err = t.newMain(c.Limit); err != nil {
		a.close()
		return nil, fmt.Errorf("memory: %w", err)
	}
	if c.Registerer != nil {
		col := newCollector(t)
		if err := c.Registerer.Register(col); err != nil {
			t.main.Close()
			a.close()
			return nil, fmt.Errorf("memory: registering metrics: %w", err)
		}
		t.unreg = func() { c.Registerer.Unregister(col) }
	}
	go t.move()
	return t, nil
}

// Close ends the tier: Get finds nothing any more, Alloc fails with ErrClosed, for those who wait too, and the tier's
// goroutines have ended when it returns. Blocks that are still referenced stay readable; the memory is unmapped when
// the last of them is released.
func (t *Tier) Close() {
	t.once.Do(func() {
		close(t.stop)
		<-t.done
		if t.unreg != nil {
			t.unreg()
		}
		t.policy.mu.Lock()
		defer t.policy.mu.Unlock()
		t.policy.closed = true
		t.arena.close()
		t.index.close() // no Get is in ristretto after this, and none will be
		t.main.Close()
		for e := t.order.popWindow(); e != nil; e = t.order.popWindow() {
			e.block.Release()
		}
	})
}

// Limit returns Config.Limit.
func (t *Tier) Limit() int64 { return t.arena.limit }

// Get returns the block with a reference that the caller must release, or nil.
func (t *Tier) Get(k blockstore.Key) *blockstore.Block {
	h := k.Hash()
	s := t.index.shard(h)
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return nil
	}
	// Ristretto is asked in any case: it counts what is asked for, also of blocks that are in the window or nowhere
	// yet. The lock keeps the mover from taking an entry out of the window between the two looks, and Close away.
	e := s.entries[h]
	m, _ := t.main.Get(h)
	s.mu.RUnlock()
	tick := t.order.tick.Load()
	if b := e.acquire(k, tick); b != nil {
		return b
	}
	return m.acquire(k, tick)
}

// Contains says whether Get would find the block. It doesn't count as a use of it, except that a block in the main part
// counts once in the frequencies that ristretto keeps.
func (t *Tier) Contains(k blockstore.Key) bool {
	h := k.Hash()
	s := t.index.shard(h)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}
	if s.entries[h].is(k) {
		return true
	}
	if _, ok := t.main.GetTTL(h); !ok { // a look that isn't counted, but doesn't bring the entry either
		return false
	}
	e, _ := t.main.Get(h)
	return e.is(k)
}

// Put makes a sealed block of this tier findable; it takes a reference of its own. A block put before under an equal
// key is replaced. Blocks that came from other Slots, and Puts after Close, are ignored.
func (t *Tier) Put(b *blockstore.Block) {
	if !t.arena.owns(b.Bytes()) {
		return
	}
	k := b.Key()
	e := &entry{block: b, hash: k.Hash()}
	s := t.index.shard(e.hash)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	b.Acquire(1)
	old := s.entries[e.hash]
	s.entries[e.hash] = e
	gone, over := t.order.enter(e, old)
	s.mu.Unlock()
	if gone != nil {
		gone.block.Release()
	}
	if over > t.spare/2 || t.arena.waiting.Load() > 0 {
		t.wake()
	}
}

// Alloc returns an unsealed block of n bytes with one reference. See blockstore.Slots. Those who wait are served in the
// order in which they came. Errors: ErrSize, ErrClosed, the cause of ctx.
func (t *Tier) Alloc(ctx context.Context, n int64) (*blockstore.Block, error) {
	ci, err := t.class(n)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if m := t.takeOrEvict(ci, true); m != nil {
		return t.block(m, n), nil
	}
	m, place := t.arena.takeOrQueue(ci)
	if place != nil {
		t.policy.waits.Add(1)
		t.wake()
		w := place.Value.(*waiter)
		select {
		case <-w.ready:
			m = w.slot
		case <-ctx.Done():
			t.arena.leave(place)
			return nil, context.Cause(ctx)
		}
	}
	if m == nil {
		return nil, ErrClosed
	}
	return t.block(m, n), nil
}

// TryAlloc is Alloc that returns nil instead of waiting, or of evicting what was just put.
func (t *Tier) TryAlloc(n int64) *blockstore.Block {
	ci, err := t.class(n)
	if err != nil {
		return nil
	}
	if m := t.takeOrEvict(ci, false); m != nil {
		return t.block(m, n)
	}
	return nil
}

func (t *Tier) class(n int64) (int, error) {
	if largest := t.arena.largest; n < 1 || n > largest {
		return 0, fmt.Errorf("memory: %w: %d bytes, want 1 to %d", ErrSize, n, largest)
	}
	return t.arena.classOf(n), nil
}

func (t *Tier) takeOrEvict(ci int, all bool) []byte {
	if m := t.arena.take(ci); m != nil {
		return m
	}
	if t.arena.waiting.Load() > 0 {
		return nil // they come first
	}
	t.policy.mu.Lock()
	defer t.policy.mu.Unlock()
	if t.policy.closed || !t.makeRoom(ci, all) {
		return nil
	}
	return t.arena.take(ci)
}

func (t *Tier) block(m []byte, n int64) *blockstore.Block {
	return blockstore.NewBlock(m[:n], recycler{t.arena})
}

// recycler gives slots back to the arena; it keeps Free out of the Tier's methods.
type recycler struct{ *arena }

// Free implements blockstore.Recycler.
func (r recycler) Free(m []byte) { r.free(m) }

func (t *Tier) wake() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}
