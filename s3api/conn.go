package s3api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
)

// NewConn makes a client's connection one that sends the head of an answer together with the beginning of its body, by
// one system call; net/http alone makes two. It is for what a plain TCP listener accepts; any other connection is
// returned as it is. Handlers find it by ConnContext.
func NewConn(c net.Conn) net.Conn {
	if tcp, ok := c.(*net.TCPConn); ok {
		return &gatherConn{TCPConn: tcp}
	}
	return c
}

// ConnContext is http.Server.ConnContext for connections made by NewConn.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if g, ok := c.(*gatherConn); ok {
		return context.WithValue(ctx, connKey{}, g)
	}
	return ctx
}

type connKey struct{}

// gatherConn holds what net/http writes before it hands a body over to ReadFrom, and sends it with the first piece of
// the body. Writes belong to one goroutine at a time, that of the handler, as net/http has it.
type gatherConn struct {
	*net.TCPConn
	hold bool  // what is written is to wait
	head *head // what does; nil for nothing

	reads, writes deadline
}

// head is the beginning of an answer, up to the first piece of its body that the connection takes.
type head struct {
	held  []byte // from net/http
	lines []byte // to go out behind the first line of it
	parts [4][]byte
	bufs  net.Buffers // over parts, while they are written
}

// heads lends memory for them. net/http writes 4 KiB at a time, and few heads are longer.
var heads = sync.Pool{New: func() any {
	return &head{held: make([]byte, 0, usualHead), lines: make([]byte, 0, usualHead/4)}
}}

func (h *head) release() {
	h.held, h.lines = h.held[:0], h.lines[:0]
	if cap(h.held) <= usualHead && cap(h.lines) <= usualHead {
		heads.Put(h)
	}
}

const (
	// Of a long piece of a body, firstWrite bytes less those of the head leave with the head, and the rest by a second
	// call. One call for all takes 0.28 s of CPU for each GB of 1 MiB ranges over loopback, the head alone before the
	// body as much, and this 0.18: 2 to 64 KiB all gain, 6 and 8 the most. The client is awake by then, perhaps, and takes
	// the bytes while they are in the processor's caches.
	longPiece  = 64 << 10
	firstWrite = 8 << 10

	usualHead = 4 << 10
	maxHead   = 1 << 20 // of an answer: far above what an origin may tell of an object
)

// Write implements net.Conn. While the head is on its way nothing is written, however long it is: the beginning of the
// body is behind it, and its block in the hands of one who must not wait for a client.
func (c *gatherConn) Write(p []byte) (int, error) {
	if c.hold {
		if len(c.head.held)+len(p) > maxHead {
			return 0, errLongHead
		}
		c.head.held = append(c.head.held, p...)
		return len(p), nil
	}
	if err := c.writes.begin(c.TCPConn.SetWriteDeadline); err != nil {
		return 0, err
	}
	defer c.writes.end()
	h := c.head
	if h == nil {
		return c.TCPConn.Write(p)
	}
	status := bytes.IndexByte(h.held, '\n') + 1
	before := len(h.held) + len(h.lines)
	first, rest := p, []byte(nil)
	if len(p) > longPiece && before < firstWrite {
		first, rest = p[:firstWrite-before], p[firstWrite-before:]
	}
	h.parts = [4][]byte{h.held[:status], h.lines, h.held[status:], first}
	h.bufs = h.parts[:]
	n, err := h.bufs.WriteTo(c.TCPConn)
	if err == nil && rest != nil {
		var m int
		m, err = c.TCPConn.Write(rest)
		n += int64(m)
	}
	h.parts = [4][]byte{}
	c.head = nil
	h.release()
	return max(int(n)-before, 0), err
}

// ReadFrom implements io.ReaderFrom, by which net/http passes a body on once it has written the head. What is held goes
// out with the first Write.
func (c *gatherConn) ReadFrom(src io.Reader) (int64, error) {
	if b, ok := src.(*body); ok {
		c.hold = false
		b.x.conn = c
		return b.o.WriteTo(b.x)
	}
	return io.Copy(struct{ io.Writer }{c}, src)
}

// release ends the holding, and sends what is still held.
func (c *gatherConn) release() error {
	c.hold = false
	switch h := c.head; {
	case h == nil:
		return nil
	case len(h.held) == 0: // net/http has not come to it, and cuts the connection
		c.head = nil
		h.release()
		return nil
	}
	_, err := c.Write(nil)
	return err
}

// Read implements net.Conn.
func (c *gatherConn) Read(p []byte) (int, error) {
	if err := c.reads.begin(c.TCPConn.SetReadDeadline); err != nil {
		return 0, err
	}
	defer c.reads.end()
	return c.TCPConn.Read(p)
}

// SetReadDeadline implements net.Conn, as SetWriteDeadline and SetDeadline do. A wait may end up to a second later.
func (c *gatherConn) SetReadDeadline(t time.Time) error {
	return c.reads.change(t, c.TCPConn.SetReadDeadline)
}

// SetWriteDeadline implements net.Conn.
func (c *gatherConn) SetWriteDeadline(t time.Time) error {
	return c.writes.change(t, c.TCPConn.SetWriteDeadline)
}

// SetDeadline implements net.Conn.
func (c *gatherConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

var errLongHead = errors.New("the head of an answer is too long")

// body is an object on its way to net/http, which reads the beginning and has the connection take the rest.
type body struct {
	x *exchange
	o *gateway.Object
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.o.Read(p)
	b.x.written += int64(n)
	return n, err
}

// gather makes the answer, whose body is length bytes of an object, one that leaves together with its head, where the
// connection can do that. With lines, set has the connection put into the head what net/http need not know: it would
// keep each header in a map that grows, copy that, and sort it. A name that is set twice is sent twice from here on.
func (x *exchange) gather(length int64, lines bool) {
	c, _ := x.r.Context().Value(connKey{}).(*gatherConn)
	// Before net/http answers a request that has a body, it waits for that, with the first block in hand.
	if _, ok := x.w.(io.ReaderFrom); c == nil || !ok || length < sniffLen || x.body != nil {
		return
	}
	x.gathers, x.head, x.apart = c, heads.Get().(*head), lines
}

// line has the connection put a header line into the head, and says whether it does.
func (x *exchange) line(name, value string) bool {
	if !x.apart || !plainLine(name, value) {
		return false
	}
	l := x.head.lines
	if strings.HasPrefix(name, metaPrefix) { // see wireName
		for i := range len(name) {
			l = append(l, name[i]|0x20) // in lower case: of letters, digits and '-' that changes nothing else
		}
	} else {
		l = append(l, name...)
	}
	l = append(append(l, ": "...), value...)
	x.head.lines = append(l, "\r\n"...)
	return true
}

// plainLine says whether a header goes out as it is, and makes no difference to what net/http does. The others are left
// to it, which also knows what to do with bytes that don't belong there.
func plainLine(name, value string) bool {
	switch name {
	case "Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Trailer", "Transfer-Encoding", "Upgrade":
		return false
	}
	for i := range len(name) {
		if c := name[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return false
		}
	}
	return name != "" && value != "" && value[0] != ' ' && value[len(value)-1] != ' '
}

// send sends the body of an object after begin.
func (x *exchange) send(o *gateway.Object) (n int64, err error) {
	c := x.gathers
	if c == nil {
		return o.WriteTo(x)
	}
	c.hold, c.head = true, x.head
	x.head, x.apart = nil, false
	x.sends = body{x, o}
	n, err = x.w.(io.ReaderFrom).ReadFrom(&x.sends)
	x.conn = nil
	if rerr := c.release(); err == nil {
		err = rerr
	}
	return n, err
}

// sniffLen is how much of a body net/http reads before it hands it over. Shorter ones stay in its buffers.
const sniffLen = 512

// out is where the body of the answer goes.
func (x *exchange) out() io.Writer {
	if x.conn != nil {
		return x.conn
	}
	return x.w
}
