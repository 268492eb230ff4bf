package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/prometheus/client_golang/prometheus"
)

// dialTimeout bounds connecting to a node, and the TLS handshake by itself: nodes are near.
const dialTimeout = 2 * time.Second

// connKey is a process: a node at an address.
type connKey struct{ id, addr, name string }

// conn is how one node is spoken to.
type conn struct {
	c    *Client
	node cluster.Node
	s3   *s3origin.Origin
	base http.RoundTripper // the transport below s3, for requests that aren't signed

	bytes     prometheus.Counter
	firstByte prometheus.Observer
	odd       atomic.Bool // its block size has been complained about
	stranger  atomic.Bool // that it does not listen to us has been
	alien     atomic.Bool // that something else answers for it has been
}

// s3Config says how a node is spoken to.
func (c *Client) s3Config(n cluster.Node) s3origin.Config {
	s := s3origin.Config{
		Endpoint: "http://" + n.Addr, Region: c.cfg.Region, Credentials: c.cfg.Credentials, Instance: c.cfg.Instance,
		MaxIdleConns: c.cfg.LoadLimit, DialTimeout: dialTimeout, Logger: c.log,
		Name: "node " + n.ID, Section: "cluster", Refused: ownWord,
	}
	if c.cfg.TLS != nil {
		s.Endpoint = "https://" + n.Addr
		s.TLS = c.cfg.TLS.Clone()
		if s.TLS.ServerName == "" {
			s.TLS.ServerName = n.ServerName()
		}
		if s.TLS.MinVersion == 0 {
			s.TLS.MinVersion = tls.VersionTLS12
		}
	}
	return s
}

// conn returns how a node is spoken to. Those of nodes that have gone are given up.
func (c *Client) conn(n cluster.Node) (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.Snapshot(); c.seen.Swap(s) != s {
		c.prune(s)
	}
	key := connKey{n.ID, n.Addr, n.Name}
	if found := c.conns[key]; found != nil {
		return found, nil
	}
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	made := &conn{c: c, node: n, bytes: c.metrics.bytes.WithLabelValues(n.ID),
		firstByte: c.metrics.firstByte.WithLabelValues(n.ID)}
	config := c.s3Config(n)
	config.Wrap = func(base http.RoundTripper) http.RoundTripper {
		made.base = base
		return made
	}
	var err error
	if made.s3, err = s3origin.New(c.ctx, config); err != nil {
		return nil, fmt.Errorf("client: node %s: %w", n.ID, err)
	}
	c.conns[key] = made
	return made, nil
}

// prune gives up the connections to processes that are not in s, and the metrics of nodes that are not. c.mu is held.
func (c *Client) prune(s *cluster.Snapshot) {
	ids, present := make(map[string]bool, s.Len()), make(map[connKey]bool, s.Len())
	for i := range s.Len() {
		n := s.Node(i)
		ids[n.ID], present[connKey{n.ID, n.Addr, n.Name}] = true, true
	}
	for key, gone := range c.conns {
		if present[key] {
			continue
		}
		gone.s3.Close() // requests under way go on
		delete(c.conns, key)
		if !ids[key.id] {
			c.metrics.forget(key.id)
		}
	}
}

// said is what an answer said beside its contents. It goes with the context of a request, and belongs to whoever sent
// it.
type said struct {
	sent       bool // the request came as far as the transport
	status     int  // of the answer
	node       bool // the error is the node's own and not its origin's
	stale      bool // it answered by what it could not confirm any more
	stranger   bool // it takes us for any client
	alien      bool // it is no answer of a node, or of anything that speaks S3
	retryAfter time.Duration
}

type saidKey struct{}

// RoundTrip implements http.RoundTripper: it adds to a signed request what processes of a cluster tell each other.
func (n *conn) RoundTrip(req *http.Request) (*http.Response, error) {
	note, _ := req.Context().Value(saidKey{}).(*said)
	if note == nil {
		note = new(said)
	}
	note.sent = true
	req.Header["X-Ashlar-Routed"] = []string{"1"}
	if deadline, ok := req.Context().Deadline(); ok {
		left := max(1, time.Until(deadline).Milliseconds())
		req.Header["X-Ashlar-Deadline"] = []string{strconv.FormatInt(left, 10)}
	}
	resp, err := n.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	note.status, note.node = resp.StatusCode, ownWord(resp.Header)
	note.stale = strings.HasPrefix(resp.Header.Get("X-Ashlar-Cache"), "stale")
	note.retryAfter = retryAfter(resp.Header)
	n.checkBlockSize(resp.Header.Get("X-Ashlar-Block-Size"))
	note.stranger = n.checkPeer(resp)
	note.alien = !note.node && n.checkS3(resp)
	return resp, nil
}

// checkS3 complains of an error that comes from something else than a node, since it has no request id: its 404 says
// nothing of an object.
func (n *conn) checkS3(resp *http.Response) (alien bool) {
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusNotModified || resp.StatusCode == http.StatusLoopDetected ||
		resp.Header.Get("X-Amz-Request-Id") != "" {
		return false
	}
	if !n.alien.Swap(true) {
		n.c.log.Warn("what answers as node "+n.node.ID+" is none: its address must be that of server.listen, not of "+
			"server.admin, and nothing between may answer for it", "address", n.node.Addr, "status", resp.StatusCode)
	}
	return true
}

// ownWord says whether a failure or refusal is a node's own, and not its origin's.
func ownWord(h http.Header) bool { return h.Get("X-Ashlar-Error") == "node" }

// checkPeer complains of a node that takes us for any client, which its answer from blocks shows by keeping their size
// to itself. It does not hear of writes then, nor that it is to confirm what it remembers.
func (n *conn) checkPeer(resp *http.Response) (stranger bool) {
	found, _, _ := strings.Cut(resp.Header.Get("X-Ashlar-Cache"), ";")
	if resp.StatusCode/100 != 2 || found != "hit" && found != "miss" && found != "partial" && found != "stale" ||
		resp.Header.Get("X-Ashlar-Block-Size") != "" {
		return false
	}
	n.c.metrics.strangers.Inc()
	if !n.stranger.Swap(true) {
		n.c.log.Warn("node " + n.node.ID + " takes us for any client and ignores what it is told of writes: the key that " +
			"cluster.credentials name needs cluster = true there")
	}
	return true
}

// retryAfter is Retry-After in seconds; without one that is a number it is a second.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return time.Second
	}
	return time.Duration(s) * time.Second
}

// checkBlockSize complains of a node whose block size does not divide the routing unit: blocks at the units' edges are
// held by two nodes.
func (n *conn) checkBlockSize(s string) {
	size, err := strconv.ParseInt(s, 10, 64)
	if err != nil || size > 0 && n.c.cfg.BlockSize%size == 0 {
		return
	}
	n.c.metrics.blockSize.Inc()
	if !n.odd.Swap(true) {
		n.c.log.Warn("the block size of node "+n.node.ID+" does not divide the routing unit; blocks at its edges are "+
			"fetched twice", "block_size", size, "routing_unit", n.c.cfg.BlockSize)
	}
}

// health asks whether a node serves.
func (c *Client) health(ctx context.Context, node cluster.Node) error {
	n, err := c.conn(node)
	if err != nil {
		return err
	}
	scheme := "http"
	if c.cfg.TLS != nil {
		scheme = "https"
	}
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: scheme, Host: node.Addr, Path: "/-/health"},
		Header: http.Header{"User-Agent": {"ashlar"}}}
	resp, err := n.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health check answered %d", resp.StatusCode)
	}
	return nil
}

var errClosed = errors.New("client: closed")
