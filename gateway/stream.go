package gateway

import (
	"fmt"
	"io"

	"github.com/ashlar-s3/ashlar/origin"
)

// Objects without a strong ETag, outside immutable buckets, are not cached: each read of one is a GET of its own, whose
// body is passed on. One answer is of one version by nature.

// stream asks for the bytes of an object that nothing pins, by one GET, and holds them against the info in use.
func (o *Object) stream() error {
	if o.Length == 0 {
		return nil
	}
	g := o.g
	if err := g.slots.Acquire(o.ctx, 1); err != nil {
		return err
	}
	opts := origin.GetOptions{Offset: o.Offset, Length: o.Length, FirstByte: o.policy.FirstByte}
	if !o.Partial {
		opts.Offset, opts.Length = 0, 0
	}
	resp, err := g.get(o.ctx, o.request.Object, opts)
	g.slots.Release(1) // for the headers only: a slow reader must not hold up the others' misses
	if err != nil {
		return err
	}
	o.body = resp.Body
	if resp.NotModified || !resp.Info.SameVersion(o.Info) {
		return fmt.Errorf("%w: %v between two requests", origin.ErrChanged, o.request.Object)
	}
	if resp.Offset != o.Offset || resp.Length != o.Length {
		return fmt.Errorf("%w: asked for %v of %v, got %d bytes from %d", origin.ErrBadAnswer,
			span{o.Offset, o.Length}, o.request.Object, resp.Length, resp.Offset)
	}
	return nil
}

// streamTo passes the body of an uncacheable object on.
func (o *Object) streamTo(w io.Writer) (written int64, err error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	for written < o.Length {
		n, err := io.ReadAtLeast(o.body, buf[:min(copySize, o.Length-written)], 1)
		if n > 0 {
			m, werr := w.Write(buf[:n])
			written += int64(m)
			if werr != nil {
				return written, werr
			}
		}
		if err != nil && written < o.Length {
			return written, fmt.Errorf("%w at byte %d of %v: %w", ErrInterrupted, o.Offset+written, o.request.Object,
				o.g.bodyError(o.ctx, err))
		}
	}
	return written, nil
}
