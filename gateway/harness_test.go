package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
)

// policy is what tests read by unless they say otherwise.
func policy() gateway.Policy {
	return gateway.Policy{
		BlockSize: MiB, FetchWindow: 8, ReadWindow: 16, TTL: time.Minute, PopulateMax: 16 * MiB,
		Fetch: gateway.Fetch{FirstByte: 5 * time.Second, Attempt: 30 * time.Second},
	}
}

// rig is an engine over a scriptable origin and a memory that catches misuse.
type rig struct {
	*gateway.Gateway
	t      testing.TB
	origin *origintest.Origin
	memory testMemory
	policy gateway.Policy
	reg    *prometheus.Registry
}

// testMemory is a memory tier that tests can look into.
type testMemory interface {
	blockstore.Memory
	evict()      // drops everything, where that can be had
	leaked() int // blocks that somebody beside the tier holds, at the end
	most() int64 // bytes that were in use at one time
}

// newRig makes one; change adjusts the configuration. It checks at the end that nothing was left behind.
func newRig(t testing.TB, p gateway.Policy, limit int64, change ...func(*gateway.Config)) *rig {
	t.Helper()
	return newRigOver(t, newStrictMemory(limit), p, change...)
}

func newRigOver(t testing.TB, m testMemory, p gateway.Policy, change ...func(*gateway.Config)) *rig {
	t.Helper()
	r := &rig{t: t, origin: origintest.New(), memory: m, policy: p, reg: prometheus.NewRegistry()}
	c := gateway.Config{
		Origin: r.origin, Memory: r.memory, Registerer: r.reg,
		Policy: func(string) *gateway.Policy { return &r.policy },
	}
	for _, f := range change {
		f(&c)
	}
	g, err := gateway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Gateway = g
	return r
}

// close ends the engine and fails the test if something was left: a flight, a slot, an open body, a pinned byte.
func (r *rig) close() {
	r.t.Helper()
	if r.policy.Readahead > 0 {
		time.Sleep(10 * time.Second) // what was read ahead is held for a while
	}
	r.checkIdle()
	r.Close()
	if n := r.origin.Stats().Open; n != 0 {
		r.t.Errorf("%d origin bodies left open", n)
	}
	if n := r.memory.leaked(); n != 0 {
		r.t.Errorf("%d blocks still referenced by readers or flights", n)
	}
}

// checkIdle fails the test if gauges say that work is still held though no read is open.
func (r *rig) checkIdle() {
	r.t.Helper()
	synctest.Wait() // fetches go on a little for readers who left
	for _, name := range []string{"ashlar_memory_pinned_bytes", "ashlar_ahead_bytes", "ashlar_blocks_pending"} {
		if v := r.metric(name, ""); v != 0 {
			r.t.Errorf("%s = %v with no read open", name, v)
		}
	}
}

// metric returns the value of a counter or gauge; label is the value of its only label, "" for none.
func (r *rig) metric(name, label string) float64 {
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 0 && label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// answer is what a read led to.
type answer struct {
	obj  *gateway.Object // closed
	body []byte
	err  error
}

// read opens and reads an object to its end.
func (r *rig) read(ctx context.Context, req gateway.Request) answer {
	obj, err := r.Open(ctx, req)
	if err != nil {
		return answer{err: err}
	}
	defer obj.Close()
	var buf bytes.Buffer
	n, err := obj.WriteTo(&buf)
	if n != int64(buf.Len()) {
		err = errors.Join(err, fmt.Errorf("WriteTo says %d bytes, wrote %d", n, buf.Len()))
	}
	if err == nil && !req.InfoOnly && n != obj.Length {
		err = fmt.Errorf("read %d bytes of %d without an error", n, obj.Length)
	}
	return answer{obj, buf.Bytes(), err}
}

// get reads and checks that every byte is of the version that the info names.
func (r *rig) get(key string, rng gateway.Range) answer {
	r.t.Helper()
	a := r.read(context.Background(), gateway.Request{Object: object(key), Range: rng})
	r.verify(a)
	return a
}

func (r *rig) verify(a answer) {
	r.t.Helper()
	if a.obj == nil {
		return
	}
	// Contents are generated from the ETag, or what stands in for it where there is none.
	if err := origintest.Check(cmp.Or(a.obj.Info.ETag, a.obj.Info.LastModified), a.obj.Offset, a.body); err != nil {
		r.t.Errorf("wrong bytes: %v", err)
	}
}

func object(key string) origin.Object { return origin.Object{Bucket: "b", Key: key} }

// strictMemory is a memory tier over the heap that overwrites what is released, so that a use after release shows as
// wrong bytes, and keeps within its limit. It evicts the oldest block.
type strictMemory struct {
	mu     sync.Mutex
	limit  int64
	used   int64
	blocks map[string]*blockstore.Block
	order  []string
	free   chan struct{} // closed and replaced when memory is given back
	live   int           // blocks with a reference
	peak   int64
}

func newStrictMemory(limit int64) *strictMemory {
	return &strictMemory{limit: limit, blocks: make(map[string]*blockstore.Block), free: make(chan struct{})}
}

func name(k blockstore.Key) string {
	v := k.Version
	return fmt.Sprintf("%q %q %q %q %q %d %d", v.Bucket, v.Key, v.VersionID, v.Raw, v.Tag, v.BlockSize, k.Index)
}

func (m *strictMemory) Limit() int64 { return m.limit }

func (m *strictMemory) Get(k blockstore.Key) *blockstore.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.blocks[name(k)]; b != nil && b.TryAcquire() {
		return b
	}
	return nil
}

func (m *strictMemory) Contains(k blockstore.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blocks[name(k)] != nil
}

func (m *strictMemory) Put(b *blockstore.Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := name(b.Key())
	if m.blocks[n] != nil {
		return
	}
	b.Acquire(1)
	m.blocks[n] = b
	m.order = append(m.order, n)
	m.wake() // it can be evicted
}

// wake lets those who wait for memory look again. mu is held.
func (m *strictMemory) wake() {
	close(m.free)
	m.free = make(chan struct{})
}

func (m *strictMemory) Alloc(ctx context.Context, n int64) (*blockstore.Block, error) {
	for {
		m.mu.Lock()
		free := m.free
		m.mu.Unlock()
		if b := m.TryAlloc(n); b != nil {
			return b, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *strictMemory) TryAlloc(n int64) *blockstore.Block {
	for {
		m.mu.Lock()
		if m.used+n <= m.limit {
			m.used += n
			m.peak = max(m.peak, m.used)
			m.live++
			m.mu.Unlock()
			return blockstore.NewBlock(make([]byte, n), m)
		}
		if len(m.order) == 0 {
			m.mu.Unlock()
			return nil
		}
		b := m.blocks[m.order[0]]
		delete(m.blocks, m.order[0])
		m.order = m.order[1:]
		m.mu.Unlock()
		b.Release()
	}
}

// Free implements blockstore.Recycler.
func (m *strictMemory) Free(mem []byte) {
	for i := range mem {
		mem[i] = 0xDB
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= int64(len(mem))
	m.live--
	m.wake()
}

// evict drops everything.
func (m *strictMemory) evict() {
	m.mu.Lock()
	blocks := m.blocks
	m.blocks, m.order = make(map[string]*blockstore.Block), nil
	m.mu.Unlock()
	for _, b := range blocks {
		b.Release()
	}
}

// evictOldest drops the n blocks that came first.
func (m *strictMemory) evictOldest(n int) {
	m.mu.Lock()
	var gone []*blockstore.Block
	for _, name := range m.order[:n] {
		gone = append(gone, m.blocks[name])
		delete(m.blocks, name)
	}
	m.order = m.order[n:]
	m.mu.Unlock()
	for _, b := range gone {
		b.Release()
	}
}

func (m *strictMemory) most() int64 { return m.peak }

// leaked returns the blocks that somebody beside the store holds.
func (m *strictMemory) leaked() int {
	m.evict()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live
}

// realMemory is the tier that processes have.
type realMemory struct{ *memory.Tier }

func newRealMemory(t testing.TB, limit, maxBlock int64) realMemory {
	m, err := memory.New(memory.Config{Limit: limit, MaxBlock: maxBlock})
	if err != nil {
		t.Fatal(err)
	}
	return realMemory{m}
}

func (m realMemory) evict()      {}
func (m realMemory) most() int64 { return m.Stats().Used }

func (m realMemory) leaked() int {
	s := m.Stats()
	m.Close()
	return int(s.Slots - s.Blocks)
}
