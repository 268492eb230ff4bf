package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"golang.org/x/sys/unix"
)

// bucket is the only one that there is.
const bucket = "bench"

// origin is what all contestants cache: the project's own S3 server, which waits before every answer. It lives in the
// benchmark's own process, where it only counts for cold reads.
type origin struct {
	s3      *devs3.Server
	latency atomic.Int64 // nanoseconds before an answer's headers
	gets    atomic.Int64 // GET requests since the start
	server  *http.Server
	addr    string
}

func startOrigin() (*origin, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{s3: devs3.New(devs3.Config{}), addr: l.Addr().String()}
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
	go func() { _ = o.server.Serve(l) }()
	return o, nil
}

// add makes an object readable.
func (o *origin) add(obj object) { o.s3.PutGenerated(bucket, obj.name, obj.size, obj.seed) }

// sent returns how many bytes of an object have been sent, once all requests have ended.
func (o *origin) sent(ctx context.Context, obj object) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	for {
		n := o.s3.Counters()
		if n.InFlight == 0 {
			return n.Objects[bucket+"/"+obj.name].BytesSent, nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		o.gets.Add(1)
	}
	time.Sleep(time.Duration(o.latency.Load()))
	o.s3.ServeHTTP(w, r)
}

// serveFloor is what net/http can do at best: it answers ranges of objects that are in memory as they are, and checks
// nothing. It runs in a process of its own, until that is killed.
func serveFloor(addr string, objects []object) error {
	held := make(map[string][]byte)
	for _, o := range objects {
		// Off the heap, as caches keep their blocks, so that the collector has nothing to do with them.
		b, err := unix.Mmap(-1, 0, int(o.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		o.fill(b, 0)
		held["/"+bucket+"/"+o.name] = b
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		b, ok := held[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h, status := w.Header(), http.StatusOK
		if rng := r.Header.Get("Range"); rng != "" {
			from, to, _ := strings.Cut(strings.TrimPrefix(rng, "bytes="), "-")
			first, err1 := strconv.ParseInt(from, 10, 64)
			last, err2 := strconv.ParseInt(to, 10, 64)
			if err1 != nil || err2 != nil || last < first || last >= int64(len(b)) {
				http.Error(w, "range", http.StatusRequestedRangeNotSatisfiable)
				return
			}
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(b)))
			b, status = b[first:last+1], http.StatusPartialContent
		}
		h.Set("Content-Length", strconv.Itoa(len(b)))
		h.Set("Content-Type", "application/octet-stream")
		w.WriteHeader(status)
		_, _ = w.Write(b)
	}
	return http.ListenAndServe(addr, http.HandlerFunc(handler))
}
