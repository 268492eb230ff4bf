package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestRefresh says when DNS is asked again, in virtual time.
func TestRefresh(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name    string
		refresh time.Duration
		ttl     time.Duration
		errs    int // of the first lookups
		want    string
	}{
		{"every refresh", 10 * time.Second, time.Minute, 0, "0s 10s 20s 30s 40s"},
		{"sooner by the TTL", 10 * time.Second, 3 * time.Second, 0, "0s 3s 6s 9s 12s"},
		{"not below a second", 10 * time.Second, 0, 0, "0s 1s 2s 3s 4s"},
		{"ten seconds by default", 0, time.Minute, 0, "0s 10s 20s 30s 40s"},
		{"soon after a failure", 10 * time.Second, time.Minute, 3, "0s 1s 3s 7s 17s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []string
				look := func(context.Context) (answer, error) {
					at = append(at, time.Since(start).String())
					if len(at) <= c.errs {
						return answer{}, down
					}
					return answer{nodes: numbered(3), ttl: c.ttl}, nil
				}
				m, err := newMembership(t.Context(), MembershipConfig{Refresh: c.refresh}, nil, look)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				m.Close()
				if got := strings.Join(at[:5], " "); got != c.want {
					t.Errorf("asked at %s, want %s", got, c.want)
				}
				if m.Snapshot().Len() != 3 {
					t.Errorf("%d nodes", m.Snapshot().Len())
				}
			})
		})
	}
}

// TestStartWithoutDNS: no answer at the start holds it up for 5 s and no longer, and does not fail it.
func TestStartWithoutDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		look := func(ctx context.Context) (answer, error) {
			if asked++; asked == 1 {
				<-ctx.Done()
				return answer{}, ctx.Err()
			}
			return answer{nodes: numbered(2), ttl: time.Hour}, nil
		}
		start := time.Now()
		m, err := newMembership(t.Context(), MembershipConfig{}, nil, look)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if took := time.Since(start); took != firstLookup || m.Snapshot().Len() != 0 {
			t.Errorf("%v, %d nodes", took, m.Snapshot().Len())
		}
		time.Sleep(1100 * time.Millisecond)
		if m.Snapshot().Len() != 2 {
			t.Error("no nodes after the second answer")
		}
	})
}

func TestMembershipMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		answers := []struct {
			a   answer
			err error
		}{
			{answer{}, errors.New("down")},
			{answer{nodes: numbered(2), ttl: time.Hour, refused: 3}, nil},
			{answer{}, fmt.Errorf("wrapped: %w", errEmpty)},
			{answer{refused: 1}, errUnusable},
			{answer{}, nil},
			{answer{nodes: []Node{{ID: ""}}}, nil},
		}
		n := 0
		m, err := newMembership(t.Context(), MembershipConfig{Registerer: reg}, nil,
			func(context.Context) (answer, error) { n++; return answers[n-1].a, answers[n-1].err })
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		if n != 1 {
			t.Fatalf("%d lookups", n)
		}
		for range answers[1:] {
			m.ask(t.Context(), 0)
		}
		time.Sleep(7 * time.Second)
		want := `
			# HELP ashlar_cluster_dns_age_seconds Time since DNS last gave a usable answer; +Inf if it never has.
			# TYPE ashlar_cluster_dns_age_seconds gauge
			ashlar_cluster_dns_age_seconds 7
			# HELP ashlar_cluster_dns_failures_total Times that DNS had no usable answer, so that the nodes stayed as they were, by reason.
			# TYPE ashlar_cluster_dns_failures_total counter
			ashlar_cluster_dns_failures_total{reason="empty"} 2
			ashlar_cluster_dns_failures_total{reason="failed"} 2
			ashlar_cluster_dns_failures_total{reason="unusable"} 1
			# HELP ashlar_cluster_dns_refreshes_total Times that DNS was asked for the nodes.
			# TYPE ashlar_cluster_dns_refreshes_total counter
			ashlar_cluster_dns_refreshes_total 6
			# HELP ashlar_cluster_dns_refused_records_total SRV records that could not be used: targets named twice, without port or saying that there is none.
			# TYPE ashlar_cluster_dns_refused_records_total counter
			ashlar_cluster_dns_refused_records_total 4
			# HELP ashlar_cluster_nodes Nodes that requests are routed among, up or down.
			# TYPE ashlar_cluster_nodes gauge
			ashlar_cluster_nodes 2
			# HELP ashlar_cluster_snapshot_info 1, with the digest of the nodes and weights that requests are routed by.
			# TYPE ashlar_cluster_snapshot_info gauge
			ashlar_cluster_snapshot_info{digest="` + m.Snapshot().Digest() + `"} 1
		`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		static := prometheus.NewRegistry()
		list, err := NewMembership(t.Context(), MembershipConfig{Nodes: numbered(2), Registerer: static})
		if err != nil {
			t.Fatal(err)
		}
		list.Close()
		families, err := static.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range families {
			names = append(names, f.GetName())
		}
		if want := []string{"ashlar_cluster_nodes", "ashlar_cluster_snapshot_info"}; !slices.Equal(names, want) {
			t.Errorf("a list has the metrics %q", names)
		}
	})
}
