package s3api

import (
	"math"
	"strings"

	"github.com/ashlar-s3/ashlar/gateway"
)

// parseRange reads a Range header as S3 does: one range of bytes counts, and everything else (several ranges, other
// units, an end before the start, numbers beyond 64 bits, whatever doesn't parse) is as if there were no header. RFC
// 9110 section 14.2 allows a server to ignore Range.
func parseRange(values []string) gateway.Range {
	if len(values) != 1 {
		return gateway.Range{}
	}
	spec, ok := strings.CutPrefix(values[0], "bytes=")
	if !ok {
		return gateway.Range{}
	}
	a, b, ok := strings.Cut(spec, "-")
	if !ok {
		return gateway.Range{}
	}
	if a == "" {
		if n, ok := parseDigits(b); ok {
			return gateway.Suffix(n)
		}
		return gateway.Range{}
	}
	first, ok := parseDigits(a)
	if !ok {
		return gateway.Range{}
	}
	if b == "" {
		return gateway.From(first)
	}
	last, ok := parseDigits(b)
	if !ok || last < first {
		return gateway.Range{}
	}
	return gateway.FromTo(first, last)
}

// parseDigits reads 1*DIGIT below 2^63. strconv would take a sign too.
func parseDigits(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
