package sigv4

import (
	"net/http"
	"testing"
	"time"
)

// getRequest is a ranged GET as aws-sdk-go-v2 sends it.
func getRequest(t testing.TB) *http.Request {
	r := request{
		method: "GET", host: "127.0.0.1:9000", path: "/models/llama/shard-00001-of-00030.safetensors",
		query: "x-id=GetObject", hash: emptyHash,
		headers: [][2]string{
			{"Accept-Encoding", "identity"},
			{"Amz-Sdk-Invocation-Id", "6f0b7a0e-3a0e-4f3f-9c1f-2f7d9d1f7a55"},
			{"Amz-Sdk-Request", "attempt=1; max=3"},
			{"Range", "bytes=1048576-1052671"},
			{"X-Amz-Checksum-Mode", "ENABLED"},
			{"X-Amz-Content-Sha256", emptyHash},
		},
	}
	return parse(t, r.signed(t, exampleTime))
}

// smallRequest is one with the fewest headers that a GET can sign.
func smallRequest(t testing.TB) *http.Request {
	r := request{
		method: "GET", host: "127.0.0.1:9000", path: "/bucket/key", hash: unsignedPayload,
		headers: [][2]string{{"X-Amz-Content-Sha256", unsignedPayload}},
	}
	return parse(t, r.signed(t, exampleTime))
}

func presignedRequest(t testing.TB) *http.Request {
	r := request{
		method: "GET", host: "127.0.0.1:9000", path: "/models/llama/shard-00001-of-00030.safetensors",
		query: "x-id=GetObject", hash: unsignedPayload, expires: time.Hour,
	}
	return parse(t, r.presigned(t, exampleTime))
}

var forms = []struct {
	name    string
	request func(testing.TB) *http.Request
	allocs  float64 // credential and signed headers are percent-encoded in a presigned URL
}{
	{"header", getRequest, 0},
	{"small header", smallRequest, 0},
	{"presigned", presignedRequest, 1},
}

func TestVerifyAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops at random under the race detector")
	}
	for _, form := range forms {
		v, r := New(exampleConfig()), form.request(t)
		got := testing.AllocsPerRun(1000, func() {
			if _, err := v.verify(r, exampleTime); err != nil {
				t.Fatal(err)
			}
		})
		if got > form.allocs {
			t.Errorf("%s: %v allocations, want at most %v", form.name, got, form.allocs)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, form := range forms {
		b.Run(form.name, func(b *testing.B) {
			v, r := New(exampleConfig()), form.request(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.verify(r, exampleTime); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("header, all cores", func(b *testing.B) {
		v := New(exampleConfig())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			r := getRequest(b)
			for pb.Next() {
				if _, err := v.verify(r, exampleTime); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("wrong signature", func(b *testing.B) {
		v, r := New(exampleConfig()), getRequest(b)
		r.Header.Set("Range", "bytes=0-1")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.verify(r, exampleTime); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
