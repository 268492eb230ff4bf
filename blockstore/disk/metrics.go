package disk

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of reads.
const (
	readOK      = "ok"
	readError   = "error"
	readTimeout = "timeout"
	readDamaged = "damaged"
	readNoSlot  = "no_slot"
)

// Reasons why a block that was put is not kept.
const (
	dropQueue = "queue" // the queue is full
	dropOut   = "out"   // the tier keeps nothing at present
	dropSize  = "size"  // the block or its key is too large
	dropOnce  = "once"  // the disk is full of what is read, and this was offered for the first time
	dropError = "error" // it could not be written
	dropSpace = "space" // deleted files that are still read take the room
	dropClose = "close" // Close had no time for it
)

// metrics are always counted; they are registered where there is a registerer.
type metrics struct {
	reads, drops, skipped           *prometheus.CounterVec
	readBytes, writes, writtenBytes prometheus.Counter
	checksums, moved, reclaimed     prometheus.Counter
	infoDrops, errors               prometheus.Counter
	recoverySeconds, recovered      prometheus.Gauge
	readSeconds, writeSeconds       prometheus.Histogram
	all                             []prometheus.Collector
	reg                             prometheus.Registerer
}

func newMetrics(t *Tier) *metrics {
	m := &metrics{}
	add := func(c prometheus.Collector) { m.all = append(m.all, c) }
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "ashlar_disk_" + name, Help: help})
		add(c)
		return c
	}
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ashlar_disk_" + name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		add(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "ashlar_disk_" + name, Help: help})
		add(g)
		return g
	}
	value := func(name, help string, labels prometheus.Labels, f func(Stats) float64) {
		add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ashlar_disk_" + name, Help: help, ConstLabels: labels,
		}, func() float64 { return f(t.Stats()) }))
	}
	seconds := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ashlar_disk_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(16e-6, 2, 18),
		})
		add(h)
		return h
	}
	m.reads = vec("reads_total", "Reads of blocks that the index knew.", "result",
		readOK, readError, readTimeout, readDamaged, readNoSlot)
	m.readBytes = counter("read_bytes_total", "Bytes of blocks that were read and found right.")
	m.writes = counter("writes_total", "Blocks written.")
	m.writtenBytes = counter("written_bytes_total", "Bytes written to regions, with headers, padding and moved blocks.")
	m.drops = vec("drops_total", "Blocks that were put and not kept.", "reason",
		dropQueue, dropOut, dropSize, dropOnce, dropError, dropSpace, dropClose)
	m.infoDrops = counter("info_drops_total", "Infos that were not kept.")
	m.checksums = counter("checksum_failures_total", "Blocks whose bytes on disk were not what was written.")
	m.errors = counter("errors_total", "Errors of the filesystem.")
	m.moved = counter("moved_blocks_total", "Blocks that were read and so survived their region.")
	m.reclaimed = counter("reclaimed_regions_total", "Regions deleted to make room.")
	m.recoverySeconds = gauge("recovery_seconds", "How long the files of the former process took to be looked through.")
	m.recovered = gauge("recovery_blocks", "Blocks of the former process that were found.")
	m.skipped = vec("recovery_skipped_total", "Files of a former process that were not taken, or not whole.",
		"reason", "damaged", "foreign", "error")
	m.readSeconds = seconds("read_seconds", "Reading one block, waiting for the disk included.")
	m.writeSeconds = seconds("write_seconds", "One write of one or several blocks.")
	value("queue_bytes", "Memory of blocks that wait to be written.", nil,
		func(s Stats) float64 { return float64(s.Queued) })
	value("used_bytes", "Files of the tier, those included that are deleted and still read.", nil,
		func(s Stats) float64 { return float64(s.Used) })
	value("capacity_bytes", "What the files may occupy.", nil, func(s Stats) float64 { return float64(s.Capacity) })
	value("blocks", "Blocks that can be found.", nil, func(s Stats) float64 { return float64(s.Blocks) })
	value("index_bytes", "Memory charged for the index.", nil,
		func(s Stats) float64 { return float64(s.Blocks * indexBytes) })
	value("regions", "Region files.", nil, func(s Stats) float64 { return float64(s.Regions) })
	value("oldest_region_age_seconds", "Since the oldest region was begun.", nil,
		func(s Stats) float64 { return s.OldestAge.Seconds() })
	for _, state := range []State{StateOK, StateReadOnly, StateOut} {
		value("state", "1 for the state the tier is in.", prometheus.Labels{"state": string(state)},
			func(s Stats) float64 {
				if s.State == state {
					return 1
				}
				return 0
			})
	}
	return m
}

// register takes effect as a whole or not at all.
func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for i, c := range m.all {
		if err := reg.Register(c); err != nil {
			for _, c := range m.all[:i] {
				reg.Unregister(c)
			}
			return fmt.Errorf("disk: registering metrics: %w", err)
		}
	}
	m.reg = reg
	return nil
}

func (m *metrics) unregister() {
	if m.reg != nil {
		for _, c := range m.all {
			m.reg.Unregister(c)
		}
	}
}

func (m *metrics) drop(reason string) { m.drops.WithLabelValues(reason).Inc() }

func (m *metrics) read(result string) { m.reads.WithLabelValues(result).Inc() }

func since(h prometheus.Observer, start time.Time) { h.Observe(time.Since(start).Seconds()) }
