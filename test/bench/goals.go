package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// The goals of a node whose answers leave through net/http, and of a cluster's routing.

// goal is a bound on one figure.
type goal struct {
	what    string
	to      string  // the contestant that it is a ratio to; "" is a figure by itself
	bound   float64 // that the median has to keep
	stretch float64 // that it had better keep; 0 for none
	least   bool    // it must be no less than the bound; otherwise no more
	unit    string  // of a figure by itself
	// of measures it; ok is false when there is nothing to go by, disturbed when all there is was disturbed.
	of func(r *report) (s spread, disturbed, ok bool)
}

const (
	mebi = 1 << 20
	// What fetch_window, by default, makes of an object of W4: requests of 8 MiB.
	coldFetches = coldSize / (8 * mebi)
)

// goals are all of them, for the runs of r.
func (r *report) goals() []goal {
	ratio := func(what, workload, subject, to string, bound, stretch float64, least, cpu bool) goal {
		return goal{what: what, to: to, bound: bound, stretch: stretch, least: least,
			of: func(r *report) (spread, bool, bool) {
				rates, cpus, undisturbed := r.pairs(workload, subject, to)
				if cpu {
					rates = cpus
				}
				if len(rates) == 0 {
					return spread{}, false, false
				}
				return spreadOf(rates), !undisturbed, true
			}}
	}
	atLeast := func(what, workload, subject, to string, bound, stretch float64) goal {
		return ratio(what, workload, subject, to, bound, stretch, true, false)
	}
	atMost := func(what, workload, subject, to string, bound, stretch float64) goal {
		return ratio(what, workload, subject, to, bound, stretch, false, false)
	}
	figure := func(what, workload string, bound float64, f func(result) float64) goal {
		return goal{what: what, bound: bound, of: func(r *report) (spread, bool, bool) {
			runs, disturbed := r.counted(workload, "ashlar")
			if len(runs) == 0 {
				return spread{}, false, false
			}
			return spreadOf(pick(runs, f)), disturbed, true
		}}
	}
	const w1, w2, w3 = "W1 signed, requests/s", "W2 signed, MB/s", "W3 signed, MB/s"
	const whole, ranges = "W4 whole GET, seconds", "W4 1 MiB ranges, seconds"
	list := []goal{
		atLeast(w1, "W1", "ashlar", "nginx-slice", 0.75, 0), atLeast(w1, "W1", "ashlar", "varnish", 0.95, 0),
		atLeast(w2, "W2", "ashlar", "nginx-slice", 1.05, 1.15), atLeast(w2, "W2", "ashlar", "varnish", 0.95, 1.05),
		atLeast(w2, "W2", "ashlar", "nginx-static", 0.95, 1.1),
		atLeast(w3, "W3", "ashlar", "nginx-slice", 1.1, 0), atLeast(w3, "W3", "ashlar", "varnish", 0.9, 1.0),
		atLeast(w3, "W3", "ashlar", "nginx-static", 0.95, 0),
		atMost(whole, w4Whole, "ashlar", "nginx-slice", 0.1, 0), atMost(whole, w4Whole, "ashlar", "varnish", 1.1, 0.9),
		atMost(whole, w4Whole, "ashlar", "origin", 1.5, 1.15),
		atMost(ranges, w4Ranges, "ashlar", "nginx-slice", 0.1, 0), atMost(ranges, w4Ranges, "ashlar", "varnish", 1.1, 0.9),
		figure("W4 whole GET, origin requests", w4Whole, coldFetches, fetched),
		figure("W4 1 MiB ranges, origin requests", w4Ranges, coldFetches, fetched),
		figure("W4 whole GET, bytes fetched for each of the object", w4Whole, 1, fetchedShare),
		figure("W4 1 MiB ranges, bytes fetched for each of the object", w4Ranges, 1, fetchedShare),
		atLeast("from disk: W2 signed, MB/s", "W2", "ashlar-disk", "nginx-slice", 0.8, 0),
		ratio("from disk: W2 signed, CPU time", "W2", "ashlar-disk", "nginx-static", 1.8, 0, false, true),
	}
	for _, c := range r.contestants() {
		if limit := r.memoryOf(c); limit > 0 && strings.HasPrefix(c, "ashlar") {
			list = append(list, memoryGoal(c, limit))
		}
	}
	for _, x := range []struct {
		way   string
		bound float64
	}{{ownerEqual, 50}, {ownerWeighted, 250}} {
		what := fmt.Sprintf("routing, %d nodes, %s", goalNodes, x.way)
		list = append(list,
			goal{what: what, bound: x.bound, unit: " ns", of: routed(x.way, rate)},
			goal{what: what + ", allocations", bound: 0, of: routed(x.way, func(x result) float64 {
				return math.Round(10*x.Allocs) / 10 // what else runs in the process allocates a little
			})})
	}
	return list
}

// fetchedShare is how many bytes the origin sent for each of the object.
func fetchedShare(x result) float64 { return float64(x.OriginBytes) / coldSize }

// routed measures a figure of the simulated routing.
func routed(way string, f func(result) float64) func(*report) (spread, bool, bool) {
	return func(r *report) (spread, bool, bool) {
		runs := slices.DeleteFunc(slices.Clone(r.Routing), func(x result) bool { return x.Workload != "nodes, "+way })
		if len(runs) == 0 {
			return spread{}, false, false
		}
		return spreadOf(pick(runs, f)), false, true
	}
}

// memoryOf is what a contestant is given for blocks, in bytes; 0 when it is not known.
func (r *report) memoryOf(contestant string) int64 {
	for _, run := range r.Runs {
		if run.Contestant == contestant {
			return run.Memory
		}
	}
	return 0
}

// memoryGoal is that a contestant stays below its memory, a quarter more and 64 MiB, in every run, disturbed or not.
func memoryGoal(contestant string, limit int64) goal {
	what := fmt.Sprintf("memory of %s at most, %d MiB configured", contestant, limit/mebi)
	bound := float64(limit+limit/4)/mebi + 64
	return goal{what: what, bound: bound, unit: " MiB", of: func(r *report) (spread, bool, bool) {
		most := 0.0
		for _, run := range r.Runs {
			if run.Contestant == contestant {
				most = max(most, peakMiB(run))
			}
		}
		return spread{most, most, most}, false, most > 0
	}}
}

// verdict says whether a median reaches a goal.
func (g goal) verdict(median float64) string {
	holds := func(bound float64) bool {
		if g.least {
			return median >= bound
		}
		return median <= bound
	}
	switch {
	case !holds(g.bound):
		return "**no**"
	case g.stretch != 0 && holds(g.stretch):
		return "yes, and the better one"
	}
	return "yes"
}

// bounds spells the bound, with the one that is better in brackets.
func (g goal) bounds() string {
	sign := "≤ "
	if g.least {
		sign = "≥ "
	}
	s := sign + g.figure(g.bound) + g.unit
	if g.stretch != 0 {
		s += fmt.Sprintf(" (%s)", g.figure(g.stretch))
	}
	return s
}

// figure spells v as it is usual for what the goal is about.
func (g goal) figure(v float64) string {
	switch {
	case g.to != "":
		return fmt.Sprintf("%.2f", v)
	case g.unit != "":
		return fmt.Sprintf("%.0f", v)
	}
	s := fmt.Sprintf("%.3f", v)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// markdownGoals is a table of all goals: bound, what was measured, and whether that reaches it.
func (r *report) markdownGoals(w io.Writer) {
	_, _ = fmt.Fprint(w, "\nThe goals, in brackets ones that are better still, and what `ashlar` does beside others:\n"+
		"ratios, the median of the pairs of one round each (least to greatest).\n\n")
	row(w, []string{"goal", "beside", "bound", "measured", "reached"})
	rule(w, 5)
	for _, g := range r.goals() {
		measured, verdict := "–", "not measured"
		if s, disturbed, ok := g.of(r); ok {
			measured, verdict = g.figure(s.median)+g.unit, g.verdict(s.median)
			if least, most := g.figure(s.min), g.figure(s.max); least != most {
				measured += fmt.Sprintf(" (%s–%s)", least, most)
			}
			if disturbed {
				measured += "\\*"
			}
		}
		row(w, []string{g.what, g.to, g.bounds(), measured, verdict})
	}
}

// reached sums the goals up in a sentence or two: how many, and which are not.
func (r *report) reached() string {
	var not []string
	yes, measured := 0, 0
	for _, g := range r.goals() {
		s, _, ok := g.of(r)
		if !ok {
			continue
		}
		measured++
		if !strings.HasPrefix(g.verdict(s.median), "yes") {
			to := ""
			if g.to != "" {
				to = " beside " + g.to
			}
			not = append(not, fmt.Sprintf("%s%s: %s (%s)", g.what, to, g.figure(s.median)+g.unit, g.bounds()))
			continue
		}
		yes++
	}
	s := fmt.Sprintf("%d of %d goals that were measured are reached.", yes, measured)
	if len(not) > 0 {
		s += " Not: " + strings.Join(not, "; ") + "."
	}
	return s
}
