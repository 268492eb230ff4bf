package s3api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
)

// accessLog is a log of JSON lines that can be read while it is written.
type accessLog struct {
	mu    sync.Mutex
	lines bytes.Buffer // guarded by mu
}

func (l *accessLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *accessLog) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// next returns the line of the next request that has ended, and forgets all lines.
func (l *accessLog) next(t *testing.T) map[string]any {
	t.Helper()
	for range 10000 {
		l.mu.Lock()
		lines := l.lines.String()
		l.mu.Unlock()
		for line := range strings.Lines(lines) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err == nil && fields["msg"] == "request" {
				l.mu.Lock()
				l.lines.Reset()
				l.mu.Unlock()
				return fields
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no line")
	return nil
}

// What went wrong stands in the line by its S3 error code, whoever said it and whether or not it had a body; so does the
// key that a refused request claimed, under a name that says that nobody has verified it.
func TestAccessLogTellsErrors(t *testing.T) {
	log := new(accessLog)
	var failure error
	h := newHandler(t, Config{
		AccessLog: true, Logger: log.logger(), Auth: staticAuth(), Limits: Limits{Headers: 20},
		Gateway: &fakeReader{open: func(gateway.Request) (*gateway.Object, error) { return nil, failure }},
		Forward: forwardAs(func() (*http.Response, error) {
			return answer(409, `<?xml version="1.0"?><Error><Code>BucketNotEmpty</Code></Error>`), nil
		}),
	})
	s := serve(t, h)
	many := make([]string, 0, 42)
	for range 21 {
		many = append(many, "X-Many", "1")
	}
	for name, c := range map[string]struct {
		request       *http.Request
		read          error
		status        float64
		code          string
		key, unproven string
	}{
		"missing": {signed(t, "READER", "GET", s.URL+"/bucket/k", ""), &origin.Error{Status: 404, Code: "NoSuchKey",
			Body: []byte("<Error><Code>NoSuchKey</Code></Error>")}, 404, "NoSuchKey", "READER", ""},
		"missing, HEAD": {signed(t, "READER", "HEAD", s.URL+"/bucket/k", ""), &origin.Error{Status: 404}, 404, "NoSuchKey",
			"READER", ""},
		"unreachable": {signed(t, "READER", "GET", s.URL+"/bucket/k", ""), errors.New("refused"), 503, "ServiceUnavailable",
			"READER", ""},
		"unreachable, HEAD": {signed(t, "READER", "HEAD", s.URL+"/bucket/k", ""), errors.New("refused"), 503,
			"ServiceUnavailable", "READER", ""},
		"forwarded": {signed(t, "READER", "GET", s.URL+"/bucket", ""), nil, 409, "BucketNotEmpty", "READER", ""},
		"no right":  {signed(t, "WRITER", "GET", s.URL+"/bucket/k", ""), nil, 403, "AccessDenied", "WRITER", ""},
		"unknown":   {signed(t, "NOBODY", "GET", s.URL+"/bucket/k", ""), nil, 403, "InvalidAccessKeyId", "", "NOBODY"},
		"no key":    {unsigned(t, "GET", s.URL+"/bucket/k"), nil, 403, "AccessDenied", "", ""},
		"in the query": {unsigned(t, "GET", s.URL+"/bucket/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=READER%2Fx"),
			nil, 400, "AuthorizationQueryParametersError", "", "READER"},
		"too many": {unsigned(t, "GET", s.URL+"/bucket/k", many...), nil, 400, "RequestHeaderSectionTooLarge", "", ""},
	} {
		failure = c.read
		do(t, s, c.request)
		line := log.next(t)
		if line["status"] != c.status || line["code"] != c.code || line["access_key"] != c.key {
			t.Errorf("%s: %v", name, line)
		}
		if unproven, _ := line["unverified_access_key"].(string); unproven != c.unproven {
			t.Errorf("%s: claimed %q", name, unproven)
		}
		if seconds, ok := line["seconds"].(float64); !ok || seconds < 0 || seconds > 60 {
			t.Errorf("%s: took %v", name, line["seconds"])
		}
		if why, _ := line["error"].(string); why != map[bool]string{true: "refused"}[c.status == 503] {
			t.Errorf("%s: because of %q", name, why)
		}
		if line["cut"] != nil || line["request_id"] == "" {
			t.Errorf("%s: %v", name, line)
		}
	}
}

// An answer that was cut off after its header doesn't read as a success, whatever its header said, and says who cut it.
func TestAccessLogTellsCutAnswers(t *testing.T) {
	log := new(accessLog)
	broken := errors.New("reset by peer")
	for name, c := range map[string]struct {
		body   io.Reader
		status float64
		cut    string
		bytes  float64
		error  string
	}{
		"origin": {io.MultiReader(strings.NewReader("half"), errorReader{broken}), 502, "origin", 4, "reset by peer"},
		"panic":  {io.MultiReader(strings.NewReader("half"), panicReader{}), 500, "panic", 4, ""},
	} {
		h := newHandler(t, Config{AccessLog: true, Logger: log.logger(), Forward: forwardAs(func() (*http.Response, error) {
			r := answer(200, "")
			r.ContentLength, r.Body = -1, io.NopCloser(c.body)
			return r, nil
		})})
		s := httptest.NewServer(h)
		r, err := s.Client().Get(s.URL + "/bucket")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("%s: looks complete: %q", name, b)
		}
		_ = r.Body.Close()
		s.Close()
		line := log.next(t)
		text, _ := line["error"].(string)
		if line["status"] != c.status || line["sent_status"] != 200.0 || line["cut"] != c.cut || line["bytes"] != c.bytes ||
			!strings.Contains(text, c.error) {
			t.Errorf("%s: %v", name, line)
		}
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// Of an answer whose client left, or was cut off for slowness, the line counts the bytes that the connection took.
func TestAccessLogOfClientsThatLeave(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := new(accessLog)
			ended := make(chan error, 1)
			h := newHandler(t, Config{AccessLog: true, Logger: log.logger(), Forward: forwardAs(func() (*http.Response, error) {
				length := http.Header{"Content-Length": {"1048576"}}
				return &http.Response{StatusCode: 200, Header: length, ContentLength: 1 << 20,
					Body: &endReader{Reader: io.LimitReader(zeroes{}, 1<<20), ended: ended}}, nil
			})})
			l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
			server := &http.Server{Handler: h}
			go server.Serve(l)
			defer server.Close()
			client, conn := net.Pipe()
			l.conns <- conn
			if _, err := io.WriteString(client, "GET /bucket HTTP/1.1\r\nHost: gw\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 4096)
			took, err := client.Read(head)
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := strings.Cut(string(head[:took]), "\r\n\r\n")
			n, err := io.CopyN(io.Discard, client, 100_000)
			if err != nil {
				t.Fatal(err)
			}
			cut := "slow"
			if leaves {
				cut = "client"
				client.Close()
			}
			<-ended
			line := log.next(t)
			if line["status"] != 499.0 || line["sent_status"] != 200.0 || line["cut"] != cut ||
				line["bytes"] != float64(int64(len(body))+n) {
				t.Errorf("leaves %v, took %d: %v", leaves, int64(len(body))+n, line)
			}
			client.Close()
		})
	}
}

// A request whose client left before it was answered has an id all the same: other lines of the log name it.
func TestAccessLogOfUnansweredRequests(t *testing.T) {
	log := new(accessLog)
	ctx, cancel := context.WithCancel(context.Background())
	h := newHandler(t, Config{AccessLog: true, Logger: log.logger(),
		Gateway: &fakeReader{open: func(gateway.Request) (*gateway.Object, error) {
			cancel()
			return nil, context.Canceled
		}}})
	func() {
		defer func() { _ = recover() }() // as net/http does
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/bucket/k", nil).WithContext(ctx))
	}()
	line := log.next(t)
	if id, _ := line["request_id"].(string); len(id) != 16 || line["status"] != 499.0 || line["cut"] != "client" ||
		line["sent_status"] != nil {
		t.Errorf("%v", line)
	}
}
