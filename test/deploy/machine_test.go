//go:build integration

package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// composeFile is all that deploy/compose.yaml may say. Nothing else checks its keys where there is no Docker.
type composeFile struct {
	Name     string
	Template map[string]any `yaml:"x-ashlar"`
	Services map[string]struct {
		Image           string
		Build           struct{ Context, Dockerfile string }
		Command         []string
		Environment     map[string]string
		Restart         string
		StopGracePeriod string   `yaml:"stop_grace_period"`
		MemLimit        string   `yaml:"mem_limit"`
		ReadOnly        bool     `yaml:"read_only"`
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		Ulimits         map[string]int
		Volumes         []string
		Ports           []string
	}
	Volumes map[string]any
}

// TestCompose checks that the services of the compose file fit each other and their configurations.
func TestCompose(t *testing.T) {
	files := documents[composeFile](t, read(t, folder, "compose.yaml"), true)
	if len(files) != 1 {
		t.Fatalf("%d documents", len(files))
	}
	compose := files[0]
	var nodes, used []string
	var gateway, node config
	for name, s := range compose.Services {
		var file string // the configuration
		for _, v := range s.Volumes {
			from, to, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, ".") {
				file, to, _ = strings.Cut(from+":"+to, ":")
				if to != "/etc/ashlar/ashlar.toml:ro" {
					t.Errorf("%s has its configuration at %s", name, to)
				}
				continue
			}
			used = append(used, from)
		}
		if name == "origin" {
			continue
		}
		c := parse(t, read(t, folder, file))
		if s.Build.Context != ".." || s.Build.Dockerfile != "deploy/Dockerfile" || !s.ReadOnly {
			t.Errorf("%s is made from %v, with a root that is read-only: %v", name, s.Build, s.ReadOnly)
		}
		if duration(t, s.StopGracePeriod) <= c.stopping(t) {
			t.Errorf("%s is killed after %s, and stopping takes %v", name, s.StopGracePeriod, c.stopping(t))
		}
		if bytesOf(t, s.MemLimit) != c.limit(t) {
			t.Errorf("%s may have %s of memory; by the manual's rule it is %d MiB", name, s.MemLimit, c.limit(t)>>20)
		}
		if name == "gateway" {
			gateway = c
			want := []string{"127.0.0.1:9000" + c.Server.Listen, "127.0.0.1:9001" + c.Server.Admin}
			if !slices.Equal(s.Ports, want) {
				t.Errorf("the gateway's ports are %q, want %q", s.Ports, want)
			}
			continue
		}
		node = c
		nodes = append(nodes, name+port(t, c.Server.Listen))
		if !slices.Contains(s.Volumes, name+":"+c.Cache.Disk.Path) {
			t.Errorf("%s has no volume of its own at %s: %q", name, c.Cache.Disk.Path, s.Volumes)
		}
		if len(s.Ports) != 0 {
			t.Errorf("%s can be reached around the gateway", name)
		}
	}
	slices.Sort(nodes)
	if len(nodes) != 3 || !slices.Equal(gateway.Cluster.Nodes, nodes) {
		t.Errorf("the gateway's nodes are %q, of %q", gateway.Cluster.Nodes, nodes)
	}
	slices.Sort(used)
	if names := slices.Sorted(maps.Keys(compose.Volumes)); !slices.Equal(names, used) {
		t.Errorf("volumes %q, used are %q", names, used)
	}
	if !node.knows(gateway.Cluster.Credentials) {
		t.Error("nodes don't know the gateway's key as a cluster's")
	}
	env := compose.Services["origin"].Environment
	want := credentials{AccessKey: env["ROOT_ACCESS_KEY"], SecretKey: env["ROOT_SECRET_KEY"]}
	for _, c := range []config{node, gateway} {
		if c.Origin.Credentials != want || c.Origin.Endpoint != "http://origin:7070" { // versitygw's own port
			t.Errorf("the origin is asked as %v", c.Origin)
		}
	}
}

// TestSystemd checks that the unit fits the configuration beside it, and what a node does at signals.
func TestSystemd(t *testing.T) {
	unit := make(map[string]string)
	for line := range strings.Lines(read(t, folder, "systemd", "ashlar.service")) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
			unit[name] += value
		}
	}
	c := parse(t, read(t, folder, "systemd", "ashlar.toml"))
	if want := c.limit(t); bytesOf(t, unit["MemoryMax"]) != want {
		t.Errorf("MemoryMax=%s; by the manual's rule it is %dM", unit["MemoryMax"], want>>20)
	}
	if duration(t, unit["TimeoutStopSec"]) <= c.stopping(t) {
		t.Errorf("killed after %s, and stopping takes %v", unit["TimeoutStopSec"], c.stopping(t))
	}
	if want := "/var/cache/" + unit["CacheDirectory"]; c.Cache.Disk.Path != want {
		t.Errorf("blocks are written to %s, and only %s can be", c.Cache.Disk.Path, want)
	}
	for _, f := range c.secrets() {
		if filepath.Dir(f) != "/etc/ashlar" {
			t.Errorf("%s is not where the manual puts secrets", f)
		}
	}
	for name, want := range map[string]string{
		"ExecStart":                "/usr/local/bin/ashlar serve --config /etc/ashlar/ashlar.toml",
		"ExecReload":               "/bin/kill -HUP $MAINPID",
		"RestartPreventExitStatus": "2", // exitBadInput
		"User":                     "ashlar",
	} {
		if unit[name] != want {
			t.Errorf("%s=%s, want %s", name, unit[name], want)
		}
	}
	if user := read(t, folder, "systemd", "ashlar.conf"); !strings.Contains(user, "\nu "+unit["User"]+" ") {
		t.Errorf("%s is made by nothing in\n%s", unit["User"], user)
	}
}

// checked are the configurations that a node takes.
var checked = []string{"systemd/ashlar.toml", "kubernetes/nodes/ashlar.toml", "kubernetes/gateway/ashlar.toml",
	"compose/node.toml", "compose/gateway.toml"}

// TestConfigurations asks the binary about them. It warns of what this machine lacks, and that is fine.
func TestConfigurations(t *testing.T) {
	for _, name := range checked {
		dir := t.TempDir()
		text := regexp.MustCompile(`(?m)(secret_key_file = )"[^"]*/([a-z.]+)"`).ReplaceAllStringFunc(
			read(t, folder, name), func(setting string) string {
				file := filepath.Join(dir, filepath.Base(strings.Trim(setting[strings.Index(setting, `"`):], `"`)))
				if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
					t.Fatal(err)
				}
				return `secret_key_file = "` + file + `"`
			})
		file := filepath.Join(dir, "ashlar.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, setting(t, "TEST_ASHLAR"), "check", "--config", file)
	}
}
