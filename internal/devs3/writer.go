package devs3

import (
	"net/http"
	"strconv"
	"strings"
)

// writer is the http.ResponseWriter of a call: it adds what every answer of S3 has, spells header names as S3 does,
// counts, and spoils the answer where a fault says so.
type writer struct {
	w      http.ResponseWriter
	c      *call
	status int   // 0 until the headers are out
	sent   int64 // body bytes handed to net/http

	fault *Fault
	left  int64 // body bytes until fault.Break; -1 for none
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.w.Header() }

// WriteHeader implements http.ResponseWriter. Only the first call counts.
func (w *writer) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	h := w.Header()
	h.Set("x-amz-request-id", w.c.id)
	h.Set("x-amz-id-2", w.c.id2)
	h.Set("Server", "devs3")
	if w.fault != nil {
		status = w.fault.edit(status, h)
	}
	w.status = status
	wireNames(h)
	w.w.WriteHeader(status)
}

// wireNames spells header names as S3 sends them: some clients keep the case of metadata.
func wireNames(h http.Header) {
	for name, values := range h {
		wire := name
		switch {
		case name == "Etag":
			wire = "ETag"
		case strings.HasPrefix(name, "X-Amz-"):
			wire = strings.ToLower(name)
		}
		if wire != name {
			delete(h, name)
			h[wire] = values
		}
	}
}

// Write implements http.ResponseWriter. It does not return when a fault breaks the connection.
func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.left < 0 {
		return w.write(p)
	}
	first := min(int64(len(p)), w.left)
	n, err := w.write(p[:first])
	w.left -= int64(n)
	if err != nil || n == len(p) {
		return n, err
	}
	w.fault.Break.run(w)
	w.left = -1
	m, err := w.write(p[first:])
	return n + m, err
}

func (w *writer) write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.sent += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.w }

// contentLength is the declared length, -1 when there is none.
func contentLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
