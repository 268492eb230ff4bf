package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
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
func (g *Gateway) Invalidate(o origin.Object) {
	g.infos.forget(o)
	if o.Raw != "" { // AWS reads a bare plus as a space
		g.infos.forget(origin.Object{Bucket: o.Bucket, Key: strings.ReplaceAll(o.Key, "+", " ")})
	}
}

// Population takes the body of an object while it is being written, so that it is there in blocks when it is read. It
// takes memory only where there is some at once, out of what reads may ask for ahead, and gives up otherwise: it never
// delays the write. A nil Population takes nothing. End it by Commit or Abort. It is safe for concurrent use: a transport
// may still be writing what it reads of a body when an origin that answered early has ended the write.
type Population struct {
	g      *Gateway
	object origin.Object
	policy *Policy
	gen    uint64 // since this write began; another number at the end says that a second one overlapped it
	size   int64

	mu     sync.Mutex
	taken  int64               // of Gateway.writes; guarded by mu
	n      int64               // bytes so far; guarded by mu
	blocks []*blockstore.Block // guarded by mu
	over   bool                // given up, or ended: the blocks are not ours any more; guarded by mu
}

// Populate begins. It counts as the beginning of a write: answers to questions asked before are not remembered.
func (g *Gateway) Populate(o origin.Object, size int64) *Population {
	p := &Population{g: g, object: o.Clone(), policy: g.cfg.Policy(o.Bucket), size: size, gen: g.infos.forget(o)}
	if size <= 0 || size > p.policy.PopulateMax || !g.writes.take(size) {
		p.over = true
		return p
	}
	p.taken = size
	return p
}

// Write takes the next bytes of the body; it copies them.
func (p *Population) Write(b []byte) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	if p.n+int64(len(b)) > p.size {
		p.abort()
		return
	}
	size := p.policy.BlockSize
	for len(b) > 0 {
		at := p.n % size
		if at == 0 {
			block := p.g.mem.TryAlloc(min(size, p.size-p.n))
			if block == nil {
				p.abort()
				return
			}
			p.blocks = append(p.blocks, block)
		}
		n := copy(p.blocks[len(p.blocks)-1].Buf()[at:], b)
		p.n += int64(n)
		b = b[n:]
	}
}

// Commit files the blocks under the ETag that the origin gave the object, and says whether it did. It does not when the
// body was not all taken, when the ETag is no strong one, or when another write of the key overlapped this: the caller
// must Invalidate then. Nothing is known of the object but its ETag: the next read asks the origin for the rest by a
// HEAD, and finds the blocks.
func (p *Population) Commit(etag string) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	defer p.abort()
	info := &origin.Info{Size: p.size, ETag: etag}
	if p.n != p.size || !info.Strong() {
		return false
	}
	gen, alone := p.g.infos.forgetIf(p.object, p.gen)
	if !alone {
		return false
	}
	k := newKnown(p.object, info, p.policy, gen)
	for i, b := range p.blocks {
		key := blockstore.Key{Version: k.version, Index: int64(i)}
		b.Seal(key, int(key.Len()))
		p.g.mem.Put(b)
		if p.g.disk != nil {
			p.g.disk.Put(b)
		}
	}
	p.g.infos.put(p.object, k, gen, time.Now())
	return true
}

// Abort gives back what was taken. It may be called at any time, after Commit too.
func (p *Population) Abort() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abort()
}

// abort is Abort with mu held.
func (p *Population) abort() {
	p.over = true
	for _, b := range p.blocks {
		b.Release()
	}
	p.blocks = nil
	p.g.writes.give(p.taken)
	p.taken = 0
}

// Insert is a Population in one call: it reads body, which stays the caller's, to the end of the object. info must be
// what the origin said of this very body: its ETag and size count. An object larger than PopulateMax, or without a
// strong ETag, is not taken.
func (g *Gateway) Insert(ctx context.Context, o origin.Object, info *origin.Info, body io.Reader) error {
	p := g.Populate(o, info.Size)
	defer p.Abort()
	if p.over { // nobody else has it
		return notInserted(o)
	}
	buf := make([]byte, copySize)
	for read := int64(0); read < p.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := body.Read(buf[:min(copySize, p.size-read)])
		p.Write(buf[:n])
		read += int64(n)
		if err != nil && read < p.size {
			return fmt.Errorf("%w: %v: body of %d bytes ended after %d: %w", ErrNotInserted, o, p.size, read, err)
		}
	}
	if !p.Commit(info.ETag) {
		return notInserted(o)
	}
	return nil
}

func notInserted(o origin.Object) error {
	return fmt.Errorf("%w: %v: too large, without a strong ETag, overlapped by another write, or no memory to spare",
		ErrNotInserted, o)
}
