package s3api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/internal/devs3"
)

// An origin that answers before it has read the body is heard: its answer reaches the client as it is while the body is
// still on its way, nothing of that body is taken for blocks, and the next upload through the node works.
func TestOriginAnswersEarly(t *testing.T) {
	n := newNode(t, nil)
	n.origin.Put("bucket", "k", []byte("old"))
	body := strings.Repeat("new", 200_000)
	for i := range 12 {
		status := []int{403, 412, 503, 307}[i%4]
		text := fmt.Sprintf("<Error><Code>Early%d</Code></Error>", status)
		n.origin.Fault(func(r *http.Request) *devs3.Fault {
			if r.Method == "PUT" {
				return &devs3.Fault{Status: status, Body: []byte(text), Header: http.Header{"X-Amz-Early": {"yes"}}}
			}
			return nil
		})
		r := signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body)
		slow, w := io.Pipe()
		r.Body, r.GetBody = slow, nil
		answered := make(chan struct{})
		go func() {
			for rest := body; rest != ""; rest = rest[min(len(rest), 10_000):] {
				if _, err := io.WriteString(w, rest[:min(len(rest), 10_000)]); err != nil {
					break
				}
				if len(rest) < len(body)/2 {
					<-answered
				}
			}
			w.Close()
		}()
		resp, err := n.front.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		close(answered)
		if err != nil || resp.StatusCode != status || string(got) != text || resp.Header.Get("X-Amz-Early") != "yes" {
			t.Fatalf("%d %q %v %v, want %d %q", resp.StatusCode, got, resp.Header, err, status, text)
		}
		n.origin.Fault(nil)
		if got, _ := n.stored(t, "k"); got != "old" {
			t.Fatalf("stored %d bytes", len(got))
		}
	}
	if resp := do(t, n.front, signed(t, nodeKey, "PUT", n.front.URL+"/bucket/k", body)); resp.StatusCode != 200 {
		t.Fatal(read(t, resp))
	}
	if got := read(t, do(t, n.front, signed(t, nodeKey, "GET", n.front.URL+"/bucket/k", ""))); got != body {
		t.Errorf("%d bytes", len(got))
	}
}
