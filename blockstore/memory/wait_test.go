package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// A waiter is served by the end of what holds the memory, whatever that is: a reader of a block that the tier itself
// still has, a fill that is put, a fill that is given up.
func TestWaiterIsServed(t *testing.T) {
	for name, finish := range map[string]func(m *Tier, b *blockstore.Block, i int64){
		"reader leaves": func(m *Tier, b *blockstore.Block, i int64) { b.Release() },
		"fill is put": func(m *Tier, b *blockstore.Block, i int64) {
			b.Seal(key(i), 1<<20)
			m.Put(b)
			b.Release()
		},
		"fill is given up": func(m *Tier, b *blockstore.Block, i int64) { b.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newTier(t, 8<<20, 1<<20)
				defer m.Close()
				var held []*blockstore.Block
				for b := m.TryAlloc(1 << 20); b != nil; b = m.TryAlloc(1 << 20) {
					held = append(held, b)
				}
				if name == "reader leaves" {
					for i, b := range held {
						b.Seal(key(int64(i)), 1<<20)
						m.Put(b)
					}
				}
				var got *blockstore.Block
				go func() { got, _ = m.Alloc(context.Background(), 1<<20) }()
				synctest.Wait()
				if got != nil {
					t.Fatal("there was room")
				}
				last := len(held) - 1 // of which the tier has only a reference among others
				finish(m, held[last], 103)
				time.Sleep(pollEvery)
				synctest.Wait()
				if got == nil {
					t.Fatalf("the waiter was not served: %+v", m.Stats())
				}
				got.Release()
				for _, b := range held[:last] {
					b.Release()
				}
			})
		})
	}
}

// Waiters are served in their order, whatever their sizes, one that gave up doesn't count, and nobody overtakes.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTier(t, 8<<20, 1<<20)
		defer m.Close()
		var held []*blockstore.Block
		for b := m.TryAlloc(256 << 10); b != nil; b = m.TryAlloc(256 << 10) {
			held = append(held, b)
		}
		small := m.TryAlloc(64 << 10)
		for b := small; b != nil; b = m.TryAlloc(64 << 10) {
			held = append(held, b)
		}
		var mu sync.Mutex
		var order []int
		cause := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(context.Background())
		var got []*blockstore.Block
		for i, n := range []int64{1 << 20, 4 << 10, 1 << 20, 64 << 10, 1} {
			go func() {
				c := context.Background()
				if i == 0 {
					c = ctx
				}
				b, err := m.Alloc(c, n)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if i != 0 || !errors.Is(err, cause) {
						t.Errorf("waiter %d: %v", i, err)
					}
					return
				}
				order, got = append(order, i), append(got, b)
			}()
			synctest.Wait()
		}
		if s := m.Stats(); s.Waiting != 5 {
			t.Fatalf("%d wait, want 5", s.Waiting)
		}
		for b := range held[:3] { // 768 KiB: not enough for the first, and none for those behind
			held[b].Release()
		}
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("overtaken by %v", order)
		}
		if b := m.TryAlloc(1); b != nil {
			t.Error("TryAlloc overtook those who wait")
			b.Release()
		}
		cancel(cause)
		synctest.Wait()
		if fmt.Sprint(order) != "[1]" { // the one behind fits
			t.Fatalf("served %v after the first gave up", order)
		}
		for _, b := range held[3:] {
			b.Release()
			synctest.Wait()
			if len(order) > 1 && !slices.Contains(order, 2) {
				t.Fatalf("waiter 2 was overtaken: %v", order)
			}
		}
		if len(order) != 4 {
			t.Errorf("served %v", order)
		}
		for _, b := range got {
			b.Release()
		}
		if s := m.Stats(); s.Slots != 0 || s.Waiting != 0 || s.AllocWaits != 5 {
			t.Errorf("at the end %+v", s)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTier(t, 8<<20, 1<<20)
		var held []*blockstore.Block
		for b := m.TryAlloc(1 << 20); b != nil; b = m.TryAlloc(1 << 20) {
			blockstoretest.Fill(key(100), b.Buf())
			b.Seal(key(100), 1<<20)
			held = append(held, b)
		}
		for _, b := range held[:3] {
			m.Put(b)
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := m.Alloc(context.Background(), 1<<20)
				errs <- err
			}()
		}
		synctest.Wait()
		m.Close()
		select {
		case <-m.done:
		default:
			t.Error("the mover runs on")
		}
		m.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("a waiter got %v", err)
			}
		}
		m.Put(held[0])
		if m.Contains(key(100)) || m.Get(key(100)) != nil {
			t.Error("found something after Close")
		}
		if b := m.TryAlloc(1); b != nil {
			t.Error("TryAlloc after Close")
		}
		if _, err := m.Alloc(context.Background(), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("Alloc after Close: %v", err)
		}
		for _, b := range held {
			if err := blockstoretest.Check(key(100), b); err != nil {
				t.Error(err)
			}
			if m.arena.mapping == nil {
				t.Fatal("unmapped with blocks referenced")
			}
			b.Release()
		}
		if m.arena.mapping != nil {
			t.Error("still mapped after the last release")
		}
	})
}

// Close in the middle of everything.
func TestCloseRace(t *testing.T) {
	for range 20 {
		m := newTier(t, 8<<20, 1<<20)
		var wg sync.WaitGroup
		started := make(chan struct{}, 4)
		for g := range int64(4) {
			wg.Go(func() {
				for i := int64(0); ; i++ {
					if i == 10 {
						started <- struct{}{}
					}
					k := key(g + i%30)
					if b := m.Get(k); b != nil {
						b.Release()
						continue
					}
					m.Contains(k)
					b, err := m.Alloc(context.Background(), 1<<20)
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					b.Seal(k, 1<<20)
					m.Put(b)
					b.Release()
				}
			})
		}
		<-started
		m.Close()
		wg.Wait()
		if m.arena.mapping != nil {
			t.Fatal("still mapped")
		}
	}
}

// A system that does not take pages back makes those wait who need them; the mover does not run in circles meanwhile,
// and all goes on once it does.
func TestPagesThatCannotBeGivenBack(t *testing.T) {
	tier, err := New(Config{Limit: 8 << 20, MaxBlock: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	var small []*blockstore.Block
	for {
		b := tier.TryAlloc(64 << 10)
		if b == nil {
			break
		}
		small = append(small, b)
	}
	refuse := func(f func([]byte) error) {
		tier.arena.mu.Lock()
		defer tier.arena.mu.Unlock()
		tier.arena.giveBack = f
	}
	calls := 0
	refuse(func([]byte) error { calls++; return errors.New("planted") })
	for _, b := range small { // all warm, for their own class
		b.Release()
	}
	got := make(chan error)
	go func() {
		b, err := tier.Alloc(t.Context(), 1<<20)
		if err == nil {
			b.Release()
		}
		got <- err
	}()
	for tier.arena.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for n := 0; n < 5; { // that many rounds of the mover
		tier.wake()
		tier.policy.mu.Lock() // it holds this while it works
		closed := tier.policy.closed
		tier.policy.mu.Unlock()
		if closed {
			t.Fatal("closed")
		}
		time.Sleep(time.Millisecond)
		tier.arena.mu.Lock()
		n = calls
		tier.arena.mu.Unlock()
	}
	refuse(giveBack)
	tier.wake()
	if err := <-got; err != nil {
		t.Error(err)
	}
}
