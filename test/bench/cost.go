package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// Goals of a node that nobody asks anything.
const (
	goalStart = 200 * time.Millisecond // from exec to ready, with an empty disk
	goalIdle  = 0.005                  // cores
)

// runCost reports what a node costs that does nothing. It judges nothing by its exit status: times are the machine's.
func runCost(ctx context.Context, args []string) error {
	var f files
	set := flag.NewFlagSet("bench cost", flag.ContinueOnError)
	f.flags(set)
	starts := set.Int("starts", 9, "nodes that are started, one after the other")
	idle := set.Duration("idle", 20*time.Second, "how long a node is watched that does nothing")
	if err := f.parse(set, args); err != nil {
		return err
	}
	b, err := newBench(f.ashlar)
	if err != nil {
		return err
	}
	defer b.stop()

	var times []float64
	for i := range max(1, *starts) {
		took, err := b.startOnce(ctx)
		if err != nil {
			return fmt.Errorf("start %d: %w", i, err)
		}
		times = append(times, took.Seconds()*1e3)
	}
	s := spreadOf(times)
	fmt.Printf("start with an empty disk, ready after: %.0f ms (%.0f–%.0f, %d starts); goal %d ms: %s\n", s.median,
		s.min, s.max, len(times), goalStart.Milliseconds(), met(s.median <= float64(goalStart.Milliseconds())))

	dir, err := os.MkdirTemp(b.dir, "disk-")
	if err != nil {
		return err
	}
	if err := b.startNode(ctx, contestant{name: "ashlar"}, diskNode(dir, memory)); err != nil {
		return err
	}
	c := b.contestants[0]
	if err := sleep(ctx, 2*time.Second); err != nil { // what a start leaves behind
		return err
	}
	before, err := sample(c)
	if err != nil {
		return err
	}
	if err := sleep(ctx, *idle); err != nil {
		return err
	}
	after, err := sample(c)
	if err != nil {
		return err
	}
	cores := (after.server.CPU - before.server.CPU).Seconds() / after.at.Sub(before.at).Seconds()
	fmt.Printf("idle: %.2f%% of a core in %v; goal %.1f%%: %s\n", 100*cores, *idle, 100*goalIdle, met(cores <= goalIdle))
	fmt.Printf("idle: %d MiB resident, %s of blocks configured\n", after.server.RSS>>20, sizeName(memory))
	return nil
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "NOT met"
}

// startOnce starts a node with an empty disk, and stops it. The time is until it answers that it is ready, which is
// asked every few milliseconds.
func (b *bench) startOnce(ctx context.Context) (time.Duration, error) {
	dir, err := os.MkdirTemp(b.dir, "disk-")
	if err != nil {
		return 0, err
	}
	o := diskNode(dir, memory)
	o.Binary, o.Dir, o.Origin = b.ashlar, b.dir, "http://"+b.origin.addr
	begin := time.Now()
	n, err := node.Start(ctx, o)
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	return took, n.Stop(10 * time.Second)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
