package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"
)

// groups are the families of versitygw's tests that are run, by the first word of their names.
const groups = "GetObject|HeadObject|PutObject|CreateMultipartUpload|UploadPart|UploadPartCopy|CompleteMultipartUpload|" +
	"AbortMultipartUpload|ListParts|ListMultipartUploads|Authentication|PresignedAuth|SignedStreamingPayload|" +
	"SignedStreamingPayloadTrailer|UnsignedStreamingPayloadTrailer|DeleteObject|DeleteObjects|CopyObject|ListObjects|" +
	"ListObjectsV2|GetObjectAttributes"

// runVersitygw runs the tests of versitygw's own client (versitygw test NAME), each in a process of its own. Their buckets
// have fixed names, so each worker has a server and a node to itself and runs one test at a time.
func runVersitygw(t tools, match *regexp.Regexp) ([]result, error) {
	names, err := tests(t.versitygw, match)
	if err != nil {
		return nil, err
	}
	next := make(chan string)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		results []result
		errs    []error
	)
	for range t.workers {
		wg.Go(func() {
			err := work(t, next, func(r result) {
				mu.Lock()
				defer mu.Unlock()
				results = append(results, r)
			})
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
			for range next { // let the sender finish
			}
		})
	}
	for _, n := range names {
		next <- n
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(results) != len(names) {
		return nil, fmt.Errorf("%d of %d tests were run", len(results), len(names))
	}
	return results, nil
}

// tests lists the tests that the server's client knows and match selects.
func tests(server string, match *regexp.Regexp) ([]string, error) {
	ours := regexp.MustCompile("^(" + groups + ")_")
	help, err := exec.Command(server, "test", "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(help)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[1] == "Runs" && ours.MatchString(f[0]) && match.MatchString("versitygw/"+f[0]) {
			names = append(names, f[0])
		}
	}
	sort.Strings(names)
	return names, nil
}

// work runs tests until there are no more.
func work(t tools, next <-chan string, done func(result)) error {
	w := worker{tools: t}
	defer func() { w.pair.stop() }()
	for name := range next {
		r, err := w.both(name)
		if err != nil {
			return err
		}
		done(r)
	}
	return nil
}

// worker has a server and a node, which the next test can use if the last one has passed: one that fails leaves its
// buckets behind.
type worker struct {
	tools
	pair  *pair // nil for none
	plain bool  // pair has no versioning
}

// attempts is how often a side may try that fails where the other passes. Some tests depend on the second they run in.
const attempts = 3

// both runs a test on both sides. Some tests want a server that keeps versions, and some one that does not.
func (w *worker) both(name string) (r result, err error) {
	for _, w.plain = range []bool{false, true} {
		if w.plain {
			w.pair.stop()
			w.pair = nil
			defer func() { w.pair.stop(); w.pair = nil }()
		}
		r = result{Name: name}
		if r.Direct, r.Other, err = w.side(name, direct); err != nil {
			return r, err
		}
		if r.Through, r.Output, err = w.side(name, through); err != nil {
			return r, err
		}
		d, known := w.differences["versitygw/"+name]
		settled := func() bool {
			return r.Direct == r.Through || known && r.Direct && strings.Contains(r.Output, d.text)
		}
		for r.Attempts = 1; !settled() && r.Attempts < attempts; r.Attempts++ {
			if r.Direct {
				r.Through, r.Output, err = w.side(name, through)
			} else {
				r.Direct, r.Other, err = w.side(name, direct)
			}
			if err != nil {
				return r, err
			}
		}
		if r.Direct {
			break
		}
	}
	return r, nil
}

func direct(p *pair) string  { return p.endpoint }
func through(p *pair) string { return p.node.URL() }

// side runs a test against one side, and returns whether it passed, and what it wrote if not.
func (w *worker) side(name string, endpoint func(*pair) string) (bool, string, error) {
	if w.pair == nil {
		var err error
		if w.pair, err = start(w.tools, !w.plain); err != nil {
			return false, "", err
		}
	}
	ok, output := one(w.versitygw, endpoint(w.pair), name)
	if !ok {
		w.pair.stop()
		w.pair = nil
	}
	return ok, output, nil
}

// one runs one test and returns whether it passed, and what it wrote if not.
func one(server, endpoint, name string) (bool, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, server, "test", "-a", key.Access, "-s", key.Secret, "-e", endpoint, name)
	cmd.Env = environment(os.TempDir())
	out, err := cmd.CombinedOutput()
	text := string(out)
	// The exit status is not all: a test that ran says so.
	if err == nil && strings.Contains(text, "PASS") && !strings.Contains(text, "FAIL ") {
		return true, ""
	}
	return false, text
}
