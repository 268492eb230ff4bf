package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashlar-s3/ashlar/s3api"
)

// A connection beyond the limit is given this long to take its answer. At most maxRefusing are, side by side: who floods
// us gets none.
const (
	refuseFor   = time.Second
	maxRefusing = 64
)

// slowDown is the body of a refusal, S3's.
const slowDown = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
	`<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

// limitListener accepts at most a number of connections at a time. More are accepted too, told to slow down, and closed:
// in the kernel's backlog they would wait without a word, behind idle ones that may stay for minutes. Over TLS they are
// closed without a word, since a handshake is what costs most.
type limitListener struct {
	net.Listener
	max      int64
	tls      bool
	open     atomic.Int64 // kept by count
	silent   sync.Map     // of net.Conn: those by which no request has come yet; likewise
	refusing atomic.Int64
	refusals sync.WaitGroup
	shed     prometheus.Counter
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Load() < l.max {
			return s3api.NewConn(c), nil
		}
		l.shed.Inc()
		if l.tls || l.refusing.Load() >= maxRefusing {
			_ = c.Close()
			continue
		}
		l.refusing.Add(1)
		l.refusals.Go(func() {
			defer l.refusing.Add(-1)
			refuse(c)
		})
	}
}

// count is http.Server.ConnState. It is called for a new connection before the next one is accepted.
func (l *limitListener) count(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		l.open.Add(1)
		l.silent.Store(c, nil)
	case http.StateActive:
		l.silent.Delete(c)
	case http.StateClosed, http.StateHijacked:
		l.open.Add(-1)
		l.silent.Delete(c)
	}
}

// closeSilent closes the connections by which no request has come yet.
func (l *limitListener) closeSilent() {
	l.silent.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
}

// refuse answers and closes a connection. net/http is not involved: the buffers that it has for each are what is to be
// saved. What the client sends meanwhile is read: to close with unread bytes would
// reset the connection, and the client might never see the answer.
func refuse(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(refuseFor))
	_, err := fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nRetry-After: 1\r\n"+
		"X-Ashlar-Error: node\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(slowDown), slowDown)
	if err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c, 64<<10)
}
