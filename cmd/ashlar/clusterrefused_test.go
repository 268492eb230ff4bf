package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// TestGatewayRefused: nodes that refuse the gateway, whatever for, are passed by. HEAD too, whose answer has no words.
// Clients don't get to see a 403 that is not about them, the log says what to look at, and so does warm, once.
func TestGatewayRefused(t *testing.T) {
	key := newAuthKey()
	key.AccessKey, key.SecretKey, key.Cluster = "gateway", "s3cr3t-of-gateway", true
	mute := key
	mute.Read, mute.Cluster = false, false
	mute.AccessKey = "mute"
	first := newTestNode(t, func(c *Config) {
		c.Auth = Auth{Mode: "static", Keys: []AuthKey{key, mute}}
	})
	second := newTestNode(t, func(c *Config) {
		c.Auth, c.Origin.Endpoint = first.config.Auth, first.config.Origin.Endpoint
	})
	for i := range 20 {
		first.store.PutGenerated("bucket", fmt.Sprint("k", i), 1000, 1)
	}
	for name, c := range map[string]struct {
		credentials Credentials
		code        string // that nodes answer with
	}{
		"wrong secret": {Credentials{Source: "static", AccessKey: "gateway", SecretKey: "wrong"}, "SignatureDoesNotMatch"},
		"unknown key":  {Credentials{Source: "static", AccessKey: "nobody", SecretKey: "wrong"}, "InvalidAccessKeyId"},
		"no key":       {Credentials{Source: "anonymous"}, "AccessDenied"},
		"no right":     {Credentials{Source: "static", AccessKey: "mute", SecretKey: "s3cr3t-of-gateway"}, "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			for method, said := range map[string]string{"GET": c.code, "HEAD": ""} {
				g := newTestNode(t, func(conf *Config) {
					conf.Origin.Endpoint = first.config.Origin.Endpoint
					for i, n := range []*testNode{first, second} {
						conf.Cluster.Nodes = append(conf.Cluster.Nodes,
							ClusterNode{ID: fmt.Sprint("node-", i), Addr: n.s3.addr().String(), Weight: 1})
					}
					conf.Cluster.Credentials = c.credentials
				})
				r, err := http.NewRequestWithContext(t.Context(), method, g.s3.url()+"/bucket/k0", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := httpClient(t).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || err != nil || method == "GET" && len(body) != 1000 {
					t.Errorf("%s: %d %s %v", method, resp.StatusCode, body, err)
				}
				for _, part := range []string{"node node-0 does not accept our credentials", "node node-1 does not accept",
					"cluster.credentials", said} {
					if !strings.Contains(g.log.String(), part) {
						t.Errorf("%s: no %q in\n%s", method, part, g.log)
					}
				}
			}

			file := writeFile(t, "gateway.toml", fmt.Sprintf("[origin]\nendpoint = %q\ncredentials = { source = \"static\", "+
				"access_key = \"AKIAORIGIN\", secret_key = \"s3cr3t-of-origin\" }\n[cluster]\nnodes = [%q]\n"+
				"credentials = { source = %q, access_key = %q, secret_key = %q }\n", first.config.Origin.Endpoint,
				first.s3.addr(), c.credentials.Source, c.credentials.AccessKey, string(c.credentials.SecretKey)))
			code, _, errOut := runFor(t.Context(), "warm", "s3://bucket/", "--config", file)
			if code != exitFailed || strings.Count(errOut, "\n") != 1 || strings.Count(errOut, "node ") != 1 ||
				!strings.Contains(errOut, "node "+first.s3.addr().String()+" does not accept our credentials: 403 "+c.code) ||
				!strings.Contains(errOut, "cluster.credentials") {
				t.Errorf("%d %s", code, errOut)
			}
		})
	}
}

// TestGatewaySaysWhichNode: where a node passes on that its origin fails, the gateway's log names the node, whose own log
// has the reason.
func TestGatewaySaysWhichNode(t *testing.T) {
	tc := newTestCluster(t, time.Hour, nil)
	tc.store.PutGenerated("bucket", "k", 1000, 1)
	tc.store.Fault(func(*http.Request) *devs3.Fault { return &devs3.Fault{Status: 503} })
	if code, _ := get(t, httpClient(t), tc.s3.url()+"/bucket/k"); code != 503 {
		t.Errorf("answered %d", code)
	}
	line := regexp.MustCompile(`level=WARN msg="request failed" .*key=k request_id=[0-9A-F]{16} error="node node-\d: ` +
		`origin answered 503`)
	eventually(t, "the log names the node", func() bool { return line.MatchString(tc.log.String()) })
}

// TestNodeWithoutRights: a node whose own credentials the origin refuses, as when they were changed and it was forgotten,
// fails no read through a gateway.
func TestNodeWithoutRights(t *testing.T) {
	good := newTestNode(t, nil)
	bad := newTestNode(t, func(c *Config) {
		c.Origin.Endpoint, c.Origin.Credentials.SecretKey = good.config.Origin.Endpoint, "outdated"
	})
	g := newTestNode(t, func(c *Config) {
		c.Origin.Endpoint = "http://127.0.0.1:1" // nothing is read past the nodes
		for i, n := range []*testNode{good, bad} {
			c.Cluster.Nodes = append(c.Cluster.Nodes,
				ClusterNode{ID: fmt.Sprint("node-", i), Addr: n.s3.addr().String(), Weight: 1})
		}
	})
	for i := range 10 {
		key := fmt.Sprint("k", i)
		good.store.PutGenerated("bucket", key, 1000, 1)
		if code, body := get(t, httpClient(t), g.s3.url()+"/bucket/"+key); code != 200 || len(body) != 1000 {
			t.Errorf("%s: %d %s", key, code, body)
		}
	}
	if !strings.Contains(bad.log.String(), "the origin does not accept our credentials") {
		t.Errorf("the node says\n%s", bad.log)
	}
}
