package s3origin

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label "operation".
const (
	opGet     = "get"
	opHead    = "head"
	opForward = "forward"
)

// The values of the label "reason": why a request had no answer, or an answer that is of no use.
const (
	whyConnect     = "connect"     // no connection came about
	whyTimeout     = "timeout"     // no headers, or no more bytes, in time
	whyCanceled    = "canceled"    // whoever asked has gone
	whyCredentials = "credentials" // there are none to sign with, or the origin refuses them
	whyBadAnswer   = "bad_answer"  // the answer contradicts itself or the question
	whyBroken      = "broken"      // the connection broke before headers
	whyShort       = "short_body"  // the body ended before its end
)

type metrics struct {
	requests    *prometheus.CounterVec
	errors      *prometheus.CounterVec
	firstByte   *prometheus.HistogramVec
	bytes       prometheus.Counter
	connections prometheus.Counter
	inFlight    prometheus.Gauge
}

// newMetrics registers the metrics, with all values of their labels present from the start.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_origin_requests_total",
			Help: "Requests to the origin by operation and class of the answer's status; none is a request without answer.",
		}, []string{"operation", "status"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_origin_errors_total",
			Help: "Requests to the origin that had no answer or one that could not be used, by reason.",
		}, []string{"reason"}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ashlar_origin_first_byte_seconds",
			Help:    "Time from sending a read to the headers of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"operation"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashlar_origin_bytes_total",
			Help: "Bytes of bodies received from the origin.",
		}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashlar_origin_connections_opened_total",
			Help: "Connections opened to the origin.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ashlar_origin_requests_in_flight",
			Help: "Requests to the origin whose body has not been closed yet.",
		}),
	}
	for _, op := range []string{opGet, opHead, opForward} {
		for _, status := range []string{"2xx", "3xx", "4xx", "5xx", "none"} {
			m.requests.WithLabelValues(op, status)
		}
	}
	m.firstByte.WithLabelValues(opGet)
	m.firstByte.WithLabelValues(opHead)
	for _, why := range []string{
		whyConnect, whyTimeout, whyCanceled, whyCredentials, whyBadAnswer, whyBroken, whyShort,
	} {
		m.errors.WithLabelValues(why)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.errors, m.firstByte, m.bytes, m.connections, m.inFlight} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("s3origin: metrics: %w", err)
		}
	}
	return m, nil
}

// answered counts an answer, d after the request was sent.
func (m *metrics) answered(op string, status int, d time.Duration) {
	m.requests.WithLabelValues(op, strconv.Itoa(status/100)+"xx").Inc()
	if op != opForward { // an upload's answer comes when its body has been sent
		m.firstByte.WithLabelValues(op).Observe(d.Seconds())
	}
}
