//go:build poison

package memory

import "golang.org/x/sys/unix"

// poisonByte fills free slots that share their pages with slots in use.
const poisonByte = 0xDB

// poisonSlot overwrites a free slot.
func poisonSlot(m []byte) {
	for i := range m {
		m[i] = poisonByte
	}
}

// poisonSpan makes a free span fault on any access. Where the kernel refuses, because every switch of protection splits
// a mapping and their number is limited, the span is overwritten instead.
func poisonSpan(m []byte) {
	if unix.Mprotect(m, unix.PROT_NONE) != nil {
		poisonSlot(m)
	}
}

// revive makes a span usable again.
func revive(m []byte) {
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		panic("memory: mprotect: " + err.Error())
	}
}
