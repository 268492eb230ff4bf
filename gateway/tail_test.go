package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/internal/latencies"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// TestTail reads cold objects of 1 MiB, in simulated time, from an origin that answers in 20 ms and 2 s late in one case of
// a hundred, half of those before its headers and half in mid-body. Hedging takes the tail off for a few requests more;
// without it the tail is the origin's. With -update the curves are drawn in docs/tail.svg.
func TestTail(t *testing.T) {
	const reads = 4000
	without, gets := tail(t, reads, stubborn())
	if p := at(without, 0.999); p < 2*time.Second || gets != reads {
		t.Errorf("without hedging: p99.9 %v, %d requests", p, gets)
	}
	with, gets := tail(t, reads, hedged())
	if p, extra := at(with, 0.999), float64(gets-reads)/reads; p > 200*time.Millisecond || extra > 0.05 {
		t.Errorf("with hedging: p99.9 %v, %.1f%% requests more", p, 100*extra)
	}
	t.Logf("p50 %v and %v, p99.9 %v and %v, %d requests more in %d", at(without, .5), at(with, .5), at(without, .999),
		at(with, .999), gets-reads, reads)
	if *update {
		if err := os.WriteFile("../docs/tail.svg", drawTail(without, with), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tail returns how long each read took, sorted, and the requests that the origin saw.
func tail(t *testing.T, reads int, p gateway.Policy) (took []time.Duration, gets int) {
	p.BlockSize = MiB
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, p, 64*MiB)
		defer r.close()
		data := make([]byte, MiB)
		for i := range reads {
			r.origin.Put("b", fmt.Sprint(i), origintest.Object{Data: data})
		}
		quick := latencies.New(latencies.Distribution{Median: 20 * time.Millisecond, Sigma: 0.2}, 1)
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(2, 2))
		r.origin.Script(func(context.Context, *origintest.Request) *origintest.Fault {
			mu.Lock()
			defer mu.Unlock()
			f := &origintest.Fault{Latency: quick.Draw()}
			if rng.Float64() < 0.01 {
				if rng.IntN(2) == 0 {
					f.Latency = 2 * time.Second
				} else {
					f.Steps = []origintest.Step{{At: rng.Int64N(MiB), Latency: 2 * time.Second}}
				}
			}
			return f
		})
		next := 0
		r.crowd(4, func(int) answer {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= reads {
					return answer{}
				}
				began := time.Now()
				obj, err := r.Open(t.Context(), gateway.Request{Object: object(fmt.Sprint(i))})
				if err != nil {
					t.Error(err)
					continue
				}
				if n, err := obj.WriteTo(io.Discard); err != nil || n != MiB {
					t.Errorf("%d bytes, %v", n, err)
				}
				obj.Close()
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
		time.Sleep(time.Minute)
		gets = r.origin.Stats().Gets
	})
	slices.Sort(took)
	return took, gets
}

// at is the quantile q of sorted durations.
func at(d []time.Duration, q float64) time.Duration {
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// drawTail draws latency, on a logarithmic scale, over the share of reads that were quicker, in nines.
func drawTail(without, with []time.Duration) []byte {
	const left, top, width, height, nines = 70.0, 40.0, 560.0, 300.0, 3.4
	var b bytes.Buffer
	x := func(q float64) float64 { return left + width*min(-math.Log10(1-q)/nines, 1) }
	y := func(d time.Duration) float64 { // 10 ms to 5 s
		return top + height - height*math.Log10(d.Seconds()/0.01)/math.Log10(500)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 400" font-family="sans-serif"
 font-size="12">
<rect width="660" height="400" fill="white"/>
<text x="70" y="20">Cold reads of 1 MiB; the origin takes 20 ms, and 1%% of its answers come 2 s late (simulated)</text>
`)
	for _, d := range []time.Duration{10, 20, 50, 100, 200, 500, 1000, 2000, 5000} {
		v := y(d * time.Millisecond)
		fmt.Fprintf(&b, `<line x1="70" x2="630" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+
			`<text x="62" y="%.1f" text-anchor="end">%v</text>`+"\n", v, v, v+4, d*time.Millisecond)
	}
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="40" y2="340" stroke="#ddd"/>`+
			`<text x="%.1f" y="358" text-anchor="middle">p%s</text>`+"\n", x(q), x(q), x(q), strings.TrimSuffix(fmt.Sprintf("%.1f", 100*q), ".0"))
	}
	for _, curve := range []struct {
		d           []time.Duration
		color, name string
		row         float64
	}{{without, "#c0392b", "hedge = false", 70}, {with, "#2471a3", "hedging as by default", 90}} {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, curve.color)
		for i := 0.0; i <= 170; i++ {
			q := 1 - math.Pow(10, -nines*i/170)
			fmt.Fprintf(&b, "%.1f,%.1f ", x(q), y(at(curve.d, q)))
		}
		fmt.Fprintf(&b, `"/><text x="90" y="%.0f" fill="%s">%s: p99.9 %v</text>`+"\n", curve.row, curve.color, curve.name,
			at(curve.d, 0.999).Round(time.Millisecond))
	}
	b.WriteString(`<text x="350" y="385" text-anchor="middle">share of reads that were quicker</text>` + "\n</svg>\n")
	return b.Bytes()
}
