package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

const directFlag = unix.O_DIRECT

func preadv(fd int, bufs [][]byte, off int64) (int, error) { return unix.Preadv(fd, bufs, off) }

func datasync(fd int) error { return unix.Fdatasync(fd) }

// allocate reserves the blocks of a file, so that it is known now and not at some write whether there is room.
func allocate(fd int, size int64) error {
	for {
		err := unix.Fallocate(fd, 0, 0, size)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return unix.Ftruncate(fd, size) // there are filesystems that can't; writes will tell
		}
		if err != unix.EINTR {
			return err
		}
	}
}
