package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// What clients of the demo sign with. It is printed, and opens a sample bucket in memory and nothing else.
const (
	demoAccessKey = "ashlar-demo"
	demoSecretKey = "ashlar-demo-secret"
)

func demoCommand() command {
	cmd := command{
		name:    "demo",
		usage:   "[--check]",
		summary: "a sample bucket with a cluster in front, to try it out",
		help: `Starts an S3 server inside the process with a sample bucket in memory, three nodes in front of it and a gateway in front
of those, and prints commands to paste for aws-cli, boto3 and curl. Ctrl-C ends all; nothing is written to disk.

With --check it runs by itself, in a few seconds: it reads everything in the bucket twice through the gateway, kills a
node while it reads on, and adds one. It verifies every byte, prints what that cost, and exits with 0, or with
1 when anything was not as it must be.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		check := flags.Bool("check", false, "read everything, verify it, and exit")
		listen := flags.String("listen", "127.0.0.1:9000", "`ADDR` for S3 clients; another port if taken (any, with --check)")
		admin := flags.String("admin", "127.0.0.1:9001", "`ADDR` for metrics; another port if taken (any, with --check)")
		if err := cmd.parse(c, flags); err != nil {
			return ignoreHelp(err)
		}
		given := make(map[string]bool)
		flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if *check && !given["listen"] {
			*listen = "127.0.0.1:0"
		}
		if *check && !given["admin"] {
			*admin = "127.0.0.1:0"
		}
		ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer restore()

		d, err := startDemo(ctx, *listen, *admin, newLogger(c.stderr, Log{Level: "warn"}))
		if err != nil {
			return err
		}
		defer d.stop()
		if *check {
			return d.check(ctx, c.stdout)
		}
		d.explain(c.stdout)
		select {
		case <-ctx.Done():
			restore()
			fmt.Fprintln(c.stdout, "\nStopped.")
			return nil
		case err := <-d.node.failed:
			return err
		case err := <-d.failed:
			return err
		}
	}
	return cmd
}

// demo is an S3 server with a sample bucket, nodes in front of it, and a gateway in front of those.
type demo struct {
	bucket []sample
	store  *devs3.Server
	origin *server    // what the store is served by
	failed chan error // the store's listener, if it ended by itself
	nodes  []*node    // by number
	node   *node      // the gateway
	config *Config    // of the gateway
	log    *slog.Logger
	notes  []string // what is other than asked for
}

// demoNodes is how many nodes there are.
const demoNodes = 3

// startDemo starts a demo on the addresses given, or on other ports where those are taken.
func startDemo(ctx context.Context, listenAddr, admin string, log *slog.Logger) (*demo, error) {
	originKey, originSecret := "origin", rand.Text()
	c := defaults()
	c.Server.Listen, c.Server.Admin, c.Server.Drain = listenAddr, admin, Duration(5*time.Second)
	c.Origin.Credentials = Credentials{Source: "static", AccessKey: originKey, SecretKey: Secret(originSecret)}
	c.Auth.Mode = "static"
	c.Auth.Keys = []AuthKey{newAuthKey()}
	k := &c.Auth.Keys[0]
	k.AccessKey, k.SecretKey, k.Write, k.Delete = demoAccessKey, demoSecretKey, true, true
	c.Cache.Memory = 256 * mib
	c.Buckets.Fetch.Hedge.Factor = 0 // the check counts origin requests, on machines that may be busy
	s := newSources("")
	c.validate(s)
	c.resolve(s)
	if len(s.problems) > 0 {
		p := s.problems[0]
		return nil, badInput("demo: --%s: %s", strings.TrimPrefix(p.Key, "server."), p.Text)
	}

	d := &demo{
		bucket: sampleBucket(),
		failed: make(chan error, 1),
		config: c,
		log:    log,
		store: devs3.New(devs3.Config{ // the key that is printed opens it too, for a node of one's own in front
			Keys: map[string]string{originKey: originSecret, demoAccessKey: demoSecretKey}, Logger: log}),
	}
	for _, s := range d.bucket {
		s.put(d.store)
	}
	var err error
	d.origin, err = listen(endpoint{key: "the sample bucket", addr: "127.0.0.1:0", limits: c.Server.Limits}, nil,
		log)
	if err != nil {
		return nil, err
	}
	d.origin.serve(d.store, d.failed)
	c.Origin.Endpoint = d.origin.url()
	c.Cluster.Hedge.Factor = 0
	c.Cluster.Credentials = Credentials{Source: "static", AccessKey: "gateway", Secret: Secret(rand.Text())}
	for range demoNodes {
		if err = d.addNode(ctx); err != nil {
			d.stop()
			return nil, err
		}
	}
	c.Cluster.Nodes = d.members(0, 1, 2)
	if d.node, err = d.startGateway(ctx, c); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// addNode starts one more node, on a port of its own, that lets in the gateway alone.
func (d *demo) addNode(ctx context.Context) error {
	c := *d.config
	c.Server.Listen, c.Server.Admin = "127.0.0.1:0", ""
	c.Cluster = defaults().Cluster
	k := newAuthKey()
	k.AccessKey, k.Secret, k.Cluster = d.config.Cluster.Credentials.AccessKey, d.config.Cluster.Credentials.Secret, true
	c.Auth.Keys = []AuthKey{k}
	c.Cache.Memory = 128 * mib
	n, err := startNode(ctx, &c, d.log)
	if err == nil {
		d.nodes = append(d.nodes, n)
	}
	return err
}

// members returns some of the nodes as a gateway's configuration lists them.
func (d *demo) members(numbers ...int) []ClusterNode {
	var list []ClusterNode
	for _, i := range numbers {
		list = append(list, ClusterNode{ID: fmt.Sprint("node-", i+1), Addr: d.nodes[i].s3.addr().String(), Weight: 1})
	}
	return list
}

// startGateway starts the gateway; a port that is taken is replaced by a free one, and noted.
func (d *demo) startGateway(ctx context.Context, c *Config) (*node, error) {
	for {
		n, err := startNode(ctx, c, d.log)
		var taken *listenFailure
		if err == nil || !errors.As(err, &taken) || !errors.Is(err, syscall.EADDRINUSE) {
			return n, err
		}
		addr := &c.Server.Listen
		if taken.key == "server.admin" {
			addr = &c.Server.Admin
		}
		host, port, err2 := net.SplitHostPort(*addr)
		if err2 != nil || port == "0" {
			return nil, err
		}
		d.notes = append(d.notes, *addr+" is in use by another process: another port was taken.")
		*addr = net.JoinHostPort(host, "0")
	}
}

// stop ends the gateway, then the nodes, then the store.
func (d *demo) stop() {
	if d.node != nil {
		d.node.stop()
	}
	for _, n := range d.nodes {
		n.stop()
	}
	d.origin.close()
}

// explain prints where everything is and what to paste. Every command works as it stands, in a POSIX shell.
func (d *demo) explain(w io.Writer) {
	endpoint := d.node.s3.url()
	url, err := presign(endpoint, demoBucket, d.bucket[1].key)
	if err != nil {
		url = "(no URL: " + err.Error() + ")"
	}
	for _, note := range d.notes {
		fmt.Fprintln(w, note)
	}
	var nodes []string
	for _, n := range d.nodes {
		nodes = append(nodes, n.s3.url())
	}
	fmt.Fprint(w, strings.NewReplacer(
		"{NODES}", strings.Join(nodes, " "), "{ENDPOINT}", endpoint, "{ADMIN}", d.node.adminURL(), "{ORIGIN}", d.origin.url(), "{BUCKET}", demoBucket,
		"{KEY}", demoAccessKey, "{SECRET}", demoSecretKey, "{LARGE}", d.bucket[0].key, "{PRESIGNED}", url,
		"{ASHLAR}", os.Args[0],
	).Replace(`
S3 endpoint   {ENDPOINT}    (a gateway; 256 MiB of memory)
access key    {KEY}
secret key    {SECRET}
bucket        {BUCKET}: a 64 MiB object, a few hundred small ones, odd keys, an empty one
behind it     {NODES}    (nodes; 128 MiB each)
behind those  {ORIGIN}    (an S3 server inside this process, with the same key)
metrics       {ADMIN}/metrics

# aws-cli

export AWS_ACCESS_KEY_ID={KEY} AWS_SECRET_ACCESS_KEY={SECRET} AWS_DEFAULT_REGION=us-east-1
unset AWS_SESSION_TOKEN AWS_PROFILE
aws --endpoint-url {ENDPOINT} s3 ls s3://{BUCKET}/
aws --endpoint-url {ENDPOINT} s3 cp s3://{BUCKET}/{LARGE} - | wc -c

# boto3

python3 - <<'END'
import boto3
s3 = boto3.client("s3", endpoint_url="{ENDPOINT}", region_name="us-east-1",
                  aws_access_key_id="{KEY}", aws_secret_access_key="{SECRET}")
r = s3.get_object(Bucket="{BUCKET}", Key="{LARGE}", Range="bytes=1000000-1004095")
print(len(r["Body"].read()), "bytes, cache:", r["ResponseMetadata"]["HTTPHeaders"]["x-ashlar-cache"])
END

# curl: run it twice; the bytes come from the origin first, then from memory

curl -s -o /dev/null -w '%{http_code} %{size_download} bytes in %{time_total} s, cache: %header{x-ashlar-cache}\n' \
  '{PRESIGNED}'

Every byte verified, cold and warm, while a node dies and when one comes: {ASHLAR} demo --check
Ctrl-C ends the demo and leaves nothing behind.
`))
}
