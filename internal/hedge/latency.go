package hedge

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Latency keeps the durations of the last one to two minutes. Safe for concurrent use; to record one takes no lock.
type Latency struct {
	start   time.Time
	windows atomic.Pointer[windows]
}

// window is how long durations are collected before the collection before is forgotten.
const window = time.Minute

// windows is a pair of collections. It is replaced as a whole; those who still record in an old one are late by that.
type windows struct {
	epoch     int64 // of now, in windows since Latency.start
	now, last *histogram
}

// NewLatency returns one that knows nothing yet.
func NewLatency() *Latency {
	l := &Latency{start: time.Now()}
	l.windows.Store(&windows{now: new(histogram), last: new(histogram)})
	return l
}

// current returns the two collections that count now.
func (l *Latency) current() *windows {
	for {
		w := l.windows.Load()
		epoch := int64(time.Since(l.start) / window)
		if epoch <= w.epoch {
			return w
		}
		next := &windows{epoch: epoch, now: new(histogram), last: new(histogram)}
		if epoch == w.epoch+1 {
			next.last = w.now
		}
		if l.windows.CompareAndSwap(w, next) {
			return next
		}
	}
}

// Record takes in one duration.
func (l *Latency) Record(d time.Duration) { l.current().now.record(d) }

// Mean returns the mean, exact but for rounding to microseconds, and whether there is one.
func (l *Latency) Mean() (time.Duration, bool) {
	w := l.current()
	n, sum := w.now.count.Load()+w.last.count.Load(), w.now.sum.Load()+w.last.sum.Load()
	if n == 0 {
		return 0, false
	}
	return time.Duration(sum/n) * time.Microsecond, true
}

// Quantile returns the duration that a share q of all does not exceed, 0 < q <= 1, and 0 where there is none. It is off
// by at most 1/32 of itself, or by a microsecond, as long as it is below 71 minutes.
func (l *Latency) Quantile(q float64) time.Duration {
	w := l.current()
	var counts [buckets]int64
	total := int64(0)
	for i := range counts {
		counts[i] = w.now.buckets[i].Load() + w.last.buckets[i].Load()
		total += counts[i]
	}
	rank := int64(math.Ceil(q * float64(total)))
	for i, n := range counts {
		if rank -= n; n > 0 && rank <= 0 {
			return middle(i)
		}
	}
	return 0
}

// histogram counts durations in buckets each as wide as a sixteenth of its lower bound, or a microsecond: so the middle
// of a bucket is off by at most 1/32 from all that is in it.
type histogram struct {
	count, sum atomic.Int64 // sum in microseconds
	buckets    [buckets]atomic.Int64
}

const (
	subBits = 4  // buckets per doubling, as a power of two
	maxBits = 32 // microseconds above this many bits count as the most there is
	buckets = (maxBits - subBits + 1) << subBits
)

func (h *histogram) record(d time.Duration) {
	us := min(max(d.Microseconds(), 0), 1<<maxBits-1)
	h.buckets[bucketOf(us)].Add(1)
	h.sum.Add(us)
	h.count.Add(1)
}

func bucketOf(us int64) int {
	shift := max(bits.Len64(uint64(us))-subBits-1, 0)
	return shift<<subBits + int(us>>shift)
}

// middle is the duration that stands for all in bucket i.
func middle(i int) time.Duration {
	shift := max(i>>subBits-1, 0)
	low := int64(i-shift<<subBits) << shift
	return time.Duration(2*low+int64(1)<<shift) * time.Microsecond / 2
}
