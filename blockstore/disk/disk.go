// Package disk is the tier of blocks on a local disk: a log of files. Every byte that Get answers with was checked, in
// that call, against sums that cover the block's key and place; no trouble of the disk fails or delays a read beyond
// Config.ReadTimeout: the tier answers that it has not got the block. What the files occupy never exceeds the capacity.
//
// The log is made of regions (region.go, format.go). One goroutine, the writer (write.go), is given blocks through a
// bounded queue, appends them to the newest region and reclaims the oldest (reclaim.go). Reads (read.go) go through an
// index in memory, which is built from the regions' footers at the start (recover.go). Whatever fails is seen by the
// writer at the latest two seconds later, which then tries until the disk works again (trouble.go).
package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// Tier implements blockstore.Store. All methods are safe for concurrent use.
type Tier struct {
	config   Config
	fs       fileSystem
	budget   int64 // bytes that regions may take
	maxIndex int64 // blocks

	metrics *metrics
	health  *health
	index   *index
	ghost   *ghost
	regions *regions
	queue   *queue
	scarce  atomic.Pointer[region] // the oldest region, once others had to go for new ones; nil before

	reading *semaphore.Weighted // Config.ReadLimit; the weights of reads that the disk has not answered are taken
	lost    atomic.Int64        // of them those nobody waits for any more

	found      atomic.Pointer[foundInfos]
	closed     atomic.Bool
	recovering atomic.Bool
	stop       chan struct{} // closed by Close
	abort      chan struct{} // closed when Close has no more time
	done       chan struct{} // closed when all is given up
	err        error         // what kept the writer from a clean end; to be read after done
}

var _ blockstore.Store = (*Tier)(nil)

const (
	maxReads  = 128      // that the disk is asked for at once; each holds a thread while the disk is slow
	maxInfos  = 64 << 20 // bytes of the files that keep infos, at most
	smallFile = 4 * pageSize
	maxMarks  = 1 << 24 // of the ghost: 64 MiB, for a TiB
)

// Open takes the directory over and returns a tier that serves at once: blocks of a former process are found bit by
// bit, as its files are looked through in the background. With RecoverStrict that is done before Open returns.
//
// Errors say what to do: another process has the directory, it was written by a newer version, strict recovery found
// damage, the configuration can't work. A disk that fails is no error: the tier starts out of service. Close the tier.
func Open(c Config) (*Tier, error) { return open(c, &osDir{path: c.Dir}) }

func open(c Config, fs fileSystem) (*Tier, error) {
	if err := c.normalize(); err != nil {
		return nil, err
	}
	infos := min(maxInfos, c.Capacity/16)
	t := &Tier{
		config:  c,
		fs:      fs,
		budget:  c.Capacity - infos - smallFile,
		health:  newHealth(c.Dir, c.Logger),
		index:   newIndex(),
		regions: newRegions(),
		queue:   newQueue(c.QueueLimit),
		reading: semaphore.NewWeighted(c.ReadLimit),
		stop:    make(chan struct{}),
		abort:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	// As many marks as blocks of 64 KiB fit, or as the index may know.
	marks := min(c.Capacity/(64<<10), maxMarks)
	t.maxIndex = 1 << 62
	if c.IndexLimit > 0 {
		t.maxIndex = c.IndexLimit / indexBytes
		marks = min(marks, t.maxIndex)
	}
	t.ghost = newGhost(marks)
	if err := checkDescriptors(t.budget / c.RegionSize); err != nil {
		return nil, err
	}
	t.metrics = newMetrics(t)
	w := newWriter(t, infos/3)
	if err := w.takeOver(c.Recover, true); err != nil {
		fs.unlock()
		if isConfiguration(err) {
			return nil, fmt.Errorf("disk: %w", err)
		}
		t.failed(StateOut, err)
		w.infos = foundInfos{}
	}
	found := w.infos
	t.found.Store(&found)
	w.infos = foundInfos{}
	if c.Recover == RecoverStrict {
		<-w.recovered
		if w.damage != nil {
			t.forget()
			fs.unlock()
			return nil, fmt.Errorf("disk: %w; remove it, or start once with recover = \"quiet\", which does",
				w.damage)
		}
	}
	if err := t.metrics.register(c.Registerer); err != nil {
		close(t.stop)
		<-w.recovered
		t.forget()
		fs.unlock()
		return nil, err
	}
	go w.run()
	return t, nil
}

// checkDescriptors says when as many files can't be open beside the connections of a server.
func checkDescriptors(files int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil
	}
	if files > int64(min(limit.Cur, 1<<40)/2) {
		return fmt.Errorf("disk: %d region files want more than half of the %d descriptors that the process may have: "+
			"raise its limit (LimitNOFILE, ulimit -n) or the size of a region", files, limit.Cur)
	}
	return nil
}

// isConfiguration says whether an error needs somebody to change something. All others are the disk's, and may pass:
// nobody knows all that a filesystem in trouble may answer.
func isConfiguration(err error) bool {
	for _, e := range []error{
		errHeld, errNewer, errUnknown, unix.EACCES, unix.EPERM, unix.ENOTDIR, unix.EINVAL, unix.ENAMETOOLONG,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failed counts an error of the filesystem and takes the tier as far out as it demands.
func (t *Tier) failed(s State, err error) {
	t.metrics.errors.Inc()
	t.health.set(s, err)
}

// Contains says whether the block is in the index. Get may still not answer with it, should the disk fail.
func (t *Tier) Contains(k blockstore.Key) bool {
	if !t.health.serves.Load() || t.closed.Load() {
		return false
	}
	var buf [512]byte
	p, ok := t.index.find(k.Hash())
	return ok && p.check == checkOf(appendKey(buf[:0], k))
}

// Put queues the block to be written, with a reference of the tier's own until then. It never waits: what the queue has
// no room for is dropped and counted, and so is everything while the tier is out. A block that is here is ignored. Once
// the disk is full of blocks that are read, a block is kept when it is offered for the second time.
func (t *Tier) Put(b *blockstore.Block) {
	k := b.Key()
	switch {
	case t.closed.Load() || t.Contains(k):
		return
	case !t.health.ok.Load():
		t.metrics.drop(dropOut)
		return
	case k.Len() > t.config.MaxBlock || keyLen(k.Version) > maxKey:
		t.metrics.drop(dropSize)
		return
	case t.selective() && !t.ghost.take(k.Hash()):
		t.metrics.drop(dropOnce)
		return
	}
	b.Acquire(1)
	if !t.queue.push(item{block: b}) {
		b.Release()
		t.metrics.drop(dropQueue)
	}
}

// selective says whether what a new block takes the place of is worth more than a block that nobody asked for twice: of
// the region that goes next, more than an eighth was read.
func (t *Tier) selective() bool {
	r := t.scarce.Load()
	return r != nil && r.reads.Load()*8 > r.records.Load()
}

// Flush waits until everything that was put before is written or dropped. It fails when ctx ends first.
func (t *Tier) Flush(ctx context.Context) error { return t.wait(ctx, item{}) }

// wait queues an item and waits for it.
func (t *Tier) wait(ctx context.Context, i item) error {
	i.done = make(chan error, 1)
	if !t.queue.push(i) {
		return errClosed
	}
	select {
	case err := <-i.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errClosed = errors.New("disk tier is closed")

// Close writes what is queued, for as long as ctx lasts, and gives the directory up. What could not be written is
// dropped. It returns the cause of ctx if that was so, and else the error that kept the last file from being finished.
// A tier whose disk does not answer at all keeps what it has, until it does.
func (t *Tier) Close(ctx context.Context) error {
	if t.closed.Swap(true) {
		return nil
	}
	t.queue.close()
	close(t.stop)
	t.metrics.unregister()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		close(t.abort)
		return context.Cause(ctx)
	}
}

// Stats is what a tier holds at one moment, in bytes where not said otherwise.
type Stats struct {
	State      State
	Recovering bool // files of the former process are still looked through
	Capacity   int64
	Used       int64 // by all region files, those included that are deleted and still read
	Blocks     int64 // that can be found
	Regions    int64 // files
	Queued     int64 // memory of blocks that wait to be written
	OldestAge  time.Duration
}

// Stats returns the present numbers.
func (t *Tier) Stats() Stats {
	s := Stats{
		State: t.health.get(), Recovering: t.recovering.Load(), Capacity: t.config.Capacity,
		Blocks: t.index.n.Load(), Regions: t.regions.count(), Queued: t.queue.queued(),
	}
	_, s.Used = t.regions.bytes()
	if r := t.regions.oldest(); r != nil {
		s.OldestAge = time.Since(r.made)
	}
	return s
}

// forget gives all regions up, and leaves their files.
func (t *Tier) forget() {
	t.scarce.Store(nil)
	for _, r := range t.regions.all() {
		for _, h := range r.hashes {
			t.index.removeFrom(h, r.seq)
		}
		for _, e := range r.entries {
			t.index.removeFrom(e.hash, r.seq)
		}
		t.regions.drop(r)
	}
}

// headBuffers are for the headers of records that are read.
var headBuffers = sync.Pool{New: func() any { b := alignedBuffer(maxHead); return &b }}
