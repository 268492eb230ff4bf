package memory

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// BenchmarkHit is Get and Release of blocks of a full tier, of all of them in turn and of a single one.
func BenchmarkHit(b *testing.B) {
	const blocks = 4096
	m := newTier(b, 512<<20, 1<<20)
	v := blockstoretest.Object("bench", 1<<50, 64<<10)
	keys := make([]blockstore.Key, blocks)
	for i := range keys {
		keys[i] = blockstore.Key{Version: v, Index: int64(i)}
		read(b, m, keys[i])
	}
	get := func(b *testing.B, k blockstore.Key) {
		block := m.Get(k)
		if block == nil {
			b.Fatal("not a hit")
		}
		block.Release()
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			get(b, keys[i%blocks])
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		var start atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for i := start.Add(997); pb.Next(); i++ {
				get(b, keys[i%blocks])
			}
		})
	})
	b.Run("parallel-one-block", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				get(b, keys[7])
			}
		})
	})
	b.Run("miss", func(b *testing.B) {
		for i := int64(blocks); b.Loop(); i++ {
			if m.Get(blockstore.Key{Version: v, Index: i}) != nil {
				b.Fatal("a hit")
			}
		}
	})
}

// BenchmarkPut is Alloc, Seal, Put and Release with a full tier, so that each evicts another; the bytes are not
// touched.
func BenchmarkPut(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int64
	}{{"4KiB", 4 << 10}, {"1MiB", 1 << 20}} {
		m := newTier(b, 256<<20, 1<<20)
		v := blockstoretest.Object("bench", 1<<60, size.bytes)
		var next atomic.Int64
		put := func(b *testing.B) {
			block, err := m.Alloc(context.Background(), size.bytes)
			if err != nil {
				b.Fatal(err)
			}
			block.Seal(blockstore.Key{Version: v, Index: next.Add(1)}, int(size.bytes))
			m.Put(block)
			block.Release()
		}
		for range 256 << 20 / size.bytes {
			put(b)
		}
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				put(b)
			}
		})
		b.Run(size.name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					put(b)
				}
			})
		})
	}
}
