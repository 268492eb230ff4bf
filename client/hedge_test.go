package client

import (
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAdaptiveHedge(t *testing.T) {
	h := AdaptiveHedge(3, 10*time.Millisecond, time.Second, 2)
	if d, ok := h.After(); !ok || d != time.Second {
		t.Errorf("nothing known: %v, %v", d, ok)
	}
	for range 1000 {
		h.Answered(20 * time.Millisecond)
	}
	if d, ok := h.After(); !ok || d != 60*time.Millisecond {
		t.Errorf("20 ms known: %v, %v", d, ok)
	}
	first, ok1 := h.Begin()
	_, ok2 := h.Begin()
	_, ok3 := h.Begin()
	if !ok1 || !ok2 || ok3 {
		t.Errorf("leave: %v, %v, %v", ok1, ok2, ok3)
	}
	first()
	if _, ok := h.Begin(); !ok {
		t.Error("leave was not given back")
	}
	if _, ok := AdaptiveHedge(0, 0, time.Second, 1).After(); ok {
		t.Error("a factor of 0 hedges")
	}
}

// TestAdaptiveHedgeOnNodes: what nodes took is what the second request goes by.
func TestAdaptiveHedgeOnNodes(t *testing.T) {
	f := newFake(t, 3)
	h := AdaptiveHedge(3, 5*time.Millisecond, time.Hour, 16)
	c := f.client(t, func(l *Config) { l.Hedge, l.FirstByte = h, time.Minute })
	f.origin.Put("bkt", "k", origintest.Object{Size: 100})
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if d, _ := h.After(); d >= time.Hour {
		t.Errorf("after an answer it is still %v", d)
	}
	for range 1000 { // leave for ten, whatever was hedged so far
		h.Answered(time.Millisecond)
	}
	f.ranked(t, c, "bkt", "k", 0)[0].does(stalls)
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if n := testutil.ToFloat64(c.metrics.hedgesWon); n < 1 {
		t.Errorf("%v hedges won", n)
	}
}
