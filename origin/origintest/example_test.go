package origintest_test

import (
	"context"
	"fmt"
	"io"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// The object is overwritten after its first half has been read; the second GET of a pinned read finds out.
func Example() {
	ctx := context.Background()
	o := origintest.New()
	k := origin.Object{Bucket: "b", Key: "k"}
	tag := o.Put("b", "k", origintest.Object{Size: 1 << 20})
	o.Fail(1, origintest.At(1<<19), origintest.Fault{Before: func() { o.Put("b", "k", origintest.Object{Size: 1 << 20}) }})

	r, _ := o.Get(ctx, k, origin.GetOptions{Length: 1 << 19})
	p, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	fmt.Println(origintest.Check(tag, 0, p))
	_, err := o.Get(ctx, k, origin.GetOptions{Offset: 1 << 19, Length: 1 << 19, IfMatch: tag})
	fmt.Println(err)
	for _, line := range o.Log() {
		fmt.Println(line)
	}
	// Output:
	// <nil>
	// origin answered 412 PreconditionFailed
	// GET b/k 0-524287
	// GET b/k 524288-1048575 if-match="b/k#1" -> 412
}
