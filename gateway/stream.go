package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// Objects without a strong ETag, outside immutable buckets, are not cached: each read of one is a GET of its own, whose
// body is passed on. One answer is of one version by nature. What a response that copies has not got out of its block yet,
// when that is gone, comes the same way, pinned.

// lost says whether block i is gone after a piece of it was copied out: neither here nor on its way.
func (o *Object) lost(i int64) bool {
	if !o.counting || o.index != i || o.broken {
		return false
	}
	key := blockKey(o.known, i)
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	return o.g.lacks(key) && !o.onDisk(key)
}

// rest asks for what is still to be written of block i, and for no more: fetched as a block it may be gone again after
// the next piece, and would be asked for as a whole as often as it has pieces.
func (o *Object) rest(i int64) error {
	o.g.metrics.rests.Inc()
	pos := o.Offset + o.at
	err := o.stream(span{pos, min((i+1)*o.size, o.Offset+o.Length) - pos})
	if errors.Is(err, origin.ErrChanged) {
		o.g.infos.drop(o.request.Object, o.known)
	}
	return err
}

// stream asks for bytes that are to go by no block, by one GET, and holds the answer against the info in use.
func (o *Object) stream(want span) error {
	if want.len == 0 {
		return nil
	}
	ctx, cancel := o.patience()
	defer cancel()
	for n := 1; ; n++ {
		err := o.streamOnce(ctx, want)
		if err == nil {
			o.upto = want.off + want.len - o.Offset
			return nil
		}
		o.endStream()
		if err = o.g.again(ctx, o.fetch, n, err, func() bool { return true }); err != nil {
			return err
		}
	}
}

// streamOnce asks once. Its place in front of the origin is for the headers only: a slow reader must not hold up the
// others' misses. So is the bound on the time.
func (o *Object) streamOnce(ctx context.Context, want span) error {
	g := o.g
	t := newTicket(o.request.Object.Bucket, o.request.Client, false)
	if err := g.turn(ctx, t); err != nil {
		return err
	}
	defer g.queue.release(t)
	g.hedges.Request()
	opts := origin.GetOptions{Offset: want.off, Length: want.len, IfMatch: o.known.pin(), FirstByte: o.fetch.FirstByte}
	if want.len == o.Info.Size {
		opts.Length = 0
	}
	body, cut := context.WithCancel(o.ctx)
	o.cut = cut
	defer context.AfterFunc(ctx, cut)()
	q := &question{object: o.request.Object, fetch: o.fetch}
	resp, err := call(g, body, q, func() (*origin.Response, error) { return g.cfg.Origin.Get(body, q.object, opts) })
	switch {
	case errors.Is(err, origin.ErrRange):
		return fmt.Errorf("%w: it ends earlier now: %w", origin.ErrChanged, err)
	case errors.Is(err, origin.ErrNotFound):
		g.infos.missing(o.request.Object)
		return err
	case answers(err) && !errors.Is(err, origin.ErrChanged):
		g.infos.refuse(o.request.Object)
		return err
	case err != nil:
		return timedOut(ctx, err)
	}
	o.body = resp.Body
	return o.known.check(resp, want)
}

// endStream closes the body, if there is one.
func (o *Object) endStream() {
	if o.body != nil {
		_ = o.body.Close()
		o.body = nil
	}
	if o.cut != nil {
		o.cut()
		o.cut = nil
	}
}

// passOn writes the next bytes of the body.
func (o *Object) passOn(w io.Writer) (int, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	took, err := o.readStream(buf[:])
	if took == 0 {
		return 0, err
	}
	n, err := o.write(w, buf[:took])
	if n < took {
		o.endStream() // it can't go on where w has ended
	}
	return n, err
}

// readStream reads from the body: at least one byte, within the read's deadline, or an error. It returns neither when
// the rest of a block has broken off, or stands still for as long as one request may take: it is fetched as a block then,
// by as many requests as that takes, within what is left of the deadline.
func (o *Object) readStream(p []byte) (int, error) {
	p = p[:min(int64(len(p)), o.upto-o.at)]
	pinned, wait, began := o.known.version != nil, o.deadline, time.Now()
	if pinned {
		wait = sooner(wait, o.fetch.Attempt)
	}
	var late *time.Timer
	if wait > 0 {
		late = time.AfterFunc(wait, o.cut)
	}
	n, err := io.ReadAtLeast(o.body, p, 1)
	expired := late != nil && !late.Stop()
	if n > 0 || err == nil {
		return n, nil
	}
	err = o.g.bodyError(o.ctx, err)
	if expired && o.ctx.Err() == nil {
		err = fmt.Errorf("%w: nothing came within %v", origin.ErrTimeout, wait)
	}
	if pinned && retried(err) {
		o.endStream()
		o.broken = true
		if o.deadline > 0 {
			o.until = began.Add(o.deadline)
		}
		return 0, nil
	}
	return 0, fmt.Errorf("%w at byte %d of %v: %w", ErrInterrupted, o.Offset+o.at, o.request.Object, err)
}
