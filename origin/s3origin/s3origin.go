// Package s3origin reads objects from any S3-compatible endpoint, and forwards to it what is not a read of an object.
//
// An answer is returned only when its status, Content-Range and length agree with each other, and its body yields
// exactly the bytes that its headers promised or fails: what reads to io.EOF is whole. Object keys go out byte for byte
// as they are named, never cleaned; redirects are never followed; nothing is compressed, decompressed or retried, but
// for a request that met a dead connection.
//
// The package speaks HTTP/1.1 by net/http and takes credentials and signatures from aws-sdk-go-v2.
package s3origin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says which endpoint, and how to reach it.
type Config struct {
	// Endpoint is a URL: http or https, host, optionally port and a path that goes before the bucket. "" is AWS in
	// Region. The environment's AWS_ENDPOINT_URL* is never looked at: it is what clients use to find the cache.
	Endpoint string
	// Region to sign for; "" takes it from the environment or the profile as the AWS SDKs do, else us-east-1.
	Region string
	// VirtualHosted puts the bucket into the host name instead of the path. Buckets that can't be there (upper case,
	// underscores, over TLS also dots, or an endpoint that is an IP address) go path-style all the same.
	VirtualHosted bool
	// Credentials to sign with.
	Credentials Credentials
	// Instance, if set, is added to every request as "Via: 1.1 ashlar-<Instance>", so that a loop can be
	// seen; behind those that came by the request already.
	Instance string

	// CAFile is a PEM file of certificate authorities that are trusted beside the system's.
	CAFile string
	// TLS is where the connection's TLS configuration starts from; nil is Go's default. It is not changed.
	TLS *tls.Config
	// ProxyFromEnvironment honours HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Off, there is no proxy.
	ProxyFromEnvironment bool
	// Dial opens connections; nil is a net.Dialer. DialTimeout does not bound it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Wrap, if set, goes around the transport: it sees every request signed and about to be sent, may add headers, which
	// no signature covers, and sees every answer as it came.
	Wrap func(http.RoundTripper) http.RoundTripper

	// Refused, if set, says by its headers whether an answer of 400, 401 or 403 is about what requests are signed with
	// and may do, and not about the object, whatever its code says and where it has none.
	Refused func(http.Header) bool

	MaxIdleConns int           // connections kept for reuse; 0 means 256
	DialTimeout  time.Duration // bounds TCP connect, and TLS handshake by itself; 0 means 5 s
	// Idle bounds each wait for more bytes of a body. Time that the reader spends between reads does not count.
	// 0 means 30 s. It does not apply to Forward, whose answers may pause for as long as the origin works on them:
	// there a peer that vanished is left to TCP, which finds out within 75 s by keep-alive while nothing is being sent.
	Idle time.Duration

	Registerer prometheus.Registerer // nil registers nothing
	Logger     *slog.Logger          // nil discards
	// Name is what the log calls the endpoint, and Section where in the configuration its credentials are; "" are "the
	// origin" and "origin".
	Name, Section string
}

// Origin is one S3 endpoint. Safe for concurrent use. It implements origin.Origin.
type Origin struct {
	endpoint  endpoint
	region    string
	creds     aws.CredentialsProvider // nil: anonymous
	signer    *v4.Signer
	via       string // "" adds none
	transport *http.Transport
	sender    http.RoundTripper   // the transport, in Config.Wrap
	proxied   func(*url.URL) bool // whether a URL is asked of a proxy in plain http; nil: never
	idle      time.Duration
	metrics   *metrics
	log       *slog.Logger
	refusals  refusals
	refused   func(http.Header) bool // nil: never

	name, section string // of the endpoint, for the log
}

var _ origin.Origin = (*Origin)(nil)

// New makes an origin without talking to it. ctx bounds what the credentials' configuration may need to be loaded.
// Errors say which setting is wrong.
func New(ctx context.Context, c Config) (*Origin, error) {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	creds, region, err := c.Credentials.load(ctx, c.Region, log)
	if err != nil {
		return nil, err
	}
	e, err := parseEndpoint(c.Endpoint, region, c.VirtualHosted)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(c.Registerer)
	if err != nil {
		return nil, err
	}
	o := &Origin{
		endpoint: e,
		region:   region,
		creds:    creds,
		signer:   v4.NewSigner(func(s *v4.SignerOptions) { s.DisableURIPathEscaping = true }), // S3 encodes once
		idle:     30 * time.Second,
		metrics:  m,
		log:      log,
		refused:  c.Refused,
		name:     cmp.Or(c.Name, "the origin"),
		section:  cmp.Or(c.Section, "origin"),
	}
	if c.Idle > 0 {
		o.idle = c.Idle
	}
	if c.Instance != "" {
		o.via = "1.1 ashlar-" + c.Instance
	}
	if err := o.setTransport(c); err != nil {
		return nil, err
	}
	return o, nil
}

// Close closes idle connections. Requests under way are not touched.
func (o *Origin) Close() { o.transport.CloseIdleConnections() }

// Endpoint returns the URL of the endpoint, as requests use it.
func (o *Origin) Endpoint() string { return o.endpoint.String() }

// Get implements origin.Origin. Of the object's own headers, ETag, Last-Modified and x-amz-version-id are in the fields
// of Info and not among its Headers.
func (o *Origin) Get(ctx context.Context, obj origin.Object, opts origin.GetOptions) (*origin.Response, error) {
	if opts.Offset < 0 || opts.Length < 0 || (opts.Offset > 0 && opts.Length == 0) {
		return nil, fmt.Errorf("s3origin: no such range: offset %d, length %d", opts.Offset, opts.Length)
	}
	h := o.readHeader(opts.NoCache, opts.Via)
	ranged := opts.Length > 0
	if ranged {
		h["Range"] = []string{rangeHeader(opts.Offset, opts.Length)}
	}
	if opts.IfMatch != "" {
		h["If-Match"] = []string{opts.IfMatch}
	}
	if opts.IfNoneMatch != "" {
		h["If-None-Match"] = []string{opts.IfNoneMatch}
	}
	c := o.start(ctx, opGet)
	resp, err := c.read(http.MethodGet, obj, h, opts.FirstByte)
	if err != nil {
		return nil, c.fail(err)
	}
	r, err := c.response(resp, ranged, opts.IfNoneMatch != "")
	if err != nil {
		return nil, c.refuse(resp, obj, err)
	}
	if r.NotModified {
		c.discard(resp)
	}
	return r, nil
}

// Head implements origin.Origin.
func (o *Origin) Head(ctx context.Context, obj origin.Object, opts origin.HeadOptions) (*origin.Info, error) {
	c := o.start(ctx, opHead)
	resp, err := c.read(http.MethodHead, obj, o.readHeader(opts.NoCache, opts.Via), opts.FirstByte)
	if err != nil {
		return nil, c.fail(err)
	}
	info, err := c.headInfo(resp)
	if err != nil {
		return nil, c.refuse(resp, obj, err)
	}
	c.discard(resp)
	return info, nil
}

// Probe asks whether anything answers HTTP at the endpoint, by an unsigned HEAD. Whatever the answer says, it is one.
func (o *Origin) Probe(ctx context.Context) error {
	req := &http.Request{Method: http.MethodHead, Header: http.Header{"User-Agent": {userAgent}}}
	req.URL = o.url(o.endpoint.host, o.endpoint.base+"/")
	resp, err := o.sender.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = ctx.Err()
		}
		return fmt.Errorf("s3origin: %s does not answer: %w", o.endpoint, err)
	}
	_ = resp.Body.Close()
	return nil
}

// Authenticate asks whether the origin accepts our signature, by listing the buckets, which may be denied and is not
// read. An error that is origin.ErrCredentials has been logged.
func (o *Origin) Authenticate(ctx context.Context) error {
	r := &http.Request{Method: http.MethodGet, URL: new(url.URL), Header: http.Header{"User-Agent": {userAgent}}}
	resp, err := o.Forward(ctx, r, "", "")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

const userAgent = "ashlar"

// readHeader returns the headers that every read sends.
func (o *Origin) readHeader(noCache bool, via []string) http.Header {
	h := http.Header{
		"User-Agent": {userAgent},
		// The stored bytes, whatever their Content-Encoding.
		"Accept-Encoding":     {"identity"},
		"X-Amz-Checksum-Mode": {"ENABLED"},
	}
	if noCache {
		h["Cache-Control"] = []string{"no-cache"}
	}
	for _, name := range via {
		h["Via"] = append(h["Via"], "1.1 "+name)
	}
	if o.via != "" {
		h["Via"] = append(h["Via"], o.via)
	}
	return h
}
