package s3api

import (
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// X-Ashlar-Fetch counts from keys with tune, whole or not at all; from others it is not even read.
func TestTuning(t *testing.T) {
	auth := Auth{Mode: Static, Keys: []Key{
		{AccessKey: "TUNER", SecretKey: testSecret, Buckets: []string{"*"}, Rights: Read | Tune},
		{AccessKey: "READER", SecretKey: testSecret, Buckets: []string{"*"}, Rights: Read},
	}}
	var got gateway.Request
	h := newHandler(t, Config{Auth: auth, Gateway: &fakeReader{open: func(r gateway.Request) (*gateway.Object, error) {
		got = r
		return nil, errors.New("trouble")
	}}})
	s := serve(t, h)
	for value, wanted := range map[string]gateway.Tuning{
		"":                                      {},
		"attempts=1 first_byte=500ms hedge=off": {Attempts: 1, FirstByte: 500 * time.Millisecond, NoHedge: true},
		"attempt=1m30s  deadline=2m":            {Attempt: 90 * time.Second, Deadline: 2 * time.Minute},
		"backoff=1s backoff_max=3s hedge=on":    {Backoff: time.Second, BackoffMax: 3 * time.Second},
		"attempts=0 first_byte=0s":              {Attempts: 1, FirstByte: time.Millisecond},
		"attempts=99999 hedge=off hedge=on":     {Attempts: 99999},
		"attempts=99999999999999999999":         {Attempts: 1<<31 - 1},
		"deadline=99999h":                       {Deadline: 99999 * time.Hour},
	} {
		got = gateway.Request{}
		want(t, do(t, s, signed(t, "TUNER", "GET", s.URL+"/bucket/k", "", tuneHeader, value)), 503, "")
		if got.Tune != wanted || got.Client != "TUNER" {
			t.Errorf("%q: %+v of %q", value, got.Tune, got.Client)
		}
	}
	for _, value := range []string{"attempts=x", "attempts=-1", "attempts", "hedge=maybe", "first_byte=5", "deadline=-1s",
		"deadline=", "attempts=1,hedge=off", "retries=2", "=", "Attempts=1"} {
		got = gateway.Request{}
		r := do(t, s, signed(t, "TUNER", "GET", s.URL+"/bucket/k", "", tuneHeader, value))
		if want(t, r, 400, "InvalidArgument"); got.Object.Key != "" {
			t.Errorf("%q was read", value)
		}
		want(t, do(t, s, signed(t, "READER", "GET", s.URL+"/bucket/k", "", tuneHeader, value)), 503, "")
		if got.Tune != (gateway.Tuning{}) || got.Object.Key != "k" {
			t.Errorf("%q without the right: %+v", value, got)
		}
	}
	// Nor does it count where nobody proves who they are.
	open := serve(t, newHandler(t, Config{Gateway: &fakeReader{open: func(r gateway.Request) (*gateway.Object, error) {
		got = r
		return nil, errors.New("trouble")
	}}}))
	r := httptest.NewRequest("GET", open.URL+"/bucket/k", nil)
	r.RequestURI = ""
	r.Header.Set(tuneHeader, "attempts=x")
	want(t, do(t, open, r), 503, "")
	if got.Client != "127.0.0.1" || got.Tune != (gateway.Tuning{}) {
		t.Errorf("%+v", got)
	}
}

// What readers are told of an origin that is down, and of answers that are older than they should be.
func TestTroubleIsTold(t *testing.T) {
	h := newHandler(t, Config{Gateway: failingReader(&gateway.DownError{RetryAfter: 1100 * time.Millisecond})})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/bucket/k", nil))
	if w.Code != 503 || w.Header().Get("Retry-After") != "2" || codeIn(w.Body.Bytes()) != "ServiceUnavailable" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	h = newHandler(t, Config{Gateway: failingReader(&gateway.AbsentError{Age: 3 * time.Second, Answer: &origin.Error{
		Status: 404, Code: "NoSuchKey", Body: []byte("<Error><Code>NoSuchKey</Code></Error>")}})})
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/bucket/k", nil))
	if w.Code != 404 || w.Header().Get("Age") != "3" || w.Header().Get("X-Ashlar-Cache") != "negative" ||
		codeIn(w.Body.Bytes()) != "NoSuchKey" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	synctest.Test(t, func(t *testing.T) {
		o := origintest.New()
		o.Put("bucket", "k", origintest.Object{Size: 10})
		// Its memory is not of the bubble, and waits for nothing here.
		h := newHandler(t, Config{Gateway: newEngine(t, o, func(p *gateway.Policy) { p.StaleIfError = time.Hour })})
		for _, wait := range []time.Duration{0, 10 * time.Minute} {
			time.Sleep(wait)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/bucket/k", nil))
			cache, age := w.Header().Get("X-Ashlar-Cache"), w.Header().Get("Age")
			if w.Code != 200 || wait == 0 && cache != "miss; origin" || wait > 0 && (cache != "stale; memory" || age != "600") {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			r := httptest.NewRequest("GET", "/bucket/k", nil)
			r.Header.Set("If-None-Match", w.Header().Get("Etag"))
			w = httptest.NewRecorder()
			h.ServeHTTP(w, r)
			cache = w.Header().Get("X-Ashlar-Cache")
			if stale := cache == "stale" && w.Header().Get("Age") != "0"; w.Code != 304 || stale != (wait > 0) {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			o.Fail(-1, nil, origintest.Fault{Status: 500})
		}
	})
}
