// Command conformance runs the same tests against an S3 server directly and through a node in front of that server. It
// fails when a test passes directly and not through the node, unless accepted.txt says why and how.
//
// The tests are those of versitygw's own client, our own after the behaviours that ceph/s3-tests names, and the acceptance
// test of thanos-io/objstore.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

//go:embed accepted.txt
var acceptedText string

// tools are the programs that a run needs.
type tools struct {
	ashlar    string // the node's executable
	versitygw string // the server's, which has tests too
	python    string // with boto3
	s3tests   string // the folder of the tests in Python
	objstore  string // the executable of test/objstore
	workers   int    // tests of versitygw at once

	differences map[string]difference // that are accepted, by the name of the test
}

// suites are run one after the other. atLeast is how many of their tests must pass on both sides: a run that finds fewer
// has gone wrong.
var suites = []struct {
	name    string
	run     func(tools, *regexp.Regexp) ([]result, error)
	atLeast int
}{
	{"versitygw", runVersitygw, 300},
	{"s3tests", runS3tests, 100},
	{"objstore", runObjstore, 1},
}

// result is one test on both sides.
type result struct {
	Name     string `json:"name"`               // suite/test
	Attempts int    `json:"attempts,omitempty"` // on the side that failed first, where only one did
	Direct   bool   `json:"direct"`
	Through  bool   `json:"through"`
	Accepted string `json:"accepted,omitempty"` // the reason why it may fail through the node as it did
	Output   string `json:"output,omitempty"`   // of the failure through the node
	Other    string `json:"other,omitempty"`    // of the failure directly
}

// difference is one that is accepted.
type difference struct{ text, reason string }

func main() {
	var t tools
	flag.StringVar(&t.ashlar, "ashlar", "bin/ashlar", "the node's executable")
	flag.StringVar(&t.versitygw, "versitygw", os.Getenv("TEST_VERSITYGW"), "the server's executable, which is the tests' too")
	flag.StringVar(&t.python, "python", filepath.Join(os.Getenv("TEST_VENV"), "bin", "python"), "Python with boto3")
	flag.StringVar(&t.s3tests, "s3tests", "test/conformance/s3tests", "folder of the tests in Python")
	flag.StringVar(&t.objstore, "objstore", "bin/objstore.test", "the executable of test/objstore")
	flag.IntVar(&t.workers, "workers", 2, "tests of versitygw at once, each with a server and a node of its own")
	out := flag.String("out", "out", "folder for conformance.md and conformance.json")
	match := flag.String("run", "", "names of the tests to run (suite/test), a regular expression; \"\" is all")
	flag.Parse()
	if err := run(t, *match, *out); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(t tools, match, out string) error {
	re, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	if t.differences, err = accepted(acceptedText); err != nil {
		return err
	}
	var all []result
	for _, s := range suites {
		results, err := s.run(t, re)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		both := 0
		for i := range results {
			r := &results[i]
			r.Name = s.name + "/" + r.Name
			d, known := t.differences[r.Name]
			if known && strings.Contains(r.Output, d.text) {
				r.Accepted = d.reason
			}
			if r.Direct && r.Through {
				both++
				if known {
					return fmt.Errorf("accepted.txt: %s passes on both sides", r.Name)
				}
			}
		}
		if match == "" && both < s.atLeast {
			return fmt.Errorf("%s: %d tests pass on both sides, at least %d must", s.name, both, s.atLeast)
		}
		all = append(all, results...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return report(out, all)
}

// accepted reads the file of accepted differences, by the name of the test.
func accepted(text string) (map[string]difference, error) {
	out := make(map[string]difference)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 3 || f[0] == "" || f[1] == "" || f[2] == "" {
			return nil, fmt.Errorf("accepted.txt: %q is not a name, what the failure says and the reason", line)
		}
		out[f[0]] = difference{text: f[1], reason: f[2]}
	}
	return out, nil
}

// report writes both files and returns an error when a difference is not accepted.
func report(dir string, results []result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "conformance.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	var both, direct, through, unexpected int
	var list strings.Builder
	row := func(r result, directly, through, note string) {
		note = strings.ReplaceAll(note, "|", "\\|")
		fmt.Fprintf(&list, "| %s | %s | %s | %s |\n", r.Name, directly, through, note)
	}
	for _, r := range results {
		switch {
		case r.Direct && r.Through:
			both++
			if r.Attempts > 1 {
				row(r, "pass", "pass", fmt.Sprintf("on one side at attempt %d only", r.Attempts))
			}
		case r.Direct:
			direct++
			if r.Accepted == "" {
				unexpected++
				fmt.Printf("passes directly, not through: %s\n%s\n", r.Name, r.Output)
			}
			row(r, "pass", "fail", r.Accepted)
		case r.Through:
			through++
			row(r, "fail", "pass", "directly: "+gist(r.Other))
		default:
			row(r, "fail", "fail", "directly: "+gist(r.Other))
		}
	}
	summary := fmt.Sprintf("%d tests: %d pass on both sides, %d only directly, %d only through, %d on neither",
		len(results), both, direct, through, len(results)-both-direct-through)
	text := "# Conformance\n\n" + summary + ". Those that do not pass on both sides at once:\n\n" +
		"| test | directly | through | why |\n| --- | --- | --- | --- |\n" + list.String()
	if err := os.WriteFile(filepath.Join(dir, "conformance.md"), []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Println(summary)
	if unexpected > 0 {
		return fmt.Errorf("%d tests pass directly and not through", unexpected)
	}
	return nil
}

// gist is the last line of what a test wrote, without colours and cut to a length that can be read.
func gist(output string) string {
	lines := strings.Split(strings.TrimSpace(colours.ReplaceAllString(output, "")), "\n")
	last := []rune(strings.TrimSpace(lines[len(lines)-1]))
	if len(last) > 200 {
		return string(last[:200]) + "…"
	}
	return string(last)
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
