//go:build integration

package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// The keys of clients and of the node toward its origin are different, so that a signature that is passed on instead of
// made anew shows.
var (
	clientKey = node.Key{Access: "AKIACLIENT0000000001", Secret: "client/secret+of/the=integration~tests"}
	originKey = node.Key{Access: "AKIAORIGIN0000000001", Secret: "origin/secret+of/the=integration~tests"}
)

const region = "us-east-1"

// Bounds for what hangs: none says how fast anything is to be.
const (
	startTimeout = 2 * time.Minute // of one server
	stopTimeout  = time.Minute     // of one node: it may take 30 s for responses and 20 s for its disk
)

func TestMain(m *testing.M) {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.pair != nil {
		if found := secretsIn(shared.pair.node.Log()); len(found) > 0 {
			fmt.Fprintf(os.Stderr, "FAIL: the log of the node that all tests shared holds secrets: %q\n", found)
			code = 1
		}
		shared.pair.node.Kill()
		shared.pair.origin.Kill()
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// pair is a node and the server that it caches.
type pair struct {
	origin *versitygw
	node   *node.Node
}

// shared is the pair that tests use which leave it as it was, but for buckets of their own.
var shared struct {
	mu   sync.Mutex
	dir  string
	pair *pair
}

func sharedPair(t *testing.T) *pair {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.pair == nil {
		dir, err := os.MkdirTemp("", "ashlar-integration-")
		if err != nil {
			t.Fatal(err)
		}
		origin, err := startVersitygw(dir)
		if err != nil {
			t.Fatal(err)
		}
		// To see what the tests make of the real server alone, which is what they should find through the node.
		n := &node.Node{Process: origin.Process, Addr: origin.addr}
		if os.Getenv("TEST_DIRECT") != "" {
			clientKey = originKey
		} else if n, err = startNode(dir, origin.url(), nil); err != nil {
			origin.Kill()
			t.Fatal(err)
		}
		shared.dir, shared.pair = dir, &pair{origin, n}
	}
	return shared.pair
}

// newPair is a pair for one test.
func newPair(t *testing.T, change func(*node.Options)) *pair {
	t.Helper()
	dir := t.TempDir()
	origin, err := startVersitygw(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { origin.Kill() })
	return &pair{origin, newNode(t, origin.url(), change)}
}

// newNode is a node for one test, in front of any endpoint. At the end of the test it must stop when told to, and its
// log must hold no secret.
func newNode(t *testing.T, endpoint string, change func(*node.Options)) *node.Node {
	t.Helper()
	n, err := startNode(t.TempDir(), endpoint, change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(stopTimeout); err != nil {
			t.Error(err)
		}
		if found := secretsIn(n.Log()); len(found) > 0 {
			t.Errorf("secrets in the log: %q", found)
		}
		if t.Failed() {
			t.Logf("the node's log:\n%s", tail(n.Log(), 60))
		}
	})
	return n
}

func startNode(dir, endpoint string, change func(*node.Options)) (*node.Node, error) {
	o := node.Options{
		Binary: os.Getenv("TEST_ASHLAR"), Dir: dir, Origin: endpoint, OriginKey: originKey, Key: clientKey,
		Memory: "256 MiB", Verbose: true,
	}
	if o.Binary == "" {
		return nil, fmt.Errorf("TEST_ASHLAR is not set: run these tests by make integration")
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return node.Start(ctx, o)
}

// versitygw is a real S3 server over a folder.
type versitygw struct {
	*proc.Process
	addr string
	spec proc.Spec
}

func (v *versitygw) url() string { return "http://" + v.addr }

func startVersitygw(dir string) (*versitygw, error) {
	path := os.Getenv("TEST_VERSITYGW")
	if path == "" {
		return nil, fmt.Errorf("TEST_VERSITYGW is not set: run these tests by make integration")
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"data", "versions", "iam"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	v := &versitygw{addr: addr, spec: proc.Spec{
		Name: "versitygw", Path: path,
		Args: []string{
			"--access", originKey.Access, "--secret", originKey.Secret, "--port", addr, "--region", region,
			"--iam-dir", filepath.Join(dir, "iam"), "--keep-alive", "--quiet",
			"posix", "--versioning-dir", filepath.Join(dir, "versions"), filepath.Join(dir, "data"),
		},
	}}
	return v, v.start()
}

// start starts the server, at the same address again after a Kill.
func (v *versitygw) start() error {
	var err error
	if v.Process, err = proc.Start(v.spec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := v.WaitHTTP(ctx, v.url(), nil); err != nil {
		v.Kill()
		return err
	}
	return nil
}

// sdk is the Go client for an endpoint, as LoadDefaultConfig sets it up, but for path-style addressing.
func sdk(endpoint string, key node.Key, change ...func(*s3.Options)) *s3.Client {
	o := s3.Options{
		BaseEndpoint: &endpoint, Region: region, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: key.Access, SecretAccessKey: key.Secret}, nil
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}
	for _, c := range change {
		c(&o)
	}
	return s3.New(o)
}

// client is the Go client for the node.
func (p *pair) client() *s3.Client { return sdk(p.node.URL(), clientKey) }

// direct is the Go client for the server behind the node.
func (p *pair) direct() *s3.Client { return sdk(p.origin.url(), originKey) }

// bucket makes a bucket at the origin, named after the test.
func (p *pair) bucket(t *testing.T) string {
	t.Helper()
	name := strings.Trim(regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	if len(name) > 50 {
		name = strings.Trim(name[len(name)-50:], "-")
	}
	if _, err := p.direct().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	return name
}

// put stores data at the origin, past the node.
func (p *pair) put(t *testing.T, bucket, key string, data []byte) {
	t.Helper()
	in := &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data)}
	_, err := p.direct().PutObject(t.Context(), in)
	if err != nil {
		t.Fatalf("put %q at the origin: %v", key, err)
	}
}

// random returns n bytes that seed determines.
func random(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1], key[2] = byte(seed), byte(seed>>8), byte(seed>>16)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// signature is what signed requests carry: 64 hexadecimal digits after one of the names.
var signature = regexp.MustCompile(`(?i)signature["']?\s*[=:]\s*["']?[0-9a-f]{64}|AWS4-HMAC-SHA256 Credential`)

// secretsIn looks for secrets and signatures in the log of a node that ran with the keys of this package.
func secretsIn(log string) []string {
	found := signature.FindAllString(log, 5)
	for _, secret := range []string{clientKey.Secret, originKey.Secret, gatewayKey.Secret} {
		if strings.Contains(log, secret) {
			found = append(found, secret)
		}
	}
	return found
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
