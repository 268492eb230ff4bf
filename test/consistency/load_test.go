//go:build integration

package consistency

import (
	"testing"
)

// narrow has objects of several blocks fetched by several requests.
const narrow = "fetch_window = 2\n"

// full is the load that a node must stand.
func full(t *testing.T, to Target) Load {
	return Load{
		Target: to, Keys: 100, Writers: 64, Readers: 64, Duration: *duration, Block: block, Seed: newSeed(t),
	}
}

// judge runs a load and fails the test for what is wrong.
func judge(t *testing.T, l Load) *Result {
	t.Helper()
	result, err := l.Run(t.Context())
	t.Log(result)
	if err != nil {
		t.Fatal(err)
	}
	found := Check(result.History)
	for i, v := range found {
		if i == 5 {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Error(v)
	}
	return result
}

// TestNode is the promise that a write is visible at once to the next read through the same node, under load: 64 writers
// and 64 readers of the same 100 objects. The origin is the project's own: versitygw 1.8.0 over a folder answers this
// load by itself with the metadata of one version and the bytes of another.
func TestNode(t *testing.T) {
	for _, c := range []struct{ name, buckets string }{
		{"remembered", narrow},
		{"confirmed again and again", narrow + `consistency = { mode = "etag", ttl = "20ms" }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrigin(t)
			l := full(t, newNode(t, "", o.url, c.buckets))
			l.Origin, l.Least = o.target(), 3*l.Keys
			o.unsteady(l.Seed, 0.02)
			result := judge(t, l)
			if result.Reads < l.Least || result.Writes < l.Least {
				t.Errorf("%v: the load says little", result)
			}
			if n := result.FailedReads(); n > result.Reads/20 {
				t.Errorf("%d reads failed beside %d", n, result.Reads)
			}
		})
	}
}

// TestOrigin is the same load without a node: what fails here is the origin's or the checker's.
func TestOrigin(t *testing.T) {
	o := newOrigin(t)
	l := full(t, o.target())
	o.unsteady(l.Seed, 0.02)
	if result := judge(t, l); result.FailedReads() > 0 {
		t.Errorf("reads failed")
	}
}
