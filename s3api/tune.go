package s3api

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
)

// tuneHeader changes the fetch policy for one read: name=value pairs with spaces between them, where names are those of
// [buckets.fetch] and values are spelled as there, but for hedge, which is on or off. It counts from keys with the
// right Tune; from others it is as if it weren't there. The engine clamps it to the bucket's policy.
const tuneHeader = "X-Ashlar-Fetch"

// tuning reads the header.
func (x *exchange) tuning() (t gateway.Tuning, err error) {
	if x.who.grant.rights&Tune == 0 {
		return t, nil
	}
	for _, line := range x.r.Header[tuneHeader] {
		for _, pair := range strings.Fields(line) {
			name, value, _ := strings.Cut(pair, "=")
			if !tune(&t, name, value) {
				return t, errArgument("X-Ashlar-Fetch takes attempts=N, hedge=on or hedge=off, and backoff, backoff_max, "+
					"first_byte, attempt and deadline with a duration such as 500ms.", tuneHeader, pair)
			}
		}
	}
	return t, nil
}

// tune takes in one pair, and says whether it could.
func tune(t *gateway.Tuning, name, value string) bool {
	switch name {
	case "attempts":
		n, err := strconv.ParseUint(value, 10, 31) // of what is beyond that the most there is
		t.Attempts = max(int(n), 1)
		return err == nil || errors.Is(err, strconv.ErrRange)
	case "hedge":
		t.NoHedge = value == "off"
		return value == "off" || value == "on"
	}
	var d *time.Duration
	switch name {
	case "backoff":
		d = &t.Backoff
	case "backoff_max":
		d = &t.BackoffMax
	case "first_byte":
		d = &t.FirstByte
	case "attempt":
		d = &t.Attempt
	case "deadline":
		d = &t.Deadline
	default:
		return false
	}
	v, err := time.ParseDuration(value)
	*d = max(v, time.Millisecond) // 0 would be no bound at all
	return err == nil && v >= 0
}

// client names the requester in front of the origin, where clients take turns: by key, else by address.
func (x *exchange) client() string {
	if x.who.accessKey != "" {
		return x.who.accessKey
	}
	host, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		return x.r.RemoteAddr
	}
	return host
}
