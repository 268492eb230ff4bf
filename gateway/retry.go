package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// What the origin said, and what it failed to say. An answer is the reader's to hear. Trouble is tried again, up to
// Fetch.Attempts requests for one thing; when it stays, it is what stale info may stand in for.

// answers says whether an error is the origin's answer to the question, rather than trouble in answering.
func answers(err error) bool {
	var e *origin.Error
	return errors.As(err, &e) && !troubled(e.Status)
}

// troubled says whether a status tells of the origin, and not of what it was asked.
func troubled(status int) bool {
	switch status {
	case 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// retried says whether a request that ended so may end otherwise the next time: after I/O errors, timeouts, bodies
// that ended early, and what troubled names. Answers don't change for being asked again, and answers that contradict
// the question or themselves are no accident of the line.
func retried(err error) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, origin.ErrChanged), errors.Is(err, ErrDown),
		errors.Is(err, ErrPanic), errors.Is(err, origin.ErrCredentials), answers(err):
		return false
	case errors.Is(err, origin.ErrBadAnswer):
		return errors.Is(err, io.ErrUnexpectedEOF)
	}
	return true
}

// trouble says whether an error is the origin's failure to answer. That it does not accept our signature is one too:
// nobody has been told anything of the object.
func trouble(err error) bool {
	return errors.Is(err, ErrDown) || errors.Is(err, errShared) || errors.Is(err, origin.ErrTimeout) || retried(err) ||
		errors.Is(err, origin.ErrBadAnswer) || errors.Is(err, origin.ErrCredentials)
}

// again decides what becomes of a thing whose n-th request ended in err: it waits and returns nil when there is to be
// another, and the error that it all ends with otherwise. Nothing is tried again while the origin is taken to be down.
// wanted says whether somebody still waits for it.
func (g *Gateway) again(ctx context.Context, f *Fetch, n int, err error, wanted func() bool) error {
	if !retried(err) || n >= f.attempts() || ctx.Err() != nil || g.breaker.isOpen() {
		return err
	}
	pause := f.pause(n)
	if after, ok := retryAfter(err); ok {
		pause = max(pause, after)
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) <= pause {
		return err // it would come too late, and the reader can be told now
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return err
	}
	if !wanted() {
		return fmt.Errorf("%w: %w", errDropped, err)
	}
	g.metrics.retries.Inc()
	return nil
}

// pause is how long to wait after the n-th request: at least half of the backoff, the rest by chance, so that those who
// failed together don't come back together.
func (f *Fetch) pause(n int) time.Duration {
	d := f.Backoff
	for range n - 1 {
		if d *= 2; f.BackoffMax > 0 && d >= f.BackoffMax || d > time.Hour {
			break
		}
	}
	if f.BackoffMax > 0 {
		d = min(d, f.BackoffMax)
	}
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// retryAfter is how long the origin asks to be left alone (RFC 9110 section 10.2.3), in seconds or until a date.
func retryAfter(err error) (time.Duration, bool) {
	var e *origin.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	for _, h := range e.Header {
		if !strings.EqualFold(h.Name, "Retry-After") {
			continue
		}
		if n, err := strconv.ParseUint(h.Value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
			return time.Duration(n) * time.Second, true
		}
		if t, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", h.Value); err == nil {
			return max(time.Until(t), 0), true
		}
	}
	return 0, false
}
