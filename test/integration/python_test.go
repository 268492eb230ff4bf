//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// program is a program of the Python environment that make integration makes.
func program(t *testing.T, name string) string {
	t.Helper()
	venv := os.Getenv("TEST_VENV")
	if venv == "" {
		t.Fatal("TEST_VENV is not set: run these tests by make integration")
	}
	return filepath.Join(venv, "bin", name)
}

// environment is that of a client: no settings of whoever runs the tests, and no look for credentials elsewhere.
func environment(t *testing.T, extra ...string) []string {
	t.Helper()
	home := t.TempDir()
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=" + filepath.Join(home, "config"), "AWS_SHARED_CREDENTIALS_FILE=" + filepath.Join(home, "none"),
		"PYTHONDONTWRITEBYTECODE=1",
	}, extra...)
}

// python runs a script of the folder clients, which gets setup as JSON and prints what is wrong.
func python(t *testing.T, script string, setup map[string]any) {
	t.Helper()
	in, err := json.Marshal(setup)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program(t, "python"), filepath.Join("clients", script))
	cmd.Env = environment(t)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

func side(endpoint string, key node.Key) map[string]any {
	return map[string]any{"endpoint": endpoint, "access_key": key.Access, "secret_key": key.Secret}
}

func TestBoto3(t *testing.T) {
	p := sharedPair(t)
	bucket := p.bucket(t)
	big := random(10, 20<<20+5)
	_, err := p.direct().PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: ptr("big"), Body: bytes.NewReader(big), Metadata: map[string]string{"origin": "here"},
	})
	if err != nil {
		t.Fatal(err)
	}
	summed := random(11, 3<<20)
	_, err = p.direct().PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: ptr("summed"), Body: bytes.NewReader(summed), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/1", "a/2", "b"} {
		p.put(t, bucket, key, []byte(key))
	}
	file := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(file, big, 0o600); err != nil {
		t.Fatal(err)
	}
	setup := side(p.node.URL(), clientKey)
	setup["bucket"], setup["region"] = bucket, region
	setup["big_file"], setup["summed"] = file, sum(summed)
	setup["keys"] = []string{"a/1", "a/2", "b", "big", "summed"}
	setup["direct"] = clientKey == originKey
	python(t, "boto3_reads.py", setup)
}

func TestParquet(t *testing.T) {
	p, _ := matrixPair(t, sharedPair(t).origin, "http")
	python(t, "parquet.py", map[string]any{
		"bucket": p.bucket(t), "region": region,
		"origin": side(p.origin.url(), originKey), "node": side(p.node.URL(), clientKey),
		"metrics": "http://" + p.node.Admin + "/metrics",
	})
}
