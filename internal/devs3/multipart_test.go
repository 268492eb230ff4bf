package devs3

import (
	"bytes"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// multipartUpload drives one upload.
type multipartUpload struct {
	t   *testing.T
	c   *http.Client
	url string // of the object
	id  string
}

func beginUpload(t *testing.T, c *http.Client, url string, header ...string) multipartUpload {
	t.Helper()
	_, body := do(t, c, "POST", url+"?uploads", "", header...)
	var answer struct{ UploadId string }
	if err := xml.Unmarshal([]byte(body), &answer); err != nil || answer.UploadId == "" {
		t.Fatal(err, body)
	}
	return multipartUpload{t, c, url, answer.UploadId}
}

func (u multipartUpload) part(n int, data string, header ...string) (status int, etag string) {
	u.t.Helper()
	resp, _ := do(u.t, u.c, "PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", u.url, n, u.id), data, header...)
	return resp.StatusCode, resp.Header.Get("ETag")
}

// complete names parts as number, ETag pairs.
func (u multipartUpload) complete(parts []string, header ...string) (status int, answer string) {
	u.t.Helper()
	doc := "<CompleteMultipartUpload>"
	for i := 0; i < len(parts); i += 2 {
		doc += "<Part><PartNumber>" + parts[i] + "</PartNumber><ETag>" + parts[i+1] + "</ETag></Part>"
	}
	resp, body := do(u.t, u.c, "POST", u.url+"?uploadId="+u.id, doc+"</CompleteMultipartUpload>", header...)
	return resp.StatusCode, body
}

func TestMultipart(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := New(Config{Dir: dir})
		s.Put("bucket", "k", []byte("old"))
		url, c := start(t, s)
		first, second := strings.Repeat("a", minPartSize), "bcd"
		u := beginUpload(t, c, url+"/bucket/k", "Content-Type", "text/x")
		if status, _ := u.part(0, "x"); status != 400 {
			t.Error(status)
		}
		_, wrong := u.part(1, "replaced")
		_, e2 := u.part(2, second)
		_, e1 := u.part(1, first)
		for _, bad := range []struct {
			name  string
			parts []string
			code  string
		}{
			{"order", []string{"2", e2, "1", e1}, "InvalidPartOrder"},
			{"tag", []string{"1", wrong, "2", e2}, "InvalidPart"},
			{"number", []string{"1", e1, "3", e2}, "InvalidPart"},
			{"nothing", nil, "MalformedXML"},
		} {
			if status, body := u.complete(bad.parts); status != 400 || !strings.Contains(body, "<Code>"+bad.code+"<") {
				t.Errorf("%s: %d %s", bad.name, status, body)
			}
		}
		status, body := u.complete([]string{"1", e1, "2", e2}, "x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")
		if status != 400 || !strings.Contains(body, "<Code>BadDigest<") {
			t.Error(status, body)
		}
		if status, body := u.complete([]string{"1", e1, "2", e2}, "If-None-Match", "*"); status != 412 {
			t.Error(status, body)
		}
		if _, body := do(t, c, "GET", url+"/bucket/k", ""); body != "old" {
			t.Errorf("%q before completion", body)
		}
		if _, body := do(t, c, "GET", url+"/bucket/k?max-parts=1&uploadId="+u.id, ""); strings.Count(body, "<Part>") != 1 ||
			!strings.Contains(body, "<IsTruncated>true<") {
			t.Error(body)
		}
		if _, body := do(t, c, "GET", url+"/bucket?uploads", ""); !strings.Contains(body, u.id) {
			t.Error(body)
		}
		if status, body := u.complete([]string{"1", e1, "2", e2}); status != 200 {
			t.Fatal(status, body)
		}
		sums := append(md5sum(first), md5sum(second)...)
		resp, body := do(t, c, "GET", url+"/bucket/k", "")
		if body != first+second || resp.Header.Get("ETag") != fmt.Sprintf(`"%x-2"`, md5.Sum(sums)) ||
			resp.Header.Get("Content-Type") != "text/x" {
			t.Error(resp, len(body))
		}
		if status, body := u.complete([]string{"1", e1, "2", e2}); status != 404 {
			t.Error(status, body)
		}
		if status, _ := u.part(1, "late"); status != 404 {
			t.Error(status)
		}
		u = beginUpload(t, c, url+"/bucket/small")
		_, e1 = u.part(1, "x")
		_, e2 = u.part(2, "y")
		status, body = u.complete([]string{"1", e1, "2", e2})
		if status != 400 || !strings.Contains(body, "EntityTooSmall") {
			t.Error(status, body)
		}
		if resp, _ := do(t, c, "DELETE", url+"/bucket/small?uploadId="+u.id, ""); resp.StatusCode != 204 {
			t.Error(resp)
		}
		if dir != "" { // of all that was uploaded one object is left
			if data, err := os.ReadDir(filepath.Join(dir, "data")); len(data) != 1 || err != nil {
				t.Error(data, err)
			}
		}
	}
}

func md5sum(s string) []byte {
	sum := md5.Sum([]byte(s))
	return sum[:]
}

func TestUploadPartCopy(t *testing.T) {
	s := New(Config{})
	s.Put("bucket", "source", []byte("0123456789"))
	url, c := start(t, s)
	u := beginUpload(t, c, url+"/bucket/k")
	copyPart := func(rng string) (int, string) {
		resp, body := do(t, c, "PUT", url+"/bucket/k?partNumber=1&uploadId="+u.id, "", "x-amz-copy-source", "bucket/source",
			"x-amz-copy-source-range", rng)
		return resp.StatusCode, body
	}
	for _, bad := range []string{"bytes=5-10", "bytes=5-", "bytes=-5", "5-6", "bytes=6-5"} {
		if status, body := copyPart(bad); status != 400 {
			t.Error(bad, status, body)
		}
	}
	if status, body := copyPart("bytes=5-9"); status != 200 {
		t.Fatal(status, body)
	}
	if status, body := u.complete([]string{"1", fmt.Sprintf("%x", md5sum("56789"))}); status != 200 {
		t.Fatal(status, body)
	}
	if _, body := do(t, c, "GET", url+"/bucket/k", ""); body != "56789" {
		t.Error(body)
	}
}

// TestVersions has suspended versioning and DeleteObjects, which the wire suite does not look at.
func TestVersions(t *testing.T) {
	s := New(Config{})
	s.CreateBucket("bucket")
	url, c := start(t, s)
	configure := func(status string) {
		do(t, c, "PUT", url+"/bucket?versioning",
			"<VersioningConfiguration><Status>"+status+"</Status></VersioningConfiguration>")
	}
	put := func(body string) string {
		resp, _ := do(t, c, "PUT", url+"/bucket/k", body)
		return resp.Header.Get("x-amz-version-id")
	}
	if id := put("0"); id != "" {
		t.Error(id)
	}
	configure("Enabled")
	kept := put("1")
	configure("Suspended")
	if id := put("2"); id != "null" {
		t.Error(id)
	}
	if id := put("3"); id != "null" {
		t.Error(id)
	}
	for id, want := range map[string]string{kept: "1", "null": "3"} {
		if _, body := do(t, c, "GET", url+"/bucket/k?versionId="+id, ""); body != want {
			t.Errorf("version %s is %q, want %q", id, body, want)
		}
	}
	resp, _ := do(t, c, "DELETE", url+"/bucket/k", "")
	if resp.Header.Get("x-amz-delete-marker") != "true" || resp.Header.Get("x-amz-version-id") != "null" {
		t.Error(resp.Header)
	}
	_, body := do(t, c, "GET", url+"/bucket?versions", "")
	if strings.Count(body, "<Version>") != 1 || strings.Count(body, "<DeleteMarker>") != 1 {
		t.Error(body)
	}
	doc := "<Delete><Object><Key>k</Key><VersionId>null</VersionId></Object><Object><Key>none</Key></Object></Delete>"
	if resp, body := do(t, c, "POST", url+"/bucket?delete", doc); resp.StatusCode != 400 {
		t.Error("without a digest:", resp.StatusCode, body)
	}
	resp, body = do(t, c, "POST", url+"/bucket?delete", doc, "x-amz-checksum-crc32", crc32Of(doc))
	if resp.StatusCode != 200 || strings.Count(body, "<Deleted>") != 2 || strings.Contains(body, "<Error>") {
		t.Error(resp.StatusCode, body)
	}
	if _, body := do(t, c, "GET", url+"/bucket/k", ""); body != "1" {
		t.Error(body)
	}
}

func crc32Of(s string) string {
	a, _ := findAlgorithm("CRC32")
	h := a.new()
	bytes.NewReader([]byte(s)).WriteTo(h)
	return base64Sum(h)
}
