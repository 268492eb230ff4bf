package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
)

func TestInspect(t *testing.T) {
	path := t.TempDir()
	d, err := Open(small(Config{Dir: path, Origin: "https://s3.example"}))
	if err != nil {
		t.Fatal(err)
	}
	var bytes [2]int64
	for i := range 60 {
		v := *mixed(i).Version
		if v.Bucket = "a"; i%3 == 0 {
			v.Bucket = "b"
		}
		k := blockstore.Key{Version: blockstore.NewVersion(v)}
		put(t, d, k)
		if i%3 == 0 {
			bytes[1] += k.Len()
		} else {
			bytes[0] += k.Len()
		}
	}
	flush(t, d)
	report := func(f func(context.Context, string, func(int64, int64)) (*Report, error)) *Report {
		t.Helper()
		var last, total int64
		r, err := f(t.Context(), path, func(done, all int64) {
			if done < last || done > all {
				t.Errorf("progress %d of %d after %d", done, all, last)
			}
			last, total = done, all
		})
		if err != nil {
			t.Fatal(err)
		}
		if last == 0 || last != total {
			t.Errorf("progress ends at %d of %d", last, total)
		}
		return r
	}
	running := report(Inspect)
	if last := running.Regions[len(running.Regions)-1]; last.Finished || last.Blocks == 0 {
		t.Errorf("the region that is written: %+v", last)
	}
	closeTier(t, d)
	for _, r := range []*Report{report(Inspect), report(Verify)} {
		if r.Origin != "https://s3.example" || len(r.Buckets) != 2 || len(r.Regions) < 3 {
			t.Fatalf("%+v", r)
		}
		for i, b := range r.Buckets {
			if want := (BucketReport{[]string{"a", "b"}[i], []int64{40, 20}[i], bytes[i]}); b != want {
				t.Errorf("%+v, want %+v", b, want)
			}
		}
		n := int64(0)
		for _, g := range r.Regions {
			if g.Err != nil || !g.Finished || g.Damaged > 0 || g.Live+g.Dead != g.Size || g.Dead < 0 {
				t.Errorf("%+v", g)
			}
			n += g.Blocks
		}
		if n != 60 {
			t.Errorf("%d blocks", n)
		}
	}
	// Damage in a payload is Verify's to find, one in a header is seen by both.
	file := filepath.Join(path, regionName(0))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[pageSize+3*pageSize+2] ^= 1
	at := strings.Index(string(data), "mixed 5")
	data[at] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := report(Inspect).Regions[0]; r.Damaged != 1 {
		t.Errorf("%+v", r)
	}
	if r := report(Verify).Regions[0]; r.Damaged != 2 {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := report(Verify).Regions[0]; !errors.Is(r.Err, errDamaged) {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := Verify(ctx, path, nil); !errors.Is(err, stop) {
		t.Errorf("Verify: %v", err)
	}
	if _, err := Inspect(t.Context(), t.TempDir(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Inspect of another directory: %v", err)
	}
}
