package disk

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	formatName      = "format" // says whose the directory is
	formatLine      = "ashlar disk tier, format %d\ndirectory %x\norigin %q\n"
	recoveryReaders = 16
	recoveryWindow  = 256 << 10 // bytes read at once of a region without a footer
)

// takeOver locks the directory, sees what is in it, and starts recovery. Infos are of use at the start of the process
// only: what is found later may have been outdated by what it did meanwhile.
func (w *writer) takeOver(mode Recover, start bool) error {
	t := w.t
	w.whole = false
	if err := t.fs.lock(); err != nil {
		return err
	}
	if t.config.DirectIO {
		if err := w.tryFile(); errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%s: its filesystem has no direct I/O, set direct_io = false: %w", t.config.Dir, err)
		}
	}
	known, err := w.identify(mode)
	if err != nil {
		return err
	}
	files, err := t.fs.list()
	if err != nil {
		return err
	}
	if known && !start {
		if err := w.journal.discard(); err != nil {
			return err
		}
	}
	if w.infos, err = w.journal.open(); err != nil {
		return err
	}
	w.whole = start || !known
	var found []*region
	for _, f := range files {
		if seq, ok := parseRegionName(f.name); ok {
			found = append(found, &region{seq: seq, dir: w.dir, size: f.size, made: f.mod})
		}
	}
	slices.SortFunc(found, func(a, b *region) int { return cmp.Compare(a.seq, b.seq) })
	for _, r := range found {
		t.regions.add(r)
		w.next = r.seq + 1
	}
	w.recovered = make(chan struct{})
	t.recovering.Store(true)
	go w.recover(found, known, mode, w.recovered)
	return nil
}

// readIdentity reads whose the directory is. Errors: errNewer, errOlder, errUnknown, those of the file.
func readIdentity(dir fileSystem) (id dirID, origin string, err error) {
	data, err := readFile(dir, formatName, smallFile)
	switch {
	case errors.Is(err, errTooLong):
		return id, "", errUnknown
	case err != nil:
		return id, "", err
	}
	var version int
	var raw []byte
	_, err = fmt.Sscanf(string(data), formatLine, &version, &raw, &origin)
	switch {
	case version > formatVersion:
		return id, "", fmt.Errorf("%w (format %d, this one knows %d)", errNewer, version, formatVersion)
	case err != nil || len(raw) != len(id):
		return id, "", errUnknown
	case version < formatVersion:
		return id, "", errOlder
	}
	return dirID(raw), origin, nil
}

// identify sees whether the directory is ours. If it is not, or nothing of what is in it may be used, it begins a new
// life: whatever is in it is foreign then.
func (w *writer) identify(mode Recover) (known bool, err error) {
	t := w.t
	id, origin, err := readIdentity(t.fs)
	switch {
	case errors.Is(err, errNewer):
		return false, fmt.Errorf("%s was %w: run that version, or remove the directory", t.config.Dir, err)
	case errors.Is(err, errUnknown) && mode == RecoverStrict:
		return false, fmt.Errorf("%s/%s: %w: remove it, or start once with recover = \"quiet\"",
			t.config.Dir, formatName, err)
	case errors.Is(err, errUnknown), errors.Is(err, errOlder), errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, err
	case origin == t.config.Origin && mode != RecoverNone:
		w.dir = id
		return true, nil
	}
	// Before the new life begins: infos don't say of which one they are.
	if err := w.journal.discard(); err != nil {
		return false, err
	}
	_, _ = rand.Read(w.dir[:])
	return false, writeFile(t.fs, formatName, fmt.Appendf(nil, formatLine, formatVersion, w.dir[:], t.config.Origin))
}

// recover looks through the regions that were found, the newest first, and closes done. It ends early when the tier is
// closed.
func (w *writer) recover(found []*region, known bool, mode Recover, done chan struct{}) {
	t, start := w.t, time.Now()
	defer func() {
		t.recovering.Store(false)
		close(done)
	}()
	live, _ := t.regions.bytes()
	for len(found) > 0 && (!known || live > t.budget) {
		live -= found[0].size
		w.remove(found[0])
		found = found[1:]
	}
	var next atomic.Int64
	var blocks, skipped atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(recoveryReaders, len(found)) {
		wg.Go(func() {
			for {
				i := len(found) - int(next.Add(1))
				if i < 0 || t.stopped() {
					return
				}
				r := found[i]
				entries, err := w.load(r, i == len(found)-1, mode)
				if err == nil {
					blocks.Add(int64(len(entries)))
					continue
				}
				skipped.Add(1)
				if mode == RecoverStrict {
					mu.Lock()
					w.damage = fmt.Errorf("%s/%s: %w", t.config.Dir, regionName(r.seq), err)
					mu.Unlock()
					continue
				}
				w.skip(r, err)
			}
		})
	}
	wg.Wait()
	t.metrics.recoverySeconds.Set(time.Since(start).Seconds())
	t.metrics.recovered.Set(float64(blocks.Load()))
	if len(found) > 0 {
		t.config.Logger.Info("disk tier looked through", "dir", t.config.Dir, "regions", len(found),
			"blocks", blocks.Load(), "skipped", skipped.Load(), "seconds", time.Since(start).Seconds())
	}
}

func (t *Tier) stopped() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

// skip counts a region that can't be used and deletes it. What could not be read may be readable next time: it stays
// until its room is needed.
func (w *writer) skip(r *region, err error) {
	reason := "error"
	switch {
	case errors.Is(err, errDamaged):
		reason = "damaged"
	case errors.Is(err, errForeign), errors.Is(err, errOlder), errors.Is(err, errNewer):
		reason = "foreign"
	}
	w.t.metrics.skipped.WithLabelValues(reason).Inc()
	if reason != "error" {
		w.remove(r)
	}
}

// remove deletes a region that was found; if that fails it stays, to be reclaimed.
func (w *writer) remove(r *region) {
	if err := w.t.fs.remove(regionName(r.seq)); err != nil {
		w.t.metrics.errors.Inc()
		return
	}
	w.t.regions.drop(r)
}

// load opens a region and puts its records into the index. One that has no footer is given one.
func (w *writer) load(r *region, newest bool, mode Recover) ([]entry, error) {
	t := w.t
	f, err := t.fs.open(regionName(r.seq), t.config.DirectIO)
	if err != nil {
		return nil, err
	}
	entries, finished, err := readEntries(f, r)
	if err == nil && !finished && !newest && mode == RecoverStrict {
		err = fmt.Errorf("%w: it has no footer and is not the newest", errDamaged)
	}
	if err != nil {
		_ = f.close()
		return nil, err
	}
	if !finished {
		footer := encodeFooter(entries, r.seq, r.dir, r.size)
		_ = f.writeAt(footer, r.size-int64(len(footer))) // or the records are looked for again next time
		if !newest {
			t.metrics.skipped.WithLabelValues("damaged").Inc()
		}
	}
	t.regions.open(r, f)
	r.hashes = make([]uint64, len(entries))
	for i, e := range entries {
		r.hashes[i] = e.hash
		t.index.setIfNewer(e.hash, place{check: e.check, region: r.seq, at: e.offset})
	}
	r.records.Store(int64(len(entries)))
	return entries, nil
}

// readEntries returns the records of a region, from its footer or, when it is not finished, from their headers. The
// error matches errDamaged, errForeign, errOlder or errNewer, or is one of the file.
func readEntries(f file, r *region) (entries []entry, finished bool, err error) {
	if r.size < 2*pageSize || r.size%pageSize != 0 || r.size > maxRegion {
		return nil, false, fmt.Errorf("%w: %d bytes long", errDamaged, r.size)
	}
	page := alignedBuffer(pageSize)
	if _, err := f.readv([][]byte{page}, r.size-pageSize); err != nil {
		return nil, false, err
	}
	n, listSum, err := parseTrailer(page, r.seq, r.dir, r.size)
	if err == nil {
		footer := page
		if long := footerLen(n); long > pageSize {
			footer = alignedBuffer(int(long))
			if _, err := f.readv([][]byte{footer}, r.size-long); err != nil {
				return nil, false, err
			}
		}
		end := len(footer) - trailerLen
		entries, err = parseList(footer[end-n*entryLen:end], listSum, r.size)
		if err == nil {
			return entries, true, nil
		}
	}
	if !errors.Is(err, errDamaged) {
		return nil, false, err
	}
	if _, err := f.readv([][]byte{page}, 0); err != nil {
		return nil, false, err
	}
	if err := parseHead(page, r.seq, r.dir, r.size); err != nil {
		return nil, false, err
	}
	err = walk(f, r, func(off int64, rec record) error {
		entries = append(entries, entry{rec.hash, rec.check, uint32(off)})
		return nil
	})
	return entries, false, err
}

// walk calls yield for each record of a region from the first one on, until there is none where one should be. What
// comes after that was never written, or is torn. Its key is valid during the call.
func walk(f file, r *region, yield func(off int64, rec record) error) error {
	window := alignedBuffer(recoveryWindow)
	var start, end int64 // of the window in the file
	find := func(off int64) (record, bool, error) {
		if off < start || off+maxHead > end && end < r.size {
			start = off &^ (pageSize - 1)
			n, err := f.readv([][]byte{window[:min(recoveryWindow, r.size-start)]}, start)
			if err != nil {
				return record{}, false, err
			}
			if end = start + int64(n); n < recoveryWindow {
				end = r.size // there is no more
				clear(window[n:])
			}
		}
		rec, ok := parseRecord(window[off-start:min(end-start, recoveryWindow)], r.seq, r.dir)
		return rec, ok && off+int64(rec.total()) <= r.size, nil
	}
	for off := int64(pageSize); off < r.size; {
		rec, ok, err := find(off)
		if page := roundUp(off, pageSize); err == nil && !ok && page != off && page < r.size {
			off = page
			rec, ok, err = find(off)
		}
		if err != nil || !ok {
			return err
		}
		if err := yield(off, rec); err != nil {
			return err
		}
		off += int64(rec.total())
	}
	return nil
}

// readFile returns the contents of a file of up to limit bytes, or errTooLong.
func readFile(dir fileSystem, name string, limit int64) ([]byte, error) {
	f, err := dir.open(name, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.close() }()
	size, err := f.size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes", name, errTooLong, size)
	}
	data := make([]byte, size)
	if size == 0 {
		return data, nil
	}
	n, err := f.readv([][]byte{data}, 0)
	return data[:n], err
}

// writeFile makes or replaces a file: after a crash it is the old one or the new one.
func writeFile(dir fileSystem, name string, data []byte) error {
	tmp := name + ".tmp"
	if err := dir.remove(tmp); err != nil {
		return err
	}
	f, err := dir.create(tmp, 0, false)
	if err != nil {
		return err
	}
	err = f.writeAt(data, 0)
	if err == nil {
		err = f.sync()
	}
	if e := f.close(); err == nil {
		err = e
	}
	if err == nil {
		err = dir.rename(tmp, name)
	}
	if err != nil {
		_ = dir.remove(tmp)
		return err
	}
	return dir.syncDir()
}
