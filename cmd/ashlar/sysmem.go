package main

import (
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ashlar-s3/ashlar/blockstore/memory"
)

// warnings logs what is allowed, and likely not meant or not going to work on this machine. root is its file system.
func (c *Config) warnings(root fs.FS, log *slog.Logger) {
	c.warnOfMemory(root, log)
	c.warnOfLimits(root, log)
	c.warnOfDisk(log)
	if c.Auth.Mode == "anonymous" && c.Auth.AnonymousWrite && !loopback(c.Server.Listen) {
		log.Warn("auth.anonymous_write: everyone on the network can write and delete what the origin's credentials can",
			"server.listen", c.Server.Listen)
	}
}

// warnOfLimits warns of limits of the process (setrlimit) that are below what the configuration needs.
func (c *Config) warnOfLimits(root fs.FS, log *slog.Logger) {
	// A connection for each client, one to the origin for each request, those of operators, files and the runtime's.
	files := c.Server.Limits.MaxConnections + c.Server.Limits.MaxRequests + c.Cache.OriginConcurrency*4/3 + 64
	if limit, ok := processLimit(root, "Max open files"); ok && limit < int64(files) {
		log.Warn("this process can't have as many open files as there may be connections: raise \"ulimit -n\" (LimitNOFILE= "+
			"of systemd), or lower server.limits.max_connections", "limit", limit, "needs", files)
	}
	need := Size(memory.AddressSpace(int64(c.Cache.Memory), int64(c.largestBlock()))) + gib
	if limit, ok := processLimit(root, "Max address space"); ok && limit < int64(need) {
		log.Warn("this process can't have the address space that cache.memory takes, used or not: raise \"ulimit -v\" "+
			"(LimitAS= of systemd) or set cache.memory lower", "limit", Size(limit).String(), "needs", need.String())
	}
}

// processLimit returns a soft limit of this process by the name that /proc/self/limits has for it; not ok is none, or
// none that is known.
func processLimit(root fs.FS, name string) (n int64, ok bool) {
	text, err := fs.ReadFile(root, "proc/self/limits")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			soft, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, err = strconv.ParseInt(soft, 10, 64) // or "unlimited"
			return n, err == nil
		}
	}
	return 0, false
}

// warnOfMemory warns when the process may come to need more memory than it can have: it would be killed some day, at its
// busiest. root is the file system of the machine.
func (c *Config) warnOfMemory(root fs.FS, log *slog.Logger) {
	need := c.Cache.Memory + c.Cache.Memory/4 + 64*mib
	if limit, source := memoryLimit(root); limit > 0 && need > limit {
		log.Warn("cache.memory is more than this process can have: set it lower, or give the process more",
			"cache.memory", c.Cache.Memory.String(), "needs", need.String(), "limit", limit.String(), "limit_of", source)
	}
}

// warnOfDisk warns of a disk tier that is larger than its file system could ever hold. It works, and is smaller.
func (c *Config) warnOfDisk(log *slog.Logger) {
	d := &c.Cache.Disk
	if d.Path == "" {
		return
	}
	dir, err := filepath.Abs(d.Path)
	if err != nil {
		return
	}
	var s unix.Statfs_t
	for err = unix.Statfs(dir, &s); err == unix.ENOENT && dir != "/"; err = unix.Statfs(dir, &s) { // it is made at the start
		dir = filepath.Dir(dir)
	}
	if size := Size(s.Blocks) * Size(s.Bsize); err == nil && size > 0 && d.Capacity > max(0, size-d.Reserve) {
		log.Warn("the disk tier will be smaller than cache.disk.capacity: its file system has no room for that beside "+
			"cache.disk.reserve", "path", d.Path, "capacity", d.Capacity.String(), "reserve", d.Reserve.String(),
			"file_system", size.String())
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
