package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// mixed returns block i of a set of blocks of all sizes.
func mixed(i int) blockstore.Key {
	sizes := []int64{1, 700, 5000, 64<<10 + 1, 128 << 10, 300_001, 1 << 20}
	v := blockstoretest.Object(fmt.Sprintf("mixed %d", i), sizes[i%len(sizes)], 1<<20)
	return blockstore.Key{Version: v}
}

// Everything that was kept is there after a restart, whether blocks are small or large, and after many of them; a
// restart that writes nothing changes no file.
func TestRestart(t *testing.T) {
	for _, direct := range []bool{false, true} {
		dir := t.TempDir()
		c := Config{Dir: dir, DirectIO: direct}
		const blocks = 150
		for round := range 4 {
			d, err := Open(small(c))
			if err != nil {
				t.Fatal(err)
			}
			recovered(t, d)
			if got := d.Stats().Blocks; got != int64(min(round, 2)*blocks/2) {
				t.Errorf("round %d: %d blocks", round, got)
			}
			if round < 2 {
				for i := range blocks / 2 {
					put(t, d, mixed(round*blocks/2+i))
				}
				flush(t, d)
			}
			for i := range min(round+1, 2) * blocks / 2 {
				if !has(t, d, mixed(i)) {
					t.Errorf("round %d: block %d is gone", round, i)
				}
			}
			closeTier(t, d)
		}
	}
}

// A tier that takes over while another has the directory is told which process that is.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(small(Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(small(Config{Dir: dir}))
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("second Open: %v", err)
	}
	closeTier(t, d)
	if d, err = Open(small(Config{Dir: dir})); err != nil {
		t.Fatalf("Open after Close: %v", err)
	}
	closeTier(t, d)
}

// A directory that another one took the place of is not ours, whoever locked that.
func TestReplacedDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	ours, theirs := &osDir{path: path}, &osDir{path: path}
	if err := ours.lock(); err != nil {
		t.Fatal(err)
	}
	defer ours.unlock()
	if !ours.locked() {
		t.Error("not locked")
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if ours.locked() {
		t.Error("a directory that is gone is locked")
	}
	if err := theirs.lock(); err != nil {
		t.Fatal(err)
	}
	defer theirs.unlock()
	if ours.locked() || !theirs.locked() {
		t.Error("the wrong one has the directory")
	}
	if err := ours.lock(); !errors.Is(err, errHeld) {
		t.Errorf("lock: %v", err)
	}
}

// What Open does with what it finds.
func TestRecoverModes(t *testing.T) {
	damage := func(t *testing.T, d *memDir) { // the oldest of several regions
		name := slices.Min(slices.Collect(maps.Keys(regionFiles(d))))
		clear(d.files[name].data[:pageSize])
		clear(d.files[name].data[len(d.files[name].data)-pageSize:])
	}
	footless := func(t *testing.T, d *memDir) { // as is only the newest of a process that was killed
		name := slices.Min(slices.Collect(maps.Keys(regionFiles(d))))
		clear(d.files[name].data[len(d.files[name].data)-pageSize:])
	}
	newer := func(t *testing.T, d *memDir) {
		f := d.files[formatName]
		f.data = []byte(strings.Replace(string(f.data), "format 1", "format 2", 1))
	}
	older := func(t *testing.T, d *memDir) {
		f := d.files[formatName]
		f.data = []byte(strings.Replace(string(f.data), "format 1", "format 0", 1))
	}
	torn := func(t *testing.T, d *memDir) { d.files[formatName].data = nil }
	foreign := func(t *testing.T, d *memDir) {
		other := newMemDir()
		o := openTier(t, Config{}, other)
		put(t, o, mixed(6))
		closeTier(t, o)
		for _, f := range regionFiles(other) {
			d.put(regionName(0xff), f.data)
		}
	}
	nothing := func(*testing.T, *memDir) {}
	for _, test := range []struct {
		name    string
		change  func(*testing.T, *memDir)
		c       Config
		part    bool   // some blocks are there, none otherwise
		whole   bool   // all are
		err     string // of Open
		skipped float64
	}{
		{name: "quiet", change: nothing, whole: true},
		{name: "strict", change: nothing, c: Config{Recover: RecoverStrict}, whole: true},
		{name: "none", change: nothing, c: Config{Recover: RecoverNone}},
		{name: "another origin", change: nothing, c: Config{Origin: "elsewhere"}},
		{name: "damage, quiet", change: damage, part: true, skipped: 1},
		{name: "damage, strict", change: damage, c: Config{Recover: RecoverStrict}, err: "00000000.region: damaged"},
		{name: "no footer, quiet", change: footless, whole: true, skipped: 1}, // its end is
		{name: "no footer, strict", change: footless, c: Config{Recover: RecoverStrict}, err: "it has no footer"},
		{name: "newer, quiet", change: newer, err: "newer version"},
		{name: "newer, none", change: newer, c: Config{Recover: RecoverNone}, err: "newer version"},
		{name: "older", change: older},
		{name: "format torn, quiet", change: torn},
		{name: "format torn, strict", change: torn, c: Config{Recover: RecoverStrict}, err: "format: not the directory"},
		{name: "foreign, quiet", change: foreign, whole: true, skipped: 1},
		{name: "foreign, strict", change: foreign, c: Config{Recover: RecoverStrict}, err: "of another directory"},
		{name: "less capacity", change: nothing, c: Config{Capacity: 5 * 4 << 20}, part: true},
		{name: "other regions", change: nothing, c: Config{RegionSize: 5 << 20, Capacity: 90 << 20}, whole: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := newMemDir()
			d := openTier(t, Config{}, dir)
			for i := range 140 {
				put(t, d, mixed(i))
			}
			closeTier(t, d)
			test.change(t, dir)
			c := small(test.c)
			d, err := open(c, dir)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("Open: %v", err)
				}
				if dir.held {
					t.Error("the directory is still locked")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closeTier(t, d)
			recovered(t, d)
			n := 0
			for i := range 140 {
				if has(t, d, mixed(i)) {
					n++
				}
			}
			if test.whole != (n == 140) || (n > 0) != (test.part || test.whole) {
				t.Errorf("%d blocks are there", n)
			}
			skipped := 0.0
			for _, reason := range []string{"damaged", "foreign", "error"} {
				skipped += count(d.metrics.skipped, reason)
			}
			if skipped != test.skipped {
				t.Errorf("%v regions were skipped", skipped)
			}
			if live, _ := d.regions.bytes(); live > d.budget {
				t.Errorf("%d bytes of %d", live, d.budget)
			}
			if files, live := regionFiles(dir), d.Stats().Regions; int64(len(files)) != live {
				t.Errorf("%d files, %d regions", len(files), live)
			}
			put(t, d, mixed(1000)) // and it works
			flush(t, d)
			if !has(t, d, mixed(1000)) {
				t.Error("a new block is not there")
			}
		})
	}
}

func regionFiles(d *memDir) map[string]*memFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := map[string]*memFile{}
	for name, f := range d.files {
		if _, ok := parseRegionName(name); ok {
			files[name] = f
		}
	}
	return files
}

// Of two records of one block the newer one counts, whichever region is looked through first; a footer that lists
// nothing sensible is not believed.
func TestSetIfNewer(t *testing.T) {
	places := []place{{1, 7, 16}, {1, 7, 4096}, {1, 9, 32}}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		x := newIndex()
		for _, i := range order {
			x.setIfNewer(42, places[i])
		}
		if p, _ := x.find(42); p != places[1] {
			t.Errorf("%v: %v", order, p)
		}
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}} {
		x := newIndex()
		for _, i := range order {
			x.setIfNewer(42, places[i])
		}
		x.move(42, places[0], place{1, 11, 64}) // it is not there any more
		if p, _ := x.find(42); p != places[2] || x.n.Load() != 1 {
			t.Errorf("%v: %v, %d blocks", order, p, x.n.Load())
		}
	}
}

// Rounds of a process that is killed, or whose machine loses power, while it writes: whatever is served afterwards is
// right, and what was synced before, or written by a process that was killed, is there. CRASH_ROUNDS=200 for more.
func TestCrash(t *testing.T) {
	rounds, rng := rounds(t, "CRASH_ROUNDS", 12)
	seed := rng.Uint64()
	dir := newMemDir()
	var blocks, damaged float64
	for round := range rounds {
		d, err := open(small(Config{RegionSize: 2304 << 10, Capacity: 40 << 20, DirectIO: rng.IntN(2) == 0}), dir)
		if err != nil {
			t.Fatal(err)
		}
		recovered(t, d)
		there := 0
		for i := range 200 {
			if has(t, d, mixed(i)) {
				there++
			}
		}
		if want := d.Stats().Blocks; int64(there) < want {
			t.Errorf("round %d: %d of %d blocks can be read", round, there, want)
		}
		blocks += float64(there)
		damaged += float64(count(d.metrics.reads, readDamaged))
		infos, clean := d.Infos()
		for name, data := range infos {
			if name != string(data) {
				t.Errorf("info %q is %q", name, data)
			}
		}
		if clean {
			t.Error("infos are clean after a crash")
		}
		// It is stopped at some operation.
		stop, power := rng.IntN(300), rng.IntN(2) == 0
		var mu sync.Mutex
		var after *memDir
		dir.setHook(func(string, string) error {
			mu.Lock()
			defer mu.Unlock()
			if stop--; stop != 0 {
				return nil
			}
			if power {
				after = dir.crashed(rand.New(rand.NewPCG(seed, uint64(round))))
			} else {
				after = dir.killed(rand.New(rand.NewPCG(seed, uint64(round))))
			}
			return nil
		})
		for i := range 400 {
			put(t, d, mixed(rng.IntN(200)))
			d.PutInfo(mixed(i).String(), []byte(mixed(i).String()))
			if i%10 == 0 {
				flush(t, d)
			}
		}
		dir.setHook(nil)
		if after == nil {
			flush(t, d)
			after = dir.killed(rng)
		}
		closeTier(t, d)
		dir = after
	}
	t.Logf("%v blocks served after crashes, %v found damaged", blocks, damaged)
	if blocks == 0 {
		t.Error("nothing survives")
	}
}

func TestInfos(t *testing.T) {
	ctx := context.Background()
	dir := newMemDir()
	want := func(d *Tier, clean bool, names ...string) {
		t.Helper()
		got := map[string]string{}
		infos, ok := d.Infos()
		for name, data := range infos {
			got[name] = string(data)
		}
		if ok != clean {
			t.Errorf("clean = %v", ok)
		}
		if len(got) != len(names) {
			t.Errorf("infos %v, want %v", got, names)
		}
		for _, n := range names {
			if got[n] != "of "+n {
				t.Errorf("info %q: %q", n, got[n])
			}
		}
		if infos, ok := d.Infos(); ok {
			for range infos {
				t.Error("the second call finds something")
			}
		}
	}
	d := openTier(t, Config{}, dir)
	want(d, false)
	d.PutInfo("a", []byte("of another a"))
	d.PutInfo("b", []byte("of b"))
	d.PutInfo("a", []byte("of a"))
	flush(t, d)
	closeTier(t, d) // no clean stop without SaveInfos

	d = openTier(t, Config{}, dir)
	want(d, false, "a", "b")
	save := func(yield func(string, []byte) bool) {
		_ = yield("b", []byte("of b")) && yield("c", []byte("of c"))
	}
	if err := d.SaveInfos(ctx, save); err != nil {
		t.Fatal(err)
	}
	closeTier(t, d)

	for seed := range uint64(20) { // a machine that crashes after the start has no clean infos
		crashed := newMemDir()
		for name, f := range dir.files {
			crashed.put(name, slices.Clone(f.data))
		}
		d = openTier(t, Config{}, crashed)
		want(d, true, "b", "c")
		after := crashed.crashed(rand.New(rand.NewPCG(seed, 0)))
		closeTier(t, d)
		d = openTier(t, Config{}, after)
		want(d, false, "b", "c")
		closeTier(t, d)
	}

	d = openTier(t, Config{}, dir)
	want(d, true, "b", "c")
	closeTier(t, d) // the mark is gone as soon as it was read

	d = openTier(t, Config{}, dir)
	want(d, false, "b", "c")
	d.PutInfo("d", []byte("of d"))
	flush(t, d)
	if err := d.SaveInfos(ctx, save); err != nil {
		t.Fatal(err)
	}
	d.PutInfo("e", []byte("of e")) // after all
	closeTier(t, d)

	d = openTier(t, Config{}, dir)
	want(d, false, "b", "c", "e")
	if err := d.SaveInfos(ctx, func(func(string, []byte) bool) {}); err != nil {
		t.Fatal(err)
	}
	closeTier(t, d)
	if err := d.SaveInfos(ctx, save); !errors.Is(err, errClosed) {
		t.Errorf("SaveInfos after Close: %v", err)
	}

	d = openTier(t, Config{}, dir)
	want(d, true)
	closeTier(t, d)

	d = openTier(t, Config{Origin: "elsewhere"}, dir)
	want(d, false)
}

// Old infos go when there are many, and the files stay within their part of the capacity.
func TestManyInfos(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{QueueLimit: 1 << 20}, dir)
	const n = 200_000
	for i := range n {
		d.PutInfo(strconv.Itoa(i), make([]byte, 100))
		if i%1000 == 0 {
			flush(t, d)
		}
	}
	flush(t, d)
	closeTier(t, d)
	limit := d.config.Capacity / 16 / 3
	var written int64
	for _, name := range []string{infosName, oldInfosName} {
		size := int64(len(dir.files[name].data))
		written += size
		if size > limit || name == oldInfosName && size < limit/2 {
			t.Errorf("%s: %d bytes of %d", name, size, limit)
		}
	}
	d = openTier(t, Config{}, dir)
	infos, _ := d.Infos()
	last, seen := "", 0
	for name := range infos {
		last, seen = name, seen+1
	}
	// All that the files hold: how much that is depends on where the last of them began.
	each := int64(len(appendInfo(nil, last, make([]byte, 100))))
	if last != strconv.Itoa(n-1) || written-int64(seen)*each >= 2*each || int64(seen)*each > written {
		t.Errorf("%d infos of %d bytes up to %s, the files have %d", seen, each, last, written)
	}
	all := func(yield func(string, []byte) bool) {
		for i := 0; yield(strconv.Itoa(i), make([]byte, 100)); i++ {
		}
	}
	if err := d.SaveInfos(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if size := int64(len(dir.files[cleanInfosName].data)); size > limit {
		t.Errorf("%d bytes saved", size)
	}
}

// A footer is believed only where its sums are right; else the records are looked for one by one, and the region gets a
// new footer.
func TestUnfinished(t *testing.T) {
	path := t.TempDir()
	d := openTier(t, Config{Dir: path}, &osDir{path: path})
	for i := range 20 {
		put(t, d, mixed(i))
	}
	closeTier(t, d)
	file := filepath.Join(path, regionName(0))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	whole := slices.Clone(data)
	for _, at := range []int{len(data) - 4, len(data) - trailerLen - 20, len(data) - 30} {
		data = slices.Clone(whole)
		data[at] ^= 1
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		d = openTier(t, Config{Dir: path}, &osDir{path: path})
		recovered(t, d)
		for i := range 20 {
			if !has(t, d, mixed(i)) {
				t.Errorf("flip at %d: block %d is gone", at, i)
			}
		}
		closeTier(t, d)
		if data, _ = os.ReadFile(file); !slices.Equal(data, whole) {
			t.Errorf("flip at %d: the footer was not made good", at)
		}
	}
}
