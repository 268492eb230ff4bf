package sigv4

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func (c *keyCache) len() int {
	if m := c.keys.Load(); m != nil {
		return len(*m)
	}
	return 0
}

// A changed secret counts at once, with or without Forget.
func TestReload(t *testing.T) {
	secret := exampleSecret
	v := New(Config{Lookup: func(string) (string, string, bool) { return secret, "", true }})
	q := request{method: "GET", host: "h", path: "/b/k", hash: emptyHash,
		headers: [][2]string{{"X-Amz-Content-Sha256", emptyHash}}}
	old := parse(t, q.signed(t, exampleTime))
	q.secret = "another"
	changed := parse(t, q.signed(t, exampleTime))

	check := func(what string, good, bad bool) {
		t.Helper()
		if _, err := v.verify(old, exampleTime); (err == nil) != good {
			t.Errorf("%s, old secret: %v", what, err)
		}
		if _, err := v.verify(changed, exampleTime); (err == nil) != bad {
			t.Errorf("%s, new secret: %v", what, err)
		}
	}
	check("before", true, false)
	secret = "another"
	check("after", false, true)
	v.Forget()
	if n := v.keys.len(); n != 0 {
		t.Errorf("%d keys after Forget", n)
	}
	check("after Forget", false, true)
}

// Derived keys are kept per access key, day and region, up to a bound, and only for those who know the secret.
func TestKeyCache(t *testing.T) {
	v := New(Config{Lookup: func(k string) (string, string, bool) {
		return exampleSecret, "", strings.HasPrefix(k, "AK")
	}})
	q := request{method: "GET", host: "h", path: "/b/k", hash: emptyHash,
		headers: [][2]string{{"X-Amz-Content-Sha256", emptyHash}}}
	raw := q.signed(t, exampleTime)
	for i := range 100 {
		region := fmt.Sprintf("region-%d", i)
		r := parse(t, strings.Replace(raw, "us-east-1", region, 1))
		if e := refusal(t, v, r, exampleTime); e.Code != "SignatureDoesNotMatch" {
			t.Fatal(e)
		}
	}
	if n := v.keys.len(); n != 0 {
		t.Errorf("%d keys for wrong signatures", n)
	}
	for i := range 2*maxKeys + 7 {
		r := parse(t, strings.Replace(raw, exampleKey, fmt.Sprintf("AK%d", i), 1)) // the access key is not signed
		if _, err := v.verify(r, exampleTime); err != nil {
			t.Fatal(err)
		}
		if n, want := v.keys.len(), i%maxKeys+1; n != want {
			t.Fatalf("%d keys after %d, want %d", n, i+1, want)
		}
	}
	v.Forget()
	for day := range 9 {
		at := exampleTime.Add(time.Duration(day) * 24 * time.Hour)
		if _, err := v.verify(parse(t, q.signed(t, at)), at); err != nil {
			t.Fatal(err)
		}
	}
	if n := v.keys.len(); n != 9 {
		t.Errorf("%d keys for 9 days", n)
	}
}

// Many goroutines, good and bad signatures, keys forgotten and changed meanwhile: no request gets another's answer.
func TestConcurrentUse(t *testing.T) {
	var generation atomic.Int64
	v := New(Config{Lookup: func(k string) (string, string, bool) {
		if k == "changing" {
			return fmt.Sprint("secret", generation.Load()/100), "", true
		}
		return exampleSecret, "", k == exampleKey
	}})
	type job struct {
		raw string
		ok  bool
	}
	var jobs []job
	for i := range 16 {
		q := request{method: "GET", host: "h", path: fmt.Sprintf("/b/%d", i), hash: unsignedPayload, expires: time.Hour,
			headers: [][2]string{{"X-Amz-Content-Sha256", unsignedPayload}}}
		good, pre := q.signed(t, exampleTime), q.presigned(t, exampleTime)
		jobs = append(jobs, job{good, true}, job{pre, true},
			job{strings.Replace(good, "/b/", "/c/", 1), false}, job{strings.Replace(pre, "/b/", "/c/", 1), false},
			job{strings.Replace(good, exampleKey, "changing", 1), false})
	}
	var wg sync.WaitGroup
	for g := range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range 200 {
				j := jobs[(g*31+i)%len(jobs)]
				id, err := v.verify(parse(t, j.raw), exampleTime)
				if (err == nil) != j.ok || j.ok && !strings.Contains(j.raw, id.Signature) {
					t.Errorf("%s: %v", j.raw, err)
				}
				if generation.Add(1)%50 == 0 {
					v.Forget()
				}
			}
		})
	}
	wg.Wait()
}
