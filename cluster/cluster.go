// Package cluster says which node of a cluster a block belongs to. Everyone who knows the same nodes routes alike,
// whatever the order of his list, his machine and his clock; a node that comes takes its share from all others and one
// that leaves gives its blocks to all others, and nothing moves between those that stay. What a client learns on its
// own, that a node is full or down, moves requests to the next in the block's ranking and never changes the ranking.
//
// A Membership knows the nodes, as a list or from DNS, and hands out Snapshots, which are immutable. A Router adds what
// this process knows of their health and load. The package knows no S3 and no HTTP.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Node is one node of a cluster.
type Node struct {
	// ID is what is hashed: the node's blocks are those of its ID, whatever its address.
	ID string
	// Addr is where it is reached, host:port. "" is a node whose address is not known yet: it has its place in the
	// ranking and is passed over.
	Addr string
	// Name is the host name that the node's certificate must bear, where that is not the host of Addr: of nodes found
	// by SRV, the target. "" otherwise.
	Name string
	// Weight is the node's share in relation to the others', at most MaxWeight. 0 counts as 1.
	Weight int
}

// MaxWeight is the largest weight of a node, as in SRV records (RFC 2782).
const MaxWeight = 1<<16 - 1

// ServerName returns the name that a certificate of the node must bear.
func (n Node) ServerName() string {
	if n.Name != "" {
		return n.Name
	}
	host, _, err := net.SplitHostPort(n.Addr)
	if err != nil {
		return n.Addr
	}
	return host
}

// Snapshot is one view of the nodes. It is immutable and safe for concurrent use.
type Snapshot struct {
	nodes   []Node   // by ID; weights divided by their greatest common divisor
	hashes  []uint64 // of the IDs
	weights []uint64
	log     *logTable // nil where all weights are equal
	digest  string
}

// NewSnapshot returns the snapshot of a list of nodes, in any order. An entry that stands there twice counts once; two
// entries of one ID that differ otherwise are an error, as are a node without ID and a weight out of range.
func NewSnapshot(nodes []Node) (*Snapshot, error) {
	s := &Snapshot{nodes: slices.Clone(nodes)}
	common := 0
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.ID == "" {
			return nil, fmt.Errorf("cluster: node %q has no ID", n.Addr)
		}
		if n.Weight < 0 || n.Weight > MaxWeight {
			return nil, fmt.Errorf("cluster: node %s: weight %d is not between 0 and %d", n.ID, n.Weight, MaxWeight)
		}
		n.Weight = max(n.Weight, 1)
		common = gcd(common, n.Weight)
	}
	slices.SortFunc(s.nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	s.nodes = slices.Compact(s.nodes)
	for i := range s.nodes {
		n := &s.nodes[i]
		if i > 0 && n.ID == s.nodes[i-1].ID {
			return nil, fmt.Errorf("cluster: two nodes have the ID %s", n.ID)
		}
		n.Weight /= common
		s.hashes = append(s.hashes, xxhash.Sum64String(n.ID))
		s.weights = append(s.weights, uint64(n.Weight))
		if n.Weight != s.nodes[0].Weight && s.log == nil {
			s.log = newLogTable()
		}
	}
	s.digest = digest(s.nodes)
	return s, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// digest names a set of nodes: 64-bit xxHash, in hex, of the algorithm's name and, of each node by ascending ID, the
// length of its ID in bytes, the ID and its weight. Addresses are not in it: they change nothing about the routing.
func digest(nodes []Node) string {
	p := []byte(algorithm + "\n")
	for i := range nodes {
		p = strconv.AppendInt(p, int64(len(nodes[i].ID)), 10)
		p = append(p, ':')
		p = append(p, nodes[i].ID...)
		p = append(p, ' ')
		p = strconv.AppendInt(p, int64(nodes[i].Weight), 10)
		p = append(p, '\n')
	}
	return fmt.Sprintf("%016x", xxhash.Sum64(p))
}

// Digest names what the routing depends on: the algorithm, the IDs and the weights. Two processes that show the same
// one route alike.
func (s *Snapshot) Digest() string { return s.digest }

// Len returns how many nodes there are.
func (s *Snapshot) Len() int { return len(s.nodes) }

// Node returns the i-th node by ascending ID. Its weight is in lowest terms.
func (s *Snapshot) Node(i int) Node { return s.nodes[i] }

// Nodes returns all nodes by ascending ID, in a slice of the caller's own.
func (s *Snapshot) Nodes() []Node { return slices.Clone(s.nodes) }

// ErrNoNodes says that the cluster has no nodes that are known of.
var ErrNoNodes = errors.New("no nodes of the cluster are known")
