package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
)

// Cluster says which nodes a gateway reads from. One of Nodes, DNS and SRV makes a process a gateway.
type Cluster struct {
	Nodes       []ClusterNode `toml:"nodes"`
	DNS         string        `toml:"dns"` // host:port
	SRV         string        `toml:"srv"`
	Resolver    string        `toml:"resolver"`   // ip:port of the DNS server to ask; "" is those of resolv.conf
	Refresh     Duration      `toml:"refresh"`    // of what DNS said
	BlockSize   Size          `toml:"block_size"` // of a routing unit
	ReadWindow  int           `toml:"read_window"`
	LoadLimit   int           `toml:"load_limit"` // requests in flight to one node, before the next takes some
	DownFor     Duration      `toml:"down_for"`
	Hedge       Hedge         `toml:"hedge,inline"`
	TLS         ClusterTLS    `toml:"tls,inline"`
	Credentials Credentials   `toml:"credentials,inline"`
	WarmOnWrite bool          `toml:"warm_on_write"` // owners fetch what was written
}

// ClusterNode is one entry of a list of nodes. The file may have a string, host:port, which is its ID too.
type ClusterNode struct {
	ID     string `toml:"id"`
	Addr   string `toml:"addr"`
	Weight int    `toml:"weight"`
}

// newClusterNode returns an entry before its keys are read.
func newClusterNode() ClusterNode { return ClusterNode{Weight: 1} }

// ClusterTLS is how nodes are spoken to over TLS; with nothing set it is plain HTTP.
type ClusterTLS struct {
	CA         string `toml:"ca"`          // PEM file of authorities to trust; "" is the system's
	ServerName string `toml:"server_name"` // that every node's certificate must bear; "" is each node's own
	Cert       string `toml:"cert"`        // PEM file of a certificate to show
	Key        string `toml:"key"`
}

func (t *ClusterTLS) on() bool { return *t != ClusterTLS{} }

// gateway says whether the process reads from a cluster.
func (c *Config) gateway() bool {
	return len(c.Cluster.Nodes) > 0 || c.Cluster.DNS != "" || c.Cluster.SRV != ""
}

func (c *Cluster) validate(s *sources) {
	const at = "cluster."
	given := paths{}
	for _, source := range []struct {
		name string
		set  bool
	}{{"nodes", len(c.Nodes) > 0}, {"dns", c.DNS != ""}, {"srv", c.SRV != ""}} {
		if source.set {
			given = append(given, at+source.name)
		}
	}
	switch {
	case len(given) > 1:
		s.clash(given, "the nodes are learnt from one place: keep one of nodes, dns and srv")
	case len(given) == 0 && (s.set("cluster.nodes") || !reflect.DeepEqual(*c, defaults().Cluster)):
		s.clash(paths{"cluster", "cluster.nodes"}, "needs nodes, dns or srv: which nodes this gateway reads from; "+
			"without [cluster] it is a node itself")
	}
	seen := make(map[string]bool)
	for i, n := range c.Nodes {
		at := element("cluster.nodes", i)
		if n.ID == "" && n.Addr == "" {
			s.fail(at, "has neither an addr nor an id")
			continue
		}
		s.nodeAddress(at, cmp.Or(n.Addr, n.ID))
		if id := cmp.Or(n.ID, n.Addr); seen[id] {
			s.fail(at, "%q was given before", id)
		} else {
			seen[id] = true
		}
		if n.Weight < 1 || n.Weight > cluster.MaxWeight {
			s.fail(at, "the weight %d is out of range; it must be from 1 to %d", n.Weight, cluster.MaxWeight)
		}
	}
	if c.DNS != "" {
		s.nodeAddress(at+"dns", c.DNS)
	}
	if c.SRV != "" && strings.ContainsAny(c.SRV, ": /\t\r\n") {
		s.fail(at+"srv", "%q is not the name of SRV records; write it as \"_s3._tcp.nodes.example.com\"", c.SRV)
	}
	if _, err := netip.ParseAddrPort(c.Resolver); c.Resolver != "" && err != nil {
		s.fail(at+"resolver", "%q is not ip:port; write it as \"10.0.0.53:53\"", c.Resolver)
	}
	s.between(at+"refresh", c.Refresh, Duration(time.Second), maxTimeout)
	if c.BlockSize < minBlock || c.BlockSize > maxRegion || c.BlockSize%minBlock != 0 {
		s.fail(at+"block_size", "%v is not a multiple of %v up to %v", c.BlockSize, minBlock, maxRegion)
	}
	s.within(at+"read_window", c.ReadWindow, 1, maxWindow)
	s.within(at+"load_limit", c.LoadLimit, 1, maxConcurrency)
	s.between(at+"down_for", c.DownFor, minTimeout, maxTimeout)
	c.Hedge.validate(s, at+"hedge")
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		s.clash(paths{at + "tls.cert", at + "tls.key"}, "cert and key belong together")
	}
	c.Credentials.validate(s, at+"credentials.")
}

// nodeAddress refuses what can't be connected to.
func (s *sources) nodeAddress(path, addr string) {
	host, port, err := net.SplitHostPort(addr)
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil || n == 0 || host == "" ||
		net.ParseIP(strings.Split(host, "%")[0]) == nil && !validHost(host) {
		s.fail(path, "%q is not host:port; write it as \"10.0.0.1:9000\" or \"node-1.example.com:9000\"", addr)
	}
}

// resolve reads the files that the section names.
func (c *Cluster) resolve(s *sources) {
	c.Credentials.Secret = s.secret("cluster.credentials.", c.Credentials.SecretKey, c.Credentials.SecretKeyFile)
	s.authorities("cluster.tls.ca", c.TLS.CA)
	s.pair("cluster.tls", c.TLS.Cert, c.TLS.Key)
}

// config returns what nodes are spoken to with; nil is plain HTTP.
func (t *ClusterTLS) config() (*tls.Config, error) {
	if !t.on() {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// maxReadAhead is what is received from nodes before there is memory for it in the tier. It comes out of the quarter of
// cache.memory and the 64 MiB that the process may take beside the tier, so it is an eighth at most, and no more than
// this.
const maxReadAhead = 32 * mib

// clientConfig returns the configuration of the cluster's client. It says nothing of hedging.
func (c *Config) clientConfig(instance string, fallback origin.Origin, reg prometheus.Registerer, log *slog.Logger) (
	client.Config, error) {
	cl := &c.Cluster
	secure, err := cl.TLS.config()
	if err != nil {
		return client.Config{}, badInput("cluster.tls: %w", err)
	}
	members := cluster.MembershipConfig{DNS: cl.DNS, SRV: cl.SRV, Refresh: time.Duration(cl.Refresh)}
	if cl.Resolver != "" {
		members.Servers = []string{cl.Resolver}
	}
	for _, n := range cl.Nodes {
		members.Nodes = append(members.Nodes, cluster.Node{ID: n.ID, Addr: n.Addr, Weight: n.Weight})
	}
	return client.Config{
		Members:     members,
		BlockSize:   int64(cl.BlockSize),
		ReadWindow:  cl.ReadWindow,
		ReadAhead:   int64(min(c.Cache.Memory/8, maxReadAhead)),
		LoadLimit:   cl.LoadLimit,
		DownFor:     time.Duration(cl.DownFor),
		TLS:         secure,
		Region:      c.Origin.Region,
		Credentials: cl.Credentials.toSign(),
		Instance:    instance,
		Fallback:    fallback,
		Registerer:  reg,
		Logger:      log,
	}, nil
}
