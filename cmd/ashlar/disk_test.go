package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiskCommand(t *testing.T) {
	dir := t.TempDir()
	n := newTestNode(t, func(c *Config) { c.Cache.Disk = testDisk(dir) })
	for _, bucket := range []string{"first", "second"} {
		n.store.Put(bucket, "k", bytes.Repeat([]byte(bucket), 300_000))
		get(t, httpClient(t), n.s3.url()+"/"+bucket+"/k")
	}
	disk := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"disk"}, args...), nil, &out, &errOut)
		return code, out.String(), errOut.String()
	}
	n.stop()
	for _, how := range []string{"inspect", "verify"} {
		code, out, errOut := disk(how, dir)
		if code != exitOK || errOut != "" || !strings.Contains(out, "first") || !strings.Contains(out, "second") ||
			!strings.Contains(out, "4 blocks of 3.1 MiB") || !strings.Contains(out, n.origin.Endpoint()) {
			t.Errorf("%s: %d\n%s%s", how, code, out, errOut)
		}
	}
	if code, out, _ := disk("inspect", "--regions", dir); code != exitOK || !strings.Contains(out, ".region") {
		t.Errorf("%d\n%s", code, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.region"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("firstfirst"))+1000] ^= 1
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := disk("verify", dir); code != exitFailed || !strings.Contains(errOut, "1 damaged block") ||
		!strings.Contains(out, filepath.Base(files[0])) {
		t.Errorf("damaged: %d\n%s%s", code, out, errOut)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "which directory?"}, {[]string{"inspect"}, "which directory?"}, {[]string{"inspekt", dir}, "inspect, verify"},
		{[]string{"inspect", t.TempDir()}, "is not the directory of a disk tier"},
		{[]string{"verify", dir + "/none"}, "is not the directory of a disk tier"},
	} {
		if code, out, errOut := disk(c.args...); code != exitBadInput || out != "" || !strings.Contains(errOut, c.says) {
			t.Errorf("%q: %d\n%s%s", c.args, code, out, errOut)
		}
	}
}
