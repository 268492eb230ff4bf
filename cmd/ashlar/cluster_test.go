package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/origin"
)

// testCluster is some nodes and a gateway in front of one store.
type testCluster struct {
	*testNode // the gateway
	nodes     []*testNode
	store     *devs3.Server
}

// newTestCluster starts three nodes and a gateway, with blocks and routing units of 64 KiB and no hedging. change, if
// not nil, has the last word on the gateway's configuration.
func newTestCluster(t *testing.T, ttl time.Duration, change func(*Config)) *testCluster {
	t.Helper()
	tc := new(testCluster)
	common := func(c *Config) {
		c.Auth.AnonymousWrite = true
		c.Buckets.BlockSize, c.Buckets.Consistency.TTL = 64*kib, Duration(ttl)
		if len(tc.nodes) > 0 {
			c.Origin.Endpoint = tc.nodes[0].config.Origin.Endpoint
		}
	}
	for range 3 {
		tc.nodes = append(tc.nodes, newTestNode(t, common))
	}
	tc.store = tc.nodes[0].store
	if err := tc.store.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	tc.testNode = newTestNode(t, func(c *Config) {
		common(c)
		for i, n := range tc.nodes {
			c.Cluster.Nodes = append(c.Cluster.Nodes,
				ClusterNode{ID: fmt.Sprint("node-", i), Addr: n.s3.addr().String(), Weight: 1})
		}
		c.Cluster.BlockSize, c.Cluster.Hedge.Factor = 64*kib, 0
		if change != nil {
			change(c)
		}
	})
	return tc
}

// blocks returns how many blocks each node holds.
func (tc *testCluster) blocks(t *testing.T) (each []int, sum int) {
	t.Helper()
	for _, n := range tc.nodes {
		held := int(metric(t, n.registry, "ashlar_memory_blocks"))
		each, sum = append(each, held), sum+held
	}
	return each, sum
}

// metric returns the sum of a metric's series whose labels have the values given.
func metric(t *testing.T, reg prometheus.Gatherer, name string, values ...string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for _, v := range values {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetValue() == v
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// put writes an object through a node or gateway.
func put(t *testing.T, c *http.Client, url, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if code, text := do(t, c, r); code != 200 {
		t.Fatalf("PUT: %d %s", code, text)
	}
}

// TestGatewayReads: what is read through a gateway is right, and each block is held by one node and asked of the origin
// once.
func TestGatewayReads(t *testing.T) {
	tc := newTestCluster(t, time.Second, nil)
	const size, blocks = 3<<20 - 5, 48
	data := make([]byte, size)
	devs3.Generate(data, 0, 7)
	for _, key := range []string{"k", "odd%20key%2Bwith%25"} {
		tc.store.PutGenerated("bucket", strings.NewReplacer("%20", " ", "%2B", "+", "%25", "%").Replace(key), size, 7)
		c := httpClient(t)
		if code, body := get(t, c, tc.s3.url()+"/bucket/"+key); code != 200 || body != string(data) {
			t.Errorf("%s: %d, %d bytes", key, code, len(body))
		}
		r, err := http.NewRequest(http.MethodGet, tc.s3.url()+"/bucket/"+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Range", "bytes=65530-200000")
		if code, body := do(t, c, r); code != 206 || body != string(data[65530:200001]) {
			t.Errorf("%s: %d, %d bytes of a range", key, code, len(body))
		}
	}
	each, sum := tc.blocks(t)
	if sum != 2*blocks || each[0] == 0 || each[1] == 0 || each[2] == 0 {
		t.Errorf("nodes hold %v blocks of %d", each, 2*blocks)
	}
	for object, got := range tc.store.Counters().Objects {
		if got.BytesSent != size {
			t.Errorf("the origin sent %d bytes of %s, want %d", got.BytesSent, object, size)
		}
	}
	if code, _ := get(t, httpClient(t), tc.s3.url()+"/bucket/none"); code != 404 {
		t.Errorf("missing object: %d", code)
	}
}

// TestGatewayIsNoNode: what is meant for a node is refused, and answers name the nodes.
func TestGatewayIsNoNode(t *testing.T) {
	tc := newTestCluster(t, time.Second, nil)
	tc.store.Put("bucket", "k", []byte("hello"))
	c := httpClient(t)
	r, err := http.NewRequest(http.MethodGet, tc.s3.url()+"/bucket/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Ashlar-Snapshot") != tc.cluster.Snapshot().Digest() {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	r.Header.Set("X-Ashlar-Routed", "1")
	if code, _ := do(t, c, r); code != 508 {
		t.Errorf("routed to a gateway: %d", code)
	}
}

// TestGatewayWrites: a write through a gateway is seen by the next read through it, and by one through any node once
// that was told, whatever they remembered.
func TestGatewayWrites(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	c := httpClient(t)
	urls := []string{tc.s3.url()}
	for _, n := range tc.nodes {
		urls = append(urls, n.s3.url())
	}
	told := func(writes float64) {
		t.Helper()
		eventually(t, fmt.Sprint("the nodes were told of write ", writes), func() bool {
			return metric(t, tc.registry, "ashlar_cluster_invalidations_total", "ok") == writes
		})
	}
	for i := range 5 {
		body := strings.Repeat(strconv.Itoa(i), 100_000+i)
		put(t, c, tc.s3.url()+"/bucket/k", body)
		for j, u := range urls {
			if j == 1 {
				told(float64(i + 1))
			}
			if code, got := get(t, c, u+"/bucket/k"); code != 200 || got != body {
				t.Errorf("%s: %d, %d bytes from %q on after write %d", u, code, len(got), got[:1], i)
			}
		}
	}
	r, err := http.NewRequest(http.MethodDelete, tc.s3.url()+"/bucket/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := do(t, c, r); code != 204 {
		t.Errorf("DELETE: %d", code)
	}
	told(6)
	for _, u := range urls {
		if code, _ := get(t, c, u+"/bucket/k"); code != 404 {
			t.Errorf("%s: %d after it was deleted", u, code)
		}
	}
}

// TestGatewayBehind: what is overwritten behind both tiers never fails a read, and is seen when the ttl is over, which
// is one for both: the age of what a node answers travels.
func TestGatewayBehind(t *testing.T) {
	tc := newTestCluster(t, time.Second, nil)
	c := httpClient(t)
	const size = 200_000
	version := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, size+i) }
	tc.store.Put("bucket", "k", version(0))
	for i := range 4 {
		if i > 0 {
			tc.store.Put("bucket", "k", version(i))
		}
		overwritten := time.Now()
		for {
			asked := time.Now()
			code, got := get(t, c, tc.s3.url()+"/bucket/k")
			if code == 200 && got == string(version(i)) {
				break
			}
			if i == 0 || code != 200 || got != string(version(i-1)) {
				t.Fatalf("%d, %d bytes, which is neither version %d nor the one before", code, len(got), i)
			}
			if asked.Sub(overwritten) > time.Second {
				t.Fatalf("version %d is not seen %v after it was written", i, asked.Sub(overwritten))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestGatewayAge: a gateway counts from when the node asked the origin.
func TestGatewayAge(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	tc.store.Put("bucket", "k", []byte("hello"))
	c := httpClient(t)
	age := func(url string) int {
		t.Helper()
		resp, err := c.Get(url + "/bucket/k")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		n, err := strconv.Atoi(resp.Header.Get("Age"))
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode, resp.Header)
		}
		return n
	}
	owners, err := tc.cluster.Owners("bucket", "k", client.Range{Length: 5})
	if err != nil {
		t.Fatal(err)
	}
	age("http://" + owners[0].Nodes[0].Addr)
	time.Sleep(200 * time.Millisecond)
	if got := age(tc.s3.url()); got < 1 {
		t.Errorf("age %d at the gateway, of what its node knew before", got)
	}
	if got := tc.store.Counters().ByOperation["GetObject"]; got != 1 {
		t.Errorf("%d origin GETs, want 1", got)
	}
}

// TestGatewayHedges: beside a node that takes requests and says nothing, another is asked as cluster.hedge has it.
func TestGatewayHedges(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gw := newTestCluster(t, time.Minute, func(c *Config) {
		c.Cluster.Nodes = append(c.Cluster.Nodes, ClusterNode{ID: "silent", Addr: silent.Addr().String(), Weight: 1})
		c.Cluster.Hedge = Hedge{Factor: 3, Min: Duration(time.Millisecond), Max: Duration(50 * time.Millisecond)}
	})
	c := httpClient(t)
	for i := 0; metric(t, gw.registry, "ashlar_cluster_hedges_total", "won") == 0; i++ {
		if i == 200 {
			t.Fatal("no hedge has helped")
		}
		key := fmt.Sprint(i)
		gw.store.Put("bucket", key, []byte(key))
		if code, body := get(t, c, gw.s3.url()+"/bucket/"+key); code != 200 || body != key {
			t.Fatalf("%d %q", code, body)
		}
	}
}

// TestGatewayNodesDie: no read fails while a node or the origin is left.
func TestGatewayNodesDie(t *testing.T) {
	tc := newTestCluster(t, time.Second, func(c *Config) { c.Cache.Memory = 32 * mib })
	const size = 5 << 16
	want := make([]byte, size)
	devs3.Generate(want, 0, 9)
	for i := range 40 {
		tc.store.PutGenerated("bucket", fmt.Sprint("k", i), size, 9)
	}
	c := httpClient(t)
	reads := func(what string, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if code, got := get(t, c, fmt.Sprint(tc.s3.url(), "/bucket/k", i)); code != 200 || got != string(want) {
				t.Errorf("%s: k%d: %d, %d bytes", what, i, code, len(got))
			}
		}
	}
	reads("all are there", 0, 10)
	tc.nodes[1].stop()
	reads("one is gone", 0, 20)
	if n := metric(t, tc.registry, "ashlar_cluster_failovers_total"); n == 0 {
		t.Error("no read has noticed")
	}
	tc.nodes[0].stop()
	reads("two are gone", 10, 30)
	for _, node := range []string{"node-0", "node-1"} { // one after the other, and neither hides the other
		if log := tc.log.String(); !strings.Contains(log, fmt.Sprintf("level=WARN msg=\"node %s is down\"", node)) {
			t.Errorf("not logged that %s is down:\n%s", node, log)
		}
	}
	tc.nodes[2].stop()
	reads("all are gone", 20, 40)
	if n := metric(t, tc.registry, "ashlar_cluster_fallback_requests_total"); n == 0 {
		t.Error("the origin was not asked instead")
	}
}

// TestWarmOnWrite: the owners hold what was written, and nothing of it came to the gateway.
func TestWarmOnWrite(t *testing.T) {
	tc := newTestCluster(t, time.Second, func(c *Config) { c.Cluster.WarmOnWrite = true })
	c := httpClient(t)
	put(t, c, tc.s3.url()+"/bucket/k", strings.Repeat("x", 10*64<<10))
	eventually(t, "an object is warm", func() bool {
		return metric(t, tc.registry, "ashlar_cluster_warms_total", "ok") == 1
	})
	if each, sum := tc.blocks(t); sum != 10 {
		t.Errorf("nodes hold %v blocks of 10", each)
	}
	if n := metric(t, tc.registry, "ashlar_cluster_bytes_total"); n != 0 {
		t.Errorf("%v bytes came to the gateway", n)
	}
}

// fakeNodes are nodes as writes sees them.
type fakeNodes struct {
	err   error
	takes time.Duration
	keys  []string
}

func (f *fakeNodes) Invalidate(ctx context.Context, bucket string, keys ...string) error {
	f.keys = append(f.keys, keys...)
	select {
	case <-time.After(f.takes):
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeNodes) Warm(context.Context, string, string, ...client.Range) error { return f.err }

// TestNewsOfWrites: a client waits a moment for nodes to hear of its write, and they are told in any case, or it is
// counted.
func TestNewsOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestWrites(&fakeNodes{takes: time.Second, err: errors.New("trouble")}, true)
		objects := []origin.Object{{Bucket: "b", Key: "a+b", Raw: "a+b"}}
		began := time.Now()
		n.wrote(objects, true)
		if took := time.Since(began); took != newsPatience {
			t.Errorf("the client waited %v", took)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := strings.Join(n.nodes.(*fakeNodes).keys, " "); got != "a+b a b" {
			t.Errorf("told of %q", got)
		}
		for range cap(n.news) {
			n.news <- struct{}{}
		}
		n.wrote(objects, true)
		for range cap(n.news) {
			<-n.news
		}
		for outcome, want := range map[string]float64{"ok": 0, "failed": 1, "dropped": 1} {
			if got := testutil.ToFloat64(n.told.WithLabelValues(outcome)); got != want {
				t.Errorf("%v told %s, want %v", got, outcome, want)
			}
		}
		if got := testutil.ToFloat64(n.warmed.WithLabelValues("failed")); got != 1 {
			t.Errorf("%v warming failed, want 1", got)
		}
		n.nodes.(*fakeNodes).takes = time.Hour
		n.wrote(objects, false)
		n.close() // does not wait for it
		if took := time.Since(began); took > time.Minute {
			t.Errorf("closing took %v", took)
		}
	})
}

func newTestWrites(n nodes, warm bool) *writes {
	return newWrites(n, warm, prometheus.NewRegistry(), newLogger(new(syncBuffer), Log{Level: "debug", Format: "text"}))
}

// TestDrainClosesConnections: an answer that begins while a node drains says that the connection ends with it, so that
// nobody sends another request by it.
func TestDrainClosesConnections(t *testing.T) {
	n := newTestNode(t, nil)
	n.store.Put("bucket", "k", []byte("hello"))
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	n.store.Fault(func(r *http.Request) *devs3.Fault {
		if strings.HasSuffix(r.URL.Path, "/k") {
			asked <- struct{}{}
			return &devs3.Fault{Hold: hold}
		}
		return nil
	})
	type answer struct {
		closes bool
		body   string
		err    error
	}
	answered := make(chan answer)
	c := httpClient(t)
	go func() {
		resp, err := c.Get(n.s3.url() + "/bucket/k")
		if err != nil {
			answered <- answer{err: err}
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		answered <- answer{resp.Close, string(body), err}
	}()
	<-asked
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		n.stop()
	}()
	refuses(t, n.s3.addr().String())
	close(hold)
	if a := <-answered; a.err != nil || !a.closes || a.body != "hello" {
		t.Errorf("%+v, want the whole body and the end of the connection", a)
	}
	<-stopped
}

// TestGatewayTLS: a gateway and its nodes show each other certificates, and sign.
func TestGatewayTLS(t *testing.T) {
	ca := newTestCA(t)
	cert, key := ca.files(t)
	n := newTestNode(t, func(c *Config) {
		c.Server.TLS = TLS{Cert: cert, Key: key, ClientCA: ca.file}
		c.Auth = Auth{Mode: "static", Keys: []AuthKey{newAuthKey()}}
		k := &c.Auth.Keys[0]
		k.AccessKey, k.SecretKey, k.Cluster = "gateway", "s3cr3t-of-gateway", true
	})
	n.store.Put("bucket", "k", []byte("hello"))
	g := newTestNode(t, func(c *Config) {
		c.Origin.Endpoint = "http://127.0.0.1:1" // nothing is read past the node
		c.Cluster.Nodes = []ClusterNode{{Addr: n.s3.addr().String(), Weight: 1}}
		c.Cluster.TLS = ClusterTLS{CA: ca.file, Cert: cert, Key: key}
		c.Cluster.Credentials = Credentials{Source: "static", AccessKey: "gateway", SecretKey: "s3cr3t-of-gateway"}
	})
	if code, body := get(t, httpClient(t), g.s3.url()+"/bucket/k"); code != 200 || body != "hello" {
		t.Errorf("%d %s\n%s", code, body, g.log)
	}
}

// TestGatewayPolicy: trying again is the client's affair, and a node has time for attempts of its own.
func TestGatewayPolicy(t *testing.T) {
	c := defaults()
	c.Cluster.SRV = "_s3._tcp.nodes"
	f := c.policies()("bucket").Fetch
	if f.Attempts != 1 || f.Hedge.On() || f.FirstByte != 21*time.Second || f.Attempt != 30*time.Second {
		t.Errorf("%+v", f)
	}
}

// TestGatewayWritesUnheard is P6 where no node hears of a write: reads through the gateway that it went through see it
// all the same, since they ask past what nodes remember.
func TestGatewayWritesUnheard(t *testing.T) {
	tc := newTestCluster(t, time.Hour, func(c *Config) {
		for i := range c.Cluster.Nodes {
			n := &c.Cluster.Nodes[i]
			pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: n.Addr})
			tr := &http.Transport{DisableCompression: true}
			t.Cleanup(tr.CloseIdleConnections)
			pass.Transport = tr
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/-/invalidate" {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				pass.ServeHTTP(w, r)
			}))
			t.Cleanup(s.Close)
			n.Addr = s.Listener.Addr().String()
		}
	})
	c := httpClient(t)
	for i := range 5 {
		body := strings.Repeat(strconv.Itoa(i), 3*64<<10+i)
		for _, n := range tc.nodes {
			get(t, c, n.s3.url()+"/bucket/k") // so that all remember the version before
		}
		put(t, c, tc.s3.url()+"/bucket/k", body)
		for range 2 {
			if code, got := get(t, c, tc.s3.url()+"/bucket/k"); code != 200 || got != body {
				t.Errorf("%d, %d bytes after write %d", code, len(got), i)
			}
		}
	}
	eventually(t, "5 writes were not heard of", func() bool {
		return metric(t, tc.registry, "ashlar_cluster_invalidations_total", "failed") == 5
	})
}
