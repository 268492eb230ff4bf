package s3api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what the handler counts.
type metrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	bytes      prometheus.Counter
	inFlight   prometheus.Gauge
	aborted    map[string]prometheus.Counter // by cause; not changed once made
	shed       map[shedReason]prometheus.Counter
	operations map[string]*operationMetrics // by name; not changed once made
}

// shedReason says why a request was refused, or its connection cut, to protect the others.
type shedReason string

const (
	shedRequests     shedReason = "requests"      // Limits.Requests were being served
	shedHeaders      shedReason = "headers"       // more lines than Limits.Headers
	shedSlowUpload   shedReason = "slow_upload"   // sent a body more slowly than Limits.MinRate
	shedSlowDownload shedReason = "slow_download" // took an answer more slowly than that
)

// operationMetrics are the series of one operation, looked up once.
type operationMetrics struct {
	seconds prometheus.Observer
	common  map[int]prometheus.Counter // by status, for those that are to be expected
}

// Statuses that the two read operations are sure to meet.
var readStatuses = []int{200, 206, 304, 400, 403, 404, 412, 416, 500, 502, 503}

func newMetrics(r prometheus.Registerer, t *table) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_requests_total",
			Help: "S3 requests by operation and HTTP status; 499: the client left before the answer.",
		}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ashlar_request_seconds",
			Help: "Time from the headers of an S3 request to the last byte of its answer.",
			Buckets: []float64{
				.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
			},
		}, []string{"operation"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ashlar_response_bytes_total",
			Help: "Bytes of bodies of answers to S3 requests.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ashlar_requests_in_flight",
			Help: "S3 requests being served.",
		}),
		aborted:    make(map[string]prometheus.Counter),
		shed:       make(map[shedReason]prometheus.Counter),
		operations: make(map[string]*operationMetrics),
	}
	aborted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_responses_aborted_total",
		Help: "Answers whose connection was cut, because the client left or stopped reading, or because the origin failed.",
	}, []string{"cause"})
	for _, cause := range []string{"client", "origin"} {
		m.aborted[cause] = aborted.WithLabelValues(cause)
	}
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_requests_shed_total",
		Help: "S3 requests that were refused, or cut off for slowness, to protect the others.",
	}, []string{"reason"})
	for _, r := range []shedReason{shedRequests, shedHeaders, shedSlowUpload, shedSlowDownload} {
		m.shed[r] = shed.WithLabelValues(string(r))
	}
	for _, o := range t.all {
		m.prepare(o)
	}
	m.prepare(&otherOperations[atObject])
	m.prepare(&invalidOperation)
	m.prepare(&invalidateOperation)
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.bytes, m.inFlight, aborted, shed} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// prepare makes the series of an operation, so that zero shows as zero.
func (m *metrics) prepare(o *operation) {
	statuses := []int{200}
	switch {
	case o.read:
		statuses = readStatuses
	case o == &invalidOperation:
		statuses = []int{400}
	}
	om := &operationMetrics{seconds: m.seconds.WithLabelValues(o.name), common: make(map[int]prometheus.Counter)}
	for _, s := range statuses {
		om.common[s] = m.requests.WithLabelValues(o.name, strconv.Itoa(s))
	}
	m.operations[o.name] = om
}

// observe counts a request that has ended.
func (m *metrics) observe(x *exchange) {
	m.inFlight.Dec()
	m.bytes.Add(float64(x.written))
	om := m.operations[x.op.name]
	om.seconds.Observe(time.Since(x.start).Seconds())
	if c := om.common[x.status]; c != nil {
		c.Inc()
		return
	}
	m.requests.WithLabelValues(x.op.name, strconv.Itoa(x.status)).Inc()
}
