package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

const (
	clusterNodes = 3
	// Of each node: all of what is hit, should one own most of it, and what is read for the first time.
	memoryNode = 384 << 20
)

// nodes are those behind the gateways, which the first gateway starts.
type nodes struct {
	addrs []string
	procs []*proc.Process
}

func (b *bench) startCluster(ctx context.Context, c *nodes) error {
	for len(c.procs) < clusterNodes {
		n, err := node.Start(ctx, node.Options{
			Binary: b.ashlar, Dir: b.dir, Origin: "http://" + b.origin.addr, Memory: sizeName(memoryNode), Extra: unconfirmed,
			Key: key, Rights: "read = true\ncluster = true",
		})
		if err != nil {
			return err
		}
		b.started = append(b.started, n.Process)
		c.procs, c.addrs = append(c.procs, n.Process), append(c.addrs, fmt.Sprintf("%q", n.Addr))
	}
	return nil
}

// startGateway starts a gateway with memory of its own in front of nodes, everything signed, as a contestant whose cost
// is that of all of them. Where its memory is small, hits come from the nodes, and reads of what nobody has seen are
// left out: there is no room to read ahead in. Nothing is hedged: on a busy machine a second request, to a node that
// does not own the block, would go to the origin in the middle of hits.
func (b *bench) startGateway(ctx context.Context, n *nodes, name string, memory int64) error {
	if err := b.startCluster(ctx, n); err != nil {
		return err
	}
	c := contestant{
		name: name, key: key, procs: slices.Clone(n.procs), limit: memory + clusterNodes*memoryNode, warm: true,
		cold: memory > memoryBefore,
	}
	if memory <= memoryBefore {
		c.below = belowNodes
	}
	return b.startNode(ctx, c, node.Options{
		Memory: sizeName(memory), Key: key,
		Extra: unconfirmed + fmt.Sprintf("[cluster]\nnodes = [%s]\nhedge = false\n"+
			"credentials = { source = \"static\", access_key = %q, secret_key = %q }\n",
			strings.Join(n.addrs, ", "), key.Access, key.Secret),
	})
}
