package main

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory.
type pipes struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return p.addr }

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

// dial returns the client's end of a new connection.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// listenInMemory serves h as listen does, in memory.
func listenInMemory(t *testing.T, e endpoint, h http.Handler) (*server, *pipes) {
	t.Helper()
	s, err := listen(e, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &pipes{s.addr(), make(chan net.Conn), make(chan struct{})}
	_ = s.limit.Close()
	s.limit.Listener = p
	s.serve(h, make(chan error, 1))
	return s, p
}

// TestDrainOfSilentConnections: a drain does not wait for those by which no request has come, as net/http alone does
// for five seconds, and answers under way finish.
func TestDrainOfSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := endpoint{key: "server.listen", addr: "127.0.0.1:0", limits: defaults().Server.Limits}
		s, p := listenInMemory(t, e, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, "hello")
		}))

		silent, busy := p.dial(), p.dial()
		if _, err := io.WriteString(busy, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		go func() {
			n, err := silent.Read(make([]byte, 1))
			if took := time.Since(began); n != 0 || err != io.EOF || took != silentGrace {
				t.Errorf("the silent connection ended after %v: %d bytes, %v", took, n, err)
			}
		}()
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(busy), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" {
				t.Errorf("the answer under way: %q, %v", b, err)
			}
			_ = busy.Close()
		}()
		s.drain(time.Minute)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the drain took %v", took)
		}
		synctest.Wait()
	})
}
