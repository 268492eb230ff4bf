package origin_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-s3/ashlar/origin"
)

func TestStrong(t *testing.T) {
	for tag, want := range map[string]bool{
		`"a"`: true, `""`: true, `"d41d-3"`: true,
		`W/"a"`: false, "": false, `"`: false, "a": false, `"a`: false, `a"`: false,
	} {
		if got := (&origin.Info{ETag: tag}).Strong(); got != want {
			t.Errorf("%s: %v", tag, got)
		}
	}
}

func TestSameVersion(t *testing.T) {
	strong := origin.Info{Size: 1, ETag: `"a"`, LastModified: "x"}
	weak := origin.Info{Size: 1, ETag: `W/"a"`, LastModified: "x"}
	none := origin.Info{Size: 1, LastModified: "x"}
	with := func(i origin.Info, change func(*origin.Info)) *origin.Info { change(&i); return &i }
	otherDate := func(i *origin.Info) { i.LastModified = "y" }
	otherSize := func(i *origin.Info) { i.Size = 2 }
	same := func(*origin.Info) {}
	for _, c := range []struct {
		name string
		a    origin.Info
		b    *origin.Info
		want bool
	}{
		{"strong", strong, with(strong, same), true},
		{"strong, other date", strong, with(strong, otherDate), true},
		{"strong, other size", strong, with(strong, otherSize), false},
		{"strong, other tag", strong, &weak, false},
		{"weak", weak, with(weak, same), true},
		{"weak, other date", weak, with(weak, otherDate), false},
		{"none", none, with(none, same), true},
		{"none, other date", none, with(none, otherDate), false},
	} {
		if got := c.a.SameVersion(c.b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestErrorMatchesItsMeaning(t *testing.T) {
	sentinels := []error{
		origin.ErrNotFound, origin.ErrChanged, origin.ErrRange, origin.ErrBadAnswer, origin.ErrTimeout,
	}
	means := map[int]error{404: origin.ErrNotFound, 405: origin.ErrNotFound, 412: origin.ErrChanged, 416: origin.ErrRange}
	for status := 100; status < 600; status++ {
		err := fmt.Errorf("wrapped: %w", &origin.Error{Status: status})
		for _, s := range sentinels {
			if got, want := errors.Is(err, s), means[status] == s; got != want {
				t.Errorf("%d is %q: %v", status, s, got)
			}
		}
	}
	if s := (&origin.Error{Status: 503, Code: "SlowDown"}).Error(); s != "origin answered 503 SlowDown" {
		t.Error(s)
	}
}

func TestObjectString(t *testing.T) {
	for want, o := range map[string]origin.Object{
		"s3://b/k":             {Bucket: "b", Key: "k"},
		"s3://b/k?versionId=1": {Bucket: "b", Key: "k", VersionID: "1"},
	} {
		if o.String() != want {
			t.Error(o.String())
		}
	}
}
