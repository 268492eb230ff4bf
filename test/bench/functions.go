package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// topCount is how many functions of a profile are shown.
const topCount = 10

// profile is what the functions of a node use under one workload.
type profile struct {
	Workload string     `json:"workload"`
	CPU      []function `json:"cpu"`      // topCount of them
	Allocs   []function `json:"allocs"`   // of bytes; topCount of them
	Packages []function `json:"packages"` // of CPU time, all by themselves
	Objects  float64    `json:"objects"`  // allocated for each request
}

// function is a function's share of a profile, in percent.
type function struct {
	Name string  `json:"name"`
	Flat float64 `json:"flat"` // by itself
	Cum  float64 `json:"cum"`  // with all that it calls
}

// firstOf are the functions that are shown: those that hold something by themselves, topCount at most.
func firstOf(all []function) []function {
	n := 0
	for n < min(len(all), topCount) && all[n].Flat > 0 {
		n++
	}
	return all[:n]
}

// parseTop reads the table that go tool pprof -top prints, below lines that say when and of which program.
func parseTop(out []byte) ([]function, error) {
	var all []function
	inTable := false
	for line := range bytes.Lines(out) {
		f := strings.Fields(string(line)) // flat flat% sum% cum cum% name
		if !inTable {
			inTable = len(f) == 5 && f[1] == "flat%" && f[4] == "cum%"
			continue
		}
		if len(f) < 6 {
			return nil, fmt.Errorf("go tool pprof: unexpected line %q", line)
		}
		x := function{Name: strings.TrimSuffix(strings.Join(f[5:], " "), " (inline)")}
		var err1, err2 error
		x.Flat, err1 = strconv.ParseFloat(strings.TrimSuffix(f[1], "%"), 64)
		x.Cum, err2 = strconv.ParseFloat(strings.TrimSuffix(f[4], "%"), 64)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, fmt.Errorf("go tool pprof: %q: %w", line, err)
		}
		all = append(all, x)
	}
	if !inTable {
		return nil, fmt.Errorf("go tool pprof: no table in %q", out)
	}
	return all, nil
}

// packageOf is the package of a function.
func packageOf(name string) string {
	name, _, _ = strings.Cut(name, "[") // type arguments, which have packages of their own
	slash := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[slash:], '.')
	if dot < 0 {
		return name
	}
	return name[:slash+dot]
}

// byPackage adds up what functions use by themselves, and returns the packages that use most first.
func byPackage(all []function) []function {
	sums := make(map[string]float64)
	for _, f := range all {
		sums[packageOf(f.Name)] += f.Flat
	}
	var packages []function
	for name, flat := range sums {
		packages = append(packages, function{Name: name, Flat: flat})
	}
	slices.SortFunc(packages, func(a, b function) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(a.Name, b.Name))
	})
	return packages
}

// shortName leaves out where a module of this project lives.
func shortName(name string) string {
	return strings.ReplaceAll(name, "github.com/ashlar-s3/ashlar/", "")
}

// markdownProfiles is a table for each workload, CPU time beside allocations.
func (r *report) markdownProfiles(w io.Writer) {
	_, _ = fmt.Fprint(w, "Percent of all: by itself, and with what it calls.\n")
	for _, p := range r.Profiles {
		_, _ = fmt.Fprintln(w)
		row(w, []string{p.Workload + ": CPU time", "flat", "cum", "bytes allocated", "flat", "cum"})
		rule(w, 6)
		for i := range min(topCount, max(len(p.CPU), len(p.Allocs))) {
			row(w, append(cellsOf(p.CPU, i), cellsOf(p.Allocs, i)...))
		}
		var packages []string
		for _, f := range p.Packages {
			if f.Flat >= 2 {
				packages = append(packages, fmt.Sprintf("`%s` %.0f%%", shortName(f.Name), f.Flat))
			}
		}
		_, _ = fmt.Fprintf(w, "\nCPU time by package: %s. %.1f objects are allocated for each request.\n",
			strings.Join(packages, ", "), p.Objects)
	}
}

// cellsOf are those of the i-th function.
func cellsOf(all []function, i int) []string {
	if i >= len(all) {
		return []string{"–", "", ""}
	}
	return []string{"`" + shortName(all[i].Name) + "`", fmt.Sprintf("%.1f", all[i].Flat), fmt.Sprintf("%.1f", all[i].Cum)}
}
