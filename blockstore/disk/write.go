package disk

import (
	"errors"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"golang.org/x/sys/unix"
)

// writer appends to the log and reclaims it. All of it belongs to one goroutine, but for the channels.
type writer struct {
	t       *Tier
	dir     dirID
	next    uint32  // number of the next region
	current *region // what is written, or nil
	full    bool    // a region had to go for a new one

	stage  []byte // what is to be written at current.end
	n      int    // bytes of it
	staged []staged
	fresh  map[uint64]struct{} // hashes of blocks in the stage
	key    []byte
	spare  []byte // for records that move

	journal   journal
	infos     foundInfos    // what takeOver found
	whole     bool          // the directory was taken over at the start, or empty: what SaveInfos leaves is clean
	recovered chan struct{} // closed when recovery has ended
	damage    error         // what strict recovery found; to be read after that
	syncs     chan uint32   // regions for the syncer
	synced    chan error    // gets the last error of the syncer when it has ended
}

// staged is a record in the stage. One that moves has a place already.
type staged struct {
	entry
	from  place
	moves bool
}

const stageSize = 4 << 20

var (
	errFull = errors.New("the region is full")
	errHold = errors.New("deleted files that are still read take the room")
)

func newWriter(t *Tier, infos int64) *writer {
	record := int(maxRecord(t.config.MaxBlock))
	w := &writer{
		t:         t,
		stage:     alignedBuffer(max(stageSize, record+2*pageSize)),
		spare:     alignedBuffer(record + 2*pageSize),
		journal:   journal{fs: t.fs, limit: infos},
		fresh:     make(map[uint64]struct{}),
		recovered: make(chan struct{}),
		syncs:     make(chan uint32, 64),
		synced:    make(chan error, 1),
	}
	close(w.recovered)
	return w
}

func (w *writer) run() {
	t := w.t
	go w.syncAll()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-t.queue.wake:
			w.drain()
		case <-tick.C:
			w.look()
		case <-t.stop:
			running = false
		}
	}
	w.drain()
	if w.current != nil {
		t.err = w.seal()
	}
	close(w.syncs)
	t.err = errors.Join(t.err, <-w.synced)
	<-w.recovered
	w.journal.close()
	t.forget()
	t.fs.unlock()
	close(t.done)
}

// drain does what is queued at this moment.
func (w *writer) drain() {
	for _, i := range w.t.queue.take() {
		switch {
		case i.block != nil:
			w.put(i.block)
		case i.done == nil:
			if w.journal.full(len(i.info)) {
				_ = w.flushInfos()
			}
			w.journal.add(i.info)
		default:
			_ = w.flush()
			err := w.flushInfos()
			if i.save != nil && err == nil {
				err = w.save(*i.save)
			}
			i.done <- err
		}
		w.t.queue.finished(i)
	}
	_ = w.flush()
	_ = w.flushInfos()
}

// save replaces all infos, if the directory is held.
func (w *writer) save(records []byte) error {
	if !w.t.fs.locked() {
		return errGone
	}
	err := w.journal.save(records, w.whole)
	if err != nil {
		w.t.failed(StateReadOnly, err)
	}
	return err
}

// flushInfos writes the infos that were queued, if the disk can be written.
func (w *writer) flushInfos() error {
	if !w.t.health.ok.Load() {
		w.t.metrics.infoDrops.Add(float64(w.journal.drop()))
		return nil
	}
	n, err := w.journal.flush()
	if err != nil {
		w.t.metrics.infoDrops.Add(float64(n))
		w.t.failed(StateReadOnly, err)
	}
	return err
}

// put encodes a block into the stage.
func (w *writer) put(b *blockstore.Block) {
	t := w.t
	select {
	case <-t.abort:
		t.metrics.drop(dropClose)
		return
	default:
	}
	if !t.health.ok.Load() {
		t.metrics.drop(dropOut)
		return
	}
	w.key = appendKey(w.key[:0], b.Key())
	rec := newRecord(b.Key(), w.key)
	if p, ok := t.index.find(rec.hash); ok && p.check == rec.check {
		return // put twice
	}
	if _, ok := w.fresh[rec.hash]; ok {
		return
	}
	w.trimIndex()
	dst, off, err := w.room(rec.paged(), rec.total(), true)
	switch {
	case errors.Is(err, errHold):
		t.metrics.drop(dropSpace)
		return
	case err != nil:
		t.metrics.drop(dropError)
		return
	}
	rec.region = w.current.seq
	rec.encode(dst, w.dir, b.Bytes())
	w.staged = append(w.staged, staged{entry: entry{rec.hash, rec.check, off}})
	w.fresh[rec.hash] = struct{}{}
}

// room returns the part of the stage where the next record of the current region goes, and its offset in the region. If
// there is no current region, or it is full, a new one is begun, or errFull is returned if that may not be.
func (w *writer) room(paged bool, total int, mayRoll bool) (dst []byte, off uint32, err error) {
	for {
		pos, pad := int64(0), 0
		c := w.current
		if c != nil {
			pos = c.end + int64(w.n)
			if paged {
				pad = int(roundUp(pos, pageSize) - pos)
			}
		}
		if c == nil || pos+int64(pad+total)+footerLen(len(c.entries)+len(w.staged)+1) > c.size {
			if !mayRoll {
				return nil, 0, errFull
			}
			if err := w.roll(); err != nil {
				return nil, 0, err
			}
			mayRoll = false
			continue
		}
		if w.n+pad+total > len(w.stage)-pageSize { // flush may need a page to fill up the last one
			if err := w.flush(); err != nil {
				return nil, 0, err
			}
			continue
		}
		clear(w.stage[w.n : w.n+pad])
		w.n += pad
		dst = w.stage[w.n : w.n+total]
		w.n += total
		return dst, uint32(pos + int64(pad)), nil
	}
}

// flush writes the stage, and only then are its blocks found.
func (w *writer) flush() error {
	if w.n == 0 {
		return nil
	}
	t, c := w.t, w.current
	if t.config.DirectIO {
		whole := int(roundUp(int64(w.n), pageSize))
		clear(w.stage[w.n:whole])
		w.n = whole
	}
	start := time.Now()
	err := c.file.writeAt(w.stage[:w.n], c.end)
	since(t.metrics.writeSeconds, start)
	if err != nil {
		for _, s := range w.staged {
			if !s.moves {
				t.metrics.drop(dropError)
			}
		}
		w.empty()
		w.leave() // nobody knows what is at its end now
		t.failed(StateReadOnly, err)
		return err
	}
	for _, s := range w.staged {
		to := place{check: s.check, region: c.seq, at: s.offset}
		if s.moves {
			t.index.move(s.hash, s.from, to)
			t.metrics.moved.Inc()
		} else {
			t.index.set(s.hash, to)
			t.metrics.writes.Inc()
		}
		c.entries = append(c.entries, s.entry)
	}
	t.metrics.writtenBytes.Add(float64(w.n))
	c.end += int64(w.n)
	w.empty()
	return nil
}

func (w *writer) empty() {
	w.n, w.staged = 0, w.staged[:0]
	clear(w.fresh)
}

// leave ends the current region without a footer: recovery finds its records one by one.
func (w *writer) leave() {
	c := w.current
	c.hashes = make([]uint64, len(c.entries))
	for i, e := range c.entries {
		c.hashes[i] = e.hash
	}
	c.records.Store(int64(len(c.entries)))
	c.entries = nil
	w.current = nil
}

// seal ends the current region with its footer, and has it synced.
func (w *writer) seal() error {
	if err := w.flush(); err != nil {
		return err
	}
	t, c := w.t, w.current
	footer := encodeFooter(c.entries, c.seq, c.dir, c.size)
	w.leave()
	if err := c.file.writeAt(footer, c.size-int64(len(footer))); err != nil {
		t.failed(StateReadOnly, err)
		return err
	}
	select {
	case w.syncs <- c.seq:
	default: // the disk is far behind; the sums tell what a crash may take then
	}
	return nil
}

// syncAll makes finished regions durable. No read or write waits for it.
func (w *writer) syncAll() {
	var last error
	for seq := range w.syncs {
		r := w.t.regions.acquire(seq)
		if r == nil {
			continue // deleted meanwhile
		}
		err := r.file.sync()
		if err == nil {
			err = w.t.fs.syncDir()
		}
		if err != nil {
			w.t.failed(StateReadOnly, err)
		}
		last = err
		w.t.regions.release(r)
	}
	w.synced <- last
}

// roll finishes the current region and begins a new one. Then it makes room for the one after that, so that files which
// are deleted and still read have time to go.
func (w *writer) roll() error {
	if w.current != nil {
		if err := w.seal(); err != nil {
			return err
		}
	}
	if err := w.create(); err != nil {
		return err
	}
	for {
		live, _ := w.t.regions.bytes()
		if live+w.t.config.RegionSize <= w.t.budget || !w.reclaim(true) {
			return nil
		}
		w.full = true
		w.t.scarce.Store(w.t.regions.oldest())
	}
}

// create begins a region.
func (w *writer) create() error {
	t := w.t
	size := t.config.RegionSize
	var f file
	var err error
	for try := 0; ; try++ {
		if err = w.makeRoom(size); err != nil {
			return err
		}
		if f, err = t.fs.create(regionName(w.next), size, t.config.DirectIO); err == nil {
			break
		}
		t.metrics.errors.Inc()
		full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
		if !full || try == 3 || !w.reclaim(false) {
			t.health.set(StateReadOnly, err)
			return err
		}
	}
	r := &region{seq: w.next, dir: w.dir, size: size, made: time.Now(), file: f, end: pageSize}
	w.next++
	t.regions.add(r)
	if err := f.writeAt(encodeHead(r.seq, r.dir, size), 0); err != nil {
		w.discard(r)
		t.failed(StateReadOnly, err)
		return err
	}
	w.current = r
	return nil
}
