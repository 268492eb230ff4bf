package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// contestant is a server under load.
type contestant struct {
	name  string
	addr  string          // host:port that requests go to
	key   node.Key        // requests are signed with; zero leaves them unsigned
	procs []*proc.Process // all that serve, whose cost is added up; none for the origin itself
	node  *node.Node      // the process at addr, when it is ashlar
	below string          // what hits are to come from, below the memory of node: "its disk"; "" leaves that
	limit int64           // bytes of memory that ashlar's processes are given for blocks, in all
	conns int             // instead of a workload's; 0 leaves that
	cold  bool            // takes part in reads of what it has not seen
	warm  bool            // takes part in reads of what it holds
}

// usage adds up what the processes of a contestant have used.
func (c contestant) usage() (proc.Usage, error) {
	var sum proc.Usage
	for _, p := range c.procs {
		u, err := proc.UsageOf(p.Pid())
		if err != nil {
			return sum, err
		}
		sum.CPU += u.CPU
		sum.RSS += u.RSS
		sum.PeakRSS += u.PeakRSS
	}
	return sum, nil
}

// bench is everything that runs.
type bench struct {
	dir         string // scratch, removed by stop
	ashlar      string // the executable
	objects     []object
	origin      *origin
	contestants []contestant
	started     []*proc.Process // all that serve, for stop
	missing     []string        // peers that are not installed, each with the command that installs it
}

// W4 adds 512 MiB for every round to the 256 MiB that are hit. Both are 1.25 GiB of memory at most, what a cache has
// for its index included.
const (
	memory        = 1 << 30
	memoryVarnish = "1280m"
	// An eighth of what is hit, so that the rest must come from the disk, or from nodes.
	memoryBefore = 32 << 20
)

// key is a made-up pair of credentials for the signed contestants.
var key = node.Key{Access: "AKIABENCHMARK0000000", Secret: "a-secret-of-the-benchmark-and-of-nothing-else"}

// unconfirmed is for nodes that confirm nothing at the origin during a run: their peers don't either.
const unconfirmed = "[buckets]\nconsistency = { mode = \"etag\", ttl = \"1h\" }\n"

// newBench starts the origin, which has the objects that are hit, and nothing else.
func newBench(ashlar string) (*bench, error) {
	b := &bench{ashlar: ashlar, objects: hitObjects()}
	var err error
	if b.dir, err = os.MkdirTemp("", "ashlar-bench-"); err != nil {
		return nil, err
	}
	// nginx and varnishd read it as users of their own.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return nil, err
	}
	if b.origin, err = startOrigin(); err != nil {
		return nil, err
	}
	for _, o := range b.objects {
		b.origin.add(o)
	}
	return b, nil
}

// hitObjects are what W1 to W3 read: 256 MiB.
func hitObjects() []object {
	objects := make([]object, 4)
	for i := range objects {
		objects[i] = object{name: fmt.Sprintf("hit-%d", i), size: 64 << 20, seed: uint64(i)}
	}
	return objects
}

// start starts the contestants that o names; when it names none, all, but for a second gateway in a smoke run.
func (b *bench) start(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	wanted := func(name string) bool {
		if o.Contestants == "" {
			return !o.Quick || name != "gateway-nodes"
		}
		return slices.Contains(strings.Split(o.Contestants, ","), name)
	}
	var shared nodes // of both gateways
	ashlar := func(name string, key node.Key, disk bool) func(context.Context) error {
		return func(ctx context.Context) error { return b.startAshlar(ctx, name, key, disk) }
	}
	gateway := func(name string, memory int64) func(context.Context) error {
		return func(ctx context.Context) error { return b.startGateway(ctx, &shared, name, memory) }
	}
	for _, c := range []struct {
		name  string
		start func(context.Context) error
	}{
		{"origin", b.startNothing},
		{"ashlar", ashlar("ashlar", key, false)},
		{"ashlar-anonymous", ashlar("ashlar-anonymous", node.Key{}, false)},
		{"ashlar-disk", ashlar("ashlar-disk", key, true)},
		{"ashlar-disk-anonymous", ashlar("ashlar-disk-anonymous", node.Key{}, true)},
		{"gateway", gateway("gateway", memory)}, {"gateway-nodes", gateway("gateway-nodes", memoryBefore)},
		{"nginx-slice", b.startNginxSlice},
		{"nginx-static", b.startNginxStatic},
		{"varnish", b.startVarnish},
		{"net/http", b.startFloor},
	} {
		if !wanted(c.name) {
			continue
		}
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	if len(b.contestants) == 0 && len(b.missing) == 0 {
		return fmt.Errorf("no contestant is called %q", o.Contestants)
	}
	return nil
}

// stop stops all that runs.
func (b *bench) stop() {
	for _, p := range b.started {
		_ = p.Stop(10 * time.Second)
	}
	_ = b.origin.server.Close()
	_ = os.RemoveAll(b.dir)
}

// startNothing adds the origin: no cache at all.
func (b *bench) startNothing(context.Context) error {
	b.contestants = append(b.contestants, contestant{name: "origin", addr: b.origin.addr, cold: true})
	return nil
}

func (b *bench) startAshlar(ctx context.Context, name string, key node.Key, disk bool) error {
	c := contestant{name: name, key: key, limit: memory, cold: true, warm: true}
	o := node.Options{Memory: sizeName(memory), Extra: unconfirmed}
	if disk {
		dir, err := os.MkdirTemp(b.dir, "disk-")
		if err != nil {
			return err
		}
		o = diskNode(dir, memoryBefore)
		c.below, c.limit = belowDisk, memoryBefore
	}
	o.Key = key
	return b.startNode(ctx, c, o)
}

// diskNode is a node with memory before a disk tier in dir, which has room for all that is read.
func diskNode(dir string, memory int64) node.Options {
	return node.Options{
		Memory: sizeName(memory),
		Extra:  unconfirmed + fmt.Sprintf("[cache.disk]\npath = %q\ncapacity = \"8 GiB\"\nreserve = \"0\"\n", dir),
	}
}

// startNode starts a node in front of the origin as a contestant.
func (b *bench) startNode(ctx context.Context, c contestant, o node.Options) error {
	o.Binary, o.Dir, o.Origin = b.ashlar, b.dir, "http://"+b.origin.addr
	n, err := node.Start(ctx, o)
	if err != nil {
		return err
	}
	b.started = append(b.started, n.Process)
	c.node, c.addr, c.procs = n, n.Addr, append(c.procs, n.Process)
	b.contestants = append(b.contestants, c)
	return nil
}

// What hits come from, below memory.
const (
	belowDisk  = "the disk"
	belowNodes = "the nodes"
)

// diskIdle waits until the disk tier of c has written what it was given.
func (c contestant) diskIdle(ctx context.Context) error {
	for c.below == belowDisk {
		m, err := c.node.Metrics()
		if err != nil {
			return err
		}
		if m["ashlar_disk_queue_bytes"] == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// blocks returns how many blocks c has served, from below its memory and from anywhere; zeros when it is no node.
func (c contestant) blocks() (below, all float64, err error) {
	if c.node == nil {
		return 0, 0, nil
	}
	m, err := c.node.Metrics()
	if err != nil {
		return 0, 0, err
	}
	all, err = m.Sum("ashlar_blocks_total")
	return all - m[`ashlar_blocks_total{source="memory"}`], all, err
}
