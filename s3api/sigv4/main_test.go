package sigv4

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The credentials and the time of the examples in the AWS documentation.
const (
	exampleKey    = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

// exampleConfig knows one key, in one region.
func exampleConfig() Config {
	return Config{
		Region: "us-east-1",
		Lookup: func(accessKey string) (string, string, bool) { return exampleSecret, "", accessKey == exampleKey },
	}
}

// parse reads a request from the bytes that a client would send, so that it is what a server hands to its handlers.
// Lines end in \n here.
func parse(t testing.TB, raw string) *http.Request {
	t.Helper()
	r, err := tryParse(raw)
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return r
}

func tryParse(raw string) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(raw, "\n", "\r\n"))))
}

// refusal is the error of Verify, which must be one.
func refusal(t testing.TB, v *Verifier, r *http.Request, now time.Time) *Error {
	t.Helper()
	id, err := v.verify(r, now)
	if err == nil {
		t.Fatalf("%s %s was accepted", r.Method, r.RequestURI)
	}
	if id != (Identity{}) {
		t.Fatalf("an identity besides the error %v", err)
	}
	return err
}

func field(e *Error, name string) string {
	for _, f := range e.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func TestErrorIsAnError(t *testing.T) {
	_, err := New(exampleConfig()).Verify(parse(t, "GET /b/k HTTP/1.1\nHost: h\n\n"))
	var e *Error
	if !errors.As(err, &e) || e.Error() != "AccessDenied: Access Denied" {
		t.Fatalf("anonymous: %v", err)
	}
}
