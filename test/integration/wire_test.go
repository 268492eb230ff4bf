//go:build integration

package integration

import (
	"maps"
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
		s3wiretest.Run(t, s3wiretest.Target{
			Endpoint: endpoint(p.node.URL(), clientKey), Origin: origin, Warm: true, Skips: faultsThrough,
		})
	})
}

// faultsOfVersitygw are the rows that version 1.8.0 does not pass, and why.
var faultsOfVersitygw = join(mendedFaults, faultsThrough)

// mendedFaults are those that a node in front mends: what it answers itself is right whatever the origin would say.
var mendedFaults = reasons(map[string][]string{
	"a 416 has no Content-Range": {
		"range/one-byte-object-behind", "range/suffix-zero", "range/start-at-end", "range/start-beyond",
		"range/largest-start", "range/R04-empty-0-0", "range/R04-empty-0-on", "range/R04-empty-0-99",
		"range/R04-empty-5-9", "range/R05-empty-suffix-zero", "range/R09-at-end", "range/R09-behind-end",
		"range/R09-behind-two-blocks", "range/R09-block-behind-two-blocks", "range/R09-behind-two-blocks-and-byte",
		"head-range/one-byte-object-behind", "head-range/suffix-zero", "head-range/start-at-end",
		"head-range/start-beyond", "head-range/largest-start", "head-range/R04-empty-0-0", "head-range/R04-empty-0-on",
		"head-range/R04-empty-0-99", "head-range/R04-empty-5-9", "head-range/R05-empty-suffix-zero",
		"head-range/R09-at-end", "head-range/R09-behind-end", "head-range/R09-behind-two-blocks",
		"head-range/R09-block-behind-two-blocks", "head-range/R09-behind-two-blocks-and-byte",
		"condition/bad-range-if-match", "head-condition/bad-range-if-match", "error/invalid-range",
	},
	"a number with a sign is a range": {
		"range/R06-plus-of-0", "range/R06-plus-of-10", "range/R06-plus-of-196608",
		"head-range/R06-plus-of-0", "head-range/R06-plus-of-10", "head-range/R06-plus-of-196608",
	},
	"a 304 has no ETag": {
		"condition/304-headers", "condition/V02-before-bad-range-304", "condition/V02-multipart-etag",
		"condition/if-match-and-if-none-match", "condition/if-none-match", "condition/if-none-match-any",
		"condition/if-none-match-hit-modified", "condition/if-none-match-unquoted", "condition/range-if-none-match",
		"head-condition/V02-before-bad-range-304", "head-condition/if-match-and-if-none-match",
		"head-condition/if-none-match", "head-condition/if-none-match-any", "head-condition/if-none-match-hit-modified",
		"head-condition/if-none-match-unquoted", "head-condition/range-if-none-match", "error/R13-connection-stays-usable",
		"version/conditions", "presigned/conditions",
	},
	"dates are compared below a second": {
		"condition/if-match-true-and-not-modified", "condition/if-modified-since-same-second",
		"condition/if-unmodified-since-same-second", "condition/range-not-modified",
		"head-condition/if-match-true-and-not-modified", "head-condition/if-modified-since-same-second",
		"head-condition/if-unmodified-since-same-second", "head-condition/range-not-modified",
	},
	"If-Range is not known":                 {"if-range/*"},
	"a checksum of the whole is on a 206":   {"checksum/*"},
	"versionId=null is not found":           {"version/null"},
	"errors have no Resource":               {"error/precondition-failed"},
	"a key longer than 1024 bytes is 404":   {"key/1025-bytes"},
	"authentication in two places is taken": {"auth/A04-two-authorizations", "auth/A04-header-and-query"},
	"other codes for what is no SigV4":      {"auth/A04-sigv2-header", "auth/sigv4a"},
	"the message ends in a full stop":       {"presigned/A03-expired", "presigned/A03-expired-a-minute-ago"},
	"a URL of the future is good already":   {"presigned/A03-not-yet-valid"},
})

// faultsThrough are those that a node can't mend, as the answer is the origin's.
var faultsThrough = reasons(map[string][]string{
	"lists of tags and weak ones are forwarded, and versitygw knows neither": {
		"condition/if-match-list", "condition/if-none-match-list", "condition/if-none-match-weak",
		"head-condition/if-match-list", "head-condition/if-none-match-list", "head-condition/if-none-match-weak",
	},
	"errors have no Resource, and NoSuchKey no Key": {
		"error/no-such-key", "error/no-such-key-escaped", "error/no-such-bucket",
	},
	"no server-side encryption":    {"header/server-side-encryption"},
	"no header of a delete marker": {"version/delete-marker"},
	"keys are paths of files": {
		"key/trailing-slash", "key/K01-slashes", "key/K01-folders", "key/dot-segments", "key/only-dots",
	},
})

// reasons turns rows by reason into reasons by row.
func reasons(rows map[string][]string) map[string]string {
	m := make(map[string]string)
	for reason, names := range rows {
		for _, name := range names {
			m[name] = reason
		}
	}
	return m
}

func join(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}
