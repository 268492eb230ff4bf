package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// A server that is wrong in any way fails the run: nothing is measured of it.
func TestLoadChecksResponses(t *testing.T) {
	obj := object{name: "o", size: 1 << 20, seed: 5}
	for _, tt := range []struct {
		name   string
		change func(body []byte, h http.Header) (status int)
		want   string // in the error; "" for none
	}{
		{"right", func([]byte, http.Header) int { return 206 }, ""},
		{"a wrong byte", func(b []byte, _ http.Header) int { b[1234] ^= 1; return 206 }, "wrong bytes"},
		{"a wrong last byte", func(b []byte, _ http.Header) int { b[len(b)-1] ^= 1; return 206 }, "wrong bytes"},
		{"bytes of another place", func(b []byte, _ http.Header) int { obj.fill(b, 8192); return 206 }, "wrong bytes"},
		{"a wrong status", func([]byte, http.Header) int { return 200 }, "answered 200"},
		{"a wrong length", func(_ []byte, h http.Header) int { h.Set("Content-Length", "4095"); return 206 }, "4095 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := make([]byte, 4<<10)
				obj.fill(body, 4096)
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				w.WriteHeader(tt.change(body, w.Header()))
				_, _ = w.Write(body)
			}))
			defer s.Close()
			addr := s.Listener.Addr().String()
			requests, err := prepare(addr, node.Key{}, []part{{obj: obj, offset: 4096, length: 4 << 10}})
			if err != nil {
				t.Fatal(err)
			}
			l := load{addr: addr, requests: requests, conns: 2, count: 20, step: 8, duration: time.Minute}
			got, err := l.run()
			switch {
			case tt.want == "" && (err != nil || got.Responses < 20 || got.Bytes != int64(got.Responses)*4096):
				t.Errorf("%d responses, %d bytes, %v", got.Responses, got.Bytes, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWorkloadsAreDrawnBySeed(t *testing.T) {
	objects := hitObjects()
	for i, w := range workloads(objects, 1) {
		same, other := workloads(objects, 1)[i], workloads(objects, 2)[i]
		want := map[string]int64{"W1": 4 << 10, "W2": 1 << 20, "W3": 64 << 20}[w.name]
		differs := false
		for j, p := range w.parts {
			if p != same.parts[j] {
				t.Fatalf("%s: request %d differs for the same seed", w.name, j)
			}
			differs = differs || p != other.parts[j]
			if p.length != want || p.offset < 0 || p.offset+p.length > p.obj.size {
				t.Fatalf("%s: request %d is for %d bytes at %d of %d", w.name, j, p.length, p.offset, p.obj.size)
			}
		}
		if !differs && w.name != "W3" {
			t.Errorf("%s: the seed changes nothing", w.name)
		}
	}
}
