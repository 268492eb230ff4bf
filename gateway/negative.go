package gateway

import (
	"container/list"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// AbsentError is an origin's 404 that is remembered (Policy.NegativeTTL). It unwraps to what the origin said.
type AbsentError struct {
	Answer *origin.Error
	Age    time.Duration // since the origin was asked, rounded up to whole seconds
}

func (e *AbsentError) Error() string { return e.Answer.Error() + ", " + e.Age.String() + " ago" }

// Unwrap returns the origin's answer.
func (e *AbsentError) Unwrap() error { return e.Answer }

// negatives remembers which objects the origin has not got, bounded in bytes, the oldest leave first. A write through
// this process is noticed by the generation. Safe for concurrent use.
type negatives struct {
	gens  *generations
	limit int64

	mu    sync.Mutex
	m     map[origin.Object]*list.Element // guarded by mu
	ring  list.List                       // of *negative, in the order in which they came; guarded by mu
	bytes int64                           // guarded by mu
}

type negative struct {
	object origin.Object
	answer *origin.Error
	gen    uint64
	sent   time.Time // when the origin was asked
	bytes  int64
}

func newNegatives(limit int64, gens *generations) *negatives {
	return &negatives{gens: gens, limit: limit, m: make(map[origin.Object]*list.Element)}
}

// ageOf is how long ago the origin itself asked, which may be a cache (RFC 9111 section 5.1).
func ageOf(answer *origin.Error) time.Duration {
	for _, h := range answer.Header {
		if strings.EqualFold(h.Name, "Age") {
			if n, err := strconv.ParseUint(h.Value, 10, 31); err == nil {
				return time.Duration(n) * time.Second
			}
		}
	}
	return 0
}

// get returns the answer for o, if it is no older than ttl; nil for none.
func (n *negatives) get(o origin.Object, ttl time.Duration) *AbsentError {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.m[o]
	if e == nil {
		return nil
	}
	v := e.Value.(*negative)
	age := time.Since(v.sent)
	if v.gen != n.gens.of(o) || age < 0 || age > ttl {
		n.remove(e)
		return nil
	}
	return &AbsentError{Answer: v.answer, Age: (age + time.Second - 1).Truncate(time.Second)}
}

// put remembers an answer to a question that was sent then, in generation gen.
func (n *negatives) put(o origin.Object, answer *origin.Error, gen uint64, sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.m[o]; e != nil {
		n.remove(e)
	}
	v := &negative{object: o, answer: answer, gen: gen, sent: sent,
		bytes: int64(400 + 2*(len(o.Bucket)+len(o.Key)+len(o.VersionID)) + len(answer.Body))}
	for _, h := range answer.Header {
		v.bytes += int64(32 + len(h.Name) + len(h.Value))
	}
	n.m[o] = n.ring.PushBack(v)
	n.bytes += v.bytes
	for n.bytes > n.limit {
		n.remove(n.ring.Front())
	}
}

// drop forgets o, which is there.
func (n *negatives) drop(o origin.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.m[o]; e != nil {
		n.remove(e)
	}
}

// remove is called with mu held.
func (n *negatives) remove(e *list.Element) {
	v := n.ring.Remove(e).(*negative)
	delete(n.m, v.object)
	n.bytes -= v.bytes
}
