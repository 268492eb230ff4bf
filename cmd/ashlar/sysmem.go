package main

import (
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"strings"
)

// warnOfMemory warns when the process may come to need more memory than it can have: it would be killed some day, at its
// busiest. root is the file system of the machine.
func (c *Config) warnOfMemory(root fs.FS, log *slog.Logger) {
	need := c.Cache.Memory + c.Cache.Memory/4 + 64*mib
	if limit, source := memoryLimit(root); limit > 0 && need > limit {
		log.Warn("cache.memory is more than this process can have: set it lower, or give the process more",
			"cache.memory", c.Cache.Memory.String(), "needs", need.String(), "limit", limit.String(), "limit_of", source)
	}
}

// memoryLimit returns the least of what bounds the memory of this process, and what that is: its control group (version
// 2 or 1) or one around it, or the machine. 0 where nothing is known, as outside of Linux.
func memoryLimit(root fs.FS) (limit Size, source string) {
	take := func(n Size, of string) {
		if n > 0 && (limit == 0 || n < limit) {
			limit, source = n, of
		}
	}
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
				n, _ := strconv.ParseInt(f[1], 10, 53)
				take(Size(n)*kib, "the machine")
			}
		}
	}
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit, source
	}
	// Lines are "0::/path" in version 2, "9:memory:/path" in version 1. Within a container the path may be that of the
	// host, or just "/", and the group's files at the root of the mount: that is the last of the folders looked at.
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if f[0] != "0" {
			if !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for group := path.Join("/", f[2]); ; group = path.Dir(group) {
			if text, err := fs.ReadFile(root, path.Join(mount, group, file)); err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is none
				if err == nil && n < 1<<60 {                                        // version 1 has a huge number for none
					take(Size(n), "the control group")
				}
			}
			if group == "/" {
				break
			}
		}
	}
	return limit, source
}
