// Package shaped measures what a cluster is for: that nodes behind links of their own are together as fast as the sum of
// those links. It needs root, ip and tc, and is behind the build tag shaped; run it by `make shaped`.
package shaped
