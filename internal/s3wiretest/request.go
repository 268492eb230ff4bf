package s3wiretest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// request is one request, down to the bytes of its path.
type request struct {
	method string // "" is GET
	bucket string // "" is the run's
	key    string // encoded as clients do, unless raw is set
	raw    string // the key as it goes over the wire
	query  string // as it goes over the wire, without '?'
	header []string
	body   []byte

	unsigned  []string // headers that the signature does not cover
	anonymous bool     // without authentication
	presign   int      // seconds that the URL is good for; 0 signs in a header
	at        time.Duration
	host      string       // Host header; "" is the URL's, or the bucket's where VirtualHosted
	style     addressStyle // zero follows Target.VirtualHosted
	sign      func(*signing)
	tamper    func(*http.Request) // after signing
}

type addressStyle int

const (
	styleOfTarget addressStyle = iota
	stylePath
	styleHost
)

// signing is what a request is signed with; rows about authentication change it.
type signing struct {
	accessKey, secretKey, region, service string
	time                                  time.Time
	payload                               string // x-amz-content-sha256
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // of the body: it is not all there
}

// build makes a request to an endpoint.
func (e *env) build(t *testing.T, ep Endpoint, r request) *http.Request {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodGet
	}
	if r.bucket == "" {
		r.bucket = e.bucket
	}
	if r.raw == "" {
		r.raw = encodePath(r.key)
	}
	virtual := r.style == styleHost || r.style == styleOfTarget && e.VirtualHosted && ep == e.Endpoint
	base, err := url.Parse(ep.URL)
	if err != nil {
		t.Fatal(err)
	}
	path := "/" + r.bucket + "/" + r.raw
	if r.bucket == "-" { // the service
		path = "/" + r.raw
	}
	if virtual {
		path = "/" + r.raw
		if r.host == "" {
			r.host = r.bucket + "." + e.Domain + ":" + base.Port()
		}
	}
	req := newRequest(t, r.method, ep.URL, path, r.query, r.body)
	if r.host != "" {
		req.Host = r.host
	}
	for i := 0; i < len(r.header); i += 2 {
		req.Header.Add(r.header[i], r.header[i+1])
	}
	if ep.AccessKey != "" && !r.anonymous {
		e.sign(t, ep, r, req, path)
	}
	for i := 0; i < len(r.unsigned); i += 2 {
		req.Header.Add(r.unsigned[i], r.unsigned[i+1])
	}
	if r.tamper != nil {
		r.tamper(req)
	}
	return req
}

// newRequest makes a request whose target is path?query to the byte.
func newRequest(t *testing.T, method, base, path, query string, body []byte) *http.Request {
	t.Helper()
	decoded, err := url.PathUnescape(path)
	if err != nil {
		t.Fatal(err)
	}
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base, in)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = decoded, path, query
	if got := req.URL.EscapedPath(); got != path {
		t.Fatalf("the path %q would go out as %q", path, got)
	}
	return req
}

// sign signs what S3 takes the request for: path and query are canonicalised here, so that the wire may spell them in
// other ways.
func (e *env) sign(t *testing.T, ep Endpoint, r request, req *http.Request, path string) {
	t.Helper()
	s := signing{ep.AccessKey, ep.SecretKey, ep.Region, "s3", time.Now().Add(r.at), "UNSIGNED-PAYLOAD"}
	if r.presign == 0 {
		sum := sha256.Sum256(r.body)
		s.payload = hex.EncodeToString(sum[:])
	}
	if r.sign != nil {
		r.sign(&s)
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		t.Fatal(err)
	}
	query := canonicalQuery(req.URL.RawQuery)
	if r.presign != 0 {
		query = join(query, "X-Amz-Expires="+strconv.Itoa(r.presign))
	} else {
		req.Header.Set("X-Amz-Content-Sha256", s.payload)
	}
	c := newRequest(t, req.Method, ep.URL, encodePath(decoded), query, nil)
	c.Host, c.Header, c.ContentLength = req.Host, req.Header.Clone(), req.ContentLength
	credentials := aws.Credentials{AccessKeyID: s.accessKey, SecretAccessKey: s.secretKey}
	raw := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }
	signer := v4.NewSigner(raw)
	if r.presign == 0 {
		err = signer.SignHTTP(context.Background(), credentials, c, s.payload, s.service, s.region, s.time)
		req.Header = c.Header
	} else {
		var signed string
		signed, _, err = signer.PresignHTTP(context.Background(), credentials, c, s.payload, s.service, s.region, s.time)
		_, signedQuery, _ := strings.Cut(signed, "?")
		req.URL.RawQuery = signedQuery
	}
	if err != nil {
		t.Fatal(err)
	}
}

func join(query, more string) string {
	if query == "" {
		return more
	}
	return query + "&" + more
}

// canonicalQuery spells a query so that every parser reads it as S3 reads it: '+' is a space and ';' is data.
func canonicalQuery(raw string) string {
	out := ""
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		out = join(out, encodeQuery(name)+"="+encodeQuery(value))
	}
	return out
}

func encodeQuery(raw string) string {
	decoded, err := url.QueryUnescape(raw)
	if err != nil {
		decoded = raw
	}
	return strings.ReplaceAll(encodePath(decoded), "/", "%2F")
}

// encodePath percent-encodes as AWS does: all but unreserved characters and slashes.
func encodePath(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// send sends a request to the target and reads its whole answer.
func (e *env) send(t *testing.T, r request) answer {
	t.Helper()
	return e.exchange(t, e.build(t, e.Endpoint, r))
}

func (e *env) exchange(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	return readAnswer(resp)
}

func readAnswer(resp *http.Response) answer {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	h := resp.Header
	if len(resp.TransferEncoding) > 0 { // net/http takes it out
		h.Set("Transfer-Encoding", strings.Join(resp.TransferEncoding, ","))
	}
	return answer{resp.StatusCode, h, b, err}
}

// origin sends a request to the origin; the row fails when it is refused.
func (e *env) origin(t *testing.T, r request) answer {
	t.Helper()
	r.style = stylePath
	a := e.exchange(t, e.build(t, e.Origin, r))
	if a.err != nil || a.status >= 300 {
		t.Fatalf("preparing: %s %s/%s at the origin: %d %s %v", r.method, r.bucket, r.key, a.status, a.body, a.err)
	}
	return a
}

// element is the text of the first element of a name in an XML answer.
func (a answer) element(name string) string {
	d := xml.NewDecoder(bytes.NewReader(a.body))
	for {
		tok, err := d.Token()
		if err != nil {
			return ""
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == name {
			var text string
			if d.DecodeElement(&text, &s) != nil {
				return ""
			}
			return text
		}
	}
}
