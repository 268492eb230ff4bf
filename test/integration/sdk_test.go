//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// read reads an object or a range of it ("" is the whole) and returns its bytes.
func read(ctx context.Context, c *s3.Client, bucket, key, rng string) ([]byte, *s3.GetObjectOutput, error) {
	in := &s3.GetObjectInput{Bucket: &bucket, Key: &key}
	if rng != "" {
		in.Range = &rng
	}
	out, err := c.GetObject(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = out.Body.Close() }()
	b, err := io.ReadAll(out.Body)
	return b, out, err
}

func TestGoSDKReads(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	data := random(1, 5<<20+321)
	p.put(t, bucket, "dir/object", data)
	p.put(t, bucket, "empty", nil)
	c := p.client()
	size := len(data)
	for _, temperature := range []string{"cold", "warm"} {
		for _, r := range []struct {
			rng         string
			first, last int
		}{
			{"", 0, size - 1},
			{"bytes=0-0", 0, 0},
			{"bytes=1048575-1048576", 1<<20 - 1, 1 << 20},
			{"bytes=5242880-", 5 << 20, size - 1},
			{"bytes=-1000", size - 1000, size - 1},
			{"bytes=5242879-99999999", 5<<20 - 1, size - 1},
		} {
			got, out, err := read(t.Context(), c, bucket, "dir/object", r.rng)
			if err != nil {
				t.Errorf("%s %q: %v", temperature, r.rng, err)
				continue
			}
			want := data[r.first : r.last+1]
			if !bytes.Equal(got, want) {
				t.Errorf("%s %q: %d bytes with sum %s, want %d with %s",
					temperature, r.rng, len(got), sum(got), len(want), sum(want))
			}
			wantRange := ""
			if r.rng != "" {
				wantRange = fmt.Sprintf("bytes %d-%d/%d", r.first, r.last, size)
			}
			if gotRange := aws.ToString(out.ContentRange); gotRange != wantRange {
				t.Errorf("%s %q: Content-Range %q, want %q", temperature, r.rng, gotRange, wantRange)
			}
		}
	}
	if got, _, err := read(t.Context(), c, bucket, "empty", ""); err != nil || len(got) != 0 {
		t.Errorf("empty object: %d bytes, %v", len(got), err)
	}
}

// status is the HTTP status of an SDK error, and its S3 code.
func status(err error) (int, string) {
	var api smithy.APIError
	code := ""
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	var resp interface{ HTTPStatusCode() int }
	if errors.As(err, &resp) {
		return resp.HTTPStatusCode(), code
	}
	return 0, code
}

func TestGoSDKConditionsAndErrors(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	p.put(t, bucket, "k", random(2, 1000))
	head, err := p.direct().HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: ptr("k")})
	if err != nil {
		t.Fatal(err)
	}
	other := `"00000000000000000000000000000000"`
	future := time.Now().Add(time.Hour)
	for _, temperature := range []string{"cold", "warm"} {
		for _, r := range []struct {
			name string
			in   s3.GetObjectInput
			want int
			code string
		}{
			{"if-match", s3.GetObjectInput{IfMatch: head.ETag}, 0, ""},
			{"if-match of another", s3.GetObjectInput{IfMatch: &other}, http.StatusPreconditionFailed, "PreconditionFailed"},
			{"if-none-match", s3.GetObjectInput{IfNoneMatch: head.ETag}, http.StatusNotModified, ""},
			{"if-none-match of another", s3.GetObjectInput{IfNoneMatch: &other}, 0, ""},
			{"if-unmodified-since", s3.GetObjectInput{IfUnmodifiedSince: head.LastModified}, 0, ""},
			{"if-unmodified-since the past", s3.GetObjectInput{IfUnmodifiedSince: ptr(head.LastModified.Add(-time.Hour))},
				http.StatusPreconditionFailed, "PreconditionFailed"},
			{"if-modified-since", s3.GetObjectInput{IfModifiedSince: head.LastModified}, http.StatusNotModified, ""},
			{"if-modified-since the future is ignored", s3.GetObjectInput{IfModifiedSince: &future}, 0, ""},
			{"range beyond the end", s3.GetObjectInput{Range: ptr("bytes=1000-")}, http.StatusRequestedRangeNotSatisfiable,
				"InvalidRange"},
			{"no such key", s3.GetObjectInput{Key: ptr("nothing")}, http.StatusNotFound, "NoSuchKey"},
			{"no such bucket", s3.GetObjectInput{Bucket: ptr("no-such-bucket-here")}, http.StatusNotFound, "NoSuchBucket"},
		} {
			in := r.in
			if in.Bucket == nil {
				in.Bucket = &bucket
			}
			if in.Key == nil {
				in.Key = ptr("k")
			}
			out, err := p.client().GetObject(t.Context(), &in)
			if err == nil {
				_ = out.Body.Close()
			}
			got, code := status(err)
			if r.want == 0 && err != nil || r.want != 0 && got != r.want || r.code != "" && code != r.code {
				t.Errorf("%s, %s: %d %s (%v), want %d %s", temperature, r.name, got, code, err, r.want, r.code)
			}
		}
	}
	_, _, err = read(t.Context(), sdk(p.node.URL(), originKey), bucket, "k", "")
	if got, code := status(err); got != http.StatusForbidden || code != "InvalidAccessKeyId" {
		t.Errorf("the origin's key at the node: %d %s, want 403 InvalidAccessKeyId", got, code)
	}
	wrong := clientKey
	wrong.Secret += "x"
	_, _, err = read(t.Context(), sdk(p.node.URL(), wrong), bucket, "k", "")
	if got, code := status(err); got != http.StatusForbidden || code != "SignatureDoesNotMatch" {
		t.Errorf("wrong secret: %d %s, want 403 SignatureDoesNotMatch", got, code)
	}
}

func TestGoSDKListAndWrite(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	for i := range 25 {
		p.put(t, bucket, fmt.Sprintf("list/%02d", i), random(uint64(i), 10+i))
	}
	list := func(c *s3.Client) (keys []string) {
		pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{
			Bucket: &bucket, Prefix: ptr("list/"), MaxKeys: ptr(int32(10)),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page.Contents {
				keys = append(keys, fmt.Sprintf("%s %d %s", *o.Key, *o.Size, *o.ETag))
			}
		}
		return keys
	}
	if got, want := fmt.Sprint(list(p.client())), fmt.Sprint(list(p.direct())); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}

	// Plain bodies: a literal hash, and no checksum trailer.
	plain := sdk(p.node.URL(), clientKey, func(o *s3.Options) {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	})
	data := random(77, 300_000)
	_, err := plain.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: ptr("written"), Body: bytes.NewReader(data), ContentType: ptr("text/x-test"),
		Metadata: map[string]string{"owner": "me"},
	})
	if err != nil {
		t.Fatal("put through the node:", err)
	}
	for name, c := range map[string]*s3.Client{"node": p.client(), "origin": p.direct()} {
		got, out, err := read(t.Context(), c, bucket, "written", "")
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
			continue
		}
		if *out.ContentType != "text/x-test" || out.Metadata["owner"] != "me" {
			t.Errorf("%s: Content-Type %q, metadata %v", name, *out.ContentType, out.Metadata)
		}
	}
	_, err = plain.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{
		Objects: []types.ObjectIdentifier{{Key: ptr("list/00")}, {Key: ptr("list/01")}},
	}})
	if err != nil {
		t.Error("delete objects:", err)
	}
	if n := len(list(p.direct())); n != 23 {
		t.Errorf("%d objects left after the deletion of 2 of 25", n)
	}
	if _, err := plain.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: ptr("written")}); err != nil {
		t.Error("delete object:", err)
	}
	if _, _, err := read(t.Context(), p.direct(), bucket, "written", ""); err == nil {
		t.Error("the origin still has the deleted object")
	}
}

func TestGoSDKTransferManager(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	data := random(3, 64<<20)
	p.put(t, bucket, "big", data)
	tm := transfermanager.New(p.client(), func(o *transfermanager.Options) { o.PartSizeBytes = 5<<20 + 7 })
	for _, temperature := range []string{"cold", "warm"} {
		buf := &writerAt{make([]byte, len(data))}
		_, err := tm.DownloadObject(t.Context(), &transfermanager.DownloadObjectInput{
			Bucket: &bucket, Key: ptr("big"), WriterAt: buf,
		})
		if err != nil {
			t.Fatal(temperature, err)
		}
		if sum(buf.b) != sum(data) {
			t.Errorf("%s: sum %s, want %s", temperature, sum(buf.b), sum(data))
		}
	}
}

func TestGoSDKPresigned(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	data := random(4, 2<<20)
	p.put(t, bucket, "a b+c/ü", data)
	signer := s3.NewPresignClient(p.client())
	signed, err := signer.PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: ptr("a b+c/ü")})
	if err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []string{"cold", "warm"} {
		resp, err := http.Get(signed.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(got, data) {
			t.Errorf("%s: %s with %d bytes, %v", temperature, resp.Status, len(got), err)
		}
	}
	resp, err := http.Head(signed.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("HEAD with a URL signed for GET: %s", resp.Status)
	}
}

type writerAt struct{ b []byte }

func (w *writerAt) WriteAt(p []byte, off int64) (int, error) { return copy(w.b[off:], p), nil }

func ptr[T any](v T) *T { return &v }
