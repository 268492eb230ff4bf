// Package gateway is the read engine: it answers reads of objects from fixed-size blocks and fetches from an origin
// what it has not got. All bytes of one read are of one version of the object, or the read fails; each block is fetched
// once however many readers want it; memory stays within what it was given. It knows neither HTTP nor what its origin is.
package gateway

import (
	"errors"
	"log/slog"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/prometheus/client_golang/prometheus"
)

// Policy says how the objects of a bucket are cached. Values are immutable once handed to a Gateway.
type Policy struct {
	BlockSize   int64 // bytes, 64 KiB to 16 MiB, a power of two
	FetchWindow int   // blocks that one origin GET asks for at most, >= 1; groups are aligned to it
	ReadWindow  int   // blocks that one read has asked for at most, the one being written included, >= 1

	// Immutable: an object never changes under its key, so its info never needs confirming. Otherwise info is
	// confirmed by ETag once it is older than TTL.
	Immutable bool
	TTL       time.Duration

	PopulateMax int64 // bytes of a written object that Insert takes at most

	FirstByte time.Duration // bound on the headers of one origin request
	Attempt   time.Duration // bound on one origin request as a whole
}

// Config assembles a Gateway.
type Config struct {
	Origin origin.Origin     // required
	Memory blockstore.Memory // required
	// Policy returns the policy of a bucket; it is called on every read and must be quick. Required.
	Policy func(bucket string) *Policy

	InfoMemory        int64 // bytes for remembered info; 0 means 64 MiB
	OriginConcurrency int   // origin requests in flight; 0 means 64

	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
}

// Request is one read.
type Request struct {
	Object origin.Object
	Range  Range
	// InfoOnly asks for info without bytes: S3's HEAD.
	InfoOnly bool
	// Check, if set, decides conditions against the info, and may change the range (If-Range). It may be called more
	// than once, whenever the info turns out to be another one; the last call counts. Its error is returned by Open as
	// it is, after confirming the info at the origin where the error matches ErrUnsatisfied.
	Check func(*origin.Info) (Range, error)
}

// Source is where a block came from.
type Source uint8

// The sources, in the order in which a read asks them.
const (
	SourceMemory Source = iota
	SourceDisk
	SourceFlight // joined a fetch that another read had started
	SourceOrigin // fetched for this read
	numSources
)

func (s Source) String() string { return [...]string{"memory", "disk", "flight", "origin"}[s] }

// Status is what a read found in the cache when its first bytes were ready.
type Status uint8

// Hit: every block looked at was held; Miss: none was; Partial: some were. Bypass: the object can't be cached.
const (
	Hit Status = iota
	Miss
	Partial
	Bypass
)

func (s Status) String() string { return [...]string{"hit", "miss", "partial", "bypass"}[s] }

// ErrInterrupted is matched by errors of WriteTo after which the client has fewer bytes than it was promised: the
// connection must be cut so that a short body never looks complete.
var ErrInterrupted = errors.New("read interrupted")

// Object is one opened read: info settled, conditions met, and the first block in hand. Close it. It belongs to one
// goroutine.
type Object struct {
	Info   *origin.Info
	Offset int64 // of the first byte to be written
	Length int64 // bytes to be written; 0 for an InfoOnly request too large to say otherwise, see Request
	// Partial says that the range is a part of the object (206).
	Partial bool
	// Age is the time since the origin was asked for the info, rounded up to whole seconds (RFC 9111 section 4.2.3).
	Age time.Duration
	// TTLExceeded says that the info is older than the bucket's ttl, as it may be in immutable buckets: its volatile
	// headers must not be served.
	TTLExceeded bool
	// Status and Source tell what was found, judged on the first ReadWindow blocks of the range; Source is that of the
	// first block. An InfoOnly read tells them of its info.
	Status Status
	Source Source
	// contains filtered or unexported fields: see read.go
	read
}

// The methods, for orientation:
//
//	func New(Config) (*Gateway, error)
//	func (g *Gateway) Open(ctx context.Context, r Request) (*Object, error)
//	func (o *Object) WriteTo(w io.Writer) (int64, error)
//	func (o *Object) Close()
//	func (g *Gateway) Invalidate(o origin.Object)
//	func (g *Gateway) Insert(ctx context.Context, o origin.Object, info *origin.Info, body io.Reader) error
//	func (g *Gateway) Close()
