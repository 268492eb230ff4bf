package client

import (
	"time"

	"github.com/ashlar-s3/ashlar/internal/hedge"
)

// Hedge says when a second node is asked what a first has not answered yet. Implementations are safe for concurrent
// use.
type Hedge interface {
	// After returns how long to wait for an answer, or for more bytes of a body, before another node is asked too;
	// false: for ever.
	After() (time.Duration, bool)
	// Begin takes leave to ask. Where it is given, done must be called when the question is settled.
	Begin() (done func(), ok bool)
	// Answered reports how long a node took to answer.
	Answered(time.Duration)
}

// FixedHedge asks a second node after a fixed time, with at most so many such requests at a time.
func FixedHedge(after time.Duration, concurrency int) Hedge {
	return &fixedHedge{after, make(chan struct{}, concurrency)}
}

type fixedHedge struct {
	after time.Duration
	taken chan struct{}
}

func (h *fixedHedge) After() (time.Duration, bool) { return h.after, true }
func (h *fixedHedge) Answered(time.Duration)       {}
func (h *fixedHedge) Begin() (func(), bool) {
	select {
	case h.taken <- struct{}{}:
		return func() { <-h.taken }, true
	default:
		return nil, false
	}
}

// AdaptiveHedge asks a second node after factor times the mean time in which nodes answered of late, but no sooner than
// least and no later than most, with at most concurrency such requests at a time and no more than one for every 20 others.
// A factor or a most of 0 never does.
func AdaptiveHedge(factor float64, least, most time.Duration, concurrency int) Hedge {
	return &adaptiveHedge{
		hedge.Rule{Factor: factor, Min: least, Max: most}, hedge.NewLatency(), hedge.NewBudget(requestsPerHedge, concurrency),
	}
}

// requestsPerHedge keeps a sick cluster from being asked twice as much.
const requestsPerHedge = 20

type adaptiveHedge struct {
	rule    hedge.Rule
	latency *hedge.Latency
	budget  *hedge.Budget
}

func (h *adaptiveHedge) After() (time.Duration, bool) { return h.rule.Delay(h.latency), h.rule.On() }
func (h *adaptiveHedge) Begin() (func(), bool)        { return h.budget.Done, h.budget.Take() }
func (h *adaptiveHedge) Answered(d time.Duration) {
	h.latency.Record(d)
	h.budget.Request()
}

// noHedge never asks a second node.
type noHedge struct{}

func (noHedge) After() (time.Duration, bool) { return 0, false }
func (noHedge) Answered(time.Duration)       {}
func (noHedge) Begin() (func(), bool)        { return nil, false }
