package devs3

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// call is one request on its way through the server. It belongs to the goroutine that serves it.
type call struct {
	s *Server
	r *http.Request
	w *writer

	op         string // the operation's name in S3's API, "" when there is none
	bucket     string // "" for the service
	key        string // "" for the bucket itself
	addressErr error  // what was wrong with the address, reported once the request is authenticated
	query      query

	id, id2 string // x-amz-request-id, x-amz-id-2

	// Set by the authenticator.
	signed  bool // the request carries a signature (a good one, where Keys are configured)
	payload payload

	ignoreRange bool // a fault says so
}

func (s *Server) newCall(w http.ResponseWriter, r *http.Request) *call {
	c := &call{s: s, r: r, w: &writer{w: w, left: -1}}
	c.id, c.id2 = newRequestIDs()
	c.w.c = c
	path, rawQuery := requestTarget(r)
	c.query = parseQuery(rawQuery)
	c.bucket, c.key, c.addressErr = s.address(r.Host, path)
	c.op = c.operation()
	return c
}

// requestTarget returns the path and the query as they came over the wire.
func requestTarget(r *http.Request) (path, rawQuery string) {
	target := r.RequestURI
	if target == "" { // a request made in process, without a wire
		target = r.URL.RequestURI()
	}
	if _, rest, ok := strings.Cut(target, "://"); ok && !strings.HasPrefix(target, "/") {
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			return "/", ""
		}
		target = rest[i:]
	}
	path, rawQuery, _ = strings.Cut(target, "?")
	if path == "" {
		path = "/"
	}
	return path, rawQuery
}

// maxKey is the longest key, in bytes of UTF-8 (S3 user guide, "Naming objects").
const maxKey = 1024

// address cuts a raw path into bucket and key. Only the first slash after the bucket is a separator; everything behind
// it is the key, decoded once and otherwise as it is.
func (s *Server) address(host, path string) (bucket, key string, err error) {
	rest := strings.TrimPrefix(path, "/")
	bucket = s.hostBucket(host)
	if bucket == "" {
		bucket, rest, _ = strings.Cut(rest, "/")
		if bucket, err = decodePath(bucket, false); err != nil {
			return "", "", err
		}
	}
	if key, err = decodePath(rest, s.cfg.PlusIsSpace); err != nil {
		return bucket, "", err
	}
	if len(key) > maxKey {
		return bucket, key, newError(http.StatusBadRequest, "KeyTooLongError", "Your key is too long").
			with("Size", fmt.Sprint(len(key))).with("MaxSizeAllowed", fmt.Sprint(maxKey))
	}
	return bucket, key, nil
}

// hostBucket is the bucket that a host name below one of the configured domains names, "" for none.
func (s *Server) hostBucket(host string) string {
	if !strings.HasPrefix(host, "[") { // an IPv6 literal names no bucket
		host, _, _ = strings.Cut(host, ":")
	}
	host = strings.ToLower(host)
	for _, d := range s.domains {
		if host == d {
			return ""
		}
		if bucket, ok := strings.CutSuffix(host, "."+d); ok {
			return bucket
		}
	}
	return ""
}

func sortDomains(domains []string) []string {
	var out []string
	for _, d := range domains {
		if d = strings.Trim(strings.ToLower(d), "."); d != "" {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// decodePath percent-decodes once. S3 keys are UTF-8.
func decodePath(raw string, plusIsSpace bool) (string, error) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '%':
			if i+2 >= len(raw) {
				return "", errInvalidURI()
			}
			b, err := hex.DecodeString(raw[i+1 : i+3])
			if err != nil {
				return "", errInvalidURI()
			}
			out = append(out, b[0])
			i += 2
		case c == '+' && plusIsSpace:
			out = append(out, ' ')
		default:
			out = append(out, c)
		}
	}
	if !utf8.Valid(out) {
		return "", errInvalidURI()
	}
	return string(out), nil
}

// query is the decoded query, in the order of the wire. Names keep their case: versionId is not versionid.
type query []struct{ name, value string }

// parseQuery splits at '&' alone; '+' is a space, ';' is data, a bare name has an empty value, and what can't be
// decoded stays as it is.
func parseQuery(raw string) query {
	var q query
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		q = append(q, struct{ name, value string }{decodeQuery(name), decodeQuery(value)})
	}
	return q
}

func decodeQuery(s string) string {
	s = strings.ReplaceAll(s, "+", " ")
	d, err := decodePath(s, false)
	if err != nil {
		return s
	}
	return d
}

func (q query) has(name string) bool {
	_, ok := q.lookup(name)
	return ok
}

// get is the first value of a name, "" for none.
func (q query) get(name string) string {
	v, _ := q.lookup(name)
	return v
}

func (q query) lookup(name string) (string, bool) {
	for _, p := range q {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// validBucket follows the S3 user guide, "Bucket naming rules", short of the reserved prefixes and suffixes.
func validBucket(name string) bool {
	if len(name) < 3 || len(name) > 63 || strings.Contains(name, "..") {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '.' || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return true
}

func newRequestIDs() (id, id2 string) {
	var b [56]byte
	rand.Read(b[:])
	return strings.ToUpper(hex.EncodeToString(b[:8])), base64.StdEncoding.EncodeToString(b[8:])
}
