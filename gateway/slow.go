package gateway

import (
	"io"
	"sync/atomic"
	"time"
)

// A slow client keeps what its read has had fetched ahead for as long as it takes to get there: a few dozen of them would
// keep Gateway.ahead from everybody. So what slow reads have ahead must fit into a quarter of it, with what the others
// have, and those that are beyond it let go. Their blocks may still be there when they come to them; where they are not,
// a slow read fetches one at a time.

// slowAfter is how long a read may be at one block before it is a slow one.
const slowAfter = time.Second

// crowded says whether slow reads must have nothing ahead.
func (b *budget) crowded() bool { return b.used.Load() > b.limit/4 }

// write writes p. If the read becomes a slow one meanwhile, and there is no room for those, it lets go of what it has
// had fetched ahead.
func (o *Object) write(w io.Writer, p []byte) (int, error) {
	if len(o.ahead) == 0 {
		return w.Write(p)
	}
	ahead := o.ahead
	var claimed atomic.Bool // by the one who may go on with ahead: the timer, or this read
	late := time.AfterFunc(time.Until(o.since.Add(slowAfter)), func() {
		if o.g.ahead.crowded() && claimed.CompareAndSwap(false, true) {
			o.g.letGo(ahead, o.size)
		}
	})
	defer func() {
		late.Stop()
		if !claimed.CompareAndSwap(false, true) {
			o.ahead = nil
		}
	}()
	return w.Write(p)
}

// letGo gives back what a read has had fetched ahead, blocks of that size.
func (g *Gateway) letGo(ahead []*pending, size int64) {
	for _, p := range ahead {
		g.unjoin(p)
	}
	g.ahead.give(int64(len(ahead)) * size)
}
