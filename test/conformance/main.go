// Command conformance runs the same tests against an S3 server directly and through a node in front of that server. It
// fails when a test passes directly and not through the node, unless accepted.txt names the test and says why.
//
// The tests are those of versitygw's own client (versitygw test NAME), each in a process of its own. Their buckets have
// fixed names, so each worker has a server and a node to itself and runs one test at a time.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

//go:embed accepted.txt
var acceptedText string

// groups are the families of tests by the first word of their names.
const groups = "GetObject|HeadObject|PutObject|CreateMultipartUpload|UploadPart|UploadPartCopy|CompleteMultipartUpload|" +
	"AbortMultipartUpload|ListParts|ListMultipartUploads|Authentication|PresignedAuth|SignedStreamingPayload|" +
	"SignedStreamingPayloadTrailer|UnsignedStreamingPayloadTrailer|DeleteObject|DeleteObjects|CopyObject|ListObjects|" +
	"ListObjectsV2|GetObjectAttributes"

// atLeast is how many tests must have been run and must pass on both sides: a run that finds fewer has gone wrong.
const atLeast = 140

// key is both the server's root key and the client's at the node: the tests sign with the server's.
var key = node.Key{Access: "AKIACONFORM000000001", Secret: "conformance/secret+of/tests"}

// result is one test on both sides.
type result struct {
	Name     string `json:"name"`
	Direct   bool   `json:"direct"`
	Through  bool   `json:"through"`
	Accepted string `json:"accepted,omitempty"` // the reason why it may fail through the node
	Output   string `json:"output,omitempty"`   // of the failure through the node, when it passes directly
}

func main() {
	ashlar := flag.String("ashlar", "bin/ashlar", "the node's executable")
	server := flag.String("versitygw", os.Getenv("TEST_VERSITYGW"), "the server's executable, which is the tests' too")
	out := flag.String("out", "out", "folder for conformance.md and conformance.json")
	match := flag.String("run", "^("+groups+")_", "names of the tests to run, a regular expression")
	workers := flag.Int("workers", 2, "tests at once, each with a server and a node of its own")
	flag.Parse()
	results, err := run(*ashlar, *server, *match, *workers)
	if err == nil {
		err = report(*out, results)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ashlar, server, match string, workers int) ([]result, error) {
	if server == "" {
		return nil, errors.New("no versitygw: run by make conformance")
	}
	names, err := tests(server, match)
	if err != nil {
		return nil, err
	}
	reasons, err := accepted(acceptedText)
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
	for range workers {
		wg.Go(func() {
			err := work(ashlar, server, next, func(r result) {
				r.Accepted = reasons[r.Name]
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
	sort.Slice(results, func(i, j int) bool { return results[i].Name < results[j].Name })
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(results) != len(names) {
		return nil, fmt.Errorf("%d of %d tests were run", len(results), len(names))
	}
	return results, nil
}

// tests lists the tests that the server's client knows and match selects.
func tests(server, match string) ([]string, error) {
	re, err := regexp.Compile(match)
	if err != nil {
		return nil, err
	}
	help, err := exec.Command(server, "test", "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(help)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "Runs" && re.MatchString(f[0]) {
			names = append(names, f[0])
		}
	}
	sort.Strings(names)
	return names, nil
}

// accepted reads the file of accepted differences: reasons by name.
func accepted(text string) (map[string]string, error) {
	reasons := make(map[string]string)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("accepted.txt: %q has no reason", line)
		}
		reasons[name] = strings.TrimSpace(reason)
	}
	return reasons, nil
}

// work runs tests until there are no more. A test that fails leaves its buckets behind, which would fail those after it:
// they get a new server and a new node.
func work(ashlar, server string, next <-chan string, done func(result)) error {
	var p *pair
	defer func() { p.stop() }()
	side := func(name string, endpoint func(*pair) string) (bool, string, error) {
		if p == nil {
			var err error
			if p, err = start(ashlar, server); err != nil {
				return false, "", err
			}
		}
		ok, output := one(server, endpoint(p), name)
		if !ok {
			p.stop()
			p = nil
		}
		return ok, output, nil
	}
	for name := range next {
		r := result{Name: name}
		var err error
		if r.Direct, _, err = side(name, func(p *pair) string { return p.endpoint }); err != nil {
			return err
		}
		var output string
		if r.Through, output, err = side(name, func(p *pair) string { return p.node.URL() }); err != nil {
			return err
		}
		if r.Direct && !r.Through {
			r.Output = output
		}
		done(r)
	}
	return nil
}

// pair is a server and a node in front of it.
type pair struct {
	dir      string
	endpoint string // of the server
	origin   *proc.Process
	node     *node.Node
}

func start(ashlar, server string) (_ *pair, err error) {
	p := &pair{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "ashlar-conformance-"); err != nil {
		return nil, err
	}
	for _, d := range []string{"data", "versions", "iam"} {
		if err := os.Mkdir(filepath.Join(p.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	p.endpoint = "http://" + addr
	p.origin, err = proc.Start(proc.Spec{Name: "versitygw", Path: server, Args: []string{
		"--access", key.Access, "--secret", key.Secret, "--port", addr, "--region", "us-east-1",
		"--iam-dir", filepath.Join(p.dir, "iam"), "--keep-alive", "--quiet",
		"posix", "--versioning-dir", filepath.Join(p.dir, "versions"), filepath.Join(p.dir, "data"),
	}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.origin.WaitHTTP(ctx, p.endpoint, nil); err != nil {
		return nil, err
	}
	p.node, err = node.Start(ctx, node.Options{
		Binary: ashlar, Dir: p.dir, Origin: p.endpoint, OriginKey: key, Key: key, Memory: "256 MiB",
	})
	return p, err
}

// stop ends what start has started. A nil pair is nothing.
func (p *pair) stop() {
	if p == nil {
		return
	}
	if p.node != nil {
		p.node.Kill()
	}
	if p.origin != nil {
		p.origin.Kill()
	}
	_ = os.RemoveAll(p.dir)
}

// one runs one test and returns whether it passed, and what it wrote.
func one(server, endpoint, name string) (bool, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, server, "test", "-a", key.Access, "-s", key.Secret, "-e", endpoint, name)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "AWS_EC2_METADATA_DISABLED=true"}
	out, err := cmd.CombinedOutput()
	text := string(out)
	// The exit status is not all: a test that ran says so.
	return err == nil && strings.Contains(text, "PASS") && !strings.Contains(text, "FAIL "), text
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
	for _, r := range results {
		switch {
		case r.Direct && r.Through:
			both++
			continue
		case r.Direct:
			direct++
			if r.Accepted == "" {
				unexpected++
				fmt.Printf("passes directly, not through: %s\n%s\n", r.Name, r.Output)
			}
			fmt.Fprintf(&list, "| %s | pass | fail | %s |\n", r.Name, r.Accepted)
		case r.Through:
			through++
			fmt.Fprintf(&list, "| %s | fail | pass | |\n", r.Name)
		default:
			fmt.Fprintf(&list, "| %s | fail | fail | |\n", r.Name)
		}
	}
	summary := fmt.Sprintf("%d tests: %d pass on both sides, %d only directly, %d only through, %d on neither",
		len(results), both, direct, through, len(results)-both-direct-through)
	text := "# Conformance\n\n" + summary + ".\n\n| test | directly | through | accepted because |\n| --- | --- | --- | --- |\n" +
		list.String()
	if err := os.WriteFile(filepath.Join(dir, "conformance.md"), []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Println(summary)
	if unexpected > 0 {
		return fmt.Errorf("%d tests pass directly and not through", unexpected)
	}
	if both < atLeast {
		return fmt.Errorf("%d tests pass on both sides, at least %d must", both, atLeast)
	}
	return nil
}
