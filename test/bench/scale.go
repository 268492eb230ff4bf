package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// scaling measures how the cost of a hit or a read grows with one thing, while all else stays. The steps are the
// contestants of its report.
type scaling struct {
	options options
	report  *report
	fill    time.Duration // bound of filling a cache with the blocks of one step
}

// series is one thing that grows.
type series struct {
	name string
	run  func(context.Context, *scaling, *bench) error
}

// allSeries are all there are.
func allSeries() []series {
	return []series{
		{"blocks", blocksCached}, {"connections", connections}, {"nodes", nodesRouted}, {"objects", objectSizes},
		{"blocksize", blockSizes},
	}
}

func runScale(ctx context.Context, args []string) error {
	var f files
	var s scaling
	set := flag.NewFlagSet("bench scale", flag.ContinueOnError)
	f.flags(set)
	parsed := s.options.flags(set)
	set.DurationVar(&s.fill, "fill", 10*time.Minute, "bound of filling a cache for one step, which fails beyond it")
	set.StringVar(&s.options.Only, "only", "",
		"series to run, `blocks,connections,nodes,objects,blocksize`; all when empty")
	if err := f.parse(set, args); err != nil {
		return err
	}
	parsed()
	s.options.print(os.Stdout)
	var err error
	for _, x := range allSeries() {
		if s.options.wants(x.name) {
			err = errors.Join(err, s.one(ctx, f, args, x))
		}
	}
	if s.report == nil {
		return errors.Join(err, fmt.Errorf("no series is called %q", s.options.Only))
	}
	return errors.Join(err, f.finish(s.report, err == nil))
}

// one runs one series with an origin and a folder of its own.
func (s *scaling) one(ctx context.Context, f files, args []string, x series) error {
	b, err := newBench(f.ashlar)
	if err != nil {
		return err
	}
	defer b.stop()
	if s.report == nil {
		s.report = b.newReport(ctx, s.options, kindSeries, args)
	}
	if err := x.run(ctx, s, b); err != nil {
		return fmt.Errorf("%s: %w", x.name, err)
	}
	return nil
}

// upTo are the steps of a series; a smoke run takes those up to quick.
func (s *scaling) upTo(quick int64, steps ...int64) []int64 {
	if !s.options.Quick {
		return steps
	}
	return slices.DeleteFunc(steps, func(n int64) bool { return n > quick })
}

// measure runs workloads of the comparison on all contestants of b, which are the steps of the series.
func (s *scaling) measure(ctx context.Context, b *bench, name, only string) error {
	o := s.options
	o.Only = only
	r := &report{}
	err := b.measure(ctx, o, r)
	for _, run := range r.Runs {
		run.Workload = name + ", " + run.Workload
		s.report.Runs = append(s.report.Runs, run)
	}
	return err
}

// blocksCached measures hits on 1 KiB objects as more of them are cached, each a block of its own, and known: 64
// connections ask for any of them.
func blocksCached(ctx context.Context, s *scaling, b *bench) error {
	const (
		size   = 1 << 10
		chunk  = 50_000 // requests prepared at a time
		sample = 1 << 16
	)
	err := b.startNode(ctx, contestant{name: "ashlar"}, node.Options{
		Memory: "2 GiB", InfoMemory: "3 GiB", Extra: unconfirmed,
	})
	if err != nil {
		return err
	}
	c := b.contestants[0]
	made := func(i int64) object { return object{name: fmt.Sprintf("small-%d", i), size: size, seed: uint64(i)} }
	held := int64(0)
	for _, n := range s.upTo(10_000, 1e3, 1e4, 1e5, 1e6) {
		deadline := time.Now().Add(s.fill)
		for held < n {
			var parts []part
			for i := held; i < min(n, held+chunk); i++ {
				b.origin.add(made(i))
				parts = append(parts, part{obj: made(i), length: size})
			}
			requests, err := prepare(c.addr, c.key, parts)
			if err != nil {
				return err
			}
			l := load{
				addr: c.addr, requests: requests, conns: 64, count: len(parts), inOrder: true, step: 8,
				duration: time.Until(deadline),
			}
			got, err := l.run()
			if err != nil {
				return err
			}
			if got.Responses < len(parts) {
				return fmt.Errorf("%d blocks could not be read in %v", n, s.fill)
			}
			held += int64(len(parts))
		}
		rng := rand.New(rand.NewPCG(s.options.Seed, uint64(n)))
		w := workload{name: "blocks cached, W1 of 1 KiB", unit: "req/s", conns: 64, step: 8}
		for range min(n, sample) {
			w.parts = append(w.parts, part{obj: made(rng.Int64N(n)), length: size})
		}
		step := c
		step.name = fmt.Sprint(n)
		for round := range s.options.Rounds {
			err := s.report.attempt(ctx, s.options, func(attempt int) (result, error) {
				res, err := b.hits(w, step, s.options.Duration, s.options.Seed+uint64(round)<<16+uint64(attempt))
				res.Round = round
				return res, err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// connections measures W1 as more connections make it.
func connections(ctx context.Context, s *scaling, b *bench) error {
	const most = 4096
	if err := proc.OpenFiles(2*most + 256); err != nil {
		return err
	}
	err := b.startNode(ctx, contestant{key: key, warm: true}, node.Options{
		Memory: sizeName(memory), Key: key,
		Extra: unconfirmed + fmt.Sprintf("[server.limits]\nmax_connections = %d\nmax_requests = %[1]d\n", 2*most),
	})
	if err != nil {
		return err
	}
	c := b.contestants[0]
	b.contestants = nil
	for _, n := range s.upTo(256, 1, 4, 16, 64, 256, 1024, most) {
		c.name, c.conns = fmt.Sprint(n), int(n)
		b.contestants = append(b.contestants, c)
	}
	return s.measure(ctx, b, "connections", "W1")
}

// blockSizes measures all workloads on nodes with blocks of other sizes, which fetch 8 MiB at once where that is more
// than a block, and have twice that under way.
func blockSizes(ctx context.Context, s *scaling, b *bench) error {
	const fetch = 8 << 20
	for _, size := range s.upTo(4<<20, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20) {
		window := max(1, fetch/size)
		err := b.startNode(ctx, contestant{name: sizeName(size), key: key, cold: true, warm: true}, node.Options{
			Memory: sizeName(memory), Key: key,
			Extra: unconfirmed + fmt.Sprintf("block_size = %q\nfetch_window = %d\nread_window = %d\n",
				sizeName(size), window, 2*window),
		})
		if err != nil {
			return err
		}
	}
	return s.measure(ctx, b, "block size", "W1,W2,W3,W4")
}

// objectSizes reads objects of growing size whole, on one connection, behind the latency of W4: for the first time, and
// once more. Small ones are as many as make up a while.
func objectSizes(ctx context.Context, s *scaling, b *bench) error {
	const (
		together = 64 << 20
		most     = 100
	)
	b.origin.latency.Store(int64(coldLatency))
	sizes := s.upTo(256<<20, 4<<10, 64<<10, 1<<20, 16<<20, 256<<20, 1<<30, 10<<30)
	for round := range s.options.ColdRounds {
		// A new node for each: one whose memory is full of what was read before keeps less of what comes.
		b.contestants = nil
		err := b.startNode(ctx, contestant{key: key}, node.Options{Memory: sizeName(memory), Key: key, Extra: unconfirmed})
		if err != nil {
			return err
		}
		c := b.contestants[0]
		for _, size := range sizes {
			c.name = sizeName(size)
			var parts []part // of the first read that came last
			err := s.report.attempt(ctx, s.options, func(attempt int) (result, error) {
				parts = nil
				for i := range min(most, max(1, together/size)) {
					o := object{name: fmt.Sprintf("size-%d-%d-%d-%d", size, round, attempt, i), size: size, seed: uint64(i)}
					b.origin.add(o)
					parts = append(parts, part{obj: o, length: size})
				}
				return b.wholeReads("object size, first read", c, parts, round)
			})
			if err != nil {
				return err
			}
			err = s.report.attempt(ctx, s.options, func(int) (result, error) {
				return b.wholeReads("object size, second read", c, parts, round)
			})
			if err != nil {
				return err
			}
		}
		if err := c.node.Stop(10 * time.Second); err != nil {
			return err
		}
	}
	return nil
}

// wholeReads reads parts in order on one connection.
func (b *bench) wholeReads(name string, c contestant, parts []part, round int) (result, error) {
	res := result{Workload: name, Contestant: c.name, Unit: "MB/s", Round: round}
	requests, err := prepare(c.addr, c.key, parts)
	if err != nil {
		return res, err
	}
	l := load{
		addr: c.addr, requests: requests, conns: 1, count: len(requests), inOrder: true, step: 4 << 10,
		duration: time.Minute,
	}
	got, err := b.watch(&res, c, l)
	if err != nil {
		return res, err
	}
	res.Rate = float64(got.Bytes) / 1e6 / got.Elapsed.Seconds()
	res.CPU /= float64(got.Bytes) / 1e9
	return res, nil
}

// sizeName spells a multiple of 1 KiB as the configuration does.
func sizeName(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if n >= u.bytes {
			return fmt.Sprintf("%d %s", n/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
