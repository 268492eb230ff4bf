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
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// slowReader is a client that takes bytes off its connection only as they are read: its receive buffer is small.
type slowReader struct {
	conn net.Conn
	body io.Reader
}

func (s *slowReader) close() { _ = s.conn.Close() }

// dialSlow sends a GET of url to addr and reads the header of the answer, which must be 200, or 206 with a range.
func dialSlow(ctx context.Context, addr, url, rng string) (*slowReader, error) {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		controlErr := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<10)
		})
		if err == nil {
			err = controlErr
		}
		return err
	}}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &slowReader{conn: conn}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		s.close()
		return nil, err
	}
	want := http.StatusOK
	if rng != "" {
		req.Header.Set("Range", rng)
		want = http.StatusPartialContent
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	if err := req.Write(conn); err != nil {
		s.close()
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), req)
	if err != nil {
		s.close()
		return nil, err
	}
	s.body = resp.Body
	if resp.StatusCode != want {
		s.close()
		return nil, fmt.Errorf("%s, want %d", resp.Status, want)
	}
	return s, nil
}

// presigned is a URL that may be read for five minutes.
func presigned(t *testing.T, endpoint, bucket, key string) string {
	t.Helper()
	signer := s3.NewPresignClient(sdk(endpoint, clientKey), s3.WithPresignExpires(5*time.Minute))
	r, err := signer.PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	return r.URL
}

// 1000 clients read a different block each at 16 KiB/s: 1 GiB of blocks through 256 MiB of memory. The node stays
// small, serves others as before, and gives everyone the right bytes. TEST_SLOW=full reads the blocks to their end,
// which takes a minute more.
func TestSlowReaders(t *testing.T) {
	const (
		readers = 1000
		block   = 1 << 20
		rate    = 16 << 10  // bytes/s of each
		least   = 12 * rate // bytes that each is to have in the end
		seed    = 13
		maxRSS  = 384 << 20
		// What others notice of a thousand clients on two cores is a matter of the machine. They are compared with who is
		// served by another node meanwhile: something is wrong where that one is that much faster, and the machine is
		// not just too slow for so many.
		maxRatio = 10
		tooSlow  = time.Second / 2
		probes   = 300
	)
	full := os.Getenv("TEST_SLOW") == "full"
	o := newCountedOrigin(t)
	o.PutGenerated("slow", "big", 1<<30, seed)
	o.PutGenerated("slow", "hot", 8<<20, seed)
	start := func() *node.Node {
		return newNode(t, o.url, func(opts *node.Options) {
			opts.Memory, opts.Verbose = "256 MiB", false
			// The origin shares this machine with everyone here, and so do the readers: that it is late, or that they are
			// slower still, is not what this is about.
			opts.Extra = noHedge + fresh + "[server.limits]\nmin_rate = \"1 KiB\"\n"
		})
	}
	n, calm := start(), start()

	nextSmall := 0
	type medians struct{ warm, cold time.Duration }
	// normal reads by turns from some nodes, and returns the median times of each.
	normal := func(nodes ...*node.Node) []medians {
		var clients []*s3.Client
		for _, n := range nodes {
			clients = append(clients, sdk(n.URL(), clientKey))
		}
		warms, colds := make([][]time.Duration, len(nodes)), make([][]time.Duration, len(nodes))
		for i := range probes {
			off := int64(i%8) * block
			small := fmt.Sprintf("small-%d", nextSmall)
			nextSmall++
			o.PutGenerated("slow", small, 4<<10, seed)
			for j, c := range clients {
				start := time.Now()
				b, _, err := read(t.Context(), c, "slow", "hot", fmt.Sprintf("bytes=%d-%d", off, off+block-1))
				warms[j] = append(warms[j], time.Since(start))
				if err != nil || !bytes.Equal(b, generated(seed, off, block)) {
					t.Errorf("warm read at %d: %d bytes, %v", off, len(b), err)
				}
				start = time.Now()
				b, _, err = read(t.Context(), c, "slow", small, "")
				colds[j] = append(colds[j], time.Since(start))
				if err != nil || !bytes.Equal(b, generated(seed, 0, 4<<10)) {
					t.Errorf("cold read of %s: %d bytes, %v", small, len(b), err)
				}
			}
		}
		all := make([]medians, len(nodes))
		for j := range nodes {
			slices.Sort(warms[j])
			slices.Sort(colds[j])
			all[j] = medians{warms[j][probes/2], colds[j][probes/2]}
		}
		return all
	}
	alone := normal(n, calm) // which also warms both

	url := presigned(t, n.URL(), "slow", "big")
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var started, finished sync.WaitGroup
	var total atomic.Int64
	got := make([]atomic.Int64, readers)
	stopReading := make(chan struct{})
	started.Add(readers)
	for i := range readers {
		finished.Go(func() {
			err := readSlowly(ctx, n.Addr, url, int64(i)*block, block, rate, seed, started.Done, &got[i], stopReading)
			total.Add(got[i].Load())
			if err != nil {
				t.Errorf("slow reader %d after %d bytes: %v", i, got[i].Load(), err)
			}
		})
	}
	slowest := func() int64 {
		l := got[0].Load()
		for i := range got {
			l = min(l, got[i].Load())
		}
		return l
	}
	begin := time.Now()
	started.Wait()
	t.Logf("%d readers have their first bytes after %v", readers, time.Since(begin))
	beside := normal(n, calm)
	if full {
		finished.Wait()
	} else {
		for slowest() < least && ctx.Err() == nil && !t.Failed() {
			time.Sleep(100 * time.Millisecond)
		}
	}
	usage, err := proc.UsageOf(n.Pid())
	if err != nil {
		t.Fatal(err)
	}
	close(stopReading)
	finished.Wait()

	ratio := func(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }
	warm, cold := ratio(beside[0].warm, beside[1].warm), ratio(beside[0].cold, beside[1].cold)
	t.Logf("RSS %d MiB, at most %d MiB; %d bytes in %v, %d for the slowest",
		usage.RSS>>20, usage.PeakRSS>>20, total.Load(), time.Since(begin), slowest())
	t.Logf("median of warm 1 MiB reads: %v alone, %v beside them, %v from another node, ratio %.2f", alone[0].warm,
		beside[0].warm, beside[1].warm, warm)
	t.Logf("median of cold 4 KiB reads: %v alone, %v beside them, %v from another node, ratio %.2f", alone[0].cold,
		beside[0].cold, beside[1].cold, cold)
	if usage.PeakRSS > maxRSS {
		t.Errorf("RSS was %d MiB, want at most %d", usage.PeakRSS>>20, maxRSS>>20)
	}
	if warm > maxRatio && beside[0].warm > tooSlow || cold > maxRatio && beside[0].cold > tooSlow {
		t.Errorf("others were served %.1f times (warm) and %.1f times (cold) as slowly as by another node", warm, cold)
	}
	want := int64(least)
	if full {
		want = block
	}
	if slowest() < want {
		t.Errorf("the slowest reader got %d bytes, want %d at least", slowest(), want)
	}
}

// readSlowly reads length bytes at off, at rate bytes/s, checks each, and counts in got how many it read until the end or
// until stop is closed. It calls started once, when it has the first bytes or failed.
func readSlowly(ctx context.Context, addr, url string, off int64, length, rate int, seed uint64, started func(),
	got *atomic.Int64, stop <-chan struct{},
) error {
	begun := sync.OnceFunc(started)
	defer begun()
	s, err := dialSlow(ctx, addr, url, fmt.Sprintf("bytes=%d-%d", off, off+int64(length)-1))
	if err != nil {
		return err
	}
	defer s.close()
	_ = s.conn.SetDeadline(time.Time{})
	step := rate // all of a second at once: each wake-up costs CPU time, and a thousand readers have many
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	buf, want := make([]byte, step), make([]byte, step)
	for at := int64(0); at < int64(length); at = got.Load() {
		n := min(step, length-int(at))
		_ = s.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.ReadFull(s.body, buf[:n]); err != nil {
			return err
		}
		devs3.Generate(want[:n], off+at, seed)
		if !bytes.Equal(buf[:n], want[:n]) {
			return fmt.Errorf("wrong bytes at %d", off+at)
		}
		got.Add(int64(n))
		begun()
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
