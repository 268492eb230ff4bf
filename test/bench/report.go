package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that was measured: what the JSON file holds.
type report struct {
	Start   time.Time `json:"start"`
	Kind    string    `json:"kind"` // kindPeers, kindSeries or kindProfile
	Command string    `json:"command"`
	Machine string    `json:"machine"`
	// Versions are of what was measured and of what it ran on, one line each.
	Versions []string `json:"versions"`
	Options  options  `json:"options"`
	Missing  []string `json:"missing,omitempty"` // peers, each with the command that installs it
	Runs     []result `json:"runs,omitempty"`
	// Routing is what finding the node of a block costs in a cluster: runs of a simulation.
	Routing  []result  `json:"routing,omitempty"`
	Profiles []profile `json:"profiles,omitempty"` // of kindProfile
}

// Kinds of reports, which are targets of make, and names of files.
const (
	kindPeers   = "bench"   // contestants beside each other
	kindSeries  = "scale"   // one thing that grows: its steps are the contestants
	kindProfile = "profile" // functions that use most
)

// newReport is a report without runs, of what was started with args.
func (b *bench) newReport(ctx context.Context, o options, kind string, args []string) *report {
	args, command := withoutFiles(args), "make "+kind
	if len(args) > 0 {
		command += fmt.Sprintf(" BENCHFLAGS='%s'", strings.Join(args, " "))
	}
	return &report{
		Start: time.Now(), Kind: kind, Command: command, Machine: machine(), Versions: b.versions(ctx), Options: o,
		Missing: b.missing,
	}
}

// finish prints the report and writes it to files of dir. It is an error to have no runs.
func (r *report) finish(w io.Writer, dir string) error {
	if len(r.Runs)+len(r.Profiles) == 0 {
		return errors.New("nothing was measured")
	}
	r.print(w)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, r.Kind+"-"+r.Start.UTC().Format("20060102-150405"))
	for _, f := range []struct {
		ext  string
		data []byte
	}{
		{".json", append(data, '\n')}, {".md", r.markdown()}, {".svg", r.chart()},
	} {
		if f.data == nil {
			continue
		}
		if err := os.WriteFile(file+f.ext, f.data, 0o644); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(w, "written:", file+f.ext)
	}
	return nil
}

// readReport reads the JSON file of a report.
func readReport(file string) (*report, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &r, nil
}

// spread is the least, the median and the greatest of some figures.
type spread struct{ min, median, max float64 }

// spreadOf sorts v, which is not empty.
func spreadOf(v []float64) spread {
	slices.Sort(v)
	return spread{v[0], v[len(v)/2], v[len(v)-1]}
}

// counted returns the runs that count for a workload and a contestant: the undisturbed ones, or the last attempt of
// each round where there is none, which disturbed says.
func (r *report) counted(workload, contestant string) (runs []result, disturbed bool) {
	last := make(map[int]result)
	for _, run := range r.Runs {
		if run.Workload != workload || run.Contestant != contestant {
			continue
		}
		last[run.Round] = run
		if !run.Dropped {
			runs = append(runs, run)
		}
	}
	if len(runs) > 0 {
		return runs, false
	}
	for _, run := range last {
		runs = append(runs, run)
	}
	return runs, true
}

// sign is 1 when more of the rate is better, and -1 when less is.
func (x result) sign() float64 {
	switch x.Unit {
	case "s", unitNS, unitMean:
		return -1
	}
	return 1
}

// per is what the CPU time of a run is divided by.
func (x result) per() string {
	if x.Unit == "req/s" {
		return "10k"
	}
	return "GB"
}

// names returns the distinct values of a field in the order of their first appearance.
func (r *report) names(field func(result) string) []string {
	var names []string
	for _, run := range r.Runs {
		if n := field(run); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

func (r *report) workloads() []string { return r.names(func(x result) string { return x.Workload }) }

func (r *report) contestants() []string {
	return r.names(func(x result) string { return x.Contestant })
}

// contestantsIn are those of one workload, which for a series are its steps.
func (r *report) contestantsIn(workload string) []string {
	in := report{Runs: slices.DeleteFunc(slices.Clone(r.Runs), func(x result) bool { return x.Workload != workload })}
	return in.contestants()
}

func (r *report) print(w io.Writer) {
	for _, workload := range r.workloads() {
		i := slices.IndexFunc(r.Runs, func(x result) bool { return x.Workload == workload })
		if r.Runs[i].simulated() {
			r.printSimulated(w, workload)
		} else {
			r.printWorkload(w, workload)
		}
	}
	if len(r.Routing) > 0 {
		(&report{Runs: r.Routing}).print(w)
	}
	if r.Kind == kindPeers {
		_, _ = fmt.Fprintf(w, "\n%s\n", r.reached())
	}
}

// printSimulated prints runs that are of no server.
func (r *report) printSimulated(w io.Writer, workload string) {
	_, _ = fmt.Fprintf(w, "\n%s\n", workload)
	for _, step := range r.contestantsIn(workload) {
		runs, _ := r.counted(workload, step)
		s := spreadOf(pick(runs, rate))
		_, _ = fmt.Fprintf(w, "%6s  %.4g %s (%.4g to %.4g), %.1f allocations\n", step, s.median, runs[0].Unit, s.min, s.max,
			spreadOf(pick(runs, allocations)).median)
	}
}

func (r *report) printWorkload(w io.Writer, workload string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) }
	header := false
	anyDisturbed := false
	for _, contestant := range r.contestantsIn(workload) {
		runs, disturbed := r.counted(workload, contestant)
		if !header {
			p("\n%s\t%s min\tmedian\tmax\tp50 ms\tp99 ms\tCPU s/%s\tpeak MiB\torigin GETs\tclient busy\truns\t\n", workload,
				runs[0].Unit, runs[0].per())
			header = true
		}
		mark := ""
		if disturbed {
			mark, anyDisturbed = " *", true
		}
		rate := spreadOf(pick(runs, func(x result) float64 { return x.Rate }))
		median := func(f func(result) float64) float64 { return spreadOf(pick(runs, f)).median }
		peak := spreadOf(pick(runs, func(x result) float64 { return float64(x.PeakRSS) })).max / (1 << 20)
		p("%s%s\t%.4g\t%.4g\t%.4g\t%.2f\t%.2f\t%.3f\t%.0f\t%.0f\t%.0f%%\t%d\t\n", contestant, mark, rate.min, rate.median,
			rate.max, median(func(x result) float64 { return x.P50ms }), median(func(x result) float64 { return x.P99ms }),
			median(func(x result) float64 { return x.CPU }), peak,
			median(func(x result) float64 { return float64(x.OriginGETs) }),
			100*median(func(x result) float64 { return x.ClientBusy }), len(runs))
	}
	_ = t.Flush()
	r.printRatios(w, workload)
	if anyDisturbed {
		_, _ = fmt.Fprintln(w, "* every run was disturbed by other processes: don't trust these figures")
	}
}

// ratio is how one contestant did beside another in the same rounds: in runs made within seconds of each other.
type ratio struct {
	to    string
	rate  spread // of the rates, or seconds
	cpu   spread // of the CPU time per request or byte; zero where there is none
	pairs int
}

// ratios are those of a contestant to all others in a workload.
func (r *report) ratios(workload, subject string) []ratio {
	var all []ratio
	for _, other := range r.contestants() {
		if other == subject || ours(other) && other != subjects()[0] {
			continue
		}
		rates, cpus, _ := r.pairs(workload, subject, other)
		if len(rates) == 0 {
			continue
		}
		x := ratio{to: other, rate: spreadOf(rates), pairs: len(rates)}
		if len(cpus) > 0 {
			x.cpu = spreadOf(cpus)
		}
		all = append(all, x)
	}
	return all
}

// pairs divides a contestant's rates and CPU times by those of another in the same round. ok is false when those of one
// are all of disturbed runs.
func (r *report) pairs(workload, subject, other string) (rates, cpus []float64, ok bool) {
	mine, disturbed := r.counted(workload, subject)
	theirs, alsoDisturbed := r.counted(workload, other)
	for _, a := range mine {
		for _, b := range theirs {
			if a.Round != b.Round {
				continue
			}
			rates = append(rates, a.Rate/b.Rate)
			if a.CPU > 0 && b.CPU > 0 {
				cpus = append(cpus, a.CPU/b.CPU)
			}
		}
	}
	return rates, cpus, !disturbed && !alsoDisturbed && len(rates) > 0
}

// subjects are the contestants whose ratios to the others are shown: to the peers, and to the first of these.
func subjects() []string { return []string{"ashlar", "ashlar-disk", "gateway", "gateway-nodes"} }

func (r *report) printRatios(w io.Writer, workload string) {
	for _, subject := range subjects() {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for i, x := range r.ratios(workload, subject) {
			if i == 0 {
				_, _ = fmt.Fprintf(t, "%s to\trate min\tmedian\tmax\tCPU min\tmedian\tmax\tpairs\t\n", subject)
			}
			cpu := "-\t-\t-"
			if x.cpu.max > 0 {
				cpu = fmt.Sprintf("%.2f\t%.2f\t%.2f", x.cpu.min, x.cpu.median, x.cpu.max)
			}
			_, _ = fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%s\t%d\t\n", x.to, x.rate.min, x.rate.median, x.rate.max, cpu, x.pairs)
		}
		_ = t.Flush()
	}
}

func pick(runs []result, f func(result) float64) []float64 {
	v := make([]float64, len(runs))
	for i, run := range runs {
		v[i] = f(run)
	}
	return v
}
