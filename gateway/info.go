package gateway

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"slices"
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

	recalled bool // by a former process: the disk has it
	stale    bool // however old it says it is
	refused  bool // the origin has since answered otherwise than with the object: no trouble brings it back
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
	return &known{info: info, version: blockstore.NewVersion(blockstore.Version{
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
	seed  maphash.Seed
	start time.Time
	n     [1 << 16]atomic.Uint64
	// told is when, since start, the last answer was received that readers were told and that was not remembered. What
	// the origin was asked before then may be older than what they know. The names of one key (versions, spellings) are
	// apart here: who asks for versions that there are not says nothing of the object.
	told   [1 << 16]atomic.Int64
	bumped [1 << 16]atomic.Int64 // when, since start, the last write was, or the last sign of one
}

func (g *generations) index(o origin.Object) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	_, _ = h.WriteString(o.Bucket)
	_ = h.WriteByte('/')
	_, _ = h.WriteString(o.Key)
	return h.Sum64() % uint64(len(g.n))
}

func (g *generations) slot(o origin.Object) *atomic.Uint64 { return &g.n[g.index(o)] }

func (g *generations) toldOf(o origin.Object) *atomic.Int64 {
	return &g.told[maphash.Comparable(g.seed, o)%uint64(len(g.told))]
}

// tell notes that readers are about to be told an answer received at t that will not be remembered.
func (g *generations) tell(o origin.Object, t time.Time) {
	told := g.toldOf(o)
	at := int64(t.Sub(g.start))
	for {
		old := told.Load()
		if at <= old || told.CompareAndSwap(old, at) {
			return
		}
	}
}

// lastTold is when the last such answer was received, zero if none was.
func (g *generations) lastTold(o origin.Object) time.Time {
	at := g.toldOf(o).Load()
	if at == 0 {
		return time.Time{}
	}
	return g.start.Add(time.Duration(at))
}

func (g *generations) of(o origin.Object) uint64 { return g.slot(o).Load() }

func (g *generations) bump(o origin.Object) uint64 {
	i := g.index(o)
	g.bumped[i].Store(g.now())
	return g.n[i].Add(1)
}

// bumpIf bumps if the generation is still gen, and says whether it was.
func (g *generations) bumpIf(o origin.Object, gen uint64) bool {
	i := g.index(o)
	g.bumped[i].Store(g.now())
	return g.n[i].CompareAndSwap(gen, gen+1)
}

// overwritten notes that the object was written or deleted by somebody, not through here and nobody knows when.
func (g *generations) overwritten(o origin.Object) { g.bumped[g.index(o)].Store(g.now()) }

// written says whether there was a write in the last while.
func (g *generations) written(o origin.Object, while time.Duration) bool {
	at := g.bumped[g.index(o)].Load()
	return at != 0 && g.now()-at <= int64(while)
}

// now is the time since start, and never 0, which is no time.
func (g *generations) now() int64 { return int64(time.Since(g.start)) + 1 }

func (g *generations) bumpAll() {
	now := g.now()
	for i := range g.n {
		g.bumped[i].Store(now)
		g.n[i].Add(1)
	}
}

// infoCache remembers what is known of objects, bounded in bytes, evicting by CLOCK (a FIFO in which an entry read since
// it was last looked at goes round once more). Safe for concurrent use; a hit takes only a shared lock.
type infoCache struct {
	gens   *generations
	disk   Disk // that is told of what is remembered; nil when there is none
	seed   maphash.Seed
	shards [16]infoShard
}

type infoShard struct {
	gens  *generations
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

func newInfoCache(limit int64, gens *generations, disk Disk) *infoCache {
	c := &infoCache{gens: gens, disk: disk, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].gens = gens
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

// put remembers k, the answer to a question sent then, as of generation gen, and says whether it did. It does not when
// the key was written since gen was read, nor when a different version is remembered whose answer came after the question
// was sent: that one may be the newer, and a reader must not see it turn back. What is not remembered readers are told all
// the same: so nothing is that the origin was asked before they were. What counts is when it was asked, not what it says
// of its Age: an origin that is a cache always answers with some, and nothing would be remembered.
func (c *infoCache) put(o origin.Object, k *known, gen uint64, sent time.Time) (remembered bool) {
	s := c.shard(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := !k.info.Confirmed.IsZero() // otherwise k is what a write left, and no reader is told it without asking
	defer func() {
		if asked && !remembered {
			c.gens.tell(o, k.info.Received)
			if e := s.m[o]; e != nil && !e.known.info.Confirmed.IsZero() && !e.known.info.SameVersion(k.info) {
				s.remove(e)
			}
		}
	}()
	if c.gens.of(o) != gen || asked && sent.Before(c.gens.lastTold(o)) {
		return false
	}
	size := infoBytes(o, k.info)
	if size > s.limit { // nor is what was remembered before true any more
		if e := s.m[o]; e != nil {
			s.remove(e)
		}
		return false
	}
	if e := s.m[o]; e != nil {
		if e.gen == gen {
			switch old := e.known.info; {
			case !old.SameVersion(k.info):
				if sent.Before(old.Received) {
					return false
				}
			case k.info.Confirmed.Before(old.Confirmed):
				return true // the same said earlier: keep the later confirmation
			case old.ChecksumsKnown && !k.info.ChecksumsKnown:
				info := *k.info
				info.Checksums, info.ChecksumsKnown = old.Checksums, true
				k = &known{info: &info, version: k.version}
				size = infoBytes(o, k.info)
			}
		}
		c.keep(o, e.known, k)
		s.bytes += size - e.bytes
		e.known, e.gen, e.bytes = k, gen, size
	} else {
		c.keep(o, nil, k)
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

// keep tells the disk what is now known of o, and was old before, where it says something new: a later confirmation alone
// is kept when the process ends.
func (c *infoCache) keep(o origin.Object, old, k *known) {
	if c.disk == nil || k.recalled || !keeps(k.info) || k.version == nil {
		return
	}
	if old != nil && old.info.SameVersion(k.info) && old.info.LastModified == k.info.LastModified &&
		old.info.ChecksumsKnown == k.info.ChecksumsKnown && slices.Equal(old.info.Headers, k.info.Headers) {
		return
	}
	c.disk.PutInfo(infoName(o), encodeInfo(k.info))
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

// missing is what an answer does that there is no such object.
func (c *infoCache) missing(o origin.Object) {
	s := c.shard(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.gens.tell(o, time.Now())
	if e := s.m[o]; e != nil {
		s.remove(e)
	}
}

// refuse is what an answer does that is about o and is not o, such as a 403.
func (c *infoCache) refuse(o origin.Object) {
	s := c.shard(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.m[o]; e != nil && !e.known.refused {
		k := *e.known
		k.refused = true
		e.known = &k
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
