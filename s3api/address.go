package s3api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// maxKey is the longest key in bytes, decoded (S3 User Guide, "Naming Amazon S3 objects").
const maxKey = 1024

// level is what a request is addressed to.
type level uint8

const (
	atService level = iota
	atBucket
	atObject
	numLevels
)

// address is what a request target names. At service level all is empty, at bucket level the key.
type address struct {
	origin.Object
	rawKey string // percent-encoded, exactly as the client spelled it
}

func (a *address) level() level {
	switch {
	case a.Bucket == "":
		return atService
	case a.rawKey == "":
		return atBucket
	}
	return atObject
}

// resource is the <Resource> of errors.
func (a *address) resource() string {
	switch a.level() {
	case atService:
		return "/"
	case atBucket:
		return "/" + a.Bucket
	}
	return "/" + a.Bucket + "/" + a.Key
}

// hosts are the domains whose subdomains are buckets: in lower case with a leading dot, the longest first.
type hosts []string

func newHosts(domains []string) (hosts, error) {
	var h hosts
	for _, d := range domains {
		d = strings.ToLower(strings.Trim(d, "."))
		if d == "" || strings.ContainsAny(d, "/:@ ") {
			return nil, fmt.Errorf("%q is not a domain: a host name without port is expected", d)
		}
		h = append(h, "."+d)
	}
	slices.SortFunc(h, func(a, b string) int { return len(b) - len(a) })
	return h, nil
}

// bucket returns the part of a Host header in front of the longest domain it is below, in lower case, with any port
// taken off. "" means path-style: the host is a domain itself, or not known, or an address.
func (h hosts) bucket(host string) string {
	if len(h) == 0 {
		return ""
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") { // an IPv6 literal keeps its colons
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	for _, domain := range h {
		if n := len(host) - len(domain); n >= 0 && strings.EqualFold(host[n:], domain) {
			if n == 0 {
				return "." // ".s3.example.com": addressed to a bucket, but to none that can exist
			}
			return strings.ToLower(host[:n])
		}
		if strings.EqualFold(host, domain[1:]) {
			return ""
		}
	}
	return ""
}

// resolve cuts a raw path into bucket and key. The path has not been cleaned, and is decoded once, after cutting.
func (h hosts) resolve(host, rawPath string) (address, error) {
	var a address
	rest := strings.TrimPrefix(rawPath, "/")
	if b := h.bucket(host); b != "" {
		a.Bucket, a.rawKey = b, rest
	} else {
		rawBucket, rawKey, _ := strings.Cut(rest, "/")
		b, err := sigv4.DecodePath(rawBucket)
		if err != nil {
			return address{}, errInvalidURI
		}
		if b == "" {
			if rawKey != "" { // "//key"
				return address{}, errBucketName("")
			}
			return address{}, nil
		}
		a.Bucket, a.rawKey = b, rawKey
	}
	if !validBucket(a.Bucket) {
		return address{}, errBucketName(a.Bucket)
	}
	key, err := sigv4.DecodePath(a.rawKey)
	if err != nil {
		return address{}, errInvalidURI
	}
	if len(key) > maxKey {
		return address{}, errKeyTooLong(len(key))
	}
	a.Key = key
	if strings.IndexByte(a.rawKey, '+') >= 0 {
		// A plus to most servers, a space to AWS: which object that is only the origin knows.
		a.Raw = a.rawKey
	}
	return a, nil
}

// validBucket checks a name by S3's rules for general purpose buckets. It keeps names out that would mean something
// else in a host name or a path; "-" and all that is below "/-/" is too short to be one.
func validBucket(name string) bool {
	if len(name) < 3 || len(name) > 63 {
		return false
	}
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	if !alnum(name[0]) || !alnum(name[len(name)-1]) {
		return false
	}
	dots, other := 0, 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if name[i-1] == '.' { // the first byte is none
				return false
			}
			dots++
		case c < '0' || c > '9':
			if c != '-' && !alnum(c) {
				return false
			}
			other++
		}
	}
	return !(dots == 3 && other == 0) // not like an IPv4 address
}
