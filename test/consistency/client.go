package consistency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Target is where a load goes.
type Target struct {
	Endpoint string // http://host:port
	Bucket   string // exists
	Region   string
	Access   string
	Secret   string
}

// client sends signed requests and never repeats one: what it sees is what was answered.
type client struct {
	target Target
	http   *http.Client
	signer *v4.Signer
}

func newClient(t Target, connections int) *client {
	return &client{
		target: t,
		http: &http.Client{
			Timeout:   5 * time.Minute,
			Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true},
		},
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
	}
}

// request is what differs from one request to the next.
type request struct {
	method string
	key    string // "" is the bucket itself
	query  string
	header map[string]string
	body   []byte
	hash   string // x-amz-content-sha256; "" is that of the body
}

// String names r for people.
func (r request) String() string {
	s := r.method
	if r.query != "" {
		s += "?" + strings.TrimSuffix(r.query, "=")
	}
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		s += fmt.Sprintf(" %s: %s,", name, r.header[name])
	}
	return s
}

// send sends r. The answer's body is the caller's to close.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	url := c.target.Endpoint + "/" + c.target.Bucket
	if r.key != "" {
		url += "/" + r.key
	}
	if r.query != "" {
		url += "?" + r.query
	}
	var body io.Reader = http.NoBody
	if len(r.body) > 0 {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, url, body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // that would let net/http send it again
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if r.hash == "" {
		sum := sha256.Sum256(r.body)
		r.hash = hex.EncodeToString(sum[:])
	}
	req.Header.Set("X-Amz-Content-Sha256", r.hash)
	credentials := aws.Credentials{AccessKeyID: c.target.Access, SecretAccessKey: c.target.Secret}
	if err := c.signer.SignHTTP(ctx, credentials, req, r.hash, "s3", c.target.Region, time.Now()); err != nil {
		return nil, err
	}
	return c.http.Do(req)
}

// ask is send with the answer's body read to its end. An error of the body is one of the request.
func (c *client) ask(ctx context.Context, r request) (*http.Response, []byte, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}
