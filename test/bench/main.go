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
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `bench [flags]              W1 to W4 on ashlar and its peers, in turns: table, ratios, JSON, Markdown, SVG
bench scale [flags]        the cost of a hit or a read as one thing grows
bench profile [flags]      CPU and allocation profiles of W1 to W4, and the top ten of each
bench cost [flags]         what a node costs that does nothing: start, idle CPU, memory
bench compare A B          what changed between two JSON files, beyond noise
bench publish FILE…        puts figures that were measured before into the documentation in this folder
-h after any of them lists its flags`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return runPeers(ctx, args)
	}
	switch args[0] {
	case "scale":
		return runScale(ctx, args[1:])
	case "profile":
		return runProfile(ctx, args[1:])
	case "cost":
		return runCost(ctx, args[1:])
	case "compare":
		return runCompare(os.Stdout, args[1:])
	case "publish":
		return runPublish(args[1:])
	case "floor": // used by the benchmark itself
		if len(args) == 2 {
			return serveFloor(args[1], hitObjects())
		}
	}
	return fmt.Errorf("no subcommand %q:\n%s", strings.Join(args, " "), usage)
}

// files are the flags that say what is run and where results go.
type files struct{ ashlar, out, publish string }

func (f *files) flags(set *flag.FlagSet) {
	set.StringVar(&f.ashlar, "ashlar", "bin/ashlar", "the executable `file`")
	set.StringVar(&f.out, "out", "out", "`folder` for what is written")
	set.StringVar(&f.publish, "publish", "", "`folder` of the repository, whose documentation gets the figures")
}

// finish prints r and writes it to files; whole says that nothing of it is missing.
func (f *files) finish(r *report, whole bool) error {
	if err := r.finish(os.Stdout, f.out); err != nil || f.publish == "" || !whole {
		return err
	}
	return r.publish(f.publish)
}

// parse parses args, which must all be flags, and makes f.ashlar absolute.
func (f *files) parse(set *flag.FlagSet, args []string) error {
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected %q", set.Args())
	}
	var err error
	f.ashlar, err = filepath.Abs(f.ashlar)
	return err
}

func runPeers(ctx context.Context, args []string) error {
	var o options
	var f files
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.Usage = func() {
		_, _ = fmt.Fprintln(set.Output(), usage)
		set.PrintDefaults()
	}
	f.flags(set)
	parsed := o.flags(set)
	set.StringVar(&o.Only, "only", "", "workloads to run, `W1,W2,…`; all when empty")
	set.StringVar(&o.Contestants, "contestants", "", "servers to run, `ashlar,nginx-slice,…`; all when empty")
	if err := f.parse(set, args); err != nil {
		return err
	}
	parsed()

	b, err := newBench(f.ashlar)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := b.start(ctx, o); err != nil {
		return err
	}
	for _, m := range b.missing {
		fmt.Println("not installed, not compared:", m)
	}
	if len(b.contestants) == 0 {
		return errors.New("nothing to measure")
	}
	o.print(os.Stdout)
	r := b.newReport(ctx, o, kindPeers, args)
	r.Routing, err = routingRuns(ctx, goalNodes, o.Rounds)
	if err == nil {
		err = b.measure(ctx, o, r)
	}
	return errors.Join(err, f.finish(r, err == nil))
}
