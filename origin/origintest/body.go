package origintest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

var errClosed = errors.New("origintest: read of a closed body")

// body yields bytes [off, off+length) of v, with the steps of a fault on the way.
type body struct {
	ctx    context.Context
	o      *Origin
	r      *Request
	fault  *Fault
	off    int64 // in the object
	length int64
	chunk  int

	// of the goroutine that reads
	v    *version
	pos  int64 // in the body
	step int   // next of fault.Steps
	err  error // sticky

	once   sync.Once
	closed chan struct{}
}

func (o *Origin) newBody(ctx context.Context, r *Request, v *version, f *Fault, off, length int64) *body {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := &body{
		ctx: ctx, o: o, r: r, fault: f, off: off, length: length + f.Extra, v: v,
		chunk: o.chunk, closed: make(chan struct{}),
	}
	if f.Chunk > 0 {
		b.chunk = f.Chunk
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, errClosed
	default:
	}
	if b.err == nil {
		b.err = b.ctx.Err()
	}
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for b.step < len(b.fault.Steps) && b.fault.Steps[b.step].At <= b.pos {
		s := &b.fault.Steps[b.step]
		b.step++
		if b.err = b.run(s); b.err != nil {
			return 0, b.err
		}
	}
	n := min(int64(len(p)), b.length-b.pos)
	if b.chunk > 0 {
		n = min(n, int64(b.chunk))
	}
	if b.step < len(b.fault.Steps) {
		n = min(n, b.fault.Steps[b.step].At-b.pos)
	}
	if n == 0 {
		b.err = io.EOF
		return 0, b.err
	}
	b.v.read(b.off+b.pos, p[:n])
	b.pos += n
	if b.fault.EagerEOF && b.pos == b.length && b.step == len(b.fault.Steps) {
		b.err = io.EOF
	}
	b.o.mu.Lock()
	b.o.stats.Bytes += n
	b.o.mu.Unlock()
	return int(n), b.err
}

// run does one step.
func (b *body) run(s *Step) error {
	err := pause(s.Latency, s.Wait, s.Stall, func(c <-chan struct{}, after <-chan time.Time) error {
		select {
		case <-c:
			return nil
		case <-after:
			return nil
		case <-b.closed:
			return errClosed
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	})
	if err != nil {
		return err
	}
	if s.Call != nil {
		s.Call()
	}
	if s.Splice {
		if v := b.o.find(b.r.Object); v != nil {
			b.v = v
		}
	}
	if s.Panic != nil {
		panic(s.Panic)
	}
	return s.Err
}

// Close may be called while a Read waits, which it ends.
func (b *body) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.o.mu.Lock()
		defer b.o.mu.Unlock()
		b.o.stats.Open--
		b.o.stats.InFlight--
	})
	return nil
}

// read fills p with the version's bytes from off on; beyond its end they are zeros.
func (v *version) read(off int64, p []byte) {
	if v.data == nil {
		Fill(v.seed, off, p)
		return
	}
	clear(p)
	if off < int64(len(v.data)) {
		copy(p, v.data[off:])
	}
}
