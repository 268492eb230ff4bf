package origintest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/internal/latencies"
	"github.com/ashlar-s3/ashlar/origin"
)

// Request is one request as scripts see it.
type Request struct {
	N              int    // 1 for the first request since New or ResetLog
	Op             string // GET or HEAD
	Object         origin.Object
	Offset, Length int64 // as in origin.GetOptions; Length 0 is no range
	IfMatch        string
	IfNoneMatch    string
	NoCache        bool
}

// String is the request's line in the log.
func (r *Request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s", r.Op, r.Object.Bucket, r.Object.Key)
	if r.Object.VersionID != "" {
		fmt.Fprintf(&b, "?versionId=%s", r.Object.VersionID)
	}
	if r.Length > 0 {
		fmt.Fprintf(&b, " %d-%d", r.Offset, r.Offset+r.Length-1)
	}
	if r.IfMatch != "" {
		fmt.Fprintf(&b, " if-match=%s", r.IfMatch)
	}
	if r.IfNoneMatch != "" {
		fmt.Fprintf(&b, " if-none-match=%s", r.IfNoneMatch)
	}
	if r.NoCache {
		b.WriteString(" no-cache")
	}
	return b.String()
}

// Fault is how one answer differs from the right one. The zero value doesn't. Fields take effect in the order in which
// they stand here.
type Fault struct {
	// Before the headers.
	Latency time.Duration   // wait this long
	Wait    <-chan struct{} // then until this is closed
	Stall   bool            // then until the request's context or its FirstByte ends
	Before  func()          // call this, then look at the object; an overwrite here is seen by this answer

	// Instead of an answer.
	Err    error           // returned as it is, such as a refused connection
	Status int             // an *origin.Error with this status
	Code   string          // with this S3 error code
	Body   []byte          // and this body; nil: S3's XML with the Code
	Header []origin.Header // and these headers

	// The headers.
	IgnoreIfMatch bool                   // answer with the present version whatever If-Match says
	IgnoreRange   bool                   // 200: the whole object, from 0
	Shorten       int64                  // answer a range this much shorter than asked, and say so
	Age           time.Duration          // the answer has spent this long in caches
	Edit          func(*origin.Response) // has the last word: lie about offset, length, size, ETag, Last-Modified…

	// The body, at positions of its own: 0 is the first byte that it yields.
	Steps    []Step // in ascending order of At
	Extra    int64  // yield this many bytes more than Length, which an origin.Origin must not
	Chunk    int    // one Read returns at most this much; 0: as SetChunk says
	EagerEOF bool   // return io.EOF with the last bytes instead of after them
}

// Step is something that happens in a body once At bytes were read of it. Read returns what is before a step first.
type Step struct {
	At      int64
	Latency time.Duration   // wait this long
	Wait    <-chan struct{} // then until this is closed
	Stall   bool            // then until the request's context ends or the body is closed
	Call    func()          // then call this: an overwrite here leaves the body at its version
	Splice  bool            // go on with bytes of the version that the key has now, which no origin must
	Err     error           // then fail: io.ErrUnexpectedEOF is a body cut short; io.EOF is one that hides that it was
	Panic   any             // then panic
}

// Script sets a function that is asked for the fault of each request; nil means none, and the faults set by Fail are
// looked at. It is called without locks held, possibly by many goroutines at once.
func (o *Origin) Script(f func(context.Context, *Request) *Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.script = f
}

// Fail lets the next n requests that match have the fault, all of them when n is negative. A nil match is every
// request. Faults set earlier are used up first.
func (o *Origin) Fail(n int, match func(*Request) bool, f Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, &rule{n, match, f})
}

// Latencies makes every request take as long as l draws, and otherwise be as it should. It is a script.
func (o *Origin) Latencies(l *latencies.Source) {
	o.Script(func(context.Context, *Request) *Fault { return &Fault{Latency: l.Draw()} })
}

// Heal ends all faults for requests to come.
func (o *Origin) Heal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.script, o.queue = nil, nil
}

// Gets matches GET requests, for Fail.
func Gets(r *Request) bool { return r.Op == "GET" }

// Heads matches HEAD requests, for Fail.
func Heads(r *Request) bool { return r.Op == "HEAD" }

// At returns a match for GETs that ask for the byte at off, for Fail.
func At(off int64) func(*Request) bool {
	return func(r *Request) bool {
		return r.Op == "GET" && (r.Length == 0 || r.Offset <= off && off-r.Offset < r.Length)
	}
}

// hold waits as long as the headers are held back.
func (f *Fault) hold(ctx context.Context, firstByte time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var expired <-chan time.Time
	if firstByte > 0 {
		t := time.NewTimer(firstByte)
		defer t.Stop()
		expired = t.C
	}
	return pause(f.Latency, f.Wait, f.Stall, func(c <-chan struct{}, after <-chan time.Time) error {
		select {
		case <-c:
			return nil
		case <-after:
			return nil
		case <-expired:
			return origin.ErrTimeout
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// pause is a latency, a channel and a stall one after the other, each waited for by wait.
func pause(
	latency time.Duration, ch <-chan struct{}, stall bool, wait func(<-chan struct{}, <-chan time.Time) error,
) error {
	if latency > 0 {
		t := time.NewTimer(latency)
		defer t.Stop()
		if err := wait(nil, t.C); err != nil {
			return err
		}
	}
	if ch != nil {
		if err := wait(ch, nil); err != nil {
			return err
		}
	}
	if stall {
		return wait(nil, nil)
	}
	return nil
}

func (f *Fault) edit(r *origin.Response) {
	if f.Edit != nil {
		f.Edit(r)
	}
}

func (f *Fault) error(r *Request) error {
	e := failure(r, f.Status, f.Code, f.Header...)
	if f.Body != nil {
		e.Body = f.Body
	}
	return e
}

// failure is an error answer as S3 words it; that to a HEAD has no body and so no code.
func failure(r *Request, status int, code string, h ...origin.Header) *origin.Error {
	if r.Op == "HEAD" || code == "" {
		return &origin.Error{Status: status, Header: h}
	}
	h = append([]origin.Header{{Name: "Content-Type", Value: "application/xml"}}, h...)
	return &origin.Error{
		Status: status, Code: code, Header: sorted(h),
		Body: []byte("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code></Error>"),
	}
}
