package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// purgeTimeout bounds the whole of a purge.
const purgeTimeout = time.Minute

func purgeCommand() command {
	cmd := command{
		name:    "purge",
		usage:   "s3://BUCKET/PREFIX --config FILE [--yes]",
		summary: "make a node forget what it knows of objects",
		args:    1,
		help: `Asks a running node how many objects below the prefix it remembers, and with --yes makes it forget them: their next
read asks the origin whether they have changed. Cached blocks stay, and are found again where they have not. What the
origin holds is not touched. s3://BUCKET/ is the whole bucket; with --exact the name is that of one object.

The node is the one that FILE configures (server.listen), or that of --endpoint. The request is signed with the first
of [[auth.keys]] that has the right (admin = true) there, or with --access-key and --secret-key-file, or with
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment.

Exit code: 0 when the node did as asked, 1 when not, 2 when the command line or the configuration can't be used.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		p := purge{environ: c.environ}
		flags.StringVar(&p.config, "config", "", configUsage)
		flags.StringVar(&p.endpoint, "endpoint", "", "ask the node at `URL`")
		flags.StringVar(&p.accessKey, "access-key", "", "sign with the access key `ID`")
		flags.StringVar(&p.secretFile, "secret-key-file", "", "and the secret that `FILE` holds")
		flags.StringVar(&p.clientCert, "client-cert", "", "show the certificate in `FILE` (PEM), for server.tls.client_ca")
		flags.StringVar(&p.clientKey, "client-key", "", "and its key in `FILE`")
		flags.BoolVar(&p.exact, "exact", false, "the one object of that name, not all below it")
		yes := flags.Bool("yes", false, "forget; without it, only count")
		args, err := cmd.parseArgs(c, flags)
		if err != nil {
			return ignoreHelp(err)
		}
		if len(args) == 0 {
			return badInput("purge: which objects? (ashlar purge s3://BUCKET/PREFIX --config FILE)")
		}
		if err := p.prepare(args[0]); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
		defer cancel()
		n, err := p.send(ctx, !*yes)
		if err != nil {
			return err
		}
		what := "below " + args[0]
		if p.exact {
			what = "of " + args[0]
		}
		if *yes {
			fmt.Fprintf(c.stdout, "forgot %s %s\n", objects(n), what)
			return nil
		}
		fmt.Fprintf(c.stdout, "%s remembered %s; --yes forgets them\n", objects(n), what)
		return nil
	}
	return cmd
}

func objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

// purge is one run of the command.
type purge struct {
	config, endpoint      string // at least one of them is set
	accessKey, secretFile string
	clientCert, clientKey string
	exact                 bool
	environ               []string

	bucket, name string // name is the prefix or, with exact, the key
	region       string
	credentials  aws.Credentials
	tls          *tls.Config
}

// prepare finds out what to purge, where, and who asks.
func (p *purge) prepare(target string) error {
	rest, ok := strings.CutPrefix(target, "s3://")
	if !ok {
		return badInput("purge: %q is not s3://BUCKET/PREFIX", target)
	}
	p.bucket, p.name, _ = strings.Cut(rest, "/")
	switch {
	case p.bucket == "" || strings.ContainsAny(p.bucket, "*?"):
		return badInput("purge: %q names no bucket; patterns are not understood here", target)
	case p.exact && p.name == "":
		return badInput("purge: with --exact, %q must name an object", target)
	case p.config == "" && p.endpoint == "":
		return badInput("purge needs --config FILE or --endpoint URL, to know which node to ask")
	case (p.accessKey == "") != (p.secretFile == ""):
		return badInput("purge: --access-key and --secret-key-file belong together")
	case (p.clientCert == "") != (p.clientKey == ""):
		return badInput("purge: --client-cert and --client-key belong together")
	}
	p.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if p.clientCert != "" {
		pair, err := tls.LoadX509KeyPair(p.clientCert, p.clientKey)
		if err != nil {
			return badInput("purge: --client-cert: %w", err)
		}
		p.tls.Certificates = []tls.Certificate{pair}
	}
	p.region = cmp.Or(p.env("AWS_REGION"), p.env("AWS_DEFAULT_REGION"), "us-east-1")
	if p.config != "" {
		c, err := loadFile(p.config, p.environ, nil)
		if err != nil {
			return err
		}
		if err := p.fromConfig(c); err != nil {
			return err
		}
	}
	return p.findCredentials()
}

// fromConfig takes from a configuration what the flags don't say.
func (p *purge) fromConfig(c *Config) error {
	p.region = c.Origin.Region
	if p.endpoint == "" {
		p.endpoint = "http://" + connectable(c.Server.Listen)
		if c.Server.TLS.Cert != "" {
			p.endpoint = "https://" + connectable(c.Server.Listen)
			if err := p.trust(c.Server.TLS.Cert); err != nil {
				return err
			}
		}
	}
	for i := range c.Auth.Keys {
		k := &c.Auth.Keys[i]
		in := func(pattern string) bool { return matchPattern(pattern, p.bucket) }
		if k.Admin && strings.HasPrefix(p.name, k.Prefix) && slices.ContainsFunc(k.Buckets, in) {
			p.credentials = aws.Credentials{AccessKeyID: k.AccessKey, SecretAccessKey: string(k.Secret)}
			return nil
		}
	}
	if p.accessKey == "" && c.Auth.Mode != "static" {
		return badInput("purge: with auth.mode = %q nobody has the right to; it takes \"static\" and one of [[auth.keys]] "+
			"with admin = true", c.Auth.Mode)
	}
	return nil
}

// connectable is an address that was given to listen on, as a client on this machine connects to it.
func connectable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err == nil && wild(host) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// trust expects the node to present the certificate in a file: it is connected to by address, and its certificate may be
// for another name and of an authority that this machine does not know.
func (p *purge) trust(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return badInput("purge: server.tls.cert: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return badInput("purge: server.tls.cert: %s holds no certificate in PEM form", file)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return badInput("purge: server.tls.cert: %w", err)
	}
	p.tls.RootCAs = x509.NewCertPool()
	p.tls.RootCAs.AddCert(leaf)
	switch {
	case len(leaf.DNSNames) > 0:
		p.tls.ServerName = strings.Replace(leaf.DNSNames[0], "*", "purge", 1)
	case len(leaf.IPAddresses) > 0:
		p.tls.ServerName = leaf.IPAddresses[0].String()
	}
	return nil
}

func (p *purge) findCredentials() error {
	if p.accessKey != "" {
		s := newSources("")
		secret := s.secret("", "", p.secretFile)
		if len(s.problems) > 0 {
			return badInput("purge: --secret-key-file: %s", s.problems[0].Text)
		}
		p.credentials = aws.Credentials{AccessKeyID: p.accessKey, SecretAccessKey: string(secret)}
	}
	if !p.credentials.HasKeys() {
		p.credentials = aws.Credentials{
			AccessKeyID:     p.env("AWS_ACCESS_KEY_ID"),
			SecretAccessKey: p.env("AWS_SECRET_ACCESS_KEY"),
			SessionToken:    p.env("AWS_SESSION_TOKEN"),
		}
	}
	if !p.credentials.HasKeys() {
		return badInput("purge: no key to sign with: none of [[auth.keys]] has admin = true for s3://%s/%s; give "+
			"--access-key and --secret-key-file", p.bucket, p.name)
	}
	return nil
}

func (p *purge) env(name string) string {
	for _, kv := range p.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// send asks the node, and returns how many objects it remembered.
func (p *purge) send(ctx context.Context, dry bool) (int, error) {
	ask := struct {
		Bucket string   `json:"bucket"`
		Prefix *string  `json:"prefix,omitempty"`
		Keys   []string `json:"keys,omitempty"`
		DryRun bool     `json:"dry_run"`
	}{Bucket: p.bucket, Prefix: &p.name, DryRun: dry}
	if p.exact {
		ask.Prefix, ask.Keys = nil, []string{p.name}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return 0, err
	}
	u, err := url.Parse(p.endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return 0, badInput("purge: --endpoint: %q is not a URL such as http://127.0.0.1:9000", p.endpoint)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.Scheme+"://"+u.Host+"/-/invalidate", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	r.Header.Set("X-Amz-Content-Sha256", hash)
	if err := signer().SignHTTP(ctx, p.credentials, r, hash, "s3", p.region, time.Now()); err != nil {
		return 0, err
	}
	transport := &http.Transport{TLSClientConfig: p.tls}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, fmt.Errorf("purge: no answer from the node: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return 0, fmt.Errorf("purge: the node's answer broke off: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return 0, refusedPurge(resp.Status, answer)
	}
	var said struct {
		Objects *int `json:"objects"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || said.Objects == nil {
		return 0, errors.New("purge: the answer is none of ashlar's; is that the right endpoint?")
	}
	return *said.Objects, nil
}

// refusedPurge says why a node refuses, in its own words where it has any.
func refusedPurge(status string, answer []byte) error {
	code, said := refusal(status, answer)
	if code == "AccessDenied" {
		said += " (the key needs admin = true for the bucket, and a prefix that covers this one)"
	}
	return fmt.Errorf("purge: refused: %s", said)
}

const maxRefusal = 64 << 10 // bytes of an error document that are read

// refusal is what an S3 error document says, or the status where the answer has none.
func refusal(status string, answer []byte) (code, said string) {
	var e struct {
		Code    string
		Message string
	}
	if xml.Unmarshal(answer, &e) != nil || e.Code == "" {
		return "", status
	}
	return e.Code, e.Code + ": " + e.Message
}
