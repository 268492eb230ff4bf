package devs3_test

import (
	"net/http/httptest"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/internal/s3wiretest"
)

// TestWire holds the server to what S3 answers, in all its shapes.
func TestWire(t *testing.T) {
	for _, c := range []struct {
		name          string
		dir, signed   bool
		domain        string
		virtualHosted bool
		warm          bool
	}{
		{name: "memory", signed: true},
		{name: "memory-virtual-hosted", signed: true, domain: "s3.test", virtualHosted: true},
		{name: "directory", dir: true, signed: true, domain: "s3.test", warm: true},
		{name: "anonymous"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg devs3.Config
			target := s3wiretest.Target{Domain: c.domain, VirtualHosted: c.virtualHosted, Warm: c.warm, Skips: map[string]string{
				"checksum/U06-range-of-all-bytes-*": "a range that is the only part of an object tells its checksum",
			}}
			if c.dir {
				cfg.Dir = t.TempDir()
			}
			if c.signed {
				target.AccessKey, target.SecretKey = "AKIDEXAMPLE", "wire-suite-secret"
				cfg.Keys = map[string]string{target.AccessKey: target.SecretKey}
			}
			if c.domain != "" {
				cfg.Domains = []string{c.domain}
			}
			h := httptest.NewServer(devs3.New(cfg))
			t.Cleanup(h.Close)
			target.URL = h.URL
			s3wiretest.Run(t, target)
		})
	}
}
