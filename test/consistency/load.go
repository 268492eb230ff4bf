package consistency

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Load is many clients of the same few objects.
type Load struct {
	Target
	Keys     int           // objects, named k000 and so on
	Writers  int           // clients that write one after the other, each a random object in a random way
	Readers  int           // clients that read likewise
	Duration time.Duration // how long they go on at least
	Least    int           // how many reads, and how many writes, they go on for: ten times Duration at most
	Block    int           // block size of the node, in bytes: most objects are smaller, some are of several
	Seed     uint64        // of what the clients do; when they get to do it is up to the machine
	// Origin, if it is set, is asked for every object at the end, after the target has been: they must agree then.
	Origin Target
}

// Result is what came of a load.
type Result struct {
	History []Op
	Reads   int // answered
	Writes  int // of which the outcome is known
	// Failed counts by kind what gave no answer that says anything: reads that were refused or broke off, and writes
	// of unknown outcome.
	Failed map[string]int
}

// FailedReads counts the reads among Failed.
func (r *Result) FailedReads() (n int) {
	for what, count := range r.Failed {
		if strings.HasPrefix(what, "read") {
			n += count
		}
	}
	return n
}

func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d reads, %d writes", r.Reads, r.Writes)
	for _, what := range slices.Sorted(maps.Keys(r.Failed)) {
		fmt.Fprintf(&b, "; %s: %d", what, r.Failed[what])
	}
	return b.String()
}

// run is a Load on its way.
type run struct {
	Load
	*client
	start    time.Time
	versions versions

	mu     sync.Mutex
	result Result // guarded by mu
}

// Run makes the load. Its error is an answer that no server should give, or the context's.
func (l Load) Run(ctx context.Context) (*Result, error) {
	r := newRun(l)
	defer r.http.CloseIdleConnections()
	var clients []func(context.Context) error
	for i := range l.Writers + l.Readers {
		rng := rand.New(rand.NewPCG(l.Seed, uint64(i)))
		if i < l.Writers {
			clients = append(clients, (&writer{run: r, rng: rng, id: i}).step)
		} else {
			clients = append(clients, newReader(r, r.client, rng).step)
		}
	}
	err := r.work(ctx, clients)
	if err == nil {
		err = r.readAll(ctx, r.client)
	}
	if err == nil && l.Origin != (Target{}) {
		c := newClient(l.Origin, 1)
		defer c.http.CloseIdleConnections()
		err = r.readAll(ctx, c)
	}
	return &r.result, err
}

func newRun(l Load) *run {
	return &run{
		Load: l, client: newClient(l.Target, l.Writers+l.Readers), start: time.Now(),
		result: Result{Failed: make(map[string]int)},
	}
}

// work lets each client take one step after the other until the load has lasted long enough, or one returns an error.
func (r *run) work(ctx context.Context, clients []func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, step := range clients {
		group.Go(func() error {
			for r.now() < r.Duration || r.now() < 10*r.Duration && r.few() {
				if err := cmp.Or(ctx.Err(), step(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// readAll reads every object once.
func (r *run) readAll(ctx context.Context, from *client) error {
	reader := newReader(r, from, nil)
	for i := range r.Keys {
		if err := reader.read(ctx, request{method: http.MethodGet, key: keyName(i)}); err != nil {
			return err
		}
	}
	return nil
}

// few says whether there were less reads or writes than there are to be.
func (r *run) few() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result.Reads < r.Least || r.result.Writes < r.Least
}

func (r *run) now() time.Duration { return time.Since(r.start) }

func (r *run) key(rng *rand.Rand) string { return keyName(rng.IntN(r.Keys)) }

func keyName(i int) string { return fmt.Sprintf("k%03d", i) }

// size draws the size of an object: none, less than one record of its content, less than a block, a block more or less
// one byte, several blocks.
func (r *run) size(rng *rand.Rand) int {
	switch n := rng.IntN(20); {
	case n == 0:
		return 0
	case n < 3:
		return 1 + rng.IntN(40)
	case n < 14:
		return rng.IntN(r.Block / 8)
	case n < 17:
		return r.Block - 1 + rng.IntN(3)
	default:
		return rng.IntN(4 * r.Block)
	}
}

// add adds operations that came to an end to the history.
func (r *run) add(ops ...Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.History = append(r.result.History, ops...)
	for _, o := range ops {
		if o.Write && o.Outcome != Unknown {
			r.result.Writes++
		} else if !o.Write {
			r.result.Reads++
		}
	}
}

func (r *run) failed(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Failed[what]++
}
