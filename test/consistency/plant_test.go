//go:build integration

package consistency

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plant is a fault to be built into a node: in files of the main module, pieces of text give way to others. The files
// themselves stay as they are.
type plant struct {
	name  string
	edits []edit
}

// edit replaces a text that the file has once. Where it is not there any more because the code has changed, the same
// fault is to be planted in what took its place.
type edit struct{ file, old, new string }

var plants = []plant{
	{"invalidation later than the answer", []edit{
		{"s3api/forward.go", "x.h.gateway.Invalidate(o)",
			"time.AfterFunc(20*time.Millisecond, func() { x.h.gateway.Invalidate(o) })"},
	}},
	// What was written is served as it was sent, whatever else was written meanwhile.
	{"of overlapping PUTs, the one answered last is taken for what is there", []edit{
		{"s3api/forward.go", `blocks.Commit(answer.Header.Get("Etag"))`,
			`blocks.Commit(answer.Header.Get("Etag") + r.Header.Get("X-Amz-Meta-Version"))`},
		{"gateway/insert.go", "forgetIf(p.object, p.gen)", "forget(p.object), true"},
		{"gateway/insert.go", "&origin.Info{Size: p.size, ETag: etag}", `&origin.Info{Size: p.size, ETag: etag[:34],
			Confirmed: time.Now(), Received: time.Now(), ChecksumsKnown: true,
			Headers: []origin.Header{{Name: "X-Amz-Meta-Version", Value: etag[34:]}}}`},
	}},
	{"a probe older than a write is remembered", []edit{
		{"gateway/info.go", "if c.gens.of(o) != gen || asked && sent.Before(c.gens.lastTold(o)) {", "if false {"},
	}},
	{"keys of DeleteObjects are not forgotten", []edit{
		{"s3api/forward.go", "changed, err = x.listed(body)", "_, err = x.listed(body)"},
	}},
	{"blocks of whatever version is there", []edit{
		{"gateway/flight.go", "IfMatch: f.known.pin()", `IfMatch: ""`},
		{"gateway/flight.go", "case resp.Info.ETag != pinned.ETag:", "case false:"},
		{"gateway/flight.go", "case resp.Info.Size != pinned.Size:", "case false:"},
	}},
}

// build builds a node with the fault.
func (p *plant) build(t *testing.T) (binary string) {
	t.Helper()
	faulty := make(map[string]string) // contents, by path
	for _, e := range p.edits {
		path := filepath.Join(root(t), e.file)
		if _, begun := faulty[path]; !begun {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			faulty[path] = string(source)
		}
		if n := strings.Count(faulty[path], e.old); n != 1 {
			t.Fatalf("%s has %d times %q: plant the fault elsewhere", e.file, n, e.old)
		}
		faulty[path] = strings.Replace(faulty[path], e.old, e.new, 1)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := make(map[string]string)
	for path, source := range faulty {
		replace[path] = write(filepath.Base(path), []byte(source))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "ashlar")
	build := exec.Command("go", "build", "-trimpath", "-overlay", write("overlay.json", overlay), "-o", binary, "./cmd/ashlar")
	build.Dir = root(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// enoughToFind is how many reads and writes of a load without a finding say that there is none to be had.
const enoughToFind = 100_000

// TestPlantedFaults runs the load against nodes with faults until it finds them.
func TestPlantedFaults(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			o := newOrigin(t)
			to := newNode(t, p.build(t), o.url, narrow)
			l := full(t, to)
			o.unsteady(l.Seed, 0)
			l.Duration, l.Origin = time.Second, o.target()
			// Rounds by what was done in them, since a slow machine does less in a second.
			round, done, deadline := 0, 0, time.Now().Add(8*time.Minute)
			for ; round < 60 || done < enoughToFind && time.Now().Before(deadline); round++ {
				l.Bucket = fmt.Sprintf("round-%d", round) // no object is there at the beginning
				l.Origin.Bucket = l.Bucket
				l.Seed++
				if err := o.CreateBucket(l.Bucket); err != nil {
					t.Fatal(err)
				}
				result, err := l.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				done += result.Reads + result.Writes
				if found := Check(result.History); len(found) > 0 {
					t.Logf("%d found in round %d, such as: %v", len(found), round, found[0])
					return
				}
			}
			t.Errorf("not found in %d rounds, %d reads and writes", round, done)
		})
	}
}
