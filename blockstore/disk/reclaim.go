package disk

// makeRoom sees to it that a file of size bytes may be made: within the capacity, and leaving the reserve.
func (w *writer) makeRoom(size int64) error {
	t := w.t
	for {
		live, used := t.regions.bytes()
		if used+size <= t.budget {
			break
		}
		// Files that are deleted and still read are given up for lost after the time it took to fill a region: others
		// go in their place, but not many.
		if live+size <= t.budget && used-live > 2*size || !w.reclaim(false) {
			return errHold
		}
	}
	for reclaimed := false; ; reclaimed = true {
		free, err := t.fs.free()
		if err != nil {
			t.failed(StateReadOnly, err)
			return err
		}
		if free-size >= t.config.Reserve {
			return nil
		}
		if reclaimed || !w.reclaim(false) {
			t.health.set(StateReadOnly, errNoSpace)
			return errNoSpace
		}
	}
}

// reclaim deletes the oldest region, and says whether it could. With keep, blocks that were read since they were
// written are moved to the current region first: at most three quarters of them and of the region, and no more than
// fit, so that each region that goes makes room.
func (w *writer) reclaim(keep bool) bool {
	t := w.t
	<-w.recovered
	r := t.regions.oldest()
	if r == nil || r == w.current {
		return false
	}
	if keep {
		w.keep(r)
	}
	for _, h := range r.hashes {
		t.index.removeFrom(h, r.seq)
	}
	r.hashes = nil
	if !w.discard(r) {
		return false
	}
	t.metrics.reclaimed.Inc()
	if w.full {
		t.scarce.Store(t.regions.oldest())
	}
	return true
}

// discard deletes a region's file and gives it up. A file that can't be deleted stays ours: it takes room.
func (w *writer) discard(r *region) bool {
	if err := w.t.fs.remove(regionName(r.seq)); err != nil && w.t.fs.locked() {
		w.t.failed(StateReadOnly, err)
		return false
	}
	w.t.regions.drop(r)
	return true
}

// keep moves what was read.
func (w *writer) keep(r *region) {
	records, bytes := len(r.hashes)*3/4, r.size*3/4
	for _, h := range r.hashes {
		p, ok := w.t.index.find(h)
		if !ok || p.region != r.seq || !p.read() {
			continue
		}
		n, ok := w.move(r, h, p, bytes)
		if !ok {
			break
		}
		if n > 0 {
			records--
		}
		if bytes -= int64(n); records <= 0 {
			break
		}
	}
	_ = w.flush()
}

// move copies a record to the current region and returns what it took there, 0 if it is damaged or gone. It is not ok
// when there is no more room within limit, or the disk fails.
func (w *writer) move(r *region, hash uint64, p place, limit int64) (n int, ok bool) {
	rec, raw, err := readRecord(r, p.offset(), w.spare)
	if err != nil {
		w.t.metrics.errors.Inc()
		return 0, false
	}
	if raw == nil || rec.hash != hash {
		w.t.metrics.checksums.Inc()
		return 0, true
	}
	if int64(len(raw)) > limit {
		return 0, false
	}
	dst, off, err := w.room(rec.paged(), len(raw), false)
	if err != nil {
		return 0, false
	}
	copy(dst, raw)
	rec.move(dst, w.current.seq)
	w.staged = append(w.staged, staged{entry: entry{hash, rec.check, off}, from: p, moves: true})
	return len(raw), true
}

// readRecord reads a record and checks its sums; raw is all of it, a part of buf, and nil when it is damaged or does
// not fit. The error is one of the file.
func readRecord(r *region, off int64, buf []byte) (rec record, raw []byte, err error) {
	from := off &^ (pageSize - 1)
	skip := int(off - from)
	n := min(maxHead+pageSize, len(buf))
	n, err = r.file.readv([][]byte{buf[:n]}, from)
	if err != nil {
		return record{}, nil, err
	}
	rec, ok := parseRecord(buf[min(skip, n):n], r.seq, r.dir)
	if !ok || skip+rec.total() > len(buf) {
		return record{}, nil, nil
	}
	if want := int(roundUp(int64(skip+rec.total()), pageSize)); want > n {
		if n%pageSize != 0 {
			return record{}, nil, nil // the end of the file
		}
		m, err := r.file.readv([][]byte{buf[n:min(want, len(buf))]}, from+int64(n))
		if err != nil {
			return record{}, nil, err
		}
		n += m
	}
	if n < skip+rec.total() {
		return record{}, nil, nil
	}
	raw = buf[skip : skip+rec.total()]
	if !rec.verify(raw[:rec.headLen()], r.dir, 0, raw[rec.span():rec.span()+rec.payload]) {
		return record{}, nil, nil
	}
	return rec, raw, nil
}

// trimIndex reclaims regions until there is room for one more block in the index.
func (w *writer) trimIndex() {
	for w.t.index.n.Load()+int64(len(w.staged)) >= w.t.maxIndex {
		w.full = true
		if w.reclaim(true) {
			continue
		}
		if w.current == nil || w.current != w.t.regions.oldest() || w.roll() != nil || !w.reclaim(true) {
			return
		}
	}
}
