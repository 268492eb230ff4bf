//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// command is a client that is run anew for each thing it does.
type command struct {
	t       *testing.T
	path    string
	always  []string // arguments
	env     []string
	bucket  string
	missing *regexp.Regexp
}

// run returns what the program printed on stdout; the error holds what it said.
func (c *command) run(args ...string) ([]byte, error) {
	cmd := exec.CommandContext(c.t.Context(), c.path, slices.Concat(c.always, args)...)
	cmd.Env = c.env
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, exit.Stderr)
	}
	return out, err
}

// do runs the program, and tells from what it says when it fails whether the object is missing.
func (c *command) do(args ...string) error {
	_, err := c.run(args...)
	if err != nil && c.missing.MatchString(err.Error()) {
		return fmt.Errorf("%w: %w", errMissing, err)
	}
	return err
}

func (c *command) at(key string) string { return "s3://" + c.bucket + "/" + key }

func byteRange(first, last int) string { return fmt.Sprintf("bytes=%d-%d", first, last) }

type awsProgram struct{ command }

func newAWSCLI(t *testing.T, s seat) objectClient {
	return &awsProgram{command{
		t, program(t, "aws"), []string{"--endpoint-url", s.url}, s.environment(t), s.bucket,
		regexp.MustCompile(`\(404\) .*HeadObject`),
	}}
}

func (c *awsProgram) put(key, file string) error {
	return c.do("s3", "cp", "--no-progress", file, c.at(key))
}

func (c *awsProgram) list(prefix string) (keys []string, err error) {
	out, err := c.run("s3api", "list-objects-v2", "--bucket", c.bucket, "--prefix", prefix, "--query", "Contents[].Key")
	if err != nil {
		return nil, err
	}
	return keys, json.Unmarshal(out, &keys)
}

func (c *awsProgram) get(key, file string) error {
	return c.do("s3", "cp", "--no-progress", c.at(key), file)
}

func (c *awsProgram) getRange(key string, first, last int, file string) error {
	return c.do("s3api", "get-object", "--bucket", c.bucket, "--key", key, "--range", byteRange(first, last), file)
}

func (c *awsProgram) copy(from, to string) error {
	return c.do("s3", "cp", "--no-progress", c.at(from), c.at(to))
}

func (c *awsProgram) remove(key string) error { return c.do("s3", "rm", c.at(key)) }

func (c *awsProgram) removeAll(prefix string) error {
	return c.do("s3", "rm", "--recursive", c.at(prefix))
}

type rclone struct{ command }

// newRclone is rclone with a remote of the name ashlar.
func newRclone(t *testing.T, s seat) objectClient {
	env := append(s.environment(t), "RCLONE_CONFIG_ASHLAR_TYPE=s3", "RCLONE_CONFIG_ASHLAR_PROVIDER=Other",
		"RCLONE_CONFIG_ASHLAR_ENV_AUTH=true", "RCLONE_CONFIG_ASHLAR_ENDPOINT="+s.url,
		"RCLONE_CONFIG_ASHLAR_REGION="+region,
		// Else it makes sure of the bucket before it writes, by CreateBucket, which takes the right admin.
		"RCLONE_CONFIG_ASHLAR_NO_CHECK_BUCKET=true",
		// In parts from a size on that a test can afford.
		"RCLONE_S3_UPLOAD_CUTOFF=10M")
	if s.ca != "" {
		env = append(env, "AWS_CA_BUNDLE=", "RCLONE_CA_CERT="+s.ca) // it can't do with the former
	}
	return &rclone{command{
		t, "rclone", []string{"--retries=1", "--low-level-retries=1"}, env, s.bucket,
		regexp.MustCompile(`not found|Source doesn't exist`),
	}}
}

func (c *rclone) remote(key string) string { return "ashlar:" + c.bucket + "/" + key }

func (c *rclone) put(key, file string) error { return c.do("copyto", file, c.remote(key)) }

func (c *rclone) list(prefix string) ([]string, error) {
	out, err := c.run("lsf", "-R", "--files-only", c.remote(prefix))
	keys := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := range keys {
		keys[i] = prefix + keys[i]
	}
	return keys, err
}

func (c *rclone) get(key, file string) error {
	return c.do("copyto", c.remote(key), file)
}

func (c *rclone) getRange(key string, first, last int, file string) error {
	out, err := c.run("cat", "--offset", strconv.Itoa(first), "--count", strconv.Itoa(last+1-first), c.remote(key))
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o600)
}

func (c *rclone) copy(from, to string) error { return c.do("copyto", c.remote(from), c.remote(to)) }

func (c *rclone) removeAll(prefix string) error { return c.do("delete", c.remote(prefix)) }

func (c *rclone) remove(key string) error { return c.do("deletefile", c.remote(key)) }

type s3cmd struct{ command }

func newS3cmd(t *testing.T, s seat) objectClient {
	scheme, host, _ := strings.Cut(s.url, "://")
	args := []string{"--host", host, "--host-bucket", host, "--region", region, "--no-progress"}
	if scheme == "http" {
		args = append(args, "--no-ssl")
	} else {
		args = append(args, "--ssl", "--ca-certs", s.ca)
	}
	return &s3cmd{command{
		t, program(t, "s3cmd"), args, s.environment(t), s.bucket, regexp.MustCompile(`Source object .* does not exist`),
	}}
}

func (c *s3cmd) put(key, file string) error { return c.do("put", file, c.at(key)) }

func (c *s3cmd) list(prefix string) (keys []string, err error) {
	out, err := c.run("ls", "--recursive", c.at(prefix))
	for line := range strings.Lines(string(out)) {
		_, key, _ := strings.Cut(strings.TrimSuffix(line, "\n"), c.at("")) // after date, time and size
		keys = append(keys, key)
	}
	return keys, err
}

func (c *s3cmd) get(key, file string) error {
	return c.do("get", "--force", c.at(key), file)
}

// getRange goes on with a download that ended at first, which is all that s3cmd does by ranges.
func (c *s3cmd) getRange(key string, first, last int, file string) error {
	if err := os.WriteFile(file, make([]byte, first), 0o600); err != nil {
		return err
	}
	if err := c.do("get", "--continue", c.at(key), file); err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b[first:min(last+1, len(b))], 0o600)
}

func (c *s3cmd) copy(from, to string) error { return c.do("cp", c.at(from), c.at(to)) }

func (c *s3cmd) remove(key string) error { return c.do("rm", c.at(key)) }

func (c *s3cmd) removeAll(prefix string) error {
	return c.do("rm", "--recursive", "--force", c.at(prefix))
}
