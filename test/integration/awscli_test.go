//go:build integration

package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// awsCLI is aws-cli set up for one endpoint.
type awsCLI struct {
	t    *testing.T
	path string
	env  []string
	url  string
}

func (p *pair) awsCLI(t *testing.T) *awsCLI {
	t.Helper()
	env := environment(t,
		"AWS_ACCESS_KEY_ID="+clientKey.Access, "AWS_SECRET_ACCESS_KEY="+clientKey.Secret, "AWS_DEFAULT_REGION="+region,
		// Plain bodies, and no checksum that the server did not ask for.
		"AWS_REQUEST_CHECKSUM_CALCULATION=when_required", "AWS_MAX_ATTEMPTS=1",
	)
	config := "[default]\ns3 =\n  signature_version = s3v4\n  addressing_style = path\n"
	for _, e := range env {
		if file, ok := strings.CutPrefix(e, "AWS_CONFIG_FILE="); ok {
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &awsCLI{t, program(t, "aws"), env, p.node.URL()}
}

func (a *awsCLI) run(args ...string) (string, error) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), a.path, append([]string{"--endpoint-url", a.url}, args...)...)
	cmd.Env = a.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (a *awsCLI) must(args ...string) string {
	a.t.Helper()
	out, err := a.run(args...)
	if err != nil {
		a.t.Fatalf("aws %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func TestAWSCLI(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	big, small := random(20, 64<<20), random(21, 100_000)
	p.put(t, bucket, "data/big", big)
	p.put(t, bucket, "data/small", small)
	p.put(t, bucket, "data/empty", nil)
	aws, dir := p.awsCLI(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	same := func(name string, want []byte) {
		t.Helper()
		got, err := os.ReadFile(file(name))
		if err != nil || sum(got) != sum(want) {
			t.Errorf("%s: %d bytes with sum %s, %v; want %d with %s", name, len(got), sum(got), err, len(want), sum(want))
		}
	}
	at := func(key string) string { return "s3://" + bucket + "/" + key }

	if out := aws.must("s3", "ls"); !strings.Contains(out, bucket) {
		t.Errorf("aws s3 ls lists %q", out)
	}
	out := aws.must("s3", "ls", at(""), "--recursive")
	for _, line := range []string{"67108864 data/big", "100000 data/small", "0 data/empty"} {
		if !strings.Contains(out, line) {
			t.Errorf("aws s3 ls lists no %q:\n%s", line, out)
		}
	}
	for _, temperature := range []string{"cold", "warm"} {
		aws.must("s3", "cp", "--no-progress", at("data/big"), file(temperature+"-big")) // in parts, by ranges, in parallel
		same(temperature+"-big", big)
		aws.must("s3", "cp", "--no-progress", at("data/"), file(temperature), "--recursive")
		same(temperature+"/big", big)
		same(temperature+"/small", small)
		same(temperature+"/empty", nil)
		aws.must("s3api", "get-object", "--bucket", bucket, "--key", "data/big", "--range", "bytes=1048570-2097160",
			file(temperature+"-range"))
		same(temperature+"-range", big[1048570:2097161])
		var head struct {
			ContentLength int
			ETag          string
		}
		out := aws.must("s3api", "head-object", "--bucket", bucket, "--key", "data/small")
		if err := json.Unmarshal([]byte(out), &head); err != nil || head.ContentLength != len(small) || head.ETag == "" {
			t.Errorf("head-object: %v, %s", err, out)
		}
	}
	if out, err := aws.run("s3", "cp", at("data/none"), file("none")); err == nil || !strings.Contains(out, "404") {
		t.Errorf("a missing object: %v, %s", err, out)
	}

	url := strings.TrimSpace(aws.must("s3", "presign", at("data/small")))
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || sum(got) != sum(small) {
		t.Errorf("presigned: %s, %d bytes, %v", resp.Status, len(got), err)
	}

	if err := os.WriteFile(file("up"), small[:50_000], 0o600); err != nil {
		t.Fatal(err)
	}
	aws.must("s3", "cp", "--no-progress", file("up"), at("up/one"))
	got, _, err = read(t.Context(), p.direct(), bucket, "up/one", "")
	if err != nil || sum(got) != sum(small[:50_000]) {
		t.Errorf("uploaded: the origin holds %d bytes, %v", len(got), err)
	}
	aws.must("s3", "cp", "--no-progress", at("up/one"), file("back"))
	same("back", small[:50_000])
	aws.must("s3", "rm", at("up/one"))
	if _, _, err := read(t.Context(), p.direct(), bucket, "up/one", ""); err == nil {
		t.Error("the origin still has what aws s3 rm removed")
	}
}
