package s3api

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"

	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// relocate makes the Location that the origin tells of a completed upload the address that the client knows the object
// by: the origin's own may be out of its reach, and past the cache if it is not.
func (x *exchange) relocate(answer *http.Response) {
	if x.op.name != "CompleteMultipartUpload" || answer.StatusCode != http.StatusOK {
		return
	}
	path, _, _ := sigv4.SplitTarget(x.r.RequestURI) // resolved before
	scheme := "http://"
	if x.r.TLS != nil {
		scheme = "https://"
	}
	var location bytes.Buffer
	_ = xml.EscapeText(&location, []byte(scheme+x.r.Host+path)) // a bytes.Buffer does not fail
	answer.Body = &relocated{ReadCloser: answer.Body, location: location.Bytes()}
	answer.ContentLength = -1
	delete(x.w.Header(), "Content-Length")
}

const (
	locationStart = "<Location>"
	locationEnd   = "</Location>"
	// maxLocation is how many bytes of an element are waited for: a key of 1024 bytes takes 3 KiB, spelled out 6.
	maxLocation = 8 << 10
)

// relocated is a body with another text in its first element Location. All else goes through as it comes, and as soon:
// the origin may send signs of life before it.
type relocated struct {
	io.ReadCloser
	location []byte
	done     bool   // the element has been
	out      []byte // to be read next
	held     []byte // follows out, and is or may be the beginning of the element
	err      error  // follows both
}

func (r *relocated) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		n, err := r.ReadCloser.Read(p)
		r.held, r.err = append(r.held, p[:n]...), err
		r.sort()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// sort moves to out what is sure of held.
func (r *relocated) sort() {
	start, end := bytes.Index(r.held, []byte(locationStart)), bytes.Index(r.held, []byte(locationEnd))
	if !r.done && start >= 0 && end > start {
		r.out = append(r.out, r.held[:start+len(locationStart)]...)
		r.out = append(r.out, r.location...)
		r.held, r.done = r.held[end:], true
	}
	sure := len(r.held)
	switch {
	case r.done, r.err != nil, len(r.held) > maxLocation:
	case start >= 0:
		sure = start
	default:
		sure = max(0, sure-len(locationStart)+1)
		for !bytes.HasPrefix([]byte(locationStart), r.held[sure:]) { // nothing is a prefix too
			sure++
		}
	}
	r.out = append(r.out, r.held[:sure]...)
	r.held = append(r.held[:0:0], r.held[sure:]...)
}
