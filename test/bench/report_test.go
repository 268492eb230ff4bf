package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// runs makes the runs of a contestant, one for each round, whose rates are given.
func runs(workload, contestant, unit string, rates ...float64) []result {
	all := make([]result, len(rates))
	for i, r := range rates {
		all[i] = result{
			Workload: workload, Contestant: contestant, Unit: unit, Round: i, Rate: r, CPU: 1, P99ms: 2, PeakRSS: 3 << 20,
		}
	}
	return all
}

func peers(runs ...[]result) *report {
	return &report{Kind: kindPeers, Command: "make bench", Machine: "a <machine>", Runs: slices.Concat(runs...)}
}

func TestAttemptRepeatsDisturbedRuns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		foreign []float64 // of each attempt
		runs    int
		dropped int
	}{
		{"undisturbed", []float64{0.1}, 1, 0},
		{"once disturbed", []float64{0.11, 0}, 2, 1},
		{"always disturbed", []float64{1, 2, 0.5}, 3, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &report{}
			o := options{Foreign: 0.1, Attempts: 3}
			err := r.attempt(t.Context(), o, func(attempt int) (result, error) {
				return result{Workload: "W1", Contestant: "x", Rate: float64(attempt), Foreign: tt.foreign[attempt-1]}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			dropped := 0
			for _, run := range r.Runs {
				if run.Dropped {
					dropped++
				}
			}
			if len(r.Runs) != tt.runs || dropped != tt.dropped {
				t.Errorf("%d runs, %d dropped, want %d and %d", len(r.Runs), dropped, tt.runs, tt.dropped)
			}
			counted, disturbed := r.counted("W1", "x")
			if len(counted) != 1 || counted[0].Rate != float64(tt.runs) || disturbed != (tt.dropped == tt.runs) {
				t.Errorf("counted %+v, disturbed %v", counted, disturbed)
			}
		})
	}
}

func TestAttemptStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := (&report{}).attempt(ctx, options{Attempts: 1}, func(int) (result, error) {
		t.Error("a run after the end")
		return result{}, nil
	})
	if err == nil {
		t.Error("no error")
	}
}

func TestRatiosPairRounds(t *testing.T) {
	r := peers(runs("W1", "ashlar", "req/s", 10, 20, 30), runs("W1", "nginx-slice", "req/s", 10, 10, 20))
	r.Runs[4].Dropped = true // round 1 of nginx
	got := r.ratios("W1", "ashlar")
	if len(got) != 1 || got[0].to != "nginx-slice" || got[0].pairs != 2 || got[0].rate != (spread{1, 1.5, 1.5}) {
		t.Errorf("%+v", got)
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before []float64
		after  []float64
		sign   float64
		want   verdict
	}{
		{"more is better", []float64{10, 10, 11, 12, 12}, []float64{13, 13, 14, 15, 15}, 1, better},
		{"more is worse", []float64{10, 10, 11, 12, 12}, []float64{13, 13, 14, 15, 15}, -1, worse},
		{"less is worse", []float64{13, 13, 14, 15, 15}, []float64{10, 10, 11, 12, 12}, 1, worse},
		{"ranges touch", []float64{10, 10, 11, 12, 13}, []float64{13, 14, 15, 16, 17}, 1, noise},
		{"one inside the other", []float64{10, 10, 11, 12, 20}, []float64{13, 14, 15, 16, 17}, 1, noise},
		{"apart but close", []float64{100, 100, 100, 100, 100}, []float64{101, 101, 102, 103, 110}, 1, noise},
		{"too few before", []float64{10, 10, 11, 12}, []float64{13, 13, 14, 15, 15}, 1, unclear},
		{"too few after", []float64{10, 10, 11, 12, 12}, []float64{13}, 1, unclear},
		{"from nothing", []float64{0, 0, 0, 0, 0}, []float64{1, 1, 1, 1, 1}, -1, worse},
	} {
		if got, _, _ := judge(tt.before, tt.after, tt.sign); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestCompare(t *testing.T) {
	before := peers(runs("W1", "ashlar", "req/s", 100, 101, 101, 101, 102), runs("W1", "varnish", "req/s", 50, 50, 50, 50, 50),
		runs(w4Whole, "ashlar", "s", 1, 1.1, 1.1, 1.1, 1.2), runs("W3", "ashlar", "MB/s", 1, 1, 1, 1, 1))
	after := peers(runs("W1", "ashlar", "req/s", 150, 151, 151, 151, 152), runs("W1", "varnish", "req/s", 50, 50, 50, 50, 50),
		runs(w4Whole, "ashlar", "s", 2, 2.1, 2.1, 2.1, 2.2), runs("W3", "ashlar", "MB/s", 9, 9, 9, 9, 9))
	for i := range after.Runs {
		after.Runs[i].Dropped = after.Runs[i].Workload == "W3"
	}
	before.Routing = runs("nodes, owner", "16", unitNS, 20, 20, 20, 20, 20)
	after.Routing = runs("nodes, owner", "16", unitNS, 10, 10, 10, 10, 10)
	var b bytes.Buffer
	compare(&b, before, after)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := [][]string{
		{"W1 ashlar, req/s", "101 (100–102)", "→ 151 (150–152)", "+50%", "better"},
		{"W1 ashlar to varnish, req/s", "2.020", "→ 3.020", "better"},
		{"W4 whole ashlar, s", "+91%", "worse"},
		{"nodes, owner 16, ns", "20.0 (20.0–20.0)", "→ 10.0", "-50%", "better"},
		{"3 better, 1 worse", "1 with too few undisturbed runs"},
	}
	if len(lines) != len(want) {
		t.Fatalf("printed:\n%s", &b)
	}
	for i, line := range lines {
		for _, w := range want[i] {
			if !strings.Contains(line, w) {
				t.Errorf("line %q lacks %q", line, w)
			}
		}
	}
}

func TestFinish(t *testing.T) {
	r := peers(runs("W1", "ashlar", "req/s", 100, 101, 102), runs("W1", "nginx-slice", "req/s", 50, 50, 50),
		runs(w4Whole, "ashlar", "s", 1, 1.1, 1.2), runs(w4Whole, "origin", "s", 1, 1, 1))
	r.Missing = []string{"varnish: apt-get install varnish"}
	for i := range 3 {
		r.Runs[3+i].Dropped = true // all of nginx
		r.Runs[9+i].CPU = 0        // the origin's is the benchmark's own
	}
	dir := t.TempDir()
	if err := r.finish(io.Discard, dir); err != nil {
		t.Fatal(err)
	}
	read := func(ext string) string {
		files, _ := filepath.Glob(filepath.Join(dir, "bench-*"+ext))
		if len(files) != 1 {
			t.Fatalf("%d %s files", len(files), ext)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	back, err := readReport(files[0])
	if err != nil || len(back.Runs) != len(r.Runs) || back.Kind != kindPeers || !back.Runs[3].Dropped {
		t.Errorf("read back %+v, %v", back, err)
	}

	page := read(".md")
	for _, w := range []string{
		"| ashlar | 101 | 2.0 | 1.000 | – | – | – | – | 1.10 | – | 3 |",
		`| nginx-slice | 50\* |`, "| origin | – | – | – | – | – | – | – | 1.00 | – | – |",
		"| W1 requests/s | 2.02 (2.00–2.04) | – |", "| W4 whole GET, seconds | – | 1.10 (1.00–1.20) |",
		"don't trust these figures", "apt-get install varnish",
	} {
		if !strings.Contains(page, w) {
			t.Errorf("no %q in\n%s", w, page)
		}
	}

	picture := read(".svg")
	d, bars := xml.NewDecoder(strings.NewReader(picture)), 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	// Rates of four, CPU time of all but the origin.
	if bars != 7 || !strings.Contains(picture, "nginx-slice *<") || !strings.Contains(picture, "a &lt;machine&gt;") {
		t.Errorf("%d bars in\n%s", bars, picture)
	}
}

// The steps of a series stay in their order, whatever the other series have.
func TestSeriesOrder(t *testing.T) {
	r := &report{Kind: kindSeries, Runs: slices.Concat(
		runs("object size", "4 KiB", "MB/s", 1), runs("object size", "1 MiB", "MB/s", 1),
		runs("block size", "64 KiB", "req/s", 1), runs("block size", "256 KiB", "req/s", 1),
		runs("block size", "1 MiB", "req/s", 1),
	)}
	var text bytes.Buffer
	r.print(&text)
	for name, page := range map[string]string{"text": text.String(), "Markdown": string(r.markdown())} {
		_, page, _ = strings.Cut(page, "block size")
		a, b, c := strings.Index(page, "64 KiB"), strings.Index(page, "256 KiB"), strings.Index(page, "1 MiB")
		if a < 0 || b < a || c < b {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	if r.chart() != nil {
		t.Error("a chart of a series")
	}
}

// Runs of no server have no latency, CPU time or memory.
func TestSeriesOfSimulation(t *testing.T) {
	r := &report{Kind: kindSeries, Runs: slices.Concat(
		runs("nodes, owner", "1", unitNS, 3, 4, 5), runs("nodes, owner", "64", unitNS, 70, 80, 90),
		runs("objects", "1", "MB/s", 1),
	)}
	page := string(r.markdown())
	for _, w := range []string{
		"| nodes, owner | ns | least | greatest | allocations |", "| 64 | 80.0 | 70.0 | 90.0 | 0.0 |",
		"| objects | MB/s | least | greatest | p50 ms |",
	} {
		if !strings.Contains(page, w) {
			t.Errorf("no %q in\n%s", w, page)
		}
	}
	var text bytes.Buffer
	r.print(&text)
	if !strings.Contains(text.String(), "    64  80 ns (70 to 90), 0.0 allocations") {
		t.Errorf("printed:\n%s", &text)
	}
}

// The cost of a contestant is that of all its processes.
func TestUsageOfSeveralProcesses(t *testing.T) {
	p, err := proc.Start(proc.Spec{Name: "sleep", Path: find("sleep"), Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	one, two := contestant{procs: []*proc.Process{p}}, contestant{procs: []*proc.Process{p, p}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // its start changes it still
		a, errA := one.usage()
		b, errB := two.usage()
		if errA == nil && errB == nil && a.RSS > 0 && b.RSS == 2*a.RSS && b.PeakRSS == 2*a.PeakRSS && b.CPU == 2*a.CPU {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v and %+v, %v, %v", a, b, errA, errB)
		}
	}
}

func TestWithoutFiles(t *testing.T) {
	got := withoutFiles([]string{"-ashlar", "/some/file", "-quick", "--out=/some/dir", "-only", "W1", "-publish", "."})
	if !slices.Equal(got, []string{"-quick", "-only", "W1"}) {
		t.Errorf("%q", got)
	}
}
