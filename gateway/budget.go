package gateway

import "sync/atomic"

// budget is a number of bytes that may be taken, never waited for. Safe for concurrent use.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take takes n bytes, all or none.
func (b *budget) take(n int64) bool { return b.takeUpTo(b.limit, n) }

// takeUpTo is take where no more than most bytes are used then, by anybody.
func (b *budget) takeUpTo(most, n int64) bool {
	for {
		used := b.used.Load()
		if used+n > most {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// takeUnits takes up to n units of size bytes and returns how many it took.
func (b *budget) takeUnits(n, size int64) int64 {
	for ; n > 0; n-- {
		if b.take(n * size) {
			return n
		}
	}
	return 0
}

func (b *budget) give(n int64) { b.used.Add(-n) }
