package gateway

import (
	"cmp"
	"time"

	"github.com/ashlar-s3/ashlar/internal/hedge"
)

// Policy says how the objects of a bucket are cached. Values are immutable once handed to a Gateway.
type Policy struct {
	BlockSize   int64 // bytes, 64 KiB to 16 MiB, a power of two
	FetchWindow int   // blocks that one origin GET asks for at most, >= 1; groups are aligned to it
	ReadWindow  int   // blocks that one read has asked for at most, the one being written included, >= 1
	Readahead   int   // blocks beyond that, and beyond a range, that a sequential reader has asked for at most

	// Immutable: an object never changes under its key, so its info never needs confirming. Otherwise info is
	// confirmed by ETag once it is older than TTL.
	Immutable bool
	TTL       time.Duration
	// StaleIfError is how much older than TTL info may be that is used because the origin is in trouble (RFC 5861
	// section 4).
	StaleIfError time.Duration
	NegativeTTL  time.Duration // how long a 404 is remembered; 0 is not at all

	PopulateMax int64 // bytes of a written object that Insert takes at most

	Fetch Fetch
}

// Fetch says how the origin is asked for one thing: a fetch group, or the info of an object with its first one. The zero
// value asks once, without bounds.
type Fetch struct {
	Attempts   int           // requests at most, hedges aside; 0 means 1
	Backoff    time.Duration // before the second request, doubled before each further one; half is left to chance
	BackoffMax time.Duration // what it is doubled up to; 0 does not bound it
	FirstByte  time.Duration // bound on the headers of one request; 0 is none
	Attempt    time.Duration // bound on one request as a whole; 0 is none
	// Deadline bounds how long a read waits for its next bytes, and the work on one thing: requests, pauses between
	// them, and waiting for a turn. 0 is none.
	Deadline time.Duration
	Hedge    Hedge // when a second request is sent beside one that takes long

	hasty bool // it gives a request up sooner than the bucket's policy does
}

// Hedge is the rule of package hedge. The zero value never sends a second request.
type Hedge = hedge.Rule

// Tuning is what one read wants otherwise than the policy of its bucket has it. It only makes a read ask less or give up
// sooner: what goes beyond the policy is clamped to it. The zero value changes nothing.
type Tuning struct {
	Attempts                     int           // 0: as the policy has it
	Backoff, BackoffMax          time.Duration // likewise; the policy's are the least
	FirstByte, Attempt, Deadline time.Duration // likewise; the policy's are the most
	NoHedge                      bool
}

// tuned returns the way in which a read asks. Its Deadline stays the policy's: the work goes on for others, however
// little patience the one has who began it.
func (p *Policy) tuned(t Tuning) *Fetch {
	if t == (Tuning{}) {
		return &p.Fetch
	}
	f := p.Fetch
	if t.Attempts > 0 {
		f.Attempts = min(t.Attempts, f.attempts())
	}
	f.Backoff, f.BackoffMax = max(f.Backoff, t.Backoff), max(f.BackoffMax, t.BackoffMax)
	f.FirstByte = sooner(f.FirstByte, t.FirstByte)
	f.Attempt = sooner(f.Attempt, t.Attempt)
	f.hasty = f.FirstByte != p.Fetch.FirstByte ||
		f.Attempt != p.Fetch.Attempt && (f.FirstByte == 0 || f.Attempt < f.FirstByte)
	if t.NoHedge {
		f.Hedge = Hedge{}
	}
	return &f
}

// sooner is the lesser of two bounds, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}

func (f *Fetch) attempts() int { return max(f.Attempts, 1) }
