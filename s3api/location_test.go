package s3api

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

const completed = "<?xml version=\"1.0\"?>\n  \n<CompleteMultipartUploadResult><Location>http://origin:9000/real/k" +
	"</Location><Bucket>bucket</Bucket></CompleteMultipartUploadResult>"

// The address of a completed upload is the one that the client knows, however it was asked for and the answer is cut.
func TestLocation(t *testing.T) {
	for _, c := range []struct {
		line, host, want string
		tls              bool
	}{
		{"POST /bucket/a%20&b?uploadId=u", "cache.example:9000", "http://cache.example:9000/bucket/a%20&amp;b", false},
		{"POST /k?uploadId=u", "bucket.s3.example", "https://bucket.s3.example/k", true},
	} {
		for name, cut := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "end": iotest.DataErrReader,
		} {
			h := newHandler(t, Config{Auth: writable(), Domains: []string{"s3.example"}, Forward: forwardAs(
				func() (*http.Response, error) {
					a := answer(200, completed, "Content-Length", "150", "Content-Type", "application/xml")
					a.Body = io.NopCloser(cut(strings.NewReader(completed)))
					return a, nil
				})})
			header := []string{"Host", c.host}
			if c.tls {
				header = append(header, "TLS", "")
			}
			resp := ask(h, c.line, "<x/>", header...)
			want := strings.Replace(completed, "http://origin:9000/real/k", c.want, 1)
			if got := read(t, resp); got != want || resp.Header.Get("Content-Length") != "" {
				t.Errorf("%s, %s: %v\n%s\nwant\n%s", c.line, name, resp.Header, got, want)
			}
		}
	}
}

// What is no such answer, or breaks off, is passed on as it is.
func TestLocationElsewhere(t *testing.T) {
	long := "<a><Location>" + strings.Repeat("x", maxLocation) + "</Location></a>"
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"<a><Loca", "<a><Loca"},
		{"<a><Location>x</Loc", "<a><Location>x</Loc"},
		{"</Location><Location>x", "</Location><Location>x"},
		{"<Error><Code>InternalError</Code></Error>", "<Error><Code>InternalError</Code></Error>"},
		{"<Location></Location><Location>b</Location>", "<Location>L</Location><Location>b</Location>"},
		{long, long},
	} {
		broken := errors.New("broken")
		r := &relocated{location: []byte("L"), ReadCloser: io.NopCloser(iotest.OneByteReader(
			io.MultiReader(strings.NewReader(c.in), iotest.ErrReader(broken))))}
		if got, err := io.ReadAll(r); string(got) != c.want || !errors.Is(err, broken) {
			t.Errorf("%.50q: %.50q, %v", c.in, got, err)
		}
	}
	h := newHandler(t, Config{Auth: writable(), Forward: forwardAs(func() (*http.Response, error) {
		return answer(200, completed, "Content-Length", "150"), nil
	})})
	if got := read(t, ask(h, "GET /bucket?uploads", "")); got != completed {
		t.Errorf("another operation: %s", got)
	}
}

// Signs of life come through at once.
func TestLocationWaitsForNothing(t *testing.T) {
	in, w := io.Pipe()
	defer w.Close()
	r := &relocated{location: []byte("L"), ReadCloser: in}
	for _, piece := range []string{"<?xml?>\n", " ", "<Result>", "<b>"} {
		go func() { _, _ = io.WriteString(w, piece) }()
		got := make([]byte, len(piece))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != piece {
			t.Errorf("%q, %v", got, err)
		}
	}
}
