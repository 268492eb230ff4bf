// Bench compares ashlar with nginx, Varnish and a bare net/http server on one machine, in one run: the same objects,
// the same requests, in turns. Every response is checked. Figures of one server depend on the machine; the ratios of
// two servers in one round much less, so that those are what to look at.
//
// W1: random 4 KiB ranges, 64 keep-alive connections. W2: random aligned ranges of 1 MiB, 16 connections. W3: whole
// objects of 64 MiB, 4 connections. All are hits. W4: an object of 256 MiB that the cache has never seen, behind an
// origin that answers after 20 ms, read by one GET and by ranges of 1 MiB, one after the other.
//
// A run is thrown away and repeated when processes that are not of this benchmark took more CPU time during it than
// -foreign allows. That rule was fixed before anything was measured.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	ashlar := flag.String("ashlar", "bin/ashlar", "the executable `file`")
	out := flag.String("out", "out", "`folder` for the JSON file")
	floor := flag.String("serve-floor", "", "serve the net/http floor on `address` (used by the benchmark itself)")
	quick := flag.Bool("quick", false, "a smoke run: one short round, whatever else the machine does")
	flag.IntVar(&o.Rounds, "rounds", 5, "rounds; each runs every workload on every server")
	flag.DurationVar(&o.Duration, "seconds", 4*time.Second, "length of one run")
	flag.Float64Var(&o.Foreign, "foreign", 0.10, "CPU time of other processes that a run may see, in `cores`")
	flag.IntVar(&o.Attempts, "attempts", 3, "how often a run is tried before its figures are taken as they are")
	flag.IntVar(&o.ColdRounds, "cold-rounds", 3, "rounds of W4")
	flag.StringVar(&o.Only, "only", "", "workloads to run, `W1,W2,…`; all when empty")
	flag.Uint64Var(&o.Seed, "seed", 1, "of the requests")
	flag.Parse()

	objects := make([]object, 0, 4)
	for i := range cap(objects) {
		objects = append(objects, object{name: fmt.Sprintf("hit-%d", i), size: 64 << 20, seed: uint64(i)})
	}
	if *floor != "" {
		return serveFloor(*floor, objects)
	}
	if *quick {
		o.Rounds, o.Duration, o.Attempts, o.ColdRounds = 1, 500*time.Millisecond, 1, 1
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	dir, err := os.MkdirTemp("", "ashlar-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// nginx and varnishd read it as users of their own.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	binary, err := filepath.Abs(*ashlar)
	if err != nil {
		return err
	}
	// W4 adds 512 MiB for every round to the 256 MiB that are hit.
	b := &bench{dir: dir, ashlar: binary, memory: "1 GiB", memoryVCL: "1280m", objects: objects}
	if b.origin, err = startOrigin(); err != nil {
		return err
	}
	defer b.stop()
	for _, obj := range objects {
		b.origin.add(obj)
	}
	ready, stopWaiting := context.WithTimeout(ctx, time.Minute)
	defer stopWaiting()
	if err := b.start(ready); err != nil {
		return err
	}

	o.print(os.Stdout)
	report, err := b.measure(ctx, o)
	if report != nil && len(report.Runs) > 0 {
		report.print(os.Stdout)
		err = errors.Join(err, report.write(*out))
	}
	if len(b.missing) > 0 {
		fmt.Printf("\nNot installed, not compared: %s. On Debian: apt-get install nginx varnish\n",
			strings.Join(b.missing, ", "))
	}
	return err
}

// write writes the report as a JSON file named after the time.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "bench-"+r.Start.UTC().Format("20060102-150405")+".json")
	fmt.Println("\nwritten:", file)
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
