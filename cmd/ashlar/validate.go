package main

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/disk"
)

// Bounds of values, in one place; config.example.toml names them.
const (
	minBlock, maxBlock = 64 * kib, 16 * mib
	maxRegion          = 1 * gib
	maxWindow          = 1024
	minInfoMemory      = 1 * mib
	maxConcurrency     = 16384
	maxAttempts        = 100
	maxStale           = Duration(30 * 24 * time.Hour)
	maxClients         = 1 << 20 // connections, requests
	minHeader          = 8 * kib // what S3 takes
	maxHeader          = 1 * mib
	maxRate            = 1 * gib
	minTimeout         = Duration(100 * time.Millisecond) // of clients
	maxTimeout         = Duration(24 * time.Hour)
)

const badPattern = "%q matches no bucket name; patterns are letters, digits, '.', '-', '_', and * and ?"

// validate notes everything in c that can't be meant. It looks at values only: no file is read, no name resolved.
func (c *Config) validate(s *sources) {
	c.Server.validate(s)
	s.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	s.oneOf("log.format", c.Log.Format, "text", "json")
	c.Origin.validate(s)
	c.Auth.validate(s, c.Server.Listen)
	c.validateCache(s)
	c.Buckets.validate(s, "buckets")
	for i := range c.Bucket {
		c.Bucket[i].validate(s, element("bucket", i))
		for j := range i {
			if c.Bucket[j].Name == c.Bucket[i].Name {
				s.fail(join(element("bucket", i), "name"), "%q was given before; the first rule that matches decides, so this one "+
					"would never be used", c.Bucket[i].Name)
				break
			}
		}
	}
	c.Cluster.validate(s)
	if sameAddress(c.Origin.Endpoint, c.Server.Listen) {
		s.clash(paths{"origin.endpoint", "server.listen"},
			"the origin is the listen address itself: requests would go round "+
				"in circles; origin.endpoint must name the storage behind this process")
	}
}

func (sv *Server) validate(s *sources) {
	s.address("server.listen", sv.Listen)
	if sv.Admin != "" {
		s.address("server.admin", sv.Admin)
		if sameListen(sv.Listen, sv.Admin) {
			s.clash(paths{"server.admin", "server.listen"},
				"server.listen and server.admin are the same address, %s; the admin "+
					"listener needs its own port", sv.Admin)
		}
	}
	for _, d := range sv.Domains {
		if !validHost(d) {
			s.clash(paths{"server.domains"},
				"%q is not a domain; write it as \"s3.example.com\", without scheme, port or leading dot", d)
		}
	}
	if (sv.TLS.Cert == "") != (sv.TLS.Key == "") {
		missing, given := "key", "cert"
		if sv.TLS.Cert == "" {
			missing, given = given, missing
		}
		s.clash(paths{"server.tls." + given, "server.tls." + missing},
			"tls needs both files, and tls.%s is missing", missing)
	}
	if sv.TLS.ClientCA != "" && sv.TLS.Cert == "" && sv.TLS.Key == "" {
		s.clash(paths{"server.tls.client_ca"}, "has no use without tls.cert and tls.key: clients show certificates over TLS")
	}
	s.between("server.drain", sv.Drain, 0, maxTimeout)
	sv.Limits.validate(s)
}

func (l *Limits) validate(s *sources) {
	const at = "server.limits."
	s.within(at+"max_connections", l.MaxConnections, 1, maxClients)
	s.within(at+"max_requests", l.MaxRequests, 1, maxClients)
	s.within(at+"max_header_count", l.MaxHeaderCount, 20, maxConcurrency)
	for _, k := range []struct {
		name         string
		size, lo, hi Size
	}{{"max_header", l.MaxHeader, minHeader, maxHeader}, {"min_rate", l.MinRate, 1, maxRate}} {
		if k.size < k.lo || k.size > k.hi {
			s.fail(at+k.name, "%v is out of range; it must be from %v to %v", k.size, k.lo, k.hi)
		}
	}
	s.between(at+"read_header_timeout", l.ReadHeaderTimeout, minTimeout, maxTimeout)
	s.between(at+"idle_timeout", l.IdleTimeout, minTimeout, maxTimeout)
}

func (o *Origin) validate(s *sources) {
	if o.Endpoint != "" {
		switch u, err := url.Parse(o.Endpoint); {
		case err != nil: // url's own error repeats the text, which may hold a password
			s.fail("origin.endpoint", "not a URL; write it as \"https://s3.example.com\"")
		case u.User != nil:
			s.fail("origin.endpoint", "must not contain a user or a password; they go into origin.credentials")
		case u.Scheme != "http" && u.Scheme != "https":
			s.fail("origin.endpoint", "%q must begin with http:// or https://", o.Endpoint)
		case u.Hostname() == "" || !validPort(u.Port()):
			s.fail("origin.endpoint", "%q has no usable host and port", o.Endpoint)
		case u.RawQuery != "" || u.Fragment != "":
			s.fail("origin.endpoint", "must end before the ? or #")
		case u.Path != "" && u.Path != "/":
			s.fail("origin.endpoint", "must end after the host, without %q: clients name the bucket themselves; write it as %q",
				u.Path, u.Scheme+"://"+u.Host)
		case u.Scheme == "http" && o.CA != "":
			s.clash(paths{"origin.ca", "origin.endpoint"},
				"origin.ca has no use with an endpoint that begins with http://")
		}
	}
	if o.Region == "" || strings.ContainsAny(o.Region, " /\t\r\n") {
		s.fail("origin.region", "%q is not a region; servers other than AWS mostly take \"us-east-1\"", o.Region)
	}
	o.Credentials.validate(s, "origin.credentials.")
}

func (c *Credentials) validate(s *sources, at string) {
	s.oneOf(at+"source", c.Source, "default", "static", "anonymous")
	s.oneSecret(at, c.SecretKey, c.SecretKeyFile)
	switch c.Source {
	case "static":
		if c.AccessKey == "" {
			s.clash(paths{at + "access_key", at + "source"},
				"source = \"static\" needs an access_key")
		}
		if c.SecretKey == "" && c.SecretKeyFile == "" {
			s.clash(paths{at + "secret_key", at + "source"},
				"source = \"static\" needs a secret_key or a secret_key_file")
		}
		if c.Profile != "" {
			s.clash(paths{at + "profile", at + "source"},
				"a profile has no use with source = \"static\"")
		}
	case "default", "anonymous":
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"access_key", c.AccessKey != ""},
			{"secret_key", c.SecretKey != ""},
			{"secret_key_file", c.SecretKeyFile != ""},
			{"session_token", c.SessionToken != ""},
			{"profile", c.Profile != "" && c.Source == "anonymous"},
		} {
			if f.set {
				s.clash(paths{at + f.name, at + "source"},
					"%s would not be used with source = %q; set source = %q", f.name, c.Source,
					map[bool]string{true: "default", false: "static"}[f.name == "profile"])
			}
		}
	}
}

func (a *Auth) validate(s *sources, listen string) {
	s.oneOf("auth.mode", a.Mode, "anonymous", "static")
	switch a.Mode {
	case "anonymous":
		if len(a.Keys) > 0 {
			s.clash(paths{"auth.keys", "auth.mode"},
				"keys would not be checked with auth.mode = \"anonymous\"; set auth.mode = "+
					"\"static\" or remove the keys")
		}
		if len(a.AnonymousBuckets) > 0 {
			s.clash(paths{"auth.anonymous_buckets", "auth.mode"},
				"has no use with auth.mode = \"anonymous\": everyone may read every bucket; set auth.mode = \"static\"")
		}
		if !a.AllowAnonymousNetwork && !loopback(listen) {
			s.clash(paths{"server.listen", "auth.mode", "auth.allow_anonymous_network"},
				"%s can be reached from the network, and "+
					"anonymous clients would read everything that the origin's credentials can; set auth.mode = \"static\" with "+
					"[[auth.keys]], or say auth.allow_anonymous_network = true", listen)
		}
	case "static":
		if len(a.Keys) == 0 {
			s.clash(paths{"auth.mode", "auth.keys"},
				"auth.mode = \"static\" needs at least one [[auth.keys]], or nobody gets in")
		}
		if a.AllowAnonymousNetwork {
			s.clash(paths{"auth.allow_anonymous_network", "auth.mode"},
				"has no use with auth.mode = \"static\": every request needs a key")
		}
		if a.AnonymousWrite {
			s.clash(paths{"auth.anonymous_write", "auth.mode"},
				"has no use with auth.mode = \"static\": every request needs a key")
		}
	}
	for _, b := range a.AnonymousBuckets {
		if !validPattern(b) {
			s.clash(paths{"auth.anonymous_buckets"}, badPattern, b)
		}
	}
	seen := make(map[string]bool)
	for i := range a.Keys {
		k, at := &a.Keys[i], element("auth.keys", i)+"."
		switch {
		case k.AccessKey == "":
			s.fail(at+"access_key", "missing")
		case strings.ContainsAny(k.AccessKey, "/, \t\r\n"):
			s.fail(at+"access_key", "must not contain spaces, commas or slashes: it could not be told apart in a signature")
		case seen[k.AccessKey]:
			s.fail(at+"access_key", "%q was given before", k.AccessKey)
		}
		seen[k.AccessKey] = true
		if k.SecretKey == "" && k.SecretKeyFile == "" {
			s.fail(at+"secret_key", "missing; give a secret_key or a secret_key_file")
		}
		s.oneSecret(at, k.SecretKey, k.SecretKeyFile)
		if len(k.Buckets) == 0 {
			s.fail(at+"buckets", "an empty list matches no bucket; leave it out for all of them")
		}
		for _, b := range k.Buckets {
			if !validPattern(b) {
				s.clash(paths{at + "buckets"}, badPattern, b)
			}
		}
		if !(k.Read || k.Write || k.List || k.Delete || k.Admin) {
			s.fail(element("auth.keys", i), "the key of %q has no right at all; give it one or remove it", k.AccessKey)
		}
	}
}

func (b *Buckets) validate(s *sources, at string) {
	// What a [[bucket]] took over from [buckets] has been judged there.
	own := func(name string) bool { return at == "buckets" || s.set(at+"."+name) }
	if own("block_size") && (b.BlockSize < minBlock || b.BlockSize > maxBlock || b.BlockSize&(b.BlockSize-1) != 0) {
		s.fail(at+".block_size", "%v is not a power of two from %v to %v", b.BlockSize, minBlock, maxBlock)
	}
	if own("fetch_window") {
		s.within(at+".fetch_window", b.FetchWindow, 1, maxWindow)
	}
	if own("read_window") {
		s.within(at+".read_window", b.ReadWindow, 1, maxWindow)
	}
	if own("consistency.mode") {
		s.oneOf(at+".consistency.mode", b.Consistency.Mode, "etag", "immutable")
	}
	if own("readahead") {
		s.within(at+".readahead", b.Readahead, 0, maxWindow)
	}
	if own("fetch.attempts") {
		s.within(at+".fetch.attempts", b.Fetch.Attempts, 1, maxAttempts)
	}
	for _, d := range []struct {
		key    string
		value  Duration
		lo, hi Duration
	}{
		{"stale_if_error", b.StaleIfError, 0, maxStale},
		{"negative_ttl", b.NegativeTTL, 0, maxTimeout},
		{"fetch.backoff", b.Fetch.Backoff, Duration(time.Millisecond), maxTimeout},
		{"fetch.backoff_max", b.Fetch.BackoffMax, Duration(time.Millisecond), maxTimeout},
		{"fetch.first_byte", b.Fetch.FirstByte, Duration(time.Millisecond), maxTimeout},
		{"fetch.attempt", b.Fetch.Attempt, Duration(time.Millisecond), maxTimeout},
		{"fetch.deadline", b.Fetch.Deadline, Duration(time.Millisecond), maxTimeout},
		{"fetch.hedge.min", b.Fetch.Hedge.Min, Duration(time.Millisecond), maxTimeout},
		{"fetch.hedge.max", b.Fetch.Hedge.Max, Duration(time.Millisecond), maxTimeout},
	} {
		if own(d.key) {
			s.between(at+"."+d.key, d.value, d.lo, d.hi)
		}
	}
	if own("fetch.hedge.factor") {
		b.Fetch.Hedge.validateFactor(s, at+".fetch.hedge")
	}
	for _, pair := range []struct {
		less, more string
		a, b       Duration
		bound      string
	}{
		{"fetch.first_byte", "fetch.attempt", b.Fetch.FirstByte, b.Fetch.Attempt, "which bounds the whole request"},
		{"fetch.attempt", "fetch.deadline", b.Fetch.Attempt, b.Fetch.Deadline, "which bounds all attempts together"},
		{"fetch.backoff", "fetch.backoff_max", b.Fetch.Backoff, b.Fetch.BackoffMax, "which bounds it"},
		{"fetch.hedge.min", "fetch.hedge.max", b.Fetch.Hedge.Min, b.Fetch.Hedge.Max, "which bounds it"},
	} {
		if (own(pair.less) || own(pair.more)) && pair.a > pair.b {
			s.clash(paths{at + "." + pair.less, at + "." + pair.more}, "%s, %v, is longer than %s, %v, %s", pair.less, pair.a,
				pair.more, pair.b, pair.bound)
		}
	}
}

func (h *Hedge) validateFactor(s *sources, at string) {
	if h.Factor != 0 && !(h.Factor >= 1 && h.Factor <= 1000) {
		s.fail(at+".factor", "%v is out of range; it must be from 1 to 1000, or 0 for no second requests", h.Factor)
	}
}

// validate judges a rule that takes over nothing from another.
func (h *Hedge) validate(s *sources, at string) {
	h.validateFactor(s, at)
	s.between(at+".min", h.Min, Duration(time.Millisecond), maxTimeout)
	s.between(at+".max", h.Max, Duration(time.Millisecond), maxTimeout)
	if h.Min > h.Max {
		s.clash(paths{at + ".min", at + ".max"}, "%s.min, %v, is longer than %s.max, %v, which bounds it", at, h.Min, at, h.Max)
	}
}

// validateCache refuses a memory that could not hold what the largest block size in use needs to make progress.
func (c *Config) validateCache(s *sources) {
	s.within("cache.origin_concurrency", c.Cache.OriginConcurrency, 1, maxConcurrency)
	s.within("cache.readahead_concurrency", c.Cache.ReadaheadConcurrency, 1, maxConcurrency)
	s.within("cache.hedge_concurrency", c.Cache.HedgeConcurrency, 1, maxConcurrency)
	if c.Cache.InfoMemory < minInfoMemory {
		s.fail("cache.info_memory", "%v is too little; it must be at least %v", c.Cache.InfoMemory, minInfoMemory)
	}
	largest, at := c.Buckets.BlockSize, "buckets.block_size"
	for i := range c.Bucket {
		if b := c.Bucket[i].BlockSize; b > largest {
			largest, at = b, element("bucket", i)+".block_size"
		}
	}
	if least := c.Cache.leastMemory(largest); largest <= maxBlock && c.Cache.Memory < least {
		s.clash(paths{"cache.memory", at},
			"%v is too little for blocks of %v; set cache.memory to %v or more, or a smaller %s",
			c.Cache.Memory, largest, least, plain(at))
	}
	c.Cache.Disk.validate(s, largest)
}

func (d *Disk) validate(s *sources, largest Size) {
	const at = "cache.disk."
	s.oneOf(at+"recover", d.Recover, string(disk.RecoverQuiet), string(disk.RecoverNone), string(disk.RecoverStrict))
	if d.Path == "" {
		if d.Capacity != 0 {
			s.clash(paths{at + "capacity", at + "path"}, "has no use without cache.disk.path")
		}
		return
	}
	least := (Size(disk.MinRegion(int64(largest))) + mib - 1) / mib * mib
	if d.RegionSize < least || d.RegionSize > maxRegion {
		s.fail(at+"region_size", "%v is out of range; with blocks of %v it must be from %v to %v", d.RegionSize, largest,
			least, maxRegion)
		return
	}
	if d.RegionSize%(4*kib) != 0 {
		s.fail(at+"region_size", "%v is not a multiple of 4 KiB", d.RegionSize)
		return
	}
	switch least := Size(disk.MinCapacity(int64(d.RegionSize))); {
	case d.Capacity == 0:
		s.clash(paths{at + "path", at + "capacity"}, "needs cache.disk.capacity: how much of the disk may be used")
	case d.Capacity < least:
		s.clash(paths{at + "capacity", at + "region_size"}, "%v is too little for regions of %v; it must be at least %v",
			d.Capacity, d.RegionSize, least)
	}
}

func (b *Bucket) validate(s *sources, at string) {
	if b.Name == "" {
		s.fail(at+".name", "missing; it is the bucket, or a pattern such as \"models-*\"")
	} else if !validPattern(b.Name) {
		s.fail(at+".name", badPattern, b.Name)
	}
	b.Buckets.validate(s, at)
}

// oneSecret refuses a secret that is given twice.
func (s *sources) oneSecret(at string, secret Secret, file string) {
	if secret != "" && file != "" {
		s.clash(paths{at + "secret_key_file", at + "secret_key"},
			"secret_key and secret_key_file are both set; keep one")
	}
}

// oneOf refuses a word that is not in the list.
func (s *sources) oneOf(path, word string, list ...string) {
	if slices.Contains(list, word) {
		return
	}
	text := fmt.Sprintf("%q is not one of %q", word, list)
	if near := nearest(word, list); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	s.fail(path, "%s", text)
}

func (s *sources) within(path string, n, lo, hi int) {
	if n < lo || n > hi {
		s.fail(path, "%d is out of range; it must be from %d to %d", n, lo, hi)
	}
}

func (s *sources) between(path string, d, lo, hi Duration) {
	if d < lo || d > hi {
		s.fail(path, "%v is out of range; it must be from %v to %v", d, lo, hi)
	}
}

// address refuses what can't be listened on.
func (s *sources) address(path, addr string) {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		s.fail(path, "%q is not host:port; write it as \"127.0.0.1:9000\", \"[::1]:9000\" or \":9000\" for all "+
			"interfaces", addr)
	case port == "" || !validPort(port):
		s.fail(path, "%q needs a port from 0 to 65535", addr)
	case host != "" && net.ParseIP(strings.Split(host, "%")[0]) == nil && !validHost(host):
		s.fail(path, "%q is neither an IP address nor a host name", host)
	}
}

// validPort says whether port, from a URL or an address, is none or a number that can be one.
func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// validHost says whether s is a host name by RFC 1123 section 2.1.
func validHost(s string) bool {
	if len(s) > 253 {
		return false
	}
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i] | 0x20
			if !(c >= 'a' && c <= 'z' || label[i] >= '0' && label[i] <= '9' || label[i] == '-') {
				return false
			}
		}
	}
	return true
}

// loopback says whether an address to listen on can be reached from this machine alone. Names other than localhost are
// taken for reachable from elsewhere, whatever they resolve to today.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// sameListen says whether two addresses can't be listened on both.
func sameListen(a, b string) bool {
	ah, ap, aerr := net.SplitHostPort(a)
	bh, bp, berr := net.SplitHostPort(b)
	if aerr != nil || berr != nil || ap != bp || ap == "0" {
		return false
	}
	return ah == bh || wild(ah) || wild(bh)
}

// wild says whether a host to listen on means all interfaces.
func wild(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// sameAddress says whether a URL certainly leads to an address that is listened on here.
func sameAddress(endpoint, listen string) bool {
	u, err := url.Parse(endpoint)
	host, port, err2 := net.SplitHostPort(listen)
	if err != nil || err2 != nil || endpoint == "" || port == "0" {
		return false
	}
	p := u.Port()
	if p == "" {
		p = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if p != port {
		return false
	}
	there := loopback(net.JoinHostPort(u.Hostname(), "0"))
	localhost := strings.EqualFold(host, "localhost") || strings.EqualFold(u.Hostname(), "localhost")
	return u.Hostname() == host || there && wild(host) || there && loopback(listen) && localhost
}
