// Package hedge decides when a second request is worth sending beside one that takes long, and takes the answer of
// whichever is done first. It keeps the latencies that the decision rests on, and the budget that keeps a sick server
// from being buried under second requests. It knows nothing of what is asked, nor of whom.
package hedge

import (
	"sync"
	"sync/atomic"
	"time"
)

// Rule says how long a request is waited for before a second one is sent: Factor times the mean of the last one to two
// minutes, not less than Min, not more than Max, and Max as long as nothing is known. The zero value never hedges.
type Rule struct {
	Factor   float64
	Min, Max time.Duration
}

// On says whether there is any hedging.
func (r Rule) On() bool { return r.Factor > 0 && r.Max > 0 }

// Delay applies the rule to what l has seen.
func (r Rule) Delay(l *Latency) time.Duration {
	mean, ok := l.Mean()
	if !ok {
		return r.Max
	}
	d := r.Factor * float64(mean)
	if d >= float64(r.Max) { // before it is a Duration, which it may not fit
		return r.Max
	}
	return max(time.Duration(d), r.Min)
}

// Budget bounds the hedges that are sent: to a share of the requests, and in number at one time. Safe for concurrent use.
type Budget struct {
	per    int64 // requests that earn one hedge
	limit  int64
	credit atomic.Int64 // in requests
	out    atomic.Int64 // hedges now
}

// burst is how many hedges can be saved up.
const burst = 10

// NewBudget allows one hedge for every per requests, and limit at one time. The first is free.
func NewBudget(per, limit int) *Budget {
	b := &Budget{per: int64(per), limit: int64(limit)}
	b.credit.Store(b.per)
	return b
}

// Request counts a request that is no hedge.
func (b *Budget) Request() {
	for {
		n := b.credit.Load()
		if n >= burst*b.per || b.credit.CompareAndSwap(n, n+1) {
			return
		}
	}
}

// Take says whether a hedge may be sent. One that may is to be ended by Done.
func (b *Budget) Take() bool {
	if b.out.Add(1) > b.limit {
		b.out.Add(-1)
		return false
	}
	for {
		n := b.credit.Load()
		if n < b.per {
			b.out.Add(-1)
			return false
		}
		if b.credit.CompareAndSwap(n, n-b.per) {
			return true
		}
	}
}

// Done ends a hedge.
func (b *Budget) Done() { b.out.Add(-1) }

// Out is how many hedges there are now.
func (b *Budget) Out() int64 { return b.out.Load() }

// Race is a request and, if it takes longer than Delay, a second one beside it.
type Race[T any] struct {
	Delay time.Duration
	// Run makes the first request, on the caller's goroutine; Stop makes it return soon, when the second has won.
	Run  func() (T, error)
	Stop func()
	// Backup is called once when Delay has passed, and returns the second request; nil where there is no leave for one.
	// Its run goes on a goroutine of its own, may outlive Do, and must not panic.
	Backup func() (run func() (T, error), stop func())
	// Final says of an error of Run that it is an answer: the second request is not waited for. Errors of the second
	// request are nobody's answer.
	Final func(error) bool
	Drop  func(T)      // takes what came too late
	Go    func(func()) // starts a goroutine
}

// Do returns the value of the request that is done first, and whether that was the second. Where both fail the error
// is that of the first.
func (r *Race[T]) Do() (v T, won bool, err error) {
	var (
		mu     sync.Mutex
		over   bool // no second request is begun any more; guarded by mu
		lost   bool // nor is one wanted that was begun; guarded by mu
		second *T   // what the second request brought in time; guarded by mu
		stop   func()
		done   chan struct{} // closed when the second request has ended; nil before it began
	)
	timer := time.AfterFunc(r.Delay, func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		run, s := r.Backup()
		if run == nil {
			return
		}
		stop, done = s, make(chan struct{})
		r.Go(func() {
			defer close(done)
			v, err := run()
			if err != nil {
				return
			}
			mu.Lock()
			late := lost
			if !late {
				second = &v
				r.Stop()
			}
			mu.Unlock()
			if late {
				r.Drop(v)
			}
		})
	})
	settled := false
	defer func() {
		timer.Stop()
		if settled {
			return
		}
		mu.Lock() // a panic of Run
		over, lost = true, true
		if stop != nil {
			stop()
		}
		late := second
		mu.Unlock()
		if late != nil {
			r.Drop(*late)
		}
	}()
	v, err = r.Run()
	settled = true
	timer.Stop()
	mu.Lock()
	over = true
	if second == nil && (done == nil || err == nil || r.Final(err)) {
		lost = true
		if stop != nil {
			stop()
		}
		mu.Unlock()
		return v, false, err
	}
	mu.Unlock()
	if err == nil { // both were done at once
		r.Drop(v)
	}
	<-done
	if second == nil {
		return v, false, err
	}
	return *second, true, nil
}
