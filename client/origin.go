package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
)

// ClusterOrigin is an origin.Origin over the nodes of a cluster. Safe for concurrent use.
type ClusterOrigin struct {
	c      *Client
	bucket string
}

var _ origin.Origin = (*ClusterOrigin)(nil)

// Origin returns the cluster as an origin of one bucket's objects, which may leave their Bucket empty, or with "" of
// the objects of all buckets. It ends with the client.
func (c *Client) Origin(bucket string) *ClusterOrigin { return &ClusterOrigin{c, bucket} }

// object completes the name of an object.
func (o *ClusterOrigin) object(obj origin.Object) (origin.Object, error) {
	obj.Bucket = cmp.Or(obj.Bucket, o.bucket)
	if obj.Bucket == "" || obj.Key == "" || o.bucket != "" && obj.Bucket != o.bucket {
		return obj, fmt.Errorf("client: %v is no object of this origin", obj)
	}
	return obj, nil
}

// begin returns the context of a read, which the client's end ends too, and what releases it.
func (c *Client) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// Head implements origin.Origin. The owner of the object's first routing unit is asked.
func (o *ClusterOrigin) Head(ctx context.Context, obj origin.Object, opts origin.HeadOptions) (*origin.Info, error) {
	obj, err := o.object(obj)
	if err != nil {
		return nil, err
	}
	ctx, cancel := o.c.begin(ctx)
	defer cancel()
	q := &question{unit: cluster.KeyOf(obj.Bucket, obj.Key).Unit(0), object: obj, head: true,
		opts: origin.GetOptions{NoCache: opts.NoCache, FirstByte: cmp.Or(opts.FirstByte, o.c.cfg.FirstByte)}}
	var tried []string
	r := o.c.route(ctx, q, &tried)
	r.close()
	return r.info, r.err
}

// Get implements origin.Origin. The first routing unit of the range tells size and ETag, the others are asked for with
// If-Match, up to Config.ReadWindow at a time, and their bytes come in order. A read that is pinned asks for them
// together with the first. An object without a strong ETag, which nothing can pin, is read by one request to one node.
// A body that breaks off is continued by another node where its version is pinned. A Read that fails with ErrChanged,
// of an object that was overwritten behind the nodes, has had the first unit's owner ask its origin: the next Get
// begins with what is there now. A Get that is pinned by IfMatch leaves that to its caller. opts.FirstByte bounds each
// node that is asked, not all of them together.
func (o *ClusterOrigin) Get(ctx context.Context, obj origin.Object, opts origin.GetOptions) (*origin.Response, error) {
	obj, err := o.object(obj)
	if err != nil {
		return nil, err
	}
	if opts.Offset < 0 || opts.Length < 0 || opts.Offset > 0 && opts.Length == 0 {
		return nil, fmt.Errorf("client: no such range: offset %d, length %d", opts.Offset, opts.Length)
	}
	opts.FirstByte = cmp.Or(opts.FirstByte, o.c.cfg.FirstByte)
	b := &body{
		c: o.c, object: obj, key: cluster.KeyOf(obj.Bucket, obj.Key), firstByte: opts.FirstByte,
		start: opts.Offset, pinned: opts.IfMatch != "", next: opts.Offset, end: Range{opts.Offset, opts.Length}.end(),
		opened: make(chan struct{}),
	}
	b.ctx, b.cancel = o.c.begin(ctx)
	resp, err := b.open(opts)
	if resp == nil || resp.Body == nil {
		_ = b.Close()
	}
	return resp, err
}

// open asks for the first unit, for more where the version is known, and makes the response.
func (b *body) open(opts origin.GetOptions) (*origin.Response, error) {
	whole := opts.Length == 0
	first := b.part()
	first.skip()
	first.q.whole = true
	first.q.opts.NoCache, first.q.opts.IfMatch, first.q.opts.IfNoneMatch = opts.NoCache, opts.IfMatch, opts.IfNoneMatch
	first.start()
	if strong(opts.IfMatch) && !whole {
		b.etag = opts.IfMatch
		b.fill()
	}
	r, err := first.reply()
	if whole && errors.Is(err, origin.ErrRange) {
		r, err = b.single(origin.GetOptions{IfMatch: opts.IfMatch, IfNoneMatch: opts.IfNoneMatch}) // empty, most likely
	}
	if err != nil {
		return nil, err
	}
	if info := &r.resp.Info; !r.resp.NotModified && r.resp.Offset+r.resp.Length < min(b.end, info.Size) && !info.Strong() {
		one := opts
		if whole {
			one = origin.GetOptions{NoCache: opts.NoCache}
		}
		if r, err = b.single(one); err != nil {
			return nil, err
		}
	}
	resp := *r.resp
	if resp.NotModified {
		return &resp, nil
	}
	b.size, b.etag = resp.Info.Size, resp.Info.ETag
	if !resp.Info.Strong() {
		b.etag = ""
	}
	if resp.Offset != opts.Offset { // the range was ignored: the caller sees it by the offset
		b.end = b.size
	}
	b.end = min(b.end, b.size)
	b.arrived(resp.Offset, resp.Offset+resp.Length)
	resp.Length, resp.Body = b.end-resp.Offset, b
	close(b.opened)
	b.fill()
	return &resp, nil
}

// strong says whether an ETag can pin a version.
func strong(tag string) bool { return (&origin.Info{ETag: tag}).Strong() }

// question asks for bytes [off, end), which lie in one routing unit, or begin in it.
func (b *body) question(off, end int64) *question {
	q := &question{unit: b.key.Unit(off / b.c.cfg.BlockSize), object: b.object,
		opts: origin.GetOptions{Offset: off, Length: end - off, IfMatch: b.etag, FirstByte: b.firstByte}}
	q.check = q.judge
	return q
}

// judge holds an answer against the question: it is of the version that was asked for, and brings what was asked for,
// or the whole object where that will do.
func (q *question) judge(resp *origin.Response) error {
	o, size := &q.opts, resp.Info.Size
	end := int64(math.MaxInt64)
	if o.Length > 0 {
		end = o.Offset + o.Length
	}
	switch {
	case strong(o.IfMatch) && resp.Info.ETag != o.IfMatch:
		return fmt.Errorf("%w: asked for %s, got %s", origin.ErrChanged, o.IfMatch, resp.Info.ETag)
	case q.whole && resp.Offset == 0 && resp.Length == size:
	case resp.Offset != o.Offset || resp.Length != min(end, size)-o.Offset:
		return fmt.Errorf("%w: asked for %d bytes from %d on, got %d from %d of %d",
			origin.ErrBadAnswer, o.Length, o.Offset, resp.Length, resp.Offset, size)
	}
	return nil
}
