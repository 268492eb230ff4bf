// Package devs3 is a strict S3 server inside one process, over memory or a directory: what it answers is what S3
// answers, to the header and the error element, or 501. It never decodes, repairs or normalises what S3 would not, so a
// client, proxy or cache that mangles a key, a range, a signature or an upload is found out.
//
// It is for development and tests, and promises nothing beyond them: no durability (a directory survives a restart, not
// a crash or a full disk; uploads in progress are forgotten), no access rules beyond "these keys may do everything",
// no quotas. Requests can be counted, listed and made to fail on purpose (Server.Fault).
//
// The package is an oracle for others of this module: how it reads ranges, conditions, keys and queries is written
// here and shared with none of them. Only the verification of signatures is.
package devs3

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what a Server is. The zero value is an anonymous server over memory.
type Config struct {
	// Keys maps access keys to secrets: requests must be signed (Signature Version 4) with one of them, and may then
	// do everything. nil or empty lets everyone do everything and does not look at signatures.
	Keys map[string]string
	// AnonymousRead lets requests without any authentication read objects and list buckets although Keys is set.
	AnonymousRead bool
	// Region is the region that signatures must name and that bucket locations show. "" means us-east-1.
	Region string
	// Domains are the host names below which buckets are addressed as host names ("localhost" for
	// bucket.localhost:9000). Compared without case and port; the longest match wins. Other hosts are path-style.
	Domains []string
	// Dir holds buckets and objects as files, whatever the names of the keys; it is created when missing and must not
	// be used by two servers at once. "" keeps everything in memory.
	Dir string
	// PlusIsSpace takes a bare '+' in a path for a space, as AWS does. Most other servers, and this one by default,
	// take it for a plus.
	PlusIsSpace bool
	// LogLen is how many requests Log remembers, the newest. 0 means 10000.
	LogLen int
	// Logger gets one debug line per request and one error line per failure of the server's own. nil discards them.
	Logger *slog.Logger
}

// Server is an S3 endpoint. It is an http.Handler to be mounted at the root of a listener, with no ServeMux in front
// (a ServeMux cleans paths and so changes keys). All methods are safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	domains []string // lower case, without leading dots, longest first
	auth    authenticator
	store   *store
	counts  *recorder
	fault   atomic.Pointer[func(*http.Request) *Fault]
	buffers sync.Pool // *[]byte of copyBuffer bytes, for object bodies
}

// copyBuffer is the size of one write of an object's body, in bytes.
const copyBuffer = 128 << 10

// Open makes a server, reading what Config.Dir holds. The error is of the directory.
func Open(cfg Config) (*Server, error) {
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.LogLen == 0 {
		cfg.LogLen = 10000
	}
	s := &Server{cfg: cfg, log: cfg.Logger, domains: sortDomains(cfg.Domains), counts: newRecorder(cfg.LogLen)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.auth = newAuthenticator(cfg)
	s.buffers.New = func() any { b := make([]byte, copyBuffer); return &b }
	var err error
	if s.store, err = openStore(cfg.Dir); err != nil {
		return nil, fmt.Errorf("devs3: %w", err)
	}
	return s, nil
}

// New is Open for tests and for servers over memory, which can't fail: it panics where Open has an error.
func New(cfg Config) *Server {
	s, err := Open(cfg)
	if err != nil {
		panic(err)
	}
	return s
}

// PutOptions shape an object that is put without a request.
type PutOptions struct {
	// Header holds headers to be kept with the object: Content-Type, Cache-Control, x-amz-meta-*, and the others that
	// S3 keeps. Others are dropped.
	Header http.Header
	// ETag is the entity tag with its quotes. "" computes S3's: the MD5 of the bytes, or with Parts that of a
	// multipart upload. The ETag of generated objects is made from size and seed and ends in -1.
	ETag string
	// Modified is the Last-Modified time. Zero means now.
	Modified time.Time
	// Parts are the sizes of the parts of a multipart upload, in order; they add up to the object's size.
	Parts []int64
	// Checksum is CRC32, CRC32C, CRC64NVME, SHA1 or SHA256: the checksum to compute and keep. "" keeps none.
	Checksum string
	// Tags are the object's tags.
	Tags map[string]string
}

// Put stores an object as a PUT request would, and returns its ETag with quotes. The bucket is created when missing.
// data is kept, not copied, in memory: the caller leaves it alone afterwards. At most one opts. Put is for seeding: it
// panics when the arguments contradict each other or the directory can't be written.
func (s *Server) Put(bucket, key string, data []byte, opts ...PutOptions) string {
	return s.seed(bucket, key, bytesContent(data), opts)
}

// PutGenerated stores an object of size bytes that costs no memory, as its bytes are a function of seed and position
// (see Generate), and returns its ETag. Otherwise like Put.
func (s *Server) PutGenerated(bucket, key string, size int64, seed uint64, opts ...PutOptions) string {
	return s.seed(bucket, key, generatedContent{n: size, seed: seed}, opts)
}

func (s *Server) seed(bucket, key string, data content, opts []PutOptions) string {
	var o PutOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	v, err := seedVersion(key, data, o)
	if err == nil {
		err = s.CreateBucket(bucket)
	}
	if err == nil {
		if b, ok := data.(bytesContent); ok && s.store.dir != "" {
			v.content, err = s.store.keepBytes(b)
		}
	}
	if err == nil {
		err = s.store.put(bucket, v, writeCondition{})
	}
	if err != nil {
		panic(fmt.Errorf("devs3: seeding %s/%s: %w", bucket, key, err))
	}
	return v.ETag
}

// CreateBucket makes a bucket; one that exists stays as it is. The error is of the name or the directory.
func (s *Server) CreateBucket(bucket string) error {
	if !validBucket(bucket) {
		return errInvalidBucketName(bucket)
	}
	_, err := s.store.createBucket(bucket)
	return err
}

// SetVersioning turns versioning of an existing bucket on, or from on to suspended.
func (s *Server) SetVersioning(bucket string, on bool) error {
	if on {
		return s.store.setVersioning(bucket, versioningEnabled)
	}
	return s.store.setVersioning(bucket, versioningSuspended)
}

// Delete deletes an object as a DELETE request without versionId would: in a versioned bucket it adds a delete marker.
func (s *Server) Delete(bucket, key string) error {
	_, err := s.store.remove(bucket, key, "", writeCondition{})
	return err
}

// Fault sets the function that is asked for each request whether to spoil its answer; nil as its answer leaves the
// request alone, nil as the function ends all faults. It is called before the request is authenticated or read, and
// concurrently.
func (s *Server) Fault(f func(*http.Request) *Fault) {
	if f == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&f)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.newCall(w, r)
	s.counts.begin(c)
	defer s.finish(c)
	if f := s.fault.Load(); f != nil {
		if fault := (*f)(r); fault != nil {
			c.serveFault(fault)
			return
		}
	}
	c.serve()
}

// finish counts and logs, whether the handler returned or broke the connection by a panic.
func (s *Server) finish(c *call) {
	s.counts.end(c)
	s.log.Debug("request", "request", c.logLine())
}

// serve routes a request and writes its error, if it ends in one.
func (c *call) serve() {
	err := c.route()
	if err == nil {
		return
	}
	e := asError(err)
	if e.Status == http.StatusInternalServerError {
		c.s.log.Error("request failed", "operation", c.op, "err", err)
	}
	c.writeError(e)
}

// route authenticates, names the operation and runs it.
func (c *call) route() error {
	if err := c.s.auth.authenticate(c); err != nil {
		return err
	}
	if c.addressErr != nil {
		return c.addressErr
	}
	run, ok := operations[c.op]
	if !ok {
		return errNotImplemented()
	}
	if c.bucket != "" && !validBucket(c.bucket) {
		return errInvalidBucketName(c.bucket)
	}
	if owner := c.r.Header.Get("X-Amz-Expected-Bucket-Owner"); owner != "" && owner != ownerID {
		return errAccessDenied("Access Denied")
	}
	for name := range c.r.Header {
		if !strings.HasPrefix(name, "X-Amz-") || !strings.Contains(name, "Server-Side-Encryption-Customer-") {
			continue
		}
		if c.r.TLS == nil {
			return newError(http.StatusBadRequest, "InvalidRequest", "Requests specifying Server Side Encryption with "+
				"Customer provided keys must be made over a secure connection.")
		}
		return errNotImplemented()
	}
	return run(c)
}
