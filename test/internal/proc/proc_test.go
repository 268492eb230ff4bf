package proc

import (
	"net"
	"testing"
)

// Of many addresses none is another one's, however many sockets take free ports meanwhile, and each can be listened on,
// twice in turn; until then, connections are refused.
func TestFreeAddr(t *testing.T) {
	seen := make(map[string]bool)
	take := func(addr string) {
		t.Helper()
		if seen[addr] {
			t.Fatalf("%s twice", addr)
		}
		seen[addr] = true
	}
	for range 500 {
		addr, err := FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		take(addr)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		take(l.Addr().String())
	}
	addr, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			t.Fatal("something answers where nobody listens")
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				_ = c.Close() // first, so that this end is in TIME_WAIT
			}
		}()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
		_ = l.Close()
	}
}
