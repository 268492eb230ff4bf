package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// runS3tests runs the tests in Python, one process for each side, both over one server.
func runS3tests(t tools, match *regexp.Regexp) ([]result, error) {
	p, err := start(t, true)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	direct, err := python(t, p.endpoint, p.endpoint, match)
	if err != nil {
		return nil, fmt.Errorf("directly: %w", err)
	}
	through, err := python(t, p.node.URL(), p.endpoint, match)
	if err != nil {
		return nil, fmt.Errorf("through the node: %w", err)
	}
	if len(direct) != len(through) {
		return nil, fmt.Errorf("%d tests directly, %d through the node", len(direct), len(through))
	}
	var out []result
	for i, d := range direct {
		g := through[i]
		out = append(out, result{Name: d.Name, Direct: d.OK, Through: g.OK, Other: d.Output, Output: g.Output})
	}
	return out, nil
}

// outcome is one line of the output of the tests.
type outcome struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Output string `json:"output"`
}

// python runs the tests against an endpoint. They seed objects at the origin.
func python(t tools, endpoint, origin string, match *regexp.Regexp) ([]outcome, error) {
	setup, err := json.Marshal(map[string]string{
		"endpoint": endpoint, "origin": origin, "access_key": key.Access, "secret_key": key.Secret, "region": "us-east-1",
		"match": match.String(),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.python, t.s3tests)
	cmd.Env = environment(os.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(setup), os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var out []outcome
	lines := bufio.NewScanner(bytes.NewReader(stdout))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		out = append(out, o)
	}
	return out, lines.Err()
}
