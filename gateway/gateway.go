// Package gateway is the read engine: it answers reads of objects from fixed-size blocks and fetches from an origin
// what it has not got. All bytes of one read are of one version of the object, or the read fails; each block is fetched
// once however many readers want it; memory stays within what it was given. It knows neither HTTP nor what its origin is.
package gateway

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
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

	FirstByte time.Duration // bound on the headers of one origin request; 0 is none
	Attempt   time.Duration // bound on one origin request as a whole; 0 is none
}

// attempt returns the context of one origin request.
func (p *Policy) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.Attempt == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.Attempt)
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
	// InfoOnly asks for info without bytes: S3's HEAD. WriteTo writes nothing then.
	InfoOnly bool
	// WantChecksums makes an InfoOnly read ask the origin for checksums where they are not known yet.
	WantChecksums bool
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
	SourceFlight        // joined a fetch that another read had started
	SourceOrigin        // fetched for this read
	numSources
)

func (s Source) String() string { return [...]string{"memory", "flight", "origin"}[s] }

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

// ErrUnstable says that an object was overwritten between two looks at it, and again: the read should be tried later.
var ErrUnstable = errors.New("object keeps changing")

// Object is one opened read: info settled, conditions met, and the first block in hand. Close it. It belongs to one
// goroutine.
type Object struct {
	Info   *origin.Info
	Offset int64 // of the first byte to be written
	Length int64 // bytes to be written; of an InfoOnly read: bytes that would have been
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

	read
}

// Gateway is the engine. Safe for concurrent use.
type Gateway struct {
	cfg     Config
	mem     blockstore.Memory
	log     *slog.Logger
	metrics *metrics

	gens   generations
	infos  *infoCache
	slots  *semaphore.Weighted // origin requests in flight, first come first served
	pins   budget              // bytes of blocks that responses hold while they write: a quarter of the memory
	ahead  budget              // bytes that reads have asked for beyond the block they are at: another quarter
	writes budget              // bytes of objects being written that are kept on the way: an eighth

	ctx    context.Context // ends with Close; that of every fetch derives from it
	cancel context.CancelFunc
	wg     sync.WaitGroup // probes and flights

	mu      sync.Mutex
	probes  map[probeKey]*probing // guarded by mu
	pending map[blockID]*pending  // guarded by mu
}

// New returns a Gateway. Close it when no Object of it is open any more.
func New(c Config) (*Gateway, error) {
	if c.Origin == nil || c.Memory == nil || c.Policy == nil {
		return nil, errors.New("gateway: Config needs Origin, Memory and Policy")
	}
	if c.InfoMemory == 0 {
		c.InfoMemory = 64 << 20
	}
	if c.OriginConcurrency == 0 {
		c.OriginConcurrency = 64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		cfg:     c,
		mem:     c.Memory,
		log:     c.Logger,
		slots:   semaphore.NewWeighted(int64(c.OriginConcurrency)),
		pins:    budget{limit: c.Memory.Limit() / 4},
		ahead:   budget{limit: c.Memory.Limit() / 4},
		writes:  budget{limit: c.Memory.Limit() / 8},
		probes:  make(map[probeKey]*probing),
		pending: make(map[blockID]*pending),
	}
	g.gens.seed = maphash.MakeSeed()
	g.infos = newInfoCache(c.InfoMemory, &g.gens)
	g.metrics = newMetrics(c.Registerer, g)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Close cuts fetches off and waits for them to end.
func (g *Gateway) Close() {
	g.cancel()
	g.wg.Wait()
}
