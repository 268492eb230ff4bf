package gateway_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// TestNamesAreCopied: what is remembered of objects keeps nothing else of the requests that named them. The key of a
// presigned URL is a part of it, signature, token and all, which is much longer and in no budget.
func TestNamesAreCopied(t *testing.T) { synctest.Test(t, testNamesAreCopied) }

func testNamesAreCopied(t *testing.T) {
	p := policy()
	p.NegativeTTL = time.Hour
	r := newRig(t, p, 64*MiB)
	defer r.close()
	r.origin.Put("bucket", "read", origintest.Object{Data: []byte("abc"), ETag: `"1"`})
	read := func(o origin.Object) error {
		obj, err := r.Open(t.Context(), gateway.Request{Object: o})
		if err != nil {
			return err
		}
		defer obj.Close()
		_, err = obj.WriteTo(io.Discard)
		return err
	}
	for key, use := range map[string]func(origin.Object) error{
		"read": read,
		"missing": func(o origin.Object) error {
			if err := read(o); !errors.Is(err, origin.ErrNotFound) {
				return err
			}
			return nil
		},
		"written": func(o origin.Object) error {
			return r.Insert(t.Context(), o, &origin.Info{Size: 3, ETag: `"2"`}, strings.NewReader("abc"))
		},
	} {
		url := []byte("/bucket/" + key + "?X-Amz-Security-Token=" + strings.Repeat("x", 64<<10))
		whole := weak.Make(&url[0])
		if err := use(origin.Object{
			Bucket: unsafe.String(&url[1], len("bucket")), Key: unsafe.String(&url[len("/bucket/")], len(key)),
		}); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		url = nil
		r.origin.ResetLog()
		for range 3 { // the second may be needed for what the first has found to be garbage
			runtime.GC()
		}
		if whole.Value() != nil {
			t.Errorf("%s: the whole URL is kept", key)
		}
	}
}
