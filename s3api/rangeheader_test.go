package s3api

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/gateway"
)

func TestParseRange(t *testing.T) {
	whole := gateway.Range{}
	for _, c := range []struct {
		header string
		want   gateway.Range
	}{
		{"bytes=0-0", gateway.FromTo(0, 0)},
		{"bytes=5-9", gateway.FromTo(5, 9)},
		{"bytes=005-0009", gateway.FromTo(5, 9)},
		{"bytes=0-9223372036854775807", gateway.FromTo(0, 1<<63-1)},
		{"bytes=7-", gateway.From(7)},
		{"bytes=-7", gateway.Suffix(7)},
		{"bytes=-0", gateway.Suffix(0)},
		// R06: what is no range is no header.
		{"bytes=0--1", whole}, {"bytes=5-2", whole}, {"bytes=abc", whole}, {"bytes=", whole}, {"bytes=1", whole},
		{"bytes=-", whole}, {"items=0-1", whole}, {"BYTES=0-1", whole}, {"Bytes=0-1", whole}, {"bytes = 0-1", whole},
		{"bytes=0-1;x", whole}, {"bytes=+1-2", whole}, {"bytes=1-+2", whole}, {"bytes=--1", whole}, {"bytes= 0-1", whole},
		{"bytes=0x1-2", whole}, {"bytes=1_0-20", whole}, {"", whole}, {"0-1", whole}, {"bytes=\u0661-2", whole},
		// R08: several ranges are none.
		{"bytes=0-9,20-29", whole}, {"bytes=0-9, 9-12", whole}, {"bytes=" + strings.Repeat("0-1,", 100) + "0-1", whole},
		{"bytes=0-9,", whole},
		// Beyond 64 bits.
		{"bytes=0-9223372036854775808", whole}, {"bytes=9223372036854775808-", whole},
		{"bytes=-9223372036854775808", whole}, {"bytes=0-99999999999999999999999", whole},
	} {
		if got := parseRange([]string{c.header}); got != c.want {
			t.Errorf("%q: %#v, want %#v", c.header, got, c.want)
		}
	}
	if got := parseRange(nil); got != whole {
		t.Errorf("no header: %v", got)
	}
	if got := parseRange([]string{"bytes=0-1", "bytes=0-1"}); got != whole {
		t.Errorf("two headers: %v", got)
	}
}

var rangeForm = regexp.MustCompile(`^bytes=([0-9]*)-([0-9]*)$`)

// rangeReference is the table of what S3 answers, written another way: by a regular expression and big integers, from
// header and size straight to the answer.
func rangeReference(header string, size int64) (status int, offset, length int64) {
	m := rangeForm.FindStringSubmatch(header)
	if m == nil || m[1] == "" && m[2] == "" {
		return 200, 0, size
	}
	limit := new(big.Int).Lsh(big.NewInt(1), 63)
	number := func(s string) (*big.Int, bool) {
		n, ok := new(big.Int).SetString("0"+s, 10)
		return n, ok && n.Cmp(limit) < 0
	}
	a, ok1 := number(m[1])
	b, ok2 := number(m[2])
	if !ok1 || !ok2 {
		return 200, 0, size
	}
	total, one := big.NewInt(size), big.NewInt(1)
	last := new(big.Int).Sub(total, one)
	switch {
	case m[1] == "":
		if b.Sign() == 0 {
			return 416, 0, 0
		}
		if size == 0 {
			return 200, 0, 0
		}
		if b.Cmp(total) > 0 {
			b = total
		}
		return 206, size - b.Int64(), b.Int64()
	case m[2] != "" && b.Cmp(a) < 0:
		return 200, 0, size
	case a.Cmp(total) >= 0:
		return 416, 0, 0
	case m[2] != "" && b.Cmp(last) < 0:
		last = b
	}
	n := new(big.Int).Sub(last, a)
	return 206, a.Int64(), n.Add(n, one).Int64()
}

// FuzzRange holds parseRange and gateway.Range.Resolve together against the reference.
func FuzzRange(f *testing.F) {
	for _, h := range []string{
		"bytes=0-0", "bytes=5-9", "bytes=7-", "bytes=-7", "bytes=-0", "bytes=0--1", "bytes=5-2", "bytes=-", "bytes=0-9,20-29",
		"BYTES=0-1", "bytes=0-9223372036854775807", "bytes=9223372036854775807-9223372036854775807",
		"bytes=0-9223372036854775808", "bytes=-9223372036854775807", "bytes=00000000000000000000000001-2",
		"bytes= 1-2", "bytes=1-2 ",
	} {
		for _, size := range []int64{0, 1, 10, 1<<63 - 1} {
			f.Add(h, size)
		}
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			size = -(size + 1)
		}
		status, offset, length := rangeReference(header, size)
		off, n, partial, err := parseRange([]string{header}).Resolve(size)
		got := 200
		switch {
		case err != nil:
			got, off, n = 416, 0, 0
		case partial:
			got = 206
		}
		if got != status || off != offset || n != length {
			t.Errorf("%q of %d bytes: %d [%d, +%d), want %d [%d, +%d)", header, size, got, off, n, status, offset, length)
		}
		if got == 206 {
			if n <= 0 || off < 0 || off > size-n {
				t.Errorf("%q of %d bytes: part [%d, +%d)", header, size, off, n)
			}
			want := fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, size)
			if s := string(appendContentRange(nil, off, n, size)); s != want {
				t.Errorf("Content-Range %q, want %q", s, want)
			}
		}
	})
}
