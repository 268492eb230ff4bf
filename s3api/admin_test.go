package s3api

import (
	"bytes"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// purgingReader is an engine that remembers some names.
type purgingReader struct {
	fakeReader
	mu         sync.Mutex
	remembered []origin.Object
}

func (p *purgingReader) Purge(match func(origin.Object) bool, dry bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(p.remembered), match)
	n := len(p.remembered) - len(left)
	if !dry {
		p.remembered = left
	}
	return n
}

func (p *purgingReader) names() string {
	var names []string
	for _, o := range p.remembered {
		names = append(names, o.Bucket+"/"+o.Key+o.VersionID)
	}
	return strings.Join(names, " ")
}

func adminAuth() Auth {
	return Auth{Mode: Static, AnonymousBuckets: []string{"*"}, Keys: []Key{
		{AccessKey: "ADMIN", SecretKey: testSecret, Buckets: []string{"bucket", "more-*"}, Rights: Admin},
		{AccessKey: "TEAM", SecretKey: testSecret, Buckets: []string{"*"}, Prefix: "team/", Rights: Admin},
		{AccessKey: "USER", SecretKey: testSecret, Buckets: []string{"*"}, Rights: ^Admin},
	}}
}

func TestInvalidate(t *testing.T) {
	all := []origin.Object{{Bucket: "bucket", Key: "team/a"}, {Bucket: "bucket", Key: "team/a", VersionID: "@v"},
		{Bucket: "bucket", Key: "team"}, {Bucket: "other", Key: "team/a"}}
	everything := (&purgingReader{remembered: all}).names()
	var logs bytes.Buffer
	p := &purgingReader{}
	h := newHandler(t, Config{Gateway: p, Auth: adminAuth(), Region: "us-east-1", Domains: []string{"localhost"},
		Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	s := serve(t, h)
	for _, c := range []struct {
		who, body string
		status    int
		answer    string // part of
		left      string
	}{
		{"ADMIN", `{"bucket":"bucket","prefix":"team/"}`, 200, `{"objects":2,"dry_run":false}`, "bucket/team other/team/a"},
		{"ADMIN", `{"bucket":"bucket","prefix":"team/","dry_run":true}`, 200, `{"objects":2,"dry_run":true}`, everything},
		{"ADMIN", `{"bucket":"bucket","prefix":""}`, 200, `{"objects":3,`, "other/team/a"},
		{"ADMIN", `{"bucket":"bucket","keys":["team/a","nothing"]}`, 200, `{"objects":2,`, "bucket/team other/team/a"},
		{"ADMIN", `{"bucket":"more-1","prefix":""}`, 200, `{"objects":0,`, everything},
		{"TEAM", `{"bucket":"other","prefix":"team/"}`, 200, `{"objects":1,`, "bucket/team/a bucket/team/a@v bucket/team"},
		{"TEAM", `{"bucket":"bucket","keys":["team/a"]}`, 200, `{"objects":2,`, "bucket/team other/team/a"},

		{"ADMIN", `{"bucket":"other","prefix":""}`, 403, "AccessDenied", everything},
		{"TEAM", `{"bucket":"bucket","prefix":"team"}`, 403, "AccessDenied", everything},
		{"TEAM", `{"bucket":"bucket","prefix":""}`, 403, "AccessDenied", everything},
		{"TEAM", `{"bucket":"bucket","prefix":"","dry_run":true}`, 403, "AccessDenied", everything},
		{"TEAM", `{"bucket":"bucket","keys":["team/a","team"]}`, 403, "AccessDenied", everything},
		{"USER", `{"bucket":"bucket","prefix":""}`, 403, "AccessDenied", everything},
		{"USER", `nonsense`, 403, "AccessDenied", everything},
		{"", `{"bucket":"bucket","prefix":""}`, 403, "AccessDenied", everything},
		{"NOBODY", `{"bucket":"bucket","prefix":""}`, 403, "InvalidAccessKeyId", everything},

		{"ADMIN", `{"bucket":"bucket"}`, 400, "InvalidRequest", everything},
		{"ADMIN", `{"bucket":"bucket","prefx":""}`, 400, "InvalidRequest", everything},
		{"ADMIN", `{"bucket":"bucket","prefix":"","dryrun":true}`, 400, "InvalidRequest", everything}, // would do it
		{"ADMIN", `{"bucket":"bucket","keys":[]}`, 400, "InvalidRequest", everything},
		{"ADMIN", `{"bucket":"bucket","prefix":"a","keys":["k"]}`, 400, "InvalidRequest", everything},
		{"ADMIN", `{"bucket":"bucket","prefix":""}{"bucket":"bucket","prefix":""}`, 400, "InvalidRequest", everything},
		{"ADMIN", `{"bucket":"*","prefix":""}`, 400, "InvalidBucketName", everything},
		{"ADMIN", `{"prefix":""}`, 400, "InvalidBucketName", everything},
		{"ADMIN", ``, 400, "InvalidRequest", everything},
		{"ADMIN", `{"bucket":"bucket","keys":[` + strings.Repeat(`"k",`, 1000) + `"k"]}`, 400, "InvalidRequest", everything},
		{"ADMIN", strings.Repeat(" ", maxOwnBody+1), 400, "InvalidRequest", everything},
	} {
		p.remembered = slices.Clone(all)
		r := signed(t, c.who, "POST", s.URL+invalidatePath, c.body)
		if c.who == "" {
			r.Header.Del("Authorization")
		}
		body := want(t, do(t, s, r), c.status, "")
		if !strings.Contains(body, c.answer) || p.names() != c.left {
			t.Errorf("%s %.80s: %s, remembered %s, want %s and %s", c.who, c.body, body, p.names(), c.answer, c.left)
		}
	}
	if !strings.Contains(logs.String(), "bucket=other objects=1 access_key=TEAM") {
		t.Errorf("not logged: %s", &logs)
	}
}

// A body that was changed on its way, or not signed, does nothing.
func TestInvalidateNeedsASignedBody(t *testing.T) {
	p := &purgingReader{remembered: []origin.Object{{Bucket: "bucket", Key: "k"}}}
	s := serve(t, newHandler(t, Config{Gateway: p, Auth: adminAuth()}))
	const good, evil = `{"bucket":"bucket","prefix":"x"}`, `{"bucket":"bucket","prefix":"k"}`
	r := signed(t, "ADMIN", "POST", s.URL+invalidatePath, good)
	other := signed(t, "ADMIN", "POST", s.URL+invalidatePath, evil)
	r.Body, r.GetBody = other.Body, nil
	want(t, do(t, s, r), 400, "XAmzContentSHA256Mismatch")
	for _, hash := range []string{"UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"} {
		r = signed(t, "ADMIN", "POST", s.URL+invalidatePath, evil, "X-Amz-Content-Sha256", hash)
		want(t, do(t, s, r), 400, "InvalidArgument")
	}
	want(t, do(t, s, signed(t, "ADMIN", "GET", s.URL+invalidatePath, "")), 405, "MethodNotAllowed")
	if len(p.remembered) != 1 {
		t.Error("forgotten")
	}
	// Where nobody has a key, nobody is an administrator; and an engine may have nothing to forget.
	want(t, ask(newHandler(t, Config{Gateway: p, Auth: writable()}), "POST "+invalidatePath, evil), 403, "AccessDenied")
	s = serve(t, newHandler(t, Config{Auth: adminAuth()}))
	want(t, do(t, s, signed(t, "ADMIN", "POST", s.URL+invalidatePath, evil)), 501, "NotImplemented")
}

// In a bucket's own host name, /-/invalidate is a key.
func TestInvalidateIsAKeyInABucket(t *testing.T) {
	var key string
	h := newHandler(t, Config{Gateway: &purgingReader{}, Auth: writable(), Domains: []string{"s3.example.com"},
		Forward: forwardAs(func() (*http.Response, error) { key = "asked"; return answer(200, ""), nil })})
	want(t, ask(h, "PUT "+invalidatePath, "x", "Host", "bucket.s3.example.com"), 200, "")
	if key == "" {
		t.Error("not forwarded")
	}
}

// After it, the engine asks the origin again, and what was overwritten behind the cache is seen.
func TestInvalidateIsSeenByTheNextRead(t *testing.T) {
	o := origintest.New()
	put := func(text string) { o.Put("bucket", "k", origintest.Object{Data: []byte(text)}) }
	put("old")
	auth := adminAuth()
	s := serve(t, newHandler(t, Config{Gateway: newEngine(t, o, nil), Auth: auth}))
	reads := func(text string) {
		t.Helper()
		if got := want(t, do(t, s, signed(t, "USER", "GET", s.URL+"/bucket/k", "")), 200, ""); got != text {
			t.Errorf("read %q, want %q", got, text)
		}
	}
	purge := func(body string) {
		t.Helper()
		if got := want(t, do(t, s, signed(t, "ADMIN", "POST", s.URL+invalidatePath, body)), 200, ""); !strings.Contains(got,
			`"objects":1`) {
			t.Error(got)
		}
	}
	reads("old")
	put("new")
	reads("old") // within the ttl
	purge(`{"bucket":"bucket","prefix":"","dry_run":true}`)
	reads("old")
	purge(`{"bucket":"bucket","prefix":""}`)
	reads("new")
}
