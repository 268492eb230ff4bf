package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// file returns a file with the configuration of the gateway.
func (tc *testCluster) file(t *testing.T) string {
	t.Helper()
	text := fmt.Sprintf("[origin]\nendpoint = %q\ncredentials = { source = \"static\", access_key = \"AKIAORIGIN\", "+
		"secret_key = \"s3cr3t-of-origin\" }\n[cluster]\nblock_size = \"64 KiB\"\nhedge = false\n", tc.config.Origin.Endpoint)
	for _, n := range tc.config.Cluster.Nodes {
		text += fmt.Sprintf("[[cluster.nodes]]\nid = %q\naddr = %q\n", n.ID, n.Addr)
	}
	return writeFile(t, "gateway.toml", text)
}

func TestOwners(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	tc.store.PutGenerated("bucket", "dir/k", 20<<16-1, 1)
	file := tc.file(t)
	code, out, errOut := runFor(t.Context(), "owners", "s3://bucket/dir/k", "--config", file, "--add", "node-9")
	if code != exitOK || errOut != "" {
		t.Fatalf("%d %s\n%s", code, errOut, out)
	}
	rows := regexp.MustCompile(`(?m)^\d+ +\d+-\d+ +node-\d +node-\d node-\d$`).FindAllString(out, -1)
	if len(rows) != 20 || !strings.Contains(rows[19], "1245184-1310718") ||
		!strings.Contains(out, tc.cluster.Snapshot().Digest()) {
		t.Errorf("%d units\n%s", len(rows), out)
	}
	if !regexp.MustCompile(`(?m)^ 2[45]\.\d\d%  of all units$`).MatchString(out) {
		t.Errorf("a fourth node takes other than a quarter:\n%s", out)
	}

	// What it says is so.
	c := httpClient(t)
	get(t, c, tc.s3.url()+"/bucket/dir/k")
	for i, n := range tc.nodes {
		owned := len(regexp.MustCompile(fmt.Sprintf(`(?m)^\d+ +\S+ +node-%d `, i)).FindAllString(out, -1))
		if held := int(metric(t, n.registry, "ashlar_memory_blocks")); held != owned {
			t.Errorf("node-%d holds %d blocks, is said to own %d", i, held, owned)
		}
	}

	code, out, _ = runFor(t.Context(), "owners", "s3://bucket/none", "--config", file, "--range", "65536-131072",
		"--remove", "node-1")
	if code != exitOK || strings.Count(out, "\n1  ") != 1 || strings.Count(out, "\n2  ") != 1 ||
		!regexp.MustCompile(`(?m)^ 3[23]\.\d\d%  of all units$`).MatchString(out) {
		t.Errorf("%d\n%s", code, out)
	}
	for _, args := range [][]string{{"--remove", "node-7"}, {"--add", "node-1"},
		{"--remove", "node-0", "--remove", "node-1", "--remove", "node-2"}} {
		code, _, errOut := runFor(t.Context(), append([]string{"owners", "s3://bucket/dir/k", "--config", file}, args...)...)
		if code != exitBadInput || !strings.Contains(errOut, args[0]) {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	if code, _, errOut = runFor(t.Context(), "owners", "s3://bucket/none", "--config", file); code != exitFailed {
		t.Errorf("of an object that is not there: %d %s", code, errOut)
	}
}

func TestWarm(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	file, blocks := tc.file(t), 0
	for i := range 30 {
		tc.store.PutGenerated("bucket", fmt.Sprintf("some/odd +&%%key %d", i), int64(i)<<16, 1)
		blocks += i
	}
	tc.store.PutGenerated("bucket", "other", 1<<20, 1)
	code, out, errOut := runFor(t.Context(), "warm", "s3://bucket/some/", "--config", file)
	if code != exitOK || errOut != "" || !strings.HasPrefix(out, "30 objects, 27.2 MiB") {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	eventually(t, fmt.Sprintf("nodes hold %d blocks", blocks), func() bool { // but for those on their way to the main part
		_, sum := tc.blocks(t)
		return sum == blocks
	})
	// Requests count when they come; bytes only when the last has left, which may be after the node has them.
	asked := tc.store.Counters().Objects["bucket/some/odd +&%key 29"].Gets
	if code, body := get(t, httpClient(t), tc.s3.url()+"/bucket/some/odd%20%2B%26%25key%2029"); code != 200 ||
		len(body) != 29<<16 {
		t.Errorf("%d, %d bytes", code, len(body))
	}
	if now := tc.store.Counters().Objects["bucket/some/odd +&%key 29"].Gets; now != asked {
		t.Errorf("the origin was asked %d times for a warm object", now-asked)
	}
	if code, _, errOut = runFor(t.Context(), "warm", "s3://none/", "--config", file); code != exitFailed {
		t.Errorf("of a bucket that is not there: %d %s", code, errOut)
	}
}

// TestWarmGoesOn: a run that was ended goes on where it was, and what fails does not keep the others.
func TestWarmGoesOn(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	file, state := tc.file(t), filepath.Join(t.TempDir(), "state")
	for i := range 40 {
		tc.store.PutGenerated("bucket", fmt.Sprintf("k%02d", i), 1000, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	begun := map[string]bool{} // of those that are waited with; guarded by mu
	tc.store.Fault(func(r *http.Request) *devs3.Fault {
		if r.URL.Path < "/bucket/k20" {
			return nil
		}
		mu.Lock()
		if begun[r.URL.Path] = true; len(begun) == warmObjects { // no room is left for one before them
			cancel()
		}
		mu.Unlock()
		<-ctx.Done()
		return nil
	})
	args := []string{"warm", "s3://bucket/", "--config", file, "--state", state}
	code, _, errOut := runFor(ctx, args...)
	data, err := os.ReadFile(state)
	if code != exitFailed || err != nil || !strings.Contains(string(data), `"after":"k19"`) {
		t.Fatalf("%d %s; noted %s %v", code, errOut, data, err)
	}
	tc.store.Fault(func(r *http.Request) *devs3.Fault {
		if strings.HasSuffix(r.URL.Path, "k35") {
			return &devs3.Fault{Status: 403}
		}
		return nil
	})
	tc.store.ResetCounters()
	code, _, errOut = runFor(t.Context(), args...)
	if code != exitFailed || !strings.Contains(errOut, "s3://bucket/k35: ") ||
		!strings.Contains(errOut, "1 object could not be fetched, 19 objects could") {
		t.Errorf("%d %s", code, errOut)
	}
	asked := tc.store.Counters().Objects
	if asked["bucket/k19"].Gets+asked["bucket/k19"].Heads != 0 || asked["bucket/k39"].Gets == 0 {
		t.Errorf("asked for %+v", asked)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state is left: %v", err)
	}
	if err := os.WriteFile(state, data, 0o600); err != nil {
		t.Fatal(err)
	}
	args[1] = "s3://bucket/other"
	if code, _, errOut = runFor(t.Context(), args...); code != exitBadInput {
		t.Errorf("the state of another run: %d %s", code, errOut)
	}
}

// A listing that is refused is told by the origin's code and message, not as the document they came in.
func TestWarmRefused(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	code, _, errOut := runFor(t.Context(), "warm", "s3://nowhere", "--config", tc.file(t))
	const want = "the origin refused the listing of s3://nowhere: NoSuchBucket: "
	if code != exitFailed || !strings.Contains(errOut, want) || strings.Contains(errOut, "<") {
		t.Errorf("%d\n%s\nwant %s", code, errOut, want)
	}
}

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := pacer{rate: 1000}, time.Now()
		for range 11 {
			if err := p.wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("5000 bytes went by in %v", took)
		}
	})
}
