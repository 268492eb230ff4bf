package memory

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"
)

func TestLayouts(t *testing.T) {
	for _, page := range []int64{4 << 10, 16 << 10, 64 << 10} {
		ls := layouts(maxSlot, page)
		if last := ls[len(ls)-1]; last.slot != maxSlot {
			t.Errorf("largest slot %d, want %d", last.slot, maxSlot)
		}
		for i, l := range ls {
			if l.span%page != 0 || l.slots < 1 || l.slots > maxSpanSlots || int64(l.slots)*l.slot > l.span {
				t.Fatalf("page %d: impossible layout %+v", page, l)
			}
			if waste := l.span - int64(l.slots)*l.slot; waste*8 > l.span {
				t.Errorf("page %d: %+v wastes %d bytes of each span", page, l, waste)
			}
			if i > 0 && (l.slot <= ls[i-1].slot || l.slot*4 > ls[i-1].slot*5) {
				t.Errorf("page %d: slot %d follows %d", page, l.slot, ls[i-1].slot)
			}
		}
	}
}

// Random takes and frees of all sizes: slots never overlap, hold what was asked for, and what is resident with the
// overhead of blocks never exceeds the limit; and at the end all of it can be one class's again.
func TestArenaRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const limit = 8 << 20
	a, err := newArena(limit, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	type slot struct {
		m    []byte
		mark byte
	}
	var held []slot
	refused := 0
	for i := range 30_000 {
		phase := i / 3000
		n := 1 + rng.Int64N(int64(1)<<(5+rng.IntN(16)))
		if phase%3 == 1 {
			n = 1 + rng.Int64N(3000)
		}
		m := a.take(a.classOf(n))
		switch {
		case m == nil:
			refused++
		case int64(len(m)) < n:
			t.Fatalf("%d bytes for %d", len(m), n)
		default:
			s := slot{m, byte(i)}
			for _, p := range []int{0, len(m) / 2, len(m) - 1} {
				m[p] = s.mark
			}
			held = append(held, s)
		}
		for len(held) > 0 && (m == nil || rng.IntN(100) < 45) {
			at := rng.IntN(len(held))
			s := held[at]
			for _, p := range []int{0, len(s.m) / 2, len(s.m) - 1} {
				if s.m[p] != s.mark {
					t.Fatalf("slot of %d bytes was overwritten at %d", len(s.m), p)
				}
			}
			held[at] = held[len(held)-1]
			held = held[:len(held)-1]
			a.free(s.m)
			m = s.m
		}
		a.mu.Lock()
		if a.spent() > limit || a.resident < 0 || a.warm > a.resident || a.blocks != int64(len(held)) {
			t.Fatalf("resident %d, warm %d, %d blocks of %d, limit %d", a.resident, a.warm, a.blocks, len(held), limit)
		}
		a.mu.Unlock()
	}
	if refused == 0 {
		t.Error("the limit was never reached")
	}
	for _, s := range held {
		a.free(s.m)
	}
	if a.inUse() != 0 {
		t.Errorf("%d bytes in use with nothing held", a.inUse())
	}
	held = nil
	for m := a.take(a.classOf(1 << 20)); m != nil; m = a.take(a.classOf(1 << 20)) {
		held = append(held, slot{m: m})
	}
	if len(held) != limit/(1<<20+blockOverhead) {
		t.Errorf("%d slots of 1 MiB in an empty arena of %d bytes", len(held), limit)
	}
	for _, s := range held {
		a.free(s.m)
	}
}

func TestArenaFreeTwice(t *testing.T) {
	a, err := newArena(minLimit, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, n := range []int64{100, 64 << 10} {
		other, m := a.take(a.classOf(n)), a.take(a.classOf(n))
		a.free(m)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a slot for %d bytes was freed twice", n)
				}
			}()
			a.free(m)
		}()
		a.free(other)
	}
}

// Small objects share pages.
func TestSmallSlotsSharePages(t *testing.T) {
	if os.Getpagesize() != 4<<10 {
		t.Skip("the numbers are for pages of 4 KiB")
	}
	a, err := newArena(minLimit, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	pages := map[uintptr]bool{}
	var held [][]byte
	for range 64 {
		m := a.take(a.classOf(250))
		pages[uintptr(unsafe.Pointer(&m[0]))/4096] = true
		held = append(held, m)
	}
	if len(pages) != 4 || a.resident != 4*4096 {
		t.Errorf("64 objects of 250 bytes are in %d pages, %d bytes resident, want 4 pages", len(pages), a.resident)
	}
	for _, m := range held {
		a.free(m)
	}
}

func TestGhost(t *testing.T) {
	const block, limit = 4 << 10, 4 << 20
	g := newGhost(limit)
	hash := func(i int) uint64 { return uint64(i+1) * 0x9e3779b97f4a7c15 }
	for i := range 1500 {
		g.add(hash(i), block)
	}
	remembered := 0
	for i := range 1500 {
		if g.take(hash(i)) {
			remembered++
			if i < 1500-limit/block-1 {
				t.Errorf("block %d is remembered after %d were turned away", i, 1500-i)
			}
			if g.take(hash(i)) {
				t.Errorf("block %d is remembered after it was taken", i)
			}
		}
	}
	if remembered < limit/block*95/100 {
		t.Errorf("%d blocks are remembered, want about %d", remembered, limit/block)
	}
}
