package disk

import (
	"bytes"
	"time"
)

const probeName = "probe"

// look is what the writer does every two seconds: it sees whether the directory is still there and the filesystem has
// room, and if the tier is not well, whether the disk works again.
func (w *writer) look() {
	t := w.t
	if !t.fs.locked() {
		w.remake()
		return
	}
	if free, err := t.fs.free(); err == nil && free < t.config.Reserve {
		w.reclaim(false)
	}
	w.trimIndex()
	if !t.health.ok.Load() && w.probe() == nil {
		t.health.set(StateOK, nil)
	}
}

// remake gives up a directory that was deleted or replaced, and takes over the one that is at its path now; or the one
// that could not be taken over before.
func (w *writer) remake() {
	t := w.t
	<-w.recovered
	t.health.set(StateOut, errGone)
	w.empty()
	w.current, w.full = nil, false
	t.forget()
	t.fs.unlock()
	if err := w.takeOver(RecoverQuiet, false); err != nil {
		t.fs.unlock()
		t.metrics.errors.Inc()
		return
	}
	if w.probe() == nil {
		t.health.set(StateOK, nil)
	}
}

// probe writes a file, reads it back, and begins a region if there is none.
func (w *writer) probe() error {
	err := w.tryFile()
	if err == nil && w.current == nil {
		err = w.roll()
	}
	if err != nil {
		w.t.metrics.errors.Inc()
	}
	return err
}

func (w *writer) tryFile() error {
	fs, direct := w.t.fs, w.t.config.DirectIO
	if err := fs.remove(probeName); err != nil {
		return err
	}
	f, err := fs.create(probeName, pageSize, direct)
	if err != nil {
		return err
	}
	defer func() {
		_ = f.close()
		_ = fs.remove(probeName)
	}()
	page, back := encodeHead(0, w.dir, time.Now().UnixNano()), alignedBuffer(pageSize)
	if err := f.writeAt(page, 0); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return err
	}
	if _, err := f.readv([][]byte{back}, 0); err != nil {
		return err
	}
	if !bytes.Equal(page, back) {
		return errDamaged
	}
	return nil
}
