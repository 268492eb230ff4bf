package s3wiretest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// rangeCase is one Range header and what it makes of an object of a size. first > last says that the header is ignored,
// first < 0 that it is unsatisfiable.
type rangeCase struct {
	name        string
	size        int
	header      string
	first, last int
}

// What a range can come to, besides bytes.
const (
	ignored   = 1 // first, with last 0
	refused16 = -1
)

func ignoredRange(name string, size int, header string) rangeCase {
	return rangeCase{name, size, header, ignored, 0}
}

func badRange(name string, size int, header string) rangeCase {
	return rangeCase{name, size, header, refused16, 0}
}

// rangeRows are single ranges, each asked by GET and by HEAD.
func (e *env) rangeRows() []row {
	b := e.b
	cases := []rangeCase{
		{"first-last", 10, "bytes=2-5", 2, 5},
		{"first-on", 10, "bytes=4-", 4, 9},
		{"from-0-on", 10, "bytes=0-", 0, 9},
		{"suffix", 10, "bytes=-3", 7, 9},
		{"first-byte", 10, "bytes=0-0", 0, 0},
		{"last-byte", 10, "bytes=9-9", 9, 9},
		{"all-bytes", 10, "bytes=0-9", 0, 9},
		{"end-beyond-object", 10, "bytes=0-100", 0, 9},
		{"suffix-of-all", 10, "bytes=-10", 0, 9},
		{"suffix-beyond-object", 10, "bytes=-100", 0, 9},
		{"leading-zeros", 10, "bytes=0002-0005", 2, 5},
		{"largest-end", 10, "bytes=3-9223372036854775807", 3, 9},
		{"one-byte-object", 1, "bytes=0-0", 0, 0},
		{"one-byte-object-suffix", 1, "bytes=-1", 0, 0},
		badRange("one-byte-object-behind", 1, "bytes=1-"),
		badRange("suffix-zero", 10, "bytes=-0"),
		badRange("start-at-end", 10, "bytes=10-"),
		badRange("start-beyond", 10, "bytes=100-200"),
		badRange("largest-start", 10, "bytes=9223372036854775807-"),

		badRange("R04-empty-0-0", 0, "bytes=0-0"),
		badRange("R04-empty-0-on", 0, "bytes=0-"),
		badRange("R04-empty-0-99", 0, "bytes=0-99"),
		badRange("R04-empty-5-9", 0, "bytes=5-9"),
		ignoredRange("R05-empty-suffix", 0, "bytes=-1"),
		ignoredRange("R05-empty-long-suffix", 0, "bytes=-524288"),
		badRange("R05-empty-suffix-zero", 0, "bytes=-0"),

		ignoredRange("R08-two-ranges", 3*b, "bytes=0-9,20-29"),
		ignoredRange("R08-two-ranges-space", 3*b, "bytes=0-9, 9-12"),
		ignoredRange("R08-hundred-ranges", 3*b, "bytes="+strings.Repeat("0-1,", 99)+"4-5"),

		{"R09-clamped", 600, "bytes=500-1000", 500, 599},
		{"R09-last-byte-clamped", 600, "bytes=599-9999", 599, 599},
		badRange("R09-at-end", 600, "bytes=600-"),
		badRange("R09-behind-end", 600, "bytes=600-700"),
		{"R09-long-suffix", 600, "bytes=-9999", 0, 599},
		{"R09-last-byte-of-two-blocks", 2 * b, fmt.Sprintf("bytes=%d-", 2*b-1), 2*b - 1, 2*b - 1},
		badRange("R09-behind-two-blocks", 2*b, fmt.Sprintf("bytes=%d-", 2*b)),
		badRange("R09-block-behind-two-blocks", 2*b, fmt.Sprintf("bytes=%d-%d", 2*b, 3*b)),
		{"R09-byte-behind-two-blocks", 2*b + 1, fmt.Sprintf("bytes=%d-", 2*b), 2 * b, 2 * b},
		{"R09-clamped-behind-two-blocks", 2*b + 1, fmt.Sprintf("bytes=%d-%d", 2*b-1, 9*b), 2*b - 1, 2 * b},
		badRange("R09-behind-two-blocks-and-byte", 2*b+1, fmt.Sprintf("bytes=%d-", 2*b+1)),
	}
	for _, size := range []int{0, 10, 3 * b} {
		for _, bad := range []struct{ name, header string }{
			{"double-dash", "bytes=0--1"}, {"end-before-start", "bytes=5-2"}, {"letters", "bytes=abc"}, {"nothing", "bytes="},
			{"no-dash", "bytes=1"}, {"dash", "bytes=-"}, {"other-unit", "items=0-1"}, {"upper-case", "BYTES=0-1"},
			{"spaces", "bytes = 0-1"}, {"semicolon", "bytes=0-1;x"}, {"no-unit", "0-1"}, {"plus", "bytes=+0-1"},
			{"hex", "bytes=0x0-0x1"}, {"minus-suffix", "bytes=--1"},
		} {
			cases = append(cases, ignoredRange(fmt.Sprintf("R06-%s-of-%d", bad.name, size), size, bad.header))
		}
	}
	for _, over := range []struct{ name, header string }{
		{"end", "bytes=0-18446744073709551616"}, {"start", "bytes=99999999999999999999-"},
		{"suffix", "bytes=-99999999999999999999"}, {"signed-end", "bytes=0-9223372036854775808"},
	} {
		cases = append(cases, ignoredRange("overflow-"+over.name, 10, over.header))
	}
	var rows []row
	for _, c := range cases {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			name := "range/" + c.name
			if method == http.MethodHead {
				name = "head-range/" + c.name
			}
			rows = append(rows, row{name, func(t *testing.T, e *env) {
				o := e.put(t, c.size)
				e.expect(t, o, request{method: method, header: []string{"Range", c.header}}, c.want(o))
			}})
		}
	}
	return rows
}

func (c rangeCase) want(o *object) want {
	switch {
	case c.first < 0:
		return unsatisfied(o, c.header)
	case c.first > c.last:
		return whole(o)
	}
	return part(o, c.first, c.last)
}

// spanRows read across blocks, in many ways at once.
func (e *env) spanRows() []row {
	size := 3*e.b + e.b/2
	spans := func() [][2]int {
		b := e.b
		return [][2]int{
			{b * 6 / 10, b * 13 / 10}, {0, size - 1}, {b - 1, b}, {b, b}, {2 * b, 3*b - 1}, {0, b - 1}, {3 * b, size - 1},
			{b - 1, 3 * b}, {size - 1, size - 1}, {1, size - 2},
		}
	}
	ask := func(s [2]int) request {
		return request{header: []string{"Range", fmt.Sprintf("bytes=%d-%d", s[0], s[1])}}
	}
	rows := []row{
		{"span/whole", func(t *testing.T, e *env) {
			o := e.put(t, size)
			e.expect(t, o, request{}, whole(o).with("Transfer-Encoding", ""))
		}},
		{"span/whole-by-sizes", func(t *testing.T, e *env) {
			for _, n := range []int{0, 1, 10, 600, e.b - 1, e.b, e.b + 1, 2 * e.b, 2*e.b + 1} {
				o := e.put(t, n)
				e.expect(t, o, request{}, whole(o).with("Transfer-Encoding", ""))
			}
		}},
		{"span/R12-head-and-get", func(t *testing.T, e *env) {
			o := e.put(t, 3*e.b)
			e.expect(t, o, request{method: http.MethodHead}, whole(o))
			e.expect(t, o, request{header: []string{"Range", "bytes=0-9"}}, part(o, 0, 9))
			e.expect(t, o, request{method: http.MethodHead, header: []string{"Range", "bytes=0-9"}}, part(o, 0, 9))
			e.expect(t, o, request{}, whole(o))
		}},
		{"span/R13-head-has-a-length", func(t *testing.T, e *env) {
			for _, n := range []int{0, 1, size} {
				o := e.put(t, n)
				e.expect(t, o, request{method: http.MethodHead}, whole(o).with("Content-Length", fmt.Sprint(n)))
			}
		}},
	}
	for i, s := range spans() {
		rows = append(rows, row{fmt.Sprintf("span/R01-cold-%d", i), func(t *testing.T, e *env) {
			o := e.put(t, size)
			e.expect(t, o, ask(s), part(o, s[0], s[1]))
		}})
	}
	for _, warm := range []struct {
		name string
		of   func(b int) (first, last int)
	}{
		{"first-block", func(b int) (int, int) { return 0, b - 1 }},
		{"second-block", func(b int) (int, int) { return b, 2*b - 1 }},
		{"last-block", func(b int) (int, int) { return 3 * b, size - 1 }},
	} {
		rows = append(rows, row{"span/R01-after-" + warm.name, func(t *testing.T, e *env) {
			for _, s := range spans() {
				o := e.put(t, size)
				first, last := warm.of(e.b)
				e.expect(t, o, ask([2]int{first, last}), part(o, first, last))
				e.expect(t, o, ask(s), part(o, s[0], s[1]))
			}
		}})
	}
	return append(rows,
		row{"span/R01-by-many-readers", func(t *testing.T, e *env) { e.manyReaders(t, e.put(t, size), spans(), true) }},
		row{"span/R01-on-fresh-connections", func(t *testing.T, e *env) { e.manyReaders(t, e.put(t, size), spans(), false) }},
		row{"span/R01-random", func(t *testing.T, e *env) { e.randomSpans(t, e.put(t, size)) }},
	)
}

// manyReaders asks for all spans at once, many times over.
func (e *env) manyReaders(t *testing.T, o *object, spans [][2]int, keepAlive bool) {
	const readers, rounds = 16, 2
	type result struct {
		s [2]int
		a answer
	}
	results := make(chan result, readers*rounds*len(spans))
	var wg sync.WaitGroup
	for range readers {
		var requests []*http.Request
		var order [][2]int
		for range rounds {
			for _, s := range spans {
				r := request{bucket: o.bucket, key: o.key,
					header: []string{"Range", fmt.Sprintf("bytes=%d-%d", s[0], s[1])}}
				req := e.build(t, e.Endpoint, r)
				req.Close = !keepAlive
				requests, order = append(requests, req), append(order, s)
			}
		}
		wg.Go(func() {
			for i, req := range requests {
				resp, err := e.client.Do(req)
				if err != nil {
					results <- result{order[i], answer{err: err}}
					continue
				}
				results <- result{order[i], readAnswer(resp)}
			}
		})
	}
	wg.Wait()
	close(results)
	for r := range results {
		part(o, r.s[0], r.s[1]).check(t, fmt.Sprintf("bytes=%d-%d", r.s[0], r.s[1]), http.MethodGet, r.a)
		if t.Failed() {
			return
		}
	}
}

// randomSpans asks for ranges that no one thought of.
func (e *env) randomSpans(t *testing.T, o *object) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 64 {
		first := rnd.IntN(len(o.data))
		last := first + rnd.IntN(len(o.data)-first)
		r := request{bucket: o.bucket, key: o.key, header: []string{"Range", fmt.Sprintf("bytes=%d-%d", first, last)}}
		part(o, first, last).check(t, r.header[1], http.MethodGet, e.send(t, r))
	}
}
