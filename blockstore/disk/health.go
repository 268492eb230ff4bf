package disk

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// State says whether the tier works.
type State string

const (
	StateOK       State = "ok"
	StateReadOnly State = "read-only" // writes fail; what is here is served
	StateOut      State = "out"       // nothing is served or kept
)

const (
	probeEvery  = 2 * time.Second // between looks at the disk
	maxFailures = 8               // reads that fail in a row, until the tier is out
)

var (
	errTimeout = errors.New("the disk does not answer in time")
	errNoSpace = errors.New("the filesystem has no room beyond the reserve")
	errGone    = errors.New("the directory was deleted or replaced, or could not be taken over")
)

// health is the state of the tier, and why. Each change is logged once. Safe for concurrent use.
type health struct {
	dir string
	log *slog.Logger

	ok       atomic.Bool // state is StateOK
	serves   atomic.Bool // state is not StateOut
	failures atomic.Int32

	mu    sync.Mutex
	state State
}

func newHealth(dir string, log *slog.Logger) *health {
	h := &health{dir: dir, log: log, state: StateOK}
	h.ok.Store(true)
	h.serves.Store(true)
	return h
}

// set changes the state. A tier that is out is not made read-only: only a probe brings it back.
func (h *health) set(s State, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == s || s == StateReadOnly && h.state == StateOut {
		return
	}
	h.state = s
	h.ok.Store(s == StateOK)
	h.serves.Store(s != StateOut)
	h.failures.Store(0)
	switch s {
	case StateOK:
		h.log.Info("disk tier works again", "dir", h.dir)
	case StateReadOnly:
		h.log.Warn("disk tier keeps nothing new until the disk can be written again", "dir", h.dir, "err", why)
	case StateOut:
		h.log.Warn("disk tier is out until the disk works again; reads go to the origin", "dir", h.dir, "err", why)
	}
}

func (h *health) get() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func (h *health) readFailed(err error) {
	if h.failures.Add(1) >= maxFailures {
		h.set(StateOut, err)
	}
}

func (h *health) readWorked() {
	if h.failures.Load() != 0 {
		h.failures.Store(0)
	}
}
