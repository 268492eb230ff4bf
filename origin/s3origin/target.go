package s3origin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/ashlar-s3/ashlar/origin"
)

// endpoint is where requests go. Immutable.
type endpoint struct {
	scheme        string
	host          string // with port, but for the scheme's default one: signatures cover what is sent as Host
	base          string // path before the bucket: "" or "/x/y", percent-encoded
	virtualHosted bool
}

func (e endpoint) String() string { return e.scheme + "://" + e.host + e.base }

// parseEndpoint parses Config.Endpoint.
func parseEndpoint(s, region string, virtualHosted bool) (endpoint, error) {
	if s == "" {
		domain := "amazonaws.com"
		if strings.HasPrefix(region, "cn-") {
			domain += ".cn"
		}
		s = "https://s3." + region + "." + domain
	}
	bad := func(what string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("s3origin: endpoint %q: %s", s, what)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		// Not the error of url.Parse, which would repeat a password.
		return endpoint{}, errors.New("s3origin: endpoint is not a URL such as https://s3.example.com")
	case u.User != nil:
		return endpoint{}, errors.New("s3origin: endpoint has a user name in it; credentials are set apart")
	case (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return bad("must be http://host or https://host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("must have no query and no fragment")
	}
	e := endpoint{scheme: u.Scheme, host: strings.ToLower(u.Host), base: strings.TrimRight(u.EscapedPath(), "/")}
	switch port := u.Port(); {
	case port == "":
		e.host = strings.TrimSuffix(e.host, ":")
	case port == "443" && u.Scheme == "https", port == "80" && u.Scheme == "http":
		e.host = strings.TrimSuffix(e.host, ":"+port)
	default:
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return bad("no such port")
		}
	}
	_, err = netip.ParseAddr(strings.Trim(u.Hostname(), "[]"))
	e.virtualHosted = virtualHosted && err != nil
	return e, nil
}

// place returns the host that a request goes to and its path as it is sent. bucket "" is the service; rawKey is
// percent-encoded, "" being the bucket.
func (e endpoint) place(bucket, rawKey string) (host, path string, err error) {
	switch {
	case bucket == "":
		if rawKey != "" {
			return "", "", errors.New("s3origin: a key without a bucket")
		}
		return e.host, e.base + "/", nil
	case !validBucket(bucket):
		return "", "", badRequest("InvalidBucketName", "The specified bucket is not valid.")
	case e.virtualHosted && hostBucket(bucket, e.scheme == "https"):
		return bucket + "." + e.host, e.base + "/" + rawKey, nil
	case rawKey == "":
		return e.host, e.base + "/" + bucket, nil
	}
	return e.host, e.base + "/" + bucket + "/" + rawKey, nil
}

// url builds a URL that net/http sends byte for byte: host and path as given, path beginning with a slash.
func (o *Origin) url(host, path string) *url.URL {
	u := &url.URL{Scheme: o.endpoint.scheme, Host: host}
	switch {
	case o.proxied != nil && o.proxied(u):
		u.Opaque = "//" + host + path // the absolute form, which a plain-http proxy wants
	case strings.HasPrefix(path, "//"):
		// Opaque would be taken for the absolute form. RawPath is sent as it is when it is a valid encoding of Path,
		// and replaced by another encoding of the same key when it isn't.
		u.RawPath = path
		if decoded, err := url.PathUnescape(path); err == nil {
			u.Path = decoded
		}
	default:
		u.Opaque = path
	}
	return u
}

// badRequest is the refusal of a request that must not be sent, worded as S3 would.
func badRequest(code, message string) *origin.Error {
	return &origin.Error{
		Status: http.StatusBadRequest,
		Code:   code,
		Header: []origin.Header{{Name: "Content-Type", Value: "application/xml"}},
		Body: []byte("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code><Message>" + message +
			"</Message></Error>"),
	}
}

// checkTarget refuses what would make another request of the one that is meant: a path or query that a request line
// can't hold, and a path with a query in it.
func checkTarget(path, query string) error {
	for _, s := range []string{path, query} {
		for i := range len(s) {
			if s[i] <= ' ' || s[i] == 0x7f {
				return badRequest("InvalidURI", "Couldn't parse the specified URI.")
			}
		}
	}
	if strings.Contains(path, "?") {
		return badRequest("InvalidURI", "Couldn't parse the specified URI.")
	}
	return nil
}

// validBucket says whether a bucket name may go into a path: the letters of S3's rules past and present ("Bucket naming
// rules", the old us-east-1 ones included), in any length that other servers may allow, and no dot segment.
func validBucket(b string) bool {
	if b == "" || len(b) > 255 || b == "." || b == ".." {
		return false
	}
	for i := range len(b) {
		if c := b[i]; !isAlnum(c) && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// hostBucket says whether a bucket name may go into a host name: DNS labels in lower case, and over TLS one label only,
// as a wildcard certificate covers no more.
func hostBucket(b string, overTLS bool) bool {
	if len(b) > 63 || (overTLS && strings.Contains(b, ".")) || net.ParseIP(b) != nil {
		return false
	}
	for label := range strings.SplitSeq(b, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlnum(c) && c != '-' || 'A' <= c && c <= 'Z' {
				return false
			}
		}
	}
	return true
}

// rangeHeader is bytes=off-last, with last kept within 63 bits.
func rangeHeader(off, length int64) string {
	last := off + length - 1
	if last < off {
		last = 1<<63 - 1
	}
	return "bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(last, 10)
}

// encode percent-encodes s as AWS does, once: all but A-Z a-z 0-9 - . _ ~ and, with slashes set, '/' (S3 documentation,
// "Signature calculations for the Authorization header", UriEncode).
func encode(s string, slashes bool) string {
	const hex = "0123456789ABCDEF"
	n := 0
	for i := range len(s) {
		if !plain(s[i], slashes) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	p := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c, slashes) {
			p = append(p, c)
		} else {
			p = append(p, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(p)
}

func plain(c byte, slashes bool) bool {
	return isAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~' || (slashes && c == '/')
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// canonicalPath is AWS-encode(decode(path)): what both sides sign, however the path was spelled.
func canonicalPath(path string) (string, error) {
	decoded, err := url.PathUnescape(path) // '+' stays a plus
	if err != nil {
		return "", badRequest("InvalidURI", "Couldn't parse the specified URI.")
	}
	return encode(decoded, true), nil
}

// param is one parameter of a query: as it came, and decoded by S3's rules, which net/url's differ from: '+' is a
// space, ';' is data, a bare name has the value "".
type param struct{ raw, name, value string }

func parseQuery(raw string) []param {
	var params []param
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		params = append(params, param{part, unescapeQuery(name), unescapeQuery(value)})
	}
	return params
}

// unescapeQuery leaves what is no escape as it is: the origin is to judge it.
func unescapeQuery(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// canonicalQuery encodes parameters so that the signer, which parses them again, sees the same ones.
func canonicalQuery(params []param) string {
	var b strings.Builder
	for i, p := range params {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(encode(p.name, false))
		b.WriteByte('=')
		b.WriteString(encode(p.value, false))
	}
	return b.String()
}
