package devs3

import (
	"fmt"
	"maps"
	"strings"
	"sync"
)

// Counters is what a server has done since it was made or ResetCounters was called. A request counts when it arrives,
// bytes count when it ends.
type Counters struct {
	Requests              int64
	ByMethod              map[string]int64 // "GET", …
	ByOperation           map[string]int64 // "GetObject", …; "Unknown" for what S3 has no name for
	BytesSent             int64            // of bodies
	InFlight, MaxInFlight int64
	Objects               map[string]ObjectCounters // by bucket/key
}

// ObjectCounters is what was asked of one object, existing or not.
type ObjectCounters struct {
	Gets, Heads int64
	BytesSent   int64 // of bodies, by GET
}

// recorder holds counters and the log.
type recorder struct {
	mu   sync.Mutex
	n    Counters // guarded by mu
	log  []string // guarded by mu; a ring once it is full
	next int      // guarded by mu; index in log of the oldest line, once it is full
	max  int
}

func newRecorder(maxLog int) *recorder {
	return &recorder{n: zeroCounters(), max: maxLog}
}

func zeroCounters() Counters {
	return Counters{ByMethod: map[string]int64{}, ByOperation: map[string]int64{}, Objects: map[string]ObjectCounters{}}
}

func (r *recorder) begin(c *call) {
	op := c.op
	if op == "" {
		op = "Unknown"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n.Requests++
	r.n.ByMethod[c.r.Method]++
	r.n.ByOperation[op]++
	r.n.InFlight++
	r.n.MaxInFlight = max(r.n.MaxInFlight, r.n.InFlight)
	if c.op == opGetObject || c.op == opHeadObject {
		o := r.n.Objects[c.bucket+"/"+c.key]
		if c.op == opGetObject {
			o.Gets++
		} else {
			o.Heads++
		}
		r.n.Objects[c.bucket+"/"+c.key] = o
	}
}

func (r *recorder) end(c *call) {
	line := c.logLine()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n.InFlight--
	r.n.BytesSent += c.w.sent
	if c.op == opGetObject {
		o := r.n.Objects[c.bucket+"/"+c.key]
		o.BytesSent += c.w.sent
		r.n.Objects[c.bucket+"/"+c.key] = o
	}
	if len(r.log) < r.max {
		r.log = append(r.log, line)
		return
	}
	r.log[r.next] = line
	r.next = (r.next + 1) % r.max
}

// Counters returns a copy of the counters.
func (s *Server) Counters() Counters {
	r := s.counts
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.n
	n.ByMethod = maps.Clone(n.ByMethod)
	n.ByOperation = maps.Clone(n.ByOperation)
	n.Objects = maps.Clone(n.Objects)
	return n
}

// ResetCounters sets all counters but InFlight to zero and forgets the log.
func (s *Server) ResetCounters() {
	r := s.counts
	r.mu.Lock()
	defer r.mu.Unlock()
	inFlight := r.n.InFlight
	r.n = zeroCounters()
	r.n.InFlight, r.n.MaxInFlight = inFlight, inFlight
	r.log, r.next = nil, 0
}

// Log returns the newest requests, oldest first, in the order in which they ended, as
//
//	GET /bucket/key?x-id=GetObject range=bytes=0-9 if-match="…" 206 10
//
// method, target as received, the headers that choose bytes or versions, status (0 when the connection was broken off
// before the headers) and bytes of body. Authentication is left out.
func (s *Server) Log() []string {
	r := s.counts
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]string{}, r.log[r.next:]...), r.log[:r.next]...)
}

var loggedHeaders = []string{"Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	"If-Range", "Cache-Control"}

func (c *call) logLine() string {
	var b strings.Builder
	path, rawQuery := requestTarget(c.r)
	b.WriteString(c.r.Method + " " + path)
	sep := "?"
	for part := range strings.SplitSeq(rawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		name = strings.ToLower(decodeQuery(name))
		if part == "" || strings.HasPrefix(name, "x-amz-") || name == "signature" || name == "awsaccesskeyid" {
			continue
		}
		b.WriteString(sep + part)
		sep = "&"
	}
	for _, name := range loggedHeaders {
		if v := c.r.Header.Get(name); v != "" {
			b.WriteString(" " + strings.ToLower(name) + "=" + v)
		}
	}
	fmt.Fprintf(&b, " %d %d", c.w.status, c.w.sent)
	return b.String()
}
