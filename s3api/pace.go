package s3api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a client may stand still, all in all, in excess of what its bytes take at the least rate.
	patience = 30 * time.Second
	// unwantedPatience is how long it may still send a body that nobody wants, so that it gets to see why: who closes a
	// connection with unread bytes resets it.
	unwantedPatience = 5 * time.Second
	// defaultMinRate is Limits.MinRate where it isn't set, in bytes per second.
	defaultMinRate = 8 << 10
)

// Limits keep one client, or too many of them, from using up what all of them share.
type Limits struct {
	// Requests are served at once at most; further ones get 503 SlowDown before they are authenticated. Health checks
	// are not counted. Half of them, rounded up, may be forwarded ones, so that an origin that hangs leaves room for
	// what is read from blocks. 0 is no bound.
	Requests int
	// Headers is how many lines the header of a request may have; 0 is no bound. Its bytes are for http.Server to bound.
	Headers int
	// MinRate is the least rate at which a client must take an answer, and must send a body once we read it, in bytes
	// per second. It may fall behind by 30 seconds altogether, and is cut off then. 0 means 8 KiB.
	MinRate int64
}

// forwards is how many requests are forwarded at once at most.
func (l *Limits) forwards() int64 { return int64(l.Requests+1) / 2 }

// pace holds a client to a least rate. What it may still fall behind is its credit: waiting for it takes from the
// credit, its bytes give to it, and it never exceeds patience. So a client can't buy a long stall by a fast start, nor
// keep a connection for ever by one byte now and then. It belongs to one goroutine at a time.
type pace struct {
	rate   int64 // bytes per second, > 0
	credit time.Duration
}

func newPace(rate int64) pace { return pace{rate, patience} }

// allow returns how long the next n bytes may take.
func (p *pace) allow(n int) time.Duration { return p.credit + p.worth(n) }

// passed accounts for n bytes that took a time.
func (p *pace) passed(n int, took time.Duration) {
	p.credit = max(0, min(patience, p.credit+p.worth(n)-took))
}

// worth is the time that n bytes take at the least rate.
func (p *pace) worth(n int) time.Duration {
	return time.Duration(float64(n) / float64(p.rate) * float64(time.Second))
}

// pacedBody is the body of a request whose client must keep up a least rate. Time counts only while somebody waits for
// bytes: a slow origin is not the client's fault. The read deadline is the connection's, so it is set for one Read
// alone: net/http itself reads from the connection while a handler runs, and the next request has its own.
type pacedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	pace pace
	slow atomic.Bool // cut off for slowness

	mu      sync.Mutex
	idle    sync.Cond // on mu: reading has become false
	reading bool      // guarded by mu
	begun   bool      // guarded by mu
	eof     bool      // guarded by mu
	ended   bool      // guarded by mu; the handler has returned: no Read begins any more
}

func newPacedBody(body io.ReadCloser, rc *http.ResponseController, rate int64) *pacedBody {
	b := &pacedBody{ReadCloser: body, rc: rc, pace: newPace(rate)}
	b.idle.L = &b.mu
	return b
}

func (b *pacedBody) Read(p []byte) (int, error) {
	begin := time.Now()
	if err := b.before(begin); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.pace.passed(n, time.Since(begin))
	b.after(err)
	return n, err
}

// before sets the deadline for one Read. Errors of deadlines mean that the transport has none, as in tests of handlers.
func (b *pacedBody) before(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return http.ErrBodyReadAfterClose // by a transport that is late: the origin answered before it had all
	case b.eof:
		return io.EOF
	case !b.begun:
		b.begun = true
		// The first Read may have to write "100 Continue", to a client that takes nothing.
		_ = b.rc.SetWriteDeadline(now.Add(patience))
	}
	b.reading = true
	_ = b.rc.SetReadDeadline(now.Add(b.pace.allow(0)))
	return nil
}

func (b *pacedBody) after(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.idle.Broadcast()
	b.eof = b.eof || err == io.EOF
	if b.ended { // and interrupted this Read, or it came too late
		return
	}
	_ = b.rc.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.slow.Store(true)
	}
}

// unread says whether some of the body has not been read yet, so that somebody may still be reading it.
func (b *pacedBody) unread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.eof
}

// hurry leaves little time for what has not been read.
func (b *pacedBody) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.reading { // else the pace is the reader's
		b.pace.credit = min(b.pace.credit, unwantedPatience)
	}
}

// bound bounds what net/http does with the rest of a body that the handler hasn't read: before an answer, and before the
// next request, it reads some of it.
func (b *pacedBody) bound() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boundLocked()
}

func (b *pacedBody) boundLocked() {
	if !b.eof && !b.reading { // else nothing is left to read, or a Read has its deadline
		_ = b.rc.SetReadDeadline(time.Now().Add(b.pace.allow(0)))
	}
}

// end gives the connection back to net/http, which sets a deadline of its own for the next request. A transport whose
// origin answered early may still be waiting for the client's bytes: it is interrupted, for net/http would wait for it,
// with no deadline, before it is done with the request. That makes the connection unfit for another request, see
// exchange.forward.
func (b *pacedBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	past := time.Unix(1, 0)
	for b.reading && b.rc.SetReadDeadline(past) == nil { // an error: the transport has none, as in tests of handlers
		b.idle.Wait()
	}
	b.boundLocked()
}

// drain takes what is left of a body after end, as much as net/http takes (256 KiB) before it goes on to the next
// request. Where the client wants no next one, net/http closes at once, which resets the connection, and may cost the
// client its answer.
func (b *pacedBody) drain() {
	if b.unread() && b.rc.SetReadDeadline(time.Now().Add(unwantedPatience)) == nil {
		_, _ = io.CopyN(io.Discard, b.ReadCloser, 256<<10)
	}
}
