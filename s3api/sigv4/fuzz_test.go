package sigv4

import (
	"strings"
	"testing"
	"time"
)

// FuzzVerify sends bytes as they might come from anyone. Nobody without the secret gets in, nothing panics, and what is
// refused is refused in a way that can be answered.
func FuzzVerify(f *testing.F) {
	seeds := []string{base(f), basePresigned(f),
		"GET /b/k?AWSAccessKeyId=A&Signature=s&Expires=1 HTTP/1.1\nHost: h\n\n"}
	for _, v := range vectors {
		seeds = append(seeds, v.raw)
	}
	for _, s := range seeds {
		f.Add(s)
	}
	verifiers := []*Verifier{New(exampleConfig()), New(Config{Lookup: exampleConfig().Lookup}), New(Config{})}
	// Signatures that were given away: good ones are in the seeds, so that the fuzzer gets far.
	good := map[string]bool{}
	for _, s := range seeds {
		if r, err := tryParse(s); err == nil {
			if id, err := verifiers[0].verify(r, exampleTime); err == nil {
				good[id.Signature] = true
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := tryParse(raw)
		if err != nil {
			return
		}
		HasAuth(r)
		for i, v := range verifiers {
			for _, now := range []time.Time{exampleTime, exampleTime.Add(8 * 24 * time.Hour)} {
				id, e := v.verify(r, now)
				if e == nil {
					if i == 2 || !good[id.Signature] || !HasAuth(r) {
						t.Fatalf("accepted as %+v\n%s", id, raw)
					}
					continue
				}
				if e.Status < 400 || e.Status > 501 || e.Code == "" || e.Message == "" {
					t.Fatalf("%d %v", e.Status, e)
				}
				size := 0
				for _, f := range e.Fields {
					size += len(f.Value)
				}
				if size > 10*maxEcho || strings.Contains(e.Error(), exampleSecret) {
					t.Fatalf("%d bytes of fields in %v", size, e)
				}
			}
		}
	})
}
