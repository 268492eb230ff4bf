//go:build !linux

package memory

import "golang.org/x/sys/unix"

// reserve maps n bytes of address space that cost no memory until they are touched.
func reserve(n int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// giveBack lets the system take the pages of m; their contents are lost. Where it takes them only under pressure they
// are still shown as resident meanwhile.
func giveBack(m []byte) error { return unix.Madvise(m, unix.MADV_FREE) }
