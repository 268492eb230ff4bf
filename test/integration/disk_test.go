//go:build integration

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// diskOf is a node with a disk tier in a folder, and 64 MiB of memory before it.
func diskOf(dir, capacity string) func(*node.Options) {
	return func(o *node.Options) {
		o.Memory = "64 MiB"
		o.Extra = fmt.Sprintf("[cache.disk]\npath = %q\ncapacity = %q\nregion_size = \"16 MiB\"\nreserve = \"0\"\n"+
			noHedge+fresh, dir, capacity)
	}
}

// catalogue is a set of generated objects, of all sizes up to some.
type catalogue struct {
	*countedOrigin
	sizes []int
}

func newCatalogue(t *testing.T, objects, largest int) *catalogue {
	rng := rand.New(rand.NewPCG(11, 0))
	c := &catalogue{countedOrigin: newCountedOrigin(t)}
	for i := range objects {
		size := largest >> rng.IntN(8)
		size -= rng.IntN(size / 4)
		c.PutGenerated("disk", fmt.Sprint(i), int64(size), uint64(i))
		c.sizes = append(c.sizes, size)
	}
	return c
}

func (c *catalogue) bytes() (n int) {
	for _, size := range c.sizes {
		n += size
	}
	return n
}

// check reads bytes [off, off+n) of object i through a node; an error of a read is returned, other bytes are fatal.
func (c *catalogue) check(ctx context.Context, t *testing.T, client *s3.Client, i, off, n int) error {
	rng := fmt.Sprintf("bytes=%d-%d", off, off+n-1)
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: ptr("disk"), Key: ptr(fmt.Sprint(i)), Range: &rng})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	if err := same(out.Body, generated(uint64(i), int64(off), n)); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("object %d of %d bytes, %s: %w", i, c.sizes[i], rng, err)
	}
	return nil
}

// all reads every object once and waits after each until the disk has taken it.
func (c *catalogue) all(t *testing.T, n *node.Node) {
	t.Helper()
	client := sdk(n.URL(), clientKey)
	for i, size := range c.sizes {
		if err := c.check(t.Context(), t, client, i, 0, size); err != nil {
			t.Fatal(err)
		}
		for metric(t, n, "ashlar_disk_queue_bytes") > 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func metric(t *testing.T, n *node.Node, name string) float64 {
	t.Helper()
	m, err := n.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.Sum(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A working set four times as large as memory: nothing is dropped, the second pass asks the origin nothing, and neither
// does one after a restart.
func TestDiskWorkingSet(t *testing.T) {
	c := newCatalogue(t, 160, 8<<20)
	if c.bytes() < 256<<20 {
		t.Fatalf("%d bytes are too few", c.bytes())
	}
	dir := t.TempDir()
	n, err := startNode(t.TempDir(), c.url, diskOf(dir, "512 MiB"))
	if err != nil {
		t.Fatal(err)
	}
	c.all(t, n)
	for name, want := range map[string]float64{"ashlar_disk_drops_total": 0, "ashlar_disk_checksum_failures_total": 0} {
		if v := metric(t, n, name); v != want {
			t.Errorf("%s = %v", name, v)
		}
	}
	c.ResetCounters()
	c.all(t, n)
	// A disk that does not answer within a second has not got the block: that is to be rare, and not for nothing.
	m, err := n.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	late := m[`ashlar_disk_reads_total{result="timeout"}`]
	if got := c.settled(t).ByMethod["GET"]; float64(got) > late || late > 20 {
		t.Errorf("second pass: %d GETs at the origin, %v reads of the disk were late: %q", got, late, c.Log())
	}
	if v := metric(t, n, "ashlar_disk_reads_total"); v < 100 {
		t.Errorf("%v blocks read from the disk", v)
	}
	if err := n.Stop(stopTimeout); err != nil {
		t.Fatal(err)
	}
	c.ResetCounters()
	n = newNode(t, c.url, diskOf(dir, "512 MiB"))
	c.all(t, n)
	if m, err = n.Metrics(); err != nil {
		t.Fatal(err)
	}
	total, _ := m.Sum("ashlar_blocks_total")
	if missed := m[`ashlar_blocks_total{source="origin"}`]; total < 250 || missed > total/100+m[`ashlar_disk_reads_total{result="timeout"}`] {
		t.Errorf("after the restart %v of %v blocks came from the origin: %q", missed, total, c.Log())
	}
	if v := metric(t, n, "ashlar_disk_checksum_failures_total"); v != 0 {
		t.Errorf("%v damaged", v)
	}
}

// A node that is killed at any moment under load finds blocks after each start, and never serves a wrong byte.
// TEST_KILLS sets the number of rounds.
func TestKilledNodes(t *testing.T) {
	rounds := 6
	if s := os.Getenv("TEST_KILLS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newCatalogue(t, 200, 4<<20)
	dir := t.TempDir()
	recovered := 0.0
	for round := range rounds {
		n, err := startNode(t.TempDir(), c.url, diskOf(dir, "160 MiB")) // less than there is
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var reads atomic.Int64
		for range 4 {
			client, pick := sdk(n.URL(), clientKey, once), rand.New(rand.NewPCG(rng.Uint64(), 1))
			wg.Go(func() {
				for ctx.Err() == nil {
					i := min(pick.IntN(len(c.sizes)), pick.IntN(len(c.sizes)))
					off := pick.IntN(c.sizes[i])
					length := min(c.sizes[i]-off, 1+pick.IntN(2<<20))
					if err := c.check(ctx, t, client, i, off, length); err != nil && ctx.Err() == nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
					reads.Add(1)
				}
			})
		}
		time.Sleep(time.Duration(50+rng.IntN(1500)) * time.Millisecond)
		if round == 0 { // so that there is something to recover, however slow the machine is
			eventually(t, "the disk has blocks", func() bool { return metric(t, n, "ashlar_disk_writes_total") > 0 })
		} else {
			recovered += metric(t, n, "ashlar_disk_recovery_blocks")
		}
		if v := metric(t, n, "ashlar_disk_used_bytes"); v > 160<<20 {
			t.Errorf("round %d: %v bytes used", round, v)
		}
		cancel() // what fails from here on is not the node's fault
		n.Kill()
		wg.Wait()
		if t.Failed() {
			t.Fatalf("after %d reads of round %d:\n%s", reads.Load(), round, tail(n.Log(), 30))
		}
	}
	if recovered == 0 {
		t.Error("nothing was ever recovered")
	}
	t.Logf("%v blocks recovered in %d rounds", recovered, rounds)
}
