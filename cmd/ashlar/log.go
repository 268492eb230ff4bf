package main

import (
	"context"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"
)

// quietFor is the least time between two warnings of one text.
const quietFor = time.Minute

// newLogger returns the logger of a process. A configuration that is not valid gets the defaults.
func newLogger(w io.Writer, c Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if c.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	return slog.New(&quietHandler{Handler: h, told: &told{last: make(map[string]*warning)}})
}

// takeStandardLog makes lines of package log, which net/http and others write to, records of l.
func takeStandardLog(l *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(l.Handler(), slog.LevelWarn).Writer())
}

// quietHandler keeps an outage from flooding the log: of warnings with one text, one passes in quietFor. The next one
// that passes says in "suppressed" how many did not; those are records of level debug.
type quietHandler struct {
	slog.Handler
	told *told // shared with the handlers made of this one
}

// told remembers warnings by their text.
type told struct {
	mu   sync.Mutex
	last map[string]*warning // guarded by mu
}

type warning struct {
	at         time.Time // when one passed
	suppressed int       // since then
}

// maxWarnings bounds how many texts are remembered: those of net/http hold addresses.
const maxWarnings = 64

// Handle implements slog.Handler.
func (h *quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	suppressed, pass := h.told.pass(r.Message, r.Time)
	switch {
	case !pass:
		if r.Level = slog.LevelDebug; !h.Enabled(ctx, r.Level) {
			return nil
		}
	case suppressed > 0:
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, r)
}

// pass says whether a warning passes now, and how many of its text did not since the last one that did.
func (t *told) pass(text string, now time.Time) (suppressed int, pass bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.last[text]
	if w != nil && now.Sub(w.at) < quietFor {
		w.suppressed++
		return 0, false
	}
	if w == nil {
		if len(t.last) >= maxWarnings {
			clear(t.last) // some warnings come once more than they would
		}
		w = new(warning)
		t.last[text] = w
	}
	suppressed, w.at, w.suppressed = w.suppressed, now, 0
	return suppressed, true
}

// WithAttrs implements slog.Handler.
func (h *quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quietHandler{Handler: h.Handler.WithAttrs(attrs), told: h.told}
}

// WithGroup implements slog.Handler.
func (h *quietHandler) WithGroup(name string) slog.Handler {
	return &quietHandler{Handler: h.Handler.WithGroup(name), told: h.told}
}
