//go:build integration

package integration

import (
	"bytes"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// oddKeys are keys that something between a client and its bytes likes to change. All are different objects.
var oddKeys = []string{
	"plain", "a/b", "a//b", "/a/b", "a/./b", "a/../b", "../a", "a/", "a/.", "//", "..", "b/c/../../a",
	"semi;colon", "til~de", "sp ace", " leading and trailing ", "plus+plus", "2026-01-01T00:00:00+00:00",
	"per%cent", "a%2Fb", "a%252Fb", "%zz", "q?query=1", "h#fragment", "amp&equals=", "a,b:c@d!e$f'g(h)i*j",
	"back\\slash", "quote\"<>|^`{}[]", "tab\tnewline\nreturn\r", "control\x01\x1f\x7f", "nbsp\u00a0", "emoji 😀",
	"u\u0308 decomposed", "\u00fc composed", "日本語", "UPPER/lower", "upper/LOWER", strings.Repeat("k", 1024),
}

func TestOddKeys(t *testing.T) {
	o := newCountedOrigin(t)
	for i, key := range oddKeys {
		o.Put("odd", key, random(uint64(1000+i), 500+i))
	}
	n := newNode(t, o.url, func(opts *node.Options) { opts.Extra = noHedge + fresh })
	c := sdk(n.URL(), clientKey)
	for _, temperature := range []string{"cold", "warm"} {
		o.ResetCounters()
		for i, key := range oddKeys {
			b, _, err := read(t.Context(), c, "odd", key, "")
			if err != nil || !bytes.Equal(b, random(uint64(1000+i), 500+i)) {
				t.Errorf("%s %q: %d bytes, %v", temperature, key, len(b), err)
			}
			head, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: ptr("odd"), Key: &key})
			if err != nil || *head.ContentLength != int64(500+i) {
				t.Errorf("%s head of %q: %v", temperature, key, err)
			}
		}
		asked := o.settled(t).ByOperation // of objects: a look at the service itself is part of starting
		if got := asked["GetObject"] + asked["HeadObject"]; temperature == "warm" && got != 0 {
			t.Errorf("warm reads of odd keys asked the origin %d times:\n%s", got, strings.Join(o.Log(), "\n"))
		}
	}
}
