package s3api

import (
	"context"
	"log/slog"
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
	operations map[string]*operationMetrics // the common ones, by name; not changed once made
	bypassed   map[bypass]prometheus.Counter
}

// shedReason says why a request was refused, or its connection cut, to protect the others.
type shedReason string

const (
	shedRequests     shedReason = "requests"      // Limits.Requests were being served
	shedForwards     shedReason = "forwards"      // half of them were being forwarded
	shedHeaders      shedReason = "headers"       // more lines than Limits.Headers
	shedSlowUpload   shedReason = "slow_upload"   // sent a body more slowly than Limits.MinRate
	shedSlowDownload shedReason = "slow_download" // took an answer more slowly than that
)

// operationMetrics are the series of one operation, looked up once.
type operationMetrics struct {
	seconds prometheus.Observer
	common  map[int]prometheus.Counter // by status, for those that are to be expected
}

// bypass says why a read of an object was not answered from blocks.
type bypass string

const (
	bypassOrigin     bypass = "cors"       // it has an Origin header: the bucket's CORS headers are the origin's to give
	bypassHeader     bypass = "header"     // an x-amz-* header asks for what blocks don't know
	bypassParameter  bypass = "parameter"  // so does a parameter (partNumber), or one is given twice
	bypassConditions bypass = "conditions" // its conditions are lists, weak tags, or can't be made out
	bypassETag       bypass = "etag"       // the object has no strong ETag
)

// commonStatuses are the series that there are from the start, so that zero shows as zero and rates begin with the first
// request: of the operations that nearly every client uses, with the statuses that are to be expected. The others come
// with their first request.
var commonStatuses = map[string][]int{
	"GetObject":               {200, 206, 304, 400, 403, 404, 412, 416, 500, 502, 503},
	"HeadObject":              {200, 206, 304, 400, 403, 404, 412, 416, 500, 502, 503},
	"ListObjectsV2":           {200, 400, 403, 404, 500, 502, 503},
	"PutObject":               {200, 400, 403, 404, 412, 500, 502, 503},
	"DeleteObject":            {204, 403, 500, 502, 503},
	"CreateMultipartUpload":   {200, 403, 500, 502, 503},
	"UploadPart":              {200, 400, 403, 404, 500, 502, 503},
	"CompleteMultipartUpload": {200, 400, 403, 404, 412, 500, 502, 503},
	"Invalid":                 {400, 503},
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
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
		bypassed:   make(map[bypass]prometheus.Counter),
	}
	aborted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_responses_aborted_total",
		Help: "Answers whose connection was cut, because the client left or stopped reading, or because the origin failed.",
	}, []string{"cause"})
	for _, cause := range []string{cutByClient, cutByOrigin} {
		m.aborted[cause] = aborted.WithLabelValues(cause)
	}
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_requests_shed_total",
		Help: "S3 requests that were refused, or cut off for slowness, to protect the others.",
	}, []string{"reason"})
	for _, r := range []shedReason{shedRequests, shedForwards, shedHeaders, shedSlowUpload, shedSlowDownload} {
		m.shed[r] = shed.WithLabelValues(string(r))
	}
	bypassed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_reads_bypassed_total",
		Help: "GETs and HEADs of objects that were not answered from blocks, by reason.",
	}, []string{"reason"})
	for _, r := range []bypass{bypassOrigin, bypassHeader, bypassParameter, bypassConditions, bypassETag} {
		m.bypassed[r] = bypassed.WithLabelValues(string(r))
	}
	for name, statuses := range commonStatuses {
		m.prepare(name, statuses)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.bytes, m.inFlight, aborted, shed, bypassed} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// prepare makes the series of an operation.
func (m *metrics) prepare(name string, statuses []int) {
	om := &operationMetrics{seconds: m.seconds.WithLabelValues(name), common: make(map[int]prometheus.Counter)}
	for _, s := range statuses {
		om.common[s] = m.requests.WithLabelValues(name, strconv.Itoa(s))
	}
	m.operations[name] = om
}

// observe counts a request that has ended.
func (m *metrics) observe(x *exchange) {
	m.inFlight.Dec()
	m.bytes.Add(float64(x.written))
	took := time.Since(x.start).Seconds()
	om := m.operations[x.op.name]
	if om == nil {
		m.seconds.WithLabelValues(x.op.name).Observe(took)
		m.requests.WithLabelValues(x.op.name, strconv.Itoa(x.status)).Inc()
		return
	}
	om.seconds.Observe(took)
	if c := om.common[x.status]; c != nil {
		c.Inc()
		return
	}
	m.requests.WithLabelValues(x.op.name, strconv.Itoa(x.status)).Inc()
}

// bypasses counts a read that blocks don't answer, and tells the log why.
func (x *exchange) bypasses(why bypass) {
	x.h.metrics.bypassed[why].Inc()
	x.h.logger.LogAttrs(context.WithoutCancel(x.r.Context()), slog.LevelDebug, "read bypasses the cache",
		slog.String("reason", string(why)), slog.String("bucket", x.object.Bucket), slog.String("key", x.object.Key))
}

// forwardedFor says why a read, which plainRead left to the origin, bypasses the cache.
func (x *exchange) forwardedFor(p plainRead) bypass {
	if x.r.Header["Origin"] != nil {
		return bypassOrigin
	}
	if x.amz.beyondRead {
		return bypassHeader
	}
	if _, ok := parseConditions(x.r.Header, p.rng, x.start); !ok {
		return bypassConditions
	}
	return bypassParameter
}
