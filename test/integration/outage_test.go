//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// once asks without retries, so that what the node answers is what the test sees.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

func TestOriginDiesAndReturns(t *testing.T) {
	p := newPair(t, nil)
	bucket := p.bucket(t)
	data := random(30, 6<<20)
	p.put(t, bucket, "warm", data)
	p.put(t, bucket, "cold", data)
	c := sdk(p.node.URL(), clientKey, once)
	if _, _, err := read(t.Context(), c, bucket, "warm", ""); err != nil {
		t.Fatal(err)
	}
	p.origin.Kill()
	for i := range 50 {
		off := i * 100_003
		b, _, err := read(t.Context(), c, bucket, "warm", fmt.Sprintf("bytes=%d-%d", off, off+99_999))
		if err != nil || !bytes.Equal(b, data[off:off+100_000]) {
			t.Fatalf("warm read without an origin: %d bytes, %v", len(b), err)
		}
	}
	start := time.Now()
	_, _, err := read(t.Context(), c, bucket, "cold", "")
	if got, _ := status(err); got < 500 {
		t.Errorf("cold read without an origin: %d, %v", got, err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("a cold read without an origin took %v to fail", took)
	}
	for _, path := range []string{"/-/health", "/-/ready"} {
		resp, err := http.Get(p.node.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s without an origin: %s", path, resp.Status)
		}
	}
	if err := p.origin.start(); err != nil {
		t.Fatal(err)
	}
	// Not at once where the reads that failed took long enough to be taken for an outage.
	eventually(t, "a cold read after the origin's return", func() bool {
		b, _, err := read(t.Context(), c, bucket, "cold", "")
		return err == nil && bytes.Equal(b, data)
	})
}

func TestStartsWithoutOrigin(t *testing.T) {
	addr, err := proc.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, "http://"+addr, nil)
	_, _, err = read(t.Context(), sdk(n.URL(), clientKey, once), "some-bucket", "k", "")
	if got, _ := status(err); got < 500 {
		t.Errorf("a read without an origin: %d, %v", got, err)
	}
	eventually(t, "the log warns of the missing origin", func() bool {
		log := strings.ToLower(n.Log())
		return strings.Contains(log, "warn") && strings.Contains(log, "origin")
	})
}

// A response that is being read slowly when SIGTERM comes is finished; nothing new is accepted.
func TestShutdownDrains(t *testing.T) {
	const size, seed = 32 << 20, 11 // more than any buffer on the way
	o := newCountedOrigin(t)
	o.PutGenerated("drain", "object", size, seed)
	n := newNode(t, o.url, nil)
	slow, err := dialSlow(t.Context(), n.Addr, presigned(t, n.URL(), "drain", "object"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.close()
	got := make([]byte, size)
	if _, err := io.ReadFull(slow.body, got[:1<<20]); err != nil {
		t.Fatal(err)
	}
	if err := n.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	refused := func() bool {
		conn, err := net.DialTimeout("tcp", n.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}
	for deadline := time.Now().Add(10 * time.Second); !refused(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the node still accepts connections 10 s after SIGTERM")
		}
	}
	select {
	case <-n.Done():
		t.Fatalf("the node ended with a response under way:\n%s", tail(n.Log(), 20))
	case <-time.After(time.Second):
	}
	// The rest faster, or a slow machine has not got it when the time for responses is over.
	if err := slow.conn.(*net.TCPConn).SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(slow.body, got[1<<20:]); err != nil {
		t.Fatal("the rest of the response:", err)
	}
	if !bytes.Equal(got, generated(seed, 0, size)) {
		t.Error("wrong bytes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), stopTimeout)
	defer cancel()
	if err := n.Wait(ctx); err != nil {
		t.Error("the end of the node:", err)
	}
}

// What a node writes to its log, at its most talkative, holds no secret and no signature, whatever clients send.
func TestLogHoldsNoSecrets(t *testing.T) {
	p := newPair(t, nil)
	bucket := p.bucket(t)
	p.put(t, bucket, "k", random(40, 1000))
	c := p.client()
	if _, _, err := read(t.Context(), c, bucket, "k", ""); err != nil {
		t.Error(err)
	}
	wrong := node.Key{Access: clientKey.Access, Secret: "wrong"}
	v2 := "?AWSAccessKeyId=" + clientKey.Access + "&Expires=1&Signature=c2lnbmF0dXJl"
	for _, url := range []string{
		presigned(t, p.node.URL(), bucket, "k"),
		presigned(t, p.node.URL(), bucket, "none"),
		presigned(t, p.node.URL(), bucket, "k") + "&acl",
		p.node.URL() + "/" + bucket + "/k" + v2,
	} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if _, _, err := read(t.Context(), sdk(p.node.URL(), wrong), bucket, "k", ""); err == nil {
		t.Error("a wrong secret was accepted")
	}
	_, _ = c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: ptr("new"), Body: strings.NewReader("body")})
	_, _, _ = read(t.Context(), sdk("http://"+p.node.Addr, clientKey), "no-such-bucket-here", "k", "")
	p.origin.Kill()
	_, _, _ = read(t.Context(), sdk(p.node.URL(), clientKey, once), bucket, "other", "")
	eventually(t, "the access log names the requests", func() bool { // after their answers
		return strings.Contains(p.node.Log(), `"key":"other"`)
	})
	log := p.node.Log()
	if strings.Count(log, bucket) < 4 {
		t.Errorf("the access log does not name the requests:\n%s", log)
	}
	found := secretsIn(log)
	for _, secret := range []string{"c2lnbmF0dXJl", "X-Amz-Signature=", "x-amz-signature"} {
		if strings.Contains(log, secret) {
			found = append(found, secret)
		}
	}
	if len(found) > 0 {
		t.Errorf("in the log: %q\n%s", found, log)
	}
}

// The origin is gone for a minute under load: no hit fails, misses fail fast and say when to come back, and all is well
// after its return without a restart.
func TestOutageUnderLoad(t *testing.T) {
	p := newPair(t, nil)
	bucket := p.bucket(t)
	data := random(31, 4<<20)
	p.put(t, bucket, "warm", data)
	p.put(t, bucket, "cold", data)
	c := sdk(p.node.URL(), clientKey, once)
	if _, _, err := read(t.Context(), c, bucket, "warm", ""); err != nil {
		t.Fatal(err)
	}
	p.origin.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var load sync.WaitGroup
	var hits, misses atomic.Int64
	before := metric(t, p.node, "ashlar_origin_requests_total")
	for range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				off := i * 100_003 % (len(data) - 100_000)
				b, _, err := read(t.Context(), c, bucket, "warm", fmt.Sprintf("bytes=%d-%d", off, off+99_999))
				if err != nil || !bytes.Equal(b, data[off:off+100_000]) {
					t.Errorf("a hit without an origin: %d bytes, %v", len(b), err)
				}
				hits.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		})
		load.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, _, err := read(t.Context(), c, bucket, "cold", "")
				took := time.Since(began)
				if got, _ := status(err); got != http.StatusServiceUnavailable || took > 20*time.Second {
					t.Errorf("a miss without an origin: %d after %v, %v", got, took, err)
				}
				misses.Add(1)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	load.Wait()
	asked := metric(t, p.node, "ashlar_origin_requests_total") - before
	t.Logf("%d hits, %d misses, %v requests to the origin", hits.Load(), misses.Load(), asked)
	if asked > 300 || asked > float64(misses.Load())/2 { // one a second, and those before the breaker opened
		t.Errorf("%v requests to the absent origin for %d misses: they were not told at once", asked, misses.Load())
	}
	resp, err := http.Get(presigned(t, p.node.URL(), bucket, "cold"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	if err := p.origin.start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		b, _, err := read(t.Context(), c, bucket, "cold", "")
		if err == nil && bytes.Equal(b, data) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the origin's return: %d bytes, %v", len(b), err)
		}
	}
}
