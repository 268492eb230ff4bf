package s3api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Headers that mean something to other stores reach the origin only where a key with all rights has signed them.
func TestVendorHeaders(t *testing.T) {
	var got http.Header
	auth := staticAuth()
	auth.Keys = append(auth.Keys,
		Key{AccessKey: "ADMIN", SecretKey: testSecret, Buckets: []string{"*"}, Rights: Read | Write | Admin})
	h := newHandler(t, Config{Auth: auth, Forward: forwardFunc(
		func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
			got = r.Header
			_, _ = io.Copy(io.Discard, r.Body)
			return answer(200, ""), nil
		})})
	s := serve(t, h)
	names := []string{"X-Goog-Copy-Source", "X-Minio-Force-Delete", "X-Oss-Process", "X-Ibm-Locationconstraint",
		"X-Http-Method-Override", "X-Obs-Acl", "X-Cos-Acl", "X-Ms-Meta-A", "X-Rgw-A"}
	for _, name := range names {
		for key, status := range map[string]int{"WRITER": 403, "ADMIN": 200} {
			got = nil
			if r := do(t, s, signed(t, key, "PUT", s.URL+"/bucket/k", "x", name, "v")); r.StatusCode != status {
				t.Errorf("%s, signed by %s: %d", name, key, r.StatusCode)
			}
			if status == 200 && got.Get(name) != "v" {
				t.Errorf("%s is lost: %v", name, got)
			}
		}
		r := signed(t, "WRITER", "PUT", s.URL+"/bucket/k", "x", "X-Trace", "kept")
		r.Header.Set(name, "v")
		if r := do(t, s, r); r.StatusCode != 200 {
			t.Errorf("%s, not signed: %d", name, r.StatusCode)
		}
		if _, ok := got[name]; ok || got.Get("X-Trace") != "kept" {
			t.Errorf("%s, not signed: %v", name, slices.Sorted(maps.Keys(got)))
		}
	}
	// Nor is such a read answered from blocks, which know nothing of it.
	got = nil
	if r := do(t, s, signed(t, "ADMIN", "GET", s.URL+"/bucket/k", "", "X-Minio-Extract", "true")); r.StatusCode != 200 ||
		got.Get("X-Minio-Extract") != "true" {
		t.Errorf("%d %v", r.StatusCode, got)
	}
	// Where nobody signs, nobody may say such things.
	h = newHandler(t, Config{Auth: writable(), Forward: forwardFunc(
		func(_ context.Context, r *http.Request, _, _ string) (*http.Response, error) {
			got = r.Header
			_, _ = io.Copy(io.Discard, r.Body)
			return answer(200, ""), nil
		})})
	want(t, ask(h, "PUT /bucket/k", "x", "X-Goog-Copy-Source", "other/k", "X-Goog", "kept"), 200, "")
	if _, ok := got["X-Goog-Copy-Source"]; ok || got.Get("X-Goog") != "kept" {
		t.Errorf("anonymous: %v", got)
	}
}

// As at S3, an x-amz-* header that was not signed refuses the request.
func TestUnsignedAmzHeaders(t *testing.T) {
	s := serve(t, newHandler(t, Config{Auth: staticAuth()}))
	for _, name := range []string{"x-amz-acl", "x-amz-copy-source", "x-amz-meta-a", "X-AMZ-Website-Redirect-Location"} {
		r := signed(t, "WRITER", "PUT", s.URL+"/bucket/k", "x")
		r.Header.Set(name, "bucket/v")
		body := want(t, do(t, s, r), 403, "AccessDenied")
		if want := "<HeadersNotSigned>" + strings.ToLower(name) + "</HeadersNotSigned>"; !strings.Contains(body, want) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// Who sends Transfer-Encoding may have sent Content-Length as well, and what follows on the connection may have been
// meant otherwise: it ends with the answer (RFC 9112 section 6.1).
func TestNothingFollowsTransferEncoding(t *testing.T) {
	const smuggled = "GET /bucket/smuggled HTTP/1.1\r\nHost: gw\r\n\r\n"
	for _, path := range []string{"/bucket/k", "/-/health", "/Nonsense/k"} {
		for _, header := range []string{"Content-Length: 5\r\n", ""} {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t, Config{Auth: writable(), Forward: forwardAs(func() (*http.Response, error) {
					return answer(200, "ok"), nil
				})})
				client, in := pipe(t, h)
				go fmt.Fprintf(client, "PUT %s HTTP/1.1\r\nHost: gw\r\nX-Amz-Decoded-Content-Length: 0\r\n"+
					"Content-Encoding: aws-chunked\r\n%sTransfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n%s",
					path, header, smuggled)
				expectOneAnswer(t, client, in)
			})
		}
	}
	// With a length alone it goes on.
	synctest.Test(t, func(t *testing.T) {
		client, in := pipe(t, newHandler(t, Config{Auth: writable(), Forward: forwardAs(func() (*http.Response, error) {
			return answer(200, "ok"), nil
		})}))
		for range 2 {
			go io.WriteString(client, "PUT /bucket/k HTTP/1.1\r\nHost: gw\r\nContent-Length: 1\r\n\r\nx")
			if code, body := statusOf(in, "PUT"); code != 200 {
				t.Errorf("%d %s", code, body)
			}
		}
	})
}

func expectOneAnswer(t *testing.T, client net.Conn, in *bufio.Reader) {
	t.Helper()
	r, err := http.ReadResponse(in, &http.Request{Method: "PUT"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil || !r.Close {
		t.Errorf("close %v, then %q, %v", r.Close, rest, err)
	}
	_ = client.Close()
}
