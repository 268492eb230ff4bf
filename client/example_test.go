package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
)

// Read through a cluster without a tier of one's own: each block comes from the node that owns it.
func ExampleClient_Origin() {
	addresses, stop := startNodes(3)
	defer stop()
	ctx := context.Background()

	var nodes []cluster.Node
	for i, addr := range addresses {
		nodes = append(nodes, cluster.Node{ID: fmt.Sprintf("node-%d", i), Addr: addr})
	}
	c, err := client.New(ctx, client.Config{
		Members:     cluster.MembershipConfig{Nodes: nodes}, // or SRV: "_s3._tcp.ashlar.default.svc.cluster.local"
		BlockSize:   1 << 20,
		Credentials: s3origin.Credentials{Source: s3origin.SourceAnonymous},
		Region:      "us-east-1",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	r, err := c.Origin("models").Get(ctx, origin.Object{Key: "weights.bin"},
		origin.GetOptions{Offset: 1 << 20, Length: 3 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Printf("%d of %d bytes, %v\n", n, r.Info.Size, err)

	owners, err := c.Owners("models", "weights.bin", client.Range{Offset: 1 << 20, Length: 3 << 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range owners {
		fmt.Printf("unit %d belongs to %s\n", o.Index, o.Nodes[0].ID)
	}
	// Output:
	// 3145728 of 5242880 bytes, <nil>
	// unit 1 belongs to node-1
	// unit 2 belongs to node-0
	// unit 3 belongs to node-1
}

// Embed the read engine over a cluster: the process has a tier of its own in front of the cluster's, without another
// process in between. What it holds is not asked of the cluster again.
func Example_embed() {
	addresses, stop := startNodes(3)
	defer stop()
	ctx := context.Background()

	var nodes []cluster.Node
	for _, addr := range addresses {
		nodes = append(nodes, cluster.Node{Addr: addr})
	}
	c, err := client.New(ctx, client.Config{
		Members:     cluster.MembershipConfig{Nodes: nodes},
		Credentials: s3origin.Credentials{Source: s3origin.SourceAnonymous},
		Region:      "us-east-1",
		Hedge:       client.AdaptiveHedge(3, 50*time.Millisecond, 2*time.Second, 16),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	tier, err := memory.New(memory.Config{Limit: 64 << 20, MaxBlock: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer tier.Close()
	policy := &gateway.Policy{BlockSize: 1 << 20, FetchWindow: 4, ReadWindow: 8, TTL: time.Minute}
	engine, err := gateway.New(gateway.Config{
		Origin:       c.Origin(""),
		Memory:       tier,
		Policy:       func(bucket string) *gateway.Policy { return policy },
		CachesBehind: true, // the nodes'
	})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	for range 2 {
		o, err := engine.Open(ctx, gateway.Request{Object: origin.Object{Bucket: "models", Key: "weights.bin"}})
		if err != nil {
			log.Fatal(err)
		}
		var b bytes.Buffer
		_, err = o.WriteTo(&b)
		fmt.Printf("%d bytes, %v: %v\n", b.Len(), err, o.Status)
		o.Close()
	}
	// Output:
	// 5242880 bytes, <nil>: miss
	// 5242880 bytes, <nil>: hit
}
