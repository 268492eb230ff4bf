package sigv4

import (
	"errors"
	"strings"
)

// ErrMalformed is the error of a path or query that cannot be percent-decoded. ErrTooMany is the error of a query of
// more than 1000 parameters.
var (
	ErrMalformed = errors.New("malformed percent-encoding")
	ErrTooMany   = errors.New("too many query parameters")
)

// SplitTarget cuts a raw request target (http.Request.RequestURI) into the raw path and the raw query, neither decoded.
// It knows the origin-form and the absolute-form of RFC 9112 section 3.2, and reports false for every other target. The
// path of an absolute-form without one is "/".
func SplitTarget(target string) (rawPath, rawQuery string, ok bool) {
	if !strings.HasPrefix(target, "/") {
		// net/http takes the query from the first '?': a scheme that holds one would make two targets of this.
		scheme, rest, found := strings.Cut(target, "://")
		if !found || strings.ContainsAny(scheme, ":/?") {
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
func DecodePath(raw string) (string, error) { return decode(raw, pathPart) }

// EncodePath encodes a decoded path (or key) as AWS does: A-Z a-z 0-9 - . _ ~ and '/' stay, every other byte becomes
// %XX in upper case.
func EncodePath(path string) string {
	for i := 0; i < len(path); i++ {
		if !unreserved(path[i]) && path[i] != '/' {
			return string(appendEncoded(make([]byte, 0, len(path)+len(path)/2), path, pathPart))
		}
	}
	return path
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
// and empty pieces are skipped. The error is ErrMalformed or ErrTooMany.
func ParseQuery(rawQuery string) (Query, error) {
	if rawQuery == "" {
		return nil, nil
	}
	q := make(Query, 0, min(strings.Count(rawQuery, "&")+1, maxParams))
	for rawQuery != "" {
		var rawName, rawValue string
		var ok bool
		if rawName, rawValue, rawQuery, ok = cutParam(rawQuery); !ok {
			continue
		}
		if len(q) == maxParams {
			return nil, ErrTooMany
		}
		name, err := decode(rawName, queryPart)
		if err != nil {
			return nil, err
		}
		value, err := decode(rawValue, queryPart)
		if err != nil {
			return nil, err
		}
		q = append(q, Param{name, value})
	}
	return q, nil
}

// cutParam cuts the first parameter off a raw query that is not empty; ok is false for an empty piece.
func cutParam(rawQuery string) (rawName, rawValue, rest string, ok bool) {
	piece, rest, _ := strings.Cut(rawQuery, "&")
	rawName, rawValue, _ = strings.Cut(piece, "=")
	return rawName, rawValue, rest, piece != ""
}

// part is the part of a URI that is decoded or encoded; the rules differ by one byte each.
type part bool

const (
	pathPart  part = false // '+' is itself, '/' is not encoded
	queryPart part = true  // '+' is a space, '/' is encoded
)

// decode percent-decodes s; it allocates only if something is encoded.
func decode(s string, p part) (string, error) {
	if strings.IndexByte(s, '%') < 0 && (p == pathPart || strings.IndexByte(s, '+') < 0) {
		return s, nil
	}
	var b strings.Builder
	b.Grow(len(s))
	for s != "" {
		c, n := decodeByte(s, p)
		if n == 0 {
			return "", ErrMalformed
		}
		b.WriteByte(c)
		s = s[n:]
	}
	return b.String(), nil
}

// decodeByte decodes the first byte of s, which is not empty. n is the number of bytes it took, 0 if malformed.
func decodeByte(s string, p part) (c byte, n int) {
	switch {
	case s[0] == '+' && p == queryPart:
		return ' ', 1
	case s[0] != '%':
		return s[0], 1
	case len(s) < 3:
		return 0, 0
	}
	hi, lo := unhex(s[1]), unhex(s[2])
	if hi > 15 || lo > 15 {
		return 0, 0
	}
	return hi<<4 | lo, 3
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

func appendEncoded(b []byte, s string, p part) []byte {
	for i := 0; i < len(s); i++ {
		b = appendEncodedByte(b, s[i], p)
	}
	return b
}

func appendEncodedByte(b []byte, c byte, p part) []byte {
	const upper = "0123456789ABCDEF"
	if unreserved(c) || c == '/' && p == pathPart {
		return append(b, c)
	}
	return append(b, '%', upper[c>>4], upper[c&15])
}

// appendCanonical appends what appendEncoded appends for the decoded s, without decoding it first. It reports false if
// s is malformed.
func appendCanonical(b []byte, s string, p part) ([]byte, bool) {
	for s != "" {
		// Nearly everything is a run of bytes that stand for themselves.
		n := 0
		for n < len(s) && (unreserved(s[n]) || s[n] == '/' && p == pathPart) {
			n++
		}
		b, s = append(b, s[:n]...), s[n:]
		if s == "" {
			break
		}
		c, n := decodeByte(s, p)
		if n == 0 {
			return b, false
		}
		b, s = appendEncodedByte(b, c, p), s[n:]
	}
	return b, true
}

// unreserved says whether c is an unreserved character of RFC 3986 section 2.3.
func unreserved(c byte) bool {
	const (
		digits  = (1<<10 - 1) << '0'
		letters = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64)
		low     = uint64(digits | 1<<'-' | 1<<'.')            // bytes 0 to 63
		high    = uint64(letters | 1<<('_'-64) | 1<<('~'-64)) // bytes 64 to 127
	)
	return c < 64 && low>>c&1 != 0 || c >= 64 && c < 128 && high>>(c-64)&1 != 0
}
