//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAWSCLI(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	big, small := random(20, 64<<20), random(21, 100_000)
	p.put(t, bucket, "data/big", big)
	p.put(t, bucket, "data/small", small)
	p.put(t, bucket, "data/empty", nil)
	dir := t.TempDir()
	aws := newAWSCLI(t, seat{url: p.node.URL(), bucket: bucket}).(*awsProgram)
	must := func(args ...string) string {
		t.Helper()
		out, err := aws.run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	same := func(name string, want []byte) {
		t.Helper()
		got, err := os.ReadFile(file(name))
		if err != nil || sum(got) != sum(want) {
			t.Errorf("%s: %d bytes with sum %s, %v; want %d with %s", name, len(got), sum(got), err, len(want), sum(want))
		}
	}

	if out := must("s3", "ls"); !strings.Contains(out, bucket) {
		t.Errorf("aws s3 ls lists %q", out)
	}
	out := must("s3", "ls", aws.at(""), "--recursive")
	for _, line := range []string{"67108864 data/big", "100000 data/small", "0 data/empty"} {
		if !strings.Contains(out, line) {
			t.Errorf("aws s3 ls lists no %q:\n%s", line, out)
		}
	}
	for _, temperature := range []string{"cold", "warm"} {
		must("s3", "cp", "--no-progress", aws.at("data/big"), file(temperature+"-big")) // in parts, by ranges, in parallel
		same(temperature+"-big", big)
		must("s3", "cp", "--no-progress", aws.at("data/"), file(temperature), "--recursive")
		same(temperature+"/big", big)
		same(temperature+"/small", small)
		same(temperature+"/empty", nil)
		must("s3api", "get-object", "--bucket", bucket, "--key", "data/big", "--range", "bytes=1048570-2097160",
			file(temperature+"-range"))
		same(temperature+"-range", big[1048570:2097161])
		var head struct {
			ContentLength int
			ETag          string
		}
		out := must("s3api", "head-object", "--bucket", bucket, "--key", "data/small")
		if err := json.Unmarshal([]byte(out), &head); err != nil || head.ContentLength != len(small) || head.ETag == "" {
			t.Errorf("head-object: %v, %s", err, out)
		}
	}
	if err := aws.get("data/none", file("none")); !errors.Is(err, errMissing) {
		t.Errorf("a missing object: %v", err)
	}

	must("configure", "set", "default.s3.signature_version", "s3v4") // presigning is of version 2 by default
	url := strings.TrimSpace(must("s3", "presign", aws.at("data/small")))
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || sum(got) != sum(small) {
		t.Errorf("presigned: %s, %d bytes, %v", resp.Status, len(got), err)
	}
}
