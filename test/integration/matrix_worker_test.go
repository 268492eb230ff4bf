//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// worker is a client in another language, as a process that does one thing after the other. It is asked by a line and
// answers by one, the fields between tabs:
//
//	put KEY FILE | list PREFIX | get KEY FILE | range KEY FIRST LAST FILE | copy KEY KEY | remove KEY |
//	removeAll PREFIX
//	ok [KEY…] | missing | error MESSAGE
type worker struct {
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func newWorker(t *testing.T, s seat, extra []string, path string, args ...string) objectClient {
	t.Helper()
	w := &worker{}
	cmd := exec.Command(path, append(args, s.url, s.bucket)...)
	cmd.Env = append(s.environment(t), extra...)
	cmd.Stderr = &w.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.in, w.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, w.stderr.String())
		}
	})
	return w
}

// environment is what clients find their key, their region and whom to trust in.
func (s seat) environment(t *testing.T) []string {
	env := environment(t, "AWS_ACCESS_KEY_ID="+clientKey.Access, "AWS_SECRET_ACCESS_KEY="+clientKey.Secret,
		"AWS_REGION="+region, "AWS_DEFAULT_REGION="+region)
	if s.ca != "" {
		env = append(env, "AWS_CA_BUNDLE="+s.ca, "NODE_EXTRA_CA_CERTS="+s.ca)
	}
	return env
}

func newJavaScript(t *testing.T, s seat) objectClient {
	modules := "NODE_PATH=" + filepath.Join(setting(t, "TEST_JS"), "node_modules")
	return newWorker(t, s, []string{modules}, setting(t, "TEST_NODE"), filepath.Join("clients", "js", "main.cjs"))
}

func newJava(t *testing.T, s seat) objectClient {
	args := []string{"-cp", filepath.Join(setting(t, "TEST_JAVA"), "*")}
	if s.ca != "" {
		store := filepath.Join(t.TempDir(), "trust")
		out, err := exec.CommandContext(t.Context(), "keytool", "-importcert", "-noprompt", "-file", s.ca,
			"-keystore", store, "-storepass", "changeit").CombinedOutput()
		if err != nil {
			t.Fatalf("keytool: %v\n%s", err, out)
		}
		args = append(args, "-Djavax.net.ssl.trustStore="+store, "-Djavax.net.ssl.trustStorePassword=changeit")
	}
	return newWorker(t, s, nil, "java", append(args, filepath.Join("clients", "java", "Main.java"))...)
}

// newPython is one of the clients of worker.py, in the environment that a variable names.
func newPython(t *testing.T, venv, name string, s seat) objectClient {
	python := filepath.Join(setting(t, venv), "bin", "python")
	return newWorker(t, s, nil, python, filepath.Join("clients", "worker.py"), name)
}

// setting is one of those that test/setup.sh prints.
func setting(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run these tests by make integration", name)
	}
	return v
}

func (w *worker) ask(fields ...string) ([]string, error) {
	if _, err := fmt.Fprintln(w.in, strings.Join(fields, "\t")); err != nil {
		return nil, errors.Join(err, errors.New(w.stderr.String()))
	}
	line, err := w.out.ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, errors.New(w.stderr.String()))
	}
	answer := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	switch answer[0] {
	case "ok":
		return answer[1:], nil
	case "missing":
		return nil, errMissing
	}
	return nil, errors.New(line)
}

func (w *worker) list(prefix string) ([]string, error) { return w.ask("list", prefix) }

func (w *worker) put(key, file string) error {
	_, err := w.ask("put", key, file)
	return err
}

func (w *worker) get(key, file string) error {
	_, err := w.ask("get", key, file)
	return err
}

func (w *worker) getRange(key string, first, last int, file string) error {
	_, err := w.ask("range", key, strconv.Itoa(first), strconv.Itoa(last), file)
	return err
}

func (w *worker) remove(key string) error {
	_, err := w.ask("remove", key)
	return err
}

func (w *worker) copy(from, to string) error {
	_, err := w.ask("copy", from, to)
	return err
}

func (w *worker) removeAll(prefix string) error {
	_, err := w.ask("removeAll", prefix)
	return err
}
