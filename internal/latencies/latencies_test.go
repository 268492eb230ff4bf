package latencies

import (
	"slices"
	"testing"
	"time"
)

func TestDraw(t *testing.T) {
	d := Distribution{Median: 20 * time.Millisecond, Sigma: 0.2, Late: 0.01, LateBy: 2 * time.Second}
	a, b := New(d, 1), New(d, 1)
	var all []time.Duration
	for range 100_000 {
		v := a.Draw()
		if v != b.Draw() {
			t.Fatal("one seed, two orders")
		}
		all = append(all, v)
	}
	slices.Sort(all)
	late := 0
	for _, v := range all {
		if v == 2*time.Second {
			late++
		}
	}
	if m := all[len(all)/2]; m < 19*time.Millisecond || m > 21*time.Millisecond || late < 900 || late > 1100 {
		t.Errorf("median %v, %d late", m, late)
	}
	// exp(0.2 x 1.645) of the median is the 95th percentile.
	if p := all[len(all)*95/100]; p < 27*time.Millisecond || p > 29*time.Millisecond {
		t.Errorf("95%% within %v", p)
	}
	if v := New(Distribution{Median: time.Second}, 5).Draw(); v != time.Second {
		t.Error(v)
	}
}
