package s3api

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

const (
	// answerPatience is how long the origin may stand still at a forwarded request: take none of its body, not begin its
	// answer, or pause in it. Clients wait for a minute (boto3) or less before they ask again.
	answerPatience = 2 * time.Minute
	// workPatience is the same where the origin may be at work on many objects, or all the bytes of one: "processing of a
	// CompleteMultipartUpload request could take several minutes" (S3 API reference), and not every server sends
	// anything meanwhile.
	workPatience = 15 * time.Minute
)

// patience is how long the origin may stand still at an operation.
func (o *operation) patience() time.Duration {
	switch o.name {
	case "CompleteMultipartUpload", "CopyObject", "UploadPartCopy", "DeleteObjects", "SelectObjectContent", "Other":
		return workPatience
	}
	return answerPatience
}

// wait ends the context of a forwarded request whose origin stands still. Time counts only while it is the origin's
// turn: a client that sends its body slowly is bounded by its own pace.
type wait struct {
	bound time.Duration
	timer *time.Timer
	end   context.CancelCauseFunc

	mu       sync.Mutex
	answered bool // guarded by mu; what the transport still reads of the client's body no longer matters
}

// newWait begins to wait. The context's cause says when it was for too long, and wraps origin.ErrTimeout then.
func newWait(ctx context.Context, bound time.Duration) (*wait, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &wait{bound: bound, end: cancel}
	w.timer = time.AfterFunc(bound, func() {
		cancel(fmt.Errorf("%w: it stood still for %v", origin.ErrTimeout, bound))
	})
	return w, ctx
}

// close releases what w holds.
func (w *wait) close() {
	w.answer()
	w.end(nil)
}

// answer notes that the answer has begun, or that there is none. From then on only reads of it count.
func (w *wait) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	w.timer.Stop()
}

// sending says whether the next thing to come is the client's.
func (w *wait) sending(client bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.answered:
	case client:
		w.timer.Stop()
	default:
		w.timer.Reset(w.bound)
	}
}

// sentBody is the body of a forwarded request.
type sentBody struct {
	io.ReadCloser
	w *wait
}

func (b sentBody) Read(p []byte) (int, error) {
	b.w.sending(true)
	defer b.w.sending(false)
	return b.ReadCloser.Read(p)
}

// answerBody is the body of the answer.
type answerBody struct {
	io.ReadCloser
	w *wait
}

func (b answerBody) Read(p []byte) (int, error) {
	b.w.timer.Reset(b.w.bound)
	defer b.w.timer.Stop()
	return b.ReadCloser.Read(p)
}
