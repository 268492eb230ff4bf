package gateway

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/origin"
)

// known is the settled info of an object and the version that its blocks are filed under. Immutable.
type known struct {
	info    *origin.Info
	version *blockstore.Version // nil: nothing pins the version, so it can't be cut into blocks
}

// newKnown derives the version. An object without a strong ETag has none, except in immutable buckets, where the key
// itself promises that the bytes stay the same for as long as nobody writes: so the generation is part of the tag.
func newKnown(o origin.Object, info *origin.Info, p *Policy, gen uint64) *known {
	tag := info.ETag
	switch {
	case info.Strong():
	case p.Immutable:
		tag = fmt.Sprintf("immutable %d %s %s", gen, info.ETag, info.LastModified)
	default:
		return &known{info: info}
	}
	return &known{info, blockstore.NewVersion(blockstore.Version{
		Bucket: o.Bucket, Key: o.Key, VersionID: o.VersionID, Raw: o.Raw,
		Tag: tag, Size: info.Size, BlockSize: p.BlockSize,
	})}
}

// pin is the ETag that origin requests for the version carry as If-Match; "" when nothing can.
func (k *known) pin() string {
	if k.info.Strong() {
		return k.info.ETag
	}
	return ""
}

// age is the time since the origin was asked. A negative one (a clock set back, or a lie) is for the caller to distrust.
func (k *known) age() time.Duration { return time.Since(k.info.Confirmed) }

// generations counts the writes that went through this process, by key. Counters are shared by keys whose hashes meet,
// which makes some probes not publish what they might have: harmless, and it bounds the memory.
type generations struct {
	seed maphash.Seed
	n    [1 << 16]atomic.Uint64
}

func (g *generations) slot(o origin.Object) *atomic.Uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	_, _ = h.WriteString(o.Bucket)
	_ = h.WriteByte('/')
	_, _ = h.WriteString(o.Key)
	return &g.n[h.Sum64()%uint64(len(g.n))]
}

func (g *generations) of(o origin.Object) uint64 { return g.slot(o).Load() }

func (g *generations) bump(o origin.Object) uint64 { return g.slot(o).Add(1) }

// bumpIf bumps if the generation is still gen, and says whether it was.
func (g *generations) bumpIf(o origin.Object, gen uint64) bool {
	return g.slot(o).CompareAndSwap(gen, gen+1)
}

func (g *generations) bumpAll() {
	for i := range g.n {
		g.n[i].Add(1)
	}
}

// infoCache remembers what is known of objects, bounded in bytes, evicting by CLOCK (a FIFO in which an entry read since
// it was last looked at goes round once more). Safe for concurrent use; a hit takes only a shared lock.
type infoCache struct {
	gens   *generations
	seed   maphash.Seed
	shards [16]infoShard
}

type infoShard struct {
	mu    sync.RWMutex
	m     map[origin.Object]*infoEntry // guarded by mu
	ring  list.List                    // of *infoEntry, oldest first; guarded by mu
	bytes int64                        // guarded by mu
	limit int64
}

type infoEntry struct {
	object origin.Object
	known  *known
	gen    uint64
	bytes  int64
	used   atomic.Bool
	elem   *list.Element
}

func newInfoCache(limit int64, gens *generations) *infoCache {
	c := &infoCache{gens: gens, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].m = make(map[origin.Object]*infoEntry)
		c.shards[i].limit = limit / int64(len(c.shards))
	}
	return c
}

func (c *infoCache) shard(o origin.Object) *infoShard {
	return &c.shards[maphash.String(c.seed, o.Key)%uint64(len(c.shards))]
}

// get returns what is remembered of o, fresh or stale, or nil.
func (c *infoCache) get(o origin.Object) *known {
	s := c.shard(o)
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.m[o]
	if e == nil {
		return nil
	}
	// forget removes the plain name of a key; its other names (by version, by spelling) notice a write by this.
	if (o.VersionID != "" || o.Raw != "") && e.gen != c.gens.of(o) {
		return nil
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	return e.known
}

// put remembers k as of generation gen, and says whether it did. It does not when the key was written since gen was
// read, nor when a different version is remembered whose answer came after k's question was sent: that one may be the
// newer, and a reader must not see it turn back.
func (c *infoCache) put(o origin.Object, k *known, gen uint64) bool {
	s := c.shard(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gens.of(o) != gen {
		return false
	}
	size := infoBytes(o, k.info)
	if size > s.limit {
		return false
	}
	if e := s.m[o]; e != nil {
		if e.gen == gen {
			switch old := e.known.info; {
			case !old.SameVersion(k.info):
				if k.info.Confirmed.Before(old.Received) {
					return false
				}
			case k.info.Confirmed.Before(old.Confirmed):
				return true // the same said earlier: keep the later confirmation
			case old.ChecksumsKnown && !k.info.ChecksumsKnown:
				info := *k.info
				info.Checksums, info.ChecksumsKnown = old.Checksums, true
				k = &known{&info, k.version}
				size = infoBytes(o, k.info)
			}
		}
		s.bytes += size - e.bytes
		e.known, e.gen, e.bytes = k, gen, size
	} else {
		e := &infoEntry{object: o, known: k, gen: gen, bytes: size}
		e.elem = s.ring.PushBack(e)
		s.m[o] = e
		s.bytes += size
	}
	for s.bytes > s.limit {
		e := s.ring.Front().Value.(*infoEntry)
		if e.used.Swap(false) {
			s.ring.MoveToBack(e.elem)
			continue
		}
		s.remove(e)
	}
	return true
}

// drop forgets o if what is remembered is k, or whatever it is when k is nil.
func (c *infoCache) drop(o origin.Object, k *known) {
	s := c.shard(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.m[o]; e != nil && (k == nil || e.known == k || e.known.info.SameVersion(k.info)) {
		s.remove(e)
	}
}

// forget is what a write does: o is forgotten under all its names, and answers to questions asked before now will not be
// remembered. It returns the new generation.
func (c *infoCache) forget(o origin.Object) (gen uint64) {
	gen = c.gens.bump(o)
	c.drop(origin.Object{Bucket: o.Bucket, Key: o.Key}, nil)
	return gen
}

// forgetIf is forget for a write that must have been alone since generation gen.
func (c *infoCache) forgetIf(o origin.Object, gen uint64) (now uint64, alone bool) {
	if !c.gens.bumpIf(o, gen) {
		return 0, false
	}
	c.drop(origin.Object{Bucket: o.Bucket, Key: o.Key}, nil)
	return gen + 1, true
}

// Purge forgets the info of all objects that match holds for, under all their names, so that their next reads ask the
// origin, and returns how many names were remembered. dry only counts. match is called with locks held, for every name
// that is remembered, and must be quick.
//
// Nothing that the origin was asked before Purge returns is remembered afterwards, of any object: probes that are under
// way know nothing of match, so all generations move on. That costs the other objects next to nothing.
func (g *Gateway) Purge(match func(origin.Object) bool, dry bool) int {
	if !dry {
		g.gens.bumpAll()
	}
	n := 0
	for i := range g.infos.shards {
		n += g.infos.shards[i].purge(match, dry)
	}
	return n
}

func (s *infoShard) purge(match func(origin.Object) bool, dry bool) (n int) {
	if dry {
		s.mu.RLock()
		defer s.mu.RUnlock()
	} else {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for o, e := range s.m {
		if match(o) {
			n++
			if !dry {
				s.remove(e)
			}
		}
	}
	return n
}

func (s *infoShard) remove(e *infoEntry) {
	s.ring.Remove(e.elem)
	delete(s.m, e.object)
	s.bytes -= e.bytes
}

// size returns the entries and bytes held.
func (c *infoCache) size() (n int, bytes int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.m)
		bytes += s.bytes
		s.mu.RUnlock()
	}
	return n, bytes
}

// infoBytes estimates what an entry occupies: its strings, and what the structs and the map around them take.
func infoBytes(o origin.Object, i *origin.Info) int64 {
	n := 720 + 2*(len(o.Bucket)+len(o.Key)+len(o.VersionID)+len(o.Raw)) + 2*len(i.ETag) + len(i.LastModified)
	for _, hs := range [][]origin.Header{i.Headers, i.Volatile, i.Checksums} {
		for _, h := range hs {
			n += 32 + len(h.Name) + len(h.Value)
		}
	}
	return int64(n)
}
