//go:build !poison

// Not in poison builds: every slot given back there splits a mapping while the kernel is listing them, and a mapping that
// is split or joined in the middle of the list is told twice.

package memory

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// What the kernel says is resident stays within the limit while memory moves between classes.
func TestResident(t *testing.T) {
	const limit = 256 << 20
	m := newTier(t, limit, 16<<20)
	before := residentOf(t, m.arena) // the system may show neighbours as one mapping
	if before < 0 {
		t.Skip("no /proc/self/smaps")
	}
	rss := func() int64 { return residentOf(t, m.arena) - before }
	page := os.Getpagesize()
	for phase, size := range []int64{1 << 20, 4 << 10, 64 << 10, 16 << 20, 100_000, 1 << 20, 700} {
		v := blockstoretest.Object(fmt.Sprint("resident", phase), 1<<50, size)
		n := limit * 3 / 2 / size
		if size < 4<<10 {
			n = limit / 8 / size
		}
		for i := range n {
			b, err := m.Alloc(t.Context(), size)
			if err != nil {
				t.Fatal(err)
			}
			for p := 0; p < len(b.Buf()); p += page {
				b.Buf()[p] = 1
			}
			b.Seal(blockstore.Key{Version: v, Index: i}, int(size))
			m.Put(b)
			b.Release()
			if i%(n/4) == 0 {
				if got := rss(); got > limit {
					t.Errorf("blocks of %d: %d bytes resident, limit %d; %+v", size, got, limit, m.Stats())
				}
			}
		}
		s := m.Stats()
		got := rss()
		t.Logf("blocks of %d: %d MiB resident, %d counted", size, got>>20, s.Resident>>20)
		if got > s.Resident {
			t.Errorf("blocks of %d: %d bytes resident, %d counted", size, got, s.Resident)
		}
	}
}

// residentOf returns the bytes of the arena's mapping that are in memory, or -1 where the system doesn't say.
func residentOf(t *testing.T, a *arena) int64 {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return -1
	}
	defer f.Close()
	all, err := io.ReadAll(f)
	if err != nil {
		return -1
	}
	total, inside := int64(0), false
	for line := range strings.Lines(string(all)) {
		fields := strings.Fields(line)
		if from, to, ok := strings.Cut(fields[0], "-"); ok && len(fields) > 1 {
			lo, err1 := strconv.ParseUint(from, 16, 64)
			hi, err2 := strconv.ParseUint(to, 16, 64)
			if err1 != nil || err2 != nil {
				t.Fatalf("smaps: %q", line)
			}
			inside = uintptr(lo) < a.base+a.size && uintptr(hi) > a.base
		}
		if inside && fields[0] == "Rss:" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatalf("smaps: %q", line)
			}
			total += n << 10
		}
	}
	return total
}
