//go:build !linux

package disk

import "golang.org/x/sys/unix"

const directFlag = 0 // there is none

func preadv(fd int, bufs [][]byte, off int64) (int, error) { return unix.Pread(fd, bufs[0], off) }

func datasync(fd int) error { return unix.Fsync(fd) }

// allocate makes a file as long as it will be; whether there is room is known when it is written.
func allocate(fd int, size int64) error { return unix.Ftruncate(fd, size) }
