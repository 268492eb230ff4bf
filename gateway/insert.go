package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/origin"
)

// ErrNotInserted is matched by errors of Insert that say that an object was not taken, or not all of it. Nothing is
// wrong then: it will be fetched when it is read.
var ErrNotInserted = errors.New("not inserted")

// Invalidate forgets the info of an object under all its names (versions, spellings), and lets no probe that is under
// way be remembered. Call it after every write that may have taken effect, before the writer is answered. Blocks need
// no forgetting: they are filed under their version.
func (g *Gateway) Invalidate(o origin.Object) { g.infos.forget(o) }

// Insert cuts the body of an object that was just written into blocks. info must be what the origin said of this very
// body: its ETag above all. The info is remembered as stale, so that the next read confirms it and finds the blocks. It
// takes no memory that it would have to wait for, and reads body, which stays the caller's, only as far as it goes. An
// object larger than PopulateMax, or without a strong ETag, is not taken.
func (g *Gateway) Insert(ctx context.Context, o origin.Object, info *origin.Info, body io.Reader) error {
	policy := g.cfg.Policy(o.Bucket)
	gen := g.gens.of(o)
	if info.Size > policy.PopulateMax || !info.Strong() {
		return fmt.Errorf("%w: %v: too large or without a strong ETag", ErrNotInserted, o)
	}
	stale := *info
	stale.Confirmed = time.Time{}
	k := newKnown(o, &stale, policy, gen)
	for i := range k.version.Blocks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := blockstore.Key{Version: k.version, Index: i}
		b := g.mem.TryAlloc(key.Len())
		if b == nil {
			return fmt.Errorf("%w: %v: memory is busy", ErrNotInserted, o)
		}
		n, err := io.ReadFull(body, b.Buf())
		if err != nil {
			b.Release()
			return fmt.Errorf("%w: %v: body of %d bytes ended in block %d: %w", ErrNotInserted, o, info.Size, i, err)
		}
		b.Seal(key, n)
		g.mem.Put(b)
		b.Release()
	}
	g.infos.put(o, k, gen)
	return nil
}
