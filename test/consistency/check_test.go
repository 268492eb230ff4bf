package consistency

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// parse reads a history of one object, an operation a line: "begin end op version", with times in seconds. Operations are
// w (write), u (write of unknown outcome), x (refused write), r (read), m (read of mixed bytes). The version - is none.
func parse(t *testing.T, text string) (ops []Op) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var begin, end int
		var kind, version string
		if _, err := fmt.Sscan(line, &begin, &end, &kind, &version); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		o := Op{Key: "k", Version: strings.Trim(version, "-"), Begin: time.Duration(begin) * time.Second,
			End: time.Duration(end) * time.Second, What: kind, Write: strings.Contains("wux", kind)}
		switch kind {
		case "u":
			o.Outcome = Unknown
		case "x":
			o.Outcome = Refused
		case "m":
			o.Wrong = "mixed"
		}
		ops = append(ops, o)
	}
	return ops
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, history string
		want          string // in the one violation; "" is a good history
		begin         int    // of the operation that it names, in seconds
	}{
		{"nothing", ``, "", 0},
		{"one after the other", `
			0 1 r -
			1 2 w a
			3 4 r a
			5 6 w -
			7 8 r -
			9 10 w b
			11 12 r b`, "", 0},
		{"a read beside a write sees either", `
			0 1 w a
			2 9 w b
			3 4 r a
			5 6 r b
			7 8 r b
			10 11 r b`, "", 0},
		{"seen before its answer, and seen to the end", `
			0 9 w a
			1 2 r a
			3 4 r a`, "", 0},
		{"stale after the answer", `
			0 1 w a
			2 3 w b
			4 5 r a`, "no order", 4},
		{"stale read that began before the answer", `
			0 1 w a
			2 5 w b
			4 6 r a`, "", 0},
		{"turned back beside a write", `
			0 1 w a
			2 9 w b
			3 4 r b
			5 6 r a`, "no order", 5},
		{"of two readers at once, either", `
			0 1 w a
			2 9 w b
			3 6 r b
			5 7 r a`, "", 0},
		{"overlapping writes, first came last", `
			0 9 w a
			1 8 w b
			10 11 r a
			12 13 r a`, "", 0},
		{"overlapping writes, second came last", `
			0 9 w a
			1 8 w b
			10 11 r b`, "", 0},
		{"overlapping writes, settled and turned back", `
			0 9 w a
			1 8 w b
			10 11 r b
			12 13 r a`, "no order", 12},
		{"overlapping writes, each seen after the other", `
			0 9 w a
			1 8 w b
			2 3 r a
			4 5 r b
			6 7 r a`, "no order", 6},
		{"overwritten before it was answered", `
			0 9 w a
			1 2 w b
			3 4 r b`, "", 0},
		{"deletion undone", `
			0 1 w a
			2 3 w -
			4 5 r a`, "no order", 4},
		{"deleted, and there before", `
			0 1 w a
			2 3 r -`, "no order", 2},
		{"deletion beside a write", `
			0 9 w a
			1 8 w -
			10 11 r -`, "", 0},
		{"not found twice around a version, deleted once", `
			0 1 w a
			2 9 w -
			3 4 r -
			5 6 r a`, "no order", 5},
		{"not found twice around a version, written again", `
			0 1 w a
			2 9 w -
			3 4 r -
			5 9 w b
			6 7 r b
			10 11 r -`, "no order", 10},
		{"not found, though nobody knows", `
			0 1 w a
			2 3 u -
			4 5 r a
			6 7 r -
			8 9 r -`, "", 0},
		{"came back after an unknown deletion", `
			0 1 w a
			2 3 u -
			4 5 r -
			6 7 r a`, "no order", 6},
		{"unknown, and never seen", `
			0 1 w a
			2 3 u b
			4 5 r a`, "", 0},
		{"unknown, and seen late", `
			0 1 w a
			2 3 u b
			4 5 r a
			6 7 r b
			8 9 r b`, "", 0},
		{"unknown, took effect after a later write", `
			0 1 w a
			2 3 u b
			4 5 w c
			6 7 r c
			8 9 r b`, "", 0},
		{"unknown, seen and gone", `
			0 1 w a
			2 3 u b
			4 5 r b
			6 7 r a`, "no order", 6},
		{"unknown, seen before it began", `
			2 3 r b
			4 5 u b`, "no order", 2},
		{"unknown, resurrected", `
			0 1 u a
			2 3 r a
			4 5 w b
			6 7 r b
			8 9 r a`, "no order", 8},
		{"refused", `
			0 1 w a
			2 3 x b
			4 5 r a`, "", 0},
		{"refused, and seen", `
			0 1 w a
			2 3 x b
			4 5 r b`, "refused", 4},
		{"never written", `
			0 1 w a
			2 3 r b`, "never written", 2},
		{"read before it was written", `
			0 1 r a
			2 3 w a`, "no order", 0},
		{"mixed", `
			0 1 w a
			2 3 m a`, "mixed", 2},
		{"written twice", `
			0 1 w a
			2 3 w a`, "written twice", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Check(parse(t, c.history))
			switch {
			case c.want == "" && len(found) == 0:
			case c.want == "":
				t.Errorf("found %v", found)
			case len(found) != 1:
				t.Errorf("%d found, want one: %v", len(found), found)
			case !strings.Contains(found[0].What, c.want) || found[0].Op.Begin != time.Duration(c.begin)*time.Second:
				t.Errorf("found %v, want %q of the operation that began at %d", found[0], c.want, c.begin)
			}
		})
	}
}

// TestObjectsAreApart mixes a good history of one object into a bad one of another.
func TestObjectsAreApart(t *testing.T) {
	good := parse(t, "0 1 w a\n2 3 r a")
	bad := parse(t, "0 1 w b\n2 3 r -")
	for i := range bad {
		bad[i].Key = "other"
	}
	found := Check(append(good, bad...))
	if len(found) != 1 || found[0].Op.Key != "other" {
		t.Errorf("found %v", found)
	}
}

// TestEssence compares, on random histories, good ones and bad ones, the verdict on the history with that on all of it,
// searched by brute force.
func TestEssence(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	good := 0
	const rounds = 20000
	for range rounds {
		ops := randomHistory(rng)
		want := bruteForce(ops, "")
		if want {
			good++
		}
		if got := len(Check(ops)) == 0; got != want {
			var lines []string
			for _, o := range ops {
				lines = append(lines, o.String())
			}
			t.Fatalf("good: %v, want %v:\n%s", got, want, strings.Join(lines, "\n"))
		}
	}
	if good < rounds/10 || good > rounds*9/10 {
		t.Errorf("%d of %d histories are good: that says little", good, rounds)
	}
}

// randomHistory has up to three writes and four reads.
func randomHistory(rng *rand.Rand) (ops []Op) {
	span := func() (begin, end time.Duration) {
		begin = time.Duration(rng.IntN(12))
		return begin, begin + 1 + time.Duration(rng.IntN(5))
	}
	versions := []string{""}
	for i := range 1 + rng.IntN(3) {
		o := Op{Key: "k", Write: true, What: "w", Version: string(rune('a' + i))}
		o.Begin, o.End = span()
		if rng.IntN(3) == 0 {
			o.Version = ""
		}
		if rng.IntN(3) == 0 {
			o.Outcome = Unknown
		}
		versions = append(versions, o.Version)
		ops = append(ops, o)
	}
	for range 1 + rng.IntN(4) {
		o := Op{Key: "k", What: "r", Version: versions[rng.IntN(len(versions))]}
		o.Begin, o.End = span()
		ops = append(ops, o)
	}
	return ops
}

// bruteForce tries all orders: whichever of the operations left began before each other one left had ended may be next,
// and one of unknown outcome may never be.
func bruteForce(ops []Op, state string) bool {
	done := true
	for i, o := range ops {
		done = done && o.Write && o.Outcome == Unknown
		next := o.Write || o.Version == state
		for _, other := range ops {
			// Times that are equal overlap.
			next = next && (other.Outcome == Unknown || o.Begin <= other.End)
		}
		if next {
			rest := append(append([]Op(nil), ops[:i]...), ops[i+1:]...)
			if bruteForce(rest, o.Version) {
				return true
			}
		}
	}
	return done
}
