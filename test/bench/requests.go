package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// part is a piece of an object that a request asks for: the whole object when it is all of it.
type part struct {
	obj            object
	offset, length int64
}

// prepare writes the requests for parts, addressed to host and signed with key unless that is zero. Signatures are good
// for 15 minutes: prepare them just before a run.
func prepare(host string, key node.Key, parts []part) ([]request, error) {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	now := time.Now()
	requests := make([]request, 0, len(parts))
	for _, p := range parts {
		r, err := http.NewRequest(http.MethodGet, "http://"+host+"/"+bucket+"/"+p.obj.name, nil)
		if err != nil {
			return nil, err
		}
		if p.length != p.obj.size {
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", p.offset, p.offset+p.length-1))
		}
		if key != (node.Key{}) {
			const payload = "UNSIGNED-PAYLOAD"
			r.Header.Set("X-Amz-Content-Sha256", payload)
			credentials := aws.Credentials{AccessKeyID: key.Access, SecretAccessKey: key.Secret}
			if err := signer.SignHTTP(context.Background(), credentials, r, payload, "s3", region, now); err != nil {
				return nil, err
			}
		}
		var b strings.Builder
		fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", r.URL.EscapedPath(), host)
		for name, values := range r.Header {
			fmt.Fprintf(&b, "%s: %s\r\n", name, values[0])
		}
		b.WriteString("\r\n")
		requests = append(requests, request{raw: []byte(b.String()), obj: p.obj, offset: p.offset, length: p.length})
	}
	return requests, nil
}

const region = "us-east-1"
