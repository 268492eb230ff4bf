package memory

import "golang.org/x/sys/unix"

// reserve maps n bytes of address space that cost no memory until they are touched. Huge pages are off: one would make
// 2 MiB resident for a slot of 4 KiB, behind the back of the budget.
func reserve(n int64) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	// Kernels built without huge pages refuse the advice, and need none. A core dump would be as large as the cache.
	_ = unix.Madvise(m, unix.MADV_NOHUGEPAGE)
	_ = unix.Madvise(m, unix.MADV_DONTDUMP)
	return m, nil
}

// giveBack makes the pages of m non-resident; their contents are lost.
func giveBack(m []byte) error { return unix.Madvise(m, unix.MADV_DONTNEED) }
