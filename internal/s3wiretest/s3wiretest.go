// Package s3wiretest is what S3 answers, as one suite of tests that runs against any endpoint: status, headers and
// every byte of object reads, errors, keys, addresses and signatures, sent and checked without an SDK in between. A
// server that passes it is one that S3 clients can't tell from S3 by reading.
//
// A row is one subtest, named section/what it asks (range/suffix-zero), with the number of a field case in front where
// one gave rise to it (range/R09-clamped). Every row puts objects of its own at the origin first, so the first answer to
// it is never remembered by a cache; with Target.Warm each request is sent again when the server has seen it, and once
// more when it has seen the whole object.
package s3wiretest

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"
)

// Endpoint is an S3 server and a key for it that may do everything there.
type Endpoint struct {
	URL       string // scheme://host:port
	AccessKey string // "" sends requests without authentication
	SecretKey string
	Region    string // "" means us-east-1
}

// Target is what a suite is run against.
type Target struct {
	Endpoint

	// Origin is where objects are put: the server behind a cache. Its zero value puts them to the target itself.
	Origin Endpoint
	// Domain is the host name below which the target has buckets as host names ("localhost"): it need not resolve, as
	// connections go to Endpoint.URL. "" skips the rows that need it.
	Domain string
	// VirtualHosted addresses buckets by host name in all rows, not only in those about it. It needs Domain.
	VirtualHosted bool
	// Warm sends each request again to a server that has seen it, and again after the whole object was read. All
	// answers must obey.
	Warm bool
	// BlockSize is the size of a cache's blocks in bytes: objects end at, before and behind its multiples. 0 means
	// 64 KiB.
	BlockSize int
	// Skips maps rows to the reason why this target can't pass them. A name may be a pattern of path.Match:
	// "range/R04-*", "*/if-none-match". One that no row has fails the suite.
	Skips map[string]string
}

// row is one subtest.
type row struct {
	name string
	run  func(t *testing.T, e *env)
}

// Run runs the suite. It leaves its buckets behind, under names that no other run uses: point it at servers to be
// thrown away. Rows run one after another.
func Run(t *testing.T, target Target) {
	t.Helper()
	e := newEnv(t, target)
	rows := e.rows()
	e.checkSkips(t, rows)
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			if reason, ok := e.skipped(r.name); ok {
				t.Skip(reason)
			}
			r.run(t, e)
		})
	}
}

func (e *env) rows() []row {
	var rows []row
	for _, section := range [][]row{
		e.rangeRows(), e.spanRows(), e.conditionRows(), e.ifRangeRows(), e.headerRows(), e.checksumRows(),
		e.overrideRows(), e.versionRows(), e.partRows(), e.errorRows(), e.keyRows(), e.addressRows(), e.authRows(),
		e.presignedRows(),
	} {
		rows = append(rows, section...)
	}
	return rows
}

// checkSkips keeps the lists of skipped rows honest.
func (e *env) checkSkips(t testing.TB, rows []row) {
	t.Helper()
	for pattern := range e.Skips {
		found := false
		for _, r := range rows {
			found = found || matches(pattern, r.name)
		}
		if !found {
			t.Errorf("Skips names %q, which is no row", pattern)
		}
	}
}

func (e *env) skipped(name string) (reason string, ok bool) {
	for pattern, reason := range e.Skips {
		if matches(pattern, name) {
			return reason, true
		}
	}
	return "", false
}

// matches takes a malformed pattern for one that matches nothing.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// env is one run of the suite.
type env struct {
	Target
	client *http.Client // follows no redirect, decodes nothing
	bucket string
	b      int // block size
	serial int // of objects
	lazy   map[string]any
}

// timeout bounds one request, so that a server that hangs fails its row and not the run.
const timeout = 30 * time.Second

func newEnv(t *testing.T, target Target) *env {
	t.Helper()
	if target.Origin.URL == "" {
		target.Origin = target.Endpoint
	}
	for _, ep := range []*Endpoint{&target.Endpoint, &target.Origin} {
		ep.URL = strings.TrimSuffix(ep.URL, "/")
		if ep.Region == "" {
			ep.Region = "us-east-1"
		}
	}
	if target.BlockSize == 0 {
		target.BlockSize = 64 << 10
	}
	if target.VirtualHosted && target.Domain == "" {
		t.Fatal("VirtualHosted needs Domain")
	}
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	e := &env{
		Target: target,
		client: &http.Client{Transport: tr, Timeout: timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		bucket: "wire-" + random(),
		b:      target.BlockSize,
		lazy:   map[string]any{},
	}
	e.makeBucket(t, e.bucket)
	return e
}

func random() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// once makes something that several rows share, when the first of them asks.
func once[T any](e *env, name string, make func() T) T {
	if v, ok := e.lazy[name]; ok {
		return v.(T)
	}
	v := make()
	e.lazy[name] = v
	return v
}
