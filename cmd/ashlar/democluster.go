package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/ashlar-s3/ashlar/client"
)

// event is something that happens to the cluster of a check. What it costs is seen by a gateway that begins with
// nothing in memory, and reads the large object and some small ones.
type event struct {
	name    string
	members []int  // the nodes that the gateway knows
	during  func() // happens while it reads; nil for nothing
	gone    string // whose blocks have to be fetched anew, by whoever is next, as far as they are read afterwards
	comes   string // whose blocks have to be fetched anew, by itself
}

// checkCluster kills a node and adds one. It returns how many bytes were read; the error says what was not as it must
// be.
func (d *demo) checkCluster(ctx context.Context, transport *http.Transport, w io.Writer) (bytes int64, err error) {
	if err := d.addNode(ctx); err != nil {
		return 0, err
	}
	all := workload{}
	for kind, load := range d.workloads() {
		switch sampleKind(kind) {
		case sampleLarge:
			all.reads = append(all.reads, load.reads...)
		case sampleSmall:
			all.reads = append(all.reads, load.reads[:min(100, len(load.reads))]...)
		}
	}
	fmt.Fprintf(w, "\n%-53s  %8s  %8s %10s %9s\n", "The large and 100 small objects, by an empty gateway", "requests",
		"time", "bytes", "origin")
	var wrong []error
	var left int64 // blocks of a node that has gone, that nobody has fetched anew
	for _, e := range []event{
		{name: "three nodes", members: []int{0, 1, 2}},
		{name: "node-2 is killed meanwhile", members: []int{0, 1, 2}, during: d.nodes[1].s3.close, gone: "node-2"},
		{name: "node-4 takes its place", members: []int{0, 3, 2}, comes: "node-4"},
	} {
		t, share, err := d.happens(ctx, transport, e, all)
		least, most := share, share+left
		if e.gone != "" { // what was read before it went is not fetched anew yet
			least, left = 0, share-t.originRequests
		}
		fmt.Fprintf(w, "%-53s  %8d  %8s %10s %9d\n", e.name, len(all.reads), fmt.Sprintf("%d ms", t.took.Milliseconds()),
			amount(t.bytes), t.originRequests)
		bytes += t.bytes
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: %w", e.name, err))
		case t.originRequests < least || t.originRequests > most:
			wrong = append(wrong, fmt.Errorf("%s: %d requests to the origin, want %d to %d", e.name, t.originRequests, least,
				most))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return bytes, err
	}
	fmt.Fprint(w, `
The nodes held every block, so the gateway cost the origin nothing. When a node died, no read failed: the next in
the ranking fetched what it had held. When another came, it fetched its share, and nothing moved between the others.
`)
	return bytes, nil
}

// happens makes all reads through a gateway of its own. It also returns how many blocks are those of the node that
// goes or comes.
func (d *demo) happens(ctx context.Context, transport *http.Transport, e event, all workload) (
	t tally, share int64, err error) {
	c := *d.config
	c.Server.Listen, c.Server.Admin = "127.0.0.1:0", ""
	c.Cluster.Nodes = d.members(e.members...)
	gateway, err := startNode(ctx, &c, slog.New(slog.DiscardHandler)) // it is to meet a node that is gone
	if err != nil {
		return t, 0, err
	}
	defer gateway.stop()
	for _, r := range all.reads {
		units, err := gateway.cluster.Owners(demoBucket, r.object.key, client.Range{Length: r.length})
		if err != nil {
			return t, 0, err
		}
		for _, u := range units {
			if owner := u.Nodes[0].ID; owner == e.gone || owner == e.comes {
				share++
			}
		}
	}
	t, err = d.pass(ctx, transport, gateway, all, e.during)
	return t, share, err
}
