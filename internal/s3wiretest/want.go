package s3wiretest

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// want is what an answer must be.
type want struct {
	status int
	// body is what a GET must bring; a HEAD must bring its length and no byte. nil is not looked at.
	body []byte
	// code is the error's code in the XML of a GET, "" for no error.
	code string
	// elements of the error; "*" is any text at all.
	elements []string
	// header must be exactly so; "" must be absent, "*" must be there.
	header []string
}

// whole is a 200 with all of the object.
func whole(o *object) want {
	return want{status: http.StatusOK, body: o.data, header: []string{"Content-Range", "", "ETag", o.etag,
		"Last-Modified", o.lastMod, "Accept-Ranges", "bytes"}}
}

// part is a 206 with bytes first to last, both inclusive.
func part(o *object, first, last int) want {
	w := whole(o)
	w.status, w.body = http.StatusPartialContent, o.data[first:last+1]
	w.header[1] = fmt.Sprintf("bytes %d-%d/%d", first, last, len(o.data))
	return w
}

// unsatisfied is a 416 to a range.
func unsatisfied(o *object, requested string) want {
	return want{status: http.StatusRequestedRangeNotSatisfiable, code: "InvalidRange",
		elements: []string{"RangeRequested", requested, "ActualObjectSize", strconv.Itoa(len(o.data))},
		header:   []string{"Content-Range", fmt.Sprintf("bytes */%d", len(o.data))}}
}

// refused is an error with an XML body.
func refused(status int, code string, elements ...string) want {
	return want{status: status, code: code, elements: elements}
}

// precondition is a 412 for one of the request's headers.
func precondition(header string) want {
	return refused(http.StatusPreconditionFailed, "PreconditionFailed", "Condition", header)
}

// notModified is a 304.
func notModified(o *object) want {
	return want{status: http.StatusNotModified, body: []byte{}, header: []string{"ETag", o.etag,
		"Last-Modified", o.lastMod, "Content-Range", ""}}
}

// with adds headers that must be so.
func (w want) with(header ...string) want {
	w.header = append(append([]string{}, w.header...), header...)
	return w
}

// check reports everything that is wrong with an answer.
func (w want) check(t testing.TB, when, method string, a answer) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s", when, fmt.Sprintf(format, args...))
	}
	if a.err != nil {
		fail("the body broke off after %d bytes: %v", len(a.body), a.err)
		return
	}
	if a.status != w.status {
		fail("status %d, want %d; body %q", a.status, w.status, clip(a.body))
		return
	}
	for i := 0; i < len(w.header); i += 2 {
		if wrong := headerWrong(a.header, w.header[i], w.header[i+1]); wrong != "" {
			fail("%s", wrong)
		}
	}
	bodiless := method == http.MethodHead || a.status == http.StatusNotModified || a.status == http.StatusNoContent
	if bodiless && len(a.body) > 0 {
		fail("%d bytes of body where there can be none", len(a.body))
	}
	declared := a.header.Get("Content-Length")
	switch {
	case w.code != "":
		w.checkError(fail, bodiless, a)
	case w.body == nil || a.status == http.StatusNotModified:
	case declared != strconv.Itoa(len(w.body)):
		fail("Content-Length %q, want %d", declared, len(w.body))
	case !bodiless && !bytes.Equal(a.body, w.body):
		fail("%s", difference(a.body, w.body))
	}
}

func headerWrong(h http.Header, name, value string) string {
	got := h.Values(name)
	switch {
	case value == "" && len(got) > 0:
		return fmt.Sprintf("has %s: %q, which must not be there", name, got)
	case value == "*" && (len(got) == 0 || got[0] == ""):
		return fmt.Sprintf("has no %s", name)
	case value != "" && value != "*" && (len(got) != 1 || got[0] != value):
		return fmt.Sprintf("has %s: %q, want %q", name, got, value)
	}
	return ""
}

func (w want) checkError(fail func(string, ...any), bodiless bool, a answer) {
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/xml") {
		fail("an error of type %q, want application/xml", a.header.Get("Content-Type"))
	}
	if bodiless {
		return
	}
	if err := wellFormed(a.body); err != nil {
		fail("the error is no XML: %v: %q", err, clip(a.body))
		return
	}
	if got := a.element("Code"); got != w.code {
		fail("code %s, want %s: %q", got, w.code, clip(a.body))
		return
	}
	for i := 0; i < len(w.elements); i += 2 {
		name, value := w.elements[i], w.elements[i+1]
		got := a.element(name)
		if name == "Message" && strings.HasPrefix(got, value) { // a full stop more is no other message
			continue
		}
		if value == "*" && got == "" || value != "*" && got != value {
			fail("<%s> is %q, want %q: %q", name, got, value, clip(a.body))
		}
	}
}

// wellFormed says whether a document is an <Error>.
func wellFormed(doc []byte) error {
	d := xml.NewDecoder(bytes.NewReader(doc))
	root := ""
	for {
		tok, err := d.Token()
		if err == io.EOF && root == "Error" {
			return nil
		}
		if err == io.EOF {
			return fmt.Errorf("the root is %q", root)
		}
		if err != nil {
			return err
		}
		if s, ok := tok.(xml.StartElement); ok && root == "" {
			root = s.Name.Local
		}
	}
}

// difference says where bytes differ.
func difference(got, want []byte) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d is %#x, want %#x (got %d bytes)", i, len(want), got[i], want[i], len(got))
		}
	}
	return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
}

func clip(b []byte) []byte { return b[:min(len(b), 600)] }

// expect sends a request and checks its answer; on a warm run again when the server has seen it, and again when it has
// seen all of o. o may be nil.
func (e *env) expect(t *testing.T, o *object, r request, w want) {
	t.Helper()
	if o != nil && r.key == "" && r.raw == "" {
		r.bucket, r.key = o.bucket, o.key
	}
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	w.check(t, "first answer", method, e.send(t, r))
	if !e.Warm {
		return
	}
	w.check(t, "second answer", method, e.send(t, r))
	if o == nil {
		return
	}
	query := ""
	if o.version != "" {
		query = "versionId=" + o.version
	}
	whole(o).check(t, "the whole object", http.MethodGet, e.send(t, request{bucket: o.bucket, key: o.key, query: query}))
	w.check(t, "answer after a whole read", method, e.send(t, r))
}
