package gateway

import (
	"slices"
)

// What a read holds, and how it gives it back: the flights that it keeps going, the blocks that it has had fetched ahead
// of itself, and the block in hand.

// own takes block i out of those that the read has had fetched ahead of itself, if it is one, and lets go of those
// before it. Each is a reference that the read has, or will have when the block is there, and bytes of Gateway.ahead: a
// block that nobody has read yet is the first that a full tier turns away, and would have to be fetched again.
func (o *Object) own(i int64) *pending {
	for len(o.ahead) > 0 && o.ahead[0].index <= i {
		p := o.ahead[0]
		o.ahead = o.ahead[1:]
		o.g.ahead.give(o.size)
		if p.index == i {
			return p
		}
		o.g.unjoin(p)
	}
	return nil
}

// owns says whether block i is one of those.
func (o *Object) owns(i int64) bool {
	return slices.ContainsFunc(o.ahead, func(p *pending) bool { return p.index == i })
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

// drop lets go of the block in hand.
func (o *Object) drop() {
	if o.block != nil {
		o.block.Release()
		o.block, o.part, o.from = nil, false, 0
	}
	if o.pinned > 0 {
		o.g.pins.give(o.pinned)
		o.pinned = 0
	}
}

// letGo gives back everything the read holds, so that it can begin again.
func (o *Object) letGo() {
	o.drop()
	o.own(1<<63 - 1)
	if len(o.flights) > 0 {
		o.g.mu.Lock()
		for _, f := range o.flights {
			o.g.abandon(f)
		}
		o.g.mu.Unlock()
		o.flights = nil
	}
	o.endStream()
	o.led, o.late = nil, false
}

// Close gives back what the read holds. It may be called at any time and more than once.
func (o *Object) Close() {
	if o.closed || o.g == nil { // a zero Object holds nothing
		return
	}
	o.closed = true
	o.letGo()
}
