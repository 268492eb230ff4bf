package memory

import "math/bits"

// Slots come in classes: four sizes per doubling, so that a block leaves at most a fifth of its slot unused. A span is
// the run of whole pages that is committed and given back as one: one slot where the size is a multiple of the page,
// several slots sharing pages below that.
const (
	minSlot      = 256      // bytes, the smallest slot
	maxSlot      = 16 << 20 // bytes, the largest slot
	maxSpanSlots = 64       // slots of a span are bits of one word
	maxSpanPages = 8        // of spans that hold several slots
)

// layout is the shape of one class.
type layout struct {
	slot  int64 // bytes of one slot
	span  int64 // bytes of one span, a multiple of the page
	slots int   // slots in a span, 1 to maxSpanSlots
}

// layouts returns the classes for blocks of up to maxBlock bytes, by ascending slot size.
func layouts(maxBlock, page int64) []layout {
	var ls []layout
	for base := max(minSlot, page/maxSpanSlots); ; base *= 2 {
		for step := range int64(4) {
			slot := base + base/4*step
			ls = append(ls, layoutOf(slot, page))
			if slot >= maxBlock {
				return ls
			}
		}
	}
}

// layoutOf picks the shortest span that wastes at most a sixteenth of itself, or failing that the least wasteful one.
func layoutOf(slot, page int64) layout {
	if slot%page == 0 {
		return layout{slot: slot, span: slot, slots: 1}
	}
	var best layout
	bestWaste := 1.0
	for pages := int64(1); pages <= maxSpanPages; pages++ {
		span := pages * page
		slots := span / slot
		if slots < 1 || slots > maxSpanSlots {
			continue
		}
		waste := float64(span-slots*slot) / float64(span)
		if waste < bestWaste {
			best, bestWaste = layout{slot: slot, span: span, slots: int(slots)}, waste
		}
		if waste <= 1.0/16 {
			break
		}
	}
	return best
}

// all returns the mask of a span whose slots are all free.
func (l layout) all() uint64 { return ^uint64(0) >> (maxSpanSlots - l.slots) }

// first returns the lowest free slot of a mask that has one.
func first(free uint64) int { return bits.TrailingZeros64(free) }
