package memory

import "github.com/prometheus/client_golang/prometheus"

// Stats is what a tier holds at one moment, in bytes where not said otherwise, and what it did since it was made.
type Stats struct {
	Limit    int64 // Config.Limit
	Used     int64 // slots in use by whole pages, and the overhead of their blocks
	Resident int64 // pages in memory, those of free slots included; with the overhead of blocks it never exceeds Limit
	Free     int64 // resident pages that are kept for reuse
	Window   int64 // cost of the blocks in the window: their slots and overhead
	Main     int64 // cost of the blocks in the main part
	// Outside is the rest of Used: blocks being filled, blocks evicted but still read, remainders of shared pages.
	Outside int64
	Blocks  int64 // blocks that can be found
	Slots   int64 // slots in use, those of blocks outside included
	Waiting int64 // Allocs that wait at this moment

	Evicted    uint64 // blocks that had been admitted to the main part and were taken out, replaced ones included
	Rejected   uint64 // blocks that left the tier from the window
	AllocWaits uint64 // Allocs that had to wait
}

// Stats returns the present numbers. It takes two locks for a moment: it is for metrics, not for hot paths.
func (t *Tier) Stats() Stats {
	o, a := &t.order, t.arena
	o.mu.Lock()
	defer o.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Stats{
		Limit: a.limit, Used: a.spent() - a.warm, Resident: a.resident, Free: a.warm,
		Window: o.window.cost, Main: o.main.cost,
		Blocks: int64(o.window.n + o.main.n), Slots: a.blocks, Waiting: int64(a.queue.Len()),
		Evicted: o.evicted, Rejected: o.rejected, AllocWaits: t.policy.waits.Load(),
	}
	s.Outside = max(s.Used-s.Window-s.Main, 0)
	return s
}

// collector exports Stats.
type collector struct {
	tier    *Tier
	metrics []metric
}

type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Stats) float64
}

func newCollector(t *Tier) *collector {
	c := &collector{tier: t}
	add := func(name, help string, kind prometheus.ValueType, value func(*Stats) float64) {
		c.metrics = append(c.metrics, metric{
			prometheus.NewDesc("ashlar_memory_"+name, help, nil, nil), kind, value})
	}
	gauge := func(name, help string, value func(*Stats) int64) {
		add(name, help, prometheus.GaugeValue, func(s *Stats) float64 { return float64(value(s)) })
	}
	counter := func(name, help string, value func(*Stats) uint64) {
		add(name, help, prometheus.CounterValue, func(s *Stats) float64 { return float64(value(s)) })
	}
	gauge("limit_bytes", "What the memory tier may occupy.", func(s *Stats) int64 { return s.Limit })
	gauge("used_bytes", "Slots in use by whole pages, and the overhead of their blocks.",
		func(s *Stats) int64 { return s.Used })
	gauge("resident_bytes", "Pages of the tier in memory, those of free slots included.",
		func(s *Stats) int64 { return s.Resident })
	gauge("free_bytes", "Resident pages that are kept for reuse.", func(s *Stats) int64 { return s.Free })
	gauge("window_bytes", "Blocks in the window, those put last.", func(s *Stats) int64 { return s.Window })
	gauge("main_bytes", "Blocks in the main part.", func(s *Stats) int64 { return s.Main })
	gauge("outside_bytes", "Blocks being filled, blocks evicted but still read, remainders of shared pages.",
		func(s *Stats) int64 { return s.Outside })
	gauge("blocks", "Blocks that can be found.", func(s *Stats) int64 { return s.Blocks })
	gauge("alloc_waiting", "Allocations that wait for room at this moment.",
		func(s *Stats) int64 { return s.Waiting })
	counter("evictions_total", "Blocks taken out of the main part.", func(s *Stats) uint64 { return s.Evicted })
	counter("rejects_total", "Blocks that left the tier without being admitted to its main part.",
		func(s *Stats) uint64 { return s.Rejected })
	counter("alloc_waits_total", "Allocations that had to wait for room.",
		func(s *Stats) uint64 { return s.AllocWaits })
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.tier.Stats()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s))
	}
}
