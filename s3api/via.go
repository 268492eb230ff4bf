package s3api

import (
	"net/http"
	"strings"
)

const (
	viaPrefix = "ashlar-" // of our own names in Via
	// maxHops is how many of our own a request may have come by: chains of gateways and nodes are short.
	maxHops    = 8
	maxHopName = 64 // bytes; what is longer is none of ours
)

// path returns the names of our own that a request came by, and false where this instance is one of them, or there are
// too many. Each hop writes "1.1 ashlar-<id>" (RFC 9110 section 7.6.3).
func (h *Handler) path(r *http.Request) (via []string, ok bool) {
	for _, line := range r.Header["Via"] {
		for hop := range strings.SplitSeq(line, ",") {
			f := strings.Fields(hop)
			if len(f) < 2 || !strings.HasPrefix(f[1], viaPrefix) || len(f[1]) > maxHopName {
				continue
			}
			if f[1] == h.instance || len(via) == maxHops {
				return nil, false
			}
			via = append(via, f[1])
		}
	}
	return via, true
}
