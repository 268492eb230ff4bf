package origintest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/internal/latencies"
	"github.com/ashlar-s3/ashlar/origin"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	for name, setup := range map[string]func(*Origin){
		"plain":    func(*Origin) {},
		"chunks":   func(o *Origin) { o.SetChunk(1000) },
		"eagerEOF": func(o *Origin) { o.Fail(-1, nil, Fault{EagerEOF: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			Suite(t, func(t *testing.T) (origin.Origin, Backend) {
				o := New()
				setup(o)
				t.Cleanup(func() {
					if s := o.Stats(); s.Open != 0 || s.InFlight != 0 {
						t.Errorf("left behind: %+v", s)
					}
				})
				return o, o
			})
		})
	}
}

func TestFillAgreesWithItself(t *testing.T) {
	whole := Bytes("s", 0, 100)
	for off := range int64(100) {
		for n := int64(0); n <= 100-off; n++ {
			if !bytes.Equal(Bytes("s", off, n), whole[off:off+n]) {
				t.Fatalf("Bytes(%d, %d) differs from the same part of the whole", off, n)
			}
		}
	}
	if Check("s", 0, whole) != nil || Check("s", 1, whole) == nil || Check("t", 0, whole) == nil {
		t.Error("Check takes bytes of another place or version, or refuses the right ones")
	}
	huge := int64(5) << 40
	if Check("s", huge-10, Bytes("s", huge-10, 10)) != nil {
		t.Error("far offsets")
	}
}

func k(key string) origin.Object { return origin.Object{Bucket: "b", Key: key} }

// TestLog fixes the format that golden scripts rely on.
func TestLog(t *testing.T) {
	o := New()
	tag := o.Put("b", "k", Object{Size: 5 << 40})
	if tag != `"b/k#1"` {
		t.Fatalf("tag %s", tag)
	}
	o.Fail(1, At(1<<40), Fault{IgnoreRange: true})
	o.Fail(1, At(0), Fault{Status: 503, Code: "SlowDown"})
	o.Fail(1, Heads, Fault{Err: errors.New("refused")})
	for _, opts := range []origin.GetOptions{
		{Length: 8 << 20},
		{Length: 8 << 20, IfMatch: tag},
		{Offset: 1 << 40, Length: 10},
		{Length: 10, IfNoneMatch: tag, NoCache: true},
		{Length: 10, IfMatch: `"x"`},
		{},
	} {
		if r, err := o.Get(t.Context(), k("k"), opts); err == nil && r.Body != nil {
			_ = r.Body.Close()
		}
	}
	_, _ = o.Head(t.Context(), k("k"), origin.HeadOptions{})
	_, _ = o.Head(t.Context(), origin.Object{Bucket: "b", Key: "k", VersionID: "7"}, origin.HeadOptions{})
	got := strings.Join(o.Log(), "\n")
	want := `GET b/k 0-8388607 -> 503
GET b/k 0-8388607 if-match="b/k#1"
GET b/k 1099511627776-1099511627785 -> 200
GET b/k 0-9 if-none-match="b/k#1" no-cache -> 304
GET b/k 0-9 if-match="x" -> 412
GET b/k
HEAD b/k -> refused
HEAD b/k?versionId=7 -> 404`
	if got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
	if s := o.Stats(); s.Gets != 6 || s.Heads != 2 || s.Open != 0 || s.InFlight != 0 || s.MaxConcurrent != 1 {
		t.Errorf("%+v", s)
	}
}

func TestTagsNameBucketKeyAndPut(t *testing.T) {
	o := New()
	tags := []string{
		o.Put("b", "k", Object{}), o.Put("b", "k", Object{}), o.Put("b", "j", Object{}), o.Put("b", `a"b`, Object{}),
		o.Put("b", "w", Object{Weak: true}), o.Put("b", "given", Object{ETag: `"given"`}),
	}
	want := []string{`"b/k#1"`, `"b/k#2"`, `"b/j#1"`, tags[3], `W/"b/w#1"`, `"given"`}
	if !slices.Equal(tags, want) || strings.Count(tags[3], `"`) != 2 {
		t.Errorf("%q", tags)
	}
	if tag := o.Put("b", "none", Object{NoETag: true}); tag != "" {
		t.Errorf("NoETag: %q", tag)
	}
}

func TestVersionIDs(t *testing.T) {
	o := New()
	one := o.Put("b", "k", Object{Size: 10, VersionID: "1"})
	o.Put("b", "k", Object{Size: 20, VersionID: "2"})
	o.Delete("b", "k")
	i, err := o.Head(t.Context(), origin.Object{Bucket: "b", Key: "k", VersionID: "1"}, origin.HeadOptions{})
	if err != nil || i.ETag != one || i.Size != 10 || i.VersionID != "1" {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := o.Head(t.Context(), k("k"), origin.HeadOptions{}); !errors.Is(err, origin.ErrNotFound) {
		t.Error(err)
	}
}

func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New()
		tag := o.Put("b", "k", Object{Size: 100})
		start := time.Now()

		o.Fail(1, nil, Fault{Latency: time.Second, Age: time.Minute})
		r, p := get(t, o, k("k"), origin.GetOptions{FirstByte: 2 * time.Second})
		if d := time.Since(start); d != time.Second || Check(tag, 0, p) != nil {
			t.Errorf("latency %v", d)
		}
		if !r.Info.Confirmed.Equal(start.Add(-time.Minute)) || !r.Info.Received.Equal(start.Add(time.Second)) {
			t.Errorf("Confirmed %v, Received %v, asked %v", r.Info.Confirmed, r.Info.Received, start)
		}

		o.Fail(1, nil, Fault{Latency: 3 * time.Second})
		if _, err := o.Get(t.Context(), k("k"), origin.GetOptions{FirstByte: 2 * time.Second}); err != origin.ErrTimeout {
			t.Errorf("first byte: %v", err)
		}

		o.Fail(1, nil, Fault{Stall: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		if _, err := o.Head(ctx, k("k"), origin.HeadOptions{}); err != context.DeadlineExceeded {
			t.Errorf("stall: %v", err)
		}
		cancel()

		release := make(chan struct{})
		o.Fail(1, nil, Fault{Wait: release})
		time.AfterFunc(time.Minute, func() { close(release) })
		if get(t, o, k("k"), origin.GetOptions{}); o.Stats().Open != 0 {
			t.Error("body left open")
		}
	})
}

func TestBodySteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New()
		tag := o.Put("b", "k", Object{Size: 100})
		open := func(f Fault) io.ReadCloser {
			o.Fail(1, nil, f)
			r, err := o.Get(t.Context(), k("k"), origin.GetOptions{Offset: 10, Length: 50})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Body.Close() })
			return r.Body
		}
		p, err := io.ReadAll(open(Fault{Steps: []Step{{At: 20, Err: io.ErrUnexpectedEOF}}}))
		if len(p) != 20 || err != io.ErrUnexpectedEOF || Check(tag, 10, p) != nil {
			t.Errorf("cut: %d, %v", len(p), err)
		}
		if p, err = io.ReadAll(open(Fault{Extra: 7})); len(p) != 57 || err != nil {
			t.Errorf("extra: %d, %v", len(p), err)
		}
		if p, err = io.ReadAll(open(Fault{Shorten: 7})); len(p) != 43 || err != nil {
			t.Errorf("shorten: %d, %v", len(p), err)
		}
		// Overwritten half way: the body stays at its version, unless it is told to splice.
		over := func() { o.Put("b", "k", Object{Size: 100}) }
		if p, err = io.ReadAll(open(Fault{Steps: []Step{{At: 20, Call: over}}})); err != nil || Check(tag, 10, p) != nil {
			t.Errorf("overwrite: %d, %v", len(p), err)
		}
		o.Put("b", "k", Object{Size: 100, ETag: tag})
		p, err = io.ReadAll(open(Fault{Steps: []Step{{At: 20, Call: over, Splice: true}}}))
		if err != nil || Check(tag, 10, p[:20]) != nil || Check(`"b/k#4"`, 30, p[20:]) != nil {
			t.Errorf("splice: %d, %v", len(p), err)
		}
		// A stalled body ends by Close.
		b := open(Fault{Steps: []Step{{At: 20, Stall: true}}})
		time.AfterFunc(time.Second, func() { _ = b.Close() })
		if p, err = io.ReadAll(b); len(p) != 20 || err != errClosed {
			t.Errorf("stall: %d, %v", len(p), err)
		}
		defer func() {
			if recover() != "boom" {
				t.Error("no panic")
			}
		}()
		_, _ = io.ReadAll(open(Fault{Steps: []Step{{At: 0, Panic: "boom"}}}))
	})
}

func TestScriptGoesBeforeFail(t *testing.T) {
	o := New()
	o.Put("b", "k", Object{Size: 100})
	o.Fail(-1, nil, Fault{Status: 500})
	o.Script(func(_ context.Context, r *Request) *Fault {
		if r.N == 1 {
			return &Fault{Before: func() { o.Put("b", "k", Object{Size: 50}) }}
		}
		return nil
	})
	if r, _ := get(t, o, k("k"), origin.GetOptions{}); r.Info.Size != 50 {
		t.Errorf("size %d", r.Info.Size)
	}
	var e *origin.Error
	if _, err := o.Head(t.Context(), k("k"), origin.HeadOptions{}); !errors.As(err, &e) || e.Status != 500 {
		t.Error(err)
	}
	o.Heal()
	get(t, o, k("k"), origin.GetOptions{})
}

// Delays out of a distribution, the same ones for the same seed.
func TestLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New()
		o.Put("b", "k", Object{Size: 10})
		d := latencies.Distribution{Median: 20 * time.Millisecond, Sigma: 0.3, Late: 0.1, LateBy: time.Second}
		o.Latencies(latencies.New(d, 7))
		same := latencies.New(d, 7)
		for range 100 {
			began := time.Now()
			if _, err := o.Head(t.Context(), origin.Object{Bucket: "b", Key: "k"}, origin.HeadOptions{}); err != nil {
				t.Error(err)
			}
			if took, want := time.Since(began), same.Draw(); took != want {
				t.Fatalf("%v, want %v", took, want)
			}
		}
	})
}
