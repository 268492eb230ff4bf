package cluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/ashlar-s3/ashlar/internal/dnstest"
)

// zone is a DNS server on 127.0.0.1 over UDP and TCP.
type zone struct {
	addr string

	mu      sync.Mutex
	records map[string][]string // by "name TYPE": what stands after the type
	extra   []string            // whole records that come along with SRV answers
	rcode   map[string]int      // by "name TYPE"
	cut     bool                // truncate all answers over UDP
	tail    int                 // to this many records; 0: where the packet ends
	silent  bool                // answer nothing
	asked   []string            // "udp name TYPE"
}

func newZone(t *testing.T, setup func(z *zone)) *zone {
	t.Helper()
	z := &zone{records: map[string][]string{}, rcode: map[string]int{}}
	setup(z)
	z.addr = dnstest.Serve(t, z)
	return z
}

// ServeDNS implements dns.Handler. Answers come in any order.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	name, typ := strings.ToLower(q.Question[0].Name), dns.TypeToString[q.Question[0].Qtype]
	network := w.LocalAddr().Network()
	z.asked = append(z.asked, network+" "+name+" "+typ)
	if z.silent {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.Rcode = z.rcode[name+" "+typ]
	for _, r := range z.records[name+" "+typ] {
		m.Answer = append(m.Answer, rr(fmt.Sprintf("%s 30 IN %s %s", name, typ, r)))
	}
	rand.Shuffle(len(m.Answer), func(i, j int) { m.Answer[i], m.Answer[j] = m.Answer[j], m.Answer[i] })
	if typ == "SRV" {
		for _, r := range z.extra {
			m.Extra = append(m.Extra, rr(r))
		}
	}
	if q.IsEdns0() != nil {
		m.SetEdns0(1232, false) // a record without a life
	}
	if z.cut && network == "udp" {
		m.Truncated = true
		if z.tail > 0 {
			m.Answer = m.Answer[:z.tail]
		}
	}
	_ = w.WriteMsg(m)
}

func rr(s string) dns.RR {
	r, err := dns.NewRR(s)
	if err != nil {
		panic(err)
	}
	return r
}

// log returns what was asked.
func (z *zone) log() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked)
}

// set changes the zone.
func (z *zone) set(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

// resolver returns one that asks the zone, with a resolv.conf of its own.
func (z *zone) resolver(t *testing.T, conf string) *resolver {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("options timeout:60 attempts:1\n"+conf+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &resolver{file: file, servers: []string{z.addr}}
}

const srvName = "_s3._tcp.nodes.test."

func nodesOf(a answer) string {
	var s []string
	for _, n := range a.nodes {
		s = append(s, fmt.Sprintf("%s=%s*%d", n.ID, n.Addr, n.Weight))
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

func TestSRV(t *testing.T) {
	addresses := map[string][]string{
		"a.test. A": {"127.0.0.1"}, "b.test. A": {"127.0.0.9", "127.0.0.2"}, "c.test. AAAA": {"::1"},
	}
	for _, c := range []struct {
		name    string
		records []string
		extra   []string
		want    string // "" is an error
		refused int
	}{
		{"targets, by their lowest address", []string{"0 0 9000 a.test.", "0 3 9001 b.test.", "0 1 9002 c.test."}, nil,
			"a.test=127.0.0.1:9000*0 b.test=127.0.0.2:9001*3 c.test=[::1]:9002*1", 0},
		{"the lowest priority only", []string{"5 1 9000 a.test.", "6 1 9001 b.test."}, nil, "a.test=127.0.0.1:9000*1", 0},
		{"a target named twice counts once, with the lower port",
			[]string{"0 1 9001 a.test.", "0 1 9000 A.test.", "0 1 9000 b.test."}, nil,
			"a.test=127.0.0.1:9000*1 b.test=127.0.0.2:9000*1", 1},
		{"no port", []string{"0 1 0 a.test.", "0 1 9000 b.test."}, nil, "b.test=127.0.0.2:9000*1", 1},
		{"an address that came along", []string{"0 1 9000 a.test.", "0 1 9000 b.test."},
			[]string{"A.test. 30 IN A 127.0.0.77"},
			"a.test=127.0.0.77:9000*1 b.test=127.0.0.2:9000*1", 0},
		{"a target without address keeps its place", []string{"0 1 9000 a.test.", "0 1 9000 later.test."}, nil,
			"a.test=127.0.0.1:9000*1 later.test=*1", 0},
		{"decidedly not available", []string{"0 0 0 ."}, nil, "", 1},
		{"none", nil, nil, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := newZone(t, func(z *zone) {
				maps.Copy(z.records, addresses)
				z.records[srvName+" SRV"], z.extra = c.records, c.extra
			})
			a, err := z.resolver(t, "").bySRV(t.Context(), srvName)
			if (err == nil) != (c.want != "") || nodesOf(a) != c.want || a.refused != c.refused {
				t.Errorf("got %q, %d refused, %v", nodesOf(a), a.refused, err)
			}
		})
	}
}

// TestLifeOfAnAnswer: it is as long as that of the shortest of its records, an address that is missing is asked for soon.
func TestLifeOfAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name, target, extra string
		want                time.Duration
	}{
		{"the SRV record's", "a.test.", "a.test. 300 IN A 127.0.0.1", 30 * time.Second},
		{"that of an address that came along", "a.test.", "a.test. 7 IN A 127.0.0.1", 7 * time.Second},
		{"that of an address", "b.test.", "a.test. 7 IN A 127.0.0.1", 30 * time.Second},
		{"no address", "later.test.", "a.test. 7 IN A 127.0.0.1", 0},
	} {
		z := newZone(t, func(z *zone) {
			z.records[srvName+" SRV"], z.extra = []string{"0 1 9000 " + c.target}, []string{c.extra}
			z.records["b.test. A"] = []string{"127.0.0.2"}
		})
		if a, err := z.resolver(t, "").bySRV(t.Context(), srvName); err != nil || a.ttl != c.want {
			t.Errorf("%s: %v, want %v; %v", c.name, a.ttl, c.want, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		name    string
		records map[string][]string
		want    string
	}{
		{"IPv4", map[string][]string{"n.test. A": {"127.0.0.1", "127.0.0.2"}},
			"127.0.0.1:9000=127.0.0.1:9000*0 127.0.0.2:9000=127.0.0.2:9000*0"},
		{"IPv6", map[string][]string{"n.test. AAAA": {"::1"}}, "[::1]:9000=[::1]:9000*0"},
		{"both: each node once", map[string][]string{"n.test. A": {"127.0.0.1"}, "n.test. AAAA": {"::1"}},
			"127.0.0.1:9000=127.0.0.1:9000*0"},
		{"none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := newZone(t, func(z *zone) { maps.Copy(z.records, c.records) })
			a, err := z.resolver(t, "").byAddress(t.Context(), "n.test", "9000")
			if (err == nil) != (c.want != "") || nodesOf(a) != c.want {
				t.Errorf("got %q, %v", nodesOf(a), err)
			}
		})
	}
	// A failure says nothing of whether there are any: nodes must not come to have other IDs for it.
	z := newZone(t, func(z *zone) {
		z.rcode["n.test. A"] = dns.RcodeServerFailure
		z.records["n.test. AAAA"] = []string{"::1"}
	})
	if a, err := z.resolver(t, "").byAddress(t.Context(), "n.test", "9000"); err == nil {
		t.Errorf("got %q", nodesOf(a))
	}
}

// TestSearch asks as resolv.conf says that names are to be finished.
func TestSearch(t *testing.T) {
	for _, c := range []struct{ name, conf, want string }{
		{"n", "search one.test two.test", "n.one.test. n.two.test."},
		{"n.x", "search one.test two.test", "n.x. n.x.one.test. n.x.two.test."},
		{"n.x", "search one.test two.test\noptions ndots:5", "n.x.one.test. n.x.two.test."},
		{"n.x.", "search one.test two.test\noptions ndots:5", "n.x."},
	} {
		z := newZone(t, func(z *zone) {
			z.records["n.two.test. A"] = []string{"127.0.0.1"}
			z.records["n.x.two.test. A"] = []string{"127.0.0.1"}
			z.rcode["n.one.test. A"] = dns.RcodeNameError // the other is empty
		})
		_, _ = z.resolver(t, c.conf).byAddress(t.Context(), c.name, "1")
		var names []string
		for _, a := range z.log() {
			if f := strings.Fields(a); f[2] == "A" {
				names = append(names, f[1])
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s with %q asks for %s, want %s", c.name, c.conf, got, c.want)
		}
	}
}

// TestSearchStopsAtFailure: the next name may be of another cluster.
func TestSearchStopsAtFailure(t *testing.T) {
	z := newZone(t, func(z *zone) {
		z.rcode["n.one.test. A"] = dns.RcodeServerFailure
		z.records["n.two.test. A"] = []string{"127.0.0.1"}
	})
	if a, err := z.resolver(t, "search one.test two.test").byAddress(t.Context(), "n", "1"); err == nil {
		t.Errorf("got %s", nodesOf(a))
	}
}

func TestTruncated(t *testing.T) {
	for _, tail := range []int{0, 7} {
		z := newZone(t, func(z *zone) {
			z.cut, z.tail = true, tail
			for i := range 200 {
				z.records["n.test. A"] = append(z.records["n.test. A"], fmt.Sprintf("127.0.1.%d", i))
			}
		})
		a, err := z.resolver(t, "").byAddress(t.Context(), "n.test.", "1")
		if err != nil || len(a.nodes) != 200 {
			t.Errorf("%d nodes, %v", len(a.nodes), err)
		}
		if want := []string{"udp n.test. A", "tcp n.test. A"}; !slices.Equal(z.log(), want) {
			t.Errorf("asked %q", z.log())
		}
	}
}

// TestNextServer: one that fails or says nothing is passed over.
func TestNextServer(t *testing.T) {
	sick := newZone(t, func(*zone) {})
	well := newZone(t, func(z *zone) { z.records["n.test. A"] = []string{"127.0.0.1"} })
	for _, sicken := range []func(){
		func() { sick.rcode["n.test. A"] = dns.RcodeRefused },
		func() { sick.silent = true },
	} {
		sick.set(sicken)
		r := sick.resolver(t, "options timeout:1 attempts:60") // the one that is well may be slow
		r.servers = append(r.servers, well.addr)
		if a, err := r.byAddress(t.Context(), "n.test.", "1"); err != nil || len(a.nodes) != 1 {
			t.Errorf("%s, %v", nodesOf(a), err)
		}
	}
}

// TestLookupEndsWithContext: a server that says nothing must not hold up a shutdown.
func TestLookupEndsWithContext(t *testing.T) {
	z := newZone(t, func(z *zone) { z.silent = true })
	r := z.resolver(t, "options timeout:600")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := r.bySRV(ctx, srvName)
		done <- err
	}()
	for len(z.log()) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("hangs")
	}
}

// TestMembershipByDNS takes a membership through what DNS may do. It keeps the last good nodes throughout.
func TestMembershipByDNS(t *testing.T) {
	z := newZone(t, func(z *zone) {
		z.records[srvName+" SRV"] = []string{"0 1 9000 a.test.", "0 1 9000 b.test."}
		z.records["a.test. A"], z.records["b.test. A"] = []string{"127.0.0.1"}, []string{"127.0.0.2"}
	})
	m, err := NewMembership(t.Context(), MembershipConfig{SRV: srvName, Servers: []string{z.addr},
		ResolvConf: z.resolver(t, "").file, Refresh: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	good := m.Snapshot()
	if good.Len() != 2 || good.Node(0).ServerName() != "a.test" {
		t.Fatalf("%v", good.Nodes())
	}
	for _, bad := range []func(){
		func() { z.rcode[srvName+" SRV"] = dns.RcodeServerFailure },
		func() { z.rcode[srvName+" SRV"] = dns.RcodeNameError },
		func() { z.rcode = map[string]int{}; z.records[srvName+" SRV"] = nil },
		func() { z.records[srvName+" SRV"] = []string{"0 1 0 a.test."} },
	} {
		z.set(bad)
		m.ask(t.Context(), 0)
		if m.Snapshot() != good {
			t.Fatalf("other nodes: %v", m.Snapshot().Nodes())
		}
	}
	// Another order, another port, no address any more: the same nodes by name.
	z.set(func() {
		z.records[srvName+" SRV"] = []string{"0 1 9000 b.test.", "0 1 9999 a.test."}
		delete(z.records, "b.test. A")
	})
	m.ask(t.Context(), 0)
	s := m.Snapshot()
	if s.Digest() != good.Digest() || s.Node(0).Addr != "127.0.0.1:9999" || s.Node(1).Addr != "127.0.0.2:9000" {
		t.Errorf("%v", s.Nodes())
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []MembershipConfig{
		{},
		{DNS: "a:1", SRV: "b"},
		{DNS: "no-port"},
		{DNS: "host:0"},
		{DNS: "host:http"},
		{SRV: "x", Servers: []string{"127.0.0.1"}},
		{Nodes: []Node{{ID: "no-port"}}},
		{Nodes: []Node{{Addr: "a:1"}, {Addr: "a:1", Weight: 2}}},
	} {
		if m, err := NewMembership(t.Context(), c); err == nil {
			m.Close()
			t.Errorf("%+v is accepted", c)
		}
	}
	nodes := []Node{{Addr: "a:1"}, {ID: "b:2"}, {ID: "c", Addr: "d:4"}}
	m, err := NewMembership(t.Context(), MembershipConfig{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	want := []Node{{"a:1", "a:1", "", 1}, {"b:2", "b:2", "", 1}, {"c", "d:4", "", 1}}
	if got := m.Snapshot().Nodes(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
