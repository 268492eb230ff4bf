package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// ErrDown is matched by the errors of reads that were not tried because the origin has been failing: *DownError.
var ErrDown = errors.New("the origin is down")

// DownError says when it is worth asking again.
type DownError struct{ RetryAfter time.Duration }

func (e *DownError) Error() string {
	return fmt.Sprintf("%v; it is asked again in %v", ErrDown, e.RetryAfter.Round(time.Millisecond))
}

// Is makes a DownError match ErrDown.
func (e *DownError) Is(target error) bool { return target == ErrDown }

// breaker keeps requests from an origin that fails them all, so that readers are told at once. It opens when breakFailures
// or more have failed in a row and the first of them was sent breakAfter ago; it lets one through every probeInterval, a
// read that is wanted anyway, and closes with the first that the origin answers. An object for which the origin has
// nothing but a 5xx says nothing of the others, so such answers count only where they are about more than one. Safe for
// concurrent use.
type breaker struct {
	mu       sync.Mutex
	failures int           // in a row; guarded by mu
	since    time.Time     // the first of them was sent then; guarded by mu
	object   origin.Object // what it was about; guarded by mu
	wide     bool          // they are about more than that, or were no answers at all; guarded by mu
	answered time.Time     // when the origin last did; guarded by mu
	open     bool          // guarded by mu
	next     time.Time     // a request may be let through then; guarded by mu
}

const (
	breakFailures = 5
	breakAfter    = time.Second
	probeInterval = time.Second
)

// allow says whether a request may be sent: nil, or a *DownError. One who is hasty learns little by it, so it is let
// through only where nobody else has come for another interval.
func (b *breaker) allow(hasty bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return nil
	}
	wait := time.Until(b.next)
	if hasty {
		wait += probeInterval
	}
	if wait > 0 {
		return &DownError{RetryAfter: wait}
	}
	b.next = time.Now().Add(probeInterval)
	return nil
}

// report takes in how a request about o that was sent then was answered. Being told to slow down is an answer too:
// somebody is there. What the one who asked gave up says nothing, nor does a timeout of one who was hasty. Failures that
// began before the last answer are no news.
func (b *breaker) report(o origin.Object, hasty bool, sent time.Time, err error) {
	var e *origin.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, ErrPanic):
		return
	case errors.As(err, &e) && (e.Status == 429 || e.Code == "SlowDown"):
		return
	}
	failed := err != nil && !answers(err) && !errors.Is(err, origin.ErrBadAnswer) && !errors.Is(err, origin.ErrCredentials)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case !failed:
		b.failures, b.open, b.answered = 0, false, now
		return
	case hasty && errors.Is(err, origin.ErrTimeout), sent.Before(b.answered):
		return
	}
	if b.failures++; b.failures == 1 {
		b.since, b.object, b.wide = sent, o, false
	}
	b.wide = b.wide || e == nil || o != b.object
	if !b.open && b.failures >= breakFailures && b.wide && now.Sub(b.since) >= breakAfter {
		b.open, b.next = true, now.Add(probeInterval)
	}
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}
