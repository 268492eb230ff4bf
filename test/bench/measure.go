package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// options say how much is measured and when a measurement counts.
type options struct {
	Rounds      int           `json:"rounds"`
	ColdRounds  int           `json:"cold_rounds"`
	Duration    time.Duration `json:"duration_ns"`
	Foreign     float64       `json:"foreign_cores"`
	Attempts    int           `json:"attempts"`
	Only        string        `json:"only,omitempty"` // workloads
	Contestants string        `json:"contestants,omitempty"`
	Seed        uint64        `json:"seed"`
	Quick       bool          `json:"quick,omitempty"`
}

// flags adds what every measuring subcommand takes. The function that is returned is for after the parsing.
func (o *options) flags(f *flag.FlagSet) (parsed func()) {
	f.DurationVar(&o.Duration, "seconds", 3*time.Second, "length of one run")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds; each runs every workload on every server")
	f.IntVar(&o.ColdRounds, "cold-rounds", 5, "rounds of what is read for the first time")
	f.Float64Var(&o.Foreign, "foreign", 0.10, "CPU time of other processes that a run may see, in `cores`")
	f.IntVar(&o.Attempts, "attempts", 3, "how often a run is tried before its figures are taken as they are")
	f.Uint64Var(&o.Seed, "seed", 1, "of the requests")
	quick := f.Bool("quick", false, "a smoke run: one short round, whatever else the machine does")
	return func() {
		if *quick {
			o.Quick, o.Rounds, o.Duration, o.Attempts, o.ColdRounds = true, 1, 500*time.Millisecond, 1, 1
		}
	}
}

func (o options) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, `%d rounds of %v, %d cold rounds, seed %d, %d CPUs. A run during which other processes took more
than %.2f cores is dropped and repeated, with %d attempts at most.

`, o.Rounds, o.Duration, o.ColdRounds, o.Seed, runtime.NumCPU(), o.Foreign, o.Attempts)
}

func (o options) wants(workload string) bool {
	return o.Only == "" || slices.Contains(strings.Split(o.Only, ","), strings.Fields(workload)[0])
}

// workload is one kind of load. Its parts are drawn once for all contestants.
type workload struct {
	name  string
	unit  string // of Result.Rate: "req/s" or "MB/s"
	conns int
	step  int // of the check of bodies, in bytes; see load
	parts []part
}

const (
	w4Whole  = "W4 whole"
	w4Ranges = "W4 ranges"

	coldSize    = 256 << 20
	coldRange   = 1 << 20
	coldLatency = 20 * time.Millisecond
)

func workloads(objects []object, seed uint64) []workload {
	rng := rand.New(rand.NewPCG(seed, 0))
	// ranges draws n ranges that start at multiples of align.
	ranges := func(n int, length, align int64) []part {
		parts := make([]part, n)
		for i := range parts {
			o := objects[rng.IntN(len(objects))]
			parts[i] = part{obj: o, offset: rng.Int64N((o.size-length)/align+1) * align, length: length}
		}
		return parts
	}
	whole := make([]part, len(objects))
	for i, o := range objects {
		whole[i] = part{obj: o, length: o.size}
	}
	return []workload{
		{name: "W1", unit: "req/s", conns: 64, step: 8, parts: ranges(4096, 4<<10, 512)},
		{name: "W2", unit: "MB/s", conns: 16, step: 4 << 10, parts: ranges(4096, 1<<20, 1<<20)},
		{name: "W3", unit: "MB/s", conns: 4, step: 4 << 10, parts: whole},
	}
}

// result is one run on one contestant.
type result struct {
	Workload   string  `json:"workload"`
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Rate       float64 `json:"rate"` // in Unit; higher is better, but for times
	Unit       string  `json:"unit"` // "req/s", "MB/s", "s", unitNS or unitMean
	P50ms      float64 `json:"p50_ms"`
	P99ms      float64 `json:"p99_ms"`
	// CPU is what the server used: seconds per 10 000 requests (W1) or per GB (others).
	CPU        float64 `json:"cpu"`
	PeakRSS    int64   `json:"peak_rss_bytes"`         // during the run; of several processes, the sum of peaks
	Memory     int64   `json:"memory_bytes,omitempty"` // that ashlar is given for blocks
	OriginGETs int64   `json:"origin_gets"`
	// OriginBytes are those of bodies that the origin sent during a run of W4.
	OriginBytes int64   `json:"origin_bytes,omitempty"`
	FromBelow   float64 `json:"from_below,omitempty"` // share of ashlar's blocks that were not in memory
	Allocs      float64 `json:"allocs,omitempty"`     // of a simulation, for each of what Rate is of
	ClientBusy  float64 `json:"client_busy"`          // share of the time that the load generator's thread ran
	Foreign     float64 `json:"foreign_cores"`
	Attempt     int     `json:"attempt"`
	Dropped     bool    `json:"dropped"` // for foreign load; counted only where there is nothing better
}

// measure runs everything that o wants on everyone, in turns, and adds it to r.
func (b *bench) measure(ctx context.Context, o options, r *report) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	loads := workloads(b.objects, o.Seed)
	for round := range o.Rounds {
		for _, w := range loads {
			if !o.wants(w.name) {
				continue
			}
			for _, c := range b.turn(round) {
				if !c.warm {
					continue
				}
				err := r.attempt(ctx, o, func(attempt int) (result, error) {
					seed := o.Seed + uint64(round)<<16 + uint64(attempt)
					res, err := b.hits(w, c, o.Duration, seed)
					// A disk that was late once, or a node: the caches have what they fetched then.
					for again := 0; errors.Is(err, errFetched) && again < 3; again++ {
						fmt.Printf("%s on %s: %v; made again\n", w.name, c.name, err)
						res, err = b.hits(w, c, o.Duration, seed)
					}
					res.Round = round
					return res, err
				})
				if err != nil {
					return err
				}
			}
		}
	}
	b.origin.latency.Store(int64(coldLatency))
	defer b.origin.latency.Store(0)
	for round := range o.ColdRounds {
		for _, name := range []string{w4Whole, w4Ranges} {
			if !o.wants(name) {
				continue
			}
			for _, c := range b.turn(round) {
				if !c.cold {
					continue
				}
				err := r.attempt(ctx, o, func(attempt int) (result, error) {
					res, err := b.coldRead(ctx, name, c, round, attempt)
					res.Round = round
					return res, err
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// turn is the order of the contestants in a round: each is first once, so that none always runs after the same other.
func (b *bench) turn(round int) []contestant {
	n := round % len(b.contestants)
	return slices.Concat(b.contestants[n:], b.contestants[:n])
}

var errFetched = errors.New("the origin was asked during a run of hits")

// patience bounds a run that is for so many responses, not for so long.
const patience = 15 * time.Minute

// maxFills bounds the passes of fill. A disk tier keeps of each pass what its write queue has room for.
const maxFills = 20

// fill reads every object through every contestant until a pass asks the origin nothing, so that all that follows are
// hits, and checks every word of it.
func (b *bench) fill(ctx context.Context) error {
	parts := make([]part, len(b.objects))
	for i, o := range b.objects {
		parts[i] = part{obj: o, length: o.size}
	}
	filled := make(map[string]bool) // by address
	for _, c := range b.contestants {
		if !c.warm || filled[c.addr] {
			continue
		}
		filled[c.addr] = true
		requests, err := prepare(c.addr, c.key, parts)
		if err != nil {
			return err
		}
		l := load{
			addr: c.addr, requests: requests, conns: 1, count: len(parts), inOrder: true, step: 8, duration: patience,
		}
		for pass := 1; ; pass++ {
			gets := b.origin.gets.Load()
			if _, err := l.run(); err != nil {
				return fmt.Errorf("fill %s: %w", c.name, err)
			}
			if err := c.diskIdle(ctx); err != nil {
				return fmt.Errorf("fill %s: %w", c.name, err)
			}
			if b.origin.gets.Load() == gets {
				break
			}
			if pass == maxFills {
				return fmt.Errorf("fill %s: it still asks the origin after %d passes over the same objects", c.name, pass)
			}
		}
	}
	return nil
}

// attempt repeats a run until it was undisturbed, or often enough.
func (r *report) attempt(ctx context.Context, o options, run func(attempt int) (result, error)) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		res, err := run(attempt)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", res.Workload, res.Contestant, err)
		}
		res.Attempt = attempt
		res.Dropped = res.Foreign > o.Foreign
		r.Runs = append(r.Runs, res)
		note := ""
		if res.Dropped {
			note = fmt.Sprintf("  dropped: other processes took %.2f cores", res.Foreign)
		}
		fmt.Printf("%-9s %-21s %9.5g %-5s  p99 %8.2f ms  client %3.0f%%%s\n", res.Workload, res.Contestant, res.Rate,
			res.Unit, res.P99ms, 100*res.ClientBusy, note)
		if !res.Dropped || attempt >= o.Attempts {
			return nil
		}
	}
}

// hits makes the load of w on c.
func (b *bench) hits(w workload, c contestant, d time.Duration, seed uint64) (result, error) {
	res := result{Workload: w.name, Contestant: c.name, Unit: w.unit}
	requests, err := prepare(c.addr, c.key, w.parts)
	if err != nil {
		return res, err
	}
	l := load{
		addr: c.addr, requests: requests, seed: seed, conns: cmp.Or(c.conns, w.conns), duration: d, step: w.step,
	}
	got, err := b.watch(&res, c, l)
	if err != nil {
		return res, err
	}
	if res.OriginGETs != 0 {
		// A server that fetches is not measured on hits; say so rather than print a figure.
		return res, fmt.Errorf("%w: %d requests", errFetched, res.OriginGETs)
	}
	if c.below != "" && res.FromBelow < 0.5 {
		return res, fmt.Errorf("only %.0f%% of the blocks came from %s", 100*res.FromBelow, c.below)
	}
	res.Rate = float64(got.Responses) / got.Elapsed.Seconds()
	if w.unit == "MB/s" {
		res.Rate = float64(got.Bytes) / 1e6 / got.Elapsed.Seconds()
		res.CPU /= float64(got.Bytes) / 1e9
	} else {
		res.CPU /= float64(got.Responses) / 10_000
	}
	return res, nil
}

// coldRead reads an object that nobody has read before.
func (b *bench) coldRead(ctx context.Context, name string, c contestant, round, attempt int) (result, error) {
	res := result{Workload: name, Contestant: c.name, Unit: "s"}
	slug := strings.NewReplacer(" ", "-", "/", "-").Replace(name + "-" + c.name)
	obj := object{name: fmt.Sprintf("cold-%s-%d-%d", slug, round, attempt), size: coldSize, seed: uint64(1000 + round)}
	b.origin.add(obj)
	parts := []part{{obj: obj, length: obj.size}}
	if name == w4Ranges {
		parts = parts[:0]
		for off := int64(0); off < obj.size; off += coldRange {
			parts = append(parts, part{obj: obj, offset: off, length: coldRange})
		}
	}
	requests, err := prepare(c.addr, c.key, parts)
	if err != nil {
		return res, err
	}
	l := load{
		addr: c.addr, requests: requests, conns: 1, count: len(requests), inOrder: true, step: 4 << 10,
		duration: patience,
	}
	got, err := b.watch(&res, c, l)
	if err != nil {
		return res, err
	}
	if res.OriginBytes, err = b.origin.sent(ctx, obj); err != nil {
		return res, err
	}
	res.Rate = got.Elapsed.Seconds()
	res.CPU /= float64(got.Bytes) / 1e9
	return res, c.diskIdle(ctx) // what it still writes must not be the next one's foreign load
}

// watch runs l on c and fills in what the run cost; res.CPU is left in seconds.
func (b *bench) watch(res *result, c contestant, l load) (loadResult, error) {
	for _, p := range c.procs {
		proc.ResetPeak(p.Pid())
	}
	belowBefore, allBefore, err := c.blocks()
	if err != nil {
		return loadResult{}, err
	}
	before, err := sample(c)
	if err != nil {
		return loadResult{}, err
	}
	gets := b.origin.gets.Load()
	got, err := l.run()
	if err != nil {
		return got, err
	}
	after, err := sample(c)
	if err != nil {
		return got, err
	}
	below, all, err := c.blocks()
	if err != nil {
		return got, err
	}
	if all > allBefore {
		res.FromBelow = (below - belowBefore) / (all - allBefore)
	}
	res.OriginGETs = b.origin.gets.Load() - gets
	res.CPU = (after.server.CPU - before.server.CPU).Seconds()
	res.PeakRSS, res.Memory = after.server.PeakRSS, c.limit
	res.Foreign = max(0, (after.foreign-before.foreign).Seconds()/after.at.Sub(before.at).Seconds())
	res.ClientBusy = got.ClientCPU.Seconds() / got.Elapsed.Seconds()
	slices.Sort(got.Latencies)
	quantile := func(q float64) float64 {
		return got.Latencies[int(q*float64(len(got.Latencies)-1))].Seconds() * 1e3
	}
	res.P50ms, res.P99ms = quantile(0.5), quantile(0.99)
	return got, nil
}

// moment is what had been used at one time.
type moment struct {
	at      time.Time
	server  proc.Usage
	foreign time.Duration // CPU time of all processes that are not this one or a child of it
}

func sample(c contestant) (moment, error) {
	m := moment{at: time.Now()}
	busy, err := proc.Busy()
	if err != nil {
		return m, err
	}
	own, err := proc.UsageOf(os.Getpid())
	if err != nil {
		return m, err
	}
	m.foreign = busy - own.CPU
	m.server, err = c.usage()
	return m, err
}
