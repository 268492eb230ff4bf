package disk

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// region is one file of the log. Once its last record is written it does not change; it is reclaimed by being deleted.
type region struct {
	seq  uint32 // its number, never used again; the oldest region has the lowest
	dir  dirID
	size int64
	made time.Time
	file file // set before anything of it is in the index

	refs  atomic.Int32 // the log's, and one per read; the file is closed and its space free when the last one goes
	reads atomic.Int64 // blocks that were read since they were written

	hashes  []uint64 // of its records, once it is finished; the writer's, and recovery's before
	records atomic.Int64

	// While it is written; the writer's.
	end     int64 // where the next record goes
	entries []entry
}

func regionName(seq uint32) string { return fmt.Sprintf("%08x.region", seq) }

func parseRegionName(name string) (uint32, bool) {
	hex, ok := strings.CutSuffix(name, ".region")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseUint(hex, 16, 32)
	return uint32(seq), err == nil && name == regionName(uint32(seq))
}

// regions is the log: all regions by age. Safe for concurrent use; only the writer and recovery change it.
type regions struct {
	mu    sync.RWMutex
	bySeq map[uint32]*region
	order []*region // ascending
	live  int64     // bytes of those in order
	used  int64     // bytes of all files, those included that are deleted and still read
}

func newRegions() *regions {
	return &regions{bySeq: make(map[uint32]*region)}
}

// add appends a region; its number is above all others.
func (l *regions) add(r *region) {
	r.refs.Store(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bySeq[r.seq] = r
	l.order = append(l.order, r)
	l.live += r.size
	l.used += r.size
}

// drop takes a region out; its space is free when it is no longer read.
func (l *regions) drop(r *region) {
	l.mu.Lock()
	for i, o := range l.order {
		if o == r {
			l.order = append(l.order[:i:i], l.order[i+1:]...)
			delete(l.bySeq, r.seq)
			l.live -= r.size
			break
		}
	}
	l.mu.Unlock()
	l.release(r)
}

// open gives a region that was found its file.
func (l *regions) open(r *region, f file) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.file = f
}

// acquire returns a region with a reference, or nil when it is gone.
func (l *regions) acquire(seq uint32) *region {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.bySeq[seq]
	if r == nil || r.file == nil {
		return nil
	}
	r.refs.Add(1)
	return r
}

func (l *regions) release(r *region) {
	if r.refs.Add(-1) > 0 {
		return
	}
	if r.file != nil {
		_ = r.file.close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= r.size
}

// oldest returns the oldest region, or nil.
func (l *regions) oldest() *region {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.order) == 0 {
		return nil
	}
	return l.order[0]
}

// all returns the regions by age.
func (l *regions) all() []*region {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return append([]*region(nil), l.order...)
}

func (l *regions) count() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(len(l.order))
}

func (l *regions) bytes() (live, used int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.live, l.used
}
