package gateway

import (
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// What is known of objects outlives the process on the disk that holds their blocks, as records of two parts: the
// name is the object, the data what is known of it. Only objects with a strong ETag are kept: any other tag means something
// to the process that gave it alone.

// infoFormat is the first byte of data. Records of other formats are passed over.
const infoFormat = 1

// Recall remembers what Infos yielded in a former process, or Disk.PutInfo was given by it; of a name that comes twice
// the last one counts. Where there is too much it is the latest that stays. It returns how much was found. Without clean,
// which says that the former process came to an orderly end, the info is stale whatever it says of itself: it may have
// been outdated by a write that is not recorded. So is info from the future, and in immutable buckets what is older than
// the ttl: nobody knows what went on meanwhile. Call it before the first read.
func (g *Gateway) Recall(infos iter.Seq2[string, []byte], clean bool) int {
	now, never := time.Now(), time.Unix(1, 0)
	found := make(map[origin.Object]*origin.Info)
	for name, data := range infos {
		if o, info, err := decodeInfo(name, data); err == nil {
			found[o] = info
		}
	}
	all := make([]remembered, 0, len(found))
	for o, info := range found {
		all = append(all, remembered{o, info})
	}
	slices.SortFunc(all, remembered.older)
	for _, r := range all {
		p, info := g.cfg.Policy(r.object.Bucket), r.info
		k := newKnown(r.object, info, p, 0)
		k.recalled = true
		switch {
		case !clean || info.Confirmed.After(now) || info.Received.After(now) || !info.Confirmed.After(never):
			k.stale = true
			info.Confirmed, info.Received = never, never
		case p.Immutable && now.Sub(info.Confirmed) > p.TTL:
			k.stale = true
		}
		g.infos.put(r.object, k, g.gens.of(r.object), info.Confirmed)
	}
	return len(all)
}

// Infos yields what is known of objects, for a Recall in a later process: the latest first.
func (g *Gateway) Infos() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var all []remembered
		for i := range g.infos.shards {
			all = append(all, g.infos.shards[i].entries()...)
		}
		slices.SortFunc(all, remembered.older)
		for _, r := range slices.Backward(all) {
			if keeps(r.info) && !yield(infoName(r.object), encodeInfo(r.info)) {
				return
			}
		}
	}
}

// remembered is an entry of the info cache.
type remembered struct {
	object origin.Object
	info   *origin.Info
}

// older orders by confirmation.
func (r remembered) older(s remembered) int { return r.info.Confirmed.Compare(s.info.Confirmed) }

// entries returns all entries.
func (s *infoShard) entries() []remembered {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]remembered, 0, len(s.m))
	for el := s.ring.Front(); el != nil; el = el.Next() {
		e := el.Value.(*infoEntry)
		if (e.object.VersionID != "" || e.object.Raw != "") && e.gen != s.gens.of(e.object) {
			continue // see infoCache.get
		}
		if e.known.refused {
			continue // a later process would not know of that
		}
		all = append(all, remembered{e.object, e.known.info})
	}
	return all
}

// keeps says whether info is worth keeping for a later process.
func keeps(i *origin.Info) bool { return i.Strong() && !i.Confirmed.IsZero() }

func infoName(o origin.Object) string {
	b := appendString(nil, o.Bucket)
	b = appendString(b, o.Key)
	b = appendString(b, o.VersionID)
	return string(appendString(b, o.Raw))
}

func encodeInfo(i *origin.Info) []byte {
	b := []byte{infoFormat}
	b = binary.AppendVarint(b, i.Size)
	b = appendString(b, i.ETag)
	b = appendString(b, i.LastModified)
	b = appendString(b, i.VersionID)
	for _, t := range []time.Time{i.Modified, i.Confirmed, i.Received} {
		if t.IsZero() {
			b = binary.AppendVarint(b, 0)
		} else {
			b = binary.AppendVarint(b, t.UnixNano())
		}
	}
	known := uint64(0)
	if i.ChecksumsKnown {
		known = 1
	}
	b = binary.AppendUvarint(b, known)
	for _, hs := range [][]origin.Header{i.Headers, i.Volatile, i.Checksums} {
		b = binary.AppendUvarint(b, uint64(len(hs)))
		for _, h := range hs {
			b = appendString(appendString(b, h.Name), h.Value)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errInfo = errors.New("not what is known of an object")

// decodeInfo is the reverse of infoName and encodeInfo. It takes any bytes.
func decodeInfo(name string, data []byte) (origin.Object, *origin.Info, error) {
	n := infoReader{b: []byte(name)}
	o := origin.Object{Bucket: n.string(), Key: n.string(), VersionID: n.string(), Raw: n.string()}
	if len(data) == 0 || data[0] != infoFormat {
		return o, nil, errInfo
	}
	d := infoReader{b: data[1:]}
	i := &origin.Info{Size: d.int(), ETag: d.string(), LastModified: d.string(), VersionID: d.string()}
	i.Modified, i.Confirmed, i.Received = d.time(), d.time(), d.time()
	if !i.Modified.IsZero() {
		i.Modified = i.Modified.UTC()
	}
	i.ChecksumsKnown = d.uint() != 0
	for _, hs := range []*[]origin.Header{&i.Headers, &i.Volatile, &i.Checksums} {
		for n := d.uint(); n > 0 && !d.bad; n-- {
			*hs = append(*hs, origin.Header{Name: d.string(), Value: d.string()})
		}
	}
	if n.bad || d.bad || len(n.b) > 0 || len(d.b) > 0 || i.Size < 0 || !keeps(i) {
		return o, nil, errInfo
	}
	return o, i, nil
}

// infoReader takes a record apart. After the first thing that does not fit it is bad, and what it returns is nothing.
type infoReader struct {
	b   []byte
	bad bool
}

func (r *infoReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *infoReader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *infoReader) string() string {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *infoReader) time() time.Time {
	if ns := r.int(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}
