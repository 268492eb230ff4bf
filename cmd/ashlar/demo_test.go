package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

func TestDemoCheck(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	code, out, errOut := runFor(t.Context(), "demo", "--check")
	if code != exitOK || errOut != "" {
		t.Fatalf("code %d, %s\n%s", code, errOut, out)
	}
	t.Log("\n" + out)
	lines := strings.Split(out, "\n")
	for _, name := range []string{"whole 64 MiB object", "4 KiB ranges", "small objects", "odd keys", "empty object"} {
		found := false
		for _, l := range lines {
			found = found || strings.HasPrefix(l, name) && strings.HasSuffix(l, " 0  100 %")
		}
		if !found {
			t.Errorf("no row for %s, or its second read was not free", name)
		}
	}
	// Cold: each 1 MiB block by its owner, once.
	if f := strings.Fields(lines[2]); len(f) < 10 || f[9] != "64" {
		t.Errorf("the whole object took other than 64 origin requests: %q", lines[2])
	}
	for _, row := range []string{`three nodes .* 0`, `node-2 is killed meanwhile .* [1-9]\d+`,
		`node-4 takes its place .* [1-9]\d+`} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(out) {
			t.Errorf("no row %q", row)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoCheckFindsWrongBytes spoils one byte of one small object, and the check must fail for it alone.
func TestDemoCheckFindsWrongBytes(t *testing.T) {
	d := startTestDemo(t, "127.0.0.1:0", "127.0.0.1:0")
	d.bucket = withoutLarge(d.bucket)
	victim := d.bucket[15]
	data := make([]byte, victim.size)
	devs3.Generate(data, 0, victim.seed)
	data[len(data)-1]++
	d.store.Put(demoBucket, victim.key, data)
	var out bytes.Buffer
	err := d.check(t.Context(), &out)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || // one workload
		!strings.Contains(err.Error(), victim.key) ||
		!strings.Contains(err.Error(), "wrong bytes") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestDemoCheckFindsMissingObject(t *testing.T) {
	d := startTestDemo(t, "127.0.0.1:0", "127.0.0.1:0")
	d.bucket = withoutLarge(d.bucket)
	if err := d.store.Delete(demoBucket, "empty"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := d.check(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestDemoPortsTaken: another port is taken and said so; a second demo can run beside the first.
func TestDemoPortsTaken(t *testing.T) {
	first := startTestDemo(t, "127.0.0.1:0", "127.0.0.1:0")
	s3, admin := first.node.s3.addr().String(), first.node.admin.addr().String()
	second := startTestDemo(t, s3, admin)
	if len(second.notes) != 2 || !strings.Contains(strings.Join(second.notes, " "), s3+" is in use") {
		t.Errorf("notes: %q", second.notes)
	}
	var out bytes.Buffer
	second.explain(&out)
	for _, part := range []string{"is in use by another process", "--endpoint-url " + second.node.s3.url(), demoSecretKey,
		second.node.admin.url() + "/metrics", "X-Amz-Signature=", "'END'\nimport boto3"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("lacks %q:\n%s", part, &out)
		}
	}
	if i := strings.Index(out.String(), "{"); strings.HasPrefix(out.String()[i:], "{KEY}") {
		t.Errorf("a placeholder is left:\n%s", &out)
	}
}

// TestDemoOrigin: the key that is printed opens the origin too, so that a node of one's own can be put in front of it.
func TestDemoOrigin(t *testing.T) {
	d := startTestDemo(t, "127.0.0.1:0", "127.0.0.1:0")
	url, err := presign(d.origin.url(), demoBucket, "empty")
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, httpClient(t), url); code != 200 || body != "" {
		t.Errorf("%d %s", code, body)
	}
}

// TestDemoStops: Ctrl-C is a success, and the ports are free afterwards.
func TestDemoStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out syncBuffer
	done := make(chan int)
	go func() {
		done <- run(ctx, []string{"demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, nil, &out, &out)
	}()
	eventually(t, "the demo runs", func() bool { return strings.Contains(out.String(), "Ctrl-C ends the demo") })
	cancel()
	if code := <-done; code != exitOK || !strings.HasSuffix(out.String(), "Stopped.\n") ||
		!strings.Contains(out.String(), os.Args[0]+" demo --check\n") { // as it was called: it may not be in the PATH
		t.Errorf("code %d\n%s", code, out.String())
	}
	endpoints := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`).FindAllStringSubmatch(out.String(), -1)
	if len(endpoints) < 6 { // of gateway, nodes, origin and metrics
		t.Errorf("%q", endpoints)
	}
	for _, e := range endpoints {
		refuses(t, e[1])
	}
}

// withoutLarge leaves out what takes long to read.
func withoutLarge(bucket []sample) []sample {
	return slices.DeleteFunc(bucket, func(s sample) bool { return s.size > 1<<20 })
}

func startTestDemo(t *testing.T, listen, admin string) *demo {
	t.Helper()
	d, err := startDemo(t.Context(), listen, admin, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stop)
	return d
}
