//go:build integration

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	tmtypes "github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// transport is that of net/http, with trust in the authority of the seat.
func (s seat) transport(t *testing.T) *http.Transport {
	t.Helper()
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			t.Fatalf("no certificate in %s", s.ca)
		}
		tr.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// goSDK is aws-sdk-go-v2 with its transfer manager.
type goSDK struct {
	t      *testing.T
	s3     *s3.Client
	tm     *transfermanager.Client
	bucket string
}

func newGoSDK(t *testing.T, s seat) objectClient {
	c := sdk(s.url, clientKey, func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: s.transport(t)} })
	tm := transfermanager.New(c, func(o *transfermanager.Options) {
		o.GetObjectType = tmtypes.GetObjectRanges // its default asks by partNumber, which is not served from blocks
	})
	return &goSDK{t, c, tm, s.bucket}
}

func (c *goSDK) put(key, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = c.tm.UploadObject(c.t.Context(), &transfermanager.UploadObjectInput{Bucket: &c.bucket, Key: &key, Body: f})
	return err
}

func (c *goSDK) list(prefix string) (keys []string, err error) {
	pages := s3.NewListObjectsV2Paginator(c.s3, &s3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(c.t.Context())
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys, nil
}

func (c *goSDK) get(key, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = c.tm.DownloadObject(c.t.Context(), &transfermanager.DownloadObjectInput{
		Bucket: &c.bucket, Key: &key, WriterAt: f,
	})
	if s, _ := status(err); s == http.StatusNotFound {
		err = errMissing
	}
	return errors.Join(err, f.Close())
}

func (c *goSDK) getRange(key string, first, last int, file string) error {
	b, _, err := read(c.t.Context(), c.s3, c.bucket, key, byteRange(first, last))
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

func (c *goSDK) remove(key string) error {
	_, err := c.s3.DeleteObject(c.t.Context(), &s3.DeleteObjectInput{Bucket: &c.bucket, Key: &key})
	return err
}

func (c *goSDK) copy(from, to string) error {
	source := c.bucket + "/" + url.PathEscape(from)
	_, err := c.s3.CopyObject(c.t.Context(), &s3.CopyObjectInput{Bucket: &c.bucket, Key: &to, CopySource: &source})
	return err
}

func (c *goSDK) removeAll(prefix string) error {
	keys, err := c.list(prefix)
	if err != nil {
		return err
	}
	var batch types.Delete
	for _, key := range keys {
		batch.Objects = append(batch.Objects, types.ObjectIdentifier{Key: &key})
	}
	out, err := c.s3.DeleteObjects(c.t.Context(), &s3.DeleteObjectsInput{Bucket: &c.bucket, Delete: &batch})
	if err == nil && len(out.Errors) > 0 {
		return fmt.Errorf("%v", out.Errors)
	}
	return err
}

type minioGo struct {
	t      *testing.T
	client *minio.Client
	bucket string
}

func newMinioGo(t *testing.T, s seat) objectClient {
	scheme, host, _ := strings.Cut(s.url, "://")
	c, err := minio.New(host, &minio.Options{
		Creds:  credentials.NewStaticV4(clientKey.Access, clientKey.Secret, ""),
		Secure: scheme == "https", Transport: s.transport(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &minioGo{t, c, s.bucket}
}

func (c *minioGo) put(key, file string) error {
	_, err := c.client.FPutObject(c.t.Context(), c.bucket, key, file, minio.PutObjectOptions{})
	return err
}

func (c *minioGo) list(prefix string) (keys []string, err error) {
	all := minio.ListObjectsOptions{Prefix: prefix, Recursive: true}
	for o := range c.client.ListObjects(c.t.Context(), c.bucket, all) {
		if o.Err != nil {
			return nil, o.Err
		}
		keys = append(keys, o.Key)
	}
	return keys, nil
}

func (c *minioGo) get(key, file string) error {
	err := c.client.FGetObject(c.t.Context(), c.bucket, key, file, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		return errMissing
	}
	return err
}

func (c *minioGo) getRange(key string, first, last int, file string) error {
	var opts minio.GetObjectOptions
	if err := opts.SetRange(int64(first), int64(last)); err != nil {
		return err
	}
	o, err := c.client.GetObject(c.t.Context(), c.bucket, key, opts)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(o)
	if err != nil {
		return err
	}
	return errors.Join(o.Close(), os.WriteFile(file, b, 0o600))
}

func (c *minioGo) copy(from, to string) error {
	_, err := c.client.CopyObject(c.t.Context(), minio.CopyDestOptions{Bucket: c.bucket, Object: to},
		minio.CopySrcOptions{Bucket: c.bucket, Object: from})
	return err
}

func (c *minioGo) removeAll(prefix string) (err error) {
	found := c.client.ListObjects(c.t.Context(), c.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true})
	for e := range c.client.RemoveObjects(c.t.Context(), c.bucket, found, minio.RemoveObjectsOptions{}) {
		err = errors.Join(err, e.Err)
	}
	return err
}

func (c *minioGo) remove(key string) error {
	return c.client.RemoveObject(c.t.Context(), c.bucket, key, minio.RemoveObjectOptions{})
}
