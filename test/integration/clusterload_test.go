//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// clusterBucket holds all objects of these tests.
const clusterBucket = "cluster"

// patience is what one request to a gateway may take at most.
const patience = 40 * time.Second

// clusterLoad is clients of gateways that read objects which stay, and objects that are overwritten meanwhile, through
// the gateways and behind them. They retry nothing and check all: no read or write fails, no byte is wrong, nothing
// older than ttl is seen, and no reader sees an older version after a newer one.
//
// One failure is none: the answer for an object of several blocks that breaks off, where the object was overwritten
// less than ttl before the read began, or since. What has been sent is of a version that the rest can't be had of any more. Each reader of a gateway may
// be in the middle of one, and those who come after see another version.
type clusterLoad struct {
	t         *testing.T
	origin    *countedOrigin
	gateways  []*s3.Client
	stay      []int // sizes of generated objects
	rewritten []*rewritten
	ttl       time.Duration
	block     int
	behind    bool // overwrite behind the gateways alone

	cancel context.CancelFunc
	wg     sync.WaitGroup

	readers int
	mu      sync.Mutex
	reads   []timed
	under   []time.Time // when the read began that a reader is in; zero for none
	writes  int
	broken  map[string]int // answers that broke off, by gateway, object and version
	faults  int            // what was told of
}

// timed is one read.
type timed struct {
	began time.Time
	took  time.Duration
}

// newClusterLoad puts the objects at the origin.
func newClusterLoad(t *testing.T, o *countedOrigin, gateways []*node.Node, ttl time.Duration, block int) *clusterLoad {
	t.Helper()
	l := &clusterLoad{t: t, origin: o, ttl: ttl, block: block, broken: make(map[string]int)}
	for _, g := range gateways {
		l.gateways = append(l.gateways, sdk(g.URL(), clientKey, once))
	}
	return l
}

// keep adds n generated objects of up to largest bytes.
func (l *clusterLoad) keep(n, largest int) {
	rng := rand.New(rand.NewPCG(6, 0))
	for range n {
		size := largest>>rng.IntN(5) - rng.IntN(largest/32)
		l.origin.PutGenerated(clusterBucket, stayKey(len(l.stay)), int64(size), uint64(len(l.stay)))
		l.stay = append(l.stay, size)
	}
}

func stayKey(i int) string { return fmt.Sprint("stay-", i) }

// overwrite adds n objects that are overwritten, every third of them of several blocks.
func (l *clusterLoad) overwrite(n int) {
	for i := range n {
		r := &rewritten{number: i, size: l.block / 2}
		if i%3 == 2 {
			r.size = l.block * 5 / 2
		}
		l.origin.Put(clusterBucket, r.key(), r.body(0))
		r.written(behindAll)
		l.rewritten = append(l.rewritten, r)
	}
}

// start starts readers, and a writer for each object that is overwritten.
func (l *clusterLoad) start(readers int) {
	ctx, cancel := context.WithCancel(l.t.Context())
	l.cancel, l.readers, l.under = cancel, readers, make([]time.Time, readers)
	for i := range readers {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		seen := make([]int, len(l.rewritten))
		l.wg.Go(func() {
			for ctx.Err() == nil {
				gateway := i % len(l.gateways)
				began := time.Now()
				l.mu.Lock()
				l.under[i] = began
				l.mu.Unlock()
				if len(l.rewritten) == 0 || len(l.stay) > 0 && rng.IntN(2) == 0 {
					l.readStaying(gateway, rng)
				} else {
					l.readRewritten(gateway, l.rewritten[rng.IntN(len(l.rewritten))], seen)
				}
				l.mu.Lock()
				l.reads, l.under[i] = append(l.reads, timed{began, time.Since(began)}), time.Time{}
				l.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	for i, r := range l.rewritten {
		rng := rand.New(rand.NewPCG(uint64(i), 2))
		l.wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(l.ttl/8 + time.Duration(rng.Int64N(int64(l.ttl*5/4)))):
				}
				l.write(r, rng)
			}
		})
	}
	l.t.Cleanup(l.stop)
}

// enough waits until there was enough to tell something, on a machine however slow.
func (l *clusterLoad) enough() {
	l.t.Helper()
	eventually(l.t, "enough reads and writes", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.told()
	})
}

// told says whether there was enough. mu is held.
func (l *clusterLoad) told() bool {
	return len(l.reads) >= 100 && (len(l.rewritten) == 0 || l.writes >= 10)
}

// stop lets all requests end.
func (l *clusterLoad) stop() {
	l.cancel()
	l.wg.Wait()
}

func (l *clusterLoad) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.faults++; l.faults <= 20 {
		l.t.Errorf("%s: "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
	}
}

func (l *clusterLoad) readStaying(gateway int, rng *rand.Rand) {
	i := rng.IntN(len(l.stay))
	off, length, header := 0, l.stay[i], ""
	if rng.IntN(2) == 0 {
		off = rng.IntN(l.stay[i])
		length = 1 + rng.IntN(l.stay[i]-off)
		header = fmt.Sprintf("bytes=%d-%d", off, off+length-1)
	}
	if err := l.readGenerated(gateway, i, off, length, header); err != nil {
		l.fault("gateway %d: %s %q: %v", gateway, stayKey(i), header, err)
	}
}

func (l *clusterLoad) readGenerated(gateway, i, off, length int, header string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, _, err := read(ctx, l.gateways[gateway], clusterBucket, stayKey(i), header)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", len(b), err)
	}
	return sameBytes(b, generated(uint64(i), int64(off), length))
}

// all reads each object that stays through one gateway.
func (l *clusterLoad) all(gateway int) {
	l.t.Helper()
	for i, size := range l.stay {
		if err := l.readGenerated(gateway, i, 0, size, ""); err != nil {
			l.t.Errorf("%s: %v", stayKey(i), err)
		}
	}
}

func (l *clusterLoad) readRewritten(gateway int, r *rewritten, seen []int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began, oldest := time.Now(), r.oldest(gateway, l.ttl)
	out, err := l.gateways[gateway].GetObject(ctx, &s3.GetObjectInput{Bucket: ptr(clusterBucket), Key: ptr(r.key())})
	if err != nil {
		l.fault("gateway %d: %s: %v", gateway, r.key(), err)
		return
	}
	b, err := io.ReadAll(out.Body)
	_ = out.Body.Close()
	if err != nil {
		if len(b) == 0 || r.size <= l.block || !r.writtenSince(began.Add(-l.ttl)) {
			l.fault("gateway %d: %s: after %d bytes: %v", gateway, r.key(), len(b), err)
		} else if n := l.brokeOff(gateway, r, b); n > l.readers {
			l.fault("gateway %d: %s: version %d broke off %d times", gateway, r.key(), r.versionOf(b), n)
		}
		return
	}
	version, err := r.check(b)
	switch latest := r.latest(); {
	case err != nil:
		l.fault("gateway %d: %v", gateway, err)
	case version < oldest:
		l.fault("gateway %d: %s: version %d, and %d was to be seen", gateway, r.key(), version, oldest)
	case version > latest+1:
		l.fault("gateway %d: %s: version %d, and %d is the latest", gateway, r.key(), version, latest)
	case version < seen[r.number]:
		l.fault("gateway %d: %s: version %d after %d", gateway, r.key(), version, seen[r.number])
	default:
		seen[r.number] = version
	}
}

// brokeOff counts the answers of a gateway that broke off in the same version as this one.
func (l *clusterLoad) brokeOff(gateway int, r *rewritten, b []byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprint(gateway, r.key(), r.versionOf(b))
	l.broken[name]++
	return l.broken[name]
}

// write overwrites an object, through a gateway or at the origin.
func (l *clusterLoad) write(r *rewritten, rng *rand.Rand) {
	through := rng.IntN(len(l.gateways)+1) - 1
	if l.behind {
		through = behindAll
	}
	body := r.body(r.next())
	if through == behindAll {
		l.origin.Put(clusterBucket, r.key(), body)
	} else if err := l.put(through, r.key(), body); err != nil {
		l.fault("gateway %d: write of %s: %v", through, r.key(), err)
	}
	r.written(through)
	l.mu.Lock()
	l.writes++
	l.mu.Unlock()
}

func (l *clusterLoad) put(gateway int, key string, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := l.gateways[gateway].PutObject(ctx, &s3.PutObjectInput{
		Bucket: ptr(clusterBucket), Key: &key, Body: bytes.NewReader(body),
	})
	return err
}

// took says how long reads took that began in a span of time.
func (l *clusterLoad) took(from, to time.Time) string {
	all := l.durations(from, to)
	if len(all) == 0 {
		return "no reads"
	}
	return fmt.Sprintf("%d reads, p50 %v, p99 %v, longest %v", len(all), all[len(all)/2].Round(time.Millisecond),
		all[len(all)*99/100].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}

// p99 is what 99% of the reads took at most that began in a span of time, of less than a hundred all. It waits for those
// that have not ended.
func (l *clusterLoad) p99(from, to time.Time) time.Duration {
	l.t.Helper()
	eventually(l.t, "the reads have ended", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !slices.ContainsFunc(l.under, func(began time.Time) bool { return !began.Before(from) && began.Before(to) })
	})
	all := l.durations(from, to)
	if len(all) == 0 {
		l.t.Fatal("no read began and ended")
	}
	return all[len(all)*99/100]
}

// durations returns how long the reads took that began in a span of time, the shortest first.
func (l *clusterLoad) durations(from, to time.Time) (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reads {
		if !r.began.Before(from) && r.began.Before(to) {
			all = append(all, r.took)
		}
	}
	slices.Sort(all)
	return all
}

// report tells what there was, and that it was something.
func (l *clusterLoad) report() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	broken := 0
	for _, n := range l.broken {
		broken += n
	}
	l.t.Logf("%d reads, %d writes, %d answers broke off at %d overwritten versions", len(l.reads), l.writes, broken,
		len(l.broken))
	if !l.told() {
		l.t.Errorf("%d reads and %d writes are too few to tell anything", len(l.reads), l.writes)
	}
	if l.faults > 20 {
		l.t.Errorf("and %d more", l.faults-20)
	}
}

// head returns the ETag that a HEAD request is told, "" when there is no object.
func head(t *testing.T, c *s3.Client, key string) string {
	t.Helper()
	out, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: ptr(clusterBucket), Key: &key})
	if code, _ := status(err); code == http.StatusNotFound {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return *out.ETag
}
