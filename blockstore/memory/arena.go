package memory

import (
	"container/list"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arena hands out slots of off-heap memory within a budget.
//
// Each class has its own stretch of address space as large as the whole budget, so memory moves between classes page by
// page and address space never fragments. A span that becomes free stays resident for its own class (it is warm); when
// another class needs the bytes it is given back to the system (and is cold). The budget counts every resident span,
// used or not, and blockOverhead for each slot in use, and is never exceeded.
//
// Those who must wait for room form one queue and are served strictly in order: nobody overtakes, whatever their sizes,
// so a large request is not starved by small ones.
type arena struct {
	mapping []byte
	base    uintptr
	size    uintptr // bytes of the mapping
	stride  int64   // bytes of address space per class
	limit   int64
	largest int64 // bytes of the largest block

	giveBack func(mem []byte) error // gives pages back to the system; they read as zeros then

	waiting atomic.Int64 // len of queue, to be looked at without the lock

	mu       sync.Mutex // guards what follows; held during madvise, which takes microseconds and is rare
	classes  []class    // the slice and the layouts never change
	resident int64      // bytes of resident spans
	warm     int64      // bytes of resident spans that are wholly free
	blocks   int64      // slots in use
	slots    int64      // bytes of slots in use
	queue    *list.List // of *waiter
	closed   bool
}

// class is the state of one slot size, guarded by arena.mu. A span is in partial, warm or cold, or full and in none.
type class struct {
	layout
	spans   []span
	partial []int32 // spans with free slots and slots in use
	warm    []int32 // wholly free and resident
	cold    []int32 // wholly free and given back
}

type span struct {
	free uint64 // a bit per slot
	at   int32  // position in class.partial, while it is there
}

// waiter is someone in the queue. Its slot, or nil when the arena is closed, is set before ready is closed.
type waiter struct {
	class int
	slot  []byte
	ready chan struct{}
}

// strideOf returns the address space of one class, in bytes.
func strideOf(limit int64) int64 {
	const align = 2 << 20 // any page size, and page tables of classes kept apart
	return (limit + align - 1) / align * align
}

func newArena(limit, maxBlock int64) (*arena, error) {
	page := int64(os.Getpagesize())
	a := &arena{limit: limit, largest: maxBlock, giveBack: giveBack, queue: list.New()}
	for _, l := range layouts(maxBlock, page) {
		a.classes = append(a.classes, class{layout: l})
	}
	a.stride = strideOf(limit)
	if a.stride > (1<<47)/int64(len(a.classes)) {
		return nil, fmt.Errorf("memory: a limit of %d bytes needs more address space than there is", limit)
	}
	var err error
	if a.mapping, err = reserve(a.stride * int64(len(a.classes))); err != nil {
		return nil, fmt.Errorf("memory: reserving %d bytes of address space: %w",
			a.stride*int64(len(a.classes)), err)
	}
	a.base = uintptr(unsafe.Pointer(unsafe.SliceData(a.mapping)))
	a.size = uintptr(len(a.mapping))
	// A process whose memory is locked can't give pages back; better to be told now.
	a.mapping[0] = 1
	if err := giveBack(a.mapping[:page]); err != nil {
		_ = unix.Munmap(a.mapping)
		return nil, fmt.Errorf("memory: giving pages back (is the process's memory locked?): %w", err)
	}
	return a, nil
}

// classOf returns the smallest class whose slots hold n bytes; n must not be above the largest.
func (a *arena) classOf(n int64) int {
	lo, hi := 0, len(a.classes)-1
	for lo < hi {
		if mid := (lo + hi) / 2; a.classes[mid].slot < n {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// owns says whether m lies in a slot of this arena.
func (a *arena) owns(m []byte) bool {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	return p >= a.base && p < a.base+a.size
}

// spent returns what the budget has given out.
func (a *arena) spent() int64 { return a.resident + a.blocks*blockOverhead }

// inUse returns the bytes that can't be had without freeing a slot.
func (a *arena) inUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spent() - a.warm
}

// need returns the bytes that one more slot of a class takes.
func (a *arena) need(ci int) int64 {
	if c := &a.classes[ci]; len(c.partial) == 0 {
		return blockOverhead + c.span
	}
	return blockOverhead
}

// short returns how many bytes must be freed before a slot of the class can be had; 0 or less when there is room.
func (a *arena) short(ci int) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.need(ci) - (a.limit - a.spent() + a.warm)
}

// take returns a slot of the class, or nil when there is no room or others wait for it.
func (a *arena) take(ci int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.queue.Len() > 0 {
		return nil
	}
	return a.takeLocked(ci)
}

// takeOrQueue returns a slot, or a place in the queue; neither when the arena is closed. A place must be given up with
// leave, or waited for.
func (a *arena) takeOrQueue(ci int) ([]byte, *list.Element) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, nil
	}
	if a.queue.Len() == 0 {
		if m := a.takeLocked(ci); m != nil {
			return m, nil
		}
	}
	a.waiting.Add(1)
	return nil, a.queue.PushBack(&waiter{class: ci, ready: make(chan struct{})})
}

// leave gives up a place in the queue, and the slot if it had just been granted.
func (a *arena) leave(place *list.Element) {
	a.mu.Lock()
	w := place.Value.(*waiter)
	select {
	case <-w.ready:
		a.mu.Unlock()
		if w.slot != nil {
			a.free(w.slot)
		}
		return
	default:
	}
	a.queue.Remove(place)
	a.waiting.Add(-1)
	a.serve() // the next one may want less
	a.mu.Unlock()
}

// next serves those for whom there is room and returns the first of the others, nil when there is none.
func (a *arena) next() *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serve()
	if a.queue.Len() == 0 {
		return nil
	}
	return a.queue.Front().Value.(*waiter)
}

// serve grants slots from the front of the queue for as long as there is room.
func (a *arena) serve() {
	for a.queue.Len() > 0 {
		place := a.queue.Front()
		w := place.Value.(*waiter)
		if w.slot = a.takeLocked(w.class); w.slot == nil {
			return
		}
		a.queue.Remove(place)
		a.waiting.Add(-1)
		close(w.ready)
	}
}

func (a *arena) takeLocked(ci int) []byte {
	c := &a.classes[ci]
	if a.limit-a.spent()+a.warm < a.need(ci) {
		return nil
	}
	fresh := len(c.partial) == 0 && len(c.warm) == 0
	want := int64(blockOverhead)
	if fresh {
		want += c.span
	}
	keep := ci // a warm span of its own is what will be taken, unless there is a partial one
	if len(c.partial) > 0 {
		keep = -1
	}
	for a.spent()+want > a.limit {
		if !a.trim(keep) {
			return nil
		}
	}
	var si int32
	switch {
	case len(c.partial) > 0:
		si = c.partial[len(c.partial)-1]
	case len(c.warm) > 0:
		si = pop(&c.warm)
		a.warm -= c.span
		revive(a.span(ci, si))
	case len(c.cold) > 0:
		si = pop(&c.cold)
		a.resident += c.span
		revive(a.span(ci, si))
	default:
		si = int32(len(c.spans))
		c.spans = append(c.spans, span{free: c.all()})
		a.resident += c.span
	}
	s := &c.spans[si]
	if s.free == c.all() && c.slots > 1 {
		s.at = int32(len(c.partial))
		c.partial = append(c.partial, si)
	}
	slot := first(s.free)
	s.free &^= 1 << slot
	if s.free == 0 && c.slots > 1 {
		c.dropPartial(s)
	}
	a.blocks++
	a.slots += c.slot
	return a.span(ci, si)[int64(slot)*c.slot:][:c.slot:c.slot]
}

// trim gives one warm span back to the system, of the class that has most of them, but not the last one of class keep.
// It says whether it could.
func (a *arena) trim(keep int) bool {
	most, bytes := -1, int64(0)
	for ci := range a.classes {
		c := &a.classes[ci]
		n := int64(len(c.warm)) * c.span
		if n > bytes && (ci != keep || len(c.warm) > 1) {
			most, bytes = ci, n
		}
	}
	if most < 0 {
		return false
	}
	c := &a.classes[most]
	si := c.warm[len(c.warm)-1]
	if a.giveBack(a.span(most, si)) != nil {
		return false // still resident, still counted
	}
	pop(&c.warm)
	c.cold = append(c.cold, si)
	a.warm -= c.span
	a.resident -= c.span
	return true
}

// free takes a slot back and serves those who wait. It panics on a slot that is free already.
func (a *arena) free(m []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	off := int64(uintptr(unsafe.Pointer(unsafe.SliceData(m))) - a.base)
	ci := int(off / a.stride)
	c := &a.classes[ci]
	off -= int64(ci) * a.stride
	si := int32(off / c.span)
	bit := uint64(1) << (off % c.span / c.slot)
	s := &c.spans[si]
	if s.free&bit != 0 {
		panic("memory: slot freed twice")
	}
	if s.free == 0 && c.slots > 1 {
		s.at = int32(len(c.partial))
		c.partial = append(c.partial, si)
	}
	s.free |= bit
	a.blocks--
	a.slots -= c.slot
	if s.free == c.all() {
		if c.slots > 1 {
			c.dropPartial(s)
		}
		c.warm = append(c.warm, si)
		a.warm += c.span
		poisonSpan(a.span(ci, si))
	} else {
		poisonSlot(m[:c.slot])
	}
	if a.closed {
		a.unmapIfIdle()
		return
	}
	a.serve()
}

// close turns everyone in the queue away; the memory is unmapped when the last slot comes back.
func (a *arena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for a.queue.Len() > 0 {
		w := a.queue.Remove(a.queue.Front()).(*waiter)
		a.waiting.Add(-1)
		close(w.ready)
	}
	a.unmapIfIdle()
}

func (a *arena) unmapIfIdle() {
	if a.blocks > 0 || a.mapping == nil {
		return
	}
	_ = unix.Munmap(a.mapping)
	a.mapping = nil
	a.resident, a.warm = 0, 0
	for i := range a.classes {
		c := &a.classes[i]
		c.spans, c.partial, c.warm, c.cold = nil, nil, nil, nil
	}
}

// span returns the memory of a span.
func (a *arena) span(ci int, si int32) []byte {
	off := int64(ci)*a.stride + int64(si)*a.classes[ci].span
	return a.mapping[off:][:a.classes[ci].span]
}

func (c *class) dropPartial(s *span) {
	last := c.partial[len(c.partial)-1]
	c.partial[s.at] = last
	c.spans[last].at = s.at
	c.partial = c.partial[:len(c.partial)-1]
}

func pop(s *[]int32) int32 {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
