//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// gatewayKey is what gateways sign with toward nodes.
var gatewayKey = node.Key{Access: "AKIAGATEWAY000000001", Secret: "gateway/secret+of/the=integration~tests"}

const (
	clusterBlock = 256 << 10 // of nodes and gateways, and a routing unit
	blockTOML    = `block_size = "256 KiB"`
)

// ashlars is a cluster of processes: nodes in front of one origin, and gateways in front of them.
type ashlars struct {
	t        *testing.T
	origin   *countedOrigin
	zone     *zone
	ttl      string // of nodes and gateways
	noHedge  bool   // nothing is asked for twice, of nodes or of the origin
	names    []string
	nodes    []*node.Node
	gateways []*node.Node
}

func newAshlars(t *testing.T, ttl string) *ashlars {
	return &ashlars{t: t, origin: newCountedOrigin(t), zone: newZone(t), ttl: ttl}
}

// buckets is the section of nodes and gateways.
func (a *ashlars) buckets() string {
	head := "[buckets]\n"
	if a.noHedge {
		head = noHedge
	}
	return head + fmt.Sprintf("%s\nconsistency = { mode = \"etag\", ttl = %q }\n", blockTOML, a.ttl)
}

// node starts a node, and names it in DNS: a new one, or one that was before, at another address.
func (a *ashlars) node(name, extra string) *node.Node {
	a.t.Helper()
	n := newNode(a.t, a.origin.url, func(o *node.Options) {
		o.Key, o.Verbose = gatewayKey, false
		o.Rights = "read = true\nlist = true\ncluster = true"
		o.Extra = extra + a.buckets()
	})
	a.zone.set(name, n.Addr)
	for i, other := range a.names {
		if other == name {
			a.nodes[i] = n
			return n
		}
	}
	a.names, a.nodes = append(a.names, name), append(a.nodes, n)
	return n
}

// gateway starts a gateway with next to no memory, so that most of what is read through it is asked of the nodes.
func (a *ashlars) gateway(clusterTOML string) *node.Node {
	a.t.Helper()
	if a.noHedge {
		clusterTOML += "\nhedge = false"
	}
	g := newNode(a.t, a.origin.url, func(o *node.Options) {
		o.Memory, o.Verbose = "16 MiB", false
		o.Extra = fmt.Sprintf("[cluster]\n%s\n%s\n", blockTOML, clusterTOML) +
			fmt.Sprintf("credentials = { source = \"static\", access_key = %q, secret_key = %q }\n", gatewayKey.Access,
				gatewayKey.Secret) + a.buckets()
	})
	a.gateways = append(a.gateways, g)
	return g
}

// bySRV is how gateways find the nodes in DNS.
func (a *ashlars) bySRV() string {
	return fmt.Sprintf("srv = %q\nresolver = %q\nrefresh = \"1s\"", nodesName, a.zone.addr)
}

// list names the nodes to a gateway once and for all.
func (a *ashlars) list() string {
	var nodes []string
	for i, n := range a.nodes {
		nodes = append(nodes, fmt.Sprintf("{ id = %q, addr = %q }", a.names[i], n.Addr))
	}
	return "nodes = [" + strings.Join(nodes, ", ") + "]"
}

// everywhere waits until a metric of every gateway is as wanted.
func (a *ashlars) everywhere(what, series string, ok func(float64) bool) {
	a.t.Helper()
	for i, g := range a.gateways {
		eventually(a.t, fmt.Sprintf("gateway %d: %s", i, what), func() bool {
			m, err := g.Metrics()
			if err != nil {
				a.t.Fatal(err)
			}
			v, there := m[series]
			return there && ok(v)
		})
	}
}

// ready waits until all gateways hold a node to be ready.
func (a *ashlars) ready(name string) {
	a.t.Helper()
	series := fmt.Sprintf(`ashlar_cluster_node_state{node="%s%s",state="ready"}`, name, nodesDomain)
	a.everywhere(name+" is ready", series, func(v float64) bool { return v == 1 })
}

// known waits until all gateways route among n nodes.
func (a *ashlars) known(n int) {
	a.t.Helper()
	want := func(v float64) bool { return v == float64(n) }
	a.everywhere(fmt.Sprint(n, " nodes are known"), "ashlar_cluster_nodes", want)
}

// eventually polls.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// Each block is held by one node, and fetched once, while all nodes are there and nothing is asked for twice.
func TestClusterHoldsBlocksOnce(t *testing.T) {
	a := newAshlars(t, "1h")
	a.noHedge = true
	for i := range 3 {
		a.node(fmt.Sprint("n", i), "")
	}
	for range 2 {
		a.gateway(a.list())
	}
	l := newClusterLoad(t, a.origin, a.gateways, time.Hour, clusterBlock)
	l.keep(60, 4<<20)
	bytes, blocks := 0, 0
	for _, size := range l.stay {
		bytes, blocks = bytes+size, blocks+(size+clusterBlock-1)/clusterBlock
	}
	if bytes < 2*16<<20 {
		t.Fatalf("%d bytes fit into a gateway", bytes)
	}
	for range 2 {
		for g := range a.gateways {
			l.wg.Go(func() { l.all(g) })
		}
		l.wg.Wait()
	}
	held := 0.0
	for i, n := range a.nodes {
		v := metric(t, n, "ashlar_memory_blocks")
		if held += v; v < float64(blocks)/5 {
			t.Errorf("%s holds %v of %d blocks", a.names[i], v, blocks)
		}
	}
	if held != float64(blocks) {
		t.Errorf("nodes hold %v blocks, and there are %d", held, blocks)
	}
	for object, c := range a.origin.settled(t).Objects {
		var i int
		if _, err := fmt.Sscanf(object, clusterBucket+"/stay-%d", &i); err != nil {
			t.Fatal(object, err)
		}
		if c.BytesSent != int64(l.stay[i]) {
			t.Errorf("the origin sent %d bytes of %s, which has %d", c.BytesSent, object, l.stay[i])
		}
	}
	for i, g := range a.gateways {
		for _, name := range []string{"ashlar_cluster_node_downs_total", "ashlar_cluster_fallback_requests_total"} {
			if v := metric(t, g, name); v != 0 {
				t.Errorf("gateway %d: %s = %v", i, name, v)
			}
		}
	}
}

// A node that comes back with its disk under another address still owns what it holds: SRV records name it as before.
func TestClusterNodeKeepsItsDisk(t *testing.T) {
	a := newAshlars(t, "1h")
	a.noHedge = true
	disk := fmt.Sprintf("[cache.disk]\npath = %q\n", t.TempDir()) +
		"capacity = \"256 MiB\"\nregion_size = \"16 MiB\"\nreserve = \"0\"\n"
	moving := a.node("n0", disk)
	a.node("n1", "")
	a.node("n2", "")
	g := a.gateway(a.bySRV())
	a.known(3)
	l := newClusterLoad(t, a.origin, a.gateways, time.Hour, clusterBlock)
	l.keep(60, 4<<20)
	l.all(0)
	eventually(t, "the disk has taken all", func() bool { return metric(t, moving, "ashlar_disk_queue_bytes") == 0 })
	held := metric(t, moving, "ashlar_memory_blocks")
	if err := moving.Stop(stopTimeout); err != nil {
		t.Fatal(err)
	}
	before := moving.Addr
	if moving = a.node("n0", disk); moving.Addr == before {
		t.Fatal("it has the same address")
	}
	asked := a.zone.questions("udp")
	eventually(t, "DNS is asked again", func() bool { return a.zone.questions("udp") >= asked+2 })
	a.ready("n0")
	l.all(0)
	m, err := moving.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	served, err := m.Sum("ashlar_blocks_total")
	if err != nil {
		t.Fatal(err)
	}
	missed := m[`ashlar_blocks_total{source="origin"}`]
	t.Logf("%v blocks were held, %v were served after the restart, %v of them from the origin", held, served, missed)
	if served < held*3/4 || missed > served*5/100 {
		t.Errorf("after the restart %v of %v blocks came from the origin, and %v were held", missed, served, held)
	}
	if v := metric(t, g, "ashlar_cluster_fallback_requests_total"); v != 0 {
		t.Errorf("the gateway asked the origin itself %v times", v)
	}
}

// What is overwritten behind gateways and nodes, or through other gateways, is seen when ttl is over, which is one for
// both tiers; no reader sees an older version after a newer one, and no read fails.
func TestClusterStaleness(t *testing.T) {
	for _, c := range []struct {
		name   string
		behind bool
	}{{"behind the cache", true}, {"through gateways too", false}} {
		t.Run(c.name, func(t *testing.T) {
			a := newAshlars(t, "2s")
			for i := range 3 {
				a.node(fmt.Sprint("n", i), "")
			}
			for range 4 {
				a.gateway(a.list())
			}
			l := newClusterLoad(t, a.origin, a.gateways, 2*time.Second, clusterBlock)
			l.behind = c.behind
			l.overwrite(6)
			l.start(8)
			time.Sleep(8 * time.Second)
			l.enough()
			l.stop()
			l.report()
		})
	}
}

// Field case C07: what is written through one gateway is seen through it at once, by the nodes as soon as they were
// told, and through another gateway within ttl, however long the nodes may remember what they know.
func TestClusterWriteSeenByOthers(t *testing.T) {
	const ttl = 2 * time.Second
	a := newAshlars(t, "1h")
	for i := range 3 {
		a.node(fmt.Sprint("n", i), "")
	}
	a.ttl = ttl.String()
	for range 2 {
		a.gateway(a.list())
	}
	var nodes, gateways []*s3.Client
	for _, n := range a.nodes {
		nodes = append(nodes, sdk(n.URL(), gatewayKey, once))
	}
	for _, g := range a.gateways {
		gateways = append(gateways, sdk(g.URL(), clientKey, once))
	}
	r := &rewritten{size: clusterBlock * 5 / 2}
	a.origin.Put(clusterBucket, r.key(), r.body(0))
	shows := func(c *s3.Client) (version int, etag string) {
		t.Helper()
		b, out, err := read(t.Context(), c, clusterBucket, r.key(), "")
		if err != nil {
			if code, _ := status(err); code == http.StatusNotFound {
				return -1, ""
			}
			t.Fatal(err)
		}
		if version, err = r.check(b); err != nil {
			t.Fatal(err)
		}
		return version, *out.ETag
	}
	all := func(what string, clients []*s3.Client, want int) {
		t.Helper()
		for i, c := range clients {
			v, etag := shows(c)
			if v != want {
				t.Errorf("%s %d shows version %d, want %d", what, i, v, want)
			}
			if got := head(t, c, r.key()); got != etag {
				t.Errorf("%s %d shows version %d, %q, and %q to HEAD", what, i, v, etag, got)
			}
		}
	}
	// seen waits until the other gateway shows a version, and wants no read that began after ttl to show another.
	seen := func(written time.Time, want, before int) {
		t.Helper()
		for {
			began := time.Now()
			v, _ := shows(gateways[1])
			if v == want {
				all("other gateway", gateways[1:], want)
				return
			}
			if v != before || began.Sub(written) > ttl {
				t.Fatalf("the other gateway shows version %d %v after version %d was written", v, began.Sub(written), want)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	all("node", nodes, 0)
	all("gateway", gateways, 0)
	for version := 1; version <= 2; version++ {
		_, err := gateways[0].PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: ptr(clusterBucket), Key: ptr(r.key()), Body: bytes.NewReader(r.body(version)),
		})
		written := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		all("gateway", gateways[:1], version)
		seenByNodes(t, a.gateways[0], float64(version))
		all("node", nodes, version)
		seen(written, version, version-1)
	}
	_, err := gateways[0].DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: ptr(clusterBucket), Key: ptr(r.key())})
	deleted := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	all("gateway", gateways[:1], -1)
	seenByNodes(t, a.gateways[0], 3)
	all("node", nodes, -1)
	seen(deleted, -1, 2)
}

// seenByNodes waits until a gateway has told all nodes of its writes. Its clients wait for that too, but not for long.
func seenByNodes(t *testing.T, g *node.Node, writes float64) {
	t.Helper()
	eventually(t, fmt.Sprint("the nodes were told of write ", writes), func() bool {
		m, err := g.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		return m[`ashlar_cluster_invalidations_total{outcome="ok"}`] == writes
	})
}

// An answer may break off at an object that was overwritten behind nodes and gateway, which know the old version for an
// hour. The next read shows the new one, though the node that is asked first may not have heard of it.
func TestClusterBreaksOffOnce(t *testing.T) {
	a := newAshlars(t, "1h")
	for i := range 3 {
		a.node(fmt.Sprint("n", i), "")
	}
	a.gateway(a.list())
	c := sdk(a.gateways[0].URL(), clientKey, once)
	broken := 0
	for i := range 12 { // of few blocks, so that the first one's owner often has no other and hears of nothing
		r := &rewritten{number: i, size: clusterBlock * 3 / 2}
		a.origin.Put(clusterBucket, r.key(), r.body(0))
		begin := fmt.Sprintf("bytes=0-%d", clusterBlock-1)
		if b, _, err := read(t.Context(), c, clusterBucket, r.key(), begin); err != nil || r.versionOf(b) != 0 {
			t.Fatalf("%s: version %d, %v", r.key(), r.versionOf(b), err)
		}
		a.origin.Put(clusterBucket, r.key(), r.body(1))
		b, _, err := read(t.Context(), c, clusterBucket, r.key(), "")
		if err != nil {
			if wrong := sameBytes(b, r.body(0)[:len(b)]); wrong != nil {
				t.Error(wrong)
			}
			broken++
			b, _, err = read(t.Context(), c, clusterBucket, r.key(), "")
		}
		if err != nil {
			t.Errorf("%s: %v", r.key(), err)
		} else if v, err := r.check(b); err != nil || v != 1 {
			t.Errorf("%s: version %d, %v", r.key(), v, err)
		}
	}
	if broken == 0 {
		t.Error("no answer broke off: nothing was tested")
	}
}
