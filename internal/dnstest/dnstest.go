// Package dnstest serves DNS to tests.
package dnstest

import (
	"net"
	"testing"

	"github.com/miekg/dns"
)

// Serve has h answer on 127.0.0.1, over UDP and TCP at one port, until the test ends. It returns the address.
func Serve(t *testing.T, h dns.Handler) (addr string) {
	t.Helper()
	var l net.Listener
	var p net.PacketConn
	for { // until a port is free for both
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if p, err = net.ListenPacket("udp", l.Addr().String()); err == nil {
			break
		}
		_ = l.Close()
	}
	for _, s := range []*dns.Server{{Listener: l, Handler: h}, {PacketConn: p, Handler: h}} {
		started, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(ended)
			_ = s.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	}
	return l.Addr().String()
}
