package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
)

const configUsage = "read the configuration from `FILE` (TOML)"

func serveCommand() command {
	cmd := command{
		name:    "serve",
		usage:   "--config FILE",
		summary: "run a node: answer S3 clients, cache what they read",
		help: `Runs until SIGTERM or SIGINT. Then readiness fails, the listener closes, and responses under way finish, for
server.drain (30s) at most; a second signal ends the process at once.

config.example.toml names every key with its default and a reason. Keys outside of lists can be set by the
environment too, which wins over the file: ASHLAR_SERVER__LISTEN=127.0.0.1:9000, ASHLAR_BUCKETS__BLOCK_SIZE="4 MiB".

On SIGHUP the file is read again, with the files that it names. What changed of [[auth.keys]] and
auth.anonymous_buckets counts from the next request on, and so does a new certificate (which is noticed without a
signal too); no connection is dropped. Whatever else changed is named in the log and needs a restart. If anything is
wrong, that is logged and nothing changes.

An origin that can't be reached is a warning, not an error. Logs go to stderr; metrics and health to server.admin.
Exit code: 0 after a signal, 1 when something failed, 2 when the configuration can't be used.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		file := flags.String("config", "", configUsage)
		if err := cmd.parse(c, flags); err != nil {
			return ignoreHelp(err)
		}
		conf, err := configOf(cmd, *file, c.environ, nil)
		if err != nil {
			return err
		}
		ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer restore()
		hangup := make(chan os.Signal, 1) // signals during a reload make one more
		signal.Notify(hangup, syscall.SIGHUP)
		signal.Ignore(syscall.SIGPIPE) // a log collector that ends must not end the node
		defer signal.Stop(hangup)
		conf.limitHeap()
		log := newLogger(c.stderr, conf.Log)
		takeStandardLog(log)
		conf.warnings(os.DirFS("/"), log)
		return serve(ctx, restore, hangup, func() (*Config, error) { return configOf(cmd, *file, c.environ, nil) }, conf, log)
	}
	return cmd
}

// serve runs a node until ctx ends. draining is called when it does. At each hangup the configuration is loaded again.
func serve(ctx context.Context, draining func(), hangup <-chan os.Signal, load func() (*Config, error), c *Config,
	log *slog.Logger) error {
	n, err := startNode(ctx, c, log)
	if err != nil {
		return err
	}
	for running := true; running; {
		select {
		case <-hangup:
			n.reload(load)
		case <-ctx.Done():
			running = false
			log.Info("stopping: no new requests, responses under way finish", "drain", c.Server.Drain.String())
		case err = <-n.failed:
			running = false
			log.Error("a listener failed", "error", err)
		}
	}
	draining()
	n.stop()
	log.Info("stopped")
	return err
}

// configOf loads the file of --config. extra, if set, has a look at what came out before it is judged.
func configOf(cmd command, file string, environ []string, extra func(*Config, *sources)) (*Config, error) {
	if file == "" {
		return nil, badInput("%s needs --config FILE; config.example.toml is one to start from, and an empty file means the "+
			"defaults (ashlar %s --help)", cmd.name, cmd.name)
	}
	return loadFile(file, environ, extra)
}

// limitHeap tells the garbage collector how much the Go heap may have. Blocks are outside of it, and would not be
// missed by a collector that lets the heap double before it runs: with a small heap it would run all the time, with a
// large one the process would outgrow its budget, which is cache.memory plus a quarter plus 64 MiB. So the heap gets
// the budget less the blocks and less a margin for stacks, binary and the kernel's share, but always room for what
// cache.info_memory asks for, and the index of the disk, which is taken from the blocks. GOMEMLIMIT, when set, wins.
//
// Within that the heap may grow to five times what is alive before the collector runs: it is small beside the blocks, and
// where it comes to the limit the collector runs earlier. Not where info may take more than the budget has: the limit is
// beyond that then. GOGC, when set, wins.
func (c *Config) limitHeap() {
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(c.heapLimit())
	}
	if _, set := os.LookupEnv("GOGC"); !set && c.Cache.Memory/4 >= c.Cache.InfoMemory {
		debug.SetGCPercent(heapGrowth)
	}
}

const heapGrowth = 400 // percent of what is alive

func (c *Config) heapLimit() int64 {
	const margin = 16 * mib
	return int64(max(c.Cache.Memory/4, c.Cache.InfoMemory) + c.Cache.diskIndex() + 64*mib - margin)
}

func checkCommand() command {
	cmd := command{
		name:    "check",
		usage:   "--config FILE",
		summary: "say what is wrong with a configuration, or print it in full",
		help: `Reads FILE and the environment as serve does, and the files that they name, finds the credentials for the
origin, and prints the configuration in effect as TOML: defaults included, secrets not. Nothing is listened on, and
the origin is not asked. Everything that is wrong is told at once, with file, line, key, and the nearest valid key.
What serve would start with, and likely isn't meant, is a warning on stderr: no credentials for the origin, more
memory or connections than the machine or its limits (ulimit) allow, a disk tier larger than its file system, anonymous
writes from the network.

Exit code: 0 when the configuration can be used, 2 when not.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		file := flags.String("config", "", configUsage)
		if err := cmd.parse(c, flags); err != nil {
			return ignoreHelp(err)
		}
		log := newLogger(c.stderr, Log{Level: "warn"})
		whose := ""
		conf, err := configOf(cmd, *file, c.environ, func(conf *Config, s *sources) {
			whose = conf.findCredentials(ctx, s, log)
		})
		if err != nil {
			return err
		}
		conf.warnings(os.DirFS("/"), log)
		fmt.Fprintf(c.stdout, "# In effect: the defaults, %s, and the environment. Origin: %s.\n", *file, whose)
		return conf.writeTOML(c.stdout)
	}
	return cmd
}

// findCredentials asks for the credentials of the origin, where nothing else is wrong, and says whose they are. None is a
// warning: serve starts without them.
func (c *Config) findCredentials(ctx context.Context, s *sources, log *slog.Logger) string {
	if len(s.problems) > 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	o, err := newOrigin(ctx, c, "", nil, slog.New(slog.DiscardHandler))
	var noProfile config.SharedConfigProfileNotExistError
	switch {
	case errors.As(err, &noProfile):
		s.fail("origin.credentials.profile", "%v", noProfile)
		return ""
	case err != nil:
		s.fail("origin", "%v", err)
		return ""
	}
	defer o.Close()
	id, err := o.Resolve(ctx)
	if err != nil {
		log.Warn("no credentials for the origin; requests to it will fail until there are some: set AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY, a profile, or origin.credentials.source", "error", err)
		return "no credentials"
	}
	if id.AccessKey == "" {
		return "not signed"
	}
	return fmt.Sprintf("access key %s, from %s", id.AccessKey, id.Source)
}
