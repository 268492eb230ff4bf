package consistency

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Op is one operation on one object, as a client saw it.
type Op struct {
	Key     string
	Write   bool          // it is to change the object; otherwise it looked at it
	Version string        // what was written or seen; "" is no object: a deletion, or a read that found none
	Begin   time.Duration // since the start of the history, before the request was sent
	End     time.Duration // when the answer was there; of a read, its headers, which say what version it is of
	Outcome Outcome       // of a write
	Wrong   string        // of a read: what is wrong with the answer by itself, as bytes of two versions; "" is nothing
	What    string        // method and client, for people
}

// Outcome is what became of a write.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota // acknowledged
	Refused                // refused for certain: it had no effect
	Unknown                // a timeout, a broken connection, a 5xx: it may have an effect, then or at any time later
)

// forever is the end of a write of which nobody knows whether it has ended.
const forever = time.Duration(math.MaxInt64)

// String shows an operation on one line.
func (o Op) String() string {
	did, version := "saw", o.Version
	if o.Write {
		did = [...]string{"wrote", "was refused", "may have written"}[o.Outcome]
	}
	if version == "" {
		version = "no object"
	}
	end := "?"
	if o.End != forever {
		end = fmt.Sprintf("%.6f", o.End.Seconds())
	}
	return fmt.Sprintf("%s  %.6f to %s s  %s %s %s", o.Key, o.Begin.Seconds(), end, o.What, did, version)
}

// Violation is something that a history must not have.
type Violation struct {
	Op    Op     // the read that is wrong, or whatever operation shows that something before it was
	What  string // what is wrong
	Among []Op   // the operations on the same object that matter to it, by their beginning
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %v", v.What, v.Op)
	for _, o := range v.Among {
		fmt.Fprintf(&b, "\n    beside  %v", o)
	}
	return b.String()
}

// orderTimeout bounds the search for an order of the operations on one object.
const orderTimeout = 5 * time.Minute

// Check finds what is wrong with a history, in which no version was written twice and no object was there at the
// beginning. It says of each object whether it was linearizable: whether all operations on it can have happened one after
// the other, each at some moment between its beginning and its end, so that each read saw the last write before it. That
// holds when reads are of whole versions, at least as new as the last write acknowledged before they began, and do not
// turn back; of writes that overlap, either may come out last.
func Check(history []Op) []Violation {
	byKey := make(map[string][]Op)
	for _, o := range history {
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	var found []Violation
	for _, ops := range byKey {
		found = append(found, checkObject(ops)...)
	}
	slices.SortFunc(found, func(a, b Violation) int { return cmp.Compare(a.Op.End, b.Op.End) })
	return found
}

func checkObject(ops []Op) (found []Violation) {
	writes := make(map[string]Outcome)
	for _, o := range ops {
		if _, twice := writes[o.Version]; twice && o.Write && o.Version != "" {
			return []Violation{{Op: o, What: "not a history: written twice"}}
		}
		if o.Write {
			writes[o.Version] = o.Outcome
		}
	}
	var sound []Op
	for _, o := range ops {
		outcome, written := writes[o.Version]
		switch {
		case o.Write && o.Outcome == Refused: // had no effect
		case o.Write:
			sound = append(sound, o)
		case o.Wrong != "":
			found = append(found, Violation{Op: o, What: o.Wrong})
		case o.Version != "" && !written:
			found = append(found, Violation{Op: o, What: "a read of what was never written"})
		case o.Version != "" && outcome == Refused:
			found = append(found, Violation{Op: o, What: "a read of a write that was refused"})
		default:
			sound = append(sound, o)
		}
	}
	switch ordered(sound) {
	case porcupine.Illegal:
		found = append(found, explain(sound))
	case porcupine.Unknown:
		found = append(found, Violation{Op: sound[0], What: fmt.Sprintf("no order found within %v", orderTimeout)})
	}
	return found
}

// explain finds the operation with which a history that has no order ceases to have one, and what is near it.
func explain(ops []Op) Violation {
	byEnd := slices.Clone(ops)
	slices.SortFunc(byEnd, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	n, _ := slices.BinarySearchFunc(byEnd, true, func(o Op, _ bool) int {
		if ordered(before(ops, o.End)) == porcupine.Ok {
			return -1
		}
		return 0
	})
	culprit := byEnd[min(n, len(byEnd)-1)]
	v := Violation{Op: culprit, What: "no order of the operations explains this one"}
	from := culprit.Begin // of the version that was seen
	for _, o := range ops {
		if o.Write && o.Version == culprit.Version && o.Version != "" {
			from = min(from, o.Begin)
		}
	}
	for _, o := range ops {
		if o != culprit && o.End >= from && o.Begin <= culprit.End {
			v.Among = append(v.Among, o)
		}
	}
	slices.SortFunc(v.Among, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	if n := len(v.Among); n > 20 {
		v.Among = slices.Concat(v.Among[:4], v.Among[n-16:])
	}
	return v
}

// before is what was known of a history at a time: of writes that had not ended, not how they would.
func before(ops []Op, t time.Duration) []Op {
	var then []Op
	for _, o := range ops {
		if o.End > t {
			if !o.Write || o.Begin > t {
				continue
			}
			o.Outcome = Unknown
		}
		then = append(then, o)
	}
	return then
}

// register is one object: its version, "" for none.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		o := input.(Op)
		return o.Write || o.Version == state, o.Version
	},
}

// ordered says whether there is an order of the operations on one object.
func ordered(ops []Op) porcupine.CheckResult {
	var operations []porcupine.Operation
	for _, o := range essence(ops) {
		operations = append(operations, porcupine.Operation{Input: o, Call: int64(o.Begin), Return: int64(o.End)})
	}
	return porcupine.CheckOperationsTimeout(register, operations, orderTimeout)
}

// essence leaves out operations without which there is an order if and only if there is one with them, since the search
// takes time exponential in the number of those that overlap.
func essence(ops []Op) []Op {
	seen := make(map[string][]Op) // reads, by what they saw
	for _, o := range ops {
		if !o.Write {
			seen[o.Version] = append(seen[o.Version], o)
		}
	}
	var kept []Op
	for _, o := range ops {
		if !o.Write {
			continue
		}
		if o.Outcome == Unknown {
			// Nothing tells of it but the reads that saw it: it came before the first of them. Without any it may as well
			// not have been. Reads that found no object may have seen another deletion.
			o.End = forever
			told := false
			for _, r := range seen[o.Version] {
				told = told || o.Version != "" || r.End >= o.Begin
				if o.Version != "" {
					o.End = min(o.End, r.End)
				}
			}
			if !told {
				continue
			}
		}
		kept = append(kept, o)
	}
	for version, reads := range seen {
		if version == "" {
			kept = append(kept, innermost(reads)...)
			continue
		}
		// A version is there for one span of time, which meets all reads of it when it meets these two.
		kept = append(kept, slices.MinFunc(reads, func(a, b Op) int { return cmp.Compare(a.End, b.End) }),
			slices.MaxFunc(reads, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) }))
	}
	return kept
}

// innermost returns those of reads during which no other of them began and ended: where that one has a place, so has the
// one around it.
func innermost(reads []Op) (kept []Op) {
	slices.SortFunc(reads, func(a, b Op) int {
		return cmp.Or(cmp.Compare(b.Begin, a.Begin), cmp.Compare(a.End, b.End))
	})
	first := forever // end of those that began later
	for _, r := range reads {
		if r.End < first {
			kept = append(kept, r)
			first = r.End
		}
	}
	return kept
}
