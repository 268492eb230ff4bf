package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
)

const (
	// copyBuffer is the size of one piece of a forwarded body, in bytes.
	copyBuffer = 64 << 10
	// maxDeleteBody bounds the body of DeleteObjects, which is read whole: 1000 keys of 1 KiB with room for markup.
	maxDeleteBody = 2 << 20
)

// errAnswerBroken marks answers of the origin that ended before their end.
var errAnswerBroken = errors.New("the origin's answer broke off")

// forward sends a request to the origin and its answer back, both as they are and unbuffered. What the request may have
// changed is forgotten before any piece of the answer reaches the client.
func (x *exchange) forward() error {
	if x.amz.customKey && !x.h.originTLS {
		return errPlainSSE
	}
	n := x.h.forwards.Add(1)
	defer x.h.forwards.Add(-1)
	if x.h.limits.Requests > 0 && n > x.h.limits.forwards() {
		x.h.metrics.shed[shedForwards].Inc()
		x.shed(errSlowDown)
		return nil
	}
	r := x.r.WithContext(x.r.Context()) // a shallow copy, whose headers and body can be others
	r.URL = &url.URL{RawQuery: x.rawQuery}
	upload, err := x.prepareUpload(r)
	if err != nil {
		return err
	}
	var changed []origin.Object
	switch {
	case r.Method == http.MethodGet, r.Method == http.MethodHead, r.Method == http.MethodOptions:
	case x.op.drops == dropsObject:
		changed = []origin.Object{x.object.Object}
	case x.op.drops == dropsListed:
		body, err := upload.slurp(r, maxDeleteBody)
		if err != nil {
			return err
		}
		if changed, err = x.listed(body); err != nil {
			return err
		}
	}
	blocks := x.populate(r, upload)

	settled := false // refused for certain, or taken over by blocks
	forget := func() {
		if !settled {
			for _, o := range changed {
				x.h.gateway.Invalidate(o)
			}
		}
	}
	told, stored := x.h.wrote == nil || len(changed) == 0, false
	tell := func() {
		if !told {
			told = true
			x.h.wrote(changed, stored)
		}
	}
	// Whatever happened, but for a definite refusal: an error and a panic may leave a write behind too.
	defer func() { forget(); tell() }()
	defer blocks.Abort()

	// A write goes on when its client leaves: what came of it must be known before the object is remembered again.
	ctx := r.Context()
	if len(changed) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = outlast(ctx, writePatience)
		defer cancel()
	}
	wait, ctx := newWait(ctx, x.op.patience())
	defer wait.close()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = sentBody{r.Body, wait}
	}
	answer, err := x.h.forwarder.Forward(ctx, r, x.object.Bucket, x.object.rawKey)
	wait.answer()
	if cause := context.Cause(ctx); errors.Is(cause, origin.ErrTimeout) {
		if err == nil { // just too late: its body can't be read any more
			_ = answer.Body.Close()
		}
		err = cause
	}
	if refusal := upload.refusal(); refusal != nil {
		if err == nil {
			_ = answer.Body.Close()
		}
		return refusal // the client's own fault, however the origin took it
	}
	if err != nil {
		return err
	}
	answer.Body = answerBody{answer.Body, wait}
	defer answer.Body.Close()
	if x.body != nil && x.body.unread() {
		// The origin answered early, and the transport goes on reading from the client, which may be waiting for this
		// answer. net/http would wait for it before it sends the headers, unless the connection goes.
		x.set("Connection", "close")
	}
	if answer.StatusCode/100 == 2 && !upload.complete() && x.op.stores() {
		// What the origin acknowledges it can't have, and what it would be has not been verified.
		return fmt.Errorf("%w: %d before the body was complete", origin.ErrBadAnswer, answer.StatusCode)
	}
	refused := refusedForCertain(answer.StatusCode)
	told = told || refused
	stored = answer.StatusCode/100 == 2 && x.op.creates()
	settled = refused || answer.StatusCode == http.StatusOK && blocks.Commit(answer.Header.Get("Etag"))
	forget()
	if answer.ContentLength >= 0 { // else the write may take effect while the answer comes: told at its end
		tell()
	}

	copyHeader(x.w.Header(), answer.Header)
	if answer.StatusCode == http.StatusNoContent {
		delete(x.w.Header(), "Content-Length")
	}
	x.relocate(answer)
	x.cache = cacheForwarded
	x.relay(answer.StatusCode)
	if r.Method == http.MethodHead || !bodyAllowed(answer.StatusCode) {
		return nil
	}
	return x.copyBody(answer, forget)
}

// writePatience bounds how long a write is waited for whose client has left. CompleteMultipartUpload takes minutes.
const writePatience = 15 * time.Minute

// outlast returns a context that ends a while after ctx, and not before. The body of a client that has left can't be
// read, so a write that the origin does not have all of ends at once all the same.
func outlast(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(while, cancel)
		context.AfterFunc(longer, func() { t.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

// refusedForCertain says whether an answer to a write means that nothing changed, and says nothing of the object either. A
// timeout or an overload told by something in between leaves it open; what is missing, in conflict or not as the client
// thought may not be as remembered here, and who tries again must see what is.
func refusedForCertain(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed,
		http.StatusTooManyRequests, 499:
		return false
	}
	return status >= 400 && status < 500
}

// populate begins to take the body of an object that is being written, where it may be: what is read is then likely to be
// this. The result may be nil, which takes nothing.
func (x *exchange) populate(r *http.Request, u *upload) *gateway.Population {
	g, able := x.h.gateway.(interface {
		Populate(o origin.Object, size int64) *gateway.Population
	})
	_, part := r.Header["X-Amz-Write-Offset-Bytes"] // appended to what is there
	if !able || u == nil || part || x.op.name != "PutObject" || x.amz.customKey || x.object.Raw != "" {
		return nil
	}
	size := r.ContentLength
	if u.trails != nil {
		size, _ = strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
	}
	p := g.Populate(x.object.Object, size)
	u.seen = p.Write
	return p
}

// relay is begin for an answer that has its length among its headers, or has none.
func (x *exchange) relay(status int) {
	x.identify()
	x.set("X-Ashlar-Cache", x.cache)
	x.status = status
	x.w.WriteHeader(status)
}

// copyBody passes the body of an answer on, piece by piece as it arrives. before is called ahead of each piece: an
// answer of 200 can begin long before the write has taken effect (CompleteMultipartUpload, CopyObject), and ends after
// it.
func (x *exchange) copyBody(answer *http.Response, before func()) error {
	buf := x.h.buffers.Get().(*[copyBuffer]byte)
	defer x.h.buffers.Put(buf)
	flush := answer.ContentLength < 0 // a stream of events or of signs of life: nothing may wait for more
	if flush {
		_ = x.rc.Flush()
	}
	for {
		n, err := answer.Body.Read(buf[:])
		if n > 0 {
			before()
			if _, err := x.Write(buf[:n]); err != nil {
				return err
			}
			if flush {
				_ = x.rc.Flush() // a broken connection shows at the next Write
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errAnswerBroken, err)
		}
	}
}

// copyHeader copies the headers of an answer that reach the client.
func copyHeader(to, from http.Header) {
	to["Content-Type"] = nil // none unless the origin sent one: net/http would guess
	for name, values := range from {
		if passes(name) {
			to[wireName(name)] = values
		}
	}
	for _, line := range from["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
}

// listed reads the body of DeleteObjects and returns the objects it names, each of which the requester may delete.
func (x *exchange) listed(body []byte) (objects []origin.Object, err error) {
	keys, ok := deletedKeys(body, x.r.Header["Content-Type"])
	if !ok {
		return nil, errMalformedXML
	}
	for _, key := range keys {
		object := origin.Object{Bucket: x.object.Bucket, Key: key}
		if !x.who.grant.onObject(x.op.right, &object) {
			return nil, errAccessDenied
		}
		objects = append(objects, object)
	}
	return objects, nil
}
