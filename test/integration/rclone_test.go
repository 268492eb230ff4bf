//go:build integration

package integration

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A folder goes to the bucket and comes back; then what changed of it goes, and comes back.
func TestRcloneSync(t *testing.T) {
	p, _ := matrixPair(t, sharedPair(t).origin, "http")
	bucket := p.bucket(t)
	c := newRclone(t, seat{url: p.node.URL(), bucket: bucket}).(*rclone)
	must := func(args ...string) {
		t.Helper()
		if _, err := c.run(args...); err != nil {
			t.Fatal(err)
		}
	}
	here := t.TempDir()
	files := map[string][]byte{"empty": nil, "a/in parts": random(51, 12<<20+3), "ü/+plus": random(52, 2<<20), "gone": {1}}
	for i := range 20 {
		files[fmt.Sprintf("a/b/%02d", i)] = random(uint64(60+i), 1000*i)
	}
	write := func(name string) {
		t.Helper()
		path := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, files[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name := range files {
		write(name)
	}
	// What the origin has, and what comes back through the node: once more than once, so that it comes from blocks too.
	compare := func() {
		t.Helper()
		same := func(where string, got map[string][]byte) {
			t.Helper()
			if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(files)); !slices.Equal(g, w) {
				t.Fatalf("%s: files %q, want %q", where, g, w)
			}
			for name, want := range files {
				if sum(got[name]) != sum(want) {
					t.Errorf("%s: %s has %d bytes that are not its %d", where, name, len(got[name]), len(want))
				}
			}
		}
		same("origin", p.tree(t, bucket))
		for range 2 {
			back := t.TempDir()
			must("sync", c.remote(""), back)
			same("back", readTree(t, back))
		}
	}
	must("sync", here, c.remote(""))
	compare()

	files["a/b/07"], files["ü/+plus"] = random(81, 7000), random(82, 2<<20) // as long as they were
	write("a/b/07")
	write("ü/+plus")
	delete(files, "gone")
	if err := os.Remove(filepath.Join(here, "gone")); err != nil {
		t.Fatal(err)
	}
	// Of another time but of the same bytes: rclone copies the object onto itself, to change its metadata.
	touched := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(here, "a/b/09"), touched, touched); err != nil {
		t.Fatal(err)
	}
	must("sync", here, c.remote(""))
	compare()
	must("check", here, c.remote(""))
	back := t.TempDir()
	must("sync", c.remote(""), back)
	info, err := os.Stat(filepath.Join(back, "a/b/09"))
	if err != nil {
		t.Fatal(err)
	}
	if !info.ModTime().Equal(touched) {
		t.Errorf("the time of a touched file is %v, want %v", info.ModTime(), touched)
	}
}

// tree is all that a bucket at the origin holds.
func (p *pair) tree(t *testing.T, bucket string) map[string][]byte {
	t.Helper()
	m := make(map[string][]byte)
	page, err := p.direct().ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page.Contents {
		if m[*o.Key], _, err = read(t.Context(), p.direct(), bucket, *o.Key, ""); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// readTree is all files below a folder.
func readTree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	m := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
