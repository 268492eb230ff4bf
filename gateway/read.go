package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/origin"
)

// This file is the read path, from top to bottom: Open settles the info (settle), checks the request against it (plan)
// and gets the first block (first); WriteTo goes on block by block. A block is looked up in memory, else joined or
// fetched (join). What a read holds at any moment is at most one block.

// read is the unexported part of an Object.
type read struct {
	g       *Gateway
	ctx     context.Context
	request Request
	policy  *Policy
	gen     uint64 // of the object when the read began
	known   *known

	asked    int64             // blocks below this have been looked at for fetching
	flights  []*flight         // that this read keeps from being dropped
	ahead    int64             // bytes taken from Gateway.ahead
	led      *flight           // the flight of this read's own probe
	block    *blockstore.Block // the block in hand
	index    int64             // its index, or that of the last one that was
	counting bool              // a block has been in hand
	pinned   int64             // bytes taken from Gateway.pins for it
	body     io.ReadCloser     // of an object that can't be cached, instead of blocks
	closed   bool
}

// copySize is what a response copies out of a block at a time when the pinned bytes are used up.
const copySize = 64 << 10

// Open settles the info of an object, checks the request against it, and gets the first block. Errors: what Check
// returned; *RangeError; *origin.Error as the origin gave it; other errors of the origin package (a timeout, an
// unusable answer); ErrUnstable; ctx.Err(). The Object is the caller's to Close; ctx governs WriteTo too.
func (g *Gateway) Open(ctx context.Context, r Request) (*Object, error) {
	o := &Object{read: read{g: g, ctx: ctx, request: r, policy: g.cfg.Policy(r.Object.Bucket), gen: g.gens.of(r.Object)}}
	if err := o.open(time.Now()); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (o *Object) open(began time.Time) error {
	g, r := o.g, &o.request
	k := g.infos.get(r.Object)
	switch {
	case k == nil:
		g.metrics.infoMissing.Inc()
	case o.fresh(k):
		g.metrics.infoFresh.Inc()
		o.known = k
	default:
		g.metrics.infoStale.Inc()
	}
	changed := false
	for {
		if o.known == nil {
			if err := o.settle(k, began); err != nil {
				return err
			}
		}
		err := o.plan()
		if errors.Is(err, ErrUnsatisfied) && !o.confirmed(began) {
			// Refused for what is remembered: the origin has the last word.
			if err := o.confirm(began); err != nil {
				return err
			}
			err = o.plan()
		}
		if err != nil {
			return err
		}
		o.Status, o.Source = Hit, SourceMemory
		if o.led != nil {
			o.Status, o.Source = Miss, SourceOrigin
		}
		if r.InfoOnly {
			return nil
		}
		err = o.first()
		if errors.Is(err, origin.ErrChanged) {
			if changed {
				return fmt.Errorf("%w: %v: %v", ErrUnstable, r.Object, err)
			}
			// Overwritten behind the cache, and nothing has been answered yet: once more from the start, asking the
			// origin itself.
			changed = true
			g.metrics.changed.Inc()
			g.infos.drop(r.Object, o.known)
			o.letGo()
			o.gen = g.gens.of(r.Object)
			now := time.Now()
			a := o.ask(nil, now)
			a.noCache = true
			if err := o.adopt(g.settle(o.ctx, a)); err != nil {
				return err
			}
			began = now
			continue
		}
		return err
	}
}

// fresh says whether remembered info may be used without asking: it is no older than the ttl, or the bucket is
// immutable. Never for a key spelled with a bare plus: servers differ in which object that is, so a write to that
// object can't be told from its name. Nor for a HEAD that wants checksums nobody has asked for yet.
func (o *Object) fresh(k *known) bool {
	if o.request.Object.Raw != "" || o.request.InfoOnly && o.request.WantChecksums && !k.info.ChecksumsKnown {
		return false
	}
	age := k.age()
	return age >= 0 && !k.info.Confirmed.IsZero() && (o.policy.Immutable || age <= o.policy.TTL)
}

// settle gets info that is fresh enough for a read that began then, by a probe where nobody else's will do. k is stale
// info or nil.
func (o *Object) settle(k *known, began time.Time) error {
	fresh := began.Add(-o.policy.TTL)
	if k != nil && k.age() <= o.policy.TTL {
		fresh = began // young enough, and not good enough all the same
	}
	return o.adopt(o.g.settle(o.ctx, o.ask(k, fresh)))
}

// confirmed says whether the info in use was asked for after the read began, or by the read itself.
func (o *Object) confirmed(began time.Time) bool {
	return o.led != nil || !o.known.info.Confirmed.Before(began)
}

// confirm asks the origin for the info alone, past all caches.
func (o *Object) confirm(began time.Time) error {
	a := o.ask(nil, began)
	a.head, a.noCache = true, true
	o.letGo()
	return o.adopt(o.g.settle(o.ctx, a))
}

// ask shapes the probe of this read. Its range is the read's first fetch group, as far as that can be told before the
// size is known.
func (o *Object) ask(k *known, fresh time.Time) ask {
	a := ask{object: o.request.Object, policy: o.policy, gen: o.gen, fresh: fresh, head: o.request.InfoOnly}
	if k != nil && k.info.Confirmed.IsZero() {
		a.head = true // populated by a write: the blocks are here, and all the rest of the info is missing
	}
	if a.head {
		return a
	}
	const unknown = 1<<63 - 1
	size := int64(unknown)
	if k != nil {
		size = k.info.Size
	}
	b := o.policy.BlockSize
	off, length, _, err := o.request.Range.Resolve(size)
	if err != nil || length == 0 || size == unknown && o.request.Range.kind == kindSuffix || off > unknown-b*int64(o.group()) {
		a.head = true // there is no telling where it begins, or nothing to get
		return a
	}
	a.first = off / b
	last := min((off+length-1)/b, o.groupEnd(a.first))
	if k != nil && k.version != nil && o.g.mem.Contains(blockstore.Key{Version: k.version, Index: a.first}) && k.pin() != "" {
		a.old = k // likely a 304; without the first block in hand the bytes are wanted anyway
	}
	a.blocks, a.taken = 1+last-a.first, &o.ahead
	return a
}

// adopt takes over what settle found.
func (o *Object) adopt(k *known, p *probe, err error) error {
	if err != nil {
		return err
	}
	o.known, o.led = k, nil
	if p != nil {
		o.led = p.flight
		if o.led == nil {
			o.led = &flight{} // led, without blocks
			o.giveAhead(o.ahead)
		}
	}
	return nil
}

// plan checks the request against the info and says what is to be read.
func (o *Object) plan() error {
	info := o.known.info
	o.Info = info
	age := max(o.known.age(), 0)
	o.Age = (age + time.Second - 1).Truncate(time.Second)
	o.TTLExceeded = age > o.policy.TTL && o.led == nil
	rng := o.request.Range
	if o.request.Check != nil {
		var err error
		if rng, err = o.request.Check(info); err != nil {
			return err
		}
	}
	var err error
	o.Offset, o.Length, o.Partial, err = rng.Resolve(info.Size)
	return err
}

// first gets the first block, or the body of an object that can't be cached, and tells what was found.
func (o *Object) first() error {
	if o.known.version == nil {
		o.Status, o.Source = Bypass, SourceOrigin
		return o.stream()
	}
	if o.Length == 0 {
		return nil
	}
	i := o.Offset / o.policy.BlockSize
	o.asked = i
	o.look(i)
	return o.get(i)
}

// look fills in Status from the first ReadWindow blocks.
func (o *Object) look(first int64) {
	end := min((o.Offset+o.Length-1)/o.policy.BlockSize, first+int64(o.policy.ReadWindow)-1)
	held, n := 0, 0
	for i := first; i <= end; i++ {
		n++
		if o.led.holds(i) {
			continue
		}
		if o.g.mem.Contains(blockstore.Key{Version: o.known.version, Index: i}) {
			held++
		}
	}
	switch held {
	case n:
		o.Status = Hit
	case 0:
		o.Status = Miss
	default:
		o.Status = Partial
	}
}

// holds says whether block i is one of f's. f may be nil.
func (f *flight) holds(i int64) bool {
	return f != nil && i >= f.first && i < f.first+int64(len(f.blocks))
}

// get brings block i in hand: memory, else a flight, joined or started. The error of a flight that another read started
// is not this read's answer: it tries once more by itself.
func (o *Object) get(i int64) error {
	key := blockstore.Key{Version: o.known.version, Index: i}
	for joined := 0; ; {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		b := o.g.mem.Get(key)
		if b != nil && !o.due(i) {
			o.hold(b, i, o.sourceOf(i))
			return nil
		}
		b, p, src := o.join(key, b)
		if b != nil {
			o.hold(b, i, o.sourceOf(i))
			return nil
		}
		if p == nil {
			continue // it was put there by a write in this very moment
		}
		select {
		case <-p.done:
		case <-o.ctx.Done():
			o.g.unjoin(p)
			return o.ctx.Err()
		}
		if p.err == nil {
			o.hold(p.block, i, src)
			return nil
		}
		if src == SourceOrigin || errors.Is(p.err, origin.ErrChanged) {
			return p.err
		}
		if joined++; joined == 2 {
			return fmt.Errorf("%w: %v", errShared, p.err)
		}
	}
}

// sourceOf names where a block found in memory came from: this read itself may have had it fetched a moment ago.
func (o *Object) sourceOf(i int64) Source {
	if o.led.holds(i) {
		return SourceOrigin
	}
	for _, f := range o.flights {
		if f.holds(i) {
			return o.joined(f)
		}
	}
	return SourceMemory
}

// joined names the source of a flight's blocks.
func (o *Object) joined(f *flight) Source {
	if f.by == &o.read || f == o.led {
		return SourceOrigin
	}
	return SourceFlight
}

// hold takes b, with its reference, in hand. Each block of the read is counted once, by where it came from.
func (o *Object) hold(b *blockstore.Block, i int64, src Source) {
	if i == o.Offset/o.policy.BlockSize && !o.counting {
		o.Source = src
	}
	if !o.counting || i != o.index {
		o.g.metrics.blocks[src].Inc()
	}
	o.block, o.index, o.counting = b, i, true
}

// due says whether there is something to ask for when the read has come to block i: block i itself was not looked at
// yet, or the next group now fits into the window. The last block of a read has nothing after it.
func (o *Object) due(i int64) bool {
	last := o.lastBlock()
	if o.asked > last || i == last {
		return false
	}
	return o.asked <= i || min(o.groupEnd(o.asked), last) < i+int64(o.policy.ReadWindow)
}

// join starts fetching what the read wants next, block key.Index first, and finds that block on its way. b is the block
// if it is in hand already. It returns the block, or a pending that the caller must wait for.
func (o *Object) join(key blockstore.Key, b *blockstore.Block) (*blockstore.Block, *pending, Source) {
	g, i := o.g, key.Index
	g.mu.Lock()
	defer g.mu.Unlock()
	o.pass(i)
	o.asked = max(o.asked, i)
	if b == nil && g.pending[blockID{*key.Version, i}] == nil {
		if b = g.mem.Get(key); b == nil { // it may have come while the table was being locked
			o.asked = i // it may have been looked at before, and be gone since
		}
	}
	for o.due(i) || o.asked == i && b == nil {
		if !o.fetchRun(i, b == nil) {
			break
		}
	}
	if b != nil {
		return b, nil, 0
	}
	p := g.pending[blockID{*key.Version, i}]
	if p == nil {
		return nil, nil, 0
	}
	o.keep(p.flight)
	p.waiters++
	return nil, p, o.joined(p.flight)
}

// fetchRun looks at block o.asked, starts a flight for it and the missing ones after it in its group, and moves o.asked
// on. It says false when the bytes that reads may ask for ahead are used up; block i needs no leave when it is wanted.
// g.mu is held.
func (o *Object) fetchRun(i int64, wanted bool) bool {
	g, from, end := o.g, o.asked, min(o.groupEnd(o.asked), o.lastBlock())
	missing := func(j int64) bool {
		return g.pending[blockID{*o.known.version, j}] == nil &&
			!g.mem.Contains(blockstore.Key{Version: o.known.version, Index: j})
	}
	if !missing(from) {
		o.asked++
		return true
	}
	n := int64(1)
	for from+n <= end && missing(from+n) {
		n++
	}
	free := int64(0)
	if from == i && wanted {
		free = 1
	}
	n = free + g.ahead.takeUnits(n-free, o.policy.BlockSize)
	if n == 0 {
		return false
	}
	o.ahead += (n - free) * o.policy.BlockSize
	o.start(from, n)
	o.asked = from + n
	return true
}

// start starts a flight for blocks [first, first+n), none of which is held or pending. g.mu is held.
func (o *Object) start(first, n int64) *flight {
	f := o.g.start(o.request.Object, o.known, o.policy, first, n)
	f.by = &o.read
	o.keep(f)
	return f
}

// keep makes the read one of f's readers. g.mu is held.
func (o *Object) keep(f *flight) {
	if slices.Contains(o.flights, f) {
		return
	}
	f.readers++
	o.flights = append(o.flights, f)
}

// pass lets go of flights that lie behind block i. g.mu is held.
func (o *Object) pass(i int64) {
	kept := o.flights[:0]
	for _, f := range o.flights {
		if f.last() < i {
			o.g.abandon(f)
			continue
		}
		kept = append(kept, f)
	}
	clear(o.flights[len(kept):])
	o.flights = kept
}

// unjoin gives up waiting for p.
func (g *Gateway) unjoin(p *pending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-p.done:
		if p.block != nil {
			p.block.Release()
		}
	default:
		p.waiters--
	}
}

// group is the number of blocks in a fetch group; groupEnd the last block of the group that block i is in.
func (o *Object) group() int { return min(o.policy.FetchWindow, o.policy.ReadWindow) }

func (o *Object) groupEnd(i int64) int64 {
	n := int64(o.group())
	return i/n*n + n - 1
}

func (o *Object) lastBlock() int64 { return (o.Offset + o.Length - 1) / o.policy.BlockSize }

// copyBuffers lends the memory of responses that copy.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// WriteTo writes the bytes [Offset, Offset+Length) to w, once. It returns how many were written. An error that came
// from w is returned as it is; any other matches ErrInterrupted: fewer bytes than Length were written then.
func (o *Object) WriteTo(w io.Writer) (written int64, err error) {
	if o.request.InfoOnly {
		return 0, nil
	}
	if o.body != nil {
		return o.streamTo(w)
	}
	size := o.policy.BlockSize
	for written < o.Length {
		pos := o.Offset + written
		i := pos / size
		if o.block == nil || o.index != i {
			o.drop()
			if err := o.get(i); err != nil {
				return written, fmt.Errorf("%w at byte %d of %v: %w", ErrInterrupted, pos, o.request.Object, err)
			}
		}
		data := o.block.Bytes()[pos-i*size:]
		data = data[:min(int64(len(data)), o.Length-written)]
		n := 0
		if o.pin() {
			n, err = w.Write(data)
		} else {
			n, err = o.copyOut(w, data)
		}
		written += int64(n)
		if err != nil {
			return written, err
		}
		if (o.Offset+written)/size != i {
			o.drop()
			o.giveAhead(size)
		}
	}
	o.drop()
	return written, nil
}

// pin takes the block in hand into the quarter of the memory that responses may hold while they write.
func (o *Object) pin() bool {
	if o.pinned > 0 {
		return true
	}
	if n := int64(o.block.Cap()); o.g.pins.take(n) {
		o.pinned = n
		return true
	}
	return false
}

// copyOut writes the beginning of data and holds no block while it does: a write can't be given up and resumed.
func (o *Object) copyOut(w io.Writer, data []byte) (int, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	n := copy(buf[:], data)
	o.drop()
	o.g.metrics.copied.Add(float64(n))
	return w.Write(buf[:n])
}

// drop lets go of the block in hand.
func (o *Object) drop() {
	if o.block != nil {
		o.block.Release()
		o.block = nil
	}
	if o.pinned > 0 {
		o.g.pins.give(o.pinned)
		o.pinned = 0
	}
}

// giveAhead gives back up to n of the bytes taken for blocks ahead.
func (o *Object) giveAhead(n int64) {
	n = min(n, o.ahead)
	o.ahead -= n
	o.g.ahead.give(n)
}

// letGo gives back everything the read holds, so that it can begin again.
func (o *Object) letGo() {
	o.drop()
	o.giveAhead(o.ahead)
	if len(o.flights) > 0 {
		o.g.mu.Lock()
		for _, f := range o.flights {
			o.g.abandon(f)
		}
		o.g.mu.Unlock()
		o.flights = nil
	}
	if o.body != nil {
		_ = o.body.Close()
		o.body = nil
	}
	o.led = nil
}

// Close gives back what the read holds. It may be called at any time and more than once.
func (o *Object) Close() {
	if o.closed || o.g == nil { // a zero Object holds nothing
		return
	}
	o.closed = true
	o.letGo()
}
