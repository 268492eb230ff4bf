package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// Usage is what a process and its children have used.
type Usage struct {
	CPU     time.Duration // user and system
	RSS     int64         // bytes resident now
	PeakRSS int64         // bytes resident at most, since the start or ResetPeak; of several processes, the sum of peaks
}

// UsageOf reads the usage of a process and its living descendants.
func UsageOf(pid int) (Usage, error) {
	var u Usage
	tree, err := descendants(pid)
	if err != nil {
		return u, err
	}
	for _, p := range tree {
		s, err := readStat(p)
		if errors.Is(err, os.ErrNotExist) && p != pid {
			continue // a child that ended meanwhile
		}
		if err != nil {
			return u, err
		}
		u.CPU += s.cpu
		rss, peak, err := readMemory(p)
		if err != nil && p == pid {
			return u, err
		}
		u.RSS += rss
		u.PeakRSS += peak
	}
	return u, nil
}

// ResetPeak makes PeakRSS of a process and its descendants start again from what is resident now. Where the kernel does
// not allow it, nothing happens.
func ResetPeak(pid int) {
	tree, _ := descendants(pid)
	for _, p := range tree {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p), []byte("5"), 0)
	}
}

// Busy is the CPU time that this machine's processes have used, all together, and what a hypervisor took from it. Time
// in interrupt handlers is not in it: the loopback device spends it for whoever is measured.
func Busy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(line)) // cpu user nice system idle iowait irq softirq steal …
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: unexpected first line %q", line)
	}
	var sum int64
	for _, i := range [...]int{1, 2, 3, 8} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

type stat struct {
	parent int
	cpu    time.Duration
}

func readStat(pid int) (stat, error) {
	var s stat
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	// The name, in parentheses, may hold anything; the numbers follow its last one.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 13 {
		return s, fmt.Errorf("/proc/%d/stat: unexpected %q", pid, b)
	}
	s.parent, _ = strconv.Atoi(f[1])
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	s.cpu = time.Duration(user+system) * tick
	return s, nil
}

func readMemory(pid int) (rss, peak int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			rss = kib << 10
		case "VmHWM":
			peak = kib << 10
		}
	}
	return rss, peak, lines.Err()
}

// descendants returns pid and every process below it.
func descendants(pid int) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	for _, d := range dirs {
		p, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if s, err := readStat(p); err == nil {
			children[s.parent] = append(children[s.parent], p)
		}
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	slices.Sort(tree)
	return tree, nil
}
