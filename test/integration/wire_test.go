//go:build integration

package integration

import (
	"testing"

	"github.com/ashlar-s3/ashlar/internal/s3wiretest"
	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// smallBlocks makes objects of the wire suite span several blocks.
func smallBlocks(o *node.Options) { o.Extra = "[buckets]\nblock_size = \"64 KiB\"" }

func endpoint(url string, key node.Key) s3wiretest.Endpoint {
	return s3wiretest.Endpoint{URL: url, AccessKey: key.Access, SecretKey: key.Secret, Region: region}
}

// The suite through the built node to the project's own server: no row may be skipped.
func TestWire(t *testing.T) {
	o := newCountedOrigin(t)
	n := newNode(t, o.url, smallBlocks)
	s3wiretest.Run(t, s3wiretest.Target{
		Endpoint: endpoint(n.URL(), clientKey), Origin: endpoint(o.url, originKey), Warm: true,
	})
}

// The suite against versitygw itself, and through a node: what versitygw passes, it passes through the node too.
func TestWireVersitygw(t *testing.T) {
	p := newPair(t, smallBlocks)
	origin := endpoint(p.origin.url(), originKey)
	t.Run("direct", func(t *testing.T) {
		s3wiretest.Run(t, s3wiretest.Target{Endpoint: origin, Skips: faultsOfVersitygw})
	})
	t.Run("through", func(t *testing.T) {
		for name := range faultsThrough {
			if _, ok := faultsOfVersitygw[name]; !ok {
				t.Errorf("%s passes at versitygw and is skipped through the node", name)
			}
		}
		s3wiretest.Run(t, s3wiretest.Target{
			Endpoint: endpoint(p.node.URL(), clientKey), Origin: origin, Warm: true, Skips: faultsThrough,
		})
	})
}

// faultsOfVersitygw are rows that version 1.8.0 does not pass, and why.
var faultsOfVersitygw = map[string]string{}

// faultsThrough are those of them that a node in front can't mend, as the answer is the origin's.
var faultsThrough = map[string]string{}
