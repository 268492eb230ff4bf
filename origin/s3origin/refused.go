package s3origin

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// aboutSignature says whether an error code is about who signed a request and how, and never about what was asked (S3
// API reference, "Error responses"; the last line is of other services of AWS, and of servers that copied them).
// AccessDenied is none of them: a bucket policy says so, too.
func aboutSignature(code string) bool {
	switch code {
	case "SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "InvalidSecurity", "MissingSecurityHeader", "NotSignedUp",
		"IncompleteSignature", "InvalidClientTokenId", "UnrecognizedClientException":
		return true
	}
	return false
}

// cure says what an operator is to do about such a code.
func (o *Origin) cure(code string) string {
	credentials := o.section + ".credentials"
	switch code {
	case "RequestTimeTooSkewed":
		return "set this machine's clock: it is too far from that of " + o.name
	case "AuthorizationHeaderMalformed":
		return "set origin.region to the one that " + o.name + " expects"
	case "ExpiredToken", "TokenRefreshRequired":
		return "renew the temporary credentials in " + credentials
	case "SignatureDoesNotMatch":
		return "check the secret key in " + credentials + ", and that nothing on the way rewrites requests"
	case "AccessDenied", "":
		return "check " + credentials + ", and what the key may do there"
	}
	return "check " + credentials
}

// refusals are the origin's answers about our signature. The first is logged, and one in complainEvery while they last.
type refusals struct {
	last atomic.Bool // the latest answer that could tell was one

	mu     sync.Mutex
	logged time.Time // guarded by mu
	unsaid int       // since then; guarded by mu
}

const complainEvery = time.Minute

// judgeSignature returns an error when an answer, of whose body p is the beginning, is about the signature of our
// request. Clients never get to see one: they would take it for an answer about their own signature, and it names our
// access key. An answer to HEAD doesn't say what it is about, so it is taken to be like the one before, unless
// Config.Refused knows.
func (c *call) judgeSignature(resp *http.Response, p []byte) error {
	r := &c.o.refusals
	var doc errorDocument
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		doc = parseError(p)
		known := c.o.refused != nil
		silent := !known && resp.Request.Method == http.MethodHead && r.last.Load()
		if !aboutSignature(doc.Code) && !silent && !(known && c.o.refused(resp.Header)) {
			if doc.Code != "" {
				c.o.accepted()
			}
			return nil
		}
	default:
		return nil
	}
	r.last.Store(true)
	c.o.metrics.errors.WithLabelValues(whyCredentials).Inc()
	c.o.complain(resp.StatusCode, doc)
	return &refusedError{fmt.Sprintf("%s does not accept our credentials: %s; %s", c.o.name,
		strings.TrimSpace(strconv.Itoa(resp.StatusCode)+" "+doc.Code), c.o.cure(doc.Code))}
}

// refusedError is an origin.ErrCredentials that says whose it is and what an operator is to do.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return origin.ErrCredentials }

// accepted notes an answer that only a good signature gets.
func (o *Origin) accepted() {
	if o.refusals.last.Load() {
		o.refusals.last.Store(false)
	}
}

func (o *Origin) complain(status int, doc errorDocument) {
	r := &o.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.logged.IsZero() && now.Sub(r.logged) < complainEvery {
		r.unsaid++
		return
	}
	o.log.Warn(o.name+" does not accept our credentials: requests to it fail", "endpoint", o.Endpoint(), "status", status,
		"code", doc.Code, "message", doc.Message[:min(len(doc.Message), 256)], "do", o.cure(doc.Code), "not_logged", r.unsaid)
	r.logged, r.unsaid = now, 0
}

// screen reads the answer to a forwarded request ahead where it may be about our signature, and returns an error when
// it is. Else the answer still has all of its body, which is a stream.
func (c *call) screen(resp *http.Response) error {
	suspect := resp.StatusCode >= 400 && resp.StatusCode <= 403
	s := c.newStream(resp, suspect)
	resp.Body = s
	if !suspect {
		return nil
	}
	p, _ := io.ReadAll(io.LimitReader(s, origin.MaxErrorBody)) // an error comes again with the next Read
	if err := c.judgeSignature(resp, p); err != nil {
		_ = s.Close()
		return err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(p), s), s}
	return nil
}
