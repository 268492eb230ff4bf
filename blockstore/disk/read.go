package disk

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// Get reads the block into a slot and returns it with a reference that the caller must release; nil when it is not
// here, or for any trouble. The caller must hold no block: Get may wait for a slot, as Slots.Alloc does, and for the
// disk, both together no longer than Config.ReadTimeout.
func (t *Tier) Get(k blockstore.Key) *blockstore.Block {
	b, _, _ := t.get(context.Background(), k, 0, k.Len())
	if b != nil {
		b.Seal(k, int(k.Len()))
	}
	return b
}

// GetPart is Get of n bytes of the block at off, n > 0, by the chunks that hold them: only those are read, and checked.
// Their bytes are those of the slot, which is not sealed, and begin at byte from of the block. It waits no longer than
// ctx lasts. late says that the block is here, but the disk had no turn or no answer in time: Get would wait for it once
// more.
func (t *Tier) GetPart(ctx context.Context, k blockstore.Key, off, n int64) (
	slot *blockstore.Block, from int64, late bool,
) {
	return t.get(ctx, k, off, n)
}

func (t *Tier) get(ctx context.Context, k blockstore.Key, off, n int64) (
	slot *blockstore.Block, from int64, late bool,
) {
	if !t.health.serves.Load() || t.closed.Load() {
		return nil, 0, false
	}
	rec := newRecord(k, appendKey(make([]byte, 0, keyLen(k.Version)), k))
	first, end := rec.chunksOf(off, n)
	for range 3 { // a block that moves on while we look is at another place then
		p, ok := t.index.find(rec.hash)
		if !ok || p.check != rec.check {
			return nil, 0, false
		}
		if r := t.regions.acquire(p.region); r != nil {
			rec.region = r.seq
			slot, late = t.read(ctx, rec, r, p, first, end)
			return slot, int64(first), late
		}
	}
	return nil, 0, false
}

// read reads the chunks of payload that are the bytes [from, to). It takes over the reference to r. It has its turn
// before it has a slot: the slots of reads stay within Config.ReadLimit, whatever the disk does. For both it waits
// half of the time, since a read that begins late is lost. It says whether any of them was late.
func (t *Tier) read(ctx context.Context, rec record, r *region, p place, from, to int) (
	*blockstore.Block, bool,
) {
	start := time.Now()
	half := start.Add(t.config.ReadTimeout / 2)
	weight := t.weight(to - from)
	if !t.turn(ctx, weight, half) {
		t.regions.release(r)
		t.metrics.read(readTimeout)
		return nil, true
	}
	b := t.slot(ctx, int64(to-from), half)
	if b == nil {
		t.reading.Release(weight)
		t.regions.release(r)
		t.metrics.read(readNoSlot)
		return nil, false // who asks the origin needs one, too
	}
	j := &readJob{
		t: t, rec: rec, region: r, off: p.offset(), from: from, weight: weight, slot: b,
		head: headBuffers.Get().(*[]byte), done: make(chan struct{}),
	}
	go j.run()
	deadline := time.NewTimer(t.config.ReadTimeout - time.Since(start))
	defer deadline.Stop()
	select {
	case <-j.done:
	case <-ctx.Done():
		if j.leave() {
			time.AfterFunc(t.config.ReadTimeout-time.Since(start), j.lose) // the disk has as long as ever
			return nil, true
		}
	case <-deadline.C:
		if j.leave() {
			j.lose()
			return nil, true
		}
	}
	defer headBuffers.Put(j.head)
	since(t.metrics.readSeconds, start)
	switch {
	case j.err != nil:
		b.Release()
		t.index.remove(rec.hash, p)
		t.metrics.read(readError)
		t.metrics.errors.Inc()
		t.health.readFailed(j.err)
		return nil, false
	case j.n < rec.span()+to-from || !rec.verify((*j.head)[:rec.headLen()], r.dir, from, b.Buf()):
		b.Release()
		t.index.remove(rec.hash, p)
		t.metrics.read(readDamaged)
		t.metrics.checksums.Inc()
		return nil, false
	}
	if t.index.markRead(rec.hash, p) {
		r.reads.Add(1)
	}
	t.health.readWorked()
	t.metrics.read(readOK)
	t.metrics.readBytes.Add(float64(to - from))
	return b, false
}

// weight is what a read takes of Config.ReadLimit: its bytes, but never so little that more than maxReads fit.
func (t *Tier) weight(n int) int64 {
	limit := t.config.ReadLimit
	return min(max(int64(n), (limit+maxReads-1)/maxReads), limit)
}

// turn takes a read's weight of Config.ReadLimit, and says whether that was possible in time. When too much of it is
// lost nobody waits.
func (t *Tier) turn(ctx context.Context, weight int64, until time.Time) bool {
	if t.reading.TryAcquire(weight) {
		return true
	}
	if t.lost.Load()+weight > t.config.ReadLimit {
		t.health.readFailed(errTimeout)
		return false
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return t.reading.Acquire(ctx, weight) == nil // a disk that is only busy has not failed
}

// slot returns an unsealed block, or nil when none is to be had in time.
func (t *Tier) slot(ctx context.Context, n int64, until time.Time) *blockstore.Block {
	if b := t.config.Slots.TryAlloc(n); b != nil {
		return b
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	b, err := t.config.Slots.Alloc(ctx, n)
	if err != nil {
		return nil
	}
	return b
}

// readJob is one read, on a goroutine of its own, since a disk that stalls can't be told to give up.
type readJob struct {
	t      *Tier
	rec    record
	region *region
	off    int64             // of the record
	from   int               // which byte of the payload the slot begins with
	weight int64             // taken of t.reading
	slot   *blockstore.Block // unsealed
	head   *[]byte           // from headBuffers
	state  atomic.Int32
	done   chan struct{} // closed when the job is done and still waited for

	n   int // bytes that were there, of header and slot
	err error
}

// States of a readJob.
const (
	jobWaited = iota
	jobLeft   // nobody waits
	jobLost   // and the disk has taken too long; its weight is in t.lost
	jobDone
)

func (j *readJob) run() {
	j.n, j.err = j.readv()
	switch j.state.Swap(jobDone) {
	case jobWaited:
		close(j.done)
	case jobLost:
		j.t.lost.Add(-j.weight)
		fallthrough
	case jobLeft:
		headBuffers.Put(j.head)
		j.slot.Release()
	}
	j.t.regions.release(j.region)
	j.t.reading.Release(j.weight)
}

// leave gives a job up, and says whether it could: slot, buffer and descriptor are the job's then.
func (j *readJob) leave() bool {
	if !j.state.CompareAndSwap(jobWaited, jobLeft) {
		<-j.done
		return false
	}
	j.t.metrics.read(readTimeout)
	return true
}

// lose counts a job that was left against the disk, if that has not answered yet.
func (j *readJob) lose() {
	if j.state.CompareAndSwap(jobLeft, jobLost) {
		j.t.lost.Add(j.weight)
		j.t.health.readFailed(errTimeout)
	}
}

// readv reads header and slot, by one call where they are next to each other.
func (j *readJob) readv() (int, error) {
	head, slot := (*j.head)[:j.rec.span()], j.slot.Buf()
	if j.from == 0 {
		return j.readAt(j.off, head, slot)
	}
	n, err := j.readAt(j.off, head)
	if n < len(head) || err != nil {
		return n, err
	}
	m, err := j.readAt(j.off+int64(len(head)+j.from), slot)
	return len(head) + m, err
}

// readAt fills bufs with what is at off. Direct I/O wants whole pages at page boundaries: where the record is not so,
// or the last of bufs, which may be made longer, the pages go into a buffer first.
func (j *readJob) readAt(off int64, bufs ...[]byte) (int, error) {
	if !j.t.config.DirectIO {
		return j.region.file.readv(bufs, off)
	}
	last := &bufs[len(bufs)-1]
	if pages := int(roundUp(int64(len(*last)), pageSize)); j.rec.paged() && aligned(*last) && cap(*last) >= pages {
		*last = (*last)[:pages]
		return j.region.file.readv(bufs, off)
	}
	from, n := off&^(pageSize-1), 0
	for _, b := range bufs {
		n += len(b)
	}
	skip := int(off - from)
	buf := alignedBuffer(int(roundUp(int64(skip+n), pageSize)))
	n, err := j.region.file.readv([][]byte{buf}, from)
	for buf = buf[skip:]; len(bufs) > 0; bufs = bufs[1:] {
		buf = buf[copy(bufs[0], buf):]
	}
	return n - skip, err
}
