package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// reexec makes the test binary behave as ashlar itself, for tests of signals and exit codes. (The name does not begin
// with ASHLAR_, since such a variable is refused when it names no key.)
const reexec = "RUN_AS_ASHLAR"

func TestMain(m *testing.M) {
	if os.Getenv(reexec) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// runFor runs a command line and returns what it did.
func runFor(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = run(ctx, args, nil, &out, &errOut)
	return code, out.String(), errOut.String()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// modest is what any machine that runs tests has: check warns of what its own has not.
const modest = "[cache]\nmemory = \"64 MiB\"\norigin_concurrency = 16\n[server.limits]\nmax_connections = 64\n" +
	"max_requests = 64\n"

func TestExitCodes(t *testing.T) {
	good := writeFile(t, "good.toml", "[origin]\ncredentials = { source = \"anonymous\" }\n"+modest)
	secret := writeFile(t, "secret", "s3cr3t\n")
	bad := writeFile(t, "bad.toml", "[server]\nlisten = 1\n")
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string // parts of
	}{
		{"", 2, "", "a command is missing"},
		{"help", 0, "ashlar demo", ""},
		{"--help", 0, "ashlar serve --config FILE", ""},
		{"help serve", 0, "SIGTERM", ""},
		{"serve --help", 0, "--config FILE", ""},
		{"check -h", 0, "secrets not", ""},
		{"demo --help", 0, "(default 127.0.0.1:9000)", ""},
		{"version --help", 0, "Go release", ""},
		{"version", 0, "ashlar ", ""},
		{"--version", 0, "ashlar ", ""},
		{"srve", 2, "", `unknown command "srve"; did you mean "serve"?`},
		{"frobnicate", 2, "", "the commands are serve, check, purge, owners, warm, disk, demo, version"},
		{"help frobnicate", 2, "", "unknown command"},
		{"serve", 2, "", "serve needs --config FILE"},
		{"check", 2, "", "check needs --config FILE"},
		{"serve --config", 2, "", "flag needs an argument"},
		{"serve --confg x", 2, "", "not defined: -confg; did you mean --config? (ashlar serve --help lists the flags)"},
		{"serve --xyzzy x", 2, "", "flag provided but not defined: -xyzzy (ashlar serve --help lists the flags)"},
		{"purge --secret-keyfile x", 2, "", "did you mean --secret-key-file?"},
		{"serve x.toml", 2, "", `unexpected argument "x.toml"`},
		{"serve --config no-such.toml", 2, "", "open no-such.toml: no such file or directory; name an existing file"},
		{"check --config " + bad, 2, "", bad + ":2: server.listen: must be a string, not a number\n"},
		{"serve --config " + bad, 2, "", bad + ":2: server.listen: must be a string, not a number\n"},
		{"check --config " + good, 0, "Origin: not signed.", ""},
		{"purge --help", 0, "--secret-key-file FILE", ""},
		{"purge", 2, "", "purge: which objects?"},
		{"owners", 2, "", "owners: of which object?"},
		{"owners s3://b --config " + good, 2, "", "names no object"},
		{"owners b/k --config " + good, 2, "", `"b/k" is not s3://BUCKET/KEY`},
		{"owners s3://b/k --config " + good, 2, "", "has no nodes in [cluster]"},
		{"owners s3://b/k --range 5-4 --config " + good, 2, "", "is not FIRST-LAST"},
		{"warm", 2, "", "warm: which objects?"},
		{"warm s3:///k --config " + good, 2, "", "is not s3://BUCKET/PREFIX"},
		{"warm s3://b/ --config " + good, 2, "", "has no nodes in [cluster]"},
		{"warm s3://b/ --rate 0 --config " + good, 2, "", "is not a size above 0"},
		{"purge s3://b/k", 2, "", "purge needs --config FILE or --endpoint URL"},
		{"purge b/k --endpoint http://x", 2, "", `"b/k" is not s3://BUCKET/PREFIX`},
		{"purge s3:///k --endpoint http://x", 2, "", "names no bucket"},
		{"purge s3://*/k --endpoint http://x", 2, "", "patterns are not understood"},
		{"purge s3://b --exact --endpoint http://x", 2, "", "must name an object"},
		{"purge s3://b/k s3://b/l --endpoint http://x", 2, "", `unexpected argument "s3://b/l"`},
		{"purge s3://b/k --endpoint http://x", 2, "", "no key to sign with"},
		{"purge s3://b/k --endpoint http://x --access-key a", 2, "", "--access-key and --secret-key-file belong together"},
		{"purge s3://b/k --endpoint http://x --client-key a", 2, "", "--client-cert and --client-key belong together"},
		{"purge s3://b/k --endpoint http://x --access-key a --secret-key-file none", 2, "", "cannot read none: no such file"},
		{"purge s3://b/k --endpoint x --access-key a --secret-key-file " + bad, 2, "", "holds more than one line"},
		{"purge s3://b/k --endpoint x --access-key a --secret-key-file " + secret, 2, "", `"x" is not a URL`},
		{"purge s3://b/k --config " + good, 2, "", `with auth.mode = "anonymous" nobody has the right to`},
		{"purge s3://b/k --config " + bad, 2, "", bad + ":2: server.listen"},
		{"demo --listen nonsense", 2, "", `demo: --listen: "nonsense" is not host:port`},
	} {
		code, stdout, stderr := runFor(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) {
			t.Errorf("ashlar %s: code %d, stdout %q, stderr %q", tc.args, code, stdout, stderr)
		}
		if (code == 0) != (stderr == "") || (tc.stdout == "") != (stdout == "") {
			t.Errorf("ashlar %s: success belongs to stdout and failure to stderr: %q, %q", tc.args, stdout, stderr)
		}
	}
}

// TestConfigThatMayNotBeRead: who may not read the file is told so, and not to choose another.
func TestConfigThatMayNotBeRead(t *testing.T) {
	err := unreadable(&fs.PathError{Op: "open", Path: "a.toml", Err: fs.ErrPermission})
	if !errors.As(err, new(inputError)) || !strings.Contains(err.Error(), "must be able to read the file") ||
		strings.Contains(err.Error(), "existing") {
		t.Error(err)
	}
}

// TestHelpIsReadable keeps the help within a terminal.
func TestHelpIsReadable(t *testing.T) {
	for _, args := range []string{"help", "help serve", "help check", "help purge", "help demo", "help version"} {
		_, out, _ := runFor(t.Context(), strings.Fields(args)...)
		for line := range strings.Lines(out) {
			if len(line) > 121 || strings.Contains(line, "\t") {
				t.Errorf("%s: %q", args, line)
			}
		}
	}
}

// withoutCredentials cuts the chain of the AWS SDK to what a test gives it.
func withoutCredentials(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_ROLE_ARN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", writeFile(t, "credentials", ""))
	t.Setenv("AWS_CONFIG_FILE", writeFile(t, "config", ""))
}

// TestCheckResolvesCredentials: check finds the credentials that serve would use, says whose they are, and shows none.
func TestCheckResolvesCredentials(t *testing.T) {
	withoutCredentials(t)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", writeFile(t, "credentials",
		"[work]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = s3cr3t\n"))
	chain := writeFile(t, "chain.toml", "[origin]\nendpoint = \"http://127.0.0.1:1\"\n"+modest)
	code, out, errOut := runFor(t.Context(), "check", "--config", chain)
	if code != 0 || !strings.Contains(out, "Origin: no credentials.\n") ||
		!strings.Contains(errOut, `level=WARN msg="no credentials for the origin;`) || strings.Contains(errOut, "s3origin") {
		t.Errorf("no credentials: code %d, %q, %q", code, out, errOut)
	}

	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
	code, out, errOut = runFor(t.Context(), "check", "--config", chain)
	if code != 0 || !strings.Contains(out, "Origin: access key AKIAENV, from EnvConfigCredentials") || errOut != "" {
		t.Errorf("environment: code %d, %q, %q", code, out, errOut)
	}
	profile := writeFile(t, "profile.toml", "[origin.credentials]\nprofile = \"work\"\n"+modest)
	code, out2, errOut := runFor(t.Context(), "check", "--config", profile)
	if code != 0 || !strings.Contains(out2, "access key AKIAPROFILE") || errOut != "" {
		t.Errorf("profile: code %d, %q, %q", code, out2, errOut)
	}
	if strings.Contains(out+out2, "s3cr3t") {
		t.Errorf("a secret is shown: %s%s", out, out2)
	}
	none := writeFile(t, "none.toml", "[origin]\ncredentials.profile = \"play\"\n")
	if code, _, errOut = runFor(t.Context(), "check", "--config", none); code != 2 ||
		!strings.HasPrefix(errOut, none+":2: origin.credentials.profile: ") || !strings.Contains(errOut, "play") {
		t.Errorf("no such profile: code %d, %q", code, errOut)
	}
}
