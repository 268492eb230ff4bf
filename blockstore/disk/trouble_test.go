package disk

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"golang.org/x/sys/unix"
)

// log collects lines; safe for concurrent use.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func state(t *testing.T, d *Tier, want State) {
	t.Helper()
	if got := d.Stats().State; got != want {
		t.Errorf("state %q, want %q", got, want)
	}
}

// Writes fail with every error there is: reads go on, nothing new is kept, each change of the state is logged once, and
// when the disk works again so does the tier.
func TestWritesFail(t *testing.T) {
	for _, test := range []struct {
		ops string
		err error
	}{
		{"write", unix.EIO}, {"write", unix.ENOSPC}, {"create", unix.ENOSPC}, {"create", unix.EMFILE},
		{"create write remove sync rename", unix.EROFS}, {"sync", unix.EIO}, {"free", unix.EIO},
	} {
		t.Run(test.ops+" "+test.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, lines := newMemDir(), new(log)
				d := openTier(t, Config{Logger: lines.logger()}, dir)
				for i := range 30 {
					put(t, d, mixed(i))
				}
				flush(t, d)
				dir.setHook(func(op, _ string) error {
					if strings.Contains(test.ops, op) {
						return test.err
					}
					return nil
				})
				next := 30
				for d.Stats().State == StateOK && next < 1000 {
					put(t, d, mixed(next))
					flush(t, d)
					synctest.Wait()
					next++
				}
				state(t, d, StateReadOnly)
				time.Sleep(time.Minute)
				state(t, d, StateReadOnly)
				for i := range 30 {
					if has(t, d, mixed(i)) != d.Contains(mixed(i)) {
						t.Errorf("block %d can't be read", i)
					}
				}
				if test.ops != "create" && !has(t, d, mixed(6)) { // no room: old ones go for new ones
					t.Error("nothing is served")
				}
				put(t, d, mixed(2000))
				flush(t, d)
				if d.Contains(mixed(2000)) || count(d.metrics.drops, dropOut) == 0 {
					t.Error("a block was kept")
				}
				if n := lines.count("keeps nothing new"); n != 1 {
					t.Errorf("logged %d times", n)
				}
				dir.setHook(nil)
				time.Sleep(2 * probeEvery)
				state(t, d, StateOK)
				put(t, d, mixed(2000))
				flush(t, d)
				if !has(t, d, mixed(2000)) || lines.count("works again") != 1 {
					t.Error("the tier does not work again")
				}
				if _, used := d.regions.bytes(); used > d.budget {
					t.Errorf("%d bytes of %d", used, d.budget)
				}
			})
		})
	}
}

// One read that works says that the disk does: those that failed before it count no more.
func TestReadsFailNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newMemDir()
		d := openTier(t, Config{}, dir)
		for i := range 3 * maxFailures {
			put(t, d, mixed(i))
		}
		flush(t, d)
		for i := range 3 * maxFailures {
			fails := i%maxFailures != 0
			dir.setHook(func(op, _ string) error {
				if fails && op == "read" {
					return unix.EIO
				}
				return nil
			})
			if has(t, d, mixed(i)) == fails {
				t.Errorf("block %d: there %v", i, !fails)
			}
		}
		dir.setHook(nil)
		state(t, d, StateOK)
	})
}

// Reads that fail are misses; when none works any more the tier is out, without asking the disk, until it works again.
func TestReadsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, lines := newMemDir(), new(log)
		d := openTier(t, Config{Logger: lines.logger()}, dir)
		for i := range 30 {
			put(t, d, mixed(i))
		}
		flush(t, d)
		var reads atomic.Int64
		dir.setHook(func(op, _ string) error {
			if op == "read" {
				reads.Add(1)
				return unix.EIO
			}
			return nil
		})
		for i := range 30 {
			if d.Get(mixed(i)) != nil {
				t.Error("a block was read")
			}
		}
		state(t, d, StateOut)
		if reads.Load() != maxFailures || count(d.metrics.reads, readError) != maxFailures {
			t.Errorf("the disk was asked %d times", reads.Load())
		}
		d.failed(StateReadOnly, unix.EIO)
		state(t, d, StateOut) // still
		time.Sleep(10 * probeEvery)
		state(t, d, StateOut)
		dir.setHook(func(op, name string) error {
			if op == "read" && name == probeName { // a disk that writes something else
				f := dir.files[name]
				f.mu.Lock()
				f.data[5] ^= 1
				f.mu.Unlock()
			}
			return nil
		})
		time.Sleep(10 * probeEvery)
		state(t, d, StateOut)
		dir.setHook(nil)
		time.Sleep(2 * probeEvery)
		state(t, d, StateOK)
		if d.Contains(mixed(0)) || !d.Contains(mixed(maxFailures)) {
			t.Error("a block that could not be read is kept, or one that was not asked for is not")
		}
		if !has(t, d, mixed(29)) || lines.count("is out") != 1 {
			t.Error("the tier does not work again")
		}
	})
}

// The directory is deleted underneath: what is open is not served any more, a new directory is made and used. If
// another process was faster, the tier stays out.
func TestDirectoryDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newMemDir()
		d := openTier(t, Config{}, dir)
		for i := range 30 {
			put(t, d, mixed(i))
		}
		d.PutInfo("a", nil)
		flush(t, d)
		dir.vanish()
		time.Sleep(2 * probeEvery)
		synctest.Wait()
		state(t, d, StateOK)
		if s := d.Stats(); s.Blocks != 0 || s.Used != d.config.RegionSize {
			t.Errorf("%+v", s)
		}
		put(t, d, mixed(6))
		d.PutInfo("b", nil)
		flush(t, d)
		if !has(t, d, mixed(6)) {
			t.Error("a new block is not there")
		}
		closeTier(t, d)
		d = openTier(t, Config{}, dir)
		synctest.Wait()
		infos, _ := d.Infos()
		for name := range infos {
			if name != "b" {
				t.Errorf("info %q", name)
			}
		}
		if !has(t, d, mixed(6)) {
			t.Error("not there after a restart")
		}
		var held atomic.Bool
		held.Store(true)
		dir.setHook(func(op, _ string) error {
			if op == "lock" && held.Load() {
				return errHeld
			}
			return nil
		})
		dir.vanish()
		time.Sleep(10 * probeEvery)
		state(t, d, StateOut)
		held.Store(false)
		time.Sleep(2 * probeEvery)
		state(t, d, StateOK)
	})
}

// The same on a real filesystem.
func TestDirectoryDeletedReally(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	d, err := Open(small(Config{Dir: path}))
	if err != nil {
		t.Fatal(err)
	}
	defer closeTier(t, d)
	put(t, d, mixed(6))
	flush(t, d)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		// In this order: a tier that is out, on its way from one directory to the other, has not got the block either.
		if !d.Contains(mixed(6)) && d.Stats().State == StateOK {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	put(t, d, mixed(1))
	flush(t, d)
	if !has(t, d, mixed(1)) || d.Get(mixed(6)) != nil {
		t.Error("the tier did not begin anew")
	}
	if files, _ := filepath.Glob(filepath.Join(path, "*.region")); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}

// A disk that fails at the start is no reason not to start.
func TestStartsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newMemDir()
		d := openTier(t, Config{}, dir)
		err := d.SaveInfos(t.Context(), func(yield func(string, []byte) bool) { yield("a", nil) })
		if err != nil {
			t.Fatal(err)
		}
		closeTier(t, d)
		dir.setHook(func(op, _ string) error { return unix.EIO })
		d = openTier(t, Config{}, dir)
		state(t, d, StateOut)
		put(t, d, mixed(6))
		if has(t, d, mixed(6)) {
			t.Error("a block from nowhere")
		}
		dir.setHook(nil)
		time.Sleep(2 * probeEvery)
		state(t, d, StateOK)
		if infos, clean := d.Infos(); clean {
			t.Error("infos that were found late are clean")
		} else {
			for range infos {
				t.Error("infos that were found late")
			}
		}
		put(t, d, mixed(6))
		flush(t, d)
		if !has(t, d, mixed(6)) {
			t.Error("a block is not there")
		}
	})
}

// Only what somebody has to change refuses the start. Everything else that a filesystem answers is trouble.
func TestErrorsAtStart(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	d.PutInfo("a", nil)
	flush(t, d)
	closeTier(t, d)
	for e := unix.Errno(1); e < 134; e++ {
		if e == unix.ENOENT {
			continue // what is not there yet is made
		}
		refused := slices.Contains([]error{unix.EACCES, unix.EPERM, unix.ENOTDIR, unix.EINVAL, unix.ENAMETOOLONG}, error(e))
		for _, op := range []string{"lock", "list", "open", "read", "rename create remove open"} {
			dir.setHook(func(o, _ string) error {
				if strings.Contains(op, o) {
					return &os.PathError{Op: o, Err: e}
				}
				return nil
			})
			d, err := open(small(Config{}), dir)
			if errors.Is(err, e) != refused || err != nil && !refused {
				t.Errorf("%s fails with %v: Open: %v", op, error(e), err)
			}
			if err == nil {
				state(t, d, StateOut)
				closeTier(t, d)
			}
		}
	}
}

// The filesystem fills up by others: regions are given back until the reserve is free, and when there is none left the
// tier keeps nothing; when there is room again it does.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newMemDir()
		dir.room = 80 << 20
		d := openTier(t, Config{Reserve: 10 << 20}, dir)
		others := func(n int64) {
			dir.mu.Lock()
			dir.others = n
			dir.mu.Unlock()
		}
		fill := func(from int) {
			for i := range 300 {
				put(t, d, mixed(from+i))
				flush(t, d)
				if free, _ := dir.free(); free < d.config.Reserve && dir.others < 60<<20 {
					t.Fatalf("%d bytes are free", free)
				}
			}
		}
		fill(0)
		if got := d.Stats().Regions; got < 14 {
			t.Errorf("%d regions", got)
		}
		others(30 << 20)
		for range 20 {
			time.Sleep(probeEvery)
		}
		if free, _ := dir.free(); free < d.config.Reserve {
			t.Errorf("%d bytes are free", free)
		}
		state(t, d, StateOK)
		fill(1000)
		others(75 << 20)
		for range 20 {
			time.Sleep(probeEvery)
			put(t, d, mixed(5000))
		}
		fill(2000)
		state(t, d, StateReadOnly)
		if got := d.Stats().Regions; got > 1 {
			t.Errorf("%d regions are kept", got)
		}
		others(0)
		time.Sleep(2 * probeEvery)
		state(t, d, StateOK)
		fill(3000)
	})
}

// A filesystem that is full though its free space says otherwise, as one out of inodes or under a quota.
func TestNoSpaceLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newMemDir()
		d := openTier(t, Config{}, dir)
		files := 0
		dir.setHook(func(op, name string) error {
			if op == "create" && len(regionFiles(dir)) >= 6 {
				files = max(files, len(regionFiles(dir)))
				return unix.ENOSPC
			}
			return nil
		})
		for i := range 300 {
			put(t, d, mixed(i))
			flush(t, d)
			if !d.Contains(mixed(i)) {
				t.Fatalf("block %d is not kept", i)
			}
		}
		if files != 6 {
			t.Errorf("%d files", files)
		}
		state(t, d, StateOK)
	})
}

// Close ends when its context does, though the disk hangs, and lets go of everything when the disk answers.
func TestCloseStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, slots := newMemDir(), new(blockstoretest.Heap)
		d := openTier(t, Config{Slots: slots}, dir)
		put(t, d, mixed(6))
		flush(t, d)
		release := make(chan struct{})
		dir.setHook(func(string, string) error {
			<-release
			return nil
		})
		b := block(t, mixed(5))
		d.Put(b)
		synctest.Wait()
		c := block(t, mixed(4))
		d.Put(c)
		ctx, cancel := timeout(t, time.Second)
		defer cancel()
		if err := d.Close(ctx); !errors.Is(err, ctx.Err()) {
			t.Errorf("Close: %v", err)
		}
		if d.Get(mixed(6)) != nil || d.Contains(mixed(6)) {
			t.Error("a closed tier answers")
		}
		close(release)
		synctest.Wait()
		if b.Refs() != 1 || c.Refs() != 1 || dir.locked() {
			t.Errorf("%d and %d references are left", b.Refs(), c.Refs())
		}
		if count(d.metrics.drops, dropClose) != 1 {
			t.Error("the block in the queue was written")
		}
	})
}
