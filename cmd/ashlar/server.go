package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ashlar-s3/ashlar/s3api"
)

// handlerGrace is how long handlers may take to notice that their connection was cut.
const handlerGrace = 5 * time.Second

// silentGrace is how long, of a server that drains, a connection may stay by which no request has come yet. Shutdown of
// net/http waits for these for five seconds (golang.org/issue/22682), and clients open connections that they may need.
const silentGrace = 500 * time.Millisecond

// server is one listener and what answers on it.
type server struct {
	key   string // of the configuration, for messages
	limit *limitListener
	http  *http.Server
	tls   bool
	log   *slog.Logger
	done  chan struct{} // closed when the accept loop has ended
	grace time.Duration // handlerGrace

	mu       sync.Mutex     // no handler begins after closed was set
	closed   bool           // guarded by mu
	left     bool           // handlers were running when close gave up waiting; set by close
	handlers sync.WaitGroup // running handlers; Add with mu held
}

// endpoint is what a server is made of.
type endpoint struct {
	key    string        // of the configuration
	addr   string        // host:port
	certs  *certificates // nil for plain HTTP
	limits Limits
}

// listen binds an address. reg may be nil. Nothing is answered before serve. There is no bound on the whole of a request or response: a
// 5 TiB object takes its time, and the handler bounds each piece of it.
func listen(e endpoint, reg prometheus.Registerer, log *slog.Logger) (*server, error) {
	s := &server{key: e.key, log: log, tls: e.certs != nil, grace: handlerGrace}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // HTTP/2 costs seven times the CPU per byte, and no S3 client asks for it
	s.http = &http.Server{
		Protocols:         &protocols,
		ReadHeaderTimeout: time.Duration(e.limits.ReadHeaderTimeout),
		IdleTimeout:       time.Duration(e.limits.IdleTimeout),
		MaxHeaderBytes:    int(e.limits.MaxHeader),
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if s.tls {
		s.http.TLSConfig = e.certs.config()
	}
	labels := prometheus.Labels{"listener": e.key}
	s.limit = &limitListener{max: int64(e.limits.MaxConnections), tls: s.tls, shed: prometheus.NewCounter(
		prometheus.CounterOpts{
			Name: "ashlar_connections_shed_total", ConstLabels: labels,
			Help: "Connections that were refused because server.limits.max_connections were open.",
		})}
	s.http.ConnState = s.limit.count
	s.http.ConnContext = s3api.ConnContext
	if reg == nil {
		reg = prometheus.NewRegistry() // nobody looks
	}
	for _, m := range []prometheus.Collector{s.limit.shed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ashlar_connections", Help: "Open connections of clients.", ConstLabels: labels,
	}, func() float64 { return float64(s.limit.open.Load()) })} {
		if err := reg.Register(m); err != nil {
			return nil, err
		}
	}
	var err error
	if s.limit.Listener, err = net.Listen("tcp", e.addr); err != nil {
		return nil, listenError(e.key, e.addr, err)
	}
	return s, nil
}

// listenFailure is an address that can't be listened on.
type listenFailure struct {
	key, addr string
	why       string // in plain words, with what to do
	err       error
}

func (f *listenFailure) Error() string {
	return fmt.Sprintf("%s: cannot listen on %s: %s", f.key, f.addr, f.why)
}

func (f *listenFailure) Unwrap() error { return f.err }

// listenError says in plain words why an address can't be listened on, and what to do.
func listenError(key, addr string, err error) error {
	_, port, _ := net.SplitHostPort(addr)
	why := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why = fmt.Sprintf("the port is in use by another process (\"ss -ltnp sport = :%s\" names it); stop that one, or "+
			"choose another port in the file or with %s", port, envName(key))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "no network interface of this machine has that address"
	case errors.Is(err, syscall.EACCES):
		why = "ports below 1024 need a privilege (CAP_NET_BIND_SERVICE); choose a higher one"
	}
	return &listenFailure{key: key, addr: addr, why: why, err: err}
}

// serve begins to answer. A listener that ends other than by close or drain is reported to failed.
func (s *server) serve(h http.Handler, failed chan<- error) {
	s.done = make(chan struct{})
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			panic(http.ErrAbortHandler)
		}
		defer s.handlers.Done()
		h.ServeHTTP(w, r)
	})
	go func() {
		defer close(s.done)
		var err error
		if s.tls {
			err = s.http.ServeTLS(s.limit, "", "")
		} else {
			err = s.http.Serve(s.limit)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			select {
			case failed <- fmt.Errorf("%s: %w", s.key, err):
			default:
			}
		}
	}()
}

// begin counts a handler, unless the server is closed.
func (s *server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.handlers.Add(1)
	}
	return !s.closed
}

// drain stops accepting, lets responses finish for as long as d, then cuts what is left. It returns when no handler is
// running.
func (s *server) drain(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	silent := time.AfterFunc(silentGrace, s.limit.closeSilent)
	defer silent.Stop()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("responses did not finish in time and are cut off", "drain", Duration(d).String())
	}
	s.close()
}

// close cuts all connections off and waits for the handlers, so that what they use can be taken apart.
func (s *server) close() {
	_ = s.limit.Close()
	_ = s.http.Close()
	if s.done == nil {
		return
	}
	<-s.done
	s.limit.refusals.Wait()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.handlers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(s.grace):
		s.left = true
		s.log.Warn("requests are still being handled after their connections were cut")
	}
}

func (s *server) addr() net.Addr { return s.limit.Addr() }

// loopback says whether the address that was bound can be reached from this machine alone.
func (s *server) loopback() bool {
	a, ok := s.addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// url returns where a client on this machine connects to.
func (s *server) url() string {
	if s.tls {
		return "https://" + hostOf(s.addr())
	}
	return "http://" + hostOf(s.addr())
}

// adminHandler answers operators: metrics, health and readiness; profiles too, but only on loopback, since they show
// what the process is doing and cost CPU.
func (n *node) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(n.registry, promhttp.HandlerFor(n.registry,
		promhttp.HandlerOpts{ErrorLog: scrapeLog{n.log}})))
	mux.HandleFunc("GET /-/health", func(w http.ResponseWriter, _ *http.Request) { status(w, true) })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) { status(w, n.ready.Load()) })
	if n.admin.loopback() {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// scrapeLog is what goes wrong with /metrics. A scraper that hangs up is nobody's trouble here.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(what ...any) {
	level := slog.LevelError
	for _, w := range what {
		if err, ok := w.(error); ok && errors.As(err, new(*net.OpError)) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, "metrics: "+strings.TrimSpace(fmt.Sprintln(what...)))
}

// status answers a health check: 200 or 503, one word.
func status(w http.ResponseWriter, ok bool) {
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "not ready\n")
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}
