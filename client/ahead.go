package client

import (
	"sync"
	"sync/atomic"
)

// What a read has asked for ahead is received as it comes, into memory, so that all the nodes that it is asked of send
// at once: a connection by itself takes no more than the beginning of a unit. Config.ReadAhead bounds that memory for
// all reads of a client together. It is taken, never waited for; a part that gets none waits in its connection.

// room is memory for what is received ahead.
type room struct {
	limit, unit int64
	used        atomic.Int64
	refused     atomic.Int64 // parts that got none
	buffers     sync.Pool    // of *[]byte, each of the size of a routing unit
}

// take returns n bytes, at most a unit; nil when there is no room for them.
func (r *room) take(n int64) *[]byte {
	if r.used.Add(n) > r.limit {
		r.used.Add(-n)
		r.refused.Add(1)
		return nil
	}
	if n == r.unit {
		if p, ok := r.buffers.Get().(*[]byte); ok {
			return p
		}
	}
	p := make([]byte, n)
	return &p
}

// give gives back what take returned.
func (r *room) give(p *[]byte) {
	n := int64(len(*p))
	if n == r.unit {
		r.buffers.Put(p)
	}
	r.used.Add(-n)
}

// ahead is what a part has received ahead of its Read. Until received is closed it belongs to the goroutine that
// receives, and so does all that get uses; from then on to whoever holds body.mu.
type ahead struct {
	direct   bool          // nothing is: this part is read first, or all there is
	wanted   atomic.Bool   // its Read has come, or nobody's ever will: no more is to be received ahead
	received chan struct{} // closed when nothing more will be

	buffer *[]byte // out of Client.room; nil for none
	held   []byte  // of buffer, what has not been read yet
	err    error   // what ended the part behind that
}

// skip says that nothing is to be received ahead.
func (a *ahead) skip() {
	a.direct = true
	close(a.received)
}

// receive receives the part until its Read comes. It begins when it is settled what the part is.
func (t *part) receive() {
	if t.direct {
		return
	}
	defer close(t.received)
	select {
	case <-t.b.opened:
	case <-t.ctx.Done():
		return
	}
	if t.wanted.Load() || t.r.err != nil || t.ctx.Err() != nil {
		return
	}
	if t.buffer = t.b.c.room.take(t.end - t.off); t.buffer == nil {
		return
	}
	n := 0
	for n < len(*t.buffer) && !t.wanted.Load() && t.err == nil {
		var got int
		got, t.err = t.get((*t.buffer)[n:])
		n += got
	}
	if t.held = (*t.buffer)[:n]; n == 0 {
		t.free(t.b.c)
	}
	if t.off == t.end {
		t.r.close() // the node is done with it
	}
}

// free gives the memory back.
func (a *ahead) free(c *Client) {
	if a.buffer != nil {
		c.room.give(a.buffer)
		a.buffer, a.held = nil, nil
	}
}
