package s3api

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"golang.org/x/sync/errgroup"
)

// Another process of a cluster has ranges of one version of an object fetched, and gets no bytes of it:
//
//	POST /-/warm    {"bucket": "b", "key": "k", "etag": "\"…\"", "ranges": [[0, 1048576], …]}
//	204             when the blocks of these ranges, each an offset and a length in bytes, are held
//	412             when the object has another ETag
//	409             when it can't be held, as an object without a strong ETag
//
// The requester needs the rights Cluster and Read. Other errors are those of a read.

// maxWarmRanges bounds the ranges of one request.
const maxWarmRanges = 4096

// warmConcurrency is how many ranges of a request are fetched at a time: together they ask the origin for what a few
// readers do.
const warmConcurrency = 8

var warmOperation = operation{name: "Warm", method: http.MethodPost, right: Read | Cluster}

// warming is the body of a request.
type warming struct {
	Bucket string     `json:"bucket"`
	Key    string     `json:"key"`
	ETag   string     `json:"etag"`
	Ranges [][2]int64 `json:"ranges"`
}

var errCannotHold = &Error{Status: 409, Code: "NotCacheable", Message: "The object can't be held in blocks."}

// warm is POST /-/warm.
func (h *Handler) warm(x *exchange) error {
	if err := x.enter(&warmOperation); err != nil {
		return err
	}
	if x.who.grant.rights&Cluster == 0 {
		return errAccessDenied // before the body is read
	}
	what := new(warming)
	if err := x.readOwn(what); err != nil {
		return err
	}
	x.object.Object = origin.Object{Bucket: what.Bucket, Key: what.Key}
	if !validBucket(what.Bucket) {
		return errBucketName(what.Bucket)
	}
	if what.Key == "" || what.ETag == "" || len(what.Ranges) == 0 || len(what.Ranges) > maxWarmRanges {
		return errOwnBody("The body must have a key, an ETag and 1 to 4096 ranges.")
	}
	for _, r := range what.Ranges {
		if r[0] < 0 || r[1] <= 0 || r[0]+r[1] < 0 {
			return errOwnBody("A range must be an offset and a length that is not 0.")
		}
	}
	if !x.who.grant.onObject(Read|Cluster, &x.object.Object) {
		return errAccessDenied
	}
	ctx, cancel := x.context()
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(warmConcurrency)
	for _, r := range what.Ranges {
		g.Go(func() error { return x.warmRange(ctx, what, r[0], r[1]) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	x.begin(http.StatusNoContent, -1)
	return nil
}

// warmRange reads one range, for the sake of its blocks.
func (x *exchange) warmRange(ctx context.Context, what *warming, offset, length int64) error {
	rng := gateway.FromTo(offset, offset+length-1)
	o, err := x.h.gateway.Open(ctx, gateway.Request{
		Object: x.object.Object, Range: rng, Via: x.via, Client: x.client(), Routed: true,
		Check: func(info *origin.Info) (gateway.Range, error) {
			if info.ETag != what.ETag {
				return rng, errPrecondition("etag")
			}
			return rng, nil
		},
	})
	if err != nil {
		return err
	}
	defer o.Close()
	if o.Status == gateway.Bypass {
		return errCannotHold
	}
	if _, err := o.WriteTo(io.Discard); err != nil {
		return fmt.Errorf("warming: %w", err)
	}
	return nil
}
