package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestCustomerKeys: an object that its owner encrypts with a key of their own (SSE-C) is read from the origin each time
// that it is read, never kept, not from its upload either, and the key is in no log: A08.
func TestCustomerKeys(t *testing.T) {
	const header, key = "X-Amz-Server-Side-Encryption-Customer-Key", "c2VjcmV0LW9mLXRoZS1jdXN0b21lci0xMjM0NTY3OA=="
	var gets atomic.Int32
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/bucket/k" {
			return // the node looks whether the origin is there
		}
		if r.Header.Get(header) != key {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Etag", `"e"`)
		w.Header().Set("X-Amz-Server-Side-Encryption-Customer-Algorithm", "AES256")
		if r.Method == http.MethodGet {
			gets.Add(1)
			fmt.Fprint(w, "plain text")
		}
	}))
	t.Cleanup(origin.Close)
	ca, dir := newTestCA(t), t.TempDir()
	n := newTestNode(t, func(c *Config) {
		c.Cache.Disk = testDisk(dir)
		c.Auth.AnonymousWrite = true
		c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t)
		c.Origin.Endpoint = origin.URL
		c.Origin.CA = writeFile(t, "origin.pem",
			string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: origin.Certificate().Raw})))
	})
	c, _ := ca.tlsClient(t, true)
	ask := func(method, with, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, n.s3.url()+"/bucket/k", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if with != "" {
			r.Header.Set(header, with)
		}
		return do(t, c, r)
	}
	if code, body := ask("PUT", key, "plain text"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	plain := newTestNode(t, func(c *Config) { // its origin is spoken to without TLS
		c.Auth.AnonymousWrite = true
		c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t)
	})
	r, err := http.NewRequestWithContext(t.Context(), "PUT", plain.s3.url()+"/bucket/k", strings.NewReader("plain text"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(header, key)
	if code, body := do(t, c, r); code != 400 || !strings.Contains(body, "the connection to the origin is not one") {
		t.Errorf("to an origin without TLS: %d %s", code, body)
	}
	for range 2 {
		if code, body := ask("GET", key, ""); code != 200 || body != "plain text" {
			t.Errorf("%d %q", code, body)
		}
		for _, wrong := range []string{"", "another"} {
			for _, method := range []string{"GET", "HEAD"} {
				if code, body := ask(method, wrong, ""); code != 400 || strings.Contains(body, "plain text") {
					t.Errorf("%s with key %q: %d %q", method, wrong, code, body)
				}
			}
		}
	}
	if gets.Load() != 2 {
		t.Errorf("%d reads at the origin, want 2", gets.Load())
	}
	if held := n.memory.Stats().Blocks; held != 0 {
		t.Errorf("%d blocks are kept in memory", held)
	}
	origin.Close() // and what fails is logged
	if code, _ := ask("GET", key, ""); code < 500 {
		t.Errorf("without an origin: %d", code)
	}
	n.stop()
	if log := n.log.String(); strings.Contains(log, key) || !strings.Contains(log, "status=200") {
		t.Errorf("the key is in the log, or nothing is:\n%s", log)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("plain text")) || bytes.Contains(data, []byte(key)) {
			t.Errorf("%s has it", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}
