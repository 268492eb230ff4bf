package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ashlar-s3/ashlar/blockstore/disk"
	"github.com/ashlar-s3/ashlar/blockstore/memory"
	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/ashlar-s3/ashlar/s3api"
)

// node is a serving process, its parts in the order in which they are made. A request comes in at s3, which hands it
// to s3api, which reads through gateway from memory, disk or, what is not there, from origin; where [cluster] makes it a
// gateway, from the nodes of a cluster, and writes to origin.
type node struct {
	config   *Config
	log      *slog.Logger
	registry *prometheus.Registry

	origin  *watchedOrigin
	cluster *client.Client // nil unless this is a gateway
	writes  *writes        // likewise
	memory  *memory.Tier
	disk    *disk.Tier // nil without one
	gateway *gateway.Gateway
	handler *s3api.Handler
	certs   *certificates // nil without TLS
	admin   *server       // nil when server.admin is ""
	s3      *server

	ready  atomic.Bool // what /-/ready says
	failed chan error  // a listener that ended by itself; one value at most
	stops  []step      // undo what start did; called last to first
}

// step is a part of the node that was started, and what stops it.
type step struct {
	name string
	stop func()
}

// startNode starts a node. It returns when clients can connect; it does not wait for the origin, which may come up
// later: what is wrong there is logged. The context bounds nothing but the start.
func startNode(ctx context.Context, c *Config, log *slog.Logger) (*node, error) {
	n := &node{config: c, log: log, registry: prometheus.NewRegistry(), failed: make(chan error, 1)}
	if err := n.start(ctx); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

func (n *node) start(ctx context.Context) error {
	c, began := n.config, time.Now()
	registerProcess(n.registry)

	instance, err := newInstanceID()
	if err != nil {
		return err
	}
	if n.origin, err = newOrigin(ctx, c, instance, n.registry, n.log); err != nil {
		return err
	}
	n.onStop("origin", n.origin.Close)
	var source origin.Origin = n.origin
	if c.gateway() {
		if err := n.startCluster(ctx, instance); err != nil {
			return err
		}
		source = n.cluster.Origin("")
	}

	n.memory, err = memory.New(memory.Config{
		Limit: int64(c.Cache.Memory - c.Cache.diskIndex()), MaxBlock: int64(c.largestBlock()), Registerer: n.registry,
	})
	if errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("cache.memory: %w; address space is taken for all of it, used or not: look at \"ulimit -v\" "+
			"(LimitAS= of systemd) and vm.overcommit_memory, or set cache.memory lower", err)
	}
	if err != nil {
		return fmt.Errorf("cache.memory: %w", err)
	}
	n.onStop("memory", n.memory.Close)

	engine := c.engineConfig()
	engine.Origin, engine.Memory, engine.Registerer, engine.Logger = source, n.memory, n.registry, n.log
	if c.Cache.Disk.Path != "" {
		if err := n.openDisk(); err != nil {
			return err
		}
		engine.Disk = n.disk
	}
	if n.gateway, err = gateway.New(engine); err != nil {
		return err
	}
	n.onStop("gateway", n.gateway.Close)
	if n.disk != nil {
		n.gateway.Recall(n.disk.Infos())
	}

	handler := s3api.Config{
		Gateway:    n.gateway,
		Forward:    n.origin,
		Domains:    c.Server.Domains,
		Region:     c.Origin.Region,
		Auth:       c.auth(),
		Limits:     c.Server.Limits.ofRequests(),
		InstanceID: instance,
		OriginTLS:  n.originTLS(),
		Ready:      n.ready.Load,
		AccessLog:  c.Server.AccessLog,
		Registerer: n.registry,
		Logger:     n.log,
	}
	if c.gateway() {
		handler.RefuseRouted, handler.Wrote = true, n.writes.wrote
		handler.Snapshot = func() string { return n.cluster.Snapshot().Digest() }
	}
	if n.handler, err = s3api.New(handler); err != nil {
		return err
	}

	// The admin listener is made before the S3 one, so that it goes after it: it tells of the drain.
	if c.Server.Admin != "" {
		n.admin, err = listen(endpoint{key: "server.admin", addr: c.Server.Admin, limits: c.Server.Limits}, n.registry, n.log)
		if err != nil {
			return err
		}
		n.admin.serve(n.adminHandler(), n.failed)
		n.onStop("admin listener", n.admin.close)
	}
	if c.Server.TLS.Cert != "" {
		if n.certs, err = newCertificates(c.Server.TLS, n.registry, n.log); err != nil {
			return badInput("%w", err)
		}
		n.background("certificates", n.certs.watch)
	}
	n.s3, err = listen(endpoint{
		key: "server.listen", addr: c.Server.Listen, certs: n.certs, limits: c.Server.Limits,
	}, n.registry, n.log)
	if err != nil {
		return err
	}
	if c.Auth.Mode == "anonymous" && !c.Auth.AllowAnonymousNetwork && !n.s3.loopback() {
		n.s3.close()
		return badInput("server.listen: %s is %v, which can be reached from the network; without keys that needs "+
			"auth.allow_anonymous_network = true", c.Server.Listen, n.s3.addr())
	}
	n.s3.serve(n.handler, n.failed)
	n.onStop("S3 listener", func() { n.s3.drain(time.Duration(c.Server.Drain)) })
	n.onStop("readiness", func() { n.ready.Store(false) })
	n.ready.Store(true)

	n.lookAtOrigin()
	n.log.Info("serving", "listen", n.s3.url(), "admin", n.adminURL(), "origin", n.origin.Endpoint(),
		"memory", c.Cache.Memory.String(), "auth", c.Auth.Mode, "took", time.Since(began).Round(time.Millisecond).String())
	if n.cluster != nil {
		s := n.cluster.Snapshot()
		n.log.Info("a gateway: reads from the nodes of a cluster", "nodes", s.Len(), "snapshot", s.Digest())
	}
	return nil
}

// openDisk opens the disk tier. A disk that fails is no error: the tier starts out of service, and says so.
func (n *node) openDisk() (err error) {
	c := n.config.diskConfig()
	c.Origin, c.Slots, c.Logger, c.Registerer = n.origin.Endpoint(), n.memory, n.log, n.registry
	if n.disk, err = disk.Open(c); err != nil {
		return badInput("cache.disk: %w", err)
	}
	n.onStop("disk", func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		// A write that is still under way may take effect when nobody here can forget what it changes.
		if n.gateway != nil && (n.s3 == nil || !n.s3.left) {
			if err := n.disk.SaveInfos(ctx, n.gateway.Infos()); err != nil {
				n.log.Warn("what is known of objects could not be kept: each will be asked for once more", "error", err)
			}
		}
		if err := n.disk.Close(ctx); err != nil {
			n.log.Warn("the disk tier did not come to a clean end; some blocks may have to be fetched again", "error", err)
		}
	})
	return nil
}

// flushTimeout bounds the writing of what the disk tier has queued when the node stops.
const flushTimeout = 20 * time.Second

// onStop adds what undoes the step that was just done.
func (n *node) onStop(name string, stop func()) { n.stops = append(n.stops, step{name, stop}) }

// background runs a loop until the node stops.
func (n *node) background(name string, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	n.onStop(name, func() { cancel(); <-done })
	go func() {
		defer close(done)
		run(ctx)
	}()
}

// stop takes the node apart in the reverse order of start: readiness fails, the S3 listener closes, responses under way
// finish (server.drain at most), the admin listener closes, fetches end, memory is given back. Also of a node that was
// started halfway.
func (n *node) stop() {
	for i := len(n.stops) - 1; i >= 0; i-- {
		n.log.Debug("stopping", "part", n.stops[i].name)
		n.stops[i].stop()
	}
	n.stops = nil
}

// lookAtOrigin warns, in the background, of an origin that can't be reached, credentials that can't be had, or that the
// origin does not accept: all may come later, and cached blocks need none of it.
func (n *node) lookAtOrigin() {
	n.background("look at the origin", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		reached := n.origin.Probe(ctx)
		if reached != nil && !errors.Is(reached, context.Canceled) {
			n.log.Warn("the origin can't be reached; reads of what is not cached will fail until it can",
				"origin", n.origin.Endpoint(), "error", reached)
		}
		if id, err := n.origin.Resolve(ctx); err == nil {
			n.log.Info("credentials for the origin", "source", id.Source, "access_key", id.AccessKey, "region", id.Region)
			if reached == nil && id.AccessKey != "" {
				_ = n.origin.Authenticate(ctx) // logs what is to be known
			}
		} else if !errors.Is(err, context.Canceled) {
			n.log.Warn("no credentials for the origin; requests to it will fail until there are some", "error", err)
		}
	})
}

func (n *node) adminURL() string {
	if n.admin == nil {
		return ""
	}
	return n.admin.url()
}

func (n *node) originTLS() bool {
	return len(n.origin.Endpoint()) > 8 && n.origin.Endpoint()[:8] == "https://"
}

// newOrigin makes the origin of a configuration. Nothing is asked over the network yet.
func newOrigin(ctx context.Context, c *Config, instance string, reg prometheus.Registerer, log *slog.Logger) (
	*watchedOrigin, error) {
	config := c.originConfig()
	config.Instance, config.Registerer, config.Logger = instance, reg, log
	o, err := s3origin.New(ctx, config)
	if err != nil {
		return nil, badInput("origin: %w", &explained{err, strings.ReplaceAll(err.Error(), "s3origin: ", "")})
	}
	return watch(o, log), nil
}

// newInstanceID names this process among all others, so that a request that comes back to it can be told.
func newInstanceID() (string, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(id[:]), nil
}

// registerProcess registers what is known of the process itself.
func registerProcess(reg prometheus.Registerer) {
	v, revision := buildVersion()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ashlar_build_info",
		Help: "1, with the build in its labels.",
		ConstLabels: prometheus.Labels{
			"version": v, "revision": revision, "goversion": runtime.Version(),
		},
	})
	info.Set(1)
	reg.MustRegister(info, collectors.NewGoCollector(),
		withoutNetwork{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})})
}

// withoutNetwork leaves out process_network_*: they count what goes through the machine's interfaces, whoever sent it.
type withoutNetwork struct{ prometheus.Collector }

// Describe implements prometheus.Collector.
func (c withoutNetwork) Describe(to chan<- *prometheus.Desc) {
	passOn(c.Collector.Describe, to, func(d *prometheus.Desc) *prometheus.Desc { return d })
}

// Collect implements prometheus.Collector.
func (c withoutNetwork) Collect(to chan<- prometheus.Metric) {
	passOn(c.Collector.Collect, to, prometheus.Metric.Desc)
}

// passOn runs a method of a collector, and passes on what is not about the network.
func passOn[T any](method func(chan<- T), to chan<- T, desc func(T) *prometheus.Desc) {
	all := make(chan T)
	go func() {
		defer close(all)
		method(all)
	}()
	for x := range all {
		if !strings.Contains(desc(x).String(), `"process_network_`) {
			to <- x
		}
	}
}

// largestBlock returns the largest block size that any bucket can have.
func (c *Config) largestBlock() Size {
	largest := c.Buckets.BlockSize
	for i := range c.Bucket {
		largest = max(largest, c.Bucket[i].BlockSize)
	}
	return largest
}

// diskIndex returns what of the memory goes to the index of the disk: a sixteenth, or less where the disk is so small
// that it would not be used even if all blocks were of 64 KiB, at 68 bytes each.
func (c *Cache) diskIndex() Size {
	if c.Disk.Path == "" {
		return 0
	}
	return min(c.Memory/16, c.Disk.Capacity/(64*kib)*68)
}

// leastMemory returns the least cache.memory that blocks of a size can live in.
func (c *Cache) leastMemory(block Size) Size {
	least := Size(memory.MinLimit(int64(block)))
	if c.Disk.Path != "" {
		least = (least*16/15 + mib) / mib * mib
	}
	return least
}

// policies returns the policy of each bucket: that of the first rule whose name matches, else that of [buckets].
func (c *Config) policies() func(bucket string) *gateway.Policy {
	fallback := c.policy(&c.Buckets)
	if len(c.Bucket) == 0 {
		return func(string) *gateway.Policy { return fallback }
	}
	rules := make([]*gateway.Policy, len(c.Bucket))
	for i := range c.Bucket {
		rules[i] = c.policy(&c.Bucket[i].Buckets)
	}
	return func(bucket string) *gateway.Policy {
		for i := range rules {
			if matchPattern(c.Bucket[i].Name, bucket) {
				return rules[i]
			}
		}
		return fallback
	}
}

// policy returns the policy of a rule. Over a cluster it is the client that tries another node, and a node has the time
// that it needs for attempts of its own: an origin that is slow to answer must not look like nodes that are.
func (c *Config) policy(b *Buckets) *gateway.Policy {
	f := b.Fetch
	if c.gateway() {
		f.FirstByte = min(Duration(f.Attempts)*(f.FirstByte+f.BackoffMax), f.Attempt)
		f.Attempts, f.Hedge = 1, Hedge{}
	}
	return &gateway.Policy{
		BlockSize:    int64(b.BlockSize),
		FetchWindow:  b.FetchWindow,
		ReadWindow:   b.ReadWindow,
		Readahead:    b.Readahead,
		Immutable:    b.Consistency.Mode == "immutable",
		TTL:          time.Duration(b.Consistency.TTL),
		StaleIfError: time.Duration(b.StaleIfError),
		NegativeTTL:  time.Duration(b.NegativeTTL),
		PopulateMax:  int64(b.PopulateMax),
		Fetch: gateway.Fetch{
			Attempts:   f.Attempts,
			Backoff:    time.Duration(f.Backoff),
			BackoffMax: time.Duration(f.BackoffMax),
			FirstByte:  time.Duration(f.FirstByte),
			Attempt:    time.Duration(f.Attempt),
			Deadline:   time.Duration(f.Deadline),
			Hedge:      f.Hedge.rule(),
		},
	}
}

func (h *Hedge) rule() gateway.Hedge {
	return gateway.Hedge{Factor: h.Factor, Min: time.Duration(h.Min), Max: time.Duration(h.Max)}
}

// ofRequests returns the limits that s3api keeps; those of connections are kept by listen.
func (l *Limits) ofRequests() s3api.Limits {
	return s3api.Limits{Requests: l.MaxRequests, Headers: l.MaxHeaderCount, MinRate: int64(l.MinRate)}
}

// auth returns who may do what, in the words of s3api.
func (c *Config) auth() s3api.Auth {
	a := s3api.Auth{Mode: s3api.Anonymous, AnonymousWrite: c.Auth.AnonymousWrite,
		TrustNetwork: c.Auth.Mode == "anonymous" && c.Auth.AllowAnonymousNetwork}
	if c.Auth.Mode == "static" {
		a.Mode = s3api.Static
	}
	for _, k := range c.Auth.Keys {
		var rights s3api.Right
		for _, r := range []struct {
			given bool
			right s3api.Right
		}{
			{k.Read, s3api.Read}, {k.Write, s3api.Write}, {k.List, s3api.List}, {k.Delete, s3api.Delete}, {k.Admin, s3api.Admin},
			{k.Cluster, s3api.Cluster}, {k.Tune, s3api.Tune},
		} {
			if r.given {
				rights |= r.right
			}
		}
		a.Keys = append(a.Keys, s3api.Key{
			AccessKey: k.AccessKey, SecretKey: string(k.Secret), Buckets: k.Buckets, Prefix: k.Prefix, Rights: rights,
		})
	}
	a.AnonymousBuckets = c.Auth.AnonymousBuckets
	return a
}

// hostOf returns the host of an address that was listened on, in a form that clients can connect to.
func hostOf(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if wild(host) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
