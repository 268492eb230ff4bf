package main

import (
	"crypto/tls"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/disk"
	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
)

// TestSettingsReachTheirParts: what the file says is what the parts are told, key by key. None has its default here.
func TestSettingsReachTheirParts(t *testing.T) {
	c := defaults()
	c.Origin = Origin{Endpoint: "https://s3.test", Region: "eu-1", VirtualHosted: true, CA: "ca.pem",
		Credentials: Credentials{Source: "static", AccessKey: "A", Secret: "s", SessionToken: "t", Profile: "p"}}
	signing := s3origin.Credentials{Source: "static", AccessKey: "A", SecretKey: "s", SessionToken: "t", Profile: "p"}
	c.Cache = Cache{Memory: 512 * mib, InfoMemory: 3 * mib, OriginConcurrency: 200, ReadaheadConcurrency: 5, HedgeConcurrency: 7,
		Disk: Disk{Path: "dir", Capacity: 9 * gib, RegionSize: 32 * mib, DirectIO: true, Recover: "strict", Reserve: 2 * gib}}
	c.Buckets.BlockSize = 4 * mib
	c.Cluster = Cluster{SRV: "_s3._tcp.nodes.test", Resolver: "127.0.0.1:53", Refresh: Duration(3 * time.Second),
		BlockSize: 8 * mib, ReadWindow: 3, LoadLimit: 9, DownFor: Duration(4 * time.Second),
		TLS: ClusterTLS{ServerName: "nodes.test"}, Credentials: c.Origin.Credentials}

	same := func(part string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is told\n%+v\nwant\n%+v", part, got, want)
		}
	}
	same("the origin", c.originConfig(), s3origin.Config{Endpoint: "https://s3.test", Region: "eu-1", VirtualHosted: true,
		CAFile: "ca.pem", Credentials: signing, MaxIdleConns: 400})
	index := int64(c.Cache.diskIndex())
	if index == 0 {
		t.Error("no memory for the index of the disk")
	}
	same("the disk", c.diskConfig(), disk.Config{Dir: "dir", Capacity: 9 << 30, RegionSize: 32 << 20, MaxBlock: 4 << 20,
		DirectIO: true, Recover: disk.RecoverStrict, IndexLimit: index / 17 * 16, QueueLimit: 64 << 20, ReadLimit: 64 << 20,
		Reserve: 2 << 30})
	engine := c.engineConfig()
	engine.Policy = nil // TestPolicies
	same("the engine", engine, gateway.Config{InfoMemory: 3 << 20, OriginConcurrency: 200, ReadaheadConcurrency: 5,
		HedgeConcurrency: 7, CachesBehind: true})

	log := slog.New(slog.DiscardHandler)
	nodes, err := c.clientConfig("me", nil, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	same("the cluster's client", nodes, client.Config{
		Members: cluster.MembershipConfig{SRV: "_s3._tcp.nodes.test", Servers: []string{"127.0.0.1:53"}, Refresh: 3 * time.Second},
		Region:  "eu-1", BlockSize: 8 << 20, ReadWindow: 3, ReadAhead: 32 << 20, LoadLimit: 9, DownFor: 4 * time.Second,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "nodes.test"}, Credentials: signing, Instance: "me", Logger: log,
	})
	c.Cluster.SRV, c.Cluster.DNS = "", "nodes.test:9000"
	if nodes, err = c.clientConfig("me", nil, nil, log); err != nil || nodes.Members.DNS != "nodes.test:9000" {
		t.Errorf("%+v, %v", nodes.Members, err)
	}
	c.Cluster.DNS, c.Cluster.Nodes = "", []ClusterNode{{ID: "a", Addr: "127.0.0.1:1", Weight: 3}}
	if nodes, err = c.clientConfig("me", nil, nil, log); err != nil ||
		!reflect.DeepEqual(nodes.Members.Nodes, []cluster.Node{{ID: "a", Addr: "127.0.0.1:1", Weight: 3}}) {
		t.Errorf("%+v, %v", nodes.Members, err)
	}
}
