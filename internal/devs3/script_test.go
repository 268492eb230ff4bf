package devs3

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/internal/latencies"
)

// An overwrite in mid-answer leaves the answer at the version that it began with; the next one has the new.
func TestChangedInMidRead(t *testing.T) {
	s, url, client := faulty(t, nil)
	s.Fault(func(*http.Request) *Fault {
		return CallAfter(4, func() { s.Put("bucket", "k", []byte("another one")) })
	})
	first, body, err := get(t, client, url)
	if err != nil || body != "0123456789" {
		t.Errorf("%q, %v", body, err)
	}
	s.Fault(nil)
	second, body, err := get(t, client, url)
	if err != nil || body != "another one" || first.Header.Get("ETag") == second.Header.Get("ETag") {
		t.Errorf("%q, %v, %q and %q", body, err, first.Header.Get("ETag"), second.Header.Get("ETag"))
	}
}

// The same bytes put again with other metadata: one ETag, another answer.
func TestMetadataUnderOneETag(t *testing.T) {
	s, url, client := faulty(t, nil)
	s.Fault(nil)
	first, _, _ := get(t, client, url)
	req, err := http.NewRequest("PUT", url, strings.NewReader("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Meta-A", "b")
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	second, _, _ := get(t, client, url)
	if first.Header.Get("ETag") != second.Header.Get("ETag") || second.Header.Get("X-Amz-Meta-A") != "b" {
		t.Errorf("%v, then %v", first.Header, second.Header)
	}
}

func TestBursts(t *testing.T) {
	s, url, client := faulty(t, nil)
	s.Fault(Burst(3, Respond(503, "SlowDown", "1")))
	for i := range 5 {
		resp, _, err := get(t, client, url)
		if want := map[bool]int{true: 503, false: 200}[i < 3]; err != nil || resp.StatusCode != want {
			t.Errorf("request %d: %v, %v", i, resp.StatusCode, err)
		}
	}
}

func TestSilentAndSlow(t *testing.T) {
	s, url, client := faulty(t, Silent())
	client.Timeout = 50 * time.Millisecond
	if resp, _, err := get(t, client, url); err == nil {
		t.Errorf("an answer: %v", resp.StatusCode)
	}
	client.Timeout = 0
	s.Fault(Latencies(latencies.New(latencies.Distribution{Median: 30 * time.Millisecond}, 1)))
	began := time.Now()
	if _, body, err := get(t, client, url); err != nil || body != "0123456789" || time.Since(began) < 30*time.Millisecond {
		t.Errorf("%q after %v, %v", body, time.Since(began), err)
	}
}
