//go:build integration

package integration

import (
	"errors"
	"net"
	"net/http"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &countedOrigin{
		Server: devs3.New(devs3.Config{Keys: map[string]string{originKey.Access: originKey.Secret}, Region: region}),
		url:    "http://" + l.Addr().String(),
	}
	server := &http.Server{Handler: o.Server, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			o.connections.Add(1)
		}
	}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return o
}

// generated is length bytes from offset off on of a generated object.
func generated(seed uint64, off int64, length int) []byte {
	b := make([]byte, length)
	devs3.Generate(b, off, seed)
	return b
}
