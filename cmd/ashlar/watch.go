package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
)

// calm is how long no request may have failed before the origin is said to be well again. So one that fails every other
// request does not come and go in the log.
const calm = 5 * time.Second

// watchedOrigin is the origin as the node uses it. It tells the log when requests begin to fail and when that is over,
// and its errors say what an operator can do.
type watchedOrigin struct {
	*s3origin.Origin
	log *slog.Logger

	failing atomic.Bool // set with mu held
	mu      sync.Mutex
	since   time.Time // of the first failure of this outage; guarded by mu
	last    time.Time // failure; guarded by mu
	failed  int       // requests in this outage; guarded by mu
}

func watch(o *s3origin.Origin, log *slog.Logger) *watchedOrigin {
	return &watchedOrigin{Origin: o, log: log}
}

// Get implements origin.Origin.
func (w *watchedOrigin) Get(ctx context.Context, o origin.Object, opts origin.GetOptions) (*origin.Response, error) {
	r, err := w.Origin.Get(ctx, o, opts)
	return r, w.note("GET", o.String(), err)
}

// Head implements origin.Origin.
func (w *watchedOrigin) Head(ctx context.Context, o origin.Object, opts origin.HeadOptions) (*origin.Info, error) {
	i, err := w.Origin.Head(ctx, o, opts)
	return i, w.note("HEAD", o.String(), err)
}

// Forward implements s3api.Forwarder.
func (w *watchedOrigin) Forward(ctx context.Context, r *http.Request, bucket, rawKey string) (*http.Response, error) {
	resp, err := w.Origin.Forward(ctx, r, bucket, rawKey)
	what := "s3://" + bucket + "/" + rawKey
	switch {
	case err == nil && down(resp.StatusCode):
		_ = w.note(r.Method, what, &origin.Error{Status: resp.StatusCode})
	case err != nil && r.Body != nil && r.Body != http.NoBody && !errors.Is(err, origin.ErrTimeout) && !isDial(err):
		// The body may be what failed, and that is the client's.
		return resp, w.explain(err)
	default:
		err = w.note(r.Method, what, err)
	}
	return resp, err
}

// Probe is s3origin's, with errors that say what to do.
func (w *watchedOrigin) Probe(ctx context.Context) error {
	err := w.Origin.Probe(ctx)
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, origin.ErrCredentials) {
		w.fails()
	}
	return w.explain(err)
}

// Resolve is s3origin's, with errors that say what to do.
func (w *watchedOrigin) Resolve(ctx context.Context) (s3origin.Identity, error) {
	id, err := w.Origin.Resolve(ctx)
	return id, w.explain(err)
}

// down says whether an answer's status means that the origin, not the request, is at fault.
func down(status int) bool { return status >= 500 && status != http.StatusNotImplemented }

// note takes in how a request for an object ended. It returns err, explained.
func (w *watchedOrigin) note(method, object string, err error) error {
	var answer *origin.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err // by whoever asked: it says nothing of the origin
	case errors.Is(err, origin.ErrCredentials):
		return w.explain(err) // s3origin has told of them
	case err == nil, errors.As(err, &answer) && !down(answer.Status) && wrongScheme(answer) == "":
		if w.failing.Load() {
			w.succeeded()
		}
		return err
	}
	err = w.explain(err)
	w.fails()
	w.log.Warn("requests to the origin fail", "origin", w.Endpoint(), "method", method, "object", object, "error", err)
	return err
}

// fails begins an outage or goes on with one.
func (w *watchedOrigin) fails() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	if !w.failing.Swap(true) {
		w.since, w.failed = w.last, 0
	}
	w.failed++
}

// succeeded ends an outage when no request has failed for a while.
func (w *watchedOrigin) succeeded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.failing.Load() || time.Since(w.last) < calm {
		return
	}
	w.failing.Store(false)
	w.log.Info("the origin answers again", "origin", w.Endpoint(), "failed_requests", w.failed,
		"from", w.since, "to", w.last)
}

// explained is an error in an operator's words.
type explained struct {
	error
	text string
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.error }

// explain adds to an error what an operator can do, and takes the name of the package off.
func (w *watchedOrigin) explain(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "s3origin: ", "")
	if hint := hintOf(err, strings.HasPrefix(w.Endpoint(), "https://")); hint != "" {
		text += " (" + hint + ")"
	} else if text == err.Error() {
		return err
	}
	return &explained{err, text}
}

// hintOf says what is likely wrong and what to do, "" where that can't be told.
func hintOf(err error, overTLS bool) string {
	var plain tls.RecordHeaderError
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var dns *net.DNSError
	var answer *origin.Error
	switch text := err.Error(); {
	case errors.As(err, &answer):
		return wrongScheme(answer)
	case errors.As(err, &plain), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "the origin does not speak TLS there: origin.endpoint must begin with http:// or have another port"
	case strings.Contains(text, `malformed HTTP response "\x15\x03`):
		return "the origin speaks TLS there: origin.endpoint must begin with https://"
	case errors.As(err, &authority):
		return "no authority that is trusted here has signed the origin's certificate: origin.ca takes a PEM file of others"
	case errors.As(err, &name):
		return "the origin's certificate is for another name than the host in origin.endpoint"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host: look at origin.endpoint, and at the name servers of this machine"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: look whether the origin runs, and at the port in origin.endpoint"
	case errors.Is(err, io.EOF) && !overTLS:
		return "the origin closed the connection without an answer; if it speaks TLS, origin.endpoint must begin with " +
			"https://"
	case errors.Is(err, io.EOF):
		return "the origin closed the connection without an answer"
	}
	return ""
}

// wrongScheme explains the answer of a server that wants TLS to a request without, "" for others. The texts are those of
// Go's servers and of nginx; Apache says it in a third way.
func wrongScheme(e *origin.Error) string {
	if e.Status == http.StatusBadRequest {
		for _, text := range []string{"HTTP request to an HTTPS server", "HTTP request was sent to HTTPS port",
			"speaking plain HTTP to an SSL-enabled server"} {
			if bytes.Contains(e.Body, []byte(text)) {
				return "the origin speaks TLS there: origin.endpoint must begin with https://"
			}
		}
	}
	return ""
}

// isDial says whether no connection came about.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
