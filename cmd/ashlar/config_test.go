package main

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

var update = flag.Bool("update", false, "write the expected messages of testdata/badconfig")

// TestBadConfig holds every file of testdata/badconfig against the messages next to it: each names file, line, key,
// what is wrong, and what was probably meant, and all that is wrong is told at once.
func TestBadConfig(t *testing.T) {
	files, err := filepath.Glob("../../testdata/badconfig/*.toml")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".toml"), func(t *testing.T) {
			var out, errOut bytes.Buffer
			code := run(t.Context(), []string{"check", "--config", file}, nil, &out, &errOut)
			if code != exitBadInput || out.Len() != 0 {
				t.Errorf("exit code %d with %q on stdout, want 2 and nothing", code, &out)
			}
			got := strings.ReplaceAll(errOut.String(), filepath.Dir(file)+"/", "")
			for line := range strings.Lines(got) {
				if !regexp.MustCompile(`^[a-z0-9-]+\.toml:\d+: `).MatchString(line) {
					t.Errorf("message without file and line: %s", line)
				}
			}
			for _, secret := range []string{"battery", "hunter2", "12345678"} {
				if strings.Contains(got, secret) {
					t.Errorf("a secret is shown: %s", got)
				}
			}
			golden := strings.TrimSuffix(file, ".toml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// example returns config.example.toml, with the keys of lists uncommented if all is set.
func example(t *testing.T, all bool) []byte {
	t.Helper()
	data, err := os.ReadFile("../../config.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	if all {
		data = regexp.MustCompile(`(?m)^# (\[\[|[a-z_]+ = )`).ReplaceAll(data, []byte("$1"))
	}
	return data
}

// load is loadFile without a file.
func load(t *testing.T, text string, environ ...string) (*Config, error) {
	t.Helper()
	c, s := parse("test.toml", []byte(text), environ)
	if c != nil {
		c.validate(s)
		c.resolve(s)
	}
	if ps := s.done(); len(ps) > 0 {
		return nil, ps
	}
	return c, nil
}

func TestExampleHasTheDefaults(t *testing.T) {
	got, err := load(t, string(example(t, false)))
	if err != nil {
		t.Fatal(err)
	}
	if want := defaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("config.example.toml says\n%+v\nthe defaults are\n%+v", got, want)
	}
	empty, err := load(t, "")
	if err != nil || !reflect.DeepEqual(empty, defaults()) {
		t.Errorf("an empty file is not the defaults: %+v, %v", empty, err)
	}
}

func TestExampleNamesEveryKey(t *testing.T) {
	text := example(t, true)
	c, s := parse("config.example.toml", text, nil)
	if ps := s.done(); len(ps) > 0 {
		t.Fatal(ps)
	}
	if len(c.Auth.Keys) != 1 || len(c.Bucket) != 1 {
		t.Fatalf("the lists were not uncommented: %+v", c)
	}
	for _, k := range allKeys() {
		found := false
		for path := range linesOf(string(text)) {
			found = found || plain(path) == k.path
		}
		if !found {
			t.Errorf("%s is missing", k.path)
		}
	}
	// What stands in comments are the defaults too, where there is one.
	k, want := c.Auth.Keys[0], newAuthKey()
	k.AccessKey, k.SecretKeyFile = "", ""
	if !reflect.DeepEqual(k, want) {
		t.Errorf("[[auth.keys]] says %+v, a new key is %+v", k, want)
	}
}

// full is a file with every key set, to something else than its default where that can be.
const full = `
[server]
listen = "127.0.0.1:9100"
admin = "127.0.0.1:9101"
domains = ["s3.example.com", "cache.local"]
access_log = true
drain = "10s"
tls.client_ca = ""
[server.limits]
max_connections = 100
max_requests = 50
max_header = "16 KiB"
max_header_count = 100
read_header_timeout = "5s"
idle_timeout = "1m"
min_rate = "1 KiB"
[log]
level = "debug"
format = "json"
[origin]
endpoint = "http://127.0.0.1:7070"
region = "eu-central-1"
virtual_hosted = true
[origin.credentials]
source = "static"
access_key = "AKIAORIGIN"
secret_key = "s3cr3t-of-origin"
session_token = "s3cr3t-token"
[auth]
mode = "static"
anonymous_buckets = ["public-*", "x"]
[[auth.keys]]
access_key = "AKIAONE"
secret_key = "s3cr3t-of-one"
buckets = ["logs-*", "x"]
prefix = "a\\b\"ü\u0001/"
write = true
list = false
delete = true
admin = true
[[auth.keys]]
access_key = "AKIATWO"
secret_key_file = "FILE"
[cache]
memory = "512 MiB"
info_memory = 33554433
origin_concurrency = 7
[buckets]
block_size = "256 KiB"
fetch_window = 3
read_window = 5
populate_max = "1MB"
consistency = { mode = "immutable", ttl = "1m30s" }
readahead = 0
negative_ttl = "5s"
fetch = { first_byte = "1500ms", attempt = "2m", deadline = "2h", hedge = { factor = 2.5, max = "1s" } }
[[bucket]]
name = "models-*"
block_size = "4 MiB"
fetch.attempt = "1h"
fetch.hedge = false
[[bucket]]
name = "logs-?"
consistency.mode = "etag"
[cluster]
nodes = ["10.0.0.1:9000", { id = "b", addr = "10.0.0.2:9000", weight = 3 }]
resolver = "10.0.0.53:53"
refresh = "20s"
block_size = "4 MiB"
read_window = 8
load_limit = 100
down_for = "10s"
hedge = { factor = 2.0, min = "20ms", max = "1s" }
tls = { server_name = "nodes" }
credentials = { source = "static", access_key = "AKIAGATE", secret_key = "s3cr3t-of-gateway" }
warm_on_write = true
`

// TestCheckPrintsItsInput reads what check prints, and gets the same configuration and the same print, but for the
// secrets.
func TestCheckPrintsItsInput(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(" s3cr3t-in-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":   "",
		"example": string(example(t, false)),
		"full":    strings.ReplaceAll(full, "FILE", secret),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, text)
			if err != nil {
				t.Fatal(err)
			}
			var first, second bytes.Buffer
			if err := c.writeTOML(&first); err != nil {
				t.Fatal(err)
			}
			again, err := load(t, strings.ReplaceAll(first.String(), redacted, "another"))
			if err != nil {
				t.Fatalf("%v in\n%s", err, &first)
			}
			if err := again.writeTOML(&second); err != nil {
				t.Fatal(err)
			}
			if first.String() != second.String() {
				t.Errorf("printed\n%s\nthen\n%s", &first, &second)
			}
			if strings.Contains(first.String(), "s3cr3t") {
				t.Errorf("a secret is shown:\n%s", &first)
			}
			hide := func(c *Config) {
				c.Origin.Credentials.SecretKey, c.Origin.Credentials.Secret, c.Origin.Credentials.SessionToken = "", "", ""
				c.Cluster.Credentials.SecretKey, c.Cluster.Credentials.Secret = "", ""
				for i := range c.Auth.Keys {
					c.Auth.Keys[i].SecretKey, c.Auth.Keys[i].Secret = "", ""
				}
			}
			hide(c)
			hide(again)
			if !reflect.DeepEqual(c, again) {
				t.Errorf("read back\n%+v\nfrom\n%+v", again, c)
			}
		})
	}
}

// TestCheckPrintsEveryKey fails when a key is added to the structs and the print does not know it.
func TestCheckPrintsEveryKey(t *testing.T) {
	c := defaults()
	c.Auth.Keys, c.Bucket = []AuthKey{newAuthKey()}, []Bucket{{Name: "a", Buckets: c.Buckets}}
	c.Cluster.Nodes = []ClusterNode{newClusterNode()}
	var b bytes.Buffer
	if err := c.writeTOML(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range allKeys() {
		found := false
		for path := range linesOf(b.String()) {
			found = found || plain(path) == k.path
		}
		if !found {
			t.Errorf("%s is missing in\n%s", k.path, &b)
		}
	}
}

func TestFullSetsEveryKey(t *testing.T) {
	c, s := parse("full", []byte(full), nil)
	if ps := s.done(); len(ps) > 0 {
		t.Fatal(ps)
	}
	if c.Cache.InfoMemory != 33554433 || c.Buckets.PopulateMax != 1e6 || c.Server.Drain.String() != "10s" {
		t.Errorf("sizes and durations: %+v", c)
	}
	if k := c.Auth.Keys[0]; k.Prefix != "a\\b\"ü\x01/" || !k.Read || k.List || !k.Delete {
		t.Errorf("key: %+v", k)
	}
	models := c.Bucket[0]
	want := c.Buckets
	want.BlockSize, want.Fetch.Attempt, want.Fetch.Hedge.Factor = 4*mib, Duration(3600e9), 0
	if models.Buckets != want {
		t.Errorf("rule: got %+v, want [buckets] with three keys replaced: %+v", models.Buckets, want)
	}
}

func TestEnvironment(t *testing.T) {
	const text = `
[server]
listen = "127.0.0.1:1"
drain = "1s"
[buckets]
fetch_window = 2
[[bucket]]
name = "a"
`
	c, err := load(t, text,
		"ASHLAR_SERVER__LISTEN=127.0.0.1:9100",
		"ASHLAR_SERVER__ACCESS_LOG=true",
		"ASHLAR_SERVER__ADMIN=",
		"ASHLAR_BUCKETS__BLOCK_SIZE=2 MiB",
		"ASHLAR_BUCKETS__FETCH__FIRST_BYTE=750ms",
		"ASHLAR_BUCKETS__FETCH__HEDGE=false",
		"ASHLAR_BUCKETS__CONSISTENCY__MODE=immutable",
		"ASHLAR_CACHE__MEMORY=134217728",
		"ASHLAR_CACHE__ORIGIN_CONCURRENCY=9",
		"ASHLAR_ORIGIN__CREDENTIALS__SOURCE=static",
		"ASHLAR_ORIGIN__CREDENTIALS__ACCESS_KEY=AKIAENV",
		"ASHLAR_ORIGIN__CREDENTIALS__SECRET_KEY=s3cr3t=with=signs",
		"PATH=/bin", "ASHLARX=1",
		// A Kubernetes Service called "ashlar", and one called "ashlar-node", put these into every container.
		"ASHLAR_SERVICE_HOST=10.0.0.1", "ASHLAR_SERVICE_PORT=9000", "ASHLAR_SERVICE_PORT_S3=9000",
		"ASHLAR_PORT=tcp://10.0.0.1:9000", "ASHLAR_PORT_9000_TCP=tcp://10.0.0.1:9000", "ASHLAR_PORT_9000_TCP_PROTO=tcp",
		"ASHLAR_PORT_9000_TCP_PORT=9000", "ASHLAR_PORT_9000_TCP_ADDR=10.0.0.1", "ASHLAR_NODE_SERVICE_HOST=10.0.0.2",
		"ASHLAR_NODE_PORT=tcp://10.0.0.2:9000", "ASHLAR_NODE_PORT_9000_TCP_ADDR=10.0.0.2",
	)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Server; s.Listen != "127.0.0.1:9100" || !s.AccessLog || s.Admin != "" || s.Drain.String() != "1s" {
		t.Errorf("server: %+v", s)
	}
	if c.Cache.Memory != 128*mib || c.Cache.OriginConcurrency != 9 {
		t.Errorf("cache: %+v", c.Cache)
	}
	if b := c.Bucket[0].Buckets; b.BlockSize != 2*mib || b.FetchWindow != 2 || b.Fetch.FirstByte.String() != "750ms" ||
		b.Consistency.Mode != "immutable" {
		t.Errorf("[[bucket]] does not start from [buckets] as the environment left it: %+v", b)
	}
	if h := c.Bucket[0].Fetch.Hedge; h.rule().On() || h.Max.String() != "2s" {
		t.Errorf("hedging: %+v", h)
	}
	if cr := c.Origin.Credentials; string(cr.Secret) != "s3cr3t=with=signs" || cr.AccessKey != "AKIAENV" {
		t.Error("credentials were not taken over")
	}
}

func TestBadEnvironment(t *testing.T) {
	for _, tc := range []struct{ env, want string }{
		{"ASHLAR_SERVER__LISTN=x", "unknown key; did you mean ASHLAR_SERVER__LISTEN?"},
		{"ASHLAR_SERVER_LISTEN=x", "unknown key; did you mean ASHLAR_SERVER__LISTEN?"},
		{"ASHLAR_server__listen=x", "unknown key; did you mean ASHLAR_SERVER__LISTEN?"},
		{"ASHLAR_CONFIG=x", "unknown key; names are ASHLAR_SECTION__KEY, such as ASHLAR_SERVER__LISTEN"},
		{"ASHLAR_ADMIN_PORT=9001", "unknown key"},
		{"ASHLAR_SERVER__DOMAINS=x", "server.domains is, or is in, a list; those can be set in the file only"},
		{"ASHLAR_AUTH__KEYS=s3cr3t", "auth.keys is a list of tables; those can be set in the file only"},
		{"ASHLAR_AUTH__KEYS__0__SECRET_KEY=s3cr3t", "auth.keys is a list of tables"},
		{"ASHLAR_BUCKET=x", "bucket is a list of tables"},
		{"ASHLAR_SERVER__LIMITS=x", "server.limits is a table; its keys are set one by one, such as " +
			"ASHLAR_SERVER__LIMITS__MAX_CONNECTIONS"},
		{"ASHLAR_AUTH__MODEE=x", "unknown key; did you mean ASHLAR_AUTH__MODE?"},
		{"ASHLAR_ORIGIN__CREDENTIALS__SECRET_KEY=REDACTED", `"REDACTED" is what check prints in place of a secret`},
		{"ASHLAR_AUTH__KEYS__SECRET_KEY=s3cr3t", "auth.keys.secret_key is, or is in, a list"},
		{"ASHLAR_SERVER__ACCESS_LOG=yes", "must be true or false"},
		{"ASHLAR_SERVER__DRAIN=30", `"30" is not a duration`},
		{"ASHLAR_BUCKETS__FETCH__HEDGE=true", "must be false; of a rule the keys are set one by one, such as " +
			"ASHLAR_BUCKETS__FETCH__HEDGE__FACTOR"},
		{"ASHLAR_CACHE__MEMORY=1 Gb/s", `"1 Gb/s" has an unknown unit`},
		{"ASHLAR_CACHE__MEMORY=1 MiB", "1 MiB is too little for blocks of 1 MiB"},
		{"ASHLAR_CACHE__ORIGIN_CONCURRENCY=many", `"many" is not a whole number`},
		{"ASHLAR_SERVER__LISTEN=0.0.0.0:9000", "0.0.0.0:9000 can be reached from the network"},
		{"ASHLAR_ORIGIN__CREDENTIALS__SECRET_KEY=s3cr3t", "secret_key would not be used"},
		{"ASHLAR_ORIGIN__REGION=\xff", "not valid UTF-8"},
	} {
		name, _, _ := strings.Cut(tc.env, "=")
		_, err := load(t, "", tc.env)
		if err == nil || !strings.HasPrefix(err.Error(), "environment "+name+": "+tc.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", tc.env, err, tc.want)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
}

func TestAnonymousBeyondLoopback(t *testing.T) {
	for listen, ok := range map[string]bool{
		"127.0.0.1:9000": true, "127.8.9.1:9000": true, "[::1]:9000": true, "localhost:9000": true,
		":9000": false, "0.0.0.0:9000": false, "[::]:9000": false, "10.1.2.3:9000": false, "example.com:9000": false,
		"[::ffff:127.0.0.1]:9000": true,
	} {
		text := fmt.Sprintf("[server]\nlisten = %q\n", listen)
		if _, err := load(t, text); (err == nil) != ok {
			t.Errorf("%s: %v", listen, err)
		}
		if _, err := load(t, text+"[auth]\nallow_anonymous_network = true\n"); err != nil {
			t.Errorf("%s, explicitly allowed: %v", listen, err)
		}
		keys := "[auth]\nmode = \"static\"\n[[auth.keys]]\naccess_key = \"a\"\nsecret_key = \"b\"\n"
		if _, err := load(t, text+keys); err != nil {
			t.Errorf("%s, with keys: %v", listen, err)
		}
	}
}

// TestSecretIsNeverShown formats, logs and encodes a configuration in all the usual ways.
func TestSecretIsNeverShown(t *testing.T) {
	c := defaults()
	c.Origin.Credentials.SecretKey, c.Origin.Credentials.Secret = "s3cr3t", "s3cr3t"
	c.Auth.Keys = []AuthKey{{AccessKey: "AKIA", SecretKey: "s3cr3t", Secret: "s3cr3t"}}
	var b bytes.Buffer
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, format+"\n", c)
		fmt.Fprintf(&b, format+"\n", c.Auth.Keys[0].Secret)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).Info("config", "config", c, "secret", c.Auth.Keys[0].Secret, "keys", c.Auth.Keys)
	}
	if err := toml.NewEncoder(&b).Encode(c); err != nil {
		t.Fatal(err)
	}
	hex := fmt.Sprintf("%x", "s3cr3t")
	if s := b.String(); strings.Contains(s, "s3cr3t") || strings.Contains(s, hex) || strings.Contains(s, "[115 51") {
		t.Errorf("a secret is shown:\n%s", s)
	}
	if !strings.Contains(b.String(), redacted) {
		t.Error("secrets that are set should show as such")
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	config := func(file string) string {
		return fmt.Sprintf("[auth]\nmode = \"static\"\n[[auth.keys]]\naccess_key = \"a\"\nsecret_key_file = %q\n", file)
	}
	c, err := load(t, config(write("good", "\n  s3cr3t/+=\r\n")))
	if err != nil || c.Auth.Keys[0].Secret != "s3cr3t/+=" {
		t.Errorf("%v, %v", c, err)
	}
	for name, want := range map[string]string{
		write("empty", " \n"):         "is empty",
		write("lines", "one\ntwo\n"):  "more than one line",
		write("print", "REDACTED\n"):  "what check prints in place of a secret",
		dir:                           "is a directory",
		filepath.Join(dir, "no-such"): "no such file or directory; relative names start",
	} {
		if _, err := load(t, config(name)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "test.toml:5: auth.keys.secret_key_file: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSizesAndDurations(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "17": 17, "64 KiB": 64 << 10, "64KiB": 64 << 10, "1 gib": 1 << 30, "1MB": 1e6, "3 TB": 3e12,
		"5 B": 5, " 7 kb ": 7000,
	} {
		got, err := parseSize(text)
		if again, err2 := parseSize(got.String()); err != nil || err2 != nil || got != want || again != want {
			t.Errorf("%q: %d, %v; printed %v, %v", text, got, err, got, err2)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5 MiB", "1 M", "1 Mib/s", "9223372036854775808",
		"9000000 TiB", "0x10", "1_000"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
	for _, text := range []string{"0s", "50ms", "60s", "2m", "90s", "1h", "36h", "1.5ms", "1us", "1ns", "1h0m1s"} {
		got, err := parseDuration(text)
		if again, err2 := parseDuration(got.String()); err != nil || err2 != nil || again != got {
			t.Errorf("%q: %v, %v, %v", text, got, err, err2)
		}
	}
	for _, text := range []string{"", "5", "-1s", "1d", "soon"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestMatchPattern(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"a*c", "abbc", true},
		{"a*c", "abcb", false}, {"*-*", "a-b", true}, {"*-*", "ab", false}, {"?", "", false}, {"a?c", "abc", true},
		{"*a*b", "xaxbxb", true}, {"*a*b", "xaxbxbx", false}, {"logs-*", "logs", false}, {"", "", true}, {"", "a", false},
		{"**", "a", true}, {"a**b", "ab", true},
	} {
		if got := matchPattern(tc.pattern, tc.name); got != tc.want {
			t.Errorf("%q on %q: %v", tc.pattern, tc.name, got)
		}
	}
}

// TestLines holds the scanner of positions against a document with everything in it that TOML has.
func TestLines(t *testing.T) {
	const doc = `# comment with [table] and key = 1
a = """
[not.a.table]
b = 1 \""""" # two quotes at the end
"quoted \u0041.key" = '''
c = 2'''

[t] # comment
d.e."f g" = [ # comment ]
  { x = 1, y = [1, "]", ']'] },
  { x = { z = 2024-01-02 03:04:05 } }, # }
]
[[t.list]]
n = 1
[t.list.sub]
m = 1
[[t.list]]
n = 'it\'
[ t . list . "sub" ]
m = 0x1F
`
	if _, err := toml.Decode(doc, new(map[string]any)); err != nil {
		t.Fatal(err)
	}
	lines := linesOf(doc)
	for path, want := range map[string]int{
		"a": 2, `"quoted A.key"`: 5, "t": 8, "t.d": 9, "t.d.e": 9, `t.d.e."f g"`: 9, `t.d.e."f g"[0].x`: 10,
		`t.d.e."f g"[0].y[2]`: 10, `t.d.e."f g"[1].x.z`: 11, "t.list[0]": 13, "t.list[0].n": 14, "t.list[0].sub": 15,
		"t.list[0].sub.m": 16, "t.list[1]": 17, "t.list[1].n": 18, "t.list[1].sub": 19, "t.list[1].sub.m": 20,
	} {
		if lines[path] != want {
			t.Errorf("%s: line %d, want %d", path, lines[path], want)
		}
	}
	if t.Failed() {
		t.Log(lines)
	}
}

// FuzzConfig reads arbitrary text. It must not panic; each problem has a line of the file; what passes can be printed
// and read again; and the scanner of positions finds every key that the TOML parser found.
func FuzzConfig(f *testing.F) {
	files, _ := filepath.Glob("../../testdata/badconfig/*.toml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	data, err := os.ReadFile("../../config.example.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add(full)
	f.Fuzz(func(t *testing.T, text string) {
		c, s := parse("fuzz.toml", []byte(text), nil)
		if c != nil {
			c.validate(s)
			checkLines(t, text)
		}
		ps := s.done()
		for _, p := range ps {
			if p.Line < 1 || p.Line > strings.Count(text, "\n")+1 || p.Text == "" {
				t.Errorf("%+v in %d lines", p, strings.Count(text, "\n")+1)
			}
		}
		if c == nil || len(ps) > 0 {
			if len(ps) == 0 {
				t.Error("refused without a reason")
			}
			return
		}
		var first, second bytes.Buffer
		if err := c.writeTOML(&first); err != nil {
			t.Fatal(err)
		}
		again, s := parse("again.toml", bytes.ReplaceAll(first.Bytes(), []byte(redacted), []byte("another")), nil)
		if again != nil {
			again.validate(s)
		}
		if ps := s.done(); len(ps) > 0 {
			t.Fatalf("%v in\n%s", ps, &first)
		}
		if err := again.writeTOML(&second); err != nil || first.String() != second.String() {
			t.Errorf("%v: printed\n%s\nthen\n%s", err, &first, &second)
		}
	})
}

func checkLines(t *testing.T, text string) {
	var tree map[string]any
	md, err := toml.Decode(text, &tree)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for path := range linesOf(text) {
		found[plain(path)] = true
	}
	for _, k := range md.Keys() {
		path := ""
		for _, part := range k {
			path = join(path, part)
		}
		if !found[plain(path)] {
			t.Errorf("%s has no line in\n%s", path, text)
		}
	}
}
