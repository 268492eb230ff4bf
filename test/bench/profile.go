package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// runProfile writes CPU and allocation profiles of a node, signed requests from memory, under each workload.
func runProfile(ctx context.Context, args []string) error {
	var o options
	var f files
	set := flag.NewFlagSet("bench profile", flag.ContinueOnError)
	f.flags(set)
	parsed := o.flags(set)
	set.StringVar(&o.Only, "only", "", "workloads to run, `W1,W2,…`; all when empty")
	if err := f.parse(set, args); err != nil {
		return err
	}
	parsed()
	seconds := max(1, int(o.Duration.Seconds())) // pprof takes whole ones
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}

	b, err := newBench(f.ashlar)
	if err != nil {
		return err
	}
	defer b.stop()
	r := b.newReport(ctx, o, kindProfile, args)
	p := profiler{bench: b, report: r, out: f.out, seconds: seconds}
	for _, c := range []struct {
		name string
		env  []string
	}{
		{name: "ashlar"},
		// Every 4 KiB and not every 512: what hardly allocates must show too. It costs CPU time, so it has a node of its own.
		{name: "ashlar-allocs", env: []string{"GODEBUG=memprofilerate=4096"}},
	} {
		o := node.Options{Memory: sizeName(memory), Key: key, Extra: unconfirmed, Env: c.env}
		if err := b.startNode(ctx, contestant{name: c.name, key: key, warm: true}, o); err != nil {
			return err
		}
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	duration := time.Duration(seconds+1) * time.Second // longer than a profile, which sees nothing but load
	for _, w := range workloads(b.objects, o.Seed) {
		if !o.wants(w.name) {
			continue
		}
		err := p.take(ctx, w.name, func(c contestant) error {
			_, err := b.hits(w, c, duration, o.Seed)
			return err
		})
		if err != nil {
			return err
		}
	}
	b.origin.latency.Store(int64(coldLatency))
	for _, name := range []string{w4Whole, w4Ranges} {
		if !o.wants(name) {
			continue
		}
		round := 0
		err := p.take(ctx, name, func(c contestant) error {
			round++
			_, err := b.coldRead(ctx, name, c, round, 1)
			return err
		})
		if err != nil {
			return err
		}
	}
	return f.finish(r, true)
}

// profiler takes profiles of the two nodes of a bench: of CPU time of the first, of allocations of the second.
type profiler struct {
	*bench
	report  *report // that gets them
	out     string  // folder
	seconds int     // of a CPU profile
}

// take profiles the nodes under a load, and prints the top ten of each profile.
func (p *profiler) take(ctx context.Context, name string, load func(contestant) error) error {
	slug := filepath.Join(p.out, strings.ReplaceAll(name, " ", "-"))
	taken := profile{Workload: name}
	var err error
	fmt.Printf("\n%s, CPU time: %s\n", name, slug+"-cpu.pprof")
	if taken.CPU, err = p.cpu(ctx, slug+"-cpu.pprof", load); err != nil {
		return err
	}
	fmt.Printf("\n%s, bytes allocated: %s\n", name, slug+"-allocs.pprof")
	if taken.Allocs, taken.Objects, err = p.allocs(ctx, slug+"-allocs.pprof", load); err != nil {
		return err
	}
	taken.Packages = byPackage(taken.CPU)
	taken.CPU, taken.Allocs = firstOf(taken.CPU), firstOf(taken.Allocs)
	p.report.Profiles = append(p.report.Profiles, taken)
	return nil
}

// cpu makes the load again and again while a CPU profile of it is taken.
func (p *profiler) cpu(ctx context.Context, file string, load func(contestant) error) ([]function, error) {
	c := p.contestants[0]
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.seconds)*time.Second+time.Minute)
	defer cancel()
	taken := make(chan error, 1)
	go func() {
		taken <- fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", c.node.Admin, p.seconds), file)
	}()
	for loading := true; loading; {
		if err := load(c); err != nil {
			cancel()
			<-taken
			return nil, err
		}
		select {
		case err := <-taken:
			if err != nil {
				return nil, err
			}
			loading = false
		default:
		}
	}
	return top(ctx, "cpu", file)
}

// allocs makes the load once, between two profiles of all that was allocated so far, and writes their difference.
// objects are those allocated for each request.
func (p *profiler) allocs(
	ctx context.Context, file string, load func(contestant) error,
) (all []function, objects float64, err error) {
	c := p.contestants[1]
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.seconds)*time.Second+time.Minute)
	defer cancel()
	// What was allocated since the last collection is in no profile, so there is one before each.
	url := "http://" + c.node.Admin + "/debug/pprof/heap?gc=1"
	profiles := [3]string{} // of the same moments
	for i := range profiles {
		profiles[i] = filepath.Join(p.dir, fmt.Sprintf("heap-%d", i))
	}
	var at [3]node.Metrics // twice before the load, which tells what a look costs, and after it
	for i := range at {
		if i == 2 {
			loaded := c
			loaded.node = nil // of whom metrics are not read around the load
			if err := load(loaded); err != nil {
				return nil, 0, err
			}
		}
		if err := fetch(ctx, url, profiles[i]); err != nil {
			return nil, 0, err
		}
		if at[i], err = c.node.Metrics(); err != nil {
			return nil, 0, err
		}
	}
	if _, err := pprof(ctx, "-proto", "-output="+file, "-base="+profiles[1], profiles[2]); err != nil {
		return nil, 0, err
	}
	const requests, mallocs = "ashlar_requests_total", "go_memstats_mallocs_total"
	n, loaded, looking := grown(at[1], at[2], requests), grown(at[1], at[2], mallocs), grown(at[0], at[1], mallocs)
	objects = (loaded - looking) / n
	fmt.Printf("%.0f requests, %.1f objects allocated for each\n", n, objects)
	all, err = top(ctx, "alloc_space", file)
	return all, objects, err
}

// grown is by how much a metric grew that is there before and after.
func grown(before, after node.Metrics, name string) float64 {
	a, errA := before.Sum(name)
	b, errB := after.Sum(name)
	if errA != nil || errB != nil {
		return math.NaN()
	}
	return b - a
}

// observers are the frames of the admin listener: what it costs to look.
const observers = `ServeMux|runtime/pprof|Registry`

// top returns the functions of a profile, those that hold most of it first, and prints ten.
func top(ctx context.Context, index, file string) ([]function, error) {
	out, err := pprof(ctx, "-top", "-nodecount=0", "-nodefraction=0", "-relative_percentages",
		"-sample_index="+index, "-ignore="+observers, file)
	if err != nil {
		return nil, err
	}
	all, err := parseTop(out)
	for _, f := range firstOf(all) {
		fmt.Printf("%6.2f%% %6.2f%%  %s\n", f.Flat, f.Cum, f.Name)
	}
	return all, err
}

// pprof runs go tool pprof and returns what it prints.
func pprof(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof: %w\n%s", err, &stderr)
	}
	return out, nil
}

// fetch writes what url answers to file.
func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, data)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
