package disk

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// memDir is a directory in memory that can fail, be deleted and crash. What was written and not synced is lost in part
// by a crash of the machine: any of the writes, by parts, in any order, and any of the changes to the directory.
type memDir struct {
	mu      sync.Mutex
	files   map[string]*memFile // as the process sees it
	durable map[string]*memFile // as of the last syncDir
	room    int64               // bytes of the filesystem, 0 for any number
	others  int64               // bytes of it that others use
	held    bool
	inode   int // of the directory; changes when it is deleted
	at      int // inode that was locked

	// hook is called before each operation on the disk; it may return an error, or wait.
	hook func(op, name string) error
}

type memFile struct {
	dir     *memDir
	mu      sync.Mutex
	data    []byte
	synced  []byte // as of the last sync
	pending []memWrite
	opens   int
	linked  bool
}

type memWrite struct {
	off  int64
	data []byte
}

func newMemDir() *memDir {
	return &memDir{files: map[string]*memFile{}, durable: map[string]*memFile{}}
}

func (d *memDir) fail(op, name string) error {
	d.mu.Lock()
	hook := d.hook
	d.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op, name)
}

func (d *memDir) setHook(f func(op, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = f
}

func (d *memDir) lock() error {
	if err := d.fail("lock", ""); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held && d.at == d.inode {
		return fmt.Errorf("memDir: %w", errHeld)
	}
	d.held, d.at = true, d.inode
	return nil
}

func (d *memDir) locked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held && d.at == d.inode
}

func (d *memDir) unlock() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = false
}

// vanish deletes the directory with all files; what is open can still be read.
func (d *memDir) vanish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		f.linked = false
	}
	d.files, d.durable = map[string]*memFile{}, map[string]*memFile{}
	d.inode++
}

func (d *memDir) list() ([]fileInfo, error) {
	if err := d.fail("list", ""); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var files []fileInfo
	for name, f := range d.files {
		files = append(files, fileInfo{name: name, size: f.len()})
	}
	return files, nil
}

// used returns the bytes of all files, those included that are deleted and still open. d.mu must be held.
func (d *memDir) used() int64 {
	n := int64(0)
	for _, f := range d.files {
		n += f.len()
	}
	openFiles.Range(func(k, _ any) bool {
		if f := k.(*memFile); f.dir == d && !f.linked {
			n += f.len()
		}
		return true
	})
	return n
}

func (f *memFile) len() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.data))
}

// openFiles are the files of all directories that are open, for used.
var openFiles sync.Map // *memFile -> struct{}

func (d *memDir) create(name string, size int64, direct bool) (file, error) {
	if err := d.fail("create", name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.held || d.at != d.inode {
		return nil, fs.ErrNotExist
	}
	if d.files[name] != nil {
		return nil, fs.ErrExist
	}
	if d.room > 0 && d.used()+d.others+size > d.room {
		return nil, unix.ENOSPC
	}
	f := &memFile{dir: d, data: make([]byte, size), synced: make([]byte, size), linked: true}
	d.files[name] = f
	return f.handle(name, direct), nil
}

func (d *memDir) open(name string, direct bool) (file, error) {
	if err := d.fail("open", name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return f.handle(name, direct), nil
}

func (d *memDir) remove(name string) error {
	if err := d.fail("remove", name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.files[name]; f != nil {
		f.linked = false
		delete(d.files, name)
	}
	return nil
}

func (d *memDir) rename(from, to string) error {
	if err := d.fail("rename", from); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[from]
	if f == nil {
		return fs.ErrNotExist
	}
	if old := d.files[to]; old != nil {
		old.linked = false
	}
	delete(d.files, from)
	d.files[to] = f
	return nil
}

func (d *memDir) syncDir() error {
	if err := d.fail("sync", ""); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.durable = map[string]*memFile{}
	for name, f := range d.files {
		d.durable[name] = f
	}
	return nil
}

func (d *memDir) free() (int64, error) {
	if err := d.fail("free", ""); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.room == 0 {
		return 1 << 60, nil
	}
	return d.room - d.others - d.used(), nil
}

// killed returns what another process finds when this one was killed: all that was written, but the last write of a
// file may be there in part.
func (d *memDir) killed(rng *rand.Rand) *memDir {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := newMemDir()
	for name, f := range d.files {
		f.mu.Lock()
		data := slices.Clone(f.data)
		if p := len(f.pending); p > 0 && rng.IntN(2) == 0 {
			last := f.pending[p-1]
			if int64(len(data)) >= last.off+int64(len(last.data)) {
				clear(data[last.off+rng.Int64N(int64(len(last.data))+1) : last.off+int64(len(last.data))])
			}
		}
		f.mu.Unlock()
		n.put(name, data)
	}
	return n
}

// crashed returns what is found when the machine has lost its power.
func (d *memDir) crashed(rng *rand.Rand) *memDir {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := newMemDir()
	names := map[string]bool{}
	for name := range d.files {
		names[name] = true
	}
	for name := range d.durable {
		names[name] = true
	}
	for name := range names {
		f := d.files[name]
		if old := d.durable[name]; old != f && rng.IntN(2) == 0 {
			f = old
		}
		if f == nil {
			continue
		}
		f.mu.Lock()
		data := slices.Clone(f.synced)
		for _, i := range rng.Perm(len(f.pending)) {
			w := f.pending[i]
			for off := 0; off < len(w.data); off += 512 {
				part := w.data[off:min(off+512, len(w.data))]
				if at := w.off + int64(off); rng.IntN(3) > 0 && at+int64(len(part)) <= int64(len(data)) {
					copy(data[at:], part)
				}
			}
		}
		f.mu.Unlock()
		n.put(name, data)
	}
	return n
}

// put makes a file that is there durably.
func (d *memDir) put(name string, data []byte) {
	f := &memFile{dir: d, data: data, synced: slices.Clone(data), linked: true}
	d.files[name], d.durable[name] = f, f
}

// handle is an open memFile. d.mu must be held.
func (f *memFile) handle(name string, direct bool) file {
	f.opens++
	openFiles.Store(f, struct{}{})
	return &memHandle{f, name, direct}
}

type memHandle struct {
	*memFile
	name   string
	direct bool
}

// check fails as direct I/O does.
func (h *memHandle) check(b []byte, off int64) error {
	if h.direct && (!aligned(b) || len(b)%pageSize != 0 || off%pageSize != 0) {
		return unix.EINVAL
	}
	return nil
}

func (h *memHandle) readv(bufs [][]byte, off int64) (int, error) {
	if err := h.dir.fail("read", h.name); err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, b := range bufs {
		if len(b) == 0 {
			panic("memDir: empty buffer")
		}
		if err := h.check(b, off); err != nil {
			return n, err
		}
		if off >= int64(len(h.data)) {
			break
		}
		m := copy(b, h.data[off:])
		n, off = n+m, off+int64(m)
	}
	return n, nil
}

func (h *memHandle) writeAt(b []byte, off int64) error {
	if err := h.check(b, off); err != nil {
		return err
	}
	err := h.dir.fail("write", h.name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil { // in part
		b = b[:len(b)/3]
	}
	for int64(len(h.data)) < off+int64(len(b)) {
		h.data = append(h.data, make([]byte, off+int64(len(b))-int64(len(h.data)))...)
	}
	copy(h.data[off:], b)
	h.pending = append(h.pending, memWrite{off, slices.Clone(b)})
	return err
}

func (h *memHandle) size() (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.data)), nil
}

func (h *memHandle) truncate(n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = h.data[:n]
	return nil
}

func (h *memHandle) sync() error {
	if err := h.dir.fail("sync", h.name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = slices.Clone(h.data)
	h.pending = nil
	return nil
}

func (h *memHandle) close() error {
	h.dir.mu.Lock()
	defer h.dir.mu.Unlock()
	if h.opens--; h.opens == 0 {
		openFiles.Delete(h.memFile)
	}
	return nil
}
