package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lateHandler is slow to take in the first line that says that a node is down: it waits a little for the next line.
type lateHandler struct {
	slog.Handler
	meanwhile func()
	begun     atomic.Bool

	mu    sync.Mutex
	lines []string
}

func (h *lateHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *lateHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }

func (h *lateHandler) Handle(_ context.Context, r slog.Record) error {
	if !h.begun.Swap(true) {
		h.meanwhile()
		for i := 0; i < 50 && h.told() == ""; i++ {
			time.Sleep(time.Millisecond)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, r.Message)
	return nil
}

// told returns the last line.
func (h *lateHandler) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lines) == 0 {
		return ""
	}
	return h.lines[len(h.lines)-1]
}

// TestLastWordIsTrue: of a node that answers while the log is being told that it is down, the log ends with its being up.
func TestLastWordIsTrue(t *testing.T) {
	h := new(lateHandler)
	r, _ := newRouter(t, numbered(1), func(c *RouterConfig) { c.Logger = slog.New(h) })
	l := pick(t, r, KeyOf("b", "k").Unit(0))
	defer l.Done()
	answered := make(chan struct{})
	h.meanwhile = func() {
		go func() {
			defer close(answered)
			l.Answered(0)
		}()
	}
	l.Failed(Refused, nil)
	<-answered
	if want := "node " + l.Node.ID + " is up again"; len(h.lines) != 2 || h.told() != want {
		t.Errorf("told %q, want %q in the end", h.lines, want)
	}
}
