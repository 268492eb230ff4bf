package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

const demoBucket = "demo"

// sample is one object of the sample bucket. Its bytes are a function of seed, so that they need no memory.
type sample struct {
	key  string
	size int64
	seed uint64
	kind sampleKind
}

type sampleKind uint8

const (
	sampleLarge sampleKind = iota
	sampleTable            // large, and read in small pieces
	sampleSmall
	sampleOdd
	sampleEmpty
)

// oddKeys are keys that clients, proxies and caches like to get wrong: each is an object of its own.
var oddKeys = [...]string{
	"odd/space and+plus",
	"odd/a//b",
	"odd/a/b",
	"odd/./dot",
	"odd/x/../dots",
	"odd/trailing/",
	"odd/percent%2Fslash",
	"odd/question?mark=1&amp;#hash",
	"odd/semi;colon,comma:colon@at",
	"odd/quote'double\"tilde~star*",
	"odd/back\\slash|pipe^caret`tick",
	"odd/(round)[square]{curly}<angle>",
	"odd/tab\tand\x01control",
	"odd/\u00e9 composed",
	"odd/e\u0301 decomposed",
	"odd/日本語/🙂",
}

// sampleBucket returns the objects of the sample bucket; the first is the 64 MiB object.
func sampleBucket() []sample {
	all := []sample{
		{key: "large.bin", size: 64 << 20, kind: sampleLarge},
		{key: "table.bin", size: 32 << 20, kind: sampleTable},
	}
	for i := range 300 {
		all = append(all, sample{key: fmt.Sprintf("small/%03d", i), size: 100 + int64(i)*53, kind: sampleSmall})
	}
	for _, key := range oddKeys {
		all = append(all, sample{key: key, size: 1000 + int64(len(key)), kind: sampleOdd})
	}
	all = append(all, sample{key: "empty", kind: sampleEmpty})
	for i := range all {
		all[i].seed = uint64(i) + 1
	}
	return all
}

// put stores the object.
func (s sample) put(store *devs3.Server) {
	h := http.Header{"Content-Type": {"application/octet-stream"}}
	store.PutGenerated(demoBucket, s.key, s.size, s.seed, devs3.PutOptions{Header: h})
}

// signer signs as S3 wants it: the path is encoded once.
func signer() *v4.Signer {
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}

func demoCredentials() aws.Credentials {
	return aws.Credentials{AccessKeyID: demoAccessKey, SecretAccessKey: demoSecretKey}
}

// emptyHash is the SHA-256 of nothing, as requests without a body are signed with it.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// objectURL returns the URL of an object, path-style.
func objectURL(endpoint, bucket, key string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	u.Path = "/" + bucket + "/" + key
	u.RawPath = "/" + bucket + "/" + sigv4.EncodePath(key)
	return u, nil
}

// signedGet makes a signed GET of an object, or of bytes [first, last] of it if last is not negative.
func signedGet(ctx context.Context, endpoint, bucket, key string, first, last int64) (*http.Request, error) {
	u, err := objectURL(endpoint, bucket, key)
	if err != nil {
		return nil, err
	}
	r := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	if last >= 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, last))
	}
	r.Header.Set("X-Amz-Content-Sha256", emptyHash)
	return r, signer().SignHTTP(ctx, demoCredentials(), r, emptyHash, "s3", "us-east-1", time.Now())
}

// presign makes a URL that gets an object without further credentials, for as long as S3 allows: a week.
func presign(endpoint, bucket, key string) (string, error) {
	u, err := objectURL(endpoint, bucket, key)
	if err != nil {
		return "", err
	}
	u.RawQuery = "X-Amz-Expires=604800"
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}}
	signed, _, err := signer().PresignHTTP(context.Background(), demoCredentials(), r, "UNSIGNED-PAYLOAD", "s3",
		"us-east-1", time.Now())
	return signed, err
}
