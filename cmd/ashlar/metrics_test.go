package main

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ashlar-s3/ashlar/cluster"
)

// TestMetrics holds what a node and a gateway export against what their manual says, both ways, and against the customs of
// Prometheus.
func TestMetrics(t *testing.T) {
	cert, key := newTestCA(t).files(t)
	n := newTestNode(t, func(c *Config) {
		c.Server.TLS = TLS{Cert: cert, Key: key}
		c.Cache.Disk = testDisk(t.TempDir())
	})
	gw := newTestCluster(t, time.Second, nil)
	c := httpClient(t)
	for i := range 10 { // some of them belong to a node that has gone
		gw.store.Put("bucket", strconv.Itoa(i), []byte("x"))
		get(t, c, gw.s3.url()+"/bucket/"+strconv.Itoa(i))
		gw.nodes[0].stop()
	}
	named := prometheus.NewRegistry() // of a cluster whose nodes have a name
	members, err := cluster.NewMembership(t.Context(), cluster.MembershipConfig{DNS: "nodes.:9000",
		Servers: []string{"127.0.0.1:1"}, Registerer: named})
	if err != nil {
		t.Fatal(err)
	}
	defer members.Close()
	var exported []string
	for _, reg := range []*prometheus.Registry{n.registry, gw.registry, named} {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "ashlar_") {
				exported = append(exported, f.GetName())
			} else if !regexp.MustCompile("^(go|process|promhttp)_").MatchString(f.GetName()) {
				t.Errorf("whose is %s?", f.GetName())
			}
			if strings.HasPrefix(f.GetName(), "process_network") {
				t.Errorf("%s is not about this process", f.GetName())
			}
		}
	}
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`\bashlar_[a-z0-9_]*[a-z0-9]\b`).FindAllString(string(manual), -1)
	for _, name := range exported {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/operations.md lacks %s", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(exported, name) {
			t.Errorf("docs/operations.md has %s, which is not exported", name)
		}
	}

	problems, err := testutil.GatherAndLint(n.registry)
	if err != nil {
		t.Fatal(err)
	}
	more, err := testutil.GatherAndLint(gw.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(problems, more...) {
		if strings.HasPrefix(p.Metric, "ashlar_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if _, text := get(t, c, n.admin.url()+"/metrics"); strings.Count(text, "\n") > 900 {
		t.Errorf("%d lines before the first request", strings.Count(text, "\n"))
	}
}
