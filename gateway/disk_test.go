package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// fakeDisk keeps what it is given, and reads into slots like a real one. lose, if set, makes a Get fail.
type fakeDisk struct {
	slots   blockstore.Slots
	latency time.Duration

	mu      sync.Mutex
	lose    func(blockstore.Key) bool
	blocks  map[string][]byte
	infos   map[string][]byte
	order   []string // names as they were put, changes too
	gets    int
	parts   int
	read    int   // bytes
	more    int64 // bytes of a part beyond what is asked for
	noParts bool  // there are no parts, so that all is read by blocks
	stalled bool  // whatever it is asked for, it has not got it within patience
}

// patience is how long a disk that is stalled is waited for.
const patience = time.Second

func (d *fakeDisk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.blocks)
}

func newFakeDisk(slots blockstore.Slots) *fakeDisk {
	return &fakeDisk{slots: slots, blocks: make(map[string][]byte), infos: make(map[string][]byte)}
}

func (d *fakeDisk) Contains(k blockstore.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocks[name(k)] != nil
}

func (d *fakeDisk) Get(k blockstore.Key) *blockstore.Block {
	if d.stalled {
		time.Sleep(patience)
		return nil
	}
	time.Sleep(d.latency)
	d.mu.Lock()
	d.gets++
	d.read += int(k.Len())
	data := d.blocks[name(k)]
	if d.lose != nil && d.lose(k) {
		delete(d.blocks, name(k))
		data = nil
	}
	d.mu.Unlock()
	if data == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b, err := d.slots.Alloc(ctx, int64(len(data)))
	if err != nil {
		return nil
	}
	b.Seal(k, copy(b.Buf(), data))
	return b
}

// GetPart answers with the pieces of 64 KiB that hold what is asked for, as the tier does.
func (d *fakeDisk) GetPart(ctx context.Context, k blockstore.Key, off, n int64) (*blockstore.Block, int64, bool) {
	latency := d.latency
	if d.stalled {
		latency = patience
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, 0, true
	}
	if d.stalled {
		return nil, 0, true
	}
	d.mu.Lock()
	data := d.blocks[name(k)]
	if d.lose != nil && d.lose(k) {
		delete(d.blocks, name(k))
		data = nil
	}
	if d.noParts {
		data = nil
	}
	d.mu.Unlock()
	from, to := off&^(64*KiB-1), min((off+n+d.more+64*KiB-1)&^(64*KiB-1), int64(len(data)))
	if data == nil {
		return nil, 0, false
	}
	b, err := d.slots.Alloc(ctx, to-from)
	if err != nil {
		return nil, 0, true
	}
	copy(b.Buf(), data[from:to])
	d.mu.Lock()
	d.parts++
	d.read += len(b.Buf())
	d.mu.Unlock()
	return b, from, false
}

func (d *fakeDisk) Put(b *blockstore.Block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks[name(b.Key())] = slices.Clone(b.Bytes())
}

func (d *fakeDisk) PutInfo(name string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.infos[name] = data
	d.order = append(d.order, name)
}

func newDiskRig(t testing.TB, p gateway.Policy, d *fakeDisk) (*rig, *fakeDisk) {
	m := newStrictMemory(64 * p.BlockSize)
	if d == nil {
		d = newFakeDisk(m)
	}
	d.slots = m
	return newRigOver(t, m, p, func(c *gateway.Config) { c.Disk = d }), d
}

// What memory has lost is read from the disk, by one read of each block for all readers, and is in memory then.
func TestDiskBehindMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		d.latency = time.Millisecond
		r.origin.Put("b", "k", origintest.Object{Size: 20*B + 5})
		r.get("k", gateway.Range{})
		synctest.Wait()
		r.memory.evict()
		before := r.origin.Stats()
		for _, a := range r.crowd(50, func(int) answer { return r.get("k", gateway.Range{}) }) {
			if a.err != nil || len(a.body) != 20*B+5 {
				t.Errorf("%d bytes, %v", len(a.body), a.err)
			} else if a.obj.Status != gateway.Hit {
				t.Errorf("a %v", a.obj.Status)
			}
		}
		if after := r.origin.Stats(); after.Gets != before.Gets || d.gets != 21 {
			t.Errorf("%d GETs at the origin, %d reads of the disk, want none and 21", after.Gets-before.Gets, d.gets)
		}
		if n := r.metric("ashlar_blocks_total", "disk"); n != 21 {
			t.Errorf("%v blocks counted as from disk", n)
		}
		if a := r.get("k", gateway.FromTo(0, 9)); a.obj.Source != gateway.SourceMemory || d.gets != 21 {
			t.Errorf("then from %v", a.obj.Source)
		}
		r.memory.evict()
		if a := r.get("k", gateway.FromTo(B, B+9)); a.obj.Source != gateway.SourceDisk {
			t.Errorf("after the eviction from %v", a.obj.Source)
		}
	})
}

// Blocks that the disk has not, or can't read, come from the origin, and only they.
func TestDiskWithGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 16 * B})
		r.get("k", gateway.Range{})
		synctest.Wait()
		r.memory.evict()
		d.lose = func(k blockstore.Key) bool { return k.Index == 12 }
		maps.DeleteFunc(d.blocks, func(n string, _ []byte) bool { return strings.HasSuffix(n, " 3") || strings.HasSuffix(n, " 4") })
		before := r.origin.Stats()
		a := r.get("k", gateway.Range{})
		if a.err != nil || len(a.body) != 16*B || a.obj.Status != gateway.Partial {
			t.Errorf("%d bytes, %v, %v", len(a.body), a.obj.Status, a.err)
		}
		after := r.origin.Stats()
		if n, size := after.Gets-before.Gets, after.Bytes-before.Bytes; n != 2 || size != 3*B {
			t.Errorf("%d GETs of %d blocks, want 2 of 3: %q", n, size/B, r.origin.Log())
		}
	})
}

// Stale info is confirmed by a 304 when the disk has the first block.
func TestStaleWithBlocksOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: 16 * B})
		r.get("k", gateway.Range{})
		synctest.Wait()
		r.memory.evict()
		time.Sleep(2 * r.policy.TTL)
		before := r.origin.Stats()
		if a := r.get("k", gateway.Range{}); a.err != nil || len(a.body) != 16*B {
			t.Errorf("%d bytes, %v", len(a.body), a.err)
		}
		if after := r.origin.Stats(); after.Gets-before.Gets != 1 || after.Bytes != before.Bytes {
			t.Errorf("%d bytes fetched: %q", after.Bytes-before.Bytes, r.origin.Log())
		}
		// And when it was overwritten behind the cache, the blocks of the old version serve nobody.
		r.origin.Put("b", "k", origintest.Object{Size: 16 * B})
		time.Sleep(2 * r.policy.TTL)
		if a := r.get("k", gateway.Range{}); a.err != nil || a.obj.Info.ETag != `"b/k#2"` {
			t.Errorf("%+v, %v", a.obj, a.err)
		}
	})
}

// A version without a strong ETag has a name that only this process understands: its blocks stay in memory.
func TestOnlyStrongETagsGoToDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.Immutable = true
		r, d := newDiskRig(t, p, nil)
		defer r.close()
		r.origin.Put("b", "weak", origintest.Object{Size: B, ETag: `W/"1"`})
		r.get("weak", gateway.Range{})
		synctest.Wait() // blocks go to the disk when readers have them
		synctest.Wait() // the disk is told last
		if len(d.blocks) != 0 || len(d.infos) != 0 {
			t.Errorf("%d blocks and %d infos on disk", len(d.blocks), len(d.infos))
		}
		r.origin.Put("b", "strong", origintest.Object{Size: B})
		r.get("strong", gateway.Range{})
		synctest.Wait()
		synctest.Wait()
		if len(d.blocks) != 1 || len(d.infos) != 1 {
			t.Errorf("%d blocks and %d infos on disk", len(d.blocks), len(d.infos))
		}
	})
}

// The disk is told of what is new, not of every confirmation.
func TestInfoIsKeptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		r.origin.Put("b", "k", origintest.Object{Size: B})
		for range 5 {
			r.get("k", gateway.Range{})
			time.Sleep(2 * r.policy.TTL)
		}
		if len(d.order) != 1 {
			t.Errorf("told %d times", len(d.order))
		}
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.get("k", gateway.Range{})
		if len(d.order) != 2 {
			t.Errorf("told %d times, one version later", len(d.order))
		}
	})
}

// A clock that was ahead when something was confirmed makes it stale for good, not only until the time has come.
func TestInfoFromTheFuture(t *testing.T) {
	var infos map[string][]byte
	synctest.Test(t, func(t *testing.T) {
		r, _ := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		time.Sleep(2 * time.Hour)
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.get("k", gateway.Range{})
		infos = maps.Collect(r.Infos())
	})
	synctest.Test(t, func(t *testing.T) { // begins two hours before that
		r, _ := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		time.Sleep(time.Hour)
		r.Recall(maps.All(infos), true)
		r.origin.Put("b", "k", origintest.Object{Size: B})
		second := r.origin.Put("b", "k", origintest.Object{Size: B})
		time.Sleep(time.Hour + time.Second)
		a := r.read(t.Context(), gateway.Request{Object: object("k"), InfoOnly: true})
		if a.err != nil || a.obj.Info.ETag != second {
			t.Error(describe(a))
		}
	})
}

// A write is one to all names of its key, and none of them is known to a later process by what was before.
func TestWrittenNamesAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newDiskRig(t, smallPolicy(), nil)
		defer r.close()
		null := origin.Object{Bucket: "b", Key: "k", VersionID: "null"}
		r.origin.Put("b", "k", origintest.Object{Size: B, VersionID: "null"})
		if a := r.read(t.Context(), gateway.Request{Object: null}); a.err != nil {
			t.Fatal(a.err)
		}
		if n := len(maps.Collect(r.Infos())); n != 1 {
			t.Errorf("%d are kept", n)
		}
		r.Invalidate(object("k"))
		for name := range r.Infos() {
			t.Errorf("%q is kept", name)
		}
	})
}

// What was known survives: as fresh as it was after a clean stop; to be confirmed by one 304 when it is stale by then,
// or the stop was none, or the clock says that it comes from the future.
func TestInfoSurvives(t *testing.T) {
	for _, c := range []struct {
		name      string
		clean     bool
		immutable bool
		wait      time.Duration // between the confirmation and the next read
		written   bool          // through the first process, after it was read
		requests  int
		etag      string
	}{
		{"clean and fresh", true, false, 30 * time.Second, false, 0, `"b/k#1"`},
		{"clean and stale", true, false, 2 * time.Minute, false, 1, `"b/k#1"`},
		{"unclean", false, false, time.Second, false, 1, `"b/k#1"`},
		{"unclean and immutable", false, true, time.Second, false, 1, `"b/k#1"`},
		{"clean and immutable", true, true, 30 * time.Second, false, 0, `"b/k#1"`},
		{"clean, immutable and long ago", true, true, time.Hour, false, 1, `"b/k#1"`},
		{"clock set back", true, true, -time.Hour, false, 1, `"b/k#1"`},
		{"forgotten before", true, false, time.Second, true, 1, `"b/k#2"`},
		{"forgotten before, unclean", false, false, time.Second, true, 1, `"b/k#2"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := smallPolicy()
			p.Immutable = c.immutable
			put := func(r *rig) {
				r.origin.Put("b", "k", origintest.Object{Size: 8 * B,
					Headers: []origin.Header{{Name: "X-Amz-Meta-Odd", Value: "\xff\x00 \u00e9"}}})
			}
			var d *fakeDisk
			var infos map[string][]byte
			var headers []origin.Header
			const began = 2 * time.Hour // after the clock's zero, where each of the two processes finds it
			synctest.Test(t, func(t *testing.T) {
				var r *rig
				r, d = newDiskRig(t, p, nil)
				defer r.close()
				time.Sleep(began)
				put(r)
				headers = r.get("k", gateway.Range{}).obj.Info.Headers
				synctest.Wait()
				if c.written {
					put(r)
					r.Invalidate(object("k"))
				}
				if infos = d.infos; c.clean {
					infos = maps.Collect(r.Infos())
				}
			})
			synctest.Test(t, func(t *testing.T) {
				r, _ := newDiskRig(t, p, d)
				defer r.close()
				time.Sleep(began + c.wait)
				put(r)
				if c.written {
					put(r)
				}
				r.Recall(maps.All(infos), c.clean)
				a := r.get("k", gateway.Range{})
				if a.err != nil || len(a.body) != 8*B || a.obj.Info.ETag != c.etag {
					t.Fatalf("%d bytes, %v, %v", len(a.body), a.obj.Info, a.err)
				}
				s := r.origin.Stats()
				if s.Gets+s.Heads != c.requests || !c.written && s.Bytes != 0 {
					t.Errorf("%d requests, want %d: %q", s.Gets+s.Heads, c.requests, r.origin.Log())
				}
				if !slices.Equal(a.obj.Info.Headers, headers) {
					t.Errorf("headers %q, were %q", a.obj.Info.Headers, headers)
				}
			})
		})
	}
}

// Info that was recalled as stale stays so over another, clean restart.
func TestStaleInfoStaysStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := smallPolicy()
		p.Immutable = true
		r, d := newDiskRig(t, p, nil)
		r.origin.Put("b", "k", origintest.Object{Size: B})
		r.get("k", gateway.Range{})
		r.close()
		second, _ := newDiskRig(t, p, d)
		if n := second.Recall(maps.All(d.infos), false); n != 1 {
			t.Errorf("%d recalled", n)
		}
		infos := maps.Collect(second.Infos())
		second.close()
		third, _ := newDiskRig(t, p, d)
		defer third.close()
		third.origin.Put("b", "k", origintest.Object{Size: B})
		third.Recall(maps.All(infos), true)
		third.get("k", gateway.Range{})
		if s := third.origin.Stats(); s.Gets+s.Heads != 1 || s.Bytes != 0 {
			t.Errorf("origin was asked: %q", third.origin.Log())
		}
	})
}

// Of more than there is room for, the latest stays, and the latest is yielded first.
func TestLatestInfoIsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4000
		r := newRig(t, smallPolicy(), 64*B, func(c *gateway.Config) { c.InfoMemory = 64 * MiB })
		var names []string
		for i := range n {
			key := fmt.Sprint(i)
			r.origin.Put("b", key, origintest.Object{Size: 1})
			r.get(key, gateway.Range{})
			time.Sleep(time.Millisecond)
		}
		infos := make(map[string][]byte)
		for name, data := range r.Infos() {
			names, infos[name] = append(names, name), data
		}
		r.close()
		if len(names) != n || !strings.Contains(names[0], fmt.Sprint(n-1)) || !strings.Contains(names[n-1], "\x010") {
			t.Fatalf("%d names, %q first, %q last", len(names), names[0], names[len(names)-1])
		}
		next := newRig(t, smallPolicy(), 64*B, func(c *gateway.Config) { c.InfoMemory = 2 * MiB })
		defer next.close()
		next.Recall(maps.All(infos), true)
		kept := slices.Collect(maps.Keys(maps.Collect(next.Infos())))
		late := 0
		for _, name := range kept {
			if slices.Index(names, name) < len(kept)*5/4 {
				late++
			}
		}
		if len(kept) < n/8 || late < len(kept)*9/10 {
			t.Errorf("%d are kept, %d of the latest", len(kept), late)
		}
	})
}

// Whatever is left on a disk, it is taken as what it is or not at all.
func FuzzRecall(f *testing.F) {
	d := newFakeDisk(nil)
	r := newRig(f, smallPolicy(), 64*B, func(c *gateway.Config) { c.Disk = d })
	r.origin.Put("b", "k", origintest.Object{Size: B, Headers: []origin.Header{{Name: "Content-Type", Value: "a/b"}}})
	r.get("k", gateway.Range{})
	r.Close()
	f.Add("", []byte{})
	for name, data := range d.infos {
		f.Add(name, data)
		f.Add(name, data[:len(data)/2])
		f.Add(name+"x", append(data, 0))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		r := newRig(t, smallPolicy(), 64*B)
		defer r.Close()
		n := r.Recall(maps.All(map[string][]byte{name: data}), true)
		got := maps.Collect(r.Infos())
		if len(got) != n {
			t.Fatalf("%d recalled, %d remembered", n, len(got))
		}
		if again := r.Recall(maps.All(got), true); again != n {
			t.Errorf("what it yields it does not take: %q", got)
		}
	})
}
