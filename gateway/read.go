package gateway

import (
	"cmp"
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
// and gets the first block (first); WriteTo goes on block by block. A block is looked up in memory, else joined, read
// from the disk or fetched (join). What a read holds at any moment is one block, and those that it has had fetched ahead
// of itself. Of a block on the disk, a small read holds only the part that it wants (part.go). What goes by no block is
// passed on from the body of a GET of its own (stream.go).

// read is the unexported part of an Object.
type read struct {
	g        *Gateway
	ctx      context.Context
	request  Request
	policy   *Policy
	fetch    *Fetch
	began    time.Time
	deadline time.Duration // how long it waits for its next bytes; 0 is for ever
	until    time.Time     // the next bytes must be there by then; zero is within deadline of being waited for
	gen      uint64        // of the object when the read began
	known    *known
	stale    bool  // the info is older than it should be, since the origin is in trouble
	size     int64 // of a block of the version, in bytes

	at       int64             // bytes written so far
	asked    int64             // blocks below this have been looked at for fetching
	flights  []*flight         // that this read keeps from being dropped
	ahead    []*pending        // of its own flights, that it has not come to yet, by index: see own
	led      *flight           // the flight of this read's own probe
	block    *blockstore.Block // the block in hand
	part     bool              // it is not sealed, and only the part of the block that is wanted
	from     int64             // which byte of the block it begins with
	late     bool              // the disk did not answer in time when it was asked for the part
	index    int64             // its index, or that of the last one that was
	counting bool              // a block has been in hand
	looked   bool              // Status is filled in
	scanned  bool              // it has been asked for what may follow the read
	sought   int64             // blocks below this have been looked for twice among those read ahead for it
	since    time.Time         // when the read came to it
	slow     bool              // the client took longer than slowAfter over the block before it
	pinned   int64             // bytes taken from Gateway.pins for it
	body     io.ReadCloser     // of an object that can't be cached, or of the rest of a block: instead of blocks
	upto     int64             // what at will be when the body has been written
	cut      func()            // ends the request for it
	broken   bool              // the body was the rest of a block, and broke off
	closed   bool
}

// copySize is what a response copies out of a block at a time when the pinned bytes are used up.
const copySize = 64 << 10

// Open settles the info of an object, checks the request against it, and gets the first block. Errors: what Check
// returned, in a *StaleError where the info is stale; *RangeError; *origin.Error as the origin gave it; other errors of
// the origin package (a timeout, an unusable answer); ErrUnstable; ctx.Err(). The Object is the caller's to Close; ctx
// governs WriteTo too.
func (g *Gateway) Open(ctx context.Context, r Request) (*Object, error) {
	p, began := g.cfg.Policy(r.Object.Bucket), time.Now()
	o := &Object{read: read{g: g, ctx: ctx, request: r, policy: p, fetch: p.tuned(r.Tune), began: began,
		gen: g.gens.of(r.Object)}}
	if o.deadline = sooner(p.Fetch.Deadline, r.Tune.Deadline); o.deadline > 0 {
		o.until = began.Add(o.deadline)
	}
	if err := o.open(began); err != nil {
		o.Close()
		return nil, err
	}
	o.until = time.Time{} // the client may take its time
	return o, nil
}

// patience returns the context of something that the read waits for: its own, for as long as its deadline lets it wait
// without any bytes coming.
func (o *Object) patience() (context.Context, context.CancelFunc) {
	switch {
	case !o.until.IsZero():
		return context.WithDeadline(o.ctx, o.until)
	case o.deadline > 0:
		return context.WithTimeout(o.ctx, o.deadline)
	}
	return o.ctx, func() {}
}

func (o *Object) open(began time.Time) error {
	g, r := o.g, &o.request
	k := g.infos.get(r.Object)
	if k != nil && k.version != nil && k.version.BlockSize != o.policy.BlockSize {
		k = nil // the configuration is another one now
	}
	switch {
	case k == nil:
		g.metrics.infoMissing.Inc()
		if o.policy.NegativeTTL > 0 && !r.NoCache {
			if err := g.absent.get(r.Object, o.policy.NegativeTTL); err != nil {
				return err
			}
		}
	case o.fresh(k):
		g.metrics.infoFresh.Inc()
		o.known = k
	default:
		g.metrics.infoStale.Inc()
	}
	changed := false
	for {
		if o.known == nil {
			if r.OnlyIfCached {
				return ErrNotCached
			}
			if err := o.settle(k, began); err != nil && !o.makesDo(err) {
				return err
			}
		}
		err := o.plan()
		if errors.Is(err, ErrUnsatisfied) && !o.confirmed(began) {
			// Refused for what is remembered: the origin has the last word.
			if r.OnlyIfCached {
				return ErrNotCached
			}
			if err := o.confirm(began); err != nil {
				return err
			}
			err = o.plan()
		}
		switch {
		case err != nil && o.stale:
			return &StaleError{err}
		case err != nil:
			return err
		}
		switch o.Status, o.Source = Hit, SourceMemory; {
		case o.stale:
			o.Status = Stale
		case o.led != nil:
			o.Status, o.Source = Miss, SourceOrigin
		}
		if r.InfoOnly {
			return nil
		}
		if r.OnlyIfCached && !o.cached() {
			return ErrNotCached
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
			if err := o.adopt(a); err != nil {
				return err
			}
			began = now
			continue
		}
		return err
	}
}

// plan checks the request against the info and says what is to be read.
func (o *Object) plan() error {
	info := o.known.info
	if info.Stale && !o.stale { // to a cache behind this one
		o.stale = true
		o.g.metrics.stale.Inc()
	}
	o.Info = info
	if o.size = o.policy.BlockSize; o.known.version != nil {
		o.size = o.known.version.BlockSize
	}
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
		return o.stream(span{o.Offset, o.Length})
	}
	if o.Length == 0 {
		return nil
	}
	i := o.Offset / o.size
	o.asked, o.looked = i, o.stale
	if o.sought = i; !o.findAhead() {
		o.sought = o.lastBlock() + 1
	}
	return o.get(i)
}

// cached says whether all blocks of the range are here.
func (o *Object) cached() bool {
	if o.known.version == nil {
		return false
	}
	for i := o.Offset / o.size; o.Length > 0 && i <= o.lastBlock(); i++ {
		if k := blockKey(o.known, i); !o.g.mem.Contains(k) && !o.g.onDisk(k) {
			return false
		}
	}
	return true
}

// look fills in Status from the first ReadWindow blocks. has says that the first one is held.
func (o *Object) look(first int64, has bool) {
	end := min(o.lastBlock(), first+int64(o.policy.ReadWindow)-1)
	held, n := 0, 0
	for i := first; i <= end; i++ {
		n++
		if o.led.holds(i) {
			continue
		}
		if k := blockKey(o.known, i); has && i == first || o.g.mem.Contains(k) || o.onDisk(k) {
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

// get brings block i in hand: one that it has had fetched ahead, or is held, else a flight, joined or started. The error
// of a flight that another read started is not this read's answer: it tries once more by itself. One that was asked for
// otherwise than this read asks is no evidence at all.
func (o *Object) get(i int64) error {
	key := blockstore.Key{Version: o.known.version, Index: i}
	for joined, again := 0, false; ; {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		var b *blockstore.Block
		var src Source
		p, mine := o.own(i), true
		if p == nil {
			b, src = o.held(key)
		}
		if !o.looked { // before anything is asked for
			o.looked = true
			o.look(i, b != nil)
		}
		if o.due(i) || b == nil && p == nil {
			b, p, mine = o.join(key, b, p)
		}
		if b == nil && p == nil { // it was put there in this very moment: by a write, or ahead of this read
			o.findAhead()
			continue
		}
		if !o.scanned { // now that what is wanted has been asked for
			o.scanned = true
			o.readAhead()
		}
		if b != nil {
			o.hold(b, i, src)
			return nil
		}
		if err := o.await(p); err != nil {
			return err
		}
		if p.err == nil {
			if src = SourceFlight; mine {
				src = p.source
			}
			o.hold(p.block, i, src)
			return nil
		}
		if o.late && !again && trouble(p.err) {
			o.late, again = false, true // the disk has the block, and may have had its time by now
			continue
		}
		if mine || errors.Is(p.err, origin.ErrChanged) {
			return p.err
		}
		if errors.Is(p.err, origin.ErrNotFound) {
			return fmt.Errorf("%w: deleted: %w", origin.ErrChanged, p.err)
		}
		if *p.flight.fetch != *o.fetch {
			if o.until.IsZero() && o.deadline > 0 {
				o.until = time.Now().Add(o.deadline) // for all the others that it may join, together
			}
			continue
		}
		if joined++; joined == 2 {
			return fmt.Errorf("%w: %v", errShared, p.err)
		}
	}
}

// await waits for p to be done. On an error it has been given up.
func (o *Object) await(p *pending) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	o.g.hurry(p.flight)
	ctx, cancel := o.patience()
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		o.g.unjoin(p)
		if err := o.ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: nothing came within %v", origin.ErrTimeout, o.deadline)
	}
}

// hold takes b, with its reference, in hand. Each block of the read is counted once, by where it came from.
func (o *Object) hold(b *blockstore.Block, i int64, src Source) {
	if i == o.Offset/o.size && !o.counting {
		o.Source = src
	}
	if !o.counting || i != o.index {
		o.g.metrics.blocks[src].Inc()
		o.since = time.Now()
	}
	o.block, o.index, o.counting, o.broken, o.until = b, i, true, false, time.Time{}
}

// due says whether there is something to ask for when the read has come to block i: block i itself was not looked at
// yet, or the next group now fits into the window. The last block of a read has nothing after it.
func (o *Object) due(i int64) bool {
	last := o.lastBlock()
	if o.asked > last || i == last {
		return false
	}
	return o.asked <= i || min(o.groupEnd(o.asked), last) < i+o.window(i)
}

// join starts fetching what the read wants next, block key.Index first, and finds that block on its way. b is the block
// if it is in hand already, p the pending if it is one of the read's own. It returns the block, or a pending that the
// caller must wait for, and whether that is of a flight of its own; neither where the caller is to look once more.
func (o *Object) join(key blockstore.Key, b *blockstore.Block, p *pending) (*blockstore.Block, *pending, bool) {
	g, i := o.g, key.Index
	g.mu.Lock()
	defer g.mu.Unlock()
	o.pass(i)
	o.asked = max(o.asked, i)
	wanted := b == nil && p == nil
	if wanted && g.pending[blockID{*key.Version, i}] == nil {
		b = g.mem.Get(key)             // it may have come while the table was being locked
		if b == nil && o.sought <= i { // or have come and been turned away, read ahead and held, since it was looked for
			o.sought = i + 1
			return nil, nil, false
		}
		if b == nil {
			o.asked = i // it may have been looked at before, and be gone since
		}
		wanted = b == nil
	}
	if !wanted {
		o.asked = max(o.asked, i+1) // it is in hand, though it may be gone from memory
	}
	for o.due(i) || o.asked == i && wanted {
		if !o.fetchRun(i, wanted) {
			break
		}
	}
	if b != nil || p != nil {
		return b, p, true
	}
	if p = g.pending[blockID{*key.Version, i}]; p == nil {
		return nil, nil, false
	}
	o.keep(p.flight)
	p.waiters++
	return nil, p, p.flight.by == &o.read || p.flight == o.led
}

// fetchRun looks at block o.asked, starts a flight for it and the missing ones after it in its group, or for it alone
// where the disk has it, and moves o.asked on. It says false when the bytes that reads may ask for ahead are used up, or
// those that a slow read may; block i needs no leave when it is wanted. Without it, it is the whole run or nothing: small
// pieces would only make more requests. g.mu is held.
func (o *Object) fetchRun(i int64, wanted bool) bool {
	g, from, end := o.g, o.asked, min(o.groupEnd(o.asked), o.lastBlock())
	key := func(j int64) blockstore.Key { return blockKey(o.known, j) }
	missing := func(j int64) bool { return !o.owns(j) && g.lacks(key(j)) }
	if !missing(from) {
		o.asked++
		return true
	}
	n, disk := int64(1), o.onDisk(key(from))
	for !disk && from+n <= end && missing(from+n) && !o.onDisk(key(from+n)) {
		n++
	}
	leave := !o.slow || !g.ahead.crowded()
	take := g.ahead.take
	ahead := from >= i+int64(o.policy.ReadWindow)
	if ahead {
		take = g.takeSpare
	}
	switch wanted = wanted && from == i; {
	case wanted && leave:
		n = 1 + g.ahead.takeUnits(n-1, o.size)
	case wanted:
		n = 1
	case !leave || !take(n*o.size):
		return false
	}
	f := newFlight(o.request.Object, o.known, o.fetch, o.request.Client, from, n)
	f.by, f.disk = &o.read, disk
	f.ahead = ahead
	g.start(f)
	o.keep(f)
	o.asked = from + n
	for j, p := range f.blocks {
		switch {
		case j == 0 && wanted: // the caller will wait for it
		case p == nil: // a write has put it there in this very moment
			g.ahead.give(o.size)
		default:
			p.waiters++
			o.ahead = append(o.ahead, p)
		}
	}
	slices.SortFunc(o.ahead, func(p, q *pending) int { return cmp.Compare(p.index, q.index) })
	return true
}

func blockKey(k *known, i int64) blockstore.Key { return blockstore.Key{Version: k.version, Index: i} }

// lacks says whether a block is neither in memory nor on its way. g.mu is held.
func (g *Gateway) lacks(k blockstore.Key) bool {
	return g.pending[blockID{*k.Version, k.Index}] == nil && !g.mem.Contains(k)
}

func (g *Gateway) onDisk(k blockstore.Key) bool { return g.disk != nil && g.disk.Contains(k) }

// group is the number of blocks in a fetch group; groupEnd the last block of the group that block i is in.
func (o *Object) group() int { return min(o.policy.FetchWindow, o.policy.ReadWindow) }

func (o *Object) groupEnd(i int64) int64 {
	n := int64(o.group())
	return i/n*n + n - 1
}

func (o *Object) lastBlock() int64 { return (o.Offset + o.Length - 1) / o.size }

// copyBuffers lends the memory of responses that copy.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// Read copies the next bytes out, no more than there are in one block: it is for the beginning of a body, which may have
// to go through buffers. WriteTo goes on where it ended. Errors are those of WriteTo.
func (o *Object) Read(p []byte) (n int, err error) {
	if o.request.InfoOnly || o.at == o.Length {
		return 0, io.EOF
	}
	data, err := o.next()
	switch {
	case err != nil:
		return 0, err
	case o.body != nil:
		n, err = o.readStream(p)
	default:
		n = copy(p, data)
	}
	o.advance(n)
	return n, err
}

// WriteTo writes the bytes [Offset, Offset+Length) to w, or those that Read has left. It returns how many were written.
// An error that came from w is returned as it is; any other matches ErrInterrupted: fewer bytes than Length were written
// then.
func (o *Object) WriteTo(w io.Writer) (written int64, err error) {
	if o.request.InfoOnly {
		return 0, nil
	}
	for o.at < o.Length {
		data, err := o.next()
		if err != nil {
			return written, err
		}
		n := 0
		switch {
		case o.body != nil:
			n, err = o.passOn(w)
		case o.block.Cap() <= copySize: // what a pin would save is little, and it may hold up memory around it
			n, err = o.copyOut(w, data)
		case o.pin():
			n, err = o.write(w, data)
		default:
			n, err = o.copyOut(w, data)
			o.g.metrics.copied.Add(float64(n))
		}
		o.advance(n)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	o.drop()
	return written, nil
}

// next returns what is to be written of the block that the read has come to, which is in hand then. The bytes are good
// until it is let go of. It returns none where there is a body to be passed on instead.
func (o *Object) next() ([]byte, error) {
	pos := o.Offset + o.at
	i := pos / o.size
	if o.body == nil && (o.block == nil || o.index != i || o.ended(pos)) {
		o.drop()
		get := o.get
		switch {
		case o.known.version == nil:
			return nil, fmt.Errorf("%w at byte %d of %v: its only answer is used up", ErrInterrupted, pos, o.request.Object)
		case o.lost(i):
			get = o.rest
		}
		if err := get(i); err != nil {
			return nil, fmt.Errorf("%w at byte %d of %v: %w", ErrInterrupted, pos, o.request.Object, err)
		}
	}
	if o.body != nil {
		return nil, nil
	}
	data := o.block.Bytes()[pos-i*o.size-o.from:]
	return data[:min(int64(len(data)), o.Length-o.at)], nil
}

// advance notes that n bytes were written, and lets go of the block, or the body, when they were its last.
func (o *Object) advance(n int) {
	i := (o.Offset + o.at) / o.size
	if o.at += int64(n); (o.Offset+o.at)/o.size != i {
		o.drop()
		o.slow = time.Since(o.since) > slowAfter
	}
	if o.body != nil && o.at == o.upto {
		o.endStream()
	}
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
	if n < len(data) && !o.part && !o.g.mem.Contains(o.block.Key()) {
		o.g.mem.Put(o.block) // the rest of it is wanted in a moment
	}
	o.drop()
	return o.write(w, buf[:n])
}
