package blockstoretest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// Memory checks a memory tier: what Store checks, and the promises of Slots. s.New must return a blockstore.Memory with
// a limit of 16 MiB or less.
func Memory(t *testing.T, s Suite) {
	Store(t, s)
	test := func(name string, f func(*run, blockstore.Memory)) {
		t.Run(name, func(t *testing.T) {
			r := s.start(t)
			f(r, r.store.(blockstore.Memory))
			r.finish()
		})
	}
	test("RefusedLengths", refused)
	test("AllocEvicts", allocEvicts)
	test("AllocWaits", allocWaits)
	test("AllocCancelled", allocCancelled)
}

func refused(r *run, m blockstore.Memory) {
	for _, n := range []int64{0, -1, m.Limit() + 1, 1 << 40, -1 << 40} {
		if b, err := m.Alloc(context.Background(), n); err == nil {
			r.Errorf("Alloc(%d) gave a block", n)
			b.Release()
		}
		if b := m.TryAlloc(n); b != nil {
			r.Errorf("TryAlloc(%d) gave a block", n)
			b.Release()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if b, err := m.Alloc(ctx, 1); !errors.Is(err, context.Canceled) {
		r.Errorf("Alloc with a cancelled context: %v", err)
		if b != nil {
			b.Release()
		}
	}
}

// A tier full of blocks that nobody reads has room for any number of others, of any size, without waiting.
func allocEvicts(r *run, m blockstore.Memory) {
	for phase, blockSize := range []int64{1 << 20, 4 << 10, 64 << 10, 1 << 20} {
		v := Object(fmt.Sprintf("phase %d", phase), 1<<40, blockSize)
		for i := range 2 * m.Limit() / blockSize {
			b := m.TryAlloc(blockSize)
			if b == nil {
				r.Fatalf("TryAlloc(%d) gave nothing with all blocks unused", blockSize)
			}
			r.seal(b, blockstore.Key{Version: v, Index: i})
			m.Put(b)
			b.Release()
		}
	}
}

// With the whole tier held nothing is given out, never more than the limit, and one release serves all who wait, one
// after the other.
func allocWaits(r *run, m blockstore.Memory) {
	const n = 256 << 10
	held := exhaust(r, m, n)
	if got := int64(len(held)) * n; got > m.Limit() || got < m.Limit()*3/4 {
		r.Errorf("%d bytes of blocks in a tier of %d", got, m.Limit())
	}
	const waiters = 5
	got := make(chan struct{}, waiters)
	for range waiters {
		go func() {
			b, err := m.Alloc(context.Background(), n)
			if err != nil {
				r.Error(err)
			} else {
				defer b.Release()
			}
			got <- struct{}{}
		}()
	}
	held[0].Release()
	for range waiters { // each one's release serves the next
		select {
		case <-got:
		case <-time.After(time.Minute):
			r.Fatal("an Alloc was never served")
		}
	}
	for _, b := range held[1:] {
		b.Release()
	}
}

func allocCancelled(r *run, m blockstore.Memory) {
	const n = 256 << 10
	held := exhaust(r, m, n)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	errs := make(chan error)
	go func() {
		_, err := m.Alloc(ctx, n)
		errs <- err
	}()
	cancel(cause)
	if err := <-errs; !errors.Is(err, cause) {
		r.Errorf("Alloc ended with %v, want the context's cause", err)
	}
	for _, b := range held {
		b.Release()
	}
	again := exhaust(r, m, n)
	if len(again) < len(held) {
		r.Errorf("%d slots after a cancelled Alloc, %d before", len(again), len(held))
	}
	for _, b := range again {
		b.Release()
	}
}

// exhaust allocates until there is nothing left, and checks that all of it can be written.
func exhaust(r *run, m blockstore.Memory, n int64) (held []*blockstore.Block) {
	for {
		b := m.TryAlloc(n)
		if b == nil {
			return held
		}
		b.Buf()[0], b.Buf()[n-1] = 1, 1
		held = append(held, b)
	}
}
