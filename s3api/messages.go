package s3api

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// What processes of a cluster say to each other with a request. It counts from keys with the right Cluster; from others
// it is as if it weren't there. None of it reaches an origin.
const (
	routedHeader   = "X-Ashlar-Routed"   // the reader knows what it wants next; a gateway answers 508
	deadlineHeader = "X-Ashlar-Deadline" // milliseconds that the reader has left
)

// And with an answer.
const (
	errorHeader     = "X-Ashlar-Error"      // "node": the failure or refusal is this process's own; another may do better
	blockSizeHeader = "X-Ashlar-Block-Size" // of the object, in bytes; to processes of the cluster
	snapshotHeader  = "X-Ashlar-Snapshot"   // digest of the nodes that a gateway reads from
)

// heard is what another process of the cluster said with a request; the zero value is that of a requester who is none.
type heard struct {
	peer         bool // the requester is one
	routed       bool
	noCache      bool      // confirm info at the origin before answering
	onlyIfCached bool      // 504 instead of fetching
	deadline     time.Time // zero for none
}

// hear takes in what a requester says who has been identified. Its error is the answer of a gateway that was taken for
// a node.
func (x *exchange) hear() error {
	if x.who.grant.rights&Cluster == 0 {
		return nil
	}
	h := x.r.Header
	x.heard = heard{peer: true, routed: h[routedHeader] != nil}
	if x.heard.routed && x.h.refuseRouted {
		return errRouted
	}
	for _, line := range h["Cache-Control"] {
		for directive := range strings.SplitSeq(line, ",") {
			switch strings.ToLower(strings.TrimSpace(directive)) {
			case "no-cache":
				x.heard.noCache = true
			case "only-if-cached":
				x.heard.onlyIfCached = true
			}
		}
	}
	if v := h[deadlineHeader]; v != nil {
		if ms, err := strconv.ParseUint(v[0], 10, 31); err == nil {
			x.heard.deadline = x.start.Add(time.Duration(ms) * time.Millisecond)
		}
	}
	return nil
}

// context returns the context of a read: that of the request, for as long as the reader waits.
func (x *exchange) context() (context.Context, context.CancelFunc) {
	if x.heard.deadline.IsZero() {
		return x.r.Context(), func() {}
	}
	return context.WithDeadline(x.r.Context(), x.heard.deadline)
}

// fromLoopback says whether a request comes from this machine.
func fromLoopback(remoteAddr string) bool {
	a, err := netip.ParseAddrPort(remoteAddr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

var (
	errRouted = &Error{Status: 508, Code: "LoopDetected",
		Message: "This is a gateway, and was asked as if it were a node of a cluster."}
	errNotCached = &Error{Status: 504, Code: "NotCached", Message: "The object, or the range of it, is not in the cache."}
)
