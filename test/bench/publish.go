package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Files of the documentation that figures are put into, below the folder of the repository. JSON and charts go beside
// the second.
const (
	readme          = "README.md"
	performancePage = "docs/performance.md"
)

// begins and ends are the lines around what is written between them of one kind of report.
func begins(kind string) []byte {
	return fmt.Appendf(nil, "<!-- figures of make %s: written by BENCHFLAGS='-publish .' -->\n", kind)
}

func ends(kind string) []byte {
	return fmt.Appendf(nil, "<!-- end of the figures of make %s -->\n", kind)
}

// splice puts text between the lines of a kind. They must be there once each.
func splice(page []byte, kind string, text []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, begins(kind))
	_, after, also := bytes.Cut(rest, ends(kind))
	if !ok || !also || bytes.Contains(after, begins(kind)) {
		return nil, fmt.Errorf("no place for the figures of make %s, between the lines\n%s%s", kind, begins(kind), ends(kind))
	}
	return bytes.Join([][]byte{before, begins(kind), text, ends(kind), after}, nil), nil
}

// publish puts the figures into the documentation of the repository in root: tables into its pages, all runs and charts
// beside them.
func (r *report) publish(root string) error {
	if r.Options.Quick || r.Options.Only != "" || r.Options.Contestants != "" {
		return errors.New("a part of the measurements is not published: leave out -quick, -only and -contestants")
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	data = bytes.ReplaceAll(data, []byte("},{"), []byte("},\n{")) // a line each
	files := map[string][]byte{filepath.Join("docs", r.Kind+".json"): append(data, '\n')}
	sections := map[string][]byte{performancePage: r.markdown()}
	if r.Kind == kindPeers {
		files["docs/bench.svg"], files["docs/bench-all.svg"] = r.chart(mainContestants()...), r.chart()
		sections[readme] = r.short()
	}
	for name, text := range sections {
		page, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if files[name], err = splice(page, r.Kind, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o644); err != nil {
			return err
		}
		fmt.Println("written:", name)
	}
	return nil
}

// runPublish publishes reports that were measured before.
func runPublish(args []string) error {
	if len(args) == 0 {
		return errors.New("publish takes JSON files of make bench, make scale or make profile")
	}
	for _, file := range args {
		r, err := readReport(file)
		if err != nil {
			return err
		}
		if err := r.publish("."); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// mainContestants are those of the README.
func mainContestants() []string {
	return []string{"ashlar", "gateway", "nginx-slice", "nginx-static", "varnish", "net/http", "origin"}
}

// short is the page for the README: medians of ratios, and how many goals are reached.
func (r *report) short() []byte {
	var b bytes.Buffer
	others := []string{"nginx-slice", "nginx-static", "varnish", "net/http", "origin"}
	row(&b, append([]string{"ashlar to"}, others...))
	rule(&b, len(others)+1)
	anyDisturbed := false
	for _, workload := range r.workloads() {
		line := []string{title(workload)}
		for _, other := range others {
			cell := "–"
			if rates, cpus, ok := r.pairs(workload, "ashlar", other); len(rates) > 0 {
				cell = fmt.Sprintf("%.2f", spreadOf(rates).median)
				if len(cpus) > 0 {
					cell += fmt.Sprintf(" (%.2f)", spreadOf(cpus).median)
				}
				if !ok {
					cell, anyDisturbed = cell+"\\*", true
				}
			}
			line = append(line, cell)
		}
		row(&b, line)
	}
	if anyDisturbed {
		_, _ = b.WriteString(disturbedNote)
	}
	_, _ = fmt.Fprintf(&b, "\nIn brackets CPU time per request or byte. %s\n\n%s\n", r.reached(), r.origins())
	return b.Bytes()
}
