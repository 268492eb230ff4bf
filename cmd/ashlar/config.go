package main

import "time"

// Config is everything that can be set, as the file spells it. Keys are in the toml tags; fields of type Size,
// Duration, Secret, string, bool and int are scalars and can come from the environment too. A value is valid only if
// it came out of loadFile.
//
// Precedence, low to high: defaults, the file, the environment. Each [[bucket]] starts as a copy of [buckets] as it is
// after the environment, and its own keys override that.
type Config struct {
	Server  Server  `toml:"server"`
	Log     Log     `toml:"log"`
	Origin  Origin  `toml:"origin"`
	Auth    Auth    `toml:"auth"`
	Cache   Cache   `toml:"cache"`
	Buckets Buckets `toml:"buckets"`
	// Bucket are the rules. The first whose name matches a bucket decides for it, alone; [buckets] for the rest.
	Bucket  []Bucket `toml:"bucket"`
	Cluster Cluster  `toml:"cluster"`
}

// Server is what clients and operators connect to.
type Server struct {
	Listen    string   `toml:"listen"`     // host:port of the S3 listener; port 0 takes a free one
	Admin     string   `toml:"admin"`      // host:port of metrics and health, pprof too on loopback; "" for none
	Domains   []string `toml:"domains"`    // host suffixes of virtual-hosted addressing, without a leading dot
	TLS       TLS      `toml:"tls,inline"` // of the S3 listener; both "" for plain HTTP
	AccessLog bool     `toml:"access_log"` // one log line for each request
	Drain     Duration `toml:"drain"`      // how long shutdown waits for responses under way
	Limits    Limits   `toml:"limits"`
}

// TLS names PEM files: the pair that the S3 listener presents, and whom it lets in.
type TLS struct {
	Cert     string `toml:"cert"` // certificate chain, leaf first
	Key      string `toml:"key"`
	ClientCA string `toml:"client_ca"` // authorities of which clients must have a certificate; "" asks for none
}

// Limits keep one client, or too many of them, from using up what all of them share. Those of connections hold for both
// listeners, each by itself.
type Limits struct {
	MaxConnections    int      `toml:"max_connections"`
	MaxRequests       int      `toml:"max_requests"`        // being served at once, health checks aside
	MaxHeader         Size     `toml:"max_header"`          // request line and header; net/http lets 8 KiB more pass
	MaxHeaderCount    int      `toml:"max_header_count"`    // lines
	ReadHeaderTimeout Duration `toml:"read_header_timeout"` // and for the TLS handshake
	IdleTimeout       Duration `toml:"idle_timeout"`        // between requests
	MinRate           Size     `toml:"min_rate"`            // per second, of bodies in either direction
}

// Log is the daemon's own log, on stderr.
type Log struct {
	Level  string `toml:"level"`  // debug, info, warn, error
	Format string `toml:"format"` // text, json
}

// Origin is the storage that is cached.
type Origin struct {
	Endpoint      string      `toml:"endpoint"` // http(s)://host[:port]; "" is AWS in this region
	Region        string      `toml:"region"`
	VirtualHosted bool        `toml:"virtual_hosted"` // bucket in the host name, not in the path
	CA            string      `toml:"ca"`             // PEM file of authorities to trust; "" is the system's
	Credentials   Credentials `toml:"credentials,inline"`
}

// Credentials are what requests to the origin are signed with.
type Credentials struct {
	Source        string `toml:"source"` // default (the chain of the AWS SDK), static, anonymous
	AccessKey     string `toml:"access_key"`
	SecretKey     Secret `toml:"secret_key"`
	SecretKeyFile string `toml:"secret_key_file"` // file whose contents, less white space around them, are the secret
	SessionToken  Secret `toml:"session_token"`
	Profile       string `toml:"profile"` // of the AWS configuration files; only with source = "default"

	// Secret is SecretKey, or what SecretKeyFile holds; set by resolve.
	Secret Secret `toml:"-"`
}

// Auth says who may ask, and what.
type Auth struct {
	Mode                  string    `toml:"mode"`                    // anonymous, static
	AllowAnonymousNetwork bool      `toml:"allow_anonymous_network"` // anonymous beyond loopback
	AnonymousWrite        bool      `toml:"anonymous_write"`         // anonymous clients may write and delete
	AnonymousBuckets      []string  `toml:"anonymous_buckets"`       // patterns of buckets that need no key to be read
	Keys                  []AuthKey `toml:"keys"`
}

// AuthKey is one key pair and its rights.
type AuthKey struct {
	AccessKey     string   `toml:"access_key"`
	SecretKey     Secret   `toml:"secret_key"`
	SecretKeyFile string   `toml:"secret_key_file"`
	Buckets       []string `toml:"buckets"` // patterns with * and ?
	Prefix        string   `toml:"prefix"`  // of the keys that the rights reach; "" is all
	Read          bool     `toml:"read"`
	Write         bool     `toml:"write"`
	List          bool     `toml:"list"`
	Delete        bool     `toml:"delete"`
	Admin         bool     `toml:"admin"`   // every operation that the other rights don't name
	Cluster       bool     `toml:"cluster"` // messages between processes of a cluster count
	Tune          bool     `toml:"tune"`    // X-Ashlar-Fetch counts

	// Secret is SecretKey, or what SecretKeyFile holds; set by resolve.
	Secret Secret `toml:"-"`
}

// Cache is what the process may use.
type Cache struct {
	Memory               Size `toml:"memory"`                // of blocks, off the Go heap
	InfoMemory           Size `toml:"info_memory"`           // of what is known of objects
	OriginConcurrency    int  `toml:"origin_concurrency"`    // origin requests for what is wanted now of one bucket
	ReadaheadConcurrency int  `toml:"readahead_concurrency"` // for what may be wanted soon
	HedgeConcurrency     int  `toml:"hedge_concurrency"`     // second ones
	Disk                 Disk `toml:"disk"`
}

// Disk is where blocks live that memory has no room for, and that outlive the process.
type Disk struct {
	Path       string `toml:"path"`        // directory; "" for none
	Capacity   Size   `toml:"capacity"`    // of all files in it
	RegionSize Size   `toml:"region_size"` // of one file
	DirectIO   bool   `toml:"direct_io"`   // past the page cache
	Recover    string `toml:"recover"`     // quiet, none, strict
	Reserve    Size   `toml:"reserve"`     // what is left free of the file system
}

// Buckets is how objects are cached.
type Buckets struct {
	BlockSize    Size        `toml:"block_size"`   // a power of two, 64 KiB to 16 MiB
	FetchWindow  int         `toml:"fetch_window"` // blocks per origin request at most
	ReadWindow   int         `toml:"read_window"`  // blocks in flight per read at most
	Readahead    int         `toml:"readahead"`    // blocks beyond that which a sequential reader has in flight at most
	PopulateMax  Size        `toml:"populate_max"` // of a written object that is kept in memory at once
	Consistency  Consistency `toml:"consistency,inline"`
	StaleIfError Duration    `toml:"stale_if_error"` // beyond ttl, while the origin is in trouble
	NegativeTTL  Duration    `toml:"negative_ttl"`   // how long a 404 is remembered; 0 is not at all
	Fetch        Fetch       `toml:"fetch"`
}

// Consistency says when the origin is asked whether an object is still the same.
type Consistency struct {
	Mode string   `toml:"mode"` // etag, immutable
	TTL  Duration `toml:"ttl"`
}

// Fetch says how the origin is asked for one thing.
type Fetch struct {
	Attempts   int      `toml:"attempts"` // requests at most
	Backoff    Duration `toml:"backoff"`  // between the first two, doubled from then on
	BackoffMax Duration `toml:"backoff_max"`
	FirstByte  Duration `toml:"first_byte"` // of one request, until the headers are here
	Attempt    Duration `toml:"attempt"`    // of one request, altogether
	Deadline   Duration `toml:"deadline"`   // of all of them, with pauses and waiting for a turn
	Hedge      Hedge    `toml:"hedge,inline"`
}

// Hedge says when a second request is sent beside one that takes long. The file may say false, which is Factor 0: never.
type Hedge struct {
	Factor float64  `toml:"factor"` // of the mean time that such requests took lately
	Min    Duration `toml:"min"`
	Max    Duration `toml:"max"`
}

// Bucket is a rule for the buckets that Name matches.
type Bucket struct {
	Name string `toml:"name"` // pattern with * and ?
	Buckets
}

const (
	kib Size = 1 << 10
	mib Size = 1 << 20
	gib Size = 1 << 30
)

// defaults returns the configuration of an empty file. config.example.toml says the same with reasons; a test compares.
func defaults() *Config {
	return &Config{
		Server: Server{
			Listen:  "127.0.0.1:9000",
			Admin:   "127.0.0.1:9001",
			Domains: []string{},
			Drain:   Duration(30 * time.Second),
			Limits: Limits{
				MaxConnections:    4096,
				MaxRequests:       2048,
				MaxHeader:         64 * kib,
				MaxHeaderCount:    200,
				ReadHeaderTimeout: Duration(10 * time.Second),
				IdleTimeout:       Duration(2 * time.Minute),
				MinRate:           8 * kib,
			},
		},
		Log:    Log{Level: "info", Format: "text"},
		Origin: Origin{Region: "us-east-1", Credentials: Credentials{Source: "default"}},
		Auth:   Auth{Mode: "anonymous", AnonymousBuckets: []string{}},
		Cache: Cache{
			Memory:               1 * gib,
			InfoMemory:           64 * mib,
			OriginConcurrency:    64,
			ReadaheadConcurrency: 16,
			HedgeConcurrency:     16,
			Disk:                 Disk{RegionSize: 64 * mib, Recover: "quiet", Reserve: 1 * gib},
		},
		Buckets: Buckets{
			BlockSize:    1 * mib,
			FetchWindow:  8,
			ReadWindow:   16,
			Readahead:    64,
			PopulateMax:  16 * mib,
			Consistency:  Consistency{Mode: "etag", TTL: Duration(60 * time.Second)},
			StaleIfError: Duration(time.Hour),
			Fetch: Fetch{
				Attempts:   3,
				Backoff:    Duration(50 * time.Millisecond),
				BackoffMax: Duration(2 * time.Second),
				FirstByte:  Duration(5 * time.Second),
				Attempt:    Duration(30 * time.Second),
				Deadline:   Duration(60 * time.Second),
				Hedge:      Hedge{Factor: 3, Min: Duration(50 * time.Millisecond), Max: Duration(2 * time.Second)},
			},
		},
		Cluster: Cluster{
			Refresh:     Duration(10 * time.Second),
			BlockSize:   1 * mib,
			ReadWindow:  16,
			LoadLimit:   256,
			DownFor:     Duration(5 * time.Second),
			Hedge:       Hedge{Factor: 3, Min: Duration(50 * time.Millisecond), Max: Duration(2 * time.Second)},
			Credentials: Credentials{Source: "anonymous"},
		},
	}
}

// newAuthKey returns an [[auth.keys]] entry before its own keys are read: it may read and list, everywhere.
func newAuthKey() AuthKey { return AuthKey{Buckets: []string{"*"}, Read: true, List: true} }
