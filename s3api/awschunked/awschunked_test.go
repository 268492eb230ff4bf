package awschunked

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
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

// FuzzReader holds the Reader against a decoder that has the whole body in hand.
func FuzzReader(f *testing.F) {
	f.Add("5\r\nhello\r\n0\r\n\r\n", int64(5), "")
	f.Add("5\r\nhello\r\n0\r\na:b\r\n\r\n", int64(5), "a")
	f.Add("A\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", int64(11), "")
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
		if n > len(body)-2 || body[n:n+2] != "\r\n" {
			return "", false
		}
		out += body[:n]
		body = body[n+2:]
	}
	if int64(len(out)) != length {
		return "", false
	}
	if trailer != "" {
		line, rest, found := strings.Cut(body, "\r\n")
		name, value, colon := strings.Cut(line, ":")
		if !found || !colon || strings.ToLower(name) != trailer || strings.TrimSpace(value) == "" || len(line) > 500 ||
			strings.ContainsAny(line, "\r\n") {
			return "", false
		}
		body = rest
	}
	return out, body == "\r\n"
}
