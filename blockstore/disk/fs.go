package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileSystem is the directory of a tier, as the tier sees it: its tests put a faulty one in its place. Names are those
// of files in the directory. Safe for concurrent use.
type fileSystem interface {
	// lock makes the directory if it is missing and takes it for this process. An error names who has it.
	lock() error
	// locked says whether the directory that was locked is still the one at its path.
	locked() bool
	unlock()
	list() ([]fileInfo, error)
	// create makes a file that does not exist and reserves size bytes for it.
	create(name string, size int64, direct bool) (file, error)
	open(name string, direct bool) (file, error)
	remove(name string) error // nil when there is no such file
	rename(from, to string) error
	// syncDir makes what was created, removed and renamed durable.
	syncDir() error
	// free returns the bytes of the filesystem that may still be written.
	free() (int64, error)
}

// file is an open file. With direct I/O buffers and offsets must be aligned to pages.
type file interface {
	// readv fills the buffers from an offset on, one after the other, and returns how many bytes there were. No buffer
	// may be empty.
	readv(bufs [][]byte, off int64) (int, error)
	writeAt(b []byte, off int64) error
	size() (int64, error)
	truncate(size int64) error
	sync() error
	close() error
}

type fileInfo struct {
	name string
	size int64
	mod  time.Time
}

const lockName = "lock"

var errHeld = errors.New("two processes can't share a directory")

// osDir is a directory of the system. lock and unlock are not called at the same time as other methods that need the
// lock.
type osDir struct {
	path string
	held *os.File
}

func (d *osDir) lock() error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	path := filepath.Join(d.path, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w", path, err)
		}
		pid := make([]byte, 20)
		n, _ := f.Read(pid)
		return fmt.Errorf("%s is in use by process %s, and %w", d.path, strings.TrimSpace(string(pid[:n])), errHeld)
	}
	// For the message above; nothing depends on it.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	d.held = f
	return nil
}

func (d *osDir) locked() bool {
	if d.held == nil {
		return false
	}
	at, err := os.Stat(filepath.Join(d.path, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	own, err2 := d.held.Stat()
	// A disk that can't say is trouble, but no other directory.
	return err != nil || err2 != nil || os.SameFile(at, own)
}

func (d *osDir) unlock() {
	if d.held != nil {
		_ = d.held.Close()
		d.held = nil
	}
}

func (d *osDir) list() ([]fileInfo, error) {
	names, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var files []fileInfo
	for _, e := range names {
		if !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		files = append(files, fileInfo{e.Name(), info.Size(), info.ModTime()})
	}
	return files, nil
}

func (d *osDir) create(name string, size int64, direct bool) (file, error) {
	path := filepath.Join(d.path, name)
	f, err := openFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, direct)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		if err := allocate(f.fd, size); err != nil {
			_ = f.close()
			_ = os.Remove(path)
			return nil, fmt.Errorf("allocating %d bytes for %s: %w", size, path, err)
		}
	}
	return f, nil
}

func (d *osDir) open(name string, direct bool) (file, error) {
	path := filepath.Join(d.path, name)
	f, err := openFile(path, unix.O_RDWR, direct)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		f, err = openFile(path, unix.O_RDONLY, direct)
	}
	if err != nil {
		return nil, err // not a nil *osFile in an interface
	}
	return f, nil
}

func (d *osDir) remove(name string) error {
	if err := os.Remove(filepath.Join(d.path, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *osDir) rename(from, to string) error {
	return os.Rename(filepath.Join(d.path, from), filepath.Join(d.path, to))
}

func (d *osDir) syncDir() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

func (d *osDir) free() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// osFile is a bare descriptor: os.File has no vectored reads, and its locks and poller are of no use here.
type osFile struct {
	fd   int
	path string
}

func openFile(path string, flags int, direct bool) (*osFile, error) {
	if direct {
		flags |= directFlag
	}
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return &osFile{fd, path}, nil
		}
		if err != unix.EINTR {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func (f *osFile) readv(bufs [][]byte, off int64) (int, error) {
	var space [4][]byte
	rest := append(space[:0], bufs...) // what is still to be filled; none of it is empty
	done := 0
	for len(rest) > 0 {
		n, err := preadv(f.fd, rest, off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, &fs.PathError{Op: "read", Path: f.path, Err: err}
		}
		if n == 0 {
			break // the end of the file
		}
		done += n
		for len(rest) > 0 && n >= len(rest[0]) {
			n -= len(rest[0])
			rest = rest[1:]
		}
		if len(rest) > 0 {
			rest[0] = rest[0][n:]
		}
	}
	return done, nil
}

func (f *osFile) writeAt(b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(f.fd, b, off)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = unix.EIO
		}
		if err != nil {
			return &fs.PathError{Op: "write", Path: f.path, Err: err}
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func (f *osFile) size() (int64, error) {
	var s unix.Stat_t
	if err := unix.Fstat(f.fd, &s); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: f.path, Err: err}
	}
	return s.Size, nil
}

func (f *osFile) truncate(size int64) error {
	if err := unix.Ftruncate(f.fd, size); err != nil {
		return &fs.PathError{Op: "truncate", Path: f.path, Err: err}
	}
	return nil
}

func (f *osFile) sync() error {
	if err := datasync(f.fd); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.path, Err: err}
	}
	return nil
}

func (f *osFile) close() error { return unix.Close(f.fd) }

// alignedBuffer returns n zero bytes at the start of a page. The heap does not move what it holds.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % pageSize)
	return b[skip:][:n:n]
}

// aligned says whether b starts at a page.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%pageSize == 0 }
