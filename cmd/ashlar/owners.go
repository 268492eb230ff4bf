package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
)

// lookPatience bounds what owners asks of the cluster.
const lookPatience = 30 * time.Second

func ownersCommand() command {
	cmd := command{
		name:    "owners",
		usage:   "s3://BUCKET/KEY --config FILE",
		summary: "say which nodes of a cluster the parts of an object belong to",
		args:    1,
		help: `Prints each routing unit of the object (cluster.block_size), or of a range of it, with the nodes by rank: the
first one owns it, the next takes over when that one is full or down. FILE is a gateway's. With --range no node is
asked, and the object need not exist.

With --add and --remove it also says what share of the units would belong to another node, of the object's and of all:
each node that comes takes its share from all others, and one that leaves gives its share to all others.

Exit code: 0 when all could be found out, 1 when not, 2 when the command line or the configuration can't be used.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		file := flags.String("config", "", configUsage)
		span := flags.String("range", "", "only these bytes: `FIRST-LAST`")
		var add, remove []string
		flags.Func("add", "as if there were a node `ID` too; may be repeated", appendTo(&add))
		flags.Func("remove", "as if there were no node `ID`; may be repeated", appendTo(&remove))
		args, err := cmd.parseArgs(c, flags)
		if err != nil {
			return ignoreHelp(err)
		}
		if len(args) == 0 {
			return badInput("owners: of which object? (ashlar owners s3://BUCKET/KEY --config FILE)")
		}
		bucket, key, err := parseTarget(cmd, args[0])
		if err != nil {
			return err
		}
		if key == "" {
			return badInput("owners: %q names no object", args[0])
		}
		ctx, cancel := context.WithTimeout(ctx, lookPatience)
		defer cancel()
		r, err := parseSpan(*span)
		if err != nil {
			return err
		}
		t, err := openTools(ctx, cmd, *file, c.environ)
		if err != nil {
			return err
		}
		defer t.close()
		if *span == "" {
			info, err := t.cluster.Origin(bucket).Head(ctx, origin.Object{Bucket: bucket, Key: key}, origin.HeadOptions{})
			if err != nil {
				return fmt.Errorf("owners: %s: %w; with --range the object need not be looked at", args[0], err)
			}
			r.Length = info.Size
		}
		return t.printOwners(c.stdout, bucket, key, r, add, remove)
	}
	return cmd
}

func appendTo(list *[]string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("a node's ID is never empty")
		}
		*list = append(*list, s)
		return nil
	}
}

// parseTarget takes s3://BUCKET/NAME apart.
func parseTarget(cmd command, target string) (bucket, name string, err error) {
	rest, ok := strings.CutPrefix(target, "s3://")
	bucket, name, _ = strings.Cut(rest, "/")
	if !ok || bucket == "" || strings.ContainsAny(bucket, "*?") {
		return "", "", badInput("%s: %q is not %s", cmd.name, target, strings.Fields(cmd.usage)[0])
	}
	return bucket, name, nil
}

// parseSpan reads FIRST-LAST; "" is the zero range.
func parseSpan(s string) (r client.Range, err error) {
	if s == "" {
		return r, nil
	}
	from, to, _ := strings.Cut(s, "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	if err1 != nil || err2 != nil || first < 0 || last < first || last == 1<<63-1 {
		return r, badInput("owners: --range: %q is not FIRST-LAST, such as 0-1048575", s)
	}
	return client.Range{Offset: first, Length: last - first + 1}, nil
}

// tools are what commands for a cluster need of a gateway's configuration.
type tools struct {
	config  *Config
	origin  *watchedOrigin
	cluster *client.Client
}

// openTools loads a gateway's configuration. It asks for the nodes, and no node for anything.
func openTools(ctx context.Context, cmd command, file string, environ []string) (*tools, error) {
	conf, err := configOf(cmd, file, environ, nil)
	if err != nil {
		return nil, err
	}
	if !conf.gateway() {
		return nil, badInput("%s: %s has no nodes in [cluster]; give the configuration of a gateway", cmd.name, file)
	}
	t := &tools{config: conf}
	quiet := slog.New(slog.DiscardHandler)
	if t.origin, err = newOrigin(ctx, conf, "", nil, quiet); err != nil {
		return nil, err
	}
	config, err := conf.clientConfig("", t.origin, nil, quiet)
	if err == nil {
		t.cluster, err = client.New(ctx, config)
	}
	if err != nil {
		t.origin.Close()
		return nil, err
	}
	if t.cluster.Snapshot().Len() == 0 {
		t.close()
		return nil, fmt.Errorf("%s: DNS names no nodes: look at cluster.dns or cluster.srv, and at the name servers of this "+
			"machine", cmd.name)
	}
	return t, nil
}

func (t *tools) close() {
	t.cluster.Close()
	t.origin.Close()
}

// printOwners prints the routing units of a range, and what would move.
func (t *tools) printOwners(out io.Writer, bucket, key string, r client.Range, add, remove []string) error {
	s := t.cluster.Snapshot()
	fmt.Fprintf(out, "%d nodes, snapshot %s, routing units of %v\n", s.Len(), s.Digest(), t.config.Cluster.BlockSize)
	var units []client.Placement
	if r.Length > 0 {
		var err error
		if units, err = t.cluster.Owners(bucket, key, r); err != nil {
			return badInput("owners: %w", err)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nunit\tbytes\towner\tthen\n")
	for _, u := range units {
		var then []string
		for _, n := range u.Nodes[1:] {
			then = append(then, n.ID)
		}
		fmt.Fprintf(w, "%d\t%d-%d\t%s\t%s\n", u.Index, u.Offset, u.Offset+u.Length-1, u.Nodes[0].ID, strings.Join(then, " "))
	}
	_ = w.Flush()
	if len(add)+len(remove) == 0 {
		return nil
	}
	other, err := changed(s, add, remove)
	if err != nil {
		return err
	}
	var mine, all []cluster.Unit
	for _, u := range units {
		mine = append(mine, cluster.KeyOf(bucket, key).Unit(u.Index))
	}
	for i := range int64(sampleUnits) {
		all = append(all, cluster.KeyOf("", "").Unit(i))
	}
	fmt.Fprintf(out, "\nwith %d nodes, snapshot %s, another node would own\n", other.Len(), other.Digest())
	for _, part := range []struct {
		name  string
		units []cluster.Unit
	}{{"of these units", mine}, {"of all units", all}} {
		n := moved(s, other, part.units)
		fmt.Fprintf(out, "%6.2f%%  %s\n", 100*float64(n)/float64(max(len(part.units), 1)), part.name)
	}
	return nil
}

// sampleUnits is how many units stand for all.
const sampleUnits = 200_000

// changed returns the nodes of s with some more and less others. Those that are added have the weight of most nodes.
func changed(s *cluster.Snapshot, add, remove []string) (*cluster.Snapshot, error) {
	nodes := s.Nodes()
	for _, id := range remove {
		left := slices.DeleteFunc(slices.Clone(nodes), func(n cluster.Node) bool { return n.ID == id })
		if len(left) == len(nodes) {
			return nil, badInput("owners: --remove: there is no node %q; there are %s", id, ids(nodes))
		}
		nodes = left
	}
	for _, id := range add {
		if slices.ContainsFunc(nodes, func(n cluster.Node) bool { return n.ID == id }) {
			return nil, badInput("owners: --add: there is a node %q", id)
		}
		nodes = append(nodes, cluster.Node{ID: id, Weight: usualWeight(s)})
	}
	if len(nodes) == 0 {
		return nil, badInput("owners: --remove: no node would be left")
	}
	return cluster.NewSnapshot(nodes)
}

func ids(nodes []cluster.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.ID)
	}
	return strings.Join(list, ", ")
}

// usualWeight returns the weight that most nodes have.
func usualWeight(s *cluster.Snapshot) int {
	count, best := map[int]int{}, 1
	for _, n := range s.Nodes() {
		if count[n.Weight]++; count[n.Weight] > count[best] {
			best = n.Weight
		}
	}
	return best
}

// moved counts the units that have another owner in b than in a.
func moved(a, b *cluster.Snapshot, units []cluster.Unit) (n int) {
	for _, u := range units {
		if a.Node(a.Owner(u)).ID != b.Node(b.Owner(u)).ID {
			n++
		}
	}
	return n
}
