package client

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/ashlar-s3/ashlar/s3api"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey    = "AKIDEXAMPLE"
	testSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	testRegion = "eu-test-1"
	blockSize  = 64 << 10 // of nodes; tests that say nothing else have it as routing unit too
)

var testCredentials = s3origin.Credentials{Source: s3origin.SourceStatic, AccessKey: testKey, SecretKey: testSecret}

// fake is a cluster in this process: nodes as cmd/ashlar makes them, over an origin that tests write the script of.
type fake struct {
	origin *origintest.Origin
	nodes  []*fakeNode
}

// fakeNode is a node on 127.0.0.1.
type fakeNode struct {
	id     string
	server *httptest.Server
	engine *gateway.Gateway

	mu       sync.Mutex
	requests []*http.Request
	// before, if set, is called before a request is served, and says whether it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newFake(t testing.TB, n int) *fake {
	f := &fake{origin: origintest.New()}
	for range n {
		f.nodes = append(f.nodes, newFakeNode(t, f.origin, nil))
	}
	return f
}

// newFakeNode starts a node; start, if set, starts its server.
func newFakeNode(t testing.TB, o origin.Origin, start func(*httptest.Server)) *fakeNode {
	t.Helper()
	mem, err := memory.New(memory.Config{Limit: 32 << 20, MaxBlock: blockSize})
	if err != nil {
		t.Fatal(err)
	}
	policy := &gateway.Policy{BlockSize: blockSize, FetchWindow: 4, ReadWindow: 4, TTL: time.Minute}
	engine, err := gateway.New(gateway.Config{Origin: o, Memory: mem,
		Policy: func(string) *gateway.Policy { return policy }})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := s3api.New(s3api.Config{
		Gateway: engine, Forward: noForward{}, Region: testRegion, Logger: slog.New(slog.DiscardHandler),
		Auth: s3api.Auth{Mode: s3api.Static, Keys: []s3api.Key{{
			AccessKey: testKey, SecretKey: testSecret, Buckets: []string{"*"}, Rights: s3api.Read | s3api.Cluster,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{engine: engine}
	n.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.requests = append(n.requests, r.Clone(context.Background()))
		before := n.before
		n.mu.Unlock()
		r = r.WithContext(context.WithValue(r.Context(), handlerKey{}, handler))
		if before == nil || !before(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	n.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	if start == nil {
		start = (*httptest.Server).Start
	}
	start(n.server)
	n.id = n.server.Listener.Addr().String()
	t.Cleanup(func() {
		n.server.CloseClientConnections()
		n.server.Close()
		engine.Close()
		mem.Close()
	})
	return n
}

// handlerKey is where a request has the handler of its node.
type handlerKey struct{}

func handlerOf(r *http.Request) http.Handler { return r.Context().Value(handlerKey{}).(http.Handler) }

// noForward refuses what is no object read.
type noForward struct{}

func (noForward) Forward(context.Context, *http.Request, string, string) (*http.Response, error) {
	return nil, errors.New("nothing is forwarded here")
}

// does sets what a node does before it serves a request.
func (n *fakeNode) does(f func(w http.ResponseWriter, r *http.Request) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = f
}

// asked returns the requests for objects that a node got.
func (n *fakeNode) asked() []*http.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []*http.Request
	for _, r := range n.requests {
		if !strings.HasPrefix(r.URL.Path, "/-/") {
			list = append(list, r)
		}
	}
	return list
}

// kill closes a node's listener and its connections, as the end of its process does.
func (n *fakeNode) kill() {
	_ = n.server.Listener.Close()
	n.server.CloseClientConnections()
}

// Put implements origintest.Backend. Nodes learn of it as of a write through a gateway.
func (f *fake) Put(bucket, key string, o origintest.Object) string {
	tag := f.origin.Put(bucket, key, o)
	f.invalidate(bucket, key)
	return tag
}

// Delete implements origintest.Backend.
func (f *fake) Delete(bucket, key string) {
	f.origin.Delete(bucket, key)
	f.invalidate(bucket, key)
}

func (f *fake) invalidate(bucket, key string) {
	for _, n := range f.nodes {
		n.engine.Invalidate(origin.Object{Bucket: bucket, Key: key})
	}
}

// Rounding implements origintest.Rounding.
func (f *fake) Rounding() time.Duration { return time.Second }

// members lists the nodes.
func (f *fake) members() []cluster.Node {
	var list []cluster.Node
	for _, n := range f.nodes {
		list = append(list, cluster.Node{ID: n.id, Addr: n.server.Listener.Addr().String()})
	}
	return list
}

// client returns a client of the cluster.
func (f *fake) client(t testing.TB, change ...func(*Config)) *Client {
	t.Helper()
	c := Config{Members: cluster.MembershipConfig{Nodes: f.members()}, BlockSize: blockSize, ReadWindow: 4,
		Region: testRegion, Credentials: testCredentials, Instance: "test",
		FirstByte: time.Minute} // tests count requests, and a busy machine must not make more of them
	for _, do := range change {
		do(&c)
	}
	l, err := New(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		eventually(t, "no request in flight, and no memory held", func() bool {
			return l.room.used.Load() == 0 &&
				!slices.ContainsFunc(l.Status(), func(s cluster.NodeStatus) bool { return s.InFlight != 0 })
		})
	})
	return l
}

// ranked returns the nodes by their rank for a unit.
func (f *fake) ranked(t testing.TB, c *Client, bucket, key string, unit int64) []*fakeNode {
	t.Helper()
	list, err := c.Owners(bucket, key, Range{unit * c.cfg.BlockSize, 1})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*fakeNode
	for _, n := range list[0].Nodes {
		for _, m := range f.nodes {
			if m.id == n.ID {
				nodes = append(nodes, m)
			}
		}
	}
	return nodes
}

// refused returns an address at which nothing listens.
func refused(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestSuite(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		unit  int64
	}{{"one node", 1, blockSize}, {"three nodes", 3, blockSize}, {"wide units", 3, 1 << 20}} {
		t.Run(c.name, func(t *testing.T) {
			origintest.Suite(t, func(t *testing.T) (origin.Origin, origintest.Backend) {
				f := newFake(t, c.nodes)
				return f.client(t, func(l *Config) { l.BlockSize = c.unit }).Origin(""), f
			})
		})
	}
}
