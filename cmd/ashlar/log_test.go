package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// records reads a log of JSON lines.
func records(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, r)
	}
	return all
}

// TestWarningsAreNotRepeated: of warnings with one text, one passes in a minute, and says how many did not. What is no
// warning passes always, and at level debug everything does.
func TestWarningsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLogger(&out, Log{Level: "info", Format: "json"})
		for range 3 {
			for range 10 {
				l.Warn("trouble", "n", 1)
				l.With("part", "x").Warn("trouble")
				l.WithGroup("g").Warn("other trouble", "n", 2)
				l.Error("failure")
				l.Info("news")
			}
			time.Sleep(quietFor)
		}
		counts := make(map[string]int)
		var suppressed []any
		for _, r := range records(t, out.String()) {
			counts[r["level"].(string)+" "+r["msg"].(string)]++
			if r["msg"] == "trouble" {
				suppressed = append(suppressed, r["suppressed"])
			}
		}
		if counts["WARN trouble"] != 3 || counts["WARN other trouble"] != 3 || counts["ERROR failure"] != 30 ||
			counts["INFO news"] != 30 || len(counts) != 4 {
			t.Errorf("%v", counts)
		}
		if suppressed[0] != nil || suppressed[1] != 19.0 || suppressed[2] != 19.0 {
			t.Errorf("suppressed %v", suppressed)
		}

		out.Reset()
		l = newLogger(&out, Log{Level: "debug", Format: "json"})
		for range 5 {
			l.Warn("trouble")
		}
		levels := make([]any, 0, 5)
		for _, r := range records(t, out.String()) {
			levels = append(levels, r["level"])
		}
		if len(levels) != 5 || levels[0] != "WARN" || levels[1] != "DEBUG" || levels[4] != "DEBUG" {
			t.Errorf("at level debug: %v", levels)
		}
	})
}

// TestManyWarnings: texts that never come again take no memory for ever.
func TestManyWarnings(t *testing.T) {
	var out bytes.Buffer
	l := newLogger(&out, Log{})
	for i := range 10 * maxWarnings {
		l.Warn(strings.Repeat("x", i))
	}
	if n := len(l.Handler().(*quietHandler).told.last); n > maxWarnings {
		t.Errorf("%d texts are remembered", n)
	}
	if n := strings.Count(out.String(), "\n"); n != 10*maxWarnings {
		t.Errorf("%d lines", n)
	}
}

// TestStandardLog: what libraries write to package log is a record in the chosen format.
func TestStandardLog(t *testing.T) {
	flags, to := log.Flags(), log.Writer()
	defer func() { log.SetFlags(flags); log.SetOutput(to) }()
	var out bytes.Buffer
	takeStandardLog(newLogger(&out, Log{Level: "info", Format: "json"}))
	log.Print("Unsolicited response received on idle HTTP channel")
	if r := records(t, out.String()); len(r) != 1 || r[0]["level"] != slog.LevelWarn.String() ||
		r[0]["msg"] != "Unsolicited response received on idle HTTP channel" {
		t.Errorf("%s", &out)
	}
}

// TestLogOfTheSDK: what the AWS SDK logs of its search for credentials is a record too. Here the machine's metadata
// service has no tokens to give.
func TestLogOfTheSDK(t *testing.T) {
	metadata := httptest.NewServer(http.NotFoundHandler())
	defer metadata.Close()
	withoutCredentials(t)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	n := newTestNode(t, func(c *Config) { c.Origin.Credentials = Credentials{Source: "default"} })
	eventually(t, "the search ends", func() bool { // the SDK's own goroutine does, too
		return strings.Contains(n.log.String(), `level=WARN msg="no credentials for the origin`)
	})
	if !strings.Contains(n.log.String(), `level=WARN msg="the AWS SDK says: falling back to IMDSv1`) {
		t.Errorf("%s", n.log)
	}
}

// TestLogOfTheServer: what net/http logs of connections is a record too.
func TestLogOfTheServer(t *testing.T) {
	cert, key := newTestCA(t).files(t)
	n := newTestNode(t, func(c *Config) { c.Server.TLS = TLS{Cert: cert, Key: key} })
	c, err := net.Dial("tcp", n.s3.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: gw\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a record", func() bool {
		return strings.Contains(n.log.String(), `level=WARN msg="http: TLS handshake error from `)
	})
}

// TestAbortedScrape: a scraper that hangs up in the middle is told of at level debug; trouble of ours is an error.
func TestAbortedScrape(t *testing.T) {
	n := newTestNode(t, nil)
	n.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "long", Help: strings.Repeat("x", 16<<20), // more than the kernel takes at once
	}, func() float64 { return 1 }))
	c, err := net.Dial("tcp", n.admin.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: admin\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	eventually(t, "a line", func() bool {
		return strings.Contains(n.log.String(), `level=DEBUG msg="metrics: error encoding and sending metric family:`)
	})
	if strings.Contains(n.log.String(), "level=ERROR") {
		t.Errorf("%s", n.log)
	}
	scrapeLog{n.node.log}.Println("error gathering metrics:", errors.New("collected before"))
	if !strings.Contains(n.log.String(), `level=ERROR msg="metrics: error gathering metrics: collected before"`) {
		t.Errorf("%s", n.log)
	}
}
