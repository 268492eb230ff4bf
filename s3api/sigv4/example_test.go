package sigv4_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// A handler lets anonymous requests in or not, and has all others verified.
func Example() {
	verifier := sigv4.New(sigv4.Config{
		Region: "us-east-1",
		Lookup: func(accessKey string) (secret, sessionToken string, ok bool) {
			return "a secret", "", accessKey == "app"
		},
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sigv4.HasAuth(r) {
			fmt.Fprintln(w, "hello, whoever you are")
			return
		}
		id, err := verifier.Verify(r)
		if e := (*sigv4.Error)(nil); errors.As(err, &e) {
			http.Error(w, e.Code, e.Status)
			return
		}
		fmt.Fprintln(w, "hello,", id.AccessKey)
	})

	r := httptest.NewRequest("GET", "/bucket/key", nil)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Body)

	r.Header.Set("Authorization", "AWS app:c2lnbmVkIHRoZSBvbGQgd2F5")
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Body)

	// Output:
	// 200 hello, whoever you are
	// 400 InvalidRequest
}
