// Package node runs a built ashlar as a process of its own: it writes a configuration, waits until the node is ready,
// and reads its metrics.
package node

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// Key is a pair of credentials.
type Key struct{ Access, Secret string }

// Options shape a node.
type Options struct {
	Binary    string // the executable
	Dir       string // an existing folder for the configuration
	Origin    string // endpoint, http://host:port
	OriginKey Key    // zero sends requests to the origin unsigned
	Key       Key    // of clients, with every right; zero serves anonymous clients
	Memory    string // of blocks, as in the configuration: "256 MiB"; "" is the default
	// InfoMemory is for what is known of objects; "" is the default. It needs Memory.
	InfoMemory string
	Verbose    bool   // log all there is, every request too
	Rights     string // of the key, as in the configuration; "" is all
	Cert       string // PEM file, with CertKey for https; "" is http
	CertKey    string
	Env        []string // more of the environment, beside PATH and HOME
	Extra      string   // more TOML: whole tables that are not [server], [log], [origin], [auth], [cache]
}

// Node is a running ashlar.
type Node struct {
	*proc.Process
	Addr  string // host:port of the S3 listener
	Admin string // host:port of metrics and health
	opts  Options
}

// URL is the endpoint for S3 clients.
func (n *Node) URL() string {
	if n.opts.Cert != "" {
		return "https://" + n.Addr
	}
	return "http://" + n.Addr
}

// Start starts a node and waits until it is ready.
func Start(ctx context.Context, o Options) (*Node, error) {
	n := &Node{opts: o}
	var err error
	if n.Addr, err = proc.FreeAddr(); err != nil {
		return nil, err
	}
	if n.Admin, err = proc.FreeAddr(); err != nil {
		return nil, err
	}
	file := filepath.Join(o.Dir, "ashlar-"+strings.ReplaceAll(n.Addr, ":", "-")+".toml")
	if err := os.WriteFile(file, []byte(n.config()), 0o600); err != nil {
		return nil, err
	}
	n.Process, err = proc.Start(proc.Spec{
		Name: "ashlar", Path: o.Binary, Args: []string{"serve", "--config", file},
		// Nothing that configures it but the file.
		Env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.Dir}, o.Env...),
	})
	if err != nil {
		return nil, err
	}
	ready := func(status int) bool { return status == http.StatusOK }
	if err := n.WaitHTTP(ctx, "http://"+n.Admin+"/-/ready", ready); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

func (n *Node) config() string {
	o := n.opts
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("[server]\nlisten = %q\nadmin = %q\naccess_log = %v", n.Addr, n.Admin, o.Verbose)
	if o.Cert != "" {
		p("tls = { cert = %q, key = %q }", o.Cert, o.CertKey)
	}
	if o.Verbose {
		p("[log]\nlevel = \"debug\"\nformat = \"json\"")
	}
	p("[origin]\nendpoint = %q", o.Origin)
	if o.OriginKey == (Key{}) {
		p("credentials = { source = \"anonymous\" }")
	} else {
		p("credentials = { source = \"static\", access_key = %q, secret_key = %q }", o.OriginKey.Access, o.OriginKey.Secret)
	}
	if o.Key == (Key{}) {
		p("[auth]\nmode = \"anonymous\"")
	} else {
		p("[auth]\nmode = \"static\"\n[[auth.keys]]\naccess_key = %q\nsecret_key = %q", o.Key.Access, o.Key.Secret)
		p("%s", cmp.Or(o.Rights, "read = true\nwrite = true\nlist = true\ndelete = true\nadmin = true"))
	}
	if o.Memory != "" {
		p("[cache]\nmemory = %q", o.Memory)
		if o.InfoMemory != "" {
			p("info_memory = %q", o.InfoMemory)
		}
	}
	p("%s", o.Extra)
	return b.String()
}

// Metrics reads all metrics of the node: values by series, spelled as in the text format, labels included.
func (n *Node) Metrics() (Metrics, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + n.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", resp.Status)
	}
	m := make(Metrics)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		m[line[:i]] = v
	}
	return m, lines.Err()
}

// Metrics are values by series.
type Metrics map[string]float64

// Sum adds up the series of a metric, over all labels. There must be one.
func (m Metrics) Sum(name string) (float64, error) {
	var sum float64
	found := false
	for series, v := range m {
		if base, _, _ := strings.Cut(series, "{"); base == name {
			sum += v
			found = true
		}
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}
