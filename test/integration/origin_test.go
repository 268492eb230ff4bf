//go:build integration

package integration

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// countedOrigin is the project's own S3 server, in this process, where what reaches it can be counted and spoiled.
type countedOrigin struct {
	*devs3.Server
	url         string
	connections atomic.Int64 // accepted since the start
}

func newCountedOrigin(t *testing.T) *countedOrigin {
	t.Helper()
	o := &countedOrigin{
		Server: devs3.New(devs3.Config{Keys: map[string]string{originKey.Access: originKey.Secret}, Region: region}),
	}
	server := httptest.NewUnstartedServer(o.Server)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			o.connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	o.url = server.URL
	return o
}

// settled returns the counters when no request is under way: what was sent for one counts when it ends, which is later
// than that its last byte is here.
func (o *countedOrigin) settled(t *testing.T) (c devs3.Counters) {
	t.Helper()
	eventually(t, "no request is under way at the origin", func() bool {
		c = o.Counters()
		return c.InFlight == 0
	})
	return c
}

// generated is length bytes from offset off on of a generated object.
func generated(seed uint64, off int64, length int) []byte {
	b := make([]byte, length)
	devs3.Generate(b, off, seed)
	return b
}
