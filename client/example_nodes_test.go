package client_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/ashlar-s3/ashlar/s3api"
)

// startNodes starts nodes in this process, as "ashlar serve" would, whose origin holds s3://models/weights.bin. It
// returns their addresses.
func startNodes(n int) (addresses []string, stop func()) {
	o := origintest.New()
	o.Put("models", "weights.bin", origintest.Object{Size: 5 << 20})
	var stops []func()
	for range n {
		mem, err := memory.New(memory.Config{Limit: 64 << 20, MaxBlock: 1 << 20})
		if err != nil {
			log.Fatal(err)
		}
		policy := &gateway.Policy{BlockSize: 1 << 20, FetchWindow: 4, ReadWindow: 4, TTL: time.Minute}
		engine, err := gateway.New(gateway.Config{Origin: o, Memory: mem,
			Policy: func(string) *gateway.Policy { return policy }})
		if err != nil {
			log.Fatal(err)
		}
		handler, err := s3api.New(s3api.Config{Gateway: engine, Forward: noForward{}})
		if err != nil {
			log.Fatal(err)
		}
		server := httptest.NewServer(handler)
		addresses = append(addresses, server.Listener.Addr().String())
		stops = append(stops, server.Close, engine.Close, mem.Close)
	}
	return addresses, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// noForward refuses what is no object read.
type noForward struct{}

func (noForward) Forward(context.Context, *http.Request, string, string) (*http.Response, error) {
	return nil, errors.New("nothing is forwarded here")
}
