//go:build integration

package integration

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// behindAll stands for a write at the origin, past all gateways, where else the number of a gateway would.
const behindAll = -1

// recordSize is how much of a rewritten object says which one it is, of which version, and where it stands in it.
const recordSize = 16

// rewritten is an object that one writer writes over and over. Each record of its bytes tells the version, so that any
// part of it can be checked, and its size is different from one version to the next.
type rewritten struct {
	number, size int // size is the least

	mu      sync.Mutex
	writes  []write // by version; the first is there from the start
	writing bool
}

// write is one version's.
type write struct {
	through int // a gateway, or behindAll
	done    time.Time
}

func (r *rewritten) key() string { return "rewritten-" + strconv.Itoa(r.number) }

// length is the size of a version.
func (r *rewritten) length(version int) int { return r.size + version%5*recordSize }

// body returns the bytes of a version.
func (r *rewritten) body(version int) []byte {
	b := make([]byte, 0, r.length(version))
	for len(b) < r.length(version) {
		b = binary.BigEndian.AppendUint32(b, uint32(r.number))
		b = binary.BigEndian.AppendUint32(b, uint32(version))
		b = binary.BigEndian.AppendUint64(b, uint64(cap(b)-len(b)))
	}
	return b
}

// versionOf returns the version that b says it is of, which begins where the object does; -1 where it is too short.
func (r *rewritten) versionOf(b []byte) int {
	if len(b) < recordSize {
		return -1
	}
	return int(binary.BigEndian.Uint32(b[4:]))
}

// check returns the version that b is of, which is to be whole.
func (r *rewritten) check(b []byte) (version int, err error) {
	if version = r.versionOf(b); version < 0 {
		return 0, fmt.Errorf("%s: %d bytes", r.key(), len(b))
	}
	if err := sameBytes(b, r.body(version)); err != nil {
		return 0, fmt.Errorf("%s, version %d: %w", r.key(), version, err)
	}
	return version, nil
}

// next begins a write and returns the version.
func (r *rewritten) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = true
	return len(r.writes)
}

// written notes that the next version is there.
func (r *rewritten) written(through int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = false
	r.writes = append(r.writes, write{through, time.Now()})
}

// latest is the last version that is known to be there.
func (r *rewritten) latest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.writes) - 1
}

// oldest returns the oldest version that a read may show which begins now at a gateway: what was written through it is
// seen at once, and everything after ttl.
func (r *rewritten) oldest(gateway int, ttl time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for v := len(r.writes) - 1; v > 0; v-- {
		if w := r.writes[v]; w.through == gateway || now.Sub(w.done) >= ttl {
			return v
		}
	}
	return 0
}

// writtenSince says whether it is being overwritten, or has been since then.
func (r *rewritten) writtenSince(then time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writing || r.writes[len(r.writes)-1].done.After(then)
}

// sameBytes says where b is not what was wanted.
func sameBytes(b, want []byte) error {
	for i := range min(len(b), len(want)) {
		if b[i] != want[i] {
			return fmt.Errorf("wrong bytes at %d of %d", i, len(b))
		}
	}
	if len(b) != len(want) {
		return fmt.Errorf("%d bytes, want %d", len(b), len(want))
	}
	return nil
}
