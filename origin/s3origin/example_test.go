package s3origin_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/s3origin"
)

func Example() {
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Range", "bytes 7-11/12")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, "world")
	}))
	defer s3.Close()

	ctx := context.Background()
	o, err := s3origin.New(ctx, s3origin.Config{
		Endpoint: s3.URL,
		Region:   "us-east-1",
		Credentials: s3origin.Credentials{
			Source: s3origin.SourceStatic, AccessKey: "AKIDEXAMPLE", SecretKey: "secret",
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Close()

	r, err := o.Get(ctx, origin.Object{Bucket: "b", Key: "hello"}, origin.GetOptions{Offset: 7, Length: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Body.Close()
	p, err := io.ReadAll(r.Body)
	fmt.Printf("%q of %d bytes, version %s, %v\n", p, r.Info.Size, r.Info.ETag, err)
	// Output: "world" of 12 bytes, version "v1", <nil>
}
