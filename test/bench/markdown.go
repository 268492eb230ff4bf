package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// markdown is the report as a page: a table with a line for each contestant, as in docs/performance.md, and the ratios.
// Series have tables of their own instead.
func (r *report) markdown() []byte {
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, "%s\n\n", r.origins())
	switch r.Kind {
	case kindPeers:
		r.markdownPeers(&b)
		r.markdownGoals(&b)
	case kindSeries:
		for _, w := range r.workloads() {
			r.markdownSeries(&b, w)
		}
	case kindProfile:
		r.markdownProfiles(&b)
	}
	if len(r.Missing) > 0 {
		_, _ = fmt.Fprintf(&b, "\nNot installed, not compared: %s.\n", strings.Join(r.Missing, "; "))
	}
	return b.Bytes()
}

// origins says where figures come from: the command, when, on what machine, with which versions.
func (r *report) origins() string {
	s := fmt.Sprintf("`%s` on %s, %s. %s.", r.Command, r.Start.UTC().Format("2006-01-02"), r.Machine,
		strings.Join(r.Versions, "; "))
	dropped := 0
	for _, run := range r.Runs {
		if run.Dropped {
			dropped++
		}
	}
	if dropped > 0 {
		s += fmt.Sprintf(" %d of %d runs were dropped because other processes disturbed them.", dropped, len(r.Runs))
	}
	return s
}

// column is a figure of a workload.
type column struct {
	title    string
	workload string
	format   string
	of       func(result) float64
}

func rate(x result) float64        { return x.Rate }
func cpuTime(x result) float64     { return x.CPU }
func p99(x result) float64         { return x.P99ms }
func p50(x result) float64         { return x.P50ms }
func peakMiB(x result) float64     { return float64(x.PeakRSS) / (1 << 20) }
func fetched(x result) float64     { return float64(x.OriginGETs) }
func allocations(x result) float64 { return x.Allocs }

// simulated says that a run is of no server.
func (x result) simulated() bool { return x.Unit == unitNS || x.Unit == unitMean }

// peerColumns are those of the comparison.
func peerColumns() []column {
	return []column{
		{"W1 req/s", "W1", "%.0f", rate}, {"W1 p99 ms", "W1", "%.1f", p99}, {"W1 CPU s/10k", "W1", "%.3f", cpuTime},
		{"W2 MB/s", "W2", "%.0f", rate}, {"W2 CPU s/GB", "W2", "%.3f", cpuTime},
		{"W3 MB/s", "W3", "%.0f", rate}, {"W3 CPU s/GB", "W3", "%.3f", cpuTime},
		{"W4 whole GET s", w4Whole, "%.2f", rate}, {"W4 1 MiB ranges s", w4Ranges, "%.2f", rate},
	}
}

const disturbedNote = "\n\\* other processes disturbed every run: don't trust these figures.\n"

func (r *report) markdownPeers(w io.Writer) {
	header := []string{""}
	for _, c := range peerColumns() {
		header = append(header, c.title)
	}
	row(w, append(header, "RSS MiB, W1–W3"))
	rule(w, len(header)+1)
	anyDisturbed := false
	for _, contestant := range r.contestants() {
		cells := []string{contestant}
		peak := 0.0
		for _, c := range peerColumns() {
			runs, disturbed := r.counted(c.workload, contestant)
			cell := "–"
			if len(runs) > 0 {
				cell = fmt.Sprintf(c.format, spreadOf(pick(runs, c.of)).median)
				if !strings.HasPrefix(c.workload, "W4") {
					peak = max(peak, spreadOf(pick(runs, peakMiB)).max)
				}
				if disturbed {
					cell, anyDisturbed = cell+"\\*", true
				}
			}
			cells = append(cells, cell)
		}
		rss := "–"
		if peak > 0 {
			rss = fmt.Sprintf("%.0f", peak)
		}
		row(w, append(cells, rss))
	}
	if anyDisturbed {
		_, _ = fmt.Fprint(w, disturbedNote)
	}
	for _, subject := range subjects() {
		r.markdownRatios(w, subject)
	}
}

// markdownRatios is a table of a contestant's ratios to the others: medians, with the least and the greatest.
func (r *report) markdownRatios(w io.Writer, subject string) {
	cells := make(map[string]string) // by row and column
	for _, workload := range r.workloads() {
		for _, x := range r.ratios(workload, subject) {
			cells[workload+"|"+x.to] = x.rate.String()
			if x.cpu.max > 0 {
				cells[workload+" CPU|"+x.to] = x.cpu.String()
			}
		}
	}
	if len(cells) == 0 {
		return
	}
	others := []string{}
	for _, c := range r.contestants() {
		if c != subject && (!ours(c) || c == subjects()[0]) {
			others = append(others, c)
		}
	}
	_, _ = fmt.Fprintf(w, "\nRatios of %s to the others: median of the pairs of one round each (least to greatest).\n\n",
		subject)
	row(w, append([]string{""}, others...))
	rule(w, len(others)+1)
	for _, workload := range r.workloads() {
		for _, name := range []string{workload, workload + " CPU"} {
			if !slices.ContainsFunc(others, func(o string) bool { return cells[name+"|"+o] != "" }) {
				continue
			}
			line := []string{name}
			if name == workload {
				line[0] = title(workload)
			}
			for _, o := range others {
				line = append(line, cmp.Or(cells[name+"|"+o], "–"))
			}
			row(w, line)
		}
	}
}

// title names a workload with what its rate is.
func title(workload string) string {
	switch workload {
	case "W1":
		return "W1 requests/s"
	case "W2", "W3":
		return workload + " MB/s"
	case w4Whole:
		return "W4 whole GET, seconds"
	case w4Ranges:
		return "W4 1 MiB ranges, seconds"
	}
	return workload
}

// markdownSeries is a table with a line for each step.
func (r *report) markdownSeries(w io.Writer, workload string) {
	anyDisturbed := false
	for i, step := range r.contestantsIn(workload) {
		runs, disturbed := r.counted(workload, step)
		if i == 0 {
			header := []string{
				workload, runs[0].Unit, "least", "greatest", "p50 ms", "p99 ms", "CPU s/" + runs[0].per(), "RSS MiB",
				"origin GETs",
			}
			if runs[0].simulated() {
				header = append(header[:4], "allocations")
			}
			_, _ = fmt.Fprintln(w)
			row(w, header)
			rule(w, len(header))
		}
		if disturbed {
			step, anyDisturbed = step+"\\*", true
		}
		median := func(f func(result) float64) float64 { return spreadOf(pick(runs, f)).median }
		s := spreadOf(pick(runs, rate))
		cells := []string{step, figure(s.median), figure(s.min), figure(s.max)}
		if runs[0].simulated() {
			row(w, append(cells, fmt.Sprintf("%.1f", median(allocations))))
			continue
		}
		row(w, append(cells, figure(median(p50)), figure(median(p99)), figure(median(cpuTime)),
			fmt.Sprintf("%.0f", spreadOf(pick(runs, peakMiB)).max), fmt.Sprint(median(fetched))))
	}
	if anyDisturbed {
		_, _ = fmt.Fprint(w, disturbedNote)
	}
}

// String is the median, with the least and the greatest in brackets.
func (s spread) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.min, s.max) }

// figure is v with three digits at least, and without an exponent.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func row(w io.Writer, cells []string) { _, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

func rule(w io.Writer, columns int) { _, _ = fmt.Fprintln(w, "|"+strings.Repeat(" --- |", columns)) }
