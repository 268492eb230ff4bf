package sigv4

import (
	"errors"
	"net/http"
	"strings"
)

// ErrMalformed is the error of a path or query that cannot be percent-decoded.
var ErrMalformed = errors.New("malformed percent-encoding")

// SplitTarget cuts a raw request target (http.Request.RequestURI) into the raw path and the raw query, neither decoded.
// It knows the origin-form and the absolute-form of RFC 9112 section 3.2, and reports false for every other target. The
// path of an absolute-form without one is "/".
func SplitTarget(target string) (rawPath, rawQuery string, ok bool) {
	if !strings.HasPrefix(target, "/") {
		_, rest, found := strings.Cut(target, "://")
		if !found {
			return "", "", false
		}
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			return "/", "", true
		}
		target = rest[i:]
	}
	rawPath, rawQuery, _ = strings.Cut(target, "?")
	if rawPath == "" {
		rawPath = "/"
	}
	return rawPath, rawQuery, true
}

// DecodePath percent-decodes a raw path once. '+' stays a plus, and nothing is normalised. The error is ErrMalformed.
func DecodePath(raw string) (string, error) {
	return decode(raw, false)
}

// EncodePath encodes a decoded path (or key) as AWS does: A-Z a-z 0-9 - . _ ~ and '/' stay, every other byte becomes %XX
// in upper case.
func EncodePath(path string) string {
	b := make([]byte, 0, len(path)+len(path)/2)
	return string(appendEncoded(b, path, true))
}

// CanonicalPath is the path that a signature covers: EncodePath(DecodePath(raw)), "/" for an empty one. All encodings of
// a path have one canonical path. The error is ErrMalformed.
func CanonicalPath(raw string) (string, error) {
	p, err := DecodePath(raw)
	if err != nil {
		return "", err
	}
	if p == "" {
		return "/", nil
	}
	return EncodePath(p), nil
}

// Param is one parameter of a query, decoded.
type Param struct{ Name, Value string }

// Query is the parameters of a query in the order they were received.
type Query []Param

// Get returns the value of the first parameter called name, and whether there is one. Names are case-sensitive.
func (q Query) Get(name string) (value string, ok bool) {
	for _, p := range q {
		if p.Name == name {
			return p.Value, true
		}
	}
	return "", false
}

// ParseQuery decodes a raw query as S3 does: '&' separates, '+' is a space, ';' is data, a bare name has the value "",
// and empty pieces are skipped. The error is ErrMalformed.
func ParseQuery(rawQuery string) (Query, error) {
	var q Query
	for rawQuery != "" {
		var piece string
		piece, rawQuery, _ = strings.Cut(rawQuery, "&")
		if piece == "" {
			continue
		}
		n, v, _ := strings.Cut(piece, "=")
		name, err := decode(n, true)
		if err != nil {
			return nil, err
		}
		value, err := decode(v, true)
		if err != nil {
			return nil, err
		}
		q = append(q, Param{name, value})
	}
	return q, nil
}

// HasAuth says whether r carries any authentication: an Authorization header that is not empty, or parameters of SigV4
// or SigV2 in its query. A request without any is anonymous. A query that cannot be decoded counts as authentication, so
// that Verify gets to refuse it.
func HasAuth(r *http.Request) bool {
	for _, a := range r.Header["Authorization"] {
		if a != "" {
			return true
		}
	}
	_, rawQuery, _ := SplitTarget(r.RequestURI)
	q, err := ParseQuery(rawQuery)
	if err != nil {
		return true
	}
	for _, p := range q {
		switch p.Name {
		case "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "AWSAccessKeyId", "Signature":
			return true
		}
	}
	return false
}

func decode(s string, plus bool) (string, error) {
	if strings.IndexByte(s, '%') < 0 && !(plus && strings.IndexByte(s, '+') >= 0) {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+' && plus:
			c = ' '
		case c == '%':
			if i+2 >= len(s) {
				return "", ErrMalformed
			}
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi > 15 || lo > 15 {
				return "", ErrMalformed
			}
			c = hi<<4 | lo
			i += 2
		}
		b = append(b, c)
	}
	return string(b), nil
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

func appendEncoded(b []byte, s string, slash bool) []byte {
	const upper = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '.', c == '_', c == '~', c == '/' && slash:
			b = append(b, c)
		default:
			b = append(b, '%', upper[c>>4], upper[c&15])
		}
	}
	return b
}
