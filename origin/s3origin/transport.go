package s3origin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// maxHeaderBytes bounds the header section of an answer. S3 allows 8 KiB of request headers and 2 KiB of user metadata
// (S3 documentation, "Working with object metadata"); other servers allow more.
const maxHeaderBytes = 256 << 10

// setTransport makes the one transport of an origin.
func (o *Origin) setTransport(c Config) error {
	timeout := c.DialTimeout
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	tlsConfig, err := c.tlsConfig()
	if err != nil {
		return err
	}
	dial := c.Dial
	if dial == nil {
		d := &net.Dialer{
			Timeout: timeout,
			// A peer that is gone without a FIN is noticed even while nothing is being sent.
			KeepAliveConfig: net.KeepAliveConfig{
				Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4,
			},
		}
		dial = d.DialContext
	}
	idle := c.MaxIdleConns
	if idle <= 0 {
		idle = 256
	}
	// HTTP/2 would put all reads of a host on one TCP connection, and costs more CPU per byte than it saves.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	open := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, &connectError{err}
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			// Whatever ends a request before its end, a crash of this process too, resets the connection. There are
			// servers that take a mere end for the end of the body, and store what they have got.
			_ = tcp.SetLinger(0)
		}
		o.metrics.connections.Inc()
		return conn, nil
	}
	o.transport = &http.Transport{
		DialContext: open,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := open(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return handshake(ctx, conn, tlsConfig, address, timeout)
		},
		TLSClientConfig:        tlsConfig, // these two are for connections through a proxy
		TLSHandshakeTimeout:    timeout,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConns:           idle,
		MaxIdleConnsPerHost:    idle,
		IdleConnTimeout:        60 * time.Second,
		ExpectContinueTimeout:  time.Second, // then the body goes out unasked (RFC 9110 section 10.1.1)
		MaxResponseHeaderBytes: maxHeaderBytes,
		// What a read fills is a block: large, and read past these buffers. Small objects gain from one syscall.
		ReadBufferSize: 32 << 10,
	}
	o.sender = o.transport
	if c.Wrap != nil {
		o.sender = c.Wrap(o.transport)
	}
	if c.ProxyFromEnvironment {
		o.transport.Proxy = http.ProxyFromEnvironment
		o.proxied = func(u *url.URL) bool {
			p, err := http.ProxyFromEnvironment(&http.Request{URL: u})
			return err == nil && p != nil && u.Scheme == "http"
		}
	}
	return nil
}

// handshake makes a connection to address one over TLS.
func handshake(ctx context.Context, conn net.Conn, config *tls.Config, address string, timeout time.Duration) (
	net.Conn, error,
) {
	config = config.Clone() // of nil it is nil
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t := tls.Client(conn, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &connectError{err}
	}
	return abrupt{t}, nil
}

// abrupt is a TLS connection that is closed without a word, which would be taken for the end of what was sent.
type abrupt struct{ *tls.Conn }

func (c abrupt) Close() error { return c.NetConn().Close() }

func (c *Config) tlsConfig() (*tls.Config, error) {
	t := c.TLS.Clone() // of nil it is nil
	if c.CAFile == "" {
		return t, nil
	}
	if t == nil {
		t = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("s3origin: certificate authorities: %w", err)
	}
	roots := t.RootCAs
	if roots == nil {
		if roots, err = x509.SystemCertPool(); err != nil {
			roots = x509.NewCertPool()
		}
	} else {
		roots = roots.Clone()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("s3origin: certificate authorities: %s holds no PEM certificate", c.CAFile)
	}
	t.RootCAs = roots
	return t, nil
}

// connectError is a connection that could not be opened: nothing reached the other side.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// isConnect says whether err means that no connection came about.
func isConnect(err error) bool {
	var c *connectError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &c) || errors.As(err, &verify) || errors.As(err, &record)
}
