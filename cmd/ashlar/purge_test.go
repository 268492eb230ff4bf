package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// asAdmin lets a node have a key for reading and one for administering, of secrets that tests sign with.
func asAdmin(c *Config) {
	c.Auth.Mode = "static"
	reader, admin := newAuthKey(), newAuthKey()
	reader.AccessKey, reader.SecretKey = demoAccessKey, demoSecretKey
	admin.AccessKey, admin.SecretKey, admin.Read, admin.List, admin.Admin = "AKIAADMIN", "s3cr3t-of-admin", false, false, true
	admin.Buckets = []string{demoBucket}
	c.Auth.Keys = []AuthKey{reader, admin}
}

// configFile writes the configuration that a node runs with, secrets included, as its operator has it.
func (n *testNode) configFile(t *testing.T) string {
	t.Helper()
	c := *n.config
	c.Server.Listen = n.s3.addr().String()
	var b bytes.Buffer
	if err := c.writeTOML(&b); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(b.String(), redacted, string(c.Origin.Credentials.Secret), 1) // it comes first
	for _, k := range c.Auth.Keys {
		text = strings.Replace(text, redacted, string(k.Secret), 1)
	}
	return writeFile(t, "ashlar.toml", text)
}

// TestPurge: a dry run counts and changes nothing, --yes makes the next read see what was overwritten behind the node;
// over plain HTTP and over TLS, with a certificate that is for the address or for wildcard names.
func TestPurge(t *testing.T) {
	for _, names := range [][]string{nil, {}, {"*.s3.example.com", "s3.example.com"}} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			ca := newTestCA(t)
			n := newTestNode(t, func(c *Config) {
				asAdmin(c)
				if names != nil {
					c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t, names...)
				}
			})
			c := httpClient(t)
			c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: ca.pool, ServerName: "s3.example.com"}
			if len(names) == 0 {
				c.Transport.(*http.Transport).TLSClientConfig.ServerName = ""
			}
			reads := func(key, want string) {
				t.Helper()
				r, err := signedGet(t.Context(), n.s3.url(), demoBucket, key, 0, -1)
				if err != nil {
					t.Fatal(err)
				}
				if code, body := do(t, c, r); code != 200 || body != want {
					t.Errorf("%s: %d %q, want %q", key, code, body, want)
				}
			}
			put := func(text string) {
				for _, key := range []string{"a/1", "a/2", "b"} {
					n.store.Put(demoBucket, key, []byte(text))
				}
			}
			purge := func(code int, says string, args ...string) {
				t.Helper()
				got, out, errOut := runFor(t.Context(), append([]string{"purge", "--config", n.configFile(t)}, args...)...)
				if got != code || !strings.Contains(out+errOut, says) {
					t.Errorf("purge %v: code %d, %q, %q; want %d and %q", args, got, out, errOut, code, says)
				}
				if strings.Contains(out+errOut, "s3cr3t") {
					t.Errorf("a secret is shown: %s%s", out, errOut)
				}
			}
			all := func(want string) {
				t.Helper()
				for _, key := range []string{"a/1", "a/2", "b"} {
					reads(key, want)
				}
			}
			put("old")
			all("old")
			put("new")
			purge(0, "2 objects remembered below s3://demo/a/; --yes forgets them\n", "s3://demo/a/")
			purge(0, "3 objects remembered", "s3://demo")
			purge(0, "1 object remembered of s3://demo/b;", "s3://demo/b", "--exact")
			all("old")
			purge(0, "forgot 2 objects below s3://demo/a/\n", "s3://demo/a/", "--yes")
			reads("a/1", "new")
			reads("a/2", "new")
			reads("b", "old")
			purge(0, "forgot 0 objects of s3://demo/c\n", "--yes", "s3://demo/c", "--exact")
			purge(0, "forgot 1 object of s3://demo/b\n", "--exact", "s3://demo/b", "--yes")
			reads("b", "new")

			// The key is for one bucket, and another one has no right.
			purge(2, "none of [[auth.keys]] has admin = true for s3://other/", "s3://other/")
			secret := writeFile(t, "secret", demoSecretKey)
			purge(1, "refused: AccessDenied: Access Denied (the key needs admin = true", "s3://demo/", "--yes", "--access-key",
				demoAccessKey, "--secret-key-file", secret)
			purge(1, "refused: SignatureDoesNotMatch", "s3://demo/", "--yes", "--access-key", "AKIAADMIN", "--secret-key-file", secret)
			if log := n.log.String(); !strings.Contains(log, "msg=invalidated bucket=demo objects=2 access_key=AKIAADMIN") {
				t.Error("not in the log")
			}
		})
	}
}

// TestPurgeWithoutConfig names the node and takes the key from the environment.
func TestPurgeWithoutConfig(t *testing.T) {
	n := newTestNode(t, asAdmin)
	var out, errOut bytes.Buffer
	args := []string{"purge", "s3://demo/", "--endpoint", n.s3.url()}
	environ := []string{"AWS_ACCESS_KEY_ID=AKIAADMIN", "AWS_SECRET_ACCESS_KEY=s3cr3t-of-admin"}
	if code := run(t.Context(), args, environ, &out, &errOut); code != 0 || !strings.HasPrefix(out.String(), "0 objects remembered") {
		t.Errorf("%d %q %q", code, &out, &errOut)
	}
	out.Reset()
	environ = append(environ, "AWS_REGION=elsewhere")
	if code := run(t.Context(), args, environ, &out, &errOut); code != 1 ||
		!strings.Contains(errOut.String(), "refused: AuthorizationHeaderMalformed") {
		t.Errorf("%d %q %q", code, &out, &errOut)
	}

	// Something else answers, or nothing.
	store := httptest.NewServer(devs3.New(devs3.Config{}))
	args[3] = store.URL
	if code := run(t.Context(), args, environ, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), "purge: refused: ") {
		t.Errorf("%d %q %q", code, &out, &errOut)
	}
	store.Close()
	errOut.Reset()
	if code := run(t.Context(), args, environ, &out, &errOut); code != 1 ||
		!strings.Contains(errOut.String(), "purge: no answer from the node: ") {
		t.Errorf("%d %q %q", code, &out, &errOut)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer web.Close()
	args[3] = web.URL
	errOut.Reset()
	if code := run(t.Context(), args, environ, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), "none of ashlar's") {
		t.Errorf("%d %q %q", code, &out, &errOut)
	}
}
