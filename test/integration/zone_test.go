//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/ashlar-s3/ashlar/internal/dnstest"
)

// nodesName has the SRV records of a cluster's nodes, and nodesDomain their names.
const (
	nodesName   = "_s3._tcp.nodes.test."
	nodesDomain = ".nodes.test"
)

// How a zone answers for SRV records; shuffled is what all others do too.
const (
	dnsShuffled  = "shuffled"
	dnsEmpty     = "empty"
	dnsServFail  = "SERVFAIL"
	dnsNXDomain  = "NXDOMAIN"
	dnsTruncated = "truncated" // over UDP, to a part
)

// zone is a DNS server on 127.0.0.1, over UDP and TCP, that knows the nodes of a cluster. What it says lives a second.
type zone struct {
	addr string

	mu    sync.Mutex
	nodes map[string]string // host:port by the first label
	mode  string
	asked map[string]int // SRV questions, by network
}

func newZone(t *testing.T) *zone {
	t.Helper()
	z := &zone{nodes: make(map[string]string), mode: dnsShuffled, asked: make(map[string]int)}
	z.addr = dnstest.Serve(t, z)
	return z
}

// set names a node, or takes its name away when addr is "".
func (z *zone) set(name, addr string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.nodes[name] = addr
	if addr == "" {
		delete(z.nodes, name)
	}
}

func (z *zone) answers(mode string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.mode = mode
}

// questions returns how often SRV records were asked for over a network.
func (z *zone) questions(network string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[network]
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(q)
	question := q.Question[0]
	header := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: 1}
	switch name := strings.ToLower(question.Name); {
	case name == nodesName && question.Qtype == dns.TypeSRV:
		z.asked[w.LocalAddr().Network()]++
		z.serveSRV(m, header, w.LocalAddr().Network() == "udp")
	case question.Qtype == dns.TypeA && z.nodes[strings.TrimSuffix(name, nodesDomain+".")] != "":
		m.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
	case name != nodesName:
		m.Rcode = dns.RcodeNameError
	}
	_ = w.WriteMsg(m)
}

func (z *zone) serveSRV(m *dns.Msg, header dns.RR_Header, udp bool) {
	switch z.mode {
	case dnsEmpty:
		return
	case dnsServFail:
		m.Rcode = dns.RcodeServerFailure
		return
	case dnsNXDomain:
		m.Rcode = dns.RcodeNameError
		return
	}
	for name, addr := range z.nodes {
		_, port, _ := net.SplitHostPort(addr)
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			panic(fmt.Errorf("node %s at %q: %w", name, addr, err))
		}
		m.Answer = append(m.Answer, &dns.SRV{Hdr: header, Weight: 1, Port: uint16(n), Target: name + nodesDomain + "."})
	}
	rand.Shuffle(len(m.Answer), func(i, j int) { m.Answer[i], m.Answer[j] = m.Answer[j], m.Answer[i] })
	if z.mode == dnsTruncated && udp {
		m.Truncated = true
		m.Answer = m.Answer[:len(m.Answer)/2]
	}
}
