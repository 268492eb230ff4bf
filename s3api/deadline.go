package s3api

import (
	"os"
	"sync"
	"time"
)

// deadline is one of the two deadlines of a connection. net/http and the pace of the client set them a dozen times for
// each request, of which most are never waited for. So only who is about to wait sets it, and only when what is set
// ends the wait too early, or more than a second late. Safe for concurrent use.
type deadline struct {
	mu   sync.Mutex
	want time.Time // zero for none
	set  time.Time // as the connection has it
	busy bool      // somebody may be waiting
}

const deadlineSlack = time.Second

// change makes t the deadline, for who waits at present too. set is the connection's own method.
func (d *deadline) change(t time.Time, set func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = t
	if !d.busy {
		return nil
	}
	d.set = t
	return set(t)
}

// begin is called before something that may wait, and end after it. An error says that the deadline has been set to a
// time long past, which is how net/http interrupts: it does not come to the wait then.
func (d *deadline) begin(set func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.want.IsZero() && d.want.Unix() <= 1 {
		return os.ErrDeadlineExceeded
	}
	d.busy = true
	if d.want.IsZero() == d.set.IsZero() && !d.set.Before(d.want) && d.set.Sub(d.want) <= deadlineSlack {
		return nil
	}
	d.set = d.want
	if !d.want.IsZero() { // later by as much as this deadline may serve others that are a little later
		d.set = d.want.Add(min(deadlineSlack, time.Until(d.want)/16))
	}
	return set(d.set)
}

func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
}
