package gateway

import (
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// How a read settles the info of its object: by what is remembered, or by a probe (probe.go).

// fresh says whether remembered info may be used without asking: it is no older than the ttl, or the bucket is
// immutable. Never what a cache behind this one could not confirm. Nor for a key spelled with a bare plus: servers
// differ in which object that is, so a write to that object can't be told from its name. Nor for a HEAD that wants
// checksums nobody has asked for yet.
func (o *Object) fresh(k *known) bool {
	if k.stale || k.info.Stale || o.request.NoCache || o.request.Object.Raw != "" ||
		o.request.InfoOnly && o.request.WantChecksums && !k.info.ChecksumsKnown {
		return false
	}
	age := k.age()
	return age >= 0 && !k.info.Confirmed.IsZero() && (o.policy.Immutable || age <= o.policy.TTL)
}

// settle gets info that is fresh enough for a read that began then, by a probe where nobody else's will do. k is stale
// info or nil. Where k would do in an outage, newer info is waited for as long as one request may take, and not for
// retries, or until the origin wants to hear of us again.
func (o *Object) settle(k *known, began time.Time) error {
	fresh := began.Add(-o.policy.TTL)
	if o.request.NoCache || k != nil && !k.stale && k.age() <= o.policy.TTL {
		fresh = began // young enough, and not good enough all the same
	}
	d := o.fetch.FirstByte
	if o.g.breaker.isOpen() {
		d = sooner(d, waitDown)
	}
	if d > 0 && (o.deadline == 0 || d < o.deadline) && o.wouldDo(k) {
		defer func(until time.Time) { o.until = until }(o.until)
		o.until = time.Now().Add(d)
	}
	return o.adopt(o.ask(k, fresh))
}

// waitDown is how long newer info is waited for while the origin is taken to be down: long enough for one that is back to
// say so. A request that finds silence takes much longer, and all readers of its object would wait for it.
const waitDown = 100 * time.Millisecond

// confirmed says whether the info in use was asked for after the read began, or by the read itself.
func (o *Object) confirmed(began time.Time) bool {
	return o.led != nil || !o.known.info.Confirmed.Before(began)
}

// confirm asks the origin for the info alone, past all caches.
func (o *Object) confirm(began time.Time) error {
	a := o.ask(nil, began)
	a.head, a.noCache = true, true
	o.letGo()
	return o.adopt(a)
}

// ask shapes the probe of this read. Its range is the read's first fetch group, as far as that can be told before the
// size is known.
func (o *Object) ask(k *known, fresh time.Time) ask {
	a := ask{object: o.request.Object.Clone(), policy: o.policy, fetch: o.fetch, client: o.request.Client, gen: o.gen, fresh: fresh,
		head: o.request.InfoOnly, via: o.request.Via}
	a.noCache = o.request.NoCache || o.g.cfg.CachesBehind && o.g.gens.written(o.request.Object, o.policy.TTL)
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
	if k != nil && k.version != nil {
		last = o.askUpTo(&a, k, last)
	}
	a.blocks = 1 + last - a.first
	return a
}

// askUpTo shapes a probe by what there is of the stale version k, whose blocks are likely still the right ones. With
// the first block in hand, or on its way, a 304 is all that is wanted; without it the bytes are wanted anyway, up to
// the first block that is there. It returns the last block to ask for.
func (o *Object) askUpTo(a *ask, k *known, last int64) int64 {
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	for i := a.first; i <= last; i++ {
		key := blockstore.Key{Version: k.version, Index: i}
		if !o.g.lacks(key) || o.g.onDisk(key) {
			if i > a.first {
				return i - 1
			}
			if k.pin() != "" {
				a.old = k
			}
			return last
		}
	}
	return last
}

// adopt has the info settled as a asks, and takes it over.
func (o *Object) adopt(a ask) error {
	ctx, cancel := o.patience()
	defer cancel()
	k, p, err := o.g.settle(ctx, a)
	switch {
	case err != nil && o.ctx.Err() == nil:
		return timedOut(ctx, err)
	case err != nil:
		return err
	}
	o.known, o.led, o.stale = k, nil, false
	if p != nil {
		o.led, o.ahead = p.flight, p.ahead
		if o.led == nil {
			o.led = &flight{} // led, without blocks
		}
	}
	return nil
}
