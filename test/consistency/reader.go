package consistency

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// nameHeader is metadata that holds the name of a version: what is said of an object must be of the version whose bytes
// are sent.
const nameHeader = "X-Amz-Meta-Version"

// reader is one client that reads.
type reader struct {
	*run
	from *client
	rng  *rand.Rand
	seen map[string]*version // last, by key
}

func newReader(r *run, from *client, rng *rand.Rand) *reader {
	return &reader{run: r, from: from, rng: rng, seen: make(map[string]*version)}
}

// step does one read and adds it to the history. Reads that fail say nothing.
func (r *reader) step(ctx context.Context) error {
	key := r.key(r.rng)
	req := request{method: http.MethodGet, key: key, header: make(map[string]string)}
	switch n := r.rng.IntN(20); {
	case n < 8:
	case n < 12:
		first := r.rng.IntN(r.Block / 8)
		if n == 8 {
			first = r.rng.IntN(4 * r.Block)
		}
		req.header["Range"] = fmt.Sprintf("bytes=%d-%d", first, first+r.rng.IntN(2*r.Block))
	case n < 15:
		req.header["Range"] = "bytes=-20"
	case n < 17:
		req.method = http.MethodHead
	case r.seen[key] != nil:
		req.header["If-None-Match"] = r.seen[key].etag
	}
	return r.read(ctx, req)
}

func (r *reader) read(ctx context.Context, req request) error {
	op := Op{Key: req.key, Begin: r.now(), What: req.String()}
	if r.from != r.client {
		op.What += " at the origin"
	}
	resp, err := r.from.send(ctx, req)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.failed("read: " + reason(err))
		return nil
	}
	op.End = r.now()
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		r.add(op)
		return nil
	case resp.StatusCode == http.StatusNotModified:
		v := r.seen[req.key]
		if !v.unique() {
			return nil // it may be of another version
		}
		op.Version = v.name()
		if got := resp.Header.Get("Etag"); req.header["If-None-Match"] == "" || got != v.etag {
			op.Wrong = fmt.Sprintf("304 of %s to %v", got, req.header)
		}
		r.add(op)
		return nil
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && req.header["Range"] != "":
		return nil // of some version that was shorter
	case resp.StatusCode >= 500:
		r.failed(fmt.Sprint("read: ", resp.StatusCode))
		return nil
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("%v: %s: %s", op, resp.Status, body)
	}
	// The headers count even where the body broke off, and what there is of it must be of the version.
	op.Version = resp.Header.Get(nameHeader)
	if v := r.versions.get(op.Version); v == nil || v.key != req.key {
		op.Wrong = fmt.Sprintf("an answer of version %q", op.Version)
	} else {
		op.Wrong = wrong(v, req, resp, body, err == nil)
		r.seen[req.key] = v
	}
	if err != nil {
		r.failed("read: broke off")
	}
	r.add(op)
	return nil
}

// wrong says how an answer is not one of version v; "" when it is. complete says that its body came to the end.
func wrong(v *version, req request, resp *http.Response, body []byte, complete bool) string {
	if etag := resp.Header.Get("Etag"); etag != v.etag {
		return fmt.Sprintf("ETag %s with the metadata of version %s, which has %s", etag, v.name(), v.etag)
	}
	first, last := 0, v.size-1
	if resp.StatusCode == http.StatusPartialContent {
		first, last = resolve(req.header["Range"], v.size)
		if got, want := resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", first, last, v.size); got != want {
			return fmt.Sprintf("Content-Range %q of version %s, want %q", got, v.name(), want)
		}
	} else if req.header["Range"] != "" && v.size > 0 {
		return fmt.Sprintf("%s to %v", resp.Status, req.header)
	}
	if resp.ContentLength != int64(last-first+1) {
		return fmt.Sprintf("Content-Length %d of version %s, want %d", resp.ContentLength, v.name(), last-first+1)
	}
	if complete && req.method != http.MethodHead && len(body) != last-first+1 {
		return fmt.Sprintf("%d bytes of version %s, want %d", len(body), v.name(), last-first+1)
	}
	return v.differs(first, body)
}

// resolve cuts a range that begins within an object of size bytes to it.
func resolve(header string, size int) (first, last int) {
	if n, err := fmt.Sscanf(header, "bytes=%d-%d", &first, &last); n == 2 && err == nil {
		return first, min(last, size-1)
	}
	suffix, _ := strconv.Atoi(header[len("bytes=-"):])
	return max(0, size-suffix), size - 1
}

// reason is an error without what differs from one to the next.
func reason(err error) string {
	for e := err; ; {
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			return e.Error()
		}
		e = u.Unwrap()
	}
}
