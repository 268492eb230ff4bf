package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// runObjstore runs the acceptance test of thanos-io/objstore on both sides.
func runObjstore(t tools, match *regexp.Regexp) ([]result, error) {
	const name = "AcceptanceTest"
	if !match.MatchString("objstore/" + name) {
		return nil, nil
	}
	p, err := start(t, true)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	r := result{Name: name}
	r.Direct, r.Other = acceptance(t, p.endpoint)
	r.Through, r.Output = acceptance(t, p.node.URL())
	return []result{r}, nil
}

// acceptance returns whether the test passed, and what it wrote if not.
func acceptance(t tools, endpoint string) (bool, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.objstore, "-test.v")
	cmd.Env = environment(os.TempDir(), "TEST_ENDPOINT="+strings.TrimPrefix(endpoint, "http://"),
		"TEST_ACCESS_KEY="+key.Access, "TEST_SECRET_KEY="+key.Secret)
	out, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(out), "--- PASS: TestAcceptance") {
		return true, ""
	}
	return false, string(out)
}
