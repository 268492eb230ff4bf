// Command ashlar runs a read-through block cache for S3-compatible storage.
//
// A process holds nothing that its origin does not hold: it can be stopped at any time, and it stops without breaking a
// response that it has begun. What it is given to do is said completely before it starts, or refused with file, line
// and key. The parts of a process are put together in node.go, in one place, and taken apart there in reverse.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1 // something went wrong while running
	exitBadInput = 2 // the command line, the configuration, or a file that it names
)

// version is set by the linker (-X main.version=…) in builds from the Makefile; "" otherwise.
var version string

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// inputError is an error of the command line or the configuration.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// badInput makes an error that ends the process with exit code 2.
func badInput(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// call is one run of a command.
type call struct {
	args           []string
	environ        []string // as os.Environ gives it
	stdout, stderr io.Writer
}

// command is one word after "ashlar".
type command struct {
	name    string
	summary string // one line
	usage   string // what follows "ashlar NAME"
	help    string // the rest of --help, before the flags
	args    int    // how many arguments besides flags it takes at most
	run     func(ctx context.Context, c call, flags *flag.FlagSet) error
}

func commands() []command {
	return []command{serveCommand(), checkCommand(), purgeCommand(), ownersCommand(), warmCommand(), diskCommand(), demoCommand(), versionCommand()}
}

// run is the process: it returns the exit code. It ends when the command does, or when ctx does.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, call{args: args, environ: environ, stdout: stdout, stderr: stderr})
	if err == nil {
		return exitOK
	}
	var problems Problems
	if errors.As(err, &problems) { // many lines, each with its file
		fmt.Fprintln(stderr, problems.Error())
		return exitBadInput
	}
	fmt.Fprintln(stderr, "ashlar:", err)
	if errors.As(err, new(inputError)) {
		return exitBadInput
	}
	return exitFailed
}

// dispatch finds the command and runs it.
func dispatch(ctx context.Context, c call) error {
	if len(c.args) == 0 {
		fmt.Fprint(c.stderr, overview())
		return badInput("a command is missing")
	}
	name, rest := c.args[0], c.args[1:]
	switch name {
	case "--version", "-version":
		name = "version"
	case "help", "--help", "-help", "-h":
		if len(rest) == 0 {
			fmt.Fprint(c.stdout, overview())
			return nil
		}
		name, rest = rest[0], []string{"--help"}
	}
	all := commands()
	i := slices.IndexFunc(all, func(cmd command) bool { return cmd.name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].name
		}
		if near := nearest(name, names); near != "" {
			return badInput("unknown command %q; did you mean %q?", name, near)
		}
		return badInput("unknown command %q; the commands are %s", name, strings.Join(names, ", "))
	}
	c.args = rest
	return all[i].run(ctx, c, flag.NewFlagSet(name, flag.ContinueOnError))
}

func overview() string {
	var b strings.Builder
	b.WriteString("ashlar is a read-through block cache for S3-compatible storage. Clients change one setting,\n" +
		"the endpoint URL.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  ashlar %-48s %s\n", strings.TrimSpace(c.name+" "+c.usage), c.summary)
	}
	b.WriteString("\n\"ashlar COMMAND --help\" says more. To see it work: ashlar demo\n")
	return b.String()
}

// errHelp ends a command that was asked for its help only.
var errHelp = errors.New("help was asked for")

// parse reads the flags of a command that takes no arguments.
func (cmd command) parse(c call, flags *flag.FlagSet) error {
	_, err := cmd.parseArgs(c, flags)
	return err
}

// parseArgs reads the flags and arguments of a command, in any order. It returns errHelp after printing the help.
func (cmd command) parseArgs(c call, flags *flag.FlagSet) (args []string, err error) {
	flags.SetOutput(io.Discard)
	for rest := c.args; ; rest = rest[1:] {
		switch err := flags.Parse(rest); {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprintf(c.stdout, "Usage: ashlar %s\n\n%s\n", strings.TrimSpace(cmd.name+" "+cmd.usage), cmd.help)
			printFlags(c.stdout, flags)
			return nil, errHelp
		case err != nil:
			return nil, badInput("%s: %w%s (ashlar %s --help lists the flags)", cmd.name, err, meantFlag(err, flags), cmd.name)
		}
		if rest = flags.Args(); len(rest) == 0 {
			return args, nil
		}
		if len(args) == cmd.args {
			return nil, badInput("%s: unexpected argument %q (ashlar %s --help)", cmd.name, rest[0], cmd.name)
		}
		args = append(args, rest[0])
	}
}

// meantFlag suggests the flag that was probably meant by one that does not exist.
func meantFlag(err error, flags *flag.FlagSet) string {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return ""
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := nearest(name, names); near != "" {
		return "; did you mean --" + near + "?"
	}
	return ""
}

// printFlags lists the flags in the spelling that the rest of the help uses.
func printFlags(w io.Writer, flags *flag.FlagSet) {
	var lines [][2]string
	width := 0
	flags.VisitAll(func(f *flag.Flag) {
		arg, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			text += " (default " + f.DefValue + ")"
		}
		name := strings.TrimSpace("--" + f.Name + " " + arg)
		lines = append(lines, [2]string{name, text})
		width = max(width, len(name))
	})
	if len(lines) > 0 {
		fmt.Fprint(w, "\nFlags:\n")
	}
	for _, l := range lines {
		fmt.Fprintf(w, "  %-*s %s\n", width, l[0], l[1])
	}
}

// buildVersion names this build as precisely as it can.
func buildVersion() (v, revision string) {
	v = version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
		if v == "" {
			v = info.Main.Version // from the tag of the working tree, or "(devel)"
		}
	}
	if v == "" {
		v = "(unknown)"
	}
	return v, revision
}

func versionCommand() command {
	cmd := command{
		name:    "version",
		summary: "say which build this is",
		help:    "Prints version, revision, Go release and platform, on one line.",
	}
	cmd.run = func(_ context.Context, c call, flags *flag.FlagSet) error {
		if err := cmd.parse(c, flags); err != nil {
			return ignoreHelp(err)
		}
		v, revision := buildVersion()
		line := "ashlar " + v
		if revision != "" {
			line += " " + revision
		}
		fmt.Fprintf(c.stdout, "%s %s %s/%s\n", line, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	}
	return cmd
}

// ignoreHelp turns errHelp, which is a success, into nil.
func ignoreHelp(err error) error {
	if errors.Is(err, errHelp) {
		return nil
	}
	return err
}
