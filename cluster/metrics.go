package cluster

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label "reason" of failed lookups.
const (
	whyEmpty    = "empty"    // the answer had no such records, or the name does not exist
	whyUnusable = "unusable" // it had, and none can be used
	whyFailed   = "failed"   // no answer, or one that is an error
)

// membershipMetrics tells of the nodes and of where they were learnt from. Those of DNS are there only where it is
// asked.
type membershipMetrics struct {
	m         *Membership
	snapshot  *prometheus.Desc
	nodes     *prometheus.Desc
	age       *prometheus.Desc
	refreshes prometheus.Counter
	failures  *prometheus.CounterVec
	refused   prometheus.Counter
}

func newMembershipMetrics(reg prometheus.Registerer, m *Membership) (*membershipMetrics, error) {
	x := &membershipMetrics{
		m: m,
		snapshot: prometheus.NewDesc("ashlar_cluster_snapshot_info",
			"1, with the digest of the nodes and weights that requests are routed by.", []string{"digest"}, nil),
		nodes: prometheus.NewDesc("ashlar_cluster_nodes", "Nodes that requests are routed among, up or down.", nil, nil),
		age: prometheus.NewDesc("ashlar_cluster_dns_age_seconds",
			"Time since DNS last gave a usable answer; +Inf if it never has.", nil, nil),
		refreshes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashlar_cluster_dns_refreshes_total",
			Help: "Times that DNS was asked for the nodes.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_cluster_dns_failures_total",
			Help: "Times that DNS had no usable answer, so that the nodes stayed as they were, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashlar_cluster_dns_refused_records_total",
			Help: "SRV records that could not be used: targets named twice, without port or saying that there is none.",
		}),
	}
	for _, why := range []string{whyEmpty, whyUnusable, whyFailed} {
		x.failures.WithLabelValues(why)
	}
	if reg == nil {
		return x, nil
	}
	if err := reg.Register(x); err != nil {
		return nil, fmt.Errorf("cluster: metrics: %w", err)
	}
	return x, nil
}

// asked counts a lookup.
func (x *membershipMetrics) asked(a answer, err error) {
	x.refreshes.Inc()
	x.refused.Add(float64(a.refused))
	switch {
	case err == nil:
	case errors.Is(err, errEmpty):
		x.failures.WithLabelValues(whyEmpty).Inc()
	case errors.Is(err, errUnusable):
		x.failures.WithLabelValues(whyUnusable).Inc()
	default:
		x.failures.WithLabelValues(whyFailed).Inc()
	}
}

// Describe implements prometheus.Collector.
func (x *membershipMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- x.snapshot
	to <- x.nodes
	if x.m.lookup != nil {
		to <- x.age
		x.refreshes.Describe(to)
		x.failures.Describe(to)
		x.refused.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (x *membershipMetrics) Collect(to chan<- prometheus.Metric) {
	s := x.m.Snapshot()
	to <- prometheus.MustNewConstMetric(x.snapshot, prometheus.GaugeValue, 1, s.Digest())
	to <- prometheus.MustNewConstMetric(x.nodes, prometheus.GaugeValue, float64(s.Len()))
	if x.m.lookup == nil {
		return
	}
	age := math.Inf(1)
	if good := x.m.good.Load(); good != 0 {
		age = time.Since(time.Unix(0, good)).Seconds()
	}
	to <- prometheus.MustNewConstMetric(x.age, prometheus.GaugeValue, age)
	x.refreshes.Collect(to)
	x.failures.Collect(to)
	x.refused.Collect(to)
}

// routerMetrics tells of the nodes as this process sees them. Nodes that have gone have no metrics.
type routerMetrics struct {
	r        *Router
	state    *prometheus.Desc
	inFlight *prometheus.Desc
	latency  *prometheus.Desc
	spills   [numStates]prometheus.Counter
	failures [numFailures]prometheus.Counter
	downs    prometheus.Counter
}

func newRouterMetrics(reg prometheus.Registerer, r *Router) (*routerMetrics, error) {
	x := &routerMetrics{
		r: r,
		state: prometheus.NewDesc("ashlar_cluster_node_state",
			"1 for the state that the node is in, seen from here, 0 for the others.", []string{"node", "state"}, nil),
		inFlight: prometheus.NewDesc("ashlar_cluster_node_requests_in_flight",
			"Requests to the node from here whose body has not been read to its end.", []string{"node"}, nil),
		latency: prometheus.NewDesc("ashlar_cluster_node_latency_seconds",
			"Moving average of the time from sending a request to the node to the headers of its answer.",
			[]string{"node"}, nil),
		downs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashlar_cluster_node_downs_total",
			Help: "Times that a node was held to be down.",
		}),
	}
	spills := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_cluster_spills_total",
		Help: "Requests that went to another node than the owner from the start, by what the owner was.",
	}, []string{"owner"})
	for s := Full; s < numStates; s++ {
		x.spills[s] = spills.WithLabelValues(s.String())
	}
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_cluster_node_failures_total",
		Help: "Failures of nodes, as far as they count against their health, by kind.",
	}, []string{"kind"})
	for f := range numFailures {
		x.failures[f] = failures.WithLabelValues(f.String())
	}
	if reg == nil {
		return x, nil
	}
	for _, c := range []prometheus.Collector{x, spills, failures, x.downs} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("cluster: metrics: %w", err)
		}
	}
	return x, nil
}

// Describe implements prometheus.Collector.
func (x *routerMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- x.state
	to <- x.inFlight
	to <- x.latency
}

// Collect implements prometheus.Collector.
func (x *routerMetrics) Collect(to chan<- prometheus.Metric) {
	for _, n := range x.r.Status() {
		for s := range numStates {
			is := 0.0
			if s == n.State {
				is = 1
			}
			to <- prometheus.MustNewConstMetric(x.state, prometheus.GaugeValue, is, n.Node.ID, s.String())
		}
		to <- prometheus.MustNewConstMetric(x.inFlight, prometheus.GaugeValue, float64(n.InFlight), n.Node.ID)
		to <- prometheus.MustNewConstMetric(x.latency, prometheus.GaugeValue, n.Latency.Seconds(), n.Node.ID)
	}
}
