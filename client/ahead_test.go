package client

import (
	"io"
	"testing"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestReadAhead: what a read has asked for ahead is received before it is read, so that its nodes are done with it.
func TestReadAhead(t *testing.T) {
	const units = 10
	f := newFake(t, 3)
	c := f.client(t) // whose reads have 4 units asked for
	f.origin.Put("bkt", "k", origintest.Object{Size: units * blockSize})
	r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	eventually(t, "the units behind the first are held", func() bool {
		inFlight := 0
		for _, s := range c.Status() {
			inFlight += s.InFlight
		}
		return c.room.used.Load() == 3*blockSize && inFlight == 1 // the first one, which is read as it comes
	})
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := origintest.Check(r.Info.ETag, 0, p); err != nil || len(p) != units*blockSize {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	if n := c.room.used.Load(); n != 0 {
		t.Errorf("%d bytes are held behind the end", n)
	}
}

// TestReadAheadIsBounded: for all reads of a client together. What there is no room for comes all the same.
func TestReadAheadIsBounded(t *testing.T) {
	const units = 6
	f := newFake(t, 3)
	f.origin.Put("bkt", "k", origintest.Object{Size: units * blockSize})
	for _, limit := range []int64{-1, blockSize - 1, 2*blockSize + 1} {
		c := f.client(t, func(l *Config) { l.ReadAhead = limit })
		held := max(limit, 0) / blockSize * blockSize
		var bodies []io.Reader
		var etag string
		for range 3 {
			r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			bodies, etag = append(bodies, r.Body), r.Info.ETag
		}
		eventually(t, "9 units are asked for, and held or refused", func() bool {
			return c.room.used.Load() == held && c.room.refused.Load() == 9-held/blockSize
		})
		for _, b := range bodies {
			p, err := io.ReadAll(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := origintest.Check(etag, 0, p); err != nil || len(p) != units*blockSize {
				t.Errorf("%d bytes, %v", len(p), err)
			}
		}
	}
}

// TestReadAheadOfBrokenBodies: what breaks off while it is received ahead is continued by another node, and what can't
// be is an error behind the bytes that came.
func TestReadAheadOfBrokenBodies(t *testing.T) {
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: 12 * blockSize})
	f.ranked(t, c, "bkt", "k", 1)[0].does(cuts(1000, 0))
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	if testutil.ToFloat64(c.metrics.resumptions) == 0 {
		t.Error("nothing was resumed")
	}
	for _, n := range f.nodes {
		n.does(cuts(1000, 0))
	}
	r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	if err == nil || len(p) == 0 {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	if err := origintest.Check(r.Info.ETag, 0, p); err != nil {
		t.Error(err)
	}
	for _, s := range c.Status() {
		if s.State != cluster.Ready {
			t.Errorf("%+v", s)
		}
	}
}

// TestRoomIsWhatItTakes: what is counted is what is allocated, for parts of units too.
func TestRoomIsWhatItTakes(t *testing.T) {
	r := room{limit: 3 << 20, unit: 1 << 20}
	for range 2 {
		whole, part := r.take(1<<20), r.take(10)
		if cap(*whole) != 1<<20 || len(*part) != 10 || cap(*part) > 16 || r.used.Load() != 1<<20+10 {
			t.Errorf("%d and %d bytes for %d", cap(*whole), cap(*part), r.used.Load())
		}
		if r.take(2<<20) != nil {
			t.Error("more than there is room for")
		}
		r.give(part)
		r.give(whole)
	}
	if r.used.Load() != 0 || r.refused.Load() != 2 {
		t.Errorf("%d bytes, %d refused", r.used.Load(), r.refused.Load())
	}
}
