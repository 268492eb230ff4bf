package client

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label "operation".
const (
	opGet        = "get"
	opHead       = "head"
	opWarm       = "warm"
	opInvalidate = "invalidate"
)

// The values of the label "reason".
const (
	whyConnection = "connection" // none came about, or it broke before an answer
	whyTimeout    = "timeout"    // no answer in time
	whyNode       = "node"       // an error that the node said is its own
	whyBadAnswer  = "bad_answer" // the answer contradicts itself or the question
	whyBody       = "body"       // the body broke off
	whyLocal      = "local"      // never sent: no credentials, or an address that is none

	whyCredentials = "credentials" // the node does not accept ours
)

type metrics struct {
	requests  *prometheus.CounterVec
	errors    *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	firstByte *prometheus.HistogramVec

	failovers, resumptions, fallbacks, blockSize, strangers prometheus.Counter
	hedgesSent, hedgesWon                                   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, r *room) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_cluster_requests_total",
			Help: "Requests to nodes by operation and class of the answer's status; none is a request without answer.",
		}, []string{"node", "operation", "status"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_cluster_errors_total",
			Help: "Requests to nodes that another node had to be asked for, or that failed, by reason.",
		}, []string{"node", "reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_cluster_bytes_total",
			Help: "Bytes of objects received from nodes.",
		}, []string{"node"}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ashlar_cluster_first_byte_seconds",
			Help:    "Time from sending a read to a node to the headers of its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"node"}),
		failovers: counter("ashlar_cluster_failovers_total",
			"Times that another node or the fallback was asked because one had failed."),
		resumptions: counter("ashlar_cluster_resumptions_total",
			"Bodies that were continued by another node or the fallback, from their first missing byte on."),
		fallbacks: counter("ashlar_cluster_fallback_requests_total",
			"Requests to the fallback because two nodes had failed or none was up."),
		blockSize: counter("ashlar_cluster_block_size_mismatches_total",
			"Answers of nodes whose block size does not divide the routing unit."),
		strangers: counter("ashlar_cluster_stranger_answers_total",
			"Answers of nodes that take this process for any client, since its key there lacks cluster = true."),
	}
	hedges := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_cluster_hedges_total",
		Help: "Requests to a second node while the first was slow: all of them, and those that came in first.",
	}, []string{"outcome"})
	m.hedgesSent, m.hedgesWon = hedges.WithLabelValues("sent"), hedges.WithLabelValues("won")
	if reg == nil {
		return m, nil
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ashlar_cluster_read_ahead_bytes",
		Help: "Memory taken for what is received from nodes before it is read.",
	}, func() float64 { return float64(r.used.Load()) })
	refused := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ashlar_cluster_read_ahead_refused_total",
		Help: "Routing units asked for ahead that there was no such memory for; they wait in their connections.",
	}, func() float64 { return float64(r.refused.Load()) })
	for _, c := range []prometheus.Collector{
		held, refused, m.requests, m.errors, m.bytes, m.firstByte, m.failovers, m.resumptions, m.fallbacks, m.blockSize,
		m.strangers, hedges,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("client: metrics: %w", err)
		}
	}
	return m, nil
}

// answered counts an answer; status 0 is none.
func (m *metrics) answered(node, op string, status int) {
	class := "none"
	if status != 0 {
		class = strconv.Itoa(status/100) + "xx"
	}
	m.requests.WithLabelValues(node, op, class).Inc()
}

// forget drops the series of a node that has gone.
func (m *metrics) forget(node string) {
	is := prometheus.Labels{"node": node}
	m.requests.DeletePartialMatch(is)
	m.errors.DeletePartialMatch(is)
	m.bytes.DeletePartialMatch(is)
	m.firstByte.DeletePartialMatch(is)
}
