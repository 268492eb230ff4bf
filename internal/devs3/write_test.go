package devs3

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestChecksumCheckValues has the check values that define the CRCs: their sums of "123456789".
func TestChecksumCheckValues(t *testing.T) {
	want := map[string]string{"CRC32": "y/Q5Jg==", "CRC32C": "4waSgw==", "CRC64NVME": "rosUhgp5mIg="}
	for _, a := range algorithms() {
		h := a.new()
		io.WriteString(h, "123456789")
		if got := base64Sum(h); want[a.name] != "" && got != want[a.name] {
			t.Errorf("%s: %s, want %s", a.name, got, want[a.name])
		}
		if h.Size() != a.size {
			t.Errorf("%s: %d bytes, want %d", a.name, h.Size(), a.size)
		}
	}
}

// TestPut has what a PUT may say of its body, true and false. A false word leaves the object as it was.
func TestPut(t *testing.T) {
	digest := md5.Sum([]byte("hello"))
	const hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	etag := fmt.Sprintf(`"%x"`, md5.Sum([]byte("old")))
	for _, c := range []struct {
		name   string
		header []string
		status int
		code   string
	}{
		{"plain", nil, 200, ""},
		{"md5", []string{"Content-MD5", base64.StdEncoding.EncodeToString(digest[:])}, 200, ""},
		{"other md5", []string{"Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="}, 400, "BadDigest"},
		{"no md5", []string{"Content-MD5", "AAAA"}, 400, "InvalidDigest"},
		{"hash", []string{"x-amz-content-sha256", hash}, 200, ""},
		{"other hash", []string{"x-amz-content-sha256", emptySHA256}, 400, "XAmzContentSHA256Mismatch"},
		{"no hash", []string{"x-amz-content-sha256", "nonsense"}, 400, "InvalidArgument"},
		{"crc32", []string{"x-amz-checksum-crc32", "NhCmhg=="}, 200, ""},
		{"other crc32", []string{"x-amz-checksum-crc32", "NhCmhQ=="}, 400, "BadDigest"},
		{"no crc32", []string{"x-amz-checksum-crc32", "NhCm"}, 400, "InvalidRequest"},
		{"two checksums", []string{"x-amz-checksum-crc32", "NhCmhg==", "x-amz-checksum-crc32c", "mnG7TA=="}, 400,
			"InvalidRequest"},
		{"announced and missing", []string{"x-amz-sdk-checksum-algorithm", "CRC32"}, 400, "InvalidRequest"},
		{"announced another", []string{"x-amz-sdk-checksum-algorithm", "SHA1", "x-amz-checksum-crc32", "NhCmhg=="}, 400,
			"InvalidRequest"},
		{"if absent", []string{"If-None-Match", "*"}, 412, "PreconditionFailed"},
		{"if match", []string{"If-Match", etag}, 200, ""},
		{"if match other", []string{"If-Match", `"x"`}, 412, "PreconditionFailed"},
		{"if none match other", []string{"If-None-Match", `"x"`}, 501, "NotImplemented"},
		{"metadata", []string{"x-amz-meta-a", strings.Repeat("x", 2047)}, 200, ""},
		{"too much metadata", []string{"x-amz-meta-a", strings.Repeat("x", 2048)}, 400, "MetadataTooLarge"},
		{"customer key", []string{"x-amz-server-side-encryption-customer-algorithm", "AES256"}, 400, "InvalidRequest"},
		{"object lock", []string{"x-amz-object-lock-mode", "GOVERNANCE"}, 400, "InvalidRequest"},
		{"other owner", []string{"x-amz-expected-bucket-owner", "123"}, 403, "AccessDenied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, dir := range []string{"", t.TempDir()} {
				s := New(Config{Dir: dir})
				s.Put("bucket", "k", []byte("old"))
				url, client := start(t, s)
				resp, answer := do(t, client, "PUT", url+"/bucket/k", "hello", c.header...)
				if resp.StatusCode != c.status || c.code != "" && !strings.Contains(answer, "<Code>"+c.code+"</Code>") {
					t.Errorf("%d %s", resp.StatusCode, answer)
				}
				want := "old"
				if c.status == 200 {
					want = "hello"
				}
				if _, got := do(t, client, "GET", url+"/bucket/k", ""); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

func TestPutNeedsLength(t *testing.T) {
	s := New(Config{})
	s.CreateBucket("bucket")
	url, client := start(t, s)
	body := struct{ io.Reader }{strings.NewReader("x")} // whose length net/http can't know
	req, err := http.NewRequestWithContext(t.Context(), "PUT", url+"/bucket/k", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusLengthRequired {
		t.Error(resp.Status)
	}
}

func TestCopy(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := New(Config{Dir: dir})
		etag := s.Put("source", "a b+c%20", []byte("hello"), PutOptions{Header: http.Header{"Content-Type": {"text/x"}}})
		s.CreateBucket("target")
		url, client := start(t, s)
		for _, c := range []struct {
			source string
			header []string
			status int
			code   string
		}{
			{"/source/a%20b%2Bc%2520", nil, 200, ""},
			{"source/a%20b+c%2520", []string{"x-amz-copy-source-if-match", etag}, 200, ""},
			{"source/a%20b+c%2520", []string{"x-amz-copy-source-if-match", `"x"`}, 412, "PreconditionFailed"},
			{"source/a%20b+c%2520", []string{"x-amz-copy-source-if-none-match", etag}, 412, "PreconditionFailed"},
			{"source/a%20b+c%20", nil, 404, "NoSuchKey"},
			{"none/k", nil, 404, "NoSuchBucket"},
			{"source", nil, 400, "InvalidArgument"},
		} {
			do(t, client, "DELETE", url+"/target/k", "")
			resp, answer := do(t, client, "PUT", url+"/target/k", "", append(c.header, "x-amz-copy-source", c.source)...)
			if resp.StatusCode != c.status || !strings.Contains(answer, c.code) {
				t.Errorf("%s: %d %s", c.source, resp.StatusCode, answer)
			}
			resp, got := do(t, client, "GET", url+"/target/k", "")
			if c.status == 200 && (got != "hello" || resp.Header.Get("Content-Type") != "text/x") ||
				c.status != 200 && resp.StatusCode != 404 {
				t.Errorf("%s: %d %q", c.source, resp.StatusCode, got)
			}
		}
		resp, answer := do(t, client, "PUT", url+"/source/a%20b+c%2520", "", "x-amz-copy-source", "source/a%20b+c%2520")
		if resp.StatusCode != 400 {
			t.Error(answer)
		}
		do(t, client, "PUT", url+"/source/a%20b+c%2520", "", "x-amz-copy-source", "source/a%20b+c%2520",
			"x-amz-metadata-directive", "REPLACE", "x-amz-meta-new", "1")
		if resp, got := do(t, client, "GET", url+"/source/a%20b+c%2520", ""); got != "hello" ||
			resp.Header.Get("x-amz-meta-new") != "1" {
			t.Error(resp, got)
		}
	}
}

// TestOneVersion has readers and writers at one key: every answer is one version, its ETag and length included.
func TestOneVersion(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := New(Config{Dir: dir})
		body := func(i int) string { return strings.Repeat(string(rune('a'+i)), 1000*(i+1)) }
		s.Put("bucket", "k", []byte(body(0)))
		url, client := start(t, s)
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				for i := range 20 {
					method := http.MethodPut
					if i%7 == 6 {
						method = http.MethodDelete
					}
					resp, answer, err := try(t.Context(), client, method, url+"/bucket/k", body((i+w)%20))
					if err != nil || resp.StatusCode >= 300 {
						t.Error(err, answer)
					}
				}
			})
			wg.Go(func() {
				for range 40 {
					resp, got, err := try(t.Context(), client, http.MethodGet, url+"/bucket/k", "")
					if err != nil {
						t.Error(err)
						return
					}
					want := fmt.Sprintf(`"%x"`, md5.Sum([]byte(got)))
					if resp.StatusCode != 404 && (resp.StatusCode != 200 || resp.Header.Get("ETag") != want) {
						t.Errorf("%d %d bytes, ETag %s, want %s", resp.StatusCode, len(got), resp.Header.Get("ETag"), want)
					}
				}
			})
		}
		wg.Wait()
	}
}
