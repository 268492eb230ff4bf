package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// editor is a ResponseWriter that changes headers before they go out.
type editor struct {
	http.ResponseWriter
	edit func(http.Header)
}

func (e *editor) Unwrap() http.ResponseWriter { return e.ResponseWriter }
func (e *editor) WriteHeader(status int) {
	e.edit(e.Header())
	e.ResponseWriter.WriteHeader(status)
}

// TestBrokenBodyOfWhatNothingPins: another node may have another version of it, so what is missing is asked of none.
func TestBrokenBodyOfWhatNothingPins(t *testing.T) {
	for _, o := range []origintest.Object{{Weak: true}, {NoETag: true}} {
		for _, units := range []int64{1, 5} {
			f := newFake(t, 3)
			c := f.client(t)
			o.Size = units * blockSize
			f.origin.Put("bkt", "k", o)
			for _, n := range f.nodes {
				n.does(cuts(10_000, 0))
			}
			r, err := c.Origin("bkt").Get(t.Context(), origin.Object{Key: "k"}, origin.GetOptions{Length: o.Size})
			if err != nil {
				t.Fatal(err)
			}
			p, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(p) != 10_000 {
				t.Errorf("%+v: %d bytes, %v", o, len(p), err)
			}
			if n := testutil.ToFloat64(c.metrics.resumptions); n != 0 {
				t.Errorf("%+v: %v resumptions", o, n)
			}
		}
	}
}

// TestOtherVersions: what a node says of a later unit must be what was said of the first, whatever it makes of
// If-Match.
func TestOtherVersions(t *testing.T) {
	const size = 3 * blockSize
	for name, edit := range map[string]func(http.Header){
		"ETag": func(h http.Header) { h["Etag"] = []string{`"other"`} },
		"size": func(h http.Header) {
			h.Set("Content-Range", strings.Replace(h.Get("Content-Range"), "/196608", "/196609", 1))
		},
	} {
		for _, pinned := range []bool{false, true} {
			f := newFake(t, 3)
			c := f.client(t)
			tag := f.origin.Put("bkt", "k", origintest.Object{Size: size})
			for _, n := range f.nodes {
				n.does(func(w http.ResponseWriter, r *http.Request) bool {
					if strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
						return false
					}
					handlerOf(r).ServeHTTP(&editor{w, edit}, r)
					return true
				})
			}
			opts := origin.GetOptions{}
			if pinned {
				opts = origin.GetOptions{Length: size, IfMatch: tag}
			}
			if r, err := readAll(t.Context(), c.Origin("bkt"), "k", opts); !errors.Is(err, origin.ErrChanged) || r == nil {
				t.Errorf("other %s, pinned %v: %v", name, pinned, err)
			}
		}
	}
}

// TestRangeIgnoredLater: the whole object in place of a later unit, or of the rest of one, is no answer, and its bytes
// are nobody's.
func TestRangeIgnoredLater(t *testing.T) {
	const size = 6 * blockSize
	whole := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
			r.Header.Del("Range")
		}
		return false
	}
	f := newFake(t, 3)
	c := f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: size})
	for _, n := range f.nodes[:2] {
		n.does(whole)
	}
	mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{}) // by the node that is left
	f.nodes[2].does(whole)
	if _, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{}); !errors.Is(err, origin.ErrBadAnswer) {
		t.Errorf("all ignore the range: %v", err)
	}

	f = newFake(t, 2)
	c = f.client(t)
	f.origin.Put("bkt", "k", origintest.Object{Size: size})
	ranked := f.ranked(t, c, "bkt", "k", 0)
	ranked[0].does(cuts(1000, 0))
	ranked[1].does(whole)
	if _, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{Length: blockSize}); err == nil ||
		!errors.Is(err, origin.ErrBadAnswer) {
		t.Errorf("the rest of a unit: %v", err)
	}
}

// TestNoCredentials: a request that could not be signed, or was by the wrong key, says nothing of nodes' health.
func TestNoCredentials(t *testing.T) {
	f := newFake(t, 3)
	none := errors.New("none to be had")
	c := f.client(t, func(l *Config) {
		l.Credentials = s3origin.Credentials{Provider: aws.CredentialsProviderFunc(
			func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, none })}
	})
	log := new(bytes.Buffer)
	wrong := f.client(t, func(l *Config) {
		l.Credentials.SecretKey, l.Logger = "wrong", slog.New(slog.NewTextHandler(log, nil))
	})
	for range 3 {
		if _, err := readAll(t.Context(), wrong.Origin("bkt"), "k", origin.GetOptions{}); !errors.Is(err, origin.ErrCredentials) {
			t.Errorf("got %v", err)
		}
		if _, err := readAll(t.Context(), c.Origin("bkt"), "k", origin.GetOptions{}); !errors.Is(err, none) {
			t.Errorf("got %v", err)
		}
	}
	first := f.ranked(t, wrong, "bkt", "k", 0)[0]
	if s := log.String(); !strings.Contains(s, "node "+first.id+" does not accept our credentials") ||
		!strings.Contains(s, "the secret key in cluster.credentials") || strings.Contains(s, "origin") {
		t.Errorf("logged: %s", s)
	}
	for _, s := range append(c.Status(), wrong.Status()...) {
		if s.State != cluster.Ready {
			t.Errorf("%+v", s)
		}
	}
}

// TestGatewayAsNode: who says that a request loops is a gateway, and no node. Another is asked.
func TestGatewayAsNode(t *testing.T) {
	log := new(bytes.Buffer)
	f := newFake(t, 3)
	c := f.client(t, func(l *Config) { l.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	f.origin.Put("bkt", "k", origintest.Object{Size: 12 * blockSize})
	self := f.ranked(t, c, "bkt", "k", 0)[0]
	self.does(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusLoopDetected)
		return true
	})
	for range 3 {
		mustRead(t, c.Origin("bkt"), "k", origin.GetOptions{})
	}
	if s := log.String(); !strings.Contains(s, "node "+self.id+" is down") || !strings.Contains(s, "508") {
		t.Errorf("logged: %s", s)
	}
}
