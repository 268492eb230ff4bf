package memory

import (
	"runtime"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// What a block costs on the heap is what the budget says, in a tier full of the smallest blocks worth caching, where it
// weighs most. The version is the engine's, and not counted here.
func TestBlockOverhead(t *testing.T) {
	const limit = 256 << 20
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	v := blockstoretest.Object("small", 1<<40, 4<<10)
	before := heap()
	m := newTier(t, limit, 1<<20)
	empty := heap() - before
	for i := range int64(limit / (4 << 10)) {
		read(t, m, blockstore.Key{Version: v, Index: i})
	}
	s := m.Stats()
	per := (heap() - before - empty) / s.Blocks
	t.Logf("%d blocks: %d bytes of heap each; %d KiB for the empty tier", s.Blocks, per, empty>>10)
	if per > blockOverhead {
		t.Errorf("a block costs %d bytes of heap, more than the %d it is charged", per, blockOverhead)
	}
	if empty > limit/100+1<<20 {
		t.Errorf("an empty tier has %d bytes of heap", empty)
	}
	runtime.KeepAlive(m)
}
