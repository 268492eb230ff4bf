package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// When a figure counts as changed: with at least minRuns undisturbed runs in both files, when all runs of one file are
// above all of the other, and the medians differ by more than minChange. Of 5 runs each, which are the default, chance
// alone puts all of one above all of the other once in 126 figures; of 3 it would once in 10.
const (
	minRuns   = 5
	minChange = 0.03
)

// verdict is what a comparison makes of a figure.
type verdict string

const (
	better  verdict = "better"
	worse   verdict = "worse"
	noise   verdict = "within noise"
	unclear verdict = "too few undisturbed runs"
)

// judge compares two sets of runs of one figure. sign is 1 when more is better, and -1 when less is.
func judge(before, after []float64, sign float64) (verdict, spread, spread) {
	if len(before) < minRuns || len(after) < minRuns {
		return unclear, spread{}, spread{}
	}
	a, b := spreadOf(before), spreadOf(after)
	switch {
	case a.min <= b.max && b.min <= a.max:
		return noise, a, b
	case math.Abs(b.median-a.median) <= minChange*a.median:
		return noise, a, b
	case (b.median-a.median)*sign > 0:
		return better, a, b
	}
	return worse, a, b
}

func runCompare(w io.Writer, args []string) error {
	set := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() != 2 {
		return errors.New("compare takes two JSON files of make bench or make scale, the older first")
	}
	before, err := readReport(set.Arg(0))
	if err != nil {
		return err
	}
	after, err := readReport(set.Arg(1))
	if err != nil {
		return err
	}
	compare(w, before, after)
	return nil
}

// withRouting is r with the runs of the simulated routing among all others.
func (r *report) withRouting() *report {
	all := *r
	all.Runs = slices.Concat(r.Runs, r.Routing)
	return &all
}

// compare prints what changed beyond noise, and how many figures did not.
func compare(w io.Writer, before, after *report) {
	before, after = before.withRouting(), after.withRouting()
	if before.Machine != after.Machine {
		_, _ = fmt.Fprintf(w, "Other machines, so that only ratios tell anything: %s; %s\n", before.Machine, after.Machine)
	}
	if a, b := before.Options.Duration, after.Options.Duration; a != b {
		_, _ = fmt.Fprintf(w, "Runs of other lengths: %v and %v\n", a, b)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	counts := make(map[verdict]int)
	line := func(name string, x, y []float64, sign float64) {
		v, a, b := judge(x, y, sign)
		counts[v]++
		if v != better && v != worse {
			return
		}
		_, _ = fmt.Fprintf(t, "%s\t%s (%s–%s)\t→ %s (%s–%s)\t%+.0f%%\t%s\n", name, figure(a.median), figure(a.min),
			figure(a.max), figure(b.median), figure(b.min), figure(b.max), 100*(b.median/a.median-1), v)
	}
	for _, workload := range before.workloads() {
		for _, contestant := range before.contestants() {
			a, disturbedA := before.counted(workload, contestant)
			b, disturbedB := after.counted(workload, contestant)
			if len(a) == 0 || len(b) == 0 {
				continue // not in both
			}
			if disturbedA || disturbedB {
				counts[unclear]++
				continue
			}
			name := workload + " " + contestant + ", "
			line(name+a[0].Unit, pick(a, rate), pick(b, rate), a[0].sign())
			if a[0].simulated() {
				continue
			}
			line(name+"p99 ms", pick(a, p99), pick(b, p99), -1)
			line(name+"CPU s/"+a[0].per(), pick(a, cpuTime), pick(b, cpuTime), -1)
			line(name+"RSS MiB", pick(a, peakMiB), pick(b, peakMiB), -1)
			for _, subject := range subjects() {
				ratesA, cpusA, okA := before.pairs(workload, subject, contestant)
				ratesB, cpusB, okB := after.pairs(workload, subject, contestant)
				if subject == contestant || !okA || !okB {
					continue
				}
				name := fmt.Sprintf("%s %s to %s, ", workload, subject, contestant)
				line(name+a[0].Unit, ratesA, ratesB, a[0].sign())
				line(name+"CPU", cpusA, cpusB, -1)
			}
		}
	}
	_ = t.Flush()
	_, _ = fmt.Fprintf(w, "%d better, %d worse, %d within noise, %d with too few undisturbed runs\n", counts[better],
		counts[worse], counts[noise], counts[unclear])
}
