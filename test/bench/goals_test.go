package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// rowOf is the line of a Markdown page that begins with these cells.
func rowOf(t *testing.T, page string, cells ...string) string {
	t.Helper()
	begin := "| " + strings.Join(cells, " | ") + " |"
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, begin) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no line begins with %q in\n%s", begin, page)
	return ""
}

func goalsOf(r *report) string {
	var b bytes.Buffer
	r.markdownGoals(&b)
	return b.String()
}

func TestGoals(t *testing.T) {
	cold := runs(w4Whole, "ashlar", "s", 0.5, 0.5, 0.5)
	for i := range cold {
		cold[i].OriginGETs, cold[i].OriginBytes = int64(32+i), coldSize
	}
	disk := runs("W2", "ashlar-disk", "MB/s", 70, 70, 70)
	for i := range disk {
		disk[i].CPU = 1.9
	}
	r := peers(
		runs("W1", "ashlar", "req/s", 74, 75, 76), runs("W1", "nginx-slice", "req/s", 100, 100, 100),
		runs("W1", "varnish", "req/s", 100, 100, 100),
		runs("W2", "ashlar", "MB/s", 106, 116, 116), runs("W2", "nginx-slice", "MB/s", 100, 100, 100),
		runs("W2", "nginx-static", "MB/s", 105, 105, 105), disk, cold, runs(w4Whole, "origin", "s", 0.4, 0.4, 0.4),
	)
	for i := range r.Runs {
		r.Runs[i].Dropped = r.Runs[i].Contestant == "varnish"
	}
	r.Routing = slices.Concat(
		runs("nodes, "+ownerEqual, "16", unitNS, 51, 52, 49), runs("nodes, "+ownerWeighted, "16", unitNS, 90),
	)
	r.Routing[3].Allocs = 1
	page := goalsOf(r)
	for _, tt := range [][]string{
		// A median on the bound reaches it.
		{"W1 signed, requests/s", "nginx-slice", "≥ 0.75", "0.75 (0.74–0.76)", "yes"},
		{"W1 signed, requests/s", "varnish", "≥ 0.95", "0.75 (0.74–0.76)\\*", "**no**"},
		{"W2 signed, MB/s", "nginx-slice", "≥ 1.05 (1.15)", "1.16 (1.06–1.16)", "yes, and the better one"},
		{"W2 signed, MB/s", "nginx-static", "≥ 0.95 (1.10)", "1.10 (1.01–1.10)", "yes, and the better one"},
		{"W2 signed, MB/s", "varnish", "≥ 0.95 (1.05)", "–", "not measured"},
		{"W4 whole GET, seconds", "origin", "≤ 1.50 (1.15)", "1.25", "yes"},
		{"W4 whole GET, origin requests", "", "≤ 32", "33 (32–34)", "**no**"},
		{"W4 whole GET, bytes fetched for each of the object", "", "≤ 1", "1", "yes"},
		{"from disk: W2 signed, MB/s", "nginx-slice", "≥ 0.80", "0.70", "**no**"},
		{"from disk: W2 signed, CPU time", "nginx-static", "≤ 1.80", "1.90", "**no**"},
		{"routing, 16 nodes, owner, equal weights", "", "≤ 50 ns", "51 ns (49–52)", "**no**"},
		{"routing, 16 nodes, owner, equal weights, allocations", "", "≤ 0", "0", "yes"},
		{"routing, 16 nodes, owner, weighted", "", "≤ 250 ns", "90 ns", "yes"},
		{"routing, 16 nodes, owner, weighted, allocations", "", "≤ 0", "1", "**no**"},
	} {
		if got, want := rowOf(t, page, tt[:2]...), "| "+strings.Join(tt, " | ")+" |"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := r.reached(); !strings.HasPrefix(got, "7 of 13 goals") ||
		!strings.Contains(got, "W4 whole GET, origin requests: 33 (≤ 32)") || strings.Contains(got, "nginx-slice: 0.75") {
		t.Error(got)
	}
}

// Memory counts in every run, a dropped one too, and the greatest decides.
func TestMemoryGoal(t *testing.T) {
	r := peers(runs("W1", "ashlar", "req/s", 1, 1), runs("W3", "ashlar", "MB/s", 1, 1), runs("W1", "gateway", "req/s", 1),
		runs("W1", "nginx-slice", "req/s", 1))
	for i := range r.Runs {
		if r.Runs[i].Contestant != "nginx-slice" {
			r.Runs[i].Memory = 100 << 20
		}
		r.Runs[i].PeakRSS = 189 << 20
	}
	const what = "memory of ashlar at most, 100 MiB configured"
	if got := rowOf(t, goalsOf(r), what); !strings.HasSuffix(got, "| ≤ 189 MiB | 189 MiB | yes |") {
		t.Error(got)
	}
	r.Runs[2].PeakRSS++
	r.Runs[2].PeakRSS += 1 << 20
	r.Runs[2].Dropped = true
	if got := rowOf(t, goalsOf(r), what); !strings.HasSuffix(got, "| ≤ 189 MiB | 190 MiB | **no** |") {
		t.Error(got)
	}
	if page := goalsOf(r); strings.Contains(page, "memory of gateway") || strings.Contains(page, "memory of nginx") {
		t.Errorf("goals of memory that is not a node's:\n%s", page)
	}
}

func TestRouting(t *testing.T) {
	got, err := routingRuns(t.Context(), goalNodes, 1)
	if err != nil {
		t.Fatal(err)
	}
	allocs := make(map[string]float64)
	for _, x := range got {
		if x.Rate <= 0 || x.Contestant != "16" || x.Unit != unitNS {
			t.Errorf("%+v", x)
		}
		allocs[x.Workload] = x.Allocs
	}
	// Whatever else runs in this process may allocate a little.
	if len(got) != 4 || allocs["nodes, "+ownerEqual] > 0.01 || allocs["nodes, "+ownerWeighted] > 0.01 ||
		allocs["nodes, "+planUnits] < 1 {
		t.Errorf("%v", allocs)
	}
	for n, most := range map[int]float64{1: 1, 16: 1.1} {
		if got, err := fullest(n); err != nil || got < 1 || got > most {
			t.Errorf("the fullest of %d nodes has %v times the mean, %v", n, got, err)
		}
	}
}
