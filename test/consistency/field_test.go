//go:build integration

package consistency

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// TestSmallObjectRewritten is field case C01: a small object, and one of three blocks, rewritten 50 times a second and
// read by twenty clients all the while. Nothing fails.
func TestSmallObjectRewritten(t *testing.T) {
	o := newOrigin(t)
	r := newRun(Load{
		Target: newNode(t, "", o.url, ""), Keys: 1, Writers: 1, Readers: 20, Duration: *duration, Block: block,
	})
	defer r.http.CloseIdleConnections()
	w := &writer{run: r}
	tick := time.NewTicker(time.Second / 50)
	defer tick.Stop()
	sizes := []int{100, 50, 3 * block}
	write := func(ctx context.Context) error {
		<-tick.C
		v, body := r.versions.add(keyName(0), sizes[0], false)
		sizes = append(sizes[1:], sizes[0])
		return w.write(ctx, put(v, body), v.name())
	}
	if err := write(t.Context()); err != nil { // so that there is always one
		t.Fatal(err)
	}
	clients := []func(context.Context) error{write}
	for range r.Readers {
		reader := newReader(r, r.client, nil)
		clients = append(clients, func(ctx context.Context) error {
			for _, header := range []map[string]string{nil, {"Range": "bytes=-20"}} {
				if err := reader.read(ctx, request{method: http.MethodGet, key: keyName(0), header: header}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := r.work(t.Context(), clients)
	t.Log(&r.result)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.result.Failed) > 0 {
		t.Errorf("failed: %v", r.result.Failed)
	}
	for _, v := range Check(r.result.History) {
		t.Error(v)
	}
	for _, op := range r.result.History {
		if !op.Write && op.Version == "" {
			t.Errorf("not found: %v", op)
		}
	}
}

// TestOverwrittenBehind is field case C05: an object of three blocks is overwritten at the origin, past a node that holds
// one block of it.
func TestOverwrittenBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		header map[string]string
		length int
	}{
		{"whole", nil, 3 * block},
		{"range across blocks", map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", block/2, 5*block/2)}, 2*block + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBehind(t)
			b.put('A')
			if got, err := b.read(map[string]string{"Range": "bytes=0-0"}); string(got) != "A" || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
			b.put('B')
			got, err := b.read(c.header)
			b.oneVersion(got, err, c.length, "AB")
			got, err = b.read(c.header) // by now it is known
			b.oneVersion(got, err, c.length, "B")
			if err != nil {
				t.Errorf("after the change was noticed: %v", err)
			}
		})
	}
	t.Run("in the middle of a block", func(t *testing.T) {
		b := newBehind(t)
		b.put('B')
		overwritten := make(chan struct{})
		b.stall.Store(&overwritten)
		got, err := b.readUpTo(nil, block, func() {
			b.put('C')
			close(overwritten)
		})
		b.oneVersion(got, err, 3*block, "B")
		next := "BC" // one answer that began before brings all of B, and for ttl nobody asks
		if err != nil {
			next = "C" // noticed
		}
		got, err = b.read(nil)
		b.oneVersion(got, err, 3*block, next)
		if err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
	t.Run("all blocks are held", func(t *testing.T) {
		b := newBehind(t)
		b.put('A')
		got, err := b.read(nil)
		b.oneVersion(got, err, 3*block, "A")
		got, err = b.readUpTo(nil, block, func() { b.put('B') })
		b.oneVersion(got, err, 3*block, "A")
		if err != nil {
			t.Errorf("nothing was missing: %v", err)
		}
	})
}

// behind is an object that a node caches block by block, and that changes behind it.
type behind struct {
	t      *testing.T
	origin *origin
	client *client
	stall  atomic.Pointer[chan struct{}] // the origin sends half of the second block before this is closed
}

func newBehind(t *testing.T) *behind {
	b := &behind{t: t, origin: newOrigin(t)}
	b.client = newClient(newNode(t, "", b.origin.url, "fetch_window = 1\nread_window = 1\n"), 1)
	t.Cleanup(b.client.http.CloseIdleConnections)
	b.origin.Fault(func(r *http.Request) *devs3.Fault {
		rng := r.Header.Get("Range")
		if r.Method != http.MethodGet || strings.HasPrefix(rng, "bytes=0-") {
			return nil
		}
		if r.Header.Get("If-Match") == "" {
			t.Errorf("%s is fetched without If-Match", rng)
		}
		if until := b.stall.Load(); until != nil && strings.HasPrefix(rng, fmt.Sprintf("bytes=%d-", block)) {
			return devs3.StallAfter(block/2, *until)
		}
		return nil
	})
	return b
}

// put overwrites the object at the origin.
func (b *behind) put(letter byte) {
	b.origin.Put(bucket, "k", bytes.Repeat([]byte{letter}, 3*block))
}

// read returns the bytes of an answer, and an error where it broke off.
func (b *behind) read(header map[string]string) ([]byte, error) {
	b.t.Helper()
	return b.readUpTo(header, 0, func() {})
}

// readUpTo is read with a pause after n bytes, in which it calls do.
func (b *behind) readUpTo(header map[string]string, n int, do func()) ([]byte, error) {
	b.t.Helper()
	resp, err := b.client.send(b.t.Context(), request{method: http.MethodGet, key: "k", header: header})
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		b.t.Fatal(resp.Status)
	}
	first := make([]byte, n)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		b.t.Fatal(err)
	}
	do()
	rest, err := io.ReadAll(resp.Body)
	return append(first, rest...), err
}

// oneVersion fails the test unless body is of length bytes, or broke off, and all of one of the letters.
func (b *behind) oneVersion(body []byte, err error, length int, letters string) {
	b.t.Helper()
	if err == nil && len(body) != length {
		b.t.Errorf("%d bytes look complete, want %d", len(body), length)
	}
	if len(body) > 0 && (!strings.ContainsRune(letters, rune(body[0])) || bytes.Count(body, body[:1]) != len(body)) {
		b.t.Errorf("of %d bytes %d are %q, want all of one of %q", len(body), bytes.Count(body, body[:1]), body[0], letters)
	}
}
