package s3api

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

func testHosts(t testing.TB) hosts {
	h, err := newHosts([]string{"s3.example.com", "Example.com", "eu.s3.example.com", "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestResolve(t *testing.T) {
	h := testHosts(t)
	for _, c := range []struct{ host, path, bucket, rawKey, key string }{
		{"gw:9000", "/", "", "", ""},
		{"gw:9000", "/bucket", "bucket", "", ""},
		{"gw:9000", "/bucket/", "bucket", "", ""},
		{"gw:9000", "/bucket/key", "bucket", "key", "key"},
		// K01: nothing is cleaned.
		{"gw", "/bucket//foo", "bucket", "/foo", "/foo"},
		{"gw", "/bucket/a//b", "bucket", "a//b", "a//b"},
		{"gw", "/bucket/dir/", "bucket", "dir/", "dir/"},
		{"gw", "/bucket/a/./b/../c", "bucket", "a/./b/../c", "a/./b/../c"},
		{"gw", "/bucket/../../etc/passwd", "bucket", "../../etc/passwd", "../../etc/passwd"},
		// K02, K04: decoded once; a plus is a plus.
		{"gw", "/bucket/a%20b", "bucket", "a%20b", "a b"},
		{"gw", "/bucket/a+b", "bucket", "a+b", "a+b"},
		{"gw", "/bucket/a%2Bb", "bucket", "a%2Bb", "a+b"},
		{"gw", "/bucket/a%2520b", "bucket", "a%2520b", "a%20b"},
		{"gw", "/bucket/p%2Fq", "bucket", "p%2Fq", "p/q"},
		{"gw", "/bucket/%C3%A4%00;~=&", "bucket", "%C3%A4%00;~=&", "ä\x00;~=&"},
		{"gw", "/%62ucket/k", "bucket", "k", "k"},
		// Hosts.
		{"bucket.s3.example.com", "/key", "bucket", "key", "key"},
		{"bucket.s3.example.com", "/", "bucket", "", ""},
		{"bucket.s3.example.com", "//key", "bucket", "/key", "/key"},
		{"BUCKET.S3.Example.COM:443", "/key", "bucket", "key", "key"},
		{"my.dotted.bucket.s3.example.com:9000", "/a/b", "my.dotted.bucket", "a/b", "a/b"},
		{"bucket.eu.s3.example.com", "/key", "bucket", "key", "key"},
		{"bucket.s3.example.com.", "/key", "bucket", "key", "key"},
		{"s3.example.com:80", "/bucket/key", "bucket", "key", "key"},
		{"eu.s3.example.com", "/bucket/key", "bucket", "key", "key"},
		{"bucket.localhost:9000", "/-/health", "bucket", "-/health", "-/health"},
		{"localhost:9000", "/bucket/key", "bucket", "key", "key"},
		{"[::1]:9000", "/bucket/key", "bucket", "key", "key"},
		{"[::1]", "/bucket/key", "bucket", "key", "key"},
		{"127.0.0.1:9000", "/bucket/key", "bucket", "key", "key"},
		{"", "/bucket/key", "bucket", "key", "key"},
		{"notexample.com", "/bucket/key", "bucket", "key", "key"},
		{"bucket.elsewhere.org", "/other/key", "other", "key", "key"},
	} {
		a, err := h.resolve(c.host, c.path)
		if err != nil || a.Bucket != c.bucket || a.rawKey != c.rawKey || a.Key != c.key {
			t.Errorf("%s%s: %+v, %v", c.host, c.path, a, err)
		}
		if plus := strings.Contains(c.rawKey, "+"); plus != (a.Raw == c.rawKey && a.Raw != "") {
			t.Errorf("%s%s: raw %q", c.host, c.path, a.Raw)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	h := testHosts(t)
	for _, c := range []struct{ host, path, code string }{
		{"gw", "//key", "InvalidBucketName"},
		{"gw", "/-/invalidate", "InvalidBucketName"},
		{"gw", "/-", "InvalidBucketName"},
		{"gw", "/ab/key", "InvalidBucketName"},
		{"gw", "/Bucket/key", "InvalidBucketName"},
		{"gw", "/my_bucket/key", "InvalidBucketName"},
		{"gw", "/bucket%2Fkey", "InvalidBucketName"},
		{"gw", "/a..b/key", "InvalidBucketName"},
		{"gw", "/-bucket/key", "InvalidBucketName"},
		{"gw", "/bucket-/key", "InvalidBucketName"},
		{"gw", "/.../key", "InvalidBucketName"},
		{"gw", "/192.168.5.4/key", "InvalidBucketName"},
		{"gw", "/evil.com%00/key", "InvalidBucketName"},
		{"gw", "/evil.com@host/key", "InvalidBucketName"},
		{"gw", "/evil.com:80/key", "InvalidBucketName"},
		{"gw", "/" + strings.Repeat("a", 64) + "/key", "InvalidBucketName"},
		{".s3.example.com", "/key", "InvalidBucketName"},
		{"a.b..s3.example.com", "/key", "InvalidBucketName"},
		{"gw", "/bucket/%zz", "InvalidURI"},
		{"gw", "/bucket/%4", "InvalidURI"},
		{"gw", "/bucket/" + strings.Repeat("k", 1025), "KeyTooLongError"},
		{"gw", "/bucket/" + strings.Repeat("%C3%A4", 513), "KeyTooLongError"},
	} {
		_, err := h.resolve(c.host, c.path)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Status != 400 {
			t.Errorf("%s%s: %v, want %s", c.host, c.path, err, c.code)
		}
	}
	if _, err := h.resolve("gw", "/bucket/"+strings.Repeat("%C3%A4", 512)); err != nil {
		t.Errorf("1024 bytes: %v", err)
	}
}

func TestNewHostsRefuses(t *testing.T) {
	for _, d := range []string{"", ".", "http://s3.example.com", "s3.example.com:9000", "a b"} {
		if _, err := newHosts([]string{d}); err == nil {
			t.Errorf("%q: no error", d)
		}
	}
}

// FuzzTarget: no target makes the parser panic; what it accepts, it understands the same way however it is spelled.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{
		"/bucket/key", "/", "//", "/bucket//k", "/bucket/a%2Fb", "/bucket/a+b?versionId=1", "/bucket/%zz",
		"http://gw/bucket/k",
		"http://gw?x", "*", "/b%75cket/%00", "/bucket/../x?uploads&x=%gg", "/-/health", "gw:443",
	} {
		f.Add("gw:9000", s)
		f.Add("bucket.s3.example.com", s)
	}
	f.Add(".s3.example.com:1", "/x")
	f.Add("[::1]:80", "/bucket/x")
	h := testHosts(f)
	tab := newTable()
	f.Fuzz(func(t *testing.T, host, target string) {
		rawPath, rawQuery, ok := sigv4.SplitTarget(target)
		if !ok {
			return
		}
		a, err := h.resolve(host, rawPath)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%q%q: %v", host, target, err)
			}
			return
		}
		if q, err := sigv4.ParseQuery(rawQuery); err == nil {
			m := scanAmz(nil, q)
			for _, method := range []string{"GET", "PUT", "POST", "DELETE", "HEAD", "BREW"} {
				tab.classify(method, a.level(), q, &m)
			}
		}
		if a.level() != atObject {
			return
		}
		if key, err := sigv4.DecodePath(a.rawKey); err != nil || key != a.Key {
			t.Fatalf("%q: key %q, decoded again %q, %v", target, a.Key, key, err)
		}
		canonical := sigv4.EncodePath(a.Key)
		for _, spelled := range [][2]string{
			{"gw", "/" + a.Bucket + "/" + canonical},
			{"gw", "/" + a.Bucket + "/" + strings.ReplaceAll(canonical, "/", "%2f")},
			{a.Bucket + ".s3.example.com:9000", "/" + canonical},
		} {
			b, err := h.resolve(spelled[0], spelled[1])
			if err != nil || b.Bucket != a.Bucket || b.Key != a.Key || b.Raw != "" {
				t.Fatalf("%q%q is %q %q; spelled %q it is %+v, %v", host, target, a.Bucket, a.Key, spelled, b, err)
			}
		}
	})
}
