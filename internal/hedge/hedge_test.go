package hedge

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Rule{Factor: 3, Min: 50 * time.Millisecond, Max: 2 * time.Second}
		l := NewLatency()
		want := func(d time.Duration) {
			t.Helper()
			if got := r.Delay(l); got != d {
				t.Errorf("delay %v, want %v", got, d)
			}
		}
		want(2 * time.Second) // nothing is known
		l.Record(time.Millisecond)
		want(50 * time.Millisecond)
		l.Record(199 * time.Millisecond)
		want(300 * time.Millisecond)
		time.Sleep(90 * time.Second) // it counts for a minute at least
		want(300 * time.Millisecond)
		l.Record(time.Hour)
		want(2 * time.Second)
		time.Sleep(61 * time.Second) // the first two are forgotten after two at most
		l.Record(time.Hour)
		time.Sleep(61 * time.Second)
		l.Record(time.Second)
		time.Sleep(61 * time.Second)
		l.Record(100 * time.Millisecond)
		want(1650 * time.Millisecond)
		time.Sleep(10 * time.Minute)
		want(2 * time.Second)
		if (Rule{}).On() || !r.On() {
			t.Error("the zero rule hedges, or one that is set does not")
		}
		if d := (Rule{Factor: 1e300, Min: 1, Max: time.Second}).Delay(l); d != time.Second {
			t.Error(d)
		}
	})
}

// The bound that is stated: 1/32, or a microsecond.
func TestQuantileError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		l := NewLatency()
		var all []time.Duration
		for i := range 20_000 {
			d := time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond))
			switch i % 100 {
			case 0:
				d = time.Duration(rng.Int64N(int64(70 * time.Minute)))
			case 1, 2, 3:
				d = time.Duration(rng.Int64N(int64(50 * time.Microsecond)))
			}
			all = append(all, d)
			l.Record(d)
		}
		slices.Sort(all)
		for i := range 1000 {
			q := float64(i+1) / 1000
			got, exact := l.Quantile(q), all[int(q*float64(len(all))+0.5)-1]
			if off := max(got-exact, exact-got); off > exact/32+time.Microsecond {
				t.Errorf("q %v: %v, exactly %v", q, got, exact)
			}
		}
		l.Record(1 << 62)
		l.Record(-1)
		if l.Quantile(1) < time.Hour || NewLatency().Quantile(.5) != 0 {
			t.Error("extremes")
		}
	})
}

// Recording from many sides loses nothing, and takes no memory.
func TestRecordConcurrently(t *testing.T) {
	l := NewLatency()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				l.Record(time.Millisecond)
			}
		})
	}
	wg.Wait()
	if w := l.current(); w.now.count.Load()+w.last.count.Load() != 8000 {
		t.Error("lost some")
	}
	if n := testing.AllocsPerRun(100, func() { l.Record(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(20, 3)
	take := func(want bool) {
		t.Helper()
		if b.Take() != want {
			t.Errorf("Take says %v", !want)
		}
	}
	take(true)
	take(false)
	for range 19 {
		b.Request()
	}
	take(false)
	b.Request()
	take(true)
	for range 10_000 {
		b.Request()
	}
	take(true)
	take(false) // three at once
	if b.Out() != 3 {
		t.Error(b.Out())
	}
	for range 3 {
		b.Done()
	}
	n := 0
	for b.Take() {
		b.Done()
		n++
	}
	if n != burst-1 {
		t.Errorf("%d hedges saved up", n+1)
	}
}

// race runs a Race between requests that take a and b.
func race(t *testing.T, a, b time.Duration, aErr, bErr error) (
	v string, won bool, dropped []string, launched bool, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	request := func(name string, d time.Duration, err error) (func() (string, error), func()) {
		stopped := make(chan struct{})
		return func() (string, error) {
			select {
			case <-time.After(d):
				return name, err
			case <-stopped:
				return "", errors.New("stopped")
			}
		}, sync.OnceFunc(func() { close(stopped) })
	}
	run, stop := request("first", a, aErr)
	r := Race[string]{
		Delay: 100 * time.Millisecond, Run: run, Stop: stop,
		Backup: func() (func() (string, error), func()) {
			launched = true
			return request("second", b, bErr)
		},
		Final: func(err error) bool { return err == errAnswer },
		Drop: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			dropped = append(dropped, s)
		},
		Go: wg.Go,
	}
	v, won, err = r.Do()
	wg.Wait()
	return v, won, dropped, launched, err
}

var errAnswer, errTrouble = errors.New("no such thing"), errors.New("trouble")

func TestRace(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name       string
		a, b       time.Duration
		aErr, bErr error
		want       string
		won        bool
		launched   bool
		err        error
		took       time.Duration
	}{
		{name: "first is quick", a: 50 * ms, b: 50 * ms, want: "first", took: 50 * ms},
		{name: "first fails quickly", a: 50 * ms, b: 50 * ms, aErr: errTrouble, err: errTrouble, took: 50 * ms},
		{name: "second wins", a: 1000 * ms, b: 50 * ms, want: "second", won: true, launched: true, took: 150 * ms},
		{name: "first wins all the same", a: 120 * ms, b: 50 * ms, want: "first", launched: true, took: 120 * ms},
		{name: "second fails", a: 200 * ms, b: 50 * ms, bErr: errAnswer, want: "first", launched: true, took: 200 * ms},
		{name: "first fails, second helps", a: 120 * ms, b: 50 * ms, aErr: errTrouble, want: "second", won: true,
			launched: true, took: 150 * ms},
		{name: "first is refused", a: 120 * ms, b: 50 * ms, aErr: errAnswer, err: errAnswer, launched: true, took: 120 * ms},
		{name: "both fail", a: 120 * ms, b: 50 * ms, aErr: errTrouble, bErr: errAnswer, err: errTrouble, launched: true,
			took: 150 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				v, won, dropped, launched, err := race(t, c.a, c.b, c.aErr, c.bErr)
				if err == nil && v != c.want || won != c.won || err != c.err || launched != c.launched || len(dropped) > 0 {
					t.Errorf("%q, won %v, launched %v, %v, dropped %q", v, won, launched, err, dropped)
				}
				if d := time.Since(began); d != c.took {
					t.Errorf("took %v, want %v", d, c.took)
				}
			})
		})
	}
}

// Both are done in one moment: whichever counts, the other is dropped, never lost.
func TestRacePhotoFinish(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			v, won, dropped, _, err := race(t, 150*time.Millisecond, 50*time.Millisecond, nil, nil)
			if err != nil || won != (v == "second") || len(dropped) > 1 || len(dropped) == 1 && dropped[0] == v {
				t.Errorf("%q, won %v, dropped %q, %v", v, won, dropped, err)
			}
		})
	}
}

// No leave, no second request. A panic of the first ends the second.
func TestRaceWithoutBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Race[int]{Delay: time.Second, Run: func() (int, error) { time.Sleep(time.Minute); return 1, nil },
			Backup: func() (func() (int, error), func()) { return nil, nil }}
		if v, won, err := r.Do(); v != 1 || won || err != nil {
			t.Error(v, won, err)
		}
		stopped := make(chan struct{})
		var wg sync.WaitGroup
		r = Race[int]{Delay: time.Second, Run: func() (int, error) { time.Sleep(time.Minute); panic("planted") },
			Backup: func() (func() (int, error), func()) {
				return func() (int, error) { <-stopped; return 0, errTrouble }, func() { close(stopped) }
			}, Go: wg.Go}
		func() {
			defer func() { _ = recover() }()
			_, _, _ = r.Do()
		}()
		wg.Wait()
	})
}

func BenchmarkRecord(b *testing.B) {
	l := NewLatency()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Record(20 * time.Millisecond)
		}
	})
}
