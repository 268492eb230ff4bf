package proc

import (
	"fmt"
	"syscall"
)

// OpenFiles lets this process, and those that it starts from then on, have n files open at once. As root it can raise
// the hard limit too; elsewhere `ulimit -Hn` may have to be raised before.
func OpenFiles(n uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur, l.Max = max(l.Cur, n), max(l.Max, n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("%d open files (ulimit -n): %w", n, err)
	}
	return nil
}
