package sigv4

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// request is a request before it is signed, in the pieces that a client puts it together from.
type request struct {
	method, host string
	path         string // encoded as AWS does
	query        string // raw
	headers      [][2]string
	hash         string // payload hash
	expires      time.Duration
	length       int64

	secret   string // exampleSecret where ""
	noSecret bool   // sign with an empty one
}

// sdk returns the request that the SDK's signer gets.
func (q *request) sdk(t testing.TB) *http.Request {
	r, err := http.NewRequest(q.method, "http://"+q.host, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = "//" + q.host + q.path // signed as it is
	r.URL.RawQuery = q.query
	r.ContentLength = q.length
	for _, h := range q.headers {
		r.Header.Add(h[0], h[1])
	}
	return r
}

func (q *request) credentials() aws.Credentials {
	c := aws.Credentials{AccessKeyID: exampleKey, SecretAccessKey: exampleSecret}
	if q.secret != "" || q.noSecret {
		c.SecretAccessKey = q.secret
	}
	return c
}

// S3 encodes paths once, other services twice.
func s3Options(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }

// signed returns what a client sends that signs by header.
func (q *request) signed(t testing.TB, at time.Time) string {
	r := q.sdk(t)
	signer := v4.NewSigner(s3Options)
	if err := signer.SignHTTP(context.Background(), q.credentials(), r, q.hash, "s3", "us-east-1", at); err != nil {
		t.Fatal(err)
	}
	return q.wire(q.path+queryOf(r.URL.RawQuery), r.Header)
}

// presigned returns what a client sends that was given a presigned URL, with the headers that have to go with it.
func (q *request) presigned(t testing.TB, at time.Time) string {
	r := q.sdk(t)
	query := r.URL.Query()
	query.Set("X-Amz-Expires", fmt.Sprint(int(q.expires.Seconds())))
	r.URL.RawQuery = query.Encode()
	signer := v4.NewSigner(s3Options)
	uri, header, err := signer.PresignHTTP(context.Background(), q.credentials(), r, q.hash, "s3", "us-east-1", at)
	if err != nil {
		t.Fatal(err)
	}
	_, target, ok := strings.Cut(uri, q.host)
	if !ok {
		t.Fatalf("no host in %s", uri)
	}
	header.Del("Host")
	header.Del("Content-Length")
	return q.wire(target, header)
}

func queryOf(raw string) string {
	if raw == "" {
		return ""
	}
	return "?" + raw
}

func (q *request) wire(target string, header http.Header) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\nHost: %s\n", q.method, target, q.host)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	if q.length > 0 {
		fmt.Fprintf(&b, "Content-Length: %d\n", q.length)
	}
	b.WriteString("\n")
	return b.String()
}

// randomRequest makes up a request with odd keys, parameters and headers.
func randomRequest(rnd *rand.Rand) *request {
	oneOf := func(s ...string) string { return s[rnd.IntN(len(s))] }
	// Mostly text, sometimes any byte but NUL.
	text := func(limit int) string {
		var b []byte
		for range rnd.IntN(limit) {
			switch rnd.IntN(6) {
			case 0:
				b = append(b, byte(1+rnd.IntN(255)))
			case 1:
				b = append(b, oneOf("é", "e\u0301", "日本", "🪵", " ", "  ", "+", "%", "%2F", "%zz", "&", "=", ";",
					"~", "..", "//")...)
			default:
				b = append(b, "abcXYZ019-._~/?#[]@!$'()*,:"[rnd.IntN(27)])
			}
		}
		return string(b)
	}
	q := &request{
		method: oneOf("GET", "GET", "HEAD", "PUT", "POST", "DELETE"),
		host: oneOf("localhost:9000", "[::1]:8333", "bucket.s3.example.com", "B.example.com", "127.0.0.1:81",
			"xn--bcher-kva.example:443"),
		path:    "/" + EncodePath(oneOf("bucket/", "b.c/", "", "/")+text(40)),
		hash:    oneOf(emptyHash, unsignedPayload, streaming, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
		expires: time.Duration(1+rnd.IntN(maxExpires)) * time.Second,
	}
	q.headers = append(q.headers, [2]string{"X-Amz-Content-Sha256", q.hash})
	if q.method == "PUT" || q.method == "POST" {
		q.length = rnd.Int64N(1 << 40)
	}
	var params []string
	for range rnd.IntN(5) {
		name := url.QueryEscape(oneOf("list-type", "prefix", "prefix", "marker", "x-id", "uploads", "a", "a-", "A",
			"versionId", text(6)+"n"))
		switch rnd.IntN(4) {
		case 0:
			params = append(params, name)
		case 1:
			params = append(params, name+"="+strings.ReplaceAll(url.QueryEscape(text(12)), "+", "%20"))
		default:
			params = append(params, name+"="+url.QueryEscape(text(12)))
		}
	}
	q.query = strings.Join(params, "&")
	header := func(name string) {
		// What a header may hold: no control bytes, and no tabs, which signers disagree about.
		value := strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(text(20), "?"))
		q.headers = append(q.headers, [2]string{name, value})
	}
	for range rnd.IntN(5) {
		header(oneOf("X-Amz-Meta-A", "X-Amz-Meta-A", "X-Amz-Meta-Long-Name", "X-Amz-Acl", "Range", "Cache-Control",
			"Content-Type", "Content-Disposition", "If-None-Match", "X-Amz-Storage-Class", "X-Amz-Tagging",
			"X-Other_1"))
	}
	return q
}

// respelled returns target with the same meaning and other bytes: nothing of it is a change to a signature.
func respelled(rnd *rand.Rand, target string) string {
	path, query, found := strings.Cut(target, "?")
	var b strings.Builder
	spell := func(s string, keep string) {
		for i := 0; i < len(s); i++ {
			switch c := s[i]; {
			case c == '%' && i+2 < len(s):
				if rnd.IntN(2) == 0 {
					b.WriteString(strings.ToLower(s[i : i+3]))
				} else {
					b.WriteString(s[i : i+3])
				}
				i += 2
			case strings.IndexByte(keep, c) < 0 && rnd.IntN(8) == 0:
				fmt.Fprintf(&b, "%%%02x", c)
			default:
				b.WriteByte(c)
			}
		}
	}
	b.WriteByte('/')
	spell(path[1:], "")
	if found {
		b.WriteByte('?')
		params := strings.Split(query, "&")
		rnd.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
		spell(strings.Join(params, "&"), "&=+")
	}
	return b.String()
}

// Whatever the SDK signs verifies, however the client spells the same thing; and no single change to it does.
func TestAgainstSDK(t *testing.T) {
	const seed = 20130524
	rounds := 3000
	if raceEnabled {
		rounds = 300 // one goroutine: there is nothing for the race detector to find
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	v := New(exampleConfig())
	for i := range rounds {
		q := randomRequest(rnd)
		raw, now := q.signed(t, exampleTime), exampleTime.Add(time.Duration(rnd.IntN(1800)-900)*time.Second)
		presigned := i%2 == 1
		if presigned {
			raw, now = q.presigned(t, exampleTime), exampleTime.Add(time.Duration(rnd.Int64N(int64(q.expires))))
		}
		accept := func(what, raw string) Identity {
			id, err := v.verify(parse(t, raw), now)
			if err != nil {
				t.Fatalf("round %d, %s: %v\n%s\n%s", i, what, err, raw, field(err, "CanonicalRequest"))
			}
			if id.AccessKey != exampleKey || id.Presigned != presigned || id.Date != "20130524T000000Z" {
				t.Fatalf("round %d: %+v", i, id)
			}
			return id
		}
		id := accept("as signed", raw)

		target := strings.Split(raw, " ")[1]
		with := func(other string) string { return strings.Replace(raw, " "+target+" ", " "+other+" ", 1) }
		accept("respelled", with(respelled(rnd, target)))
		accept("absolute-form", with("http://"+q.host+target))

		refuse := func(what, raw string) {
			r, err := tryParse(raw)
			if err != nil {
				t.Fatalf("round %d, %s changed: %v\n%s", i, what, err, raw)
			}
			if _, err := v.verify(r, now); err == nil {
				t.Fatalf("round %d: accepted with %s changed\n%s", i, what, raw)
			}
		}
		path, query, _ := strings.Cut(target, "?")
		refuse("the path", with(path+"x"+queryOf(query)))
		refuse("a slash", with("/"+target))
		refuse("a byte of the path", with(changeByte(rnd, path)+queryOf(query)))
		refuse("the query", with(path+"?"+query+"&versionId=null"))
		refuse("the query by a bare name", with(path+"?acl&"+query))
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			if method != q.method {
				refuse("the method", method+strings.TrimPrefix(raw, q.method))
			}
		}
		refuse("the host", strings.Replace(raw, "Host: ", "Host: x", 1))
		refuse("the port", strings.Replace(raw, "Host: "+q.host, "Host: "+q.host+"0", 1))
		refuse("a header, added", strings.Replace(raw, "\n\n", "\nX-Amz-Meta-Added: 1\n\n", 1))
		for _, line := range strings.Split(raw, "\n")[2:] { // after Host: all that the SDK sends, it signs
			name, _, ok := strings.Cut(line, ":")
			if ok && name != "Authorization" && name != "Content-Length" {
				refuse("a value of "+name, strings.Replace(raw, "\n"+line, "\n"+line+"x", 1))
				refuse(name+" repeated", strings.Replace(raw, "\n"+line, "\n"+line+"\n"+line, 1))
			}
		}
		if q.length > 0 {
			refuse("the length", strings.Replace(raw, "Content-Length: ", "Content-Length: 1", 1))
		}
		digit := rnd.IntN(64)
		bad := []byte(id.Signature)
		bad[digit] = "10000000000000000000000000000000000000000000000000000000000000000"[bad[digit]%2]
		if string(bad) != id.Signature {
			refuse("the signature", strings.Replace(raw, id.Signature, string(bad), 1))
		}
		refuse("the signature cut", strings.Replace(raw, id.Signature, id.Signature[:63], 1))
		refuse("the date", strings.ReplaceAll(raw, "20130524T000000Z", "20130524T000001Z"))
		refuse("the day", strings.ReplaceAll(raw, "20130524", "20130525"))
		refuse("the region", strings.Replace(raw, "us-east-1", "us-east-2", 1))
		anyRegion := New(Config{Lookup: exampleConfig().Lookup})
		if _, err := anyRegion.verify(parse(t, strings.Replace(raw, "us-east-1", "us-east-2", 1)), now); err == nil {
			t.Fatalf("round %d: accepted with the region changed where any is good", i)
		}
		q.secret = exampleSecret + "x"
		if presigned {
			refuse("the secret", q.presigned(t, exampleTime))
		} else {
			refuse("the secret", q.signed(t, exampleTime))
		}
	}
}

// changeByte changes one byte of what an encoded path decodes to.
func changeByte(rnd *rand.Rand, path string) string {
	decoded, err := DecodePath(path)
	if err != nil {
		panic(err)
	}
	b := []byte(decoded)
	if len(b) == 1 {
		return "/x"
	}
	b[1+rnd.IntN(len(b)-1)] ^= byte(1 << rnd.IntN(7))
	return EncodePath(string(b))
}
