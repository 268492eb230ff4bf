// Package client reads objects through a cluster of Ashlar nodes. Each routing unit of an object is asked of the node
// that owns it, of the next in its ranking when that one fails, and of an origin, if one is given, when two have
// failed; all bytes of one read are of one version of the object, or the read fails.
//
// A ClusterOrigin is an origin.Origin: package gateway on top of one gives a process a tier of its own in front of the
// cluster's. A node is an S3 endpoint, so each is spoken to by origin/s3origin, which checks every answer.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says which cluster, and how to speak to it. Everyone who reads through a cluster must have the same nodes and
// the same BlockSize, or blocks are held more than once.
type Config struct {
	// Members says where the nodes are learnt from. Its Registerer and Logger are those below where they are nil.
	Members cluster.MembershipConfig
	// BlockSize is the size of a routing unit in bytes, a multiple of the nodes' own block size; 0 means 1 MiB.
	BlockSize int64
	// ReadWindow is how many routing units one read has asked for at a time; 0 means 16.
	ReadWindow int
	// ReadAhead is how many bytes of these all reads together hold in memory before they are read; 0 means 64 MiB, and
	// less than 0 none. What there is no room for waits in its connection: a read is slower then where links to nodes are.
	ReadAhead int64
	// LoadLimit, DownFor and DownForMax are those of cluster.RouterConfig.
	LoadLimit           int
	DownFor, DownForMax time.Duration

	// TLS is what nodes are spoken to with; nil is plain HTTP. A certificate in it is shown to nodes that ask for one.
	// ServerName "" demands of each node the name that it was found by.
	TLS *tls.Config
	// Region and Credentials that requests are signed with.
	Region      string
	Credentials s3origin.Credentials
	// Instance, if set, names this process in Via, so that a loop can be seen.
	Instance string

	// FirstByte bounds the time from sending a request to one node to the headers of its answer, where the read has no
	// bound of its own (origin.GetOptions.FirstByte, which counts for each node asked); 0 means 5 s.
	FirstByte time.Duration
	// Hedge says when a second node is asked the same; nil never does.
	Hedge Hedge
	// Fallback is asked when two nodes have failed, or none is up; nil: all nodes are asked, one after the other. It
	// stays the caller's.
	Fallback origin.Origin

	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
}

// Client speaks to one cluster. Safe for concurrent use.
type Client struct {
	cfg     Config
	members *cluster.Membership
	router  *cluster.Router
	metrics *metrics
	log     *slog.Logger
	room    room

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // requests to nodes that are waited for by nobody else

	seen  atomic.Pointer[cluster.Snapshot] // that conns were last held against
	mu    sync.Mutex
	conns map[connKey]*conn // guarded by mu
}

// New returns a client. It asks DNS for the nodes, within ctx and 5 s, but no node; neither need be there yet. Errors
// say what is wrong with the configuration. Close the client.
func New(ctx context.Context, c Config) (*Client, error) {
	c.BlockSize = cmp.Or(c.BlockSize, 1<<20)
	c.ReadWindow = cmp.Or(c.ReadWindow, 16)
	c.LoadLimit = cmp.Or(c.LoadLimit, 256)
	c.ReadAhead = cmp.Or(c.ReadAhead, 64<<20)
	c.FirstByte = cmp.Or(c.FirstByte, 5*time.Second)
	if c.BlockSize < 0 || c.ReadWindow < 0 || c.LoadLimit < 0 || c.FirstByte < 0 {
		return nil, errors.New("client: BlockSize, ReadWindow, LoadLimit and FirstByte can't be negative")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Hedge == nil {
		c.Hedge = noHedge{}
	}
	if c.Members.Logger == nil {
		c.Members.Logger = c.Logger
	}
	if c.Members.Registerer == nil {
		c.Members.Registerer = c.Registerer
	}
	var err error
	if c.Credentials, c.Region, err = c.Credentials.Share(ctx, c.Region, c.Logger); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	l := &Client{cfg: c, log: c.Logger, conns: make(map[connKey]*conn)}
	l.room.limit, l.room.unit = c.ReadAhead, c.BlockSize
	if l.metrics, err = newMetrics(c.Registerer, &l.room); err != nil {
		return nil, err
	}
	if l.members, err = cluster.NewMembership(ctx, c.Members); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	l.router, err = cluster.NewRouter(cluster.RouterConfig{
		Membership: l.members, LoadLimit: c.LoadLimit, DownFor: c.DownFor, DownForMax: c.DownForMax,
		Probe: l.health, Registerer: c.Registerer, Logger: c.Logger,
	})
	if err != nil {
		l.members.Close()
		return nil, fmt.Errorf("client: %w", err)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Close ends what the client does in the background, reads that are still open too, and closes its connections. Bodies
// must still be closed.
func (c *Client) Close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.router.Close()
	c.members.Close()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range c.conns {
		n.s3.Close()
		delete(c.conns, key)
	}
}

// spawn runs f, which ends with the client's context, on a goroutine that Close waits for. One that begins later is of
// a body that the caller has yet to close.
func (c *Client) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		go f()
		return
	}
	c.wg.Go(f)
}

// Snapshot returns the nodes as they are known now.
func (c *Client) Snapshot() *cluster.Snapshot { return c.members.Snapshot() }

// Status returns what is known of the nodes.
func (c *Client) Status() []cluster.NodeStatus { return c.router.Status() }

// Range is a part of an object: bytes [Offset, Offset+Length). Length 0 is all from Offset on.
type Range struct{ Offset, Length int64 }

// end returns the offset behind the range.
func (r Range) end() int64 {
	if r.Length == 0 || r.Length > math.MaxInt64-r.Offset {
		return math.MaxInt64
	}
	return r.Offset + r.Length
}

// Placement says where one routing unit belongs.
type Placement struct {
	Index  int64          // of the unit: it begins at Index times the size of a unit
	Offset int64          // of the first byte that was asked for
	Length int64          // bytes of the unit that were asked for
	Nodes  []cluster.Node // by rank, the owner first
}

// maxPlacements bounds what Owners returns: a thousand units of the usual size are a gigabyte.
const maxPlacements = 1 << 20

// Owners says where the routing units of a range belong, whatever is known of the nodes' health. The range must have a
// length. No node is asked.
func (c *Client) Owners(bucket, key string, r Range) ([]Placement, error) {
	if r.Offset < 0 || r.Length <= 0 || r.Length > math.MaxInt64-r.Offset {
		return nil, fmt.Errorf("client: no such range: offset %d, length %d", r.Offset, r.Length)
	}
	first, last := r.Offset/c.cfg.BlockSize, (r.end()-1)/c.cfg.BlockSize
	if last-first >= maxPlacements {
		return nil, fmt.Errorf("client: the range has %d routing units, more than %d", last-first+1, maxPlacements)
	}
	s, k := c.Snapshot(), cluster.KeyOf(bucket, key)
	list := make([]Placement, 0, last-first+1)
	for i := first; i <= last; i++ {
		p := Placement{Index: i, Offset: max(r.Offset, i*c.cfg.BlockSize)}
		p.Length = min(r.end()-p.Offset, (i+1)*c.cfg.BlockSize-p.Offset)
		for _, n := range s.Rank(k.Unit(i)) {
			p.Nodes = append(p.Nodes, s.Node(n))
		}
		list = append(list, p)
	}
	return list, nil
}
