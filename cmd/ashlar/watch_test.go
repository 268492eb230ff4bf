package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/origin"
)

// watched returns a watched origin that need not exist, and its log.
func watched(t *testing.T, endpoint string) (*watchedOrigin, *syncBuffer) {
	t.Helper()
	log := new(syncBuffer)
	c := defaults()
	c.Origin.Endpoint, c.Origin.Credentials = endpoint, Credentials{Source: "anonymous"}
	w, err := newOrigin(t.Context(), c, "", nil, newLogger(log, Log{Level: "info", Format: "json"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, log
}

// TestOutage: an outage is a warning when it begins, one more in each minute that it lasts, and an info when it is over.
// Neither an answer that is about the request nor one that was given up counts; one success among failures is no end.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := watched(t, "http://127.0.0.1:1")
		expect := func(when string, levels ...string) {
			t.Helper()
			var got []string
			for _, r := range records(t, log.String()) {
				got = append(got, r["level"].(string))
			}
			if fmt.Sprint(got) != fmt.Sprint(levels) {
				t.Errorf("%s: %v, want %v in\n%s", when, got, levels, log)
			}
		}
		for _, err := range []error{nil, context.Canceled, &origin.Error{Status: 404}, &origin.Error{Status: 501},
			fmt.Errorf("x: %w", &origin.Error{Status: 412})} {
			if got := w.note("GET", "s3://b/k", err); got != err {
				t.Errorf("%v became %v", err, got)
			}
		}
		expect("well")
		for range 20 {
			_ = w.note("GET", "s3://b/k", origin.ErrTimeout)
			_ = w.note("GET", "s3://b/k", &origin.Error{Status: 503})
			_ = w.note("GET", "s3://b/k", nil)
			time.Sleep(time.Second)
		}
		expect("begun", "WARN")
		for range 90 {
			_ = w.note("GET", "s3://b/k", io.ErrUnexpectedEOF)
			time.Sleep(time.Second)
		}
		expect("after almost two minutes", "WARN", "WARN")
		time.Sleep(calm)
		for range 3 {
			_ = w.note("GET", "s3://b/k", nil)
		}
		expect("over", "WARN", "WARN", "INFO")
		all := records(t, log.String())
		if all[1]["suppressed"] != 79.0 || all[2]["failed_requests"] != 130.0 {
			t.Errorf("%v", all)
		}
		time.Sleep(quietFor)
		_ = w.note("GET", "s3://b/k", io.ErrUnexpectedEOF)
		expect("again", "WARN", "WARN", "INFO", "WARN")
	})
}

// TestOutageOfANode: the node's own requests are watched, reads and forwarded ones.
func TestOutageOfANode(t *testing.T) {
	for _, target := range []string{"/bucket/k", "/bucket?location"} {
		n := newTestNode(t, nil)
		n.store.Put("bucket", "k", []byte("hello"))
		n.store.Fault(func(*http.Request) *devs3.Fault { return &devs3.Fault{Status: 503} })
		c := httpClient(t)
		for range 5 {
			if code, _ := get(t, c, n.s3.url()+target); code != 503 {
				t.Errorf("%s: %d", target, code)
			}
		}
		log := n.log.String()
		if strings.Count(log, `level=WARN msg="requests to the origin fail"`) != 1 ||
			strings.Count(log, `level=DEBUG msg="requests to the origin fail"`) < 4 || !n.origin.failing.Load() {
			t.Errorf("%s:\n%s", target, log)
		}
		n.stop()
	}
}

// TestBrokenUploadIsNoOutage: a client whose body breaks off is not the origin's failure.
func TestBrokenUploadIsNoOutage(t *testing.T) {
	store := httptest.NewServer(devs3.New(devs3.Config{}))
	defer store.Close()
	w, log := watched(t, store.URL)
	broken := errors.New("broken")
	r := httptest.NewRequest(http.MethodPut, "/bucket/k", io.MultiReader(strings.NewReader("half"), failingReader{broken}))
	r.ContentLength = 100
	resp, err := w.Forward(t.Context(), r, "bucket", "k")
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, broken) || w.failing.Load() || log.String() != "" {
		t.Errorf("%v, %s", err, log)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// TestHints: what an operator most likely did wrong is said in words, and without the names of packages.
func TestHints(t *testing.T) {
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	plain := httptest.NewServer(devs3.New(devs3.Config{}))
	defer plain.Close()
	secure := httptest.NewUnstartedServer(devs3.New(devs3.Config{}))
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	alert, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for l, answer := range map[net.Listener]string{closing: "", alert: "\x15\x03\x01\x00\x02\x02\x46"} {
		defer func() { _ = l.Close() }()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			}
		}()
	}
	host := func(s string) string {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	for name, tc := range map[string]struct{ endpoint, hint string }{
		"TLS to plain":         {"https://" + host(plain.URL), "must begin with http://"},
		"plain to TLS":         {"http://" + host(secure.URL), "must begin with https://"},
		"plain to TLS, alert":  {"http://" + alert.Addr().String(), "must begin with https://"},
		"plain, closed":        {"http://" + closing.Addr().String(), "if it speaks TLS"},
		"TLS, closed":          {"https://" + closing.Addr().String(), "without an answer"},
		"unknown authority":    {secure.URL, "origin.ca"},
		"nobody there":         {"http://" + nobody, "nothing listens there"},
		"nobody there, by TLS": {"https://" + nobody, "nothing listens there"},
	} {
		w, log := watched(t, tc.endpoint)
		resp, err := w.Get(t.Context(), origin.Object{Bucket: "bucket", Key: "k"}, origin.GetOptions{})
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(log.String(), tc.hint) || strings.Contains(log.String(), "s3origin") {
			t.Errorf("%s: %v, log %s", name, err, log)
		}
	}

	if hint := hintOf(fmt.Errorf("x: %w", &net.DNSError{IsNotFound: true}), false); !strings.HasPrefix(hint, "no such host") {
		t.Errorf("hint %q", hint)
	}
	w, _ := watched(t, plain.URL)
	if err := w.explain(fmt.Errorf("s3origin: %w", origin.ErrBadAnswer)); !errors.Is(err, origin.ErrBadAnswer) ||
		err.Error() != origin.ErrBadAnswer.Error() {
		t.Errorf("%v", err)
	}
}
