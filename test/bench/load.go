package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The load generator is one thread over epoll and raw sockets, so that it costs two system calls per small request and
// leaves the other core to the server. Go's own client costs several times as much and would be what is measured.

// request is one prepared request and what its body must hold.
type request struct {
	raw    []byte
	obj    object
	offset int64
	length int64
}

// load is what one run asks for.
type load struct {
	addr     string
	requests []request // drawn at random, by seed
	seed     uint64
	conns    int
	duration time.Duration
	count    int // stop after so many responses; 0 is no limit
	inOrder  bool
	// step is the distance of the words of a body that are checked, in bytes.
	step int
}

// loadResult is what came of a run.
type loadResult struct {
	Elapsed   time.Duration
	Responses int
	Bytes     int64
	Latencies []time.Duration // of every response, from writing the request to the last byte; not sorted
	ClientCPU time.Duration   // of the thread that made the load
}

// maxHeader bounds the header of a response, in bytes.
const maxHeader = 16 << 10

// stall is how long a run waits without any byte from any connection.
const stall = 30 * time.Second

// client is one keep-alive connection, with one request on it at a time.
type client struct {
	fd     int
	req    *request
	sent   time.Time
	inHead bool   // the header of the response is not complete
	header []byte // as far as it is here
	left   int64  // bytes of the body to come
	at     int64  // offset in the object of the next byte
}

// runner is the state of one run; it belongs to one thread.
type runner struct {
	load
	rng    *rand.Rand
	next   int
	result loadResult
	buf    []byte
	stop   bool
}

// run makes the load and checks every response: its status, its length, and words of its body.
func (l load) run() (loadResult, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &runner{load: l, rng: rand.New(rand.NewPCG(l.seed, 1)), buf: make([]byte, 256<<10)}
	r.result.Latencies = make([]time.Duration, 0, 1<<20)

	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return r.result, err
	}
	defer func() { _ = unix.Close(ep) }()
	clients := make(map[int32]*client, l.conns)
	for range l.conns {
		c, err := r.dial()
		if err != nil {
			return r.result, err
		}
		defer func() { _ = unix.Close(c.fd) }()
		clients[int32(c.fd)] = c
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
			return r.result, err
		}
	}

	cpu := threadCPU()
	start := time.Now()
	busy := 0
	for _, c := range clients {
		if r.stop {
			break
		}
		if err := r.send(c); err != nil {
			return r.result, err
		}
		busy++
	}
	events := make([]unix.EpollEvent, l.conns)
	for busy > 0 {
		n, err := unix.EpollWait(ep, events, int(stall.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return r.result, err
		}
		if n == 0 {
			return r.result, fmt.Errorf("%s sent nothing for %v with %d requests out", l.addr, stall, busy)
		}
		r.stop = r.stop || time.Since(start) >= l.duration
		for _, e := range events[:n] {
			done, err := r.receive(clients[e.Fd])
			if err != nil {
				return r.result, err
			}
			if !done {
				continue
			}
			if r.stop {
				busy--
				continue
			}
			if err := r.send(clients[e.Fd]); err != nil {
				return r.result, err
			}
		}
	}
	r.result.Elapsed = time.Since(start)
	r.result.ClientCPU = threadCPU() - cpu
	return r.result, nil
}

func (r *runner) dial() (*client, error) {
	addr, err := netip.ParseAddrPort(r.addr)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", r.addr, err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &client{fd: fd}, unix.SetNonblock(fd, true)
}

// send writes the next request. It is small and the connection idle, so that the socket takes it whole.
func (r *runner) send(c *client) error {
	i := r.next % len(r.requests)
	if !r.inOrder {
		i = r.rng.IntN(len(r.requests))
	}
	r.next++
	r.stop = r.stop || r.count > 0 && r.next >= r.count
	c.req = &r.requests[i]
	c.inHead, c.header = true, c.header[:0]
	c.sent = time.Now()
	n, err := unix.Write(c.fd, c.req.raw)
	if err != nil {
		return fmt.Errorf("write to %s: %w", r.addr, err)
	}
	if n != len(c.req.raw) {
		return fmt.Errorf("write to %s: the socket took %d of %d bytes", r.addr, n, len(c.req.raw))
	}
	return nil
}

// receive takes what the connection has, and says whether the response is complete.
func (r *runner) receive(c *client) (done bool, err error) {
	for {
		n, err := unix.Read(c.fd, r.buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read from %s: %w", r.addr, err)
		}
		if n == 0 {
			return false, fmt.Errorf("%s closed the connection with %d bytes of %s to come", r.addr, c.left, c.req.obj.name)
		}
		b := r.buf[:n]
		if c.inHead {
			if b, err = r.head(c, b); err != nil || c.inHead {
				return false, err
			}
		}
		if int64(len(b)) > c.left {
			return false, fmt.Errorf("%s sent %d bytes too many", r.addr, int64(len(b))-c.left)
		}
		if err := c.req.obj.check(b, c.at, r.step); err != nil {
			return false, fmt.Errorf("%s: %w", r.addr, err)
		}
		c.at += int64(len(b))
		c.left -= int64(len(b))
		r.result.Bytes += int64(len(b))
		if c.left == 0 {
			r.result.Responses++
			r.result.Latencies = append(r.result.Latencies, time.Since(c.sent))
			return true, nil
		}
		if n < len(r.buf) {
			return false, nil
		}
	}
}

// head adds b to the header of the response. Once that is complete, it is checked, c.inHead is false, and what is left
// of b is returned.
func (r *runner) head(c *client, b []byte) ([]byte, error) {
	had := len(c.header)
	c.header = append(c.header, b[:min(len(b), maxHeader)]...)
	end := bytes.Index(c.header, []byte("\r\n\r\n"))
	if end < 0 {
		if len(c.header) >= maxHeader {
			return nil, fmt.Errorf("%s: no end of the header in %d bytes", r.addr, maxHeader)
		}
		return nil, nil
	}
	status, length, err := parseHead(c.header[:end+2])
	if err != nil {
		return nil, fmt.Errorf("%s: %w in:\n%s", r.addr, err, c.header)
	}
	want := 206
	if c.req.length == c.req.obj.size {
		want = 200
	}
	if status != want || length != c.req.length {
		return nil, fmt.Errorf("%s answered %d with %d bytes, not %d with %d:\n%s", r.addr, status, length,
			want, c.req.length, c.header)
	}
	c.inHead = false
	c.left, c.at = length, c.req.offset
	return b[end+4-had:], nil
}

// parseHead reads the status and the Content-Length of a response header whose lines all end in CRLF.
func parseHead(head []byte) (status int, length int64, err error) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || len(line) < 12 {
		return 0, 0, errors.New("no HTTP/1.1 response")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, err
	}
	const name = "content-length:"
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			length, err = strconv.ParseInt(string(bytes.TrimSpace(line[len(name):])), 10, 64)
			return status, length, err
		}
	}
	return 0, 0, errors.New("no Content-Length")
}

// threadCPU is what the calling thread has used.
func threadCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
