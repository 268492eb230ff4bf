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
	"github.com/ashlar-s3/ashlar/internal/hedge"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/prometheus/client_golang/prometheus"
)

// Config assembles a Gateway.
type Config struct {
	Origin origin.Origin     // required
	Memory blockstore.Memory // required
	Disk   Disk              // nil when there is none
	// Policy returns the policy of a bucket; it is called on every read and must be quick. Required.
	Policy func(bucket string) *Policy

	InfoMemory           int64 // bytes for remembered info, and a sixteenth more for remembered 404s; 0 means 64 MiB
	OriginConcurrency    int   // origin requests in flight for what is wanted now of one bucket; 0 means 64
	ReadaheadConcurrency int   // and for what may be wanted soon; 0 means 16. Of all buckets together a third more of both
	HedgeConcurrency     int   // second requests in flight; 0 means 16

	// CachesBehind: the origin has caches of its own, as a cluster of nodes has. A write may not have reached them: for
	// Policy.TTL after it, or after blocks of a remembered version could not be had any more, info of its object is asked
	// for past them. And what is asked of them may be there when all that was asked before failed, so nothing is kept back.
	CachesBehind bool

	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
}

// Disk is a tier behind memory. Get may take as long as a disk does, and is called by one who holds no block.
type Disk interface {
	blockstore.Store
	// GetPart is Get of at least n bytes of a block at off, in a slot that is not sealed and begins with byte from of the
	// block. It waits no longer than ctx lasts. late says that there is none because the disk took too long: Get would
	// wait for it once more.
	GetPart(ctx context.Context, k blockstore.Key, off, n int64) (slot *blockstore.Block, from int64, late bool)
	// PutInfo keeps what is known of an object, under a name, for a later process; data may be kept. It never waits, and
	// may drop it.
	PutInfo(name string, data []byte)
}

// Request is one read.
type Request struct {
	Object origin.Object
	Range  Range
	// Client is who asks: clients take turns in front of the origin.
	Client string
	// Tune is how the origin is asked otherwise than the bucket's policy has it.
	Tune Tuning
	// Routed: the reader knows what it wants next and asks for it where that belongs. Nothing is read ahead.
	Routed bool
	// NoCache: what is remembered of the object doesn't count before the origin has confirmed it, past all caches.
	NoCache bool
	// OnlyIfCached: the origin is not asked. Open returns ErrNotCached unless the info is fresh and all blocks of the range
	// are here. One that is evicted before the read comes to it is fetched all the same.
	OnlyIfCached bool
	// Via names the caches that the read came by, see origin.GetOptions.
	Via []string
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
	SourceDisk
	SourceFlight // joined a fetch that another read had started
	SourceOrigin // fetched for this read
	numSources
)

func (s Source) String() string { return [...]string{"memory", "disk", "flight", "origin"}[s] }

// Status is what a read found in the cache when its first bytes were ready.
type Status uint8

// Hit: every block looked at was held; Miss: none was; Partial: some were. Stale: the origin is in trouble, and the info is
// older than it should be (Policy.StaleIfError). Bypass: the object can't be cached.
const (
	Hit Status = iota
	Miss
	Partial
	Stale
	Bypass
)

func (s Status) String() string { return [...]string{"hit", "miss", "partial", "stale", "bypass"}[s] }

// ErrInterrupted is matched by errors of WriteTo after which the client has fewer bytes than it was promised: the
// connection must be cut so that a short body never looks complete.
var ErrInterrupted = errors.New("read interrupted")

// ErrUnstable says that an object was overwritten between two looks at it, and again: the read should be tried later.
var ErrUnstable = errors.New("object keeps changing")

// ErrNotCached says that a read which is not to ask the origin would have to.
var ErrNotCached = errors.New("not in the cache")

// ErrPanic is matched by errors of reads that ended in a fault of ours.
var ErrPanic = errors.New("panic while fetching")

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

// BlockSize is the size of the object's blocks in bytes; the last one may be shorter.
func (o *Object) BlockSize() int64 { return o.size }

// Gateway is the engine. Safe for concurrent use.
type Gateway struct {
	cfg     Config
	mem     blockstore.Memory
	disk    Disk // nil when there is none
	log     *slog.Logger
	metrics *metrics

	gens    generations
	infos   *infoCache
	absent  *negatives
	scans   *scans
	queue   *queue // who may send the next request to the origin
	breaker breaker
	hedges  *hedge.Budget
	headers *hedge.Latency     // of the origin's answers
	fills   [64]*hedge.Latency // of blocks out of bodies, by the length of their length in bits
	pins    budget             // bytes of blocks that responses hold while they write: a quarter of the memory
	ahead   budget             // bytes of blocks that reads had fetched ahead of where they are: an eighth
	writes  budget             // bytes of objects being written that are kept on the way: an eighth
	parts   tally              // of blocks on the disk, what was read of them by parts

	ctx    context.Context // ends with Close; that of every fetch derives from it
	cancel context.CancelFunc
	wg     sync.WaitGroup // probes and flights

	mu      sync.Mutex
	probes  map[probeKey]*probing // guarded by mu
	pending map[blockID]*pending  // guarded by mu
}

// requestsPerHedge: second requests are at most 5% of all. A sick origin is not asked twice as much.
const requestsPerHedge = 20

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
	if c.ReadaheadConcurrency == 0 {
		c.ReadaheadConcurrency = 16
	}
	if c.HedgeConcurrency == 0 {
		c.HedgeConcurrency = 16
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		cfg:     c,
		mem:     c.Memory,
		disk:    c.Disk,
		log:     c.Logger,
		queue:   newQueue(c.OriginConcurrency, c.ReadaheadConcurrency),
		hedges:  hedge.NewBudget(requestsPerHedge, c.HedgeConcurrency),
		headers: hedge.NewLatency(),
		pins:    budget{limit: c.Memory.Limit() / 4},
		ahead:   budget{limit: c.Memory.Limit() / 8},
		writes:  budget{limit: c.Memory.Limit() / 8},
		parts:   newTally(c.Memory.Limit()),
		probes:  make(map[probeKey]*probing),
		pending: make(map[blockID]*pending),
	}
	for i := range g.fills {
		g.fills[i] = hedge.NewLatency()
	}
	g.gens.seed, g.gens.start = maphash.MakeSeed(), time.Now()
	g.infos = newInfoCache(c.InfoMemory, &g.gens, c.Disk)
	g.absent = newNegatives(c.InfoMemory/16, &g.gens)
	g.scans = newScans()
	g.metrics = newMetrics(c.Registerer, g)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Close cuts fetches off and waits for them to end.
func (g *Gateway) Close() {
	g.cancel()
	g.wg.Wait()
}
