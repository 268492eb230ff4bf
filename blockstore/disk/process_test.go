package disk

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// childDir makes this test binary a process that fills a tier until it is killed.
const childDir = "TEST_DISK_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	verify(m)
}

// child puts blocks and says on its output when they are written; it never ends by itself, but for ten minutes.
func child(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	d, err := Open(small(Config{Dir: dir}))
	fail(err)
	heap := new(blockstoretest.Heap)
	for start, i := time.Now(), 0; time.Since(start) < 10*time.Minute; i++ {
		for j := range 5 {
			k := mixed((i*5 + j) % 300)
			b, err := heap.Alloc(context.Background(), k.Len())
			fail(err)
			blockstoretest.Fill(k, b.Buf())
			b.Seal(k, int(k.Len()))
			d.Put(b)
			d.PutInfo(k.String(), []byte(k.String()))
			b.Release()
		}
		fail(d.Flush(context.Background()))
		fmt.Println(i)
	}
}

// A process is killed with SIGKILL at random moments while it writes. What it said was written is there, and everything
// that is served is right. KILL_ROUNDS=200 for more.
func TestKill(t *testing.T) {
	n, rng := rounds(t, "KILL_ROUNDS", 3)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, served := filepath.Join(t.TempDir(), "cache"), 0
	for round := range n {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		batches, stop := 0, 1+rng.IntN(60)
		lines := bufio.NewScanner(out)
		for batches < stop && lines.Scan() {
			batches++
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond) // in the middle of a batch
		_ = cmd.Process.Kill()
		for lines.Scan() {
			batches++
		}
		_ = cmd.Wait()
		if batches < stop {
			t.Fatalf("the process ended by itself after %d batches", batches)
		}
		d, err := Open(small(Config{Dir: dir}))
		if err != nil {
			t.Fatal(err)
		}
		recovered(t, d)
		for i := range 300 {
			switch got := has(t, d, mixed(i)); {
			case got:
				served++
			case i < 5*batches && batches <= 40 && round%2 == 0: // it was empty, and all of it fits
				t.Errorf("round %d: block %d of %d is gone", round, i, 5*batches)
			}
		}
		infos, clean := d.Infos()
		for name, data := range infos {
			if name != string(data) || clean {
				t.Errorf("round %d: info %q is %q, clean %v", round, name, data, clean)
			}
		}
		closeTier(t, d)
		if round%2 == 1 {
			_ = os.RemoveAll(dir)
		}
	}
	t.Logf("%d blocks served after %d kills", served, n)
}

// sparse makes a directory of finished regions whose footers are real and whose blocks are holes.
func sparse(t testing.TB, dir string, total, region, length int64) (blocks int) {
	t.Helper()
	fs := &osDir{path: dir}
	if err := fs.lock(); err != nil {
		t.Fatal(err)
	}
	defer fs.unlock()
	id := dirID{1, 2, 3}
	if err := writeFile(fs, formatName, fmt.Appendf(nil, formatLine, formatVersion, id[:], "")); err != nil {
		t.Fatal(err)
	}
	v := blockstoretest.Object("sparse", 1<<60, length)
	var key []byte
	for seq := range uint32(total / region) {
		var entries []entry
		for end := int64(pageSize); ; blocks++ {
			k := blockstore.Key{Version: v, Index: int64(blocks)}
			key = appendKey(key[:0], k)
			rec := newRecord(k, key)
			if end+int64(rec.total())+footerLen(len(entries)+1) > region {
				break
			}
			entries = append(entries, entry{rec.hash, rec.check, uint32(end)})
			end += int64(rec.total())
		}
		f, err := os.Create(filepath.Join(dir, regionName(seq)))
		if err != nil {
			t.Fatal(err)
		}
		footer := encodeFooter(entries, seq, id, region)
		_, err = f.WriteAt(footer, region-int64(len(footer)))
		if err == nil {
			_, err = f.WriteAt(encodeHead(seq, id, region), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return blocks
}

// Regions with footers are recovered whole; how long it takes is printed. SPARSE_GIB=100 for more.
func TestSparse(t *testing.T) {
	gib := int64(1)
	if s := os.Getenv("SPARSE_GIB"); s != "" {
		gib, _ = strconv.ParseInt(s, 10, 64)
	}
	dir := t.TempDir()
	for _, length := range []int64{1 << 20, 32 << 10} {
		blocks := sparse(t, dir, gib<<30, 64<<20, length)
		start := time.Now()
		d := openTier(t, Config{Dir: dir, Capacity: 2*gib<<30 + 1<<30, RegionSize: 64 << 20}, &osDir{path: dir})
		opened := time.Since(start)
		recovered(t, d)
		t.Logf("%d GiB of blocks of %d bytes: open after %v, %d blocks after %v", gib, length,
			opened.Round(time.Millisecond), blocks, time.Since(start).Round(time.Millisecond))
		if got := d.Stats().Blocks; got != int64(blocks) {
			t.Errorf("%d blocks of %d", got, blocks)
		}
		v := blockstoretest.Object("sparse", 1<<60, length)
		for i := range blocks {
			if !d.Contains(blockstore.Key{Version: v, Index: int64(i)}) {
				t.Fatalf("block %d is not there", i)
			}
		}
		if b := d.Get(blockstore.Key{Version: v}); b != nil {
			t.Error("a hole was served")
		}
		closeTier(t, d)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
