package memory_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/memory"
)

func ExampleNew() {
	tier, err := memory.New(memory.Config{Limit: 64 << 20, MaxBlock: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer tier.Close()

	v := blockstore.NewVersion(blockstore.Version{
		Bucket: "books", Key: "moby-dick.txt", Tag: `"d41d8cd9"`, Size: 16, BlockSize: 1 << 20,
	})
	key := blockstore.Key{Version: v, Index: 0}

	// The one who fetches: memory first, then bytes, then everyone may have them.
	b, err := tier.Alloc(context.Background(), key.Len())
	if err != nil {
		log.Fatal(err)
	}
	n := copy(b.Buf(), "Call me Ishmael.")
	b.Seal(key, n)
	tier.Put(b)
	b.Release()

	// The one who reads.
	if b := tier.Get(key); b != nil {
		fmt.Printf("%s\n", b.Bytes())
		b.Release()
	}
	// Output: Call me Ishmael.
}
