package disk

import (
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// saved is what SaveInfos is given by process name.
func saved(name string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) { yield(name, nil) }
}

// left is what a tier of this directory finds: names, in order, and "clean" if they are.
func left(t *testing.T, c Config, dir fileSystem) string {
	t.Helper()
	d := openTier(t, c, dir)
	infos, clean := d.Infos()
	var found []string
	for name := range infos {
		found = append(found, name)
	}
	if clean {
		found = append(found, "clean")
	}
	closeTier(t, d)
	return strings.Join(found, " ")
}

// A process that could not take the directory over at its start discards what the one before it left clean before it
// works, durably, and never leaves anything clean itself. One that never could leaves everything as it is.
func TestInfosFoundLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, dir := t.Context(), newMemDir()
		begin := func() {
			t.Helper()
			d := openTier(t, Config{}, dir)
			if err := d.SaveInfos(ctx, saved("first")); err != nil {
				t.Fatal(err)
			}
			closeTier(t, d)
		}
		readOnly := func(op, _ string) error {
			if op != "read" && op != "list" && op != "free" {
				return unix.EROFS
			}
			return nil
		}
		begin()
		dir.setHook(readOnly)
		d := openTier(t, Config{}, dir)
		state(t, d, StateOut)
		dir.setHook(nil) // but it has not looked yet
		if err := d.SaveInfos(ctx, saved("second")); !errors.Is(err, errGone) {
			t.Errorf("SaveInfos in a directory that is not held: %v", err)
		}
		closeTier(t, d)
		if got := left(t, Config{}, dir); got != "first clean" {
			t.Errorf("a process that never worked left %q", got)
		}

		begin()
		dir.setHook(readOnly)
		d = openTier(t, Config{}, dir)
		dir.setHook(func(op, name string) error {
			if op == "sync" && name == "" {
				return unix.EIO
			}
			return nil
		})
		time.Sleep(2 * probeEvery)
		state(t, d, StateOut) // not before it is durable
		dir.setHook(nil)
		time.Sleep(2 * probeEvery)
		synctest.Wait()
		state(t, d, StateOK)
		for seed := range uint64(20) {
			if got := left(t, Config{}, dir.crashed(rand.New(rand.NewPCG(seed, 0)))); got != "" {
				t.Errorf("after a crash %q is left", got)
			}
		}
		d.PutInfo("third", nil)
		flush(t, d)
		if err := d.SaveInfos(ctx, saved("second")); err != nil {
			t.Error(err)
		}
		closeTier(t, d)
		if got := left(t, Config{}, dir); got != "second" {
			t.Errorf("a process that worked late left %q", got)
		}
	})
}

// A directory that takes the place of the tier's is the tier's own when it is empty, and else another process's.
func TestInfosOfReplacedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, dir := t.Context(), newMemDir()
		d := openTier(t, Config{}, dir)
		dir.vanish()
		time.Sleep(2 * probeEvery)
		if err := d.SaveInfos(ctx, saved("first")); err != nil {
			t.Error(err)
		}
		closeTier(t, d)
		files := maps.Clone(dir.files)
		if got := left(t, Config{}, dir); got != "first clean" {
			t.Errorf("from empty: %q", got)
		}

		d = openTier(t, Config{}, dir)
		dir.vanish()
		dir.mu.Lock()
		for name, f := range files {
			if name == formatName || strings.HasPrefix(name, infosName) {
				dir.put(name, f.data)
			}
		}
		dir.put(cleanInfosName, appendInfo(nil, "another", nil))
		dir.mu.Unlock()
		time.Sleep(2 * probeEvery)
		state(t, d, StateOK)
		if err := d.SaveInfos(ctx, saved("second")); err != nil {
			t.Error(err)
		}
		closeTier(t, d)
		if got := left(t, Config{}, dir); got != "second" {
			t.Errorf("over another process's: %q", got)
		}
	})
}

// Infos of one origin are gone before the directory is another one's, however the start ends.
func TestInfosOfAnotherOrigin(t *testing.T) {
	for _, fails := range []string{"list", "create", "rename", "remove", "sync"} {
		dir := newMemDir()
		d := openTier(t, Config{Origin: "here"}, dir)
		if err := d.SaveInfos(t.Context(), saved("first")); err != nil {
			t.Fatal(err)
		}
		closeTier(t, d)
		dir.setHook(func(op, _ string) error {
			if op == fails {
				return unix.EIO
			}
			return nil
		})
		closeTier(t, openTier(t, Config{Origin: "elsewhere"}, dir))
		dir.setHook(nil)
		if got := left(t, Config{Origin: "elsewhere"}, dir); got != "" {
			t.Errorf("%s failed, and %q is left", fails, got)
		}
	}
}

// A file that says it is longer than the tier writes it is damaged, whatever it begins with, and not read.
func TestNonsenseLengths(t *testing.T) {
	for _, name := range []string{infosName, oldInfosName, cleanInfosName, formatName} {
		for _, size := range []int64{2 << 20, 1 << 40} {
			path := t.TempDir()
			dir := &osDir{path: path}
			d := openTier(t, Config{}, dir)
			if err := d.SaveInfos(t.Context(), saved("a")); err != nil {
				t.Fatal(err)
			}
			closeTier(t, d)
			if name == infosName || name == oldInfosName {
				if err := os.WriteFile(filepath.Join(path, name), appendInfo(nil, "b", nil), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Truncate(filepath.Join(path, name), size); err != nil {
				t.Fatal(err)
			}
			if name == formatName {
				if _, err := open(small(Config{Dir: path, Recover: RecoverStrict}), dir); !errors.Is(err, errUnknown) {
					t.Errorf("strict: %v", err)
				}
			}
			if got := left(t, Config{}, dir); got != "" {
				t.Errorf("%s of %d bytes: %q is found", name, size, got)
			}
			if info, err := os.Stat(filepath.Join(path, name)); err == nil && info.Size() >= size {
				t.Errorf("%s of %d bytes is still there", name, size)
			}
		}
	}
}
