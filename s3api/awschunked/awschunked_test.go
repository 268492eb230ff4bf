package awschunked

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// published is the signing of the examples in the S3 API reference.
func published(seed string) *Signing {
	key := []byte("AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	for _, s := range []string{"20130524", "us-east-1", "s3", "aws4_request"} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(s))
		key = mac.Sum(nil)
	}
	return &Signing{Key: [32]byte(key), Date: "20130524T000000Z", Scope: "20130524/us-east-1/s3/aws4_request", Seed: seed}
}

// The examples of the S3 API reference: 65 KiB of the letter a in chunks of 64 KiB, without and with a trailer.
func TestPublishedExamples(t *testing.T) {
	as := strings.Repeat("a", 65*1024)
	frame := func(one, two, last, trailer string) string {
		return "10000;chunk-signature=" + one + "\r\n" + as[:65536] + "\r\n400;chunk-signature=" + two + "\r\n" +
			as[:1024] + "\r\n0;chunk-signature=" + last + "\r\n" + trailer + "\r\n"
	}
	plain := frame("ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
		"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
		"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9", "")
	c := Config{Signing: published("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"), Length: 66560}
	got, err := io.ReadAll(NewReader(strings.NewReader(plain), c))
	if err != nil || string(got) != as {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	trailer := frame("b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
		"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
		"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
		"x-amz-checksum-crc32c:sOO8/Q==\r\n"+
			"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n")
	c = Config{Signing: published("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"), Length: 66560,
		Trailer: "x-amz-checksum-crc32c"}
	r := NewReader(strings.NewReader(trailer), c)
	got, err = io.ReadAll(r)
	if err != nil || string(got) != as || r.Trailer() != "sOO8/Q==" {
		t.Errorf("%d bytes, trailer %q, %v", len(got), r.Trailer(), err)
	}
	// One bit anywhere but in the case of hex digits and names, and it is no longer true.
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		bad := []byte(trailer)
		i := rng.IntN(len(bad))
		if j := rng.IntN(4); j == 0 { // most bytes are the letter a: look at the frame too
			i = rng.IntN(90)
		} else if j == 1 {
			i = len(bad) - 1 - rng.IntN(300)
		}
		bad[i] ^= 1 << rng.IntN(5)
		if got, err := io.ReadAll(NewReader(bytes.NewReader(bad), c)); err == nil {
			t.Errorf("byte %d as %q: %d bytes without an error", i, bad[i], len(got))
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		name, body string
		config     Config
		want       error
	}{
		{"nothing", "", Config{}, ErrFraming},
		{"cut in a size", "5", Config{Length: 5}, ErrFraming},
		{"cut in a chunk", "5\r\nhel", Config{Length: 5}, ErrFraming},
		{"cut after a chunk", "5\r\nhello", Config{Length: 5}, ErrFraming},
		{"no last chunk", "5\r\nhello\r\n", Config{Length: 5}, ErrFraming},
		{"no end", "5\r\nhello\r\n0\r\n", Config{Length: 5}, ErrFraming},
		{"no size", "\r\nhello\r\n0\r\n\r\n", Config{Length: 5}, ErrFraming},
		{"sign", "+5\r\nhello\r\n0\r\n\r\n", Config{Length: 5}, ErrFraming},
		{"0x", "0x5\r\nhello\r\n0\r\n\r\n", Config{Length: 5}, ErrFraming},
		{"space", "5 \r\nhello\r\n0\r\n\r\n", Config{Length: 5}, ErrFraming},
		{"line feeds", "5\nhello\n0\n\n", Config{Length: 5}, ErrFraming},
		{"size too large", "ffffffffffffffff\r\nhello", Config{Length: 5}, ErrFraming},
		{"longer than its size", "4\r\nhello\r\n0\r\n\r\n", Config{Length: 4}, ErrFraming},
		{"more than announced", "5\r\nhello\r\n0\r\n\r\n", Config{Length: 4}, ErrLength},
		{"more than announced, and cut", "5\r\nhel", Config{Length: 4}, ErrFraming},
		{"more than announced, and longer than its size", "5\r\nhello!\r\n0\r\n\r\n", Config{Length: 4}, ErrFraming},
		{"far more than announced", "7fffffffffffff\r\nhello", Config{Length: 4}, ErrLength},
		{"less than announced", "5\r\nhello\r\n0\r\n\r\n", Config{Length: 6}, ErrLength},
		{"after the end", "5\r\nhello\r\n0\r\n\r\nGET", Config{Length: 5}, ErrFraming},
		{"extension", "5;a=b\r\nhello\r\n0\r\n\r\n", Config{Length: 5}, ErrFraming},
		{"signatures unasked for", "0;chunk-signature=" + strings.Repeat("0", 64) + "\r\n\r\n", Config{}, ErrFraming},
		{"no signatures", "5\r\nhello\r\n0\r\n\r\n", Config{Length: 5, Signing: published("x")}, ErrFraming},
		{"long line", "5;" + strings.Repeat("x", 100_000), Config{Length: 5}, ErrFraming},
		{"trailer unasked for", "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", Config{}, ErrTrailer},
		{"trailer missing", "0\r\n\r\n", Config{Trailer: "x-amz-checksum-crc32"}, ErrTrailer},
		{"another trailer", "0\r\nx-amz-checksum-sha1:AAAAAA==\r\n\r\n", Config{Trailer: "x-amz-checksum-crc32"}, ErrTrailer},
		{"trailer twice", "0\r\na:1\r\na:1\r\n\r\n", Config{Trailer: "a"}, ErrTrailer},
		{"no colon", "0\r\na\r\n\r\n", Config{Trailer: "a"}, ErrTrailer},
		{"no value", "0\r\na:\r\n\r\n", Config{Trailer: "a"}, ErrTrailer},
		{"trailer with a line feed alone", "0\r\na:1\n\r\n", Config{Trailer: "a"}, ErrFraming},
		{"line feed in front of a trailer", "0\r\n\n\r\na:1\r\n\r\n", Config{Trailer: "a"}, ErrFraming},
		{"carriage return in a trailer", "0\r\na:1\r1\r\n\r\n", Config{Trailer: "a"}, ErrFraming},
		{"size in a signed trailer", "0\r\na:1\r\n0\r\n\r\n", Config{Trailer: "a"}, ErrTrailer},
	} {
		for _, slowly := range []bool{false, true} {
			var in io.Reader = strings.NewReader(c.body)
			if slowly {
				in = iotest.OneByteReader(in)
			}
			if _, err := io.ReadAll(NewReader(in, c.config)); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
	}
}

// What the Encoder frames the Reader reads, and the length is as foretold.
func TestRoundTrip(t *testing.T) {
	const name, value = "x-amz-checksum-crc32", "AAAAAA=="
	for _, size := range []int{0, 1, 15, 16, chunkLen - 1, chunkLen, chunkLen + 1, 3*chunkLen + 77} {
		body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		framed, err := io.ReadAll(iotest.OneByteReader(NewEncoder(iotest.HalfReader(bytes.NewReader(body)), name,
			func() string { return value })))
		if err != nil || int64(len(framed)) != EncodedLen(int64(size), name, len(value)) {
			t.Fatalf("%d bytes framed in %d: %v", size, len(framed), err)
		}
		r := NewReader(bytes.NewReader(framed), Config{Length: int64(size), Trailer: name})
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, body) || r.Trailer() != value {
			t.Errorf("%d bytes: %d, %q, %v", size, len(got), r.Trailer(), err)
		}
	}
}

// A source that breaks off never looks whole.
func TestEncoderOfBrokenSource(t *testing.T) {
	for _, n := range []int{0, 1, chunkLen, chunkLen + 1} {
		source := io.MultiReader(bytes.NewReader(make([]byte, n)), iotest.ErrReader(io.ErrUnexpectedEOF))
		got, err := io.ReadAll(NewEncoder(source, "a", func() string { return "b" }))
		if !errors.Is(err, io.ErrUnexpectedEOF) || bytes.Contains(got, []byte("0\r\na:b")) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// A trailer may end in LF CRLF, as minio-go sends it, signed or not.
func TestTrailerWithLineFeed(t *testing.T) {
	r := NewReader(strings.NewReader("5\r\nhello\r\n0\r\na:b\n\r\n\r\n"), Config{Length: 5, Trailer: "a"})
	if got, err := io.ReadAll(r); err != nil || string(got) != "hello" || r.Trailer() != "b" {
		t.Errorf("%q %q %v", got, r.Trailer(), err)
	}
	s := published("seed")
	body := strings.Replace(sign(s, []string{"hello"}, "a:b"), "a:b\r\n", "a:b\n\r\n", 1)
	r = NewReader(strings.NewReader(body), Config{Length: 5, Trailer: "a", Signing: s})
	if got, err := io.ReadAll(r); err != nil || string(got) != "hello" || r.Trailer() != "b" {
		t.Errorf("signed: %q %q %v", got, r.Trailer(), err)
	}
}

// Not one byte of a chunk that fits the buffer comes out before its signature was found right; of a larger one the last
// piece does not.
func TestNothingOfForgedChunks(t *testing.T) {
	s := published("seed")
	for _, size := range []int{1, 8192, 64 << 10, 128 << 10, 128<<10 + 1, 1 << 20} {
		first, second := strings.Repeat("a", 8192), strings.Repeat("b", size)
		body := sign(s, []string{first, second}, "")
		at := strings.LastIndex(body, "b\r\n") // the last byte of the second chunk
		bad := body[:at] + "c" + body[at+1:]
		r := NewReader(iotest.HalfReader(strings.NewReader(bad)), Config{Length: int64(8192 + size), Signing: s})
		got, err := io.ReadAll(r)
		if !errors.Is(err, ErrSignature) || size <= 128<<10 && len(got) != 8192 || len(got) >= 8192+size {
			t.Errorf("second chunk of %d bytes: got %d bytes, %v", size, len(got), err)
		}
		got, err = io.ReadAll(NewReader(strings.NewReader(body), Config{Length: int64(8192 + size), Signing: s}))
		if err != nil || string(got) != first+second {
			t.Errorf("second chunk of %d bytes, signed: got %d bytes, %v", size, len(got), err)
		}
	}
}

// Only the last chunk may be small.
func TestSmallChunks(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		bad   *ChunkSizeError
	}{
		{[]int{1}, nil},
		{[]int{8192, 1}, nil},
		{[]int{8192, 8191}, nil},
		{[]int{8191, 8192}, &ChunkSizeError{2, 8191}},
		{[]int{8192, 10, 10}, &ChunkSizeError{3, 10}},
		{[]int{3, 2}, &ChunkSizeError{2, 3}}, // S3's answer to this is on record: Chunk 2, BadChunkSize 3
	} {
		var body strings.Builder
		length := 0
		for _, n := range c.sizes {
			fmt.Fprintf(&body, "%x\r\n%s\r\n", n, strings.Repeat("x", n))
			length += n
		}
		_, err := io.ReadAll(NewReader(strings.NewReader(body.String()+"0\r\n\r\n"), Config{Length: int64(length)}))
		var got *ChunkSizeError
		if errors.As(err, &got) != (c.bad != nil) || got != nil && *got != *c.bad || c.bad == nil && err != nil {
			t.Errorf("%v: %v, want %v", c.sizes, err, c.bad)
		}
	}
}

// sign frames chunks with signatures, and "name:value" behind them.
func sign(s *Signing, chunks []string, trailer string) string {
	var b strings.Builder
	previous := s.Seed
	link := func(algorithm string, rest ...string) string {
		mac := hmac.New(sha256.New, s.Key[:])
		mac.Write([]byte(strings.Join(append([]string{algorithm, s.Date, s.Scope, previous}, rest...), "\n")))
		previous = hex.EncodeToString(mac.Sum(nil))
		return previous
	}
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	for _, c := range append(chunks[:len(chunks):len(chunks)], "") {
		fmt.Fprintf(&b, "%x;chunk-signature=%s\r\n%s", len(c), link("AWS4-HMAC-SHA256-PAYLOAD", hash(""), hash(c)), c)
		if c != "" {
			b.WriteString("\r\n")
		}
	}
	if trailer != "" {
		fmt.Fprintf(&b, "%s\r\nx-amz-trailer-signature:%s\r\n", trailer,
			link("AWS4-HMAC-SHA256-TRAILER", hash(trailer+"\n")))
	}
	return b.String() + "\r\n"
}

// FuzzSigned spoils a signed body in one place: what comes out then is an error, or the very body.
func FuzzSigned(f *testing.F) {
	f.Add(uint16(5), uint16(3), uint16(1), "x", true)
	f.Add(uint16(20_000), uint16(8300), uint16(0), "", false)
	f.Add(uint16(20_000), uint16(20_300), uint16(2), "\n\r\n", true)
	f.Fuzz(func(t *testing.T, size, at, cut uint16, insert string, trails bool) {
		data := strings.Repeat("0123456789abcdef", int(size)/16+1)[:size]
		var chunks []string
		for rest := data; rest != ""; rest = rest[min(len(rest), 8192):] {
			chunks = append(chunks, rest[:min(len(rest), 8192)])
		}
		s, c, trailer := published("seed"), Config{Length: int64(len(data))}, ""
		c.Signing = s
		if trails {
			c.Trailer, trailer = "a", "a:b"
		}
		body := sign(s, chunks, trailer)
		i := min(int(at), len(body))
		j := min(i+int(cut), len(body))
		spoiled := body[:i] + insert + body[j:]
		got, err := io.ReadAll(NewReader(iotest.HalfReader(strings.NewReader(spoiled)), c))
		if err == nil && string(got) != data {
			t.Errorf("%q: %d bytes that are not the %d signed", spoiled, len(got), len(data))
		}
		if spoiled == body && err != nil {
			t.Errorf("unspoiled: %v", err)
		}
		if !strings.HasPrefix(data, string(got)) {
			t.Errorf("%q: let out what nobody signed", spoiled)
		}
	})
}

// FuzzReader holds the Reader against a decoder that has the whole body in hand.
func FuzzReader(f *testing.F) {
	f.Add("5\r\nhello\r\n0\r\n\r\n", int64(5), "")
	f.Add("5\r\nhello\r\n0\r\na:b\r\n\r\n", int64(5), "a")
	f.Add("A\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", int64(11), "")
	f.Add("2000\r\n"+strings.Repeat("y", 8192)+"\r\n1\r\nx\r\n0\r\na:b\n\r\n\r\n", int64(8193), "a")
	f.Fuzz(func(t *testing.T, body string, length int64, trailer string) {
		if strings.ContainsAny(trailer, ":\r\n ") || trailer != strings.ToLower(trailer) {
			t.Skip()
		}
		r := NewReader(iotest.OneByteReader(strings.NewReader(body)), Config{Length: length, Trailer: trailer})
		got, err := io.ReadAll(r)
		want, ok := decode(body, length, trailer)
		if (err == nil) != ok || ok && string(got) != want {
			t.Errorf("%q: %q, %v; want %q, %v", body, got, err, want, ok)
		}
	})
}

func decode(body string, length int64, trailer string) (out string, ok bool) {
	last := 8192
	for {
		line, rest, found := strings.Cut(body, "\r\n")
		var n int
		if !found || len(line) == 0 || len(line) > 15 || strings.Trim(line, "0123456789abcdefABCDEF") != "" {
			return "", false
		}
		if _, err := fmt.Sscanf(line, "%x", &n); err != nil {
			return "", false
		}
		if body = rest; n == 0 {
			break
		}
		if n > len(body)-2 || body[n:n+2] != "\r\n" || last < 8192 {
			return "", false
		}
		last = n
		out += body[:n]
		body = body[n+2:]
	}
	if int64(len(out)) != length {
		return "", false
	}
	if trailer != "" {
		line, rest, found := strings.Cut(body, "\r\n")
		line = strings.TrimSuffix(line, "\n")
		name, value, colon := strings.Cut(line, ":")
		if !found || !colon || strings.ToLower(name) != trailer || strings.TrimSpace(value) == "" || len(line) > 500 ||
			strings.ContainsAny(line, "\r\n") {
			return "", false
		}
		body = rest
	}
	return out, body == "\r\n"
}
