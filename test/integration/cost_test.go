//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// A node with an empty disk is ready after less than 200 ms of CPU time, and then takes next to none for as long as
// nobody asks it anything. How long a start takes by the clock, `make cost` tells.
func TestIdleNode(t *testing.T) {
	const (
		maxStart = 200 * time.Millisecond // ten times what it takes
		idle     = 10 * time.Second
		maxIdle  = idle / 200 // 0.5% of a core
	)
	o := newCountedOrigin(t)
	n := newNode(t, o.url, func(opts *node.Options) {
		opts.Verbose = false
		opts.Extra = fmt.Sprintf("[cache.disk]\npath = %q\ncapacity = \"4 GiB\"\nreserve = \"0\"\n", t.TempDir())
	})
	start, err := proc.UsageOf(n.Pid())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // what a start leaves behind
	before, err := proc.UsageOf(n.Pid())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(idle)
	after, err := proc.UsageOf(n.Pid())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v of CPU time to start, %v in %v of doing nothing", start.CPU, after.CPU-before.CPU, idle)
	if start.CPU >= maxStart {
		t.Errorf("a start takes %v of CPU time, want less than %v", start.CPU, maxStart)
	}
	if used := after.CPU - before.CPU; used > maxIdle {
		t.Errorf("a node that does nothing takes %v of CPU time in %v, want at most %v", used, idle, maxIdle)
	}
}

// 10 000 keep-alive connections that have been served and wait for their next request cost no more than what net/http
// takes for each: two buffers of 4 KiB, a stack of 8 KiB, and some 2 KiB of small things, 190 MiB for all of them. A
// bare net/http server takes 193 MiB. The goal is 150 MiB, and out of reach of whoever leaves idle connections to it.
func TestIdleConnections(t *testing.T) {
	const (
		connections = 10_000
		dialers     = 32
		size        = 4 << 10
		seed        = 17
		goal        = 150 << 20
		maxAbove    = 224 << 20
	)
	if err := proc.OpenFiles(connections + 1000); err != nil {
		t.Fatal(err)
	}
	o := newCountedOrigin(t)
	o.PutGenerated("idle", "small", size, seed)
	n := newNode(t, o.url, func(opts *node.Options) {
		opts.Memory, opts.Key, opts.Verbose = "64 MiB", node.Key{}, false
		opts.Extra = fmt.Sprintf("[server.limits]\nmax_connections = %d\nidle_timeout = \"10m\"", connections+1000)
	})
	empty, err := proc.UsageOf(n.Pid())
	if err != nil {
		t.Fatal(err)
	}

	want := generated(seed, 0, size)
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
		if _, err := fmt.Fprintf(c, "GET /idle/small HTTP/1.1\r\nHost: %s\r\n\r\n", n.Addr); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(body, want) {
			return fmt.Errorf("%s, %d bytes, %v", resp.Status, len(body), err)
		}
		return nil
	}
	conns := make([]net.Conn, connections)
	t.Cleanup(func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	})
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < connections; i += dialers {
				var err error
				if conns[i], err = net.Dial("tcp", n.Addr); err == nil {
					err = ask(conns[i])
				}
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}

	// At rest: what the requests left on the heap is garbage that may not have been collected yet.
	blocks := int64(metric(t, n, "ashlar_memory_used_bytes"))
	var usage proc.Usage
	var above int64
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		if usage, err = proc.UsageOf(n.Pid()); err != nil {
			t.Fatal(err)
		}
		if above = usage.RSS - blocks; above < maxAbove || time.Now().After(deadline) {
			break
		}
	}
	t.Logf("RSS %d MiB with %d idle connections, at most %d MiB, %d MiB without any; above the blocks %d MiB, goal %d MiB",
		usage.RSS>>20, connections, usage.PeakRSS>>20, empty.RSS>>20, above>>20, goal>>20)
	if above >= maxAbove {
		t.Errorf("%d idle connections: %d MiB above the blocks, want less than %d", connections, above>>20, maxAbove>>20)
	}
	// They are what was measured: all of them are still there, and served.
	if open := metric(t, n, "ashlar_connections"); open < connections {
		t.Errorf("%v connections are open", open)
	}
	for i := 0; i < connections; i += connections / 100 {
		if err := ask(conns[i]); err != nil {
			t.Errorf("connection %d, second request: %v", i, err)
		}
	}
}

// Objects of many times the memory, read whole for the first time, several at once, leave the process below its memory,
// a quarter, and 64 MiB.
func TestColdReadsMemory(t *testing.T) {
	const (
		memory  = 256 << 20
		maxRSS  = memory + memory/4 + 64<<20
		readers = 8
		objects = 2 // of each reader
		size    = 256 << 20
		seed    = 19
	)
	want := generated(seed, 0, size)
	for _, tier := range []string{"memory", "disk"} {
		t.Run(tier, func(t *testing.T) {
			o := newCountedOrigin(t)
			n := newNode(t, o.url, func(opts *node.Options) {
				opts.Memory, opts.Verbose = "256 MiB", false
				// The origin shares this machine with everyone here: its being late is not what this is about.
				opts.Extra = "[buckets.fetch]\nfirst_byte = \"30s\"\nattempt = \"45s\"\n"
				if tier == "disk" {
					opts.Extra += fmt.Sprintf("[cache.disk]\npath = %q\ncapacity = \"1 GiB\"\nreserve = \"0\"\n", t.TempDir())
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for r := range readers {
				for i := range objects {
					o.PutGenerated("cold", fmt.Sprintf("%d-%d", r, i), size, seed)
				}
				wg.Go(func() {
					client := sdk(n.URL(), clientKey, once)
					for i := range objects {
						key := fmt.Sprintf("%d-%d", r, i)
						out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: ptr("cold"), Key: &key})
						if err == nil {
							err = same(out.Body, want)
							_ = out.Body.Close()
						}
						if err != nil {
							t.Errorf("object %s: %v", key, err)
							return
						}
					}
				})
			}
			wg.Wait()
			usage, err := proc.UsageOf(n.Pid())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("RSS %d MiB, at most %d MiB", usage.RSS>>20, usage.PeakRSS>>20)
			if usage.PeakRSS > maxRSS {
				t.Errorf("RSS was %d MiB, want at most %d", usage.PeakRSS>>20, maxRSS>>20)
			}
			if held := metric(t, n, "ashlar_memory_used_bytes"); held < memory/2 {
				t.Errorf("%v bytes are cached, so this was no load on memory", held)
			}
		})
	}
}
