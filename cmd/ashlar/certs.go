package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certEvery is how often the files of certificates are looked at. They are read, not only stat'ed: they are small, and
// Kubernetes swaps links to them, which leaves some file systems with the old time.
const certEvery = 5 * time.Second

// certificates is what the S3 listener presents and whom it lets in, kept up to date with the files. Connections that
// there are keep what they were made with. A pair that can't be used, such as one that is halfway replaced, is logged
// once, and the one before stays.
type certificates struct {
	files TLS
	log   *slog.Logger

	current atomic.Pointer[tls.Config]
	expires atomic.Int64 // of the leaf in use, seconds since 1970
	reloads *prometheus.CounterVec

	mu      sync.Mutex // held by reload
	seen    [3][]byte  // contents at the last look, used or not: certificate, key, client_ca
	trouble string     // why the files couldn't be read at the last look, "" where they could
}

// newCertificates reads the files for the first time. r may be nil.
func newCertificates(files TLS, r prometheus.Registerer, log *slog.Logger) (*certificates, error) {
	c := &certificates{files: files, log: log, reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ashlar_tls_reloads_total",
		Help: "Changes of the certificate files of the S3 listener: taken, or refused because they are not usable.",
	}, []string{"result"})}
	for _, result := range []string{"taken", "refused"} {
		c.reloads.WithLabelValues(result)
	}
	var err error
	if c.seen, err = c.read(); err != nil {
		return nil, err
	}
	if err := c.use(); err != nil {
		return nil, err
	}
	if r == nil {
		return c, nil
	}
	for _, m := range []prometheus.Collector{c.reloads, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ashlar_tls_not_after_timestamp_seconds",
		Help: "When the certificate that the S3 listener presents expires, in seconds since 1970.",
	}, func() float64 { return float64(c.expires.Load()) })} {
		if err := r.Register(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// config is for http.Server. Each handshake takes the files as they are then.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// watch looks at the files until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	t := time.NewTicker(certEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload takes the files if they have changed.
func (c *certificates) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	contents, err := c.read()
	if err != nil {
		if err.Error() != c.trouble {
			c.trouble = err.Error()
			c.refuse(err)
		}
		return
	}
	c.trouble = ""
	if same(contents, c.seen) {
		return
	}
	c.seen = contents
	if err := c.use(); err != nil {
		c.refuse(err)
		return
	}
	c.reloads.WithLabelValues("taken").Inc()
	c.log.Info("certificate replaced", "file", c.files.Cert, "not_after", c.notAfter())
}

func (c *certificates) refuse(err error) {
	c.reloads.WithLabelValues("refused").Inc()
	c.log.Error("the certificate files can't be used; what was read before stays", "error", err, "not_after", c.notAfter())
}

func (c *certificates) notAfter() string {
	return time.Unix(c.expires.Load(), 0).UTC().Format(time.RFC3339)
}

func same(a, b [3][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (c *certificates) read() (contents [3][]byte, err error) {
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if name == "" {
			continue
		}
		if contents[i], err = os.ReadFile(name); err != nil {
			return contents, fmt.Errorf("server.tls: %w", err)
		}
	}
	return contents, nil
}

// use makes what was seen count from the next handshake on, or changes nothing.
func (c *certificates) use() error {
	pair, err := tls.X509KeyPair(c.seen[0], c.seen[1])
	if err != nil {
		return fmt.Errorf("server.tls: %s and %s are no usable pair: %s", c.files.Cert, c.files.Key,
			strings.TrimPrefix(err.Error(), "tls: "))
	}
	conf := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"}, // HTTP/2 costs seven times the CPU per byte
	}
	if c.files.ClientCA != "" {
		conf.ClientCAs, conf.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !conf.ClientCAs.AppendCertsFromPEM(c.seen[2]) {
			return fmt.Errorf("server.tls.client_ca: %w in %s", errNoCertificate, c.files.ClientCA)
		}
		// A resumed session would let in clients of an authority that isn't trusted any more.
		conf.SessionTicketsDisabled = true
	}
	c.current.Store(conf)
	c.expires.Store(pair.Leaf.NotAfter.Unix())
	if time.Now().After(pair.Leaf.NotAfter) {
		c.log.Warn("the certificate has expired, clients will refuse it", "file", c.files.Cert, "not_after", c.notAfter())
	}
	return nil
}

var errNoCertificate = errors.New("no certificate in PEM form")
