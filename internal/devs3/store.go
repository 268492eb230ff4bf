package devs3

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// versioning is the versioning state of a bucket, spelled as in its XML.
type versioning string

const (
	versioningOff       versioning = ""
	versioningEnabled   versioning = "Enabled"
	versioningSuspended versioning = "Suspended"
)

// nullVersion is the id of what was written while versioning was off or suspended.
const nullVersion = "null"

// ownerID is the one account that owns everything.
const ownerID = "000000000000"

// version is one version of an object, or a delete marker. It never changes once it is in the store, but for its tags:
// those are replaced by putting a changed copy in its place.
type version struct {
	Key       []byte // JSON strings can't hold every key
	ID        string
	Seq       uint64 // order of writing in this store
	Marker    bool   // a delete marker
	ETag      string // with quotes
	Modified  time.Time
	Header    map[string]string // headers kept with the object, canonical names
	Tags      map[string]string
	Checksums map[string]string // "CRC32" to base64, with -N when composite
	SumType   string            // FULL_OBJECT or COMPOSITE, "" without checksums
	Parts     []part            // of a multipart upload; nil otherwise

	File      string // content in a file of this name
	Size      int64
	Generated bool // content is made from Seed
	Seed      uint64

	content content
}

// part is one part of a completed multipart upload.
type part struct {
	Number    int
	Size      int64
	Checksums map[string]string
}

// bucket is guarded by store.mu.
type bucket struct {
	name       string
	created    time.Time
	versioning versioning
	objects    map[string][]*version // oldest first, never empty
	keys       []string              // sorted; nil when it has to be made again
}

// store holds everything. Readers take mu alone, for as long as a map lookup takes. Writers hold writing from their
// first look to their last change, so that conditions hold, and take mu only to publish: no reader waits for a disk.
type store struct {
	dir     string // "" for memory
	writing sync.Mutex
	mu      sync.RWMutex
	buckets map[string]*bucket // guarded by mu
	uploads map[string]*upload // guarded by mu; by upload id
	seq     uint64             // guarded by writing
}

// writeCondition is what must hold of the current version for a write to happen.
type writeCondition struct {
	ifMatch  string // an ETag or *, as sent; "" for none
	ifAbsent bool   // If-None-Match: *
}

// check compares with the current version, nil for none.
func (w writeCondition) check(key string, current *version) error {
	if w.ifAbsent && current != nil {
		return errPrecondition("If-None-Match")
	}
	if w.ifMatch == "" {
		return nil
	}
	if current == nil {
		return errNoSuchKey(key)
	}
	if !parseTags([]string{w.ifMatch}).matchStrong(current.ETag) {
		return errPrecondition("If-Match")
	}
	return nil
}

// latest is the version that a read without a version id gets, nil for none or a delete marker.
func latest(versions []*version) *version {
	if len(versions) == 0 || versions[len(versions)-1].Marker {
		return nil
	}
	return versions[len(versions)-1]
}

// lookup finds a version by id, "" for the newest. A delete marker is found like any other.
func (s *store) lookup(bucketName, key, id string) (v *version, state versioning, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.buckets[bucketName]
	if b == nil {
		return nil, "", errNoSuchBucket(bucketName)
	}
	versions := b.objects[key]
	if id == "" {
		if len(versions) == 0 {
			return nil, b.versioning, errNoSuchKey(key)
		}
		return versions[len(versions)-1], b.versioning, nil
	}
	for _, v := range versions {
		if v.ID == id {
			return v, b.versioning, nil
		}
	}
	return nil, b.versioning, errNoSuchVersion(key, id)
}

// put adds a version, giving it its id and time (unless it has one), and drops what it replaces.
func (s *store) put(bucketName string, v *version, cond writeCondition) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.RLock()
	b := s.buckets[bucketName]
	var old []*version
	if b != nil {
		old = b.objects[string(v.Key)]
	}
	s.mu.RUnlock()
	if b == nil {
		return errNoSuchBucket(bucketName)
	}
	if err := cond.check(string(v.Key), latest(old)); err != nil {
		return err
	}
	s.prepare(v, b.versioning)
	now := make([]*version, 0, len(old)+1)
	var dropped []*version
	for _, o := range old {
		if o.ID == v.ID {
			dropped = append(dropped, o)
		} else {
			now = append(now, o)
		}
	}
	return s.publish(b, string(v.Key), append(now, v), []*version{v}, dropped)
}

// prepare is called with writing held. It gives a version its place in time.
func (s *store) prepare(v *version, state versioning) {
	s.seq++
	v.Seq = s.seq
	v.ID = nullVersion
	if state == versioningEnabled {
		v.ID = newVersionID()
	}
	if v.Modified.IsZero() {
		v.Modified = time.Now()
	}
	v.Modified = v.Modified.UTC().Truncate(time.Millisecond)
}

// publish is called with writing held: it makes added durable, then versions the truth, then forgets dropped.
func (s *store) publish(b *bucket, key string, versions, added, dropped []*version) error {
	for _, v := range added {
		if err := s.writeVersion(b.name, v); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if _, ok := b.objects[key]; !ok || len(versions) == 0 {
		b.keys = nil
	}
	if len(versions) == 0 {
		delete(b.objects, key)
	} else {
		b.objects[key] = versions
	}
	s.mu.Unlock()
	for _, v := range dropped {
		s.removeVersion(b.name, v)
	}
	return nil
}

// removed says what a delete did.
type removed struct {
	id     string // of the version deleted or the marker made, "" in a bucket without versions
	marker bool   // a marker was made or deleted
}

// remove deletes a version, or with id "" the object: for good without versioning, by a delete marker with it. Deleting
// what is not there succeeds, as in S3.
func (s *store) remove(bucketName, key, id string, cond writeCondition) (removed, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.RLock()
	b := s.buckets[bucketName]
	var old []*version
	if b != nil {
		old = b.objects[key]
	}
	s.mu.RUnlock()
	if b == nil {
		return removed{}, errNoSuchBucket(bucketName)
	}
	if err := cond.check(key, latest(old)); err != nil {
		return removed{}, err
	}
	if id == "" && b.versioning != versioningOff {
		return s.mark(b, key, old)
	}
	if id == "" {
		id = nullVersion
	}
	r := removed{}
	if b.versioning != versioningOff {
		r.id = id
	}
	i := slices.IndexFunc(old, func(v *version) bool { return v.ID == id })
	if i < 0 {
		return r, nil
	}
	r.marker = old[i].Marker
	return r, s.publish(b, key, slices.Delete(slices.Clone(old), i, i+1), nil, old[i:i+1])
}

// mark adds a delete marker. With versioning suspended it takes the place of the null version.
func (s *store) mark(b *bucket, key string, old []*version) (removed, error) {
	m := &version{Key: []byte(key), Marker: true}
	s.prepare(m, b.versioning)
	var now, dropped []*version
	for _, v := range old {
		if v.ID == m.ID {
			dropped = append(dropped, v)
		} else {
			now = append(now, v)
		}
	}
	return removed{id: m.ID, marker: true}, s.publish(b, key, append(now, m), []*version{m}, dropped)
}

// setTags replaces the tags of a version.
func (s *store) setTags(bucketName, key, id string, tags map[string]string) (*version, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	v, _, err := s.lookup(bucketName, key, id)
	if err != nil {
		return nil, err
	}
	if v.Marker {
		return nil, errMethodNotAllowed()
	}
	changed := *v
	changed.Tags = tags
	s.mu.RLock()
	b := s.buckets[bucketName]
	versions := slices.Clone(b.objects[key])
	s.mu.RUnlock()
	versions[slices.Index(versions, v)] = &changed
	return &changed, s.publish(b, key, versions, []*version{&changed}, nil)
}

// createBucket says whether the bucket is new.
func (s *store) createBucket(name string) (bool, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.RLock()
	_, exists := s.buckets[name]
	s.mu.RUnlock()
	if exists {
		return false, nil
	}
	b := &bucket{name: name, created: time.Now().UTC().Truncate(time.Millisecond), objects: map[string][]*version{}}
	if err := s.writeBucket(b); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.buckets[name] = b
	s.mu.Unlock()
	return true, nil
}

func (s *store) deleteBucket(name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	b := s.buckets[name]
	if b == nil {
		s.mu.Unlock()
		return errNoSuchBucket(name)
	}
	if len(b.objects) > 0 {
		s.mu.Unlock()
		return newError(http.StatusConflict, "BucketNotEmpty", "The bucket you tried to delete is not empty").
			with("BucketName", name)
	}
	delete(s.buckets, name)
	s.mu.Unlock()
	return s.removeBucket(name)
}

func (s *store) setVersioning(name string, state versioning) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	b := s.buckets[name]
	if b == nil {
		s.mu.Unlock()
		return errNoSuchBucket(name)
	}
	b.versioning = state
	s.mu.Unlock()
	return s.writeBucket(b)
}

// bucketInfo is what is known of a bucket without its objects.
type bucketInfo struct {
	name       string
	created    time.Time
	versioning versioning
}

func (s *store) bucket(name string) (bucketInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.buckets[name]
	if b == nil {
		return bucketInfo{}, errNoSuchBucket(name)
	}
	return bucketInfo{b.name, b.created, b.versioning}, nil
}

func (s *store) bucketList() []bucketInfo {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []bucketInfo
	for _, b := range s.buckets {
		out = append(out, bucketInfo{b.name, b.created, b.versioning})
	}
	slices.SortFunc(out, func(a, b bucketInfo) int { return strings.Compare(a.name, b.name) })
	return out
}

// snapshot returns the keys of a bucket in byte order and a function that finds their versions, oldest first, as they
// are when it is called. Both are for reading only.
func (s *store) snapshot(name string) (keys []string, versions func(key string) []*version, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[name]
	if b == nil {
		return nil, nil, errNoSuchBucket(name)
	}
	if b.keys == nil {
		b.keys = slices.Sorted(maps.Keys(b.objects))
	}
	return b.keys, func(key string) []*version {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return b.objects[key]
	}, nil
}

// newVersionID is opaque, 32 characters like S3's.
func newVersionID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// gone says whether opening a content failed because its version was deleted meanwhile.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
