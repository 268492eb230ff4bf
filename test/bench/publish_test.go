package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPublish(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	place := func(kind string) string { return string(begins(kind)) + "old\n" + string(ends(kind)) }
	write(readme, "before\n"+place(kindPeers)+"after\n")
	write(performancePage, "before\n"+place(kindPeers)+"between\n"+place(kindSeries)+"after\n")

	r := peers(runs("W1", "ashlar", "req/s", 100, 101, 102), runs("W1", "ashlar-disk", "req/s", 10, 10, 10),
		runs("W1", "nginx-slice", "req/s", 50, 50, 50), runs("W1", "varnish", "req/s", 100, 100, 100))
	for i := range r.Runs {
		r.Runs[i].Dropped = r.Runs[i].Contestant == "varnish"
	}
	if err := r.publish(root); err != nil {
		t.Fatal(err)
	}
	front, page := read(readme), read(performancePage)
	for _, tt := range []struct{ page, want string }{
		{front, "before\n"}, {front, "after\n"}, {front, "| W1 requests/s | 2.02 (1.00) | – | 1.01 (1.00)\\* |"},
		{front, "don't trust these figures"}, {front, "2 of 2 goals"},
		{page, "| ashlar-disk | 10 |"}, {page, "between\n" + place(kindSeries) + "after\n"},
		{page, "| W1 signed, requests/s | nginx-slice | ≥ 0.75 | 2.02 (2.00–2.04) | yes |"},
	} {
		if !strings.Contains(tt.page, tt.want) {
			t.Errorf("no %q in\n%s", tt.want, tt.page)
		}
	}
	if strings.Contains(front, "old") || strings.Count(page, "old") != 1 {
		t.Errorf("old figures in\n%s\n%s", front, page)
	}
	if short, all := read("docs/bench.svg"), read("docs/bench-all.svg"); strings.Contains(short, "ashlar-disk") ||
		!strings.Contains(all, "ashlar-disk") || !strings.Contains(short, "nginx-slice") {
		t.Errorf("charts:\n%s\n%s", short, all)
	}

	// What was measured can be put there again, and that changes nothing.
	back, err := readReport(filepath.Join(root, "docs/bench.json"))
	if err != nil || len(back.Runs) != len(r.Runs) {
		t.Fatalf("%+v, %v", back, err)
	}
	if err := back.publish(root); err != nil {
		t.Fatal(err)
	}
	if read(readme) != front || read(performancePage) != page {
		t.Errorf("published twice:\n%s\n%s", read(readme), read(performancePage))
	}

	for name, o := range map[string]options{
		"quick": {Quick: true}, "some workloads": {Only: "W1"}, "some contestants": {Contestants: "ashlar"},
	} {
		part := *r
		part.Options = o
		if err := part.publish(root); err == nil {
			t.Errorf("%s: a part was published", name)
		}
	}
	write(readme, "no place\n")
	if err := r.publish(root); err == nil || read(readme) != "no place\n" || read(performancePage) != page {
		t.Errorf("published without a place: %v", err)
	}
}

func TestParseTop(t *testing.T) {
	got, err := parseTop([]byte(`File: ashlar
Showing nodes accounting for 2.60s, 96.30% of 2.70s total
      flat  flat%   sum%        cum   cum%
     1.20s 44.40% 44.40%      1.30s 48.15%  internal/runtime/syscall.Syscall6 (inline)
     0.50s 18.50% 62.90%      0.60s 22.20%  github.com/ashlar-s3/ashlar/s3api.(*Handler).ServeHTTP
    -0.10s  3.70% 66.60%      0.10s  3.70%  slices.Index[go.shape.[]string, go.shape.string]
         0     0% 66.60%      2.00s 74.07%  net/http.(*conn).serve
`))
	want := []function{
		{"internal/runtime/syscall.Syscall6", 44.4, 48.15},
		{"github.com/ashlar-s3/ashlar/s3api.(*Handler).ServeHTTP", 18.5, 22.2},
		{"slices.Index[go.shape.[]string, go.shape.string]", 3.7, 3.7}, {"net/http.(*conn).serve", 0, 74.07},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if first := firstOf(got); len(first) != 3 {
		t.Errorf("shown: %v", first)
	}
	const head = "      flat  flat%   sum%        cum   cum%\n"
	for _, text := range []string{"", "no table\n", head + "1s 2% 3%\n", head + "1s x% 3% 1s 2% f\n"} {
		if got, err := parseTop([]byte(text)); err == nil {
			t.Errorf("%q gives %v", text, got)
		}
	}
}

func TestByPackage(t *testing.T) {
	for name, want := range map[string]string{
		"runtime.mallocgc": "runtime", "net/http.(*conn).serve": "net/http", "aeshashbody": "aeshashbody",
		"github.com/dgraph-io/ristretto/v2.(*lockedMap[go.shape.*uint8]).Set": "github.com/dgraph-io/ristretto/v2",
		"slices.Index[go.shape.[]a/b.T]":                                      "slices",
	} {
		if got := packageOf(name); got != want {
			t.Errorf("%s is of %q", name, got)
		}
	}
	got := byPackage([]function{{"a.f", 1, 0}, {"b/c.f", 2, 0}, {"a.g", 2.5, 0}})
	if want := []function{{"a", 3.5, 0}, {"b/c", 2, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestMarkdownProfiles(t *testing.T) {
	many := make([]function, topCount)
	for i := range many {
		many[i] = function{fmt.Sprintf("a.f%d", i), 10, 10}
	}
	r := &report{Kind: kindProfile, Profiles: []profile{{
		Workload: "W1", CPU: many, Allocs: []function{{"github.com/ashlar-s3/ashlar/s3api.f", 3, 4}},
		Packages: []function{{"a", 98, 0}, {"b", 1.9, 0}}, Objects: 12.34,
	}}}
	page := string(r.markdown())
	for _, w := range []string{
		"| `a.f0` | 10.0 | 10.0 | `s3api.f` | 3.0 | 4.0 |", "| `a.f9` | 10.0 | 10.0 | – |  |  |",
		"CPU time by package: `a` 98%. 12.3 objects are allocated for each request.",
	} {
		if !strings.Contains(page, w) {
			t.Errorf("no %q in\n%s", w, page)
		}
	}
}
