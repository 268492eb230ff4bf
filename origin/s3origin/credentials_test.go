package s3origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/aws/aws-sdk-go-v2/aws"
)

// isolate gives a test an empty AWS environment.
func isolate(t *testing.T) (home string) {
	home = t.TempDir()
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // restores it afterwards
			_ = os.Unsetenv(name)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(home, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(home, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return home
}

func resolve(t *testing.T, c Config) (Identity, error) {
	t.Helper()
	o, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	return o.Resolve(t.Context())
}

func TestDefaultChain(t *testing.T) {
	home := isolate(t)
	if _, err := resolve(t, Config{Endpoint: "http://h"}); err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("none at all: %v", err)
	}

	t.Setenv("AWS_PROFILE", "ours")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config", "[profile ours]\nregion = eu-profile-1\nendpoint_url = http://127.0.0.1:1\n")
	write("credentials", "[ours]\naws_access_key_id = AKPROFILE\naws_secret_access_key = s\n")
	id, err := resolve(t, Config{})
	if err != nil || id.AccessKey != "AKPROFILE" || id.Region != "eu-profile-1" ||
		!strings.Contains(id.Source, "SharedConfig") {
		t.Errorf("profile: %+v, %v", id, err)
	}

	t.Setenv("AWS_ACCESS_KEY_ID", "AKENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	_ = os.Unsetenv("AWS_PROFILE")
	t.Setenv("AWS_REGION", "eu-env-1")
	if id, err = resolve(t, Config{}); err != nil || id.AccessKey != "AKENV" || id.Region != "eu-env-1" {
		t.Errorf("environment: %+v, %v", id, err)
	}
	// What the configuration says goes before.
	static := Credentials{Source: SourceStatic, AccessKey: "AKSTATIC", SecretKey: "s"}
	id, err = resolve(t, Config{Credentials: static})
	if err != nil || id.AccessKey != "AKSTATIC" || id.Region != "eu-env-1" {
		t.Errorf("static: %+v, %v", id, err)
	}
	if id, err = resolve(t, Config{Region: "r"}); err != nil || id.AccessKey != "AKENV" || id.Region != "r" {
		t.Errorf("region: %+v, %v", id, err)
	}
}

func TestRegionFallback(t *testing.T) {
	isolate(t)
	id, err := resolve(t, Config{Credentials: Credentials{Source: SourceAnonymous}})
	if err != nil || id.Region != "us-east-1" {
		t.Errorf("%+v, %v", id, err)
	}
}

// TestEndpointVariablesAreIgnored: a client's AWS_ENDPOINT_URL names the cache itself. Neither the origin's requests
// nor those for its credentials may go there; AWS_ENDPOINT_URL_STS is about the latter alone and counts.
func TestEndpointVariablesAreIgnored(t *testing.T) {
	home := isolate(t)
	trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s went to AWS_ENDPOINT_URL", r.Method, r.URL)
	}))
	defer trap.Close()
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>`+
			`<AccessKeyId>AKROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>tok</SessionToken>`+
			`<Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer sts.Close()
	s3 := newRawServer(t, always(lines("HTTP/1.1 200 OK", "Content-Length: 0")))

	token := filepath.Join(home, "token")
	if err := os.WriteFile(token, []byte("jwt"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": trap.URL, "AWS_ENDPOINT_URL_S3": trap.URL, "AWS_ENDPOINT_URL_STS": sts.URL,
		"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_REGION": "eu-test-1",
	} {
		t.Setenv(name, value)
	}
	o, err := New(t.Context(), Config{Endpoint: s3.url})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	id, err := o.Resolve(t.Context())
	if err != nil || id.AccessKey != "AKROLE" || id.Expires.IsZero() {
		t.Fatalf("%+v, %v", id, err)
	}
	if _, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{}); err != nil {
		t.Fatal(err)
	}
	head := s3.requests()[0]
	if !strings.Contains(head, "X-Amz-Security-Token: tok\r\n") || !strings.Contains(head, "x-amz-security-token,") {
		t.Errorf("the session token is missing or not signed:\n%s", head)
	}
	http.DefaultClient.CloseIdleConnections()
}

type countingProvider struct {
	n   atomic.Int32
	err error
}

func (p *countingProvider) Retrieve(context.Context) (aws.Credentials, error) {
	p.n.Add(1)
	return aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret, Source: "counting"}, p.err
}

func TestCredentialsAreCached(t *testing.T) {
	s := newServer(t)
	p := &countingProvider{}
	o := newOrigin(t, s.url, func(c *Config) { c.Credentials = Credentials{Provider: p} })
	for range 10 {
		_, err := o.Get(t.Context(), obj("none"), origin.GetOptions{})
		if !errors.Is(err, origin.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if n := p.n.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestCredentialsFail(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 200 OK", "Content-Length: 0")))
	o := newOrigin(t, s.url, func(c *Config) {
		c.Credentials = Credentials{Provider: &countingProvider{err: io.ErrClosedPipe}}
	})
	if _, err := o.Get(t.Context(), obj("k"), origin.GetOptions{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	wantReason(t, o, whyCredentials)
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d unsigned requests were sent", n)
	}
}

// TestShare: origins made of one set of credentials ask its source once.
func TestShare(t *testing.T) {
	isolate(t)
	asked := 0
	c := Credentials{Provider: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		asked++
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret", Source: "test"}, nil
	})}
	shared, region, err := c.Share(t.Context(), "", nil)
	if err != nil || region != "us-east-1" {
		t.Fatalf("%q, %v", region, err)
	}
	for range 3 {
		o, err := New(t.Context(), Config{Endpoint: "http://127.0.0.1:1", Region: region, Credentials: shared})
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		if id, err := o.Resolve(t.Context()); err != nil || id.AccessKey != "id" || id.Region != region {
			t.Errorf("%+v, %v", id, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	none, _, err := Credentials{Source: SourceAnonymous}.Share(t.Context(), "x", nil)
	if err != nil || none.Source != SourceAnonymous || none.Provider != nil {
		t.Errorf("%v, %v", none, err)
	}
	if _, _, err := (Credentials{Source: "odd"}).Share(t.Context(), "x", nil); err == nil {
		t.Error("an unknown source is shared")
	}
}
