//go:build poison

package memory

import (
	"bytes"
	"runtime/debug"
	"testing"
)

// fault says whether f touches memory that it must not.
func fault(f func()) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// A slice that outlives its reference faults, on reading and on writing, and so on again when the slot went to the
// next.
func TestPoisonedSpan(t *testing.T) {
	m := newTier(t, 8<<20, 1<<20)
	for _, n := range []int64{1 << 20, 64 << 10, 4 << 10} {
		b, err := m.Alloc(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		stale := b.Buf()
		if fault(func() { stale[0] = 1 }) {
			t.Fatalf("%d bytes: a slot in use faults", n)
		}
		b.Release()
		sum := byte(0)
		if !fault(func() { sum += stale[0] }) || !fault(func() { stale[n-1] = 1 }) {
			t.Errorf("%d bytes: a released slot can be used", n)
		}
		if b, err = m.Alloc(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if fault(func() { b.Buf()[0], b.Buf()[n-1] = 1, 1 }) {
			t.Errorf("%d bytes: a recycled slot faults", n)
		}
		b.Release()
	}
}

// Slots that share pages with others in use are overwritten.
func TestPoisonedSlot(t *testing.T) {
	m := newTier(t, 8<<20, 1<<20)
	first, err := m.Alloc(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Alloc(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	copy(first.Buf(), "what was there before")
	stale := first.Buf()
	first.Release()
	if !bytes.Equal(stale, bytes.Repeat([]byte{poisonByte}, 300)) {
		t.Errorf("a released slot still has %q", stale[:32])
	}
	second.Release()
	if !fault(func() { stale[0]++ }) {
		t.Error("a page without slots in use can be used")
	}
}
