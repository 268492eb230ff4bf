package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Why an answer is of no use, beside no answer at all.
var (
	errEmpty    = errors.New("no such records")
	errUnusable = errors.New("no usable record")
)

// resolver asks DNS as the C library does: the servers of resolv.conf in order, names without a dot at the end by search
// and ndots, TCP when an answer over UDP is truncated. Go's own resolver is not enough: it tells no TTL, drops records
// that it holds to be malformed, and does not let one see an empty answer apart from a failure.
type resolver struct {
	file    string   // resolv.conf
	servers []string // in place of the file's
}

// bySRV returns the targets of SRV records as nodes.
func (r *resolver) bySRV(ctx context.Context, name string) (answer, error) {
	conf, err := r.config()
	if err != nil {
		return answer{}, err
	}
	m, err := conf.search(ctx, name, dns.TypeSRV)
	if err != nil {
		return answer{}, err
	}
	var records []*dns.SRV
	a := answer{}
	for _, rr := range m.Answer {
		srv, ok := rr.(*dns.SRV)
		if !ok {
			continue
		}
		if srv.Target == "." || srv.Port == 0 { // RFC 2782: "." is decidedly not available
			a.refused++
			continue
		}
		records = append(records, srv)
	}
	slices.SortFunc(records, func(x, y *dns.SRV) int {
		return cmp.Or(strings.Compare(nodeID(x), nodeID(y)), cmp.Compare(x.Port, y.Port))
	})
	a.ttl = ttl(m.Answer)
	lowest := uint16(1<<16 - 1)
	for _, srv := range records {
		lowest = min(lowest, srv.Priority)
	}
	for _, srv := range records {
		if srv.Priority != lowest {
			continue
		}
		id := nodeID(srv)
		if n := len(a.nodes); n > 0 && a.nodes[n-1].ID == id {
			a.refused++
			continue
		}
		host, life := conf.target(ctx, srv.Target, m.Extra)
		node := Node{ID: id, Name: id, Weight: int(srv.Weight)}
		if host != "" {
			node.Addr = net.JoinHostPort(host, strconv.Itoa(int(srv.Port)))
			a.ttl = min(a.ttl, life)
		} else {
			a.ttl = 0 // soon again
		}
		a.nodes = append(a.nodes, node)
	}
	if err := ctx.Err(); err != nil { // cut short: what was not resolved says nothing
		return answer{}, err
	}
	if len(a.nodes) == 0 {
		return a, fmt.Errorf("SRV %s: %w", name, errUnusable)
	}
	return a, nil
}

// nodeID returns the name of a record's target without the dot at its end; names differ in case and are one.
func nodeID(srv *dns.SRV) string { return strings.TrimSuffix(strings.ToLower(srv.Target), ".") }

// byAddress returns the addresses of a host as nodes.
func (r *resolver) byAddress(ctx context.Context, host, port string) (answer, error) {
	conf, err := r.config()
	if err != nil {
		return answer{}, err
	}
	m, err := conf.search(ctx, host, dns.TypeA)
	if errors.Is(err, errEmpty) { // one family only, or a node that has both would count twice
		m, err = conf.search(ctx, host, dns.TypeAAAA)
	}
	if err != nil {
		return answer{}, err
	}
	a := answer{ttl: ttl(m.Answer)}
	for _, ip := range addresses(m.Answer, "") {
		addr := net.JoinHostPort(ip, port)
		a.nodes = append(a.nodes, Node{ID: addr, Addr: addr, Name: strings.TrimSuffix(host, ".")})
	}
	return a, nil
}

// target returns an address of an SRV target, "" when there is none to be had, and how long it lives. It is looked for
// in what came along with the records first. Of several the lowest is taken, so that everyone takes the same.
func (c *dnsConfig) target(ctx context.Context, name string, extra []dns.RR) (string, time.Duration) {
	if ips := addresses(extra, name); len(ips) > 0 {
		return ips[0], ttl(extra)
	}
	for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, err := c.query(ctx, name, typ)
		if err != nil {
			continue
		}
		if ips := addresses(m.Answer, ""); len(ips) > 0 {
			return ips[0], ttl(m.Answer)
		}
	}
	return "", 0
}

// addresses returns the addresses in records, those of a name if one is given: IPv4 before IPv6, each in order.
func addresses(records []dns.RR, name string) []string {
	var v4, v6 []string
	for _, rr := range records {
		if name != "" && !strings.EqualFold(rr.Header().Name, name) {
			continue
		}
		switch rr := rr.(type) {
		case *dns.A:
			v4 = append(v4, rr.A.String())
		case *dns.AAAA:
			v6 = append(v6, rr.AAAA.String())
		}
	}
	slices.Sort(v4)
	slices.Sort(v6)
	return append(v4, v6...)
}

// ttl returns the shortest life of records.
func ttl(records []dns.RR) time.Duration {
	shortest := uint32(1<<32 - 1)
	for _, rr := range records {
		if rr.Header().Rrtype != dns.TypeOPT { // whose TTL is none
			shortest = min(shortest, rr.Header().Ttl)
		}
	}
	return time.Duration(shortest) * time.Second
}

// dnsConfig is what resolv.conf says.
type dnsConfig struct {
	*dns.ClientConfig
	servers []string // ip:port
}

func (r *resolver) config() (*dnsConfig, error) {
	conf, err := dns.ClientConfigFromFile(r.file)
	switch {
	case err != nil && len(r.servers) == 0:
		return nil, fmt.Errorf("whom to ask: %w", err)
	case err != nil: // whom to ask is known
		conf = &dns.ClientConfig{Ndots: 1, Timeout: 5, Attempts: 2}
	}
	c := &dnsConfig{ClientConfig: conf, servers: r.servers}
	if len(c.servers) == 0 {
		for _, s := range conf.Servers {
			c.servers = append(c.servers, net.JoinHostPort(s, conf.Port))
		}
	}
	if len(c.servers) == 0 {
		return nil, fmt.Errorf("whom to ask: %s names no server", r.file)
	}
	return c, nil
}

// search asks for records of a name as resolv.conf wants unfinished names to be finished. The first of these names that
// has any is the one.
func (c *dnsConfig) search(ctx context.Context, name string, typ uint16) (*dns.Msg, error) {
	for _, full := range c.NameList(name) {
		m, err := c.query(ctx, full, typ)
		switch {
		case err == nil:
			return m, nil
		case !errors.Is(err, errEmpty): // of this name nothing is known, so none after it may stand in for it
			return nil, fmt.Errorf("%s %s: %w", dns.TypeToString[typ], full, err)
		}
	}
	return nil, fmt.Errorf("%s %s: %w", dns.TypeToString[typ], name, errEmpty)
}

// query asks for the records of one full name, server after server until one answers. errEmpty is an answer.
func (c *dnsConfig) query(ctx context.Context, name string, typ uint16) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), typ)
	q.SetEdns0(1232, false) // what passes unfragmented (dnsflagday.net/2020)
	err := errors.New("no server asked")
	for range max(1, c.Attempts) {
		for _, server := range c.servers {
			var m *dns.Msg
			if m, err = c.exchange(ctx, q, server); err == nil {
				return usable(m, typ)
			}
			if ctx.Err() != nil {
				return nil, err
			}
		}
	}
	return nil, err
}

// exchange asks one server, again over TCP when its answer was truncated.
func (c *dnsConfig) exchange(ctx context.Context, q *dns.Msg, server string) (*dns.Msg, error) {
	var m *dns.Msg
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: time.Duration(c.Timeout) * time.Second}
		conn, err := client.DialContext(ctx, server)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // the library looks at the deadline alone
		m, _, err = client.ExchangeWithConnContext(ctx, q, conn)
		stop()
		_ = conn.Close()
		if network == "udp" && m != nil && m.Truncated {
			continue // whatever else is wrong with it
		}
		if err != nil {
			return nil, fmt.Errorf("%s over %s: %w", server, network, err)
		}
		break
	}
	switch {
	case m.Truncated:
		return nil, fmt.Errorf("%s: truncated over TCP as well", server)
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		return nil, fmt.Errorf("%s answers %s", server, dns.RcodeToString[m.Rcode])
	}
	return m, nil
}

// usable returns m when it has records of the type.
func usable(m *dns.Msg, typ uint16) (*dns.Msg, error) {
	if m.Rcode == dns.RcodeSuccess && slices.ContainsFunc(m.Answer, func(rr dns.RR) bool {
		return rr.Header().Rrtype == typ
	}) {
		return m, nil
	}
	return nil, errEmpty
}
