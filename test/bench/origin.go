package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bucket is the only one that there is.
const bucket = "bench"

// origin is what all contestants cache: it computes objects of any name and size, answers one byte range or the whole,
// and waits before every answer. It lives in the benchmark's own process, where it only counts for cold reads.
type origin struct {
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
	o := &origin{addr: l.Addr().String()}
	o.server = &http.Server{Handler: o}
	go func() { _ = o.server.Serve(l) }()
	return o, nil
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		o.gets.Add(1)
	}
	time.Sleep(time.Duration(o.latency.Load()))
	obj, ok := parseObject(strings.TrimPrefix(r.URL.Path, "/"+bucket+"/"))
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "no such object", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("ETag", obj.etag())
	h.Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "application/octet-stream")
	first, last, status := int64(0), obj.size-1, http.StatusOK
	if rng := r.Header.Get("Range"); rng != "" {
		if _, err := fmt.Sscanf(rng, "bytes=%d-%d", &first, &last); err != nil || first >= obj.size || last < first {
			http.Error(w, "range", http.StatusRequestedRangeNotSatisfiable)
			return
		}
		last = min(last, obj.size-1)
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, obj.size))
	}
	h.Set("Content-Length", strconv.FormatInt(last-first+1, 10))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	buf := make([]byte, 256<<10)
	for off := first; off <= last; {
		lead := off & 7
		o := buf[:min(int64(len(buf)), (last+1-off+lead+7)&^7)]
		obj.fill(o, off-lead)
		n := min(int64(len(o))-lead, last+1-off)
		if _, err := w.Write(o[lead : lead+n]); err != nil {
			return
		}
		off += n
	}
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
