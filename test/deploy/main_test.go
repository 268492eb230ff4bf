//go:build integration

package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"
)

// root is the repository's, and folder what is checked.
var (
	root   = filepath.Join("..", "..")
	folder = filepath.Join(root, "deploy")
)

// flush is how long a node takes at most, after its drain, to write what its disk has queued (flushTimeout).
const flush = 20 * time.Second

func setting(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run these tests by make integration", name)
	}
	return v
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// run runs a program and returns what it prints on stdout.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, &out, &problems)
	}
	return out.String()
}

// documents decodes each document of a YAML text into a T. Keys that T lacks are left out, or errors if it is to be strict.
func documents[T any](t *testing.T, text string, strict bool) []T {
	t.Helper()
	var all []T
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(strict)
	for {
		var one T
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

// config is what the manifests have to fit, of an ashlar.toml.
type config struct {
	Server struct{ Listen, Admin, Drain string }
	Origin struct {
		Endpoint    string
		Credentials credentials
	}
	Cluster struct {
		Nodes       []string
		SRV         string
		Credentials credentials
	}
	Auth struct {
		Keys []struct {
			credentials
			Cluster bool
		}
	}
	Cache struct {
		Memory string
		Disk   struct{ Path, Capacity string }
	}
}

type credentials struct {
	AccessKey     string `toml:"access_key"`
	SecretKey     string `toml:"secret_key"`
	SecretKeyFile string `toml:"secret_key_file"`
}

func parse(t *testing.T, text string) config {
	t.Helper()
	var c config
	c.Server.Drain = "30s"
	if _, err := toml.Decode(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// secrets are the files that hold them.
func (c config) secrets() []string {
	files := []string{c.Origin.Credentials.SecretKeyFile}
	if f := c.Cluster.Credentials.SecretKeyFile; f != "" {
		files = append(files, f)
	}
	for _, k := range c.Auth.Keys {
		files = append(files, k.SecretKeyFile)
	}
	return files
}

// knows says whether one of the keys is that of a gateway.
func (c config) knows(gateway credentials) bool {
	for _, k := range c.Auth.Keys {
		if k.Cluster && k.credentials == gateway {
			return true
		}
	}
	return false
}

// limit is what a process takes at most: cache.memory, a quarter of it, and 64 MiB.
func (c config) limit(t *testing.T) int64 {
	t.Helper()
	memory := bytesOf(t, c.Cache.Memory)
	return memory + memory/4 + 64<<20
}

// stopping is how long the process takes to stop, at most.
func (c config) stopping(t *testing.T) time.Duration {
	t.Helper()
	return duration(t, c.Server.Drain) + flush
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bytesOf reads a size as ashlar.toml, Kubernetes, Compose and systemd write it: by powers of 1024 all.
func bytesOf(t *testing.T, text string) int64 {
	t.Helper()
	m := regexp.MustCompile(`^(\d+) ?([KMGkmg])i?B?$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q is no size", text)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << map[string]int{"K": 10, "M": 20, "G": 30}[strings.ToUpper(m[2])]
}
