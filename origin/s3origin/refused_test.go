package s3origin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// answers serves what next says: the status and the code of an error, "" for none.
func answers(t *testing.T, next func() (status int, code string)) (url string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, code := next()
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead && code != "" {
			_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>m of it</Message>`+
				`<AWSAccessKeyId>%s</AWSAccessKeyId></Error>`, code, testKey)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// everyWay asks for an object and forwards, and returns the errors and bodies that came of it.
func everyWay(t *testing.T, o *Origin) (errs []error, bodies string) {
	t.Helper()
	_, err := o.Get(t.Context(), obj("k"), origin.GetOptions{})
	errs = append(errs, err)
	_, err = o.Head(t.Context(), obj("k"), origin.HeadOptions{})
	errs = append(errs, err)
	for _, method := range []string{"GET", "PUT", "HEAD"} {
		var body io.Reader
		if method == "PUT" {
			body = strings.NewReader("hello")
		}
		resp, err := o.Forward(t.Context(), httptest.NewRequest(method, "/", body), "bkt", "k")
		if err == nil {
			p, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			bodies += string(p)
		}
		errs = append(errs, err)
	}
	return errs, bodies
}

// TestOurSignatureIsNotTheClients: what the origin says of our signature is an error of its own, in reads and forwarded
// requests, after which an answer to HEAD, which has no words, is taken for the same. It is logged once.
func TestOurSignatureIsNotTheClients(t *testing.T) {
	for code, status := range map[string]int{
		"SignatureDoesNotMatch": 403, "InvalidAccessKeyId": 403, "RequestTimeTooSkewed": 403, "InvalidSecurity": 403,
		"ExpiredToken": 400, "InvalidToken": 400, "AuthorizationHeaderMalformed": 400, "TokenRefreshRequired": 400,
		"UnrecognizedClientException": 401,
	} {
		log := new(bytes.Buffer)
		o := newOrigin(t, answers(t, func() (int, string) { return status, code }), func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		errs, bodies := everyWay(t, o)
		for i, err := range errs {
			var passed *origin.Error
			if !errors.Is(err, origin.ErrCredentials) || errors.As(err, &passed) {
				t.Errorf("%s, %d: %v", code, i, err)
			} else if strings.Contains(err.Error(), testKey) {
				t.Errorf("%s: the access key leaks: %v", code, err)
			}
		}
		if bodies != "" {
			t.Errorf("%s: passed on: %s", code, bodies)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || strings.Contains(log.String(), testKey) {
			t.Errorf("%s: %s", code, log)
		}
		for _, part := range []string{code, o.Endpoint(), o.cure(code), "m of it"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("no %q in %s", part, log)
			}
		}
	}
}

// TestRefusalsOfTheOriginPass: what is not about our signature is for the client, whole.
func TestRefusalsOfTheOriginPass(t *testing.T) {
	for code, status := range map[string]int{"AccessDenied": 403, "AllAccessDisabled": 403, "InvalidArgument": 400,
		"XAmzContentSHA256Mismatch": 400, "": 403, "SignatureDoesNotMatch": 500} {
		o := newOrigin(t, answers(t, func() (int, string) { return status, code }))
		errs, bodies := everyWay(t, o)
		for i, err := range errs {
			var passed *origin.Error
			if i < 2 && (!errors.As(err, &passed) || passed.Status != status) || i >= 2 && err != nil {
				t.Errorf("%d %s, %d: %v", status, code, i, err)
			}
		}
		if code != "" && strings.Count(bodies, "<Code>"+code+"</Code>") != 2 { // GET and PUT
			t.Errorf("%s: %s", code, bodies)
		}
	}
	// One that is longer than what is looked at.
	long := strings.Repeat("x", origin.MaxErrorBody+100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(403)
		_, _ = io.WriteString(w, long)
	}))
	defer srv.Close()
	resp, err := newOrigin(t, srv.URL).Forward(t.Context(), httptest.NewRequest("GET", "/", nil), "bkt", "k")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := io.ReadAll(resp.Body); string(p) != long || err != nil {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	_ = resp.Body.Close()
}

// TestSilentRefusals: a HEAD that is refused without a word is the requester's affair, unless the latest answer that
// had words, or that only a good signature gets, was about our signature.
func TestSilentRefusals(t *testing.T) {
	type answer struct {
		status int
		code   string
	}
	var now atomic.Value
	o := newOrigin(t, answers(t, func() (int, string) { a := now.Load().(answer); return a.status, a.code }))
	head := func() bool {
		now.Store(answer{403, ""})
		_, err := o.Head(t.Context(), obj("k"), origin.HeadOptions{})
		return errors.Is(err, origin.ErrCredentials)
	}
	if head() {
		t.Error("nothing was said of our signature")
	}
	for _, cleared := range []answer{{404, "NoSuchKey"}, {403, "AccessDenied"}, {307, ""}} {
		now.Store(answer{403, "InvalidAccessKeyId"})
		if err := o.Authenticate(t.Context()); !errors.Is(err, origin.ErrCredentials) {
			t.Fatal(err)
		}
		if !head() {
			t.Error("taken for the requester's affair")
		}
		now.Store(cleared)
		_, _ = o.Get(t.Context(), obj("k"), origin.GetOptions{})
		if head() {
			t.Errorf("after %v: taken for ours", cleared)
		}
	}
}

// TestRefusedByHeaders: Config.Refused knows refusals of us by their headers, where there is no code that tells.
func TestRefusedByHeaders(t *testing.T) {
	for _, ours := range []bool{true, false} {
		url := answers(t, func() (int, string) { return 403, "AccessDenied" })
		log := new(bytes.Buffer)
		o := newOrigin(t, url, func(c *Config) {
			c.Refused = func(h http.Header) bool { return ours && h.Get("Content-Type") == "application/xml" }
			c.Name, c.Section, c.Logger = "node n", "cluster", slog.New(slog.NewTextHandler(log, nil))
		})
		errs, _ := everyWay(t, o)
		for i, err := range errs {
			if errors.Is(err, origin.ErrCredentials) != ours {
				t.Errorf("%d, ours %v: %v", i, ours, err)
			}
			if ours && !strings.HasPrefix(err.Error(), "node n does not accept our credentials: 403") ||
				ours && !strings.Contains(err.Error(), "check cluster.credentials") {
				t.Errorf("%d: %v", i, err)
			}
		}
		if strings.Contains(log.String(), "node n does not accept our credentials") != ours {
			t.Errorf("ours %v: %s", ours, log)
		}
	}
}

// TestRefusalsAreLoggedNowAndThen: once in a minute while they last, with the number of those that were not.
func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		o := &Origin{log: slog.New(slog.NewTextHandler(log, nil))}
		for range 150 { // seconds
			o.complain(403, errorDocument{Code: "ExpiredToken", Message: strings.Repeat("m", 1000)})
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 3 || strings.Count(log.String(), "not_logged=59") != 2 {
			t.Errorf("%d lines: %s", n, log)
		}
		if strings.Contains(log.String(), strings.Repeat("m", 300)) {
			t.Error("the origin's message is not bounded")
		}
	})
}

// TestAuthenticate: the request at start is signed, names us, and may be denied.
func TestAuthenticate(t *testing.T) {
	s := newRawServer(t, always(lines("HTTP/1.1 403 Forbidden", "Content-Length: 0")))
	if err := newOrigin(t, s.url).Authenticate(t.Context()); err != nil {
		t.Error(err)
	}
	head := s.requests()[0]
	for _, part := range []string{"GET / HTTP/1.1\r\n", "Authorization: AWS4-HMAC-SHA256 ", "Via: 1.1 ashlar-test\r\n"} {
		if !strings.Contains(head, part) {
			t.Errorf("no %q in %s", part, head)
		}
	}
}

// TestForwardEndsInTime: who forwards can say why it gave up.
func TestForwardEndsInTime(t *testing.T) {
	began := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	o := newOrigin(t, srv.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-began
		cancel(fmt.Errorf("%w: enough", origin.ErrTimeout))
	}()
	if _, err := o.Forward(ctx, httptest.NewRequest("GET", "/", nil), "bkt", "k"); !errors.Is(err, origin.ErrTimeout) {
		t.Error(err)
	}
	wantReason(t, o, whyTimeout)
}
