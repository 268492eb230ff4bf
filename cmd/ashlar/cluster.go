package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/internal/hedge"
	"github.com/ashlar-s3/ashlar/origin"
)

// startCluster makes what a gateway has besides the parts of a node: the client that it reads from the nodes by, and
// what tells them of writes.
func (n *node) startCluster(ctx context.Context, instance string) error {
	config, err := n.config.clientConfig(instance, n.origin, n.registry, n.log)
	if err != nil {
		return err
	}
	if h := n.config.Cluster.Hedge.rule(); h.On() {
		config.Hedge = newNodeHedge(h, n.config.Cache.HedgeConcurrency)
	}
	if n.cluster, err = client.New(ctx, config); err != nil {
		return badInput("cluster: %w", &explained{err, strings.ReplaceAll(err.Error(), "client: ", "")})
	}
	n.onStop("cluster", n.cluster.Close)
	n.writes = newWrites(n.cluster, n.config.Cluster.WarmOnWrite, n.registry, n.log)
	n.onStop("news of writes", n.writes.close)
	return nil
}

// nodesPerHedge: second requests to nodes are at most a fifth of all. That is more than an origin gets (5%), for one
// node of a few may stand still and hold up its share until enough of them have told so.
const nodesPerHedge = 5

// nodeHedge is the rule of package hedge, for requests to nodes.
type nodeHedge struct {
	rule    hedge.Rule
	budget  *hedge.Budget
	latency *hedge.Latency
}

func newNodeHedge(r hedge.Rule, limit int) *nodeHedge {
	return &nodeHedge{r, hedge.NewBudget(nodesPerHedge, limit), hedge.NewLatency()}
}

// After implements client.Hedge.
func (h *nodeHedge) After() (time.Duration, bool) { return h.rule.Delay(h.latency), true }

// Begin implements client.Hedge.
func (h *nodeHedge) Begin() (func(), bool) {
	if !h.budget.Take() {
		return nil, false
	}
	return h.budget.Done, true
}

// Answered implements client.Hedge.
func (h *nodeHedge) Answered(d time.Duration) {
	h.budget.Request()
	h.latency.Record(d)
}

const (
	newsPatience = 50 * time.Millisecond // what a client waits at most for the nodes to hear of its write
	maxNews      = 1024                  // writes that nodes are being told of
	maxWarming   = 8                     // objects that nodes are being asked to fetch
	warmPatience = 10 * time.Minute      // for one object
)

// nodes is what writes needs of the cluster; *client.Client is one.
type nodes interface {
	Invalidate(ctx context.Context, bucket string, keys ...string) error
	Warm(ctx context.Context, bucket, key string, ranges ...client.Range) error
}

// writes tells the nodes of what is written through this gateway, so that other gateways see it before their ttl is
// over. It does its best: this gateway's own reads are right without it. It is safe for concurrent use.
type writes struct {
	nodes   nodes
	warm    bool
	log     *slog.Logger
	told    *prometheus.CounterVec // by outcome
	warmed  *prometheus.CounterVec // likewise
	news    chan struct{}          // holds one for each write that nodes are being told of
	warming chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newWrites(n nodes, warm bool, reg prometheus.Registerer, log *slog.Logger) *writes {
	w := &writes{
		nodes: n, warm: warm, log: log, news: make(chan struct{}, maxNews), warming: make(chan struct{}, maxWarming),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_cluster_invalidations_total",
			Help: "Writes that the nodes were told of: all of them, not all, or none since there were too many.",
		}, []string{"outcome"}),
		warmed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_cluster_warms_total",
			Help: "Objects that nodes were asked to fetch after a write (cluster.warm_on_write).",
		}, []string{"outcome"}),
	}
	for _, v := range []*prometheus.CounterVec{w.told, w.warmed} {
		for _, outcome := range []string{"ok", "failed", "dropped"} {
			v.WithLabelValues(outcome)
		}
		reg.MustRegister(v)
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// close ends what is under way. No write may be going on any more.
func (w *writes) close() {
	w.cancel()
	w.wg.Wait()
}

// wrote tells the nodes that objects of one bucket may have changed. It returns when they have heard of it, or very soon:
// one that stands still must not hold up writers. They are told all the same then. stored says that the objects are there
// now.
func (w *writes) wrote(objects []origin.Object, stored bool) {
	select {
	case w.news <- struct{}{}:
	default:
		w.told.WithLabelValues("dropped").Inc()
		return
	}
	heard := make(chan struct{})
	w.wg.Go(func() {
		defer func() { <-w.news }()
		w.tell(objects)
		close(heard)
		if stored && w.warm {
			w.fetch(objects)
		}
	})
	t := time.NewTimer(newsPatience)
	defer t.Stop()
	select {
	case <-heard:
	case <-t.C:
	}
}

func (w *writes) tell(objects []origin.Object) {
	keys := make([]string, 0, len(objects))
	for _, o := range objects {
		keys = append(keys, o.Key)
		if o.Raw != "" { // AWS reads a bare plus as a space
			keys = append(keys, strings.ReplaceAll(o.Key, "+", " "))
		}
	}
	if err := w.nodes.Invalidate(w.ctx, objects[0].Bucket, keys...); err != nil {
		w.told.WithLabelValues("failed").Inc()
		w.log.Debug("not all nodes heard of a write; other gateways see it when their ttl is over", "bucket",
			objects[0].Bucket, "key", objects[0].Key, "error", err)
		return
	}
	w.told.WithLabelValues("ok").Inc()
}

// fetch has the owners fetch objects.
func (w *writes) fetch(objects []origin.Object) {
	for _, o := range objects {
		select {
		case w.warming <- struct{}{}:
		default:
			w.warmed.WithLabelValues("dropped").Inc()
			continue
		}
		ctx, cancel := context.WithTimeout(w.ctx, warmPatience)
		err := w.nodes.Warm(ctx, o.Bucket, o.Key)
		cancel()
		<-w.warming
		switch {
		case err == nil:
			w.warmed.WithLabelValues("ok").Inc()
		case !errors.Is(err, origin.ErrNotFound): // deleted since
			w.warmed.WithLabelValues("failed").Inc()
			w.log.Debug("nodes could not fetch what was written", "bucket", o.Bucket, "key", o.Key, "error", err)
		}
	}
}
