//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// noHedge begins a configuration of buckets whose origin requests can be counted, however busy this machine is: nothing is
// asked for again because an answer is late.
const noHedge = "[buckets]\nfetch = { hedge = false, first_byte = \"30s\", attempt = \"45s\" }\n"

// What reaches the origin for an object of 64 MiB, blocks of 1 MiB and a fetch window of 8.
func TestOriginRequests(t *testing.T) {
	const size, window, seed = 64 << 20, 8 << 20, 7
	o := newCountedOrigin(t)
	for _, key := range []string{"whole", "crowd", "small"} {
		o.PutGenerated("counts", key, size, seed)
	}
	n := newNode(t, o.url, func(opts *node.Options) { opts.Extra = noHedge + fresh })
	want := generated(seed, 0, size)
	c := sdk(n.URL(), clientKey)
	expect := func(name string, gets int64) {
		t.Helper()
		got := o.settled(t).ByOperation // of objects: a look at the service itself is part of starting
		if got["GetObject"] != gets || got["HeadObject"] != 0 {
			t.Errorf("%s: the origin got %d GETs and %d HEADs, want %d and 0:\n%v", name, got["GetObject"],
				got["HeadObject"], gets, o.Log())
		}
		o.ResetCounters()
	}
	whole := func(key string) error {
		out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: ptr("counts"), Key: &key})
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }()
		return same(out.Body, want)
	}
	o.ResetCounters()

	if err := whole("whole"); err != nil {
		t.Error(err)
	}
	expect("cold whole read", size/window)
	if err := whole("whole"); err != nil {
		t.Error(err)
	}
	expect("warm whole read", 0)

	var crowd errgroup.Group
	for range 64 {
		crowd.Go(func() error { return whole("crowd") })
	}
	if err := crowd.Wait(); err != nil {
		t.Error(err)
	}
	expect("64 cold whole reads at once", size/window)

	const off = 33<<20 + 4<<10
	b, _, err := read(t.Context(), c, "counts", "small", fmt.Sprintf("bytes=%d-%d", off, off+4095))
	if err != nil || sum(b) != sum(generated(seed, off, 4096)) {
		t.Errorf("small read: %d bytes, %v", len(b), err)
	}
	if got := o.settled(t).BytesSent; got != 1<<20 {
		t.Errorf("a cold read of 4 KiB fetched %d bytes, want one block", got)
	}
	expect("cold read of 4 KiB", 1)
	_, _, err = read(t.Context(), c, "counts", "small", fmt.Sprintf("bytes=%d-%d", off+8192, off+8192+4095))
	if err != nil {
		t.Error(err)
	}
	expect("warm read in the same block", 0)
}

// same reads r to its end, holding little of it, and compares.
func same(r io.Reader, want []byte) error {
	buf := make([]byte, 64<<10)
	for off := 0; ; {
		n, err := r.Read(buf)
		if n > len(want)-off || !bytes.Equal(buf[:n], want[off:off+n]) {
			return fmt.Errorf("wrong bytes after %d", off)
		}
		off += n
		if err == io.EOF && off == len(want) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w after %d bytes", err, off)
		}
	}
}

// 10 000 misses at concurrency 64 share their connections to the origin.
func TestOriginConnections(t *testing.T) {
	const block, misses, seed = 64 << 10, 10_000, 9
	o := newCountedOrigin(t)
	o.PutGenerated("connections", "object", block*misses, seed)
	n := newNode(t, o.url, func(opts *node.Options) {
		// By chance two reads of one client are of neighbours, and look like a scan: what is read ahead then may have left
		// the memory again when it is wanted.
		opts.Extra = noHedge + fresh + "block_size = \"64 KiB\"\nfetch_window = 1\nread_window = 1\nreadahead = 0"
	})
	c := sdk(n.URL(), clientKey)
	order := make(chan int64, misses)
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(misses) {
		order <- int64(i)
	}
	close(order)
	var readers sync.WaitGroup
	for range 64 {
		readers.Go(func() {
			for i := range order {
				off := i*block + i%(block-8)
				b, _, err := read(t.Context(), c, "connections", "object", fmt.Sprintf("bytes=%d-%d", off, off+7))
				if err != nil || string(b) != string(generated(seed, off, 8)) {
					t.Errorf("read at %d: %x, %v", off, b, err)
				}
			}
		})
	}
	readers.Wait()
	// One that nobody waited for any more may still be on its way from one to the other.
	opened := int64(0)
	eventually(t, "node and origin count the same connections", func() bool {
		opened = int64(metric(t, n, "ashlar_origin_connections_opened_total"))
		return opened == o.connections.Load()
	})
	gets := o.settled(t).ByOperation["GetObject"]
	t.Logf("%d origin GETs over %d connections", gets, opened)
	if gets != misses || opened > 128 {
		t.Errorf("%d origin GETs over %d connections, want %d over at most 128", gets, opened, misses)
	}
}
