//go:build integration

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The examples of docs/clients.md, as they stand there, one after the other in one folder.
func TestDocumentedCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(sh|python)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 7 || !strings.HasPrefix(blocks[0][2], "export ENDPOINT=") {
		t.Fatalf("%d examples found, and not the settings first", len(blocks))
	}
	p, _ := matrixPair(t, sharedPair(t).origin, "http")
	s := seat{url: p.node.URL(), bucket: p.bucket(t)}
	venv, dir := setting(t, "TEST_VENV"), t.TempDir()
	env := append(s.environment(t), "ENDPOINT="+s.url, "BUCKET="+s.bucket,
		"HOME="+dir, "PATH="+filepath.Join(venv, "bin")+":"+os.Getenv("PATH"))
	installDuckDBHTTPFS(t, venv, dir)
	// Of the settings, all but the addresses and keys, which are the test's.
	blocks[0][2] = regexp.MustCompile("(?m)^export .*\n").ReplaceAllString(blocks[0][2], "")
	for _, b := range blocks {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b[2])
		if b[1] == "python" {
			cmd = exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), "-c", b[2])
		}
		cmd.Env, cmd.Dir = env, dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s%s", err, b[2], out)
		} else {
			t.Logf("%s", out)
		}
	}
}

// installDuckDBHTTPFS puts the extension, which a Python package holds, where INSTALL would put what it fetches.
func installDuckDBHTTPFS(t *testing.T, venv, home string) {
	t.Helper()
	const name = "httpfs.duckdb_extension"
	found, err := filepath.Glob(filepath.Join(venv, "lib", "*", "*", "duckdb_extension_httpfs", "extensions", "*", name))
	if err != nil || len(found) != 1 {
		t.Fatalf("the extension is in %q, %v", found, err)
	}
	platform := "linux_" + runtime.GOARCH
	dir := filepath.Join(home, ".duckdb", "extensions", filepath.Base(filepath.Dir(found[0])), platform)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(found[0], filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
