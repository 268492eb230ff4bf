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
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
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
		rate    = 16 << 10 // bytes/s of each
		seed    = 13
		maxRSS  = 384 << 20
		// What others notice is a matter of the machine when it has two cores and a thousand clients on them, so that
		// only something worse than load fails here; the ratio is logged, and is to be 2 at most.
		maxRatio = 10
		probes   = 300
	)
	length := 12 * time.Second
	full := os.Getenv("TEST_SLOW") == "full"
	if full {
		length = 3 * time.Minute // until each has read all
	}
	o := newCountedOrigin(t)
	o.PutGenerated("slow", "big", 1<<30, seed)
	o.PutGenerated("slow", "hot", 8<<20, seed)
	for i := range 4 * probes {
		o.PutGenerated("slow", fmt.Sprintf("small-%d", i), 4<<10, seed)
	}
	n := newNode(t, o.url, func(opts *node.Options) {
		opts.Memory, opts.Verbose = "256 MiB", false
		// The origin shares this machine with everyone here: its being late is not what this is about.
		opts.Extra = "[buckets.fetch]\nfirst_byte = \"30s\"\nattempt = \"45s\""
	})

	nextSmall := 0
	normal := func() (warm, cold time.Duration) {
		c := sdk(n.URL(), clientKey)
		var warms, colds []time.Duration
		for i := range probes {
			off := int64(i%8) * block
			start := time.Now()
			b, _, err := read(t.Context(), c, "slow", "hot", fmt.Sprintf("bytes=%d-%d", off, off+block-1))
			warms = append(warms, time.Since(start))
			if err != nil || !bytes.Equal(b, generated(seed, off, block)) {
				t.Errorf("warm read at %d: %d bytes, %v", off, len(b), err)
			}
			start = time.Now()
			b, _, err = read(t.Context(), c, "slow", fmt.Sprintf("small-%d", nextSmall), "")
			colds = append(colds, time.Since(start))
			if err != nil || !bytes.Equal(b, generated(seed, 0, 4<<10)) {
				t.Errorf("cold read of small-%d: %d bytes, %v", nextSmall, len(b), err)
			}
			nextSmall++
		}
		slices.Sort(warms)
		slices.Sort(colds)
		return warms[probes/2], colds[probes/2]
	}
	if _, _, err := read(t.Context(), sdk(n.URL(), clientKey), "slow", "hot", ""); err != nil {
		t.Fatal(err)
	}
	normal() // the first requests of a process are not its usual ones
	warmAlone, coldAlone := normal()

	url := presigned(t, n.URL(), "slow", "big")
	ctx, stop := context.WithTimeout(t.Context(), length+time.Minute)
	defer stop()
	var started, finished sync.WaitGroup
	var total, least atomic.Int64
	least.Store(block)
	stopReading := make(chan struct{})
	started.Add(readers)
	for i := range readers {
		finished.Go(func() {
			got, err := readSlowly(ctx, n.Addr, url, int64(i)*block, block, rate, seed, started.Done, stopReading)
			total.Add(got)
			for l := least.Load(); got < l && !least.CompareAndSwap(l, got); l = least.Load() {
			}
			if err != nil {
				t.Errorf("slow reader %d after %d bytes: %v", i, got, err)
			}
		})
	}
	begin := time.Now()
	started.Wait()
	t.Logf("%d readers have their first bytes after %v", readers, time.Since(begin))
	warmBeside, coldBeside := normal()
	if full {
		finished.Wait()
	} else if left := length - time.Since(begin); left > 0 {
		time.Sleep(left)
	}
	usage, err := proc.UsageOf(n.Pid())
	if err != nil {
		t.Fatal(err)
	}
	close(stopReading)
	finished.Wait()
	took := time.Since(begin)
	// The usual time is the better one of before and after: a machine that sleeps between requests is slow too.
	warmAfter, coldAfter := normal()
	warmAlone, coldAlone = min(warmAlone, warmAfter), min(coldAlone, coldAfter)

	ratio := func(beside, alone time.Duration) float64 { return beside.Seconds() / alone.Seconds() }
	warm, cold := ratio(warmBeside, warmAlone), ratio(coldBeside, coldAlone)
	t.Logf("RSS %d MiB, at most %d MiB; %d bytes in %v, %d for the slowest",
		usage.RSS>>20, usage.PeakRSS>>20, total.Load(), took, least.Load())
	t.Logf("median of warm 1 MiB reads: %v alone, %v beside them, ratio %.2f", warmAlone, warmBeside, warm)
	t.Logf("median of cold 4 KiB reads: %v alone, %v beside them, ratio %.2f", coldAlone, coldBeside, cold)
	if usage.PeakRSS > maxRSS {
		t.Errorf("RSS was %d MiB, want at most %d", usage.PeakRSS>>20, maxRSS>>20)
	}
	if warm > maxRatio || cold > maxRatio {
		t.Errorf("others were served %.1f times (warm) and %.1f times (cold) as slowly", warm, cold)
	}
	want := int64(block)
	if !full {
		want = int64(rate * length.Seconds() / 2)
	}
	if least.Load() < want {
		t.Errorf("the slowest reader got %d bytes, want %d at least", least.Load(), want)
	}
}

// readSlowly reads length bytes at off, at rate bytes/s, checks each, and returns how many it read until the end or
// until stop is closed. It calls started once, when it has the first bytes or failed.
func readSlowly(ctx context.Context, addr, url string, off int64, length, rate int, seed uint64, started func(),
	stop <-chan struct{},
) (int64, error) {
	begun := sync.OnceFunc(started)
	defer begun()
	s, err := dialSlow(ctx, addr, url, fmt.Sprintf("bytes=%d-%d", off, off+int64(length)-1))
	if err != nil {
		return 0, err
	}
	defer s.close()
	_ = s.conn.SetDeadline(time.Time{})
	step := rate / 4
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	buf, want := make([]byte, step), make([]byte, step)
	var got int64
	for got < int64(length) {
		n := min(step, length-int(got))
		_ = s.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(s.body, buf[:n]); err != nil {
			return got, err
		}
		devs3.Generate(want[:n], off+got, seed)
		if !bytes.Equal(buf[:n], want[:n]) {
			return got, fmt.Errorf("wrong bytes at %d", off+got)
		}
		got += int64(n)
		begun()
		select {
		case <-stop:
			return got, nil
		case <-ctx.Done():
			return got, ctx.Err()
		case <-tick.C:
		}
	}
	return got, nil
}
