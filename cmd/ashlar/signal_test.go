package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// process is ashlar in a process of its own.
type process struct {
	*exec.Cmd
	url string // of the S3 listener
	log *bufio.Scanner
	err io.Closer // the reading end of its stderr
}

// processConfig is a configuration without [auth].
func processConfig(origin string) string {
	return fmt.Sprintf("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"\"\n[cache]\nmemory = \"64 MiB\"\n"+
		"[origin]\nendpoint = %q\ncredentials = { source = \"anonymous\" }\n", origin)
}

// startProcess runs this test binary as "ashlar serve", in front of an origin.
func startProcess(t *testing.T, file string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, "serve", "--config", file)}
	settings := func(v string) bool { return strings.HasPrefix(v, envPrefix) }
	p.Env = append(slices.DeleteFunc(os.Environ(), settings), reexec+"=1")
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	p.log, p.err = bufio.NewScanner(stderr), stderr
	line := p.waitFor(t, "msg=serving")
	_, rest, _ := strings.Cut(line, "listen=")
	p.url, _, _ = strings.Cut(rest, " ")
	return p
}

// waitFor reads the log up to a line with part in it.
func (p *process) waitFor(t *testing.T, part string) string {
	t.Helper()
	var seen []string
	for p.log.Scan() {
		if strings.Contains(p.log.Text(), part) {
			return p.log.Text()
		}
		seen = append(seen, p.log.Text())
	}
	t.Fatalf("no %q in the log: %q", part, seen)
	return ""
}

func TestSignals(t *testing.T) {
	store := devs3.New(devs3.Config{})
	store.PutGenerated("bucket", "k", 48<<20, 1)
	origin := httptest.NewServer(store)
	defer origin.Close()

	t.Run("one", func(t *testing.T) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			p := startProcess(t, writeFile(t, "a.toml", processConfig(origin.URL)))
			if err := p.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			p.waitFor(t, "msg=stopped")
			if err := p.Wait(); err != nil {
				t.Errorf("%v: %v, want exit code 0", sig, err)
			}
		}
	})
	t.Run("two", func(t *testing.T) {
		p := startProcess(t, writeFile(t, "a.toml", processConfig(origin.URL)))
		resp, err := httpClient(t).Get(p.url + "/bucket/k")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		refuses(t, strings.TrimPrefix(p.url, "http://"))
		if err := p.Process.Signal(syscall.SIGTERM); err != nil { // the response is still under way
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("%v, want death by the second signal", err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Error("the response looks complete")
		}
	})
}

// TestNobodyReadsTheLog: a node goes on when what read its stdout and stderr is gone. By default, to write there then
// ends a process (SIGPIPE).
func TestNobodyReadsTheLog(t *testing.T) {
	store := devs3.New(devs3.Config{})
	store.Put("bucket", "k", []byte("hello"))
	origin := httptest.NewServer(store)
	defer origin.Close()
	p := startProcess(t, writeFile(t, "a.toml", strings.Replace(processConfig(origin.URL), "[server]\n",
		"[server]\naccess_log = true\n", 1)))
	if err := p.err.Close(); err != nil {
		t.Fatal(err)
	}
	c := httpClient(t)
	for range 5 {
		if code, body := get(t, c, p.url+"/bucket/k"); code != 200 || body != "hello" {
			t.Fatalf("%d %q", code, body)
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
}
