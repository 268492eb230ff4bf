package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// report is everything that was measured: what the JSON file holds.
type report struct {
	Start   time.Time `json:"start"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Options options   `json:"options"`
	Missing []string  `json:"missing,omitempty"`
	Runs    []result  `json:"runs"`
}

// spread is the least, the median and the greatest of some figures.
type spread struct{ min, median, max float64 }

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

func (r *report) print(w io.Writer) {
	for _, workload := range r.names(func(x result) string { return x.Workload }) {
		r.printWorkload(w, workload)
	}
}

func (r *report) printWorkload(w io.Writer, workload string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) }
	header := false
	anyDisturbed := false
	for _, contestant := range r.names(func(x result) string { return x.Contestant }) {
		runs, disturbed := r.counted(workload, contestant)
		if len(runs) == 0 {
			continue
		}
		per := "GB"
		if runs[0].Unit == "req/s" {
			per = "10k"
		}
		if !header {
			p("\n%s\t%s min\tmedian\tmax\tp50 ms\tp99 ms\tCPU s/%s\tpeak MiB\torigin GETs\tclient busy\truns\t\n", workload,
				runs[0].Unit, per)
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

// printRatios prints ashlar's rate as a multiple of each other's, round by round: of the runs that were made within
// seconds of each other.
func (r *report) printRatios(w io.Writer, workload string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	mine, _ := r.counted(workload, "ashlar")
	header := false
	for _, contestant := range r.names(func(x result) string { return x.Contestant }) {
		if contestant == "ashlar" {
			continue
		}
		theirs, _ := r.counted(workload, contestant)
		var rates, cpus []float64
		for _, a := range mine {
			for _, b := range theirs {
				if a.Round == b.Round {
					rates = append(rates, a.Rate/b.Rate)
					if b.CPU > 0 {
						cpus = append(cpus, a.CPU/b.CPU)
					}
				}
			}
		}
		if len(rates) == 0 {
			continue
		}
		if !header {
			_, _ = fmt.Fprintf(t, "ashlar to\t%s min\tmedian\tmax\tCPU median\tpairs\t\n", mine[0].Unit)
			header = true
		}
		rate, cpu := spreadOf(rates), "-"
		if len(cpus) > 0 && contestant != "origin" {
			cpu = fmt.Sprintf("%.2f", spreadOf(cpus).median)
		}
		_, _ = fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%s\t%d\t\n",
			contestant, rate.min, rate.median, rate.max, cpu, len(rates))
	}
	_ = t.Flush()
}

func pick(runs []result, f func(result) float64) []float64 {
	v := make([]float64, len(runs))
	for i, run := range runs {
		v[i] = f(run)
	}
	return v
}
