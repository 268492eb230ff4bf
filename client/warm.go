package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
)

// What processes of a cluster ask of each other besides reads, as signed requests whose signature covers the body:
//
//	POST /-/warm         {"bucket": "b", "key": "k", "etag": "\"…\"", "ranges": [[0, 1048576], …]}
//	204                  when the blocks of these ranges, each an offset and a length, are held
//
//	POST /-/invalidate   {"bucket": "b", "keys": ["k", …]}
//	200                  see s3api
//
// They are JSON, so what a key holds must be UTF-8.

type warmRequest struct {
	Bucket string     `json:"bucket"`
	Key    string     `json:"key"`
	ETag   string     `json:"etag"`
	Ranges [][2]int64 `json:"ranges"`
}

type invalidateRequest struct {
	Bucket string   `json:"bucket"`
	Keys   []string `json:"keys"`
}

// warmUnits bounds the routing units of one round of Warm: as many are asked for before the first answer.
const warmUnits = 1024

// Warm lets the owners fetch ranges of an object, and returns when they hold them; without ranges it is the whole
// object. What a node does not hold afterwards is in the error, and errors.Is finds ErrNotFound and ErrChanged of
// package origin in it: an object that changes meanwhile is not warm. No bytes come here.
func (c *Client) Warm(ctx context.Context, bucket, key string, ranges ...Range) error {
	if !utf8.ValidString(key) {
		return errors.New("client: only keys in UTF-8 can be warmed")
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	info, err := c.Origin(bucket).Head(ctx, origin.Object{Bucket: bucket, Key: key}, origin.HeadOptions{})
	if err != nil {
		return err
	}
	if !info.Strong() {
		return fmt.Errorf("client: s3://%s/%s has no strong ETag and can't be held", bucket, key)
	}
	if len(ranges) == 0 {
		ranges = []Range{{}}
	}
	k, unit := cluster.KeyOf(bucket, key), c.cfg.BlockSize
	var batch []Range // of one unit each
	var errs []error
	flush := func() {
		if err := c.warm(ctx, k, warmRequest{Bucket: bucket, Key: key, ETag: info.ETag}, batch); err != nil {
			errs = append(errs, err)
		}
		batch = batch[:0]
	}
	for _, r := range ranges {
		if r.Offset < 0 || r.Length < 0 {
			return fmt.Errorf("client: no such range: offset %d, length %d", r.Offset, r.Length)
		}
		end := min(r.end(), info.Size)
		for off := r.Offset; off < end; {
			n := min(end-off, unit-off%unit)
			batch = append(batch, Range{off, n})
			if off += n; len(batch) == warmUnits {
				if flush(); ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
	}
	flush()
	return errors.Join(errs...)
}

// warm sends one request to each node that owns any of the units, and to the next in rank what a node has failed to do.
func (c *Client) warm(ctx context.Context, k cluster.Key, req warmRequest, units []Range) error {
	var tried []string
	var last error // of those
	for len(units) > 0 {
		type share struct {
			lease *cluster.Lease
			units []Range
			again bool
			err   error
		}
		shares := map[string]*share{}
		for _, u := range units {
			lease, err := c.router.Pick(k.Unit(u.Offset/c.cfg.BlockSize), tried...)
			if err != nil {
				err = cmp.Or(last, err)
				return fmt.Errorf("client: %d routing units of s3://%s/%s could not be warmed: %w", len(units), req.Bucket,
					req.Key, err)
			}
			s := shares[lease.Node.ID]
			if s == nil {
				s = &share{lease: lease}
				shares[lease.Node.ID] = s
			} else {
				lease.Done() // one request, however many units
			}
			s.units = append(s.units, u)
		}
		var wg sync.WaitGroup
		for _, s := range shares {
			wg.Go(func() {
				defer s.lease.Done()
				body := req
				for _, u := range s.units {
					body.Ranges = append(body.Ranges, [2]int64{u.Offset, u.Length})
				}
				s.again, s.err = c.post(ctx, s.lease, opWarm, body)
			})
		}
		wg.Wait()
		units = nil
		for id, s := range shares {
			switch {
			case s.err == nil:
			case !s.again:
				return s.err
			default:
				tried, last = append(tried, id), ofNode(id, s.err)
				units = append(units, s.units...)
			}
		}
		slices.SortFunc(units, func(a, b Range) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return nil
}

// invalidateFor bounds what Invalidate takes.
const invalidateFor = 2 * time.Second

// Invalidate tells all nodes that are up to forget what they know of objects, as after a write. It takes 2 s at most;
// the error says which nodes did not confirm it. Reads are right without it: nodes ask again after their ttl.
func (c *Client) Invalidate(ctx context.Context, bucket string, keys ...string) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return !utf8.ValidString(k) })
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	ctx, stop := context.WithTimeoutCause(ctx, invalidateFor,
		fmt.Errorf("%w: not confirmed in %v", origin.ErrTimeout, invalidateFor))
	defer stop()
	nodes := c.router.All()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, lease := range nodes {
		wg.Go(func() {
			defer lease.Done()
			_, err := c.post(ctx, lease, opInvalidate, invalidateRequest{bucket, keys})
			if err == nil {
				return
			}
			errs[i] = fmt.Errorf("client: %w", ofNode(lease.Node.ID, err))
			if ctx.Err() != nil && errors.Is(err, origin.ErrTimeout) { // it stands still, which reads may not have met yet
				c.metrics.answered(lease.Node.ID, opInvalidate, 0)
				c.metrics.errors.WithLabelValues(lease.Node.ID, whyTimeout).Inc()
				lease.Failed(cluster.Timeout, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ofNode names the node in an error, unless it names it already.
func ofNode(id string, err error) error {
	if errors.Is(err, origin.ErrCredentials) {
		return err
	}
	return fmt.Errorf("node %s: %w", id, err)
}

// post sends a request of our own to a node. again says that its error is trouble of the node.
func (c *Client) post(ctx context.Context, lease *cluster.Lease, op string, what any) (again bool, err error) {
	n, err := c.conn(lease.Node)
	if err != nil {
		return !errors.Is(err, errClosed), err
	}
	body, err := json.Marshal(what)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(body)
	req := &http.Request{
		Method: http.MethodPost, URL: new(url.URL), Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}, "User-Agent": {"ashlar"},
			"X-Amz-Content-Sha256": {hex.EncodeToString(sum[:])}},
	}
	note := new(said)
	began := time.Now()
	// "-" is no bucket: the path is /-/op.
	resp, err := n.s3.Forward(context.WithValue(ctx, saidKey{}, note), req, "-", op)
	if ctx.Err() != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		return false, ended(ctx)
	}
	r := &reply{lease: lease}
	if err != nil {
		c.metrics.answered(lease.Node.ID, op, 0)
		c.judge(r, note, nil, time.Since(began), err)
		return r.again, err
	}
	defer resp.Body.Close()
	c.metrics.answered(lease.Node.ID, op, resp.StatusCode)
	var answer *origin.Error
	switch {
	case note.alien:
		err = alienError(resp.StatusCode)
	case resp.StatusCode >= 300:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, origin.MaxErrorBody))
		answer = &origin.Error{Status: resp.StatusCode, Body: text}
		err = fmt.Errorf("POST /-/%s: %w: %s", op, answer, strings.TrimSpace(string(text)))
	default:
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, math.MaxUint16))
	}
	if answer == nil || note.node { // how long such an answer takes says nothing of reads
		c.judge(r, note, answer, 0, err)
	}
	return r.again, err
}
