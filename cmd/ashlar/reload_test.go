package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// getAs is a GET signed with a key.
func getAs(t *testing.T, url, key, secret string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Content-Sha256", emptyHash)
	credentials := aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}
	if err := signer().SignHTTP(t.Context(), credentials, r, emptyHash, "s3", "us-east-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestHangup sends SIGHUP to a process: new keys count, old ones don't, the connection and a response under way live on,
// and a file that is wrong changes nothing and is told of with its line.
func TestHangup(t *testing.T) {
	store := devs3.New(devs3.Config{})
	store.Put("bucket", "k", []byte("hello"))
	const size = 48 << 20
	store.PutGenerated("bucket", "large", size, 1)
	origin := httptest.NewServer(store)
	defer origin.Close()
	secret := writeFile(t, "secret", "s3cr3t-one")
	key := func(name, rest string) string { return "[[auth.keys]]\naccess_key = \"" + name + "\"\n" + rest + "\n" }
	file := writeFile(t, "a.toml", "")
	write := func(auth string) {
		rewrite(t, file, processConfig(origin.URL)+"[auth]\nmode = \"static\"\n"+auth)
	}
	write(key("FILE", "secret_key_file = \""+secret+"\"") + key("GONE", "secret_key = \"s3cr3t-gone\""))
	p := startProcess(t, file)

	// One connection for all requests but the one that is under way.
	dialed, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	c := newOneConn(t, dialed, err)
	asks := func(name, secret string, want int) {
		t.Helper()
		if code, body := do(t, c, getAs(t, p.url+"/bucket/k", name, secret)); code != want {
			t.Errorf("%s: %d, want %d: %s", name, code, want, body)
		}
	}
	asks("FILE", "s3cr3t-one", 200)
	asks("GONE", "s3cr3t-gone", 200)
	asks("NEW", "s3cr3t-new", 403)
	underWay, err := httpClient(t).Do(getAs(t, p.url+"/bucket/large", "GONE", "s3cr3t-gone"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = underWay.Body.Close() }()

	hangup := func(logged ...string) {
		t.Helper()
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		line := p.waitFor(t, "reloaded")
		for _, part := range logged {
			if !strings.Contains(line, part) {
				t.Errorf("no %s in %s", part, line)
			}
		}
		if strings.Contains(line, "s3cr3t") {
			t.Errorf("a secret in %s", line)
		}
	}
	rewrite(t, secret, "s3cr3t-two")
	write("anonymous_buckets = [\"pub-*\"]\n" + key("FILE", "secret_key_file = \""+secret+"\"") +
		key("NEW", "secret_key = \"s3cr3t-new\""))
	hangup("level=INFO", "keys=2 added=1 changed=1 removed=1 anonymous_buckets=1")
	asks("FILE", "s3cr3t-one", 403)
	asks("FILE", "s3cr3t-two", 200)
	asks("NEW", "s3cr3t-new", 200)
	asks("GONE", "s3cr3t-gone", 403)

	write(key("FILE", "secret_key = \"s3cr3t-three\"\nred = true"))
	hangup("level=ERROR", "everything stays", "file="+file, "line=14", "key=auth.keys.red", "did you mean auth.keys.read?")
	write("")
	hangup("level=ERROR", "key=auth.mode", "line=10")
	rewrite(t, file, "= s3cr3t-unquoted")
	hangup("level=ERROR", "line=1")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	hangup("level=ERROR", "no such file")
	asks("FILE", "s3cr3t-two", 200)
	asks("FILE", "s3cr3t-three", 403)

	if n, err := io.Copy(io.Discard, underWay.Body); n != size || err != nil {
		t.Errorf("the response under way: %d bytes, %v", n, err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "msg=stopped")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// TestReloadTellsWhatNeedsARestart: what can't change while the node runs is named and has no effect; with another
// auth.mode the keys are left alone too.
func TestReloadTellsWhatNeedsARestart(t *testing.T) {
	n := newTestNode(t, asAdmin)
	reload := func(change func(*Config)) string {
		t.Helper()
		before := len(n.log.String())
		c := *n.config
		c.Auth.Keys = slices.Clone(c.Auth.Keys)
		change(&c)
		n.reload(func() (*Config, error) { return &c, nil })
		return n.log.String()[before:]
	}
	if log := reload(func(*Config) {}); !strings.Contains(log, "keys=2 added=0 changed=0 removed=0") ||
		strings.Contains(log, "restart") {
		t.Errorf("nothing changed: %s", log)
	}
	log := reload(func(c *Config) {
		c.Auth.Keys[0].Prefix = "p/"
		c.Cache.Memory, c.Server.TLS.Cert, c.Origin.Credentials.Secret = 128*mib, "x", "s3cr3t-new"
		c.Buckets.Fetch.Attempt, c.Bucket = 1, []Bucket{{Name: "a"}}
	})
	for _, part := range []string{"changed=1", "need a restart", "cache.memory", "server.tls.cert",
		"origin.credentials.secret_key", "buckets.fetch.attempt", " bucket "} {
		if !strings.Contains(log, part) {
			t.Errorf("no %s in %s", part, log)
		}
	}
	if n.config.Auth.Keys[0].Prefix != "p/" || n.config.Cache.Memory != 64*mib {
		t.Errorf("%+v", n.config)
	}
	log = reload(func(c *Config) { c.Auth.Mode, c.Auth.Keys = "anonymous", nil })
	if !strings.Contains(log, "auth.mode") || strings.Contains(log, "keys reloaded") {
		t.Error(log)
	}
	if code, _ := get(t, httpClient(t), n.s3.url()+"/bucket/k"); code != 403 {
		t.Errorf("open to everyone: %d", code)
	}
	before := len(n.log.String())
	n.reload(func() (*Config, error) { return nil, errors.New("boom") })
	if log := n.log.String()[before:]; !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "boom") {
		t.Error(log)
	}
}

// TestReloadRace reloads while requests come.
func TestReloadRace(t *testing.T) {
	n := newTestNode(t, asAdmin)
	n.store.Put(demoBucket, "k", []byte("hello"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			c := *n.config
			n.reload(func() (*Config, error) { return &c, nil })
		}
	}()
	c := httpClient(t)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		r, err := signedGet(t.Context(), n.s3.url(), demoBucket, "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := do(t, c, r); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
}
