package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is a line about what the benchmark runs on: processors, their number, the kernel.
func machine() string {
	cpu := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel := ""
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		kernel = ", Linux " + unix.ByteSliceToString(u.Release[:])
	}
	return fmt.Sprintf("%d x %s%s", runtime.NumCPU(), cpu, kernel)
}

// versions asks what is installed for its version, and leaves out what does not say.
func (b *bench) versions(ctx context.Context) []string {
	versions := []string{"bench " + runtime.Version()}
	for _, c := range [][]string{
		{b.ashlar, "version"}, {find("nginx"), "-v"}, {find("varnishd"), "-V"},
	} {
		if c[0] == "" {
			continue
		}
		out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput()
		line, _, _ := bytes.Cut(out, []byte("\n"))
		if err == nil && len(line) > 0 {
			versions = append(versions, string(line))
		}
	}
	return versions
}

// withoutFiles leaves out the flags that name files: what is measured does not depend on them.
func withoutFiles(args []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if slices.Contains([]string{"ashlar", "out", "publish"}, name) {
			if !joined {
				i++
			}
			continue
		}
		kept = append(kept, args[i])
	}
	return kept
}
