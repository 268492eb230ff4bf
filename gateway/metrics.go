package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the engine's counters. They are made whether or not somebody registers them.
type metrics struct {
	blocks                            [numSources]prometheus.Counter
	infoFresh, infoStale, infoMissing prometheus.Counter
	probes, changed                   prometheus.Counter
	copied, rests                     prometheus.Counter
	retries, stale                    prometheus.Counter
	hedges, hedgesWon                 [numStages]prometheus.Counter
	blockSeconds, queueSeconds        prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, g *Gateway) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "ashlar_" + name, Help: help})
	}
	blocks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_blocks_total",
		Help: "Blocks handed to reads, by where they came from. flight: joined a fetch that another read had started.",
	}, []string{"source"})
	info := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_info_total",
		Help: "Reads by the state in which they found the info of their object. Stale and missing info costs an origin request, shared by all who wait for it.",
	}, []string{"state"})
	m := &metrics{
		infoFresh:   info.WithLabelValues("fresh"),
		infoStale:   info.WithLabelValues("stale"),
		infoMissing: info.WithLabelValues("missing"),
		probes:      counter("probes_total", "Origin requests made to settle the info of an object."),
		changed: counter("object_changed_total",
			"Reads that found their object overwritten behind the cache and began again."),
		copied: counter("copied_bytes_total",
			"Bytes that responses copied out of blocks because a quarter of the memory was held by others."),
		rests: counter("block_rests_total",
			"Requests to the origin for the rest of a block that was evicted while a response copied it out."),
		retries: counter("fetch_retries_total",
			"Requests to the origin made because an earlier one for the same had failed."),
		stale: counter("stale_reads_total",
			"Reads answered with info older than the ttl, because the origin is in trouble."),
		queueSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ashlar_origin_queue_seconds",
			Help:    "Time that requests to the origin waited for their turn.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}),
		blockSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ashlar_block_fill_seconds",
			Help:    "Time from wanting memory for a block of an origin's answer to having it complete.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
	}
	stages := []string{"headers", "block"}
	hedges := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_hedges_total",
		Help: "Second requests to the origin beside one that was late with its headers, or with a block of its body.",
	}, []string{"stage"})
	won := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_hedges_won_total",
		Help: "Second requests that were done before the first.",
	}, []string{"stage"})
	for i, name := range stages {
		m.hedges[i], m.hedgesWon[i] = hedges.WithLabelValues(name), won.WithLabelValues(name)
	}
	for s := range numSources {
		m.blocks[s] = blocks.WithLabelValues(s.String())
	}
	if reg == nil {
		return m
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ashlar_" + name, Help: help}, f)
	}
	for _, q := range []float64{0.5, 0.99} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "ashlar_origin_latency_seconds",
			Help:        "Time from a read at the origin to the headers of its answer, in the last one to two minutes.",
			ConstLabels: prometheus.Labels{"percentile": strconv.Itoa(int(100 * q))},
		}, func() float64 { return g.headers.Quantile(q).Seconds() }))
	}
	reg.MustRegister(blocks, info, m.probes, m.changed, m.copied, m.rests, m.retries, m.stale, hedges, won, m.blockSeconds, m.queueSeconds,
		gauge("origin_queue_waiting", "Requests to the origin that wait for their turn, those for what is read ahead too.",
			func() float64 {
				now, ahead := g.queue.waiting()
				return float64(now + ahead)
			}),
		gauge("origin_breaker_open", "1 while the origin is taken to be down, and asked once a second at most.",
			func() float64 {
				if g.breaker.isOpen() {
					return 1
				}
				return 0
			}),
		gauge("memory_pinned_bytes", "Bytes of blocks that responses hold while they write.",
			func() float64 { return float64(g.pins.used.Load()) }),
		gauge("memory_pinned_limit_bytes", "What memory_pinned_bytes may reach; beyond it responses copy.",
			func() float64 { return float64(g.pins.limit) }),
		gauge("ahead_bytes", "Bytes asked of the origin ahead of the blocks that reads are at.",
			func() float64 { return float64(g.ahead.used.Load()) }),
		gauge("blocks_pending", "Blocks on their way from the origin.", func() float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			return float64(len(g.pending))
		}),
		gauge("info_objects", "Objects whose info is remembered.", func() float64 {
			n, _ := g.infos.size()
			return float64(n)
		}),
		gauge("info_bytes", "Memory taken by remembered info, estimated.", func() float64 {
			_, n := g.infos.size()
			return float64(n)
		}),
	)
	return m
}
