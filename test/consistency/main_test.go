//go:build integration

package consistency

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/internal/devs3"
	"github.com/ashlar-s3/ashlar/test/internal/node"
)

var (
	duration = flag.Duration("duration", 10*time.Second, "how long each load goes on")
	seed     = flag.Uint64("seed", 0, "of the loads; 0 draws one")
)

const (
	region = "us-east-1"
	bucket = "bucket"
	block  = 64 << 10 // block size of the nodes, in bytes
)

var (
	clientKey = node.Key{Access: "AKIACLIENT0000000001", Secret: "client/secret+of/the=consistency~tests"}
	originKey = node.Key{Access: "AKIAORIGIN0000000001", Secret: "origin/secret+of/the=consistency~tests"}
)

// newSeed returns the seed for one load and shows it.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", s)
	return s
}

// origin is the project's own S3 server, in this process.
type origin struct {
	*devs3.Server
	url string
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	o := &origin{
		Server: devs3.New(devs3.Config{Keys: map[string]string{originKey.Access: originKey.Secret}, Region: region}),
	}
	if err := o.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(o.Server)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	o.url = server.URL
	return o
}

func (o *origin) target() Target { return target(o.url, originKey) }

func target(endpoint string, key node.Key) Target {
	return Target{Endpoint: endpoint, Bucket: bucket, Region: region, Access: key.Access, Secret: key.Secret}
}

// newNode starts binary in front of an endpoint, "" for the one that is tested. buckets is more of its configuration's
// table of that name.
func newNode(t *testing.T, binary, endpoint, buckets string) Target {
	t.Helper()
	if binary == "" {
		binary = os.Getenv("TEST_ASHLAR")
	}
	if binary == "" {
		t.Fatal("TEST_ASHLAR is not set: run these tests by make integration")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, err := node.Start(ctx, node.Options{
		Binary: binary, Dir: t.TempDir(), Origin: endpoint, OriginKey: originKey, Key: clientKey, Memory: "128 MiB",
		Extra: "[buckets]\nblock_size = \"64 KiB\"\n" + buckets,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log := n.Log()
			t.Logf("the node's log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	return target(n.URL(), clientKey)
}

// unsteady makes an origin as slow, and its answers as much out of order, as networks are, and lets some writes fail
// whose outcome nobody learns. Times are short, so that much happens in a short load.
func (o *origin) unsteady(seed uint64, failures float64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	o.Fault(func(r *http.Request) *devs3.Fault {
		mu.Lock()
		defer mu.Unlock()
		nap := func() time.Duration {
			switch n := rng.IntN(10); {
			case n == 0:
				return time.Duration(rng.IntN(int(200 * time.Millisecond)))
			case n < 4:
				return time.Duration(rng.IntN(int(20 * time.Millisecond)))
			}
			return 0
		}
		late := nap() // the answer, after the request took effect
		f := &devs3.Fault{Delay: nap(), Edit: func(status int, _ http.Header) int {
			time.Sleep(late)
			return status
		}}
		if r.Method == http.MethodGet || r.Method == http.MethodHead || rng.Float64() >= failures {
			return f
		}
		switch rng.IntN(3) {
		case 0:
			f = devs3.Respond(http.StatusServiceUnavailable, "SlowDown", "")
		case 1:
			f = devs3.Respond(http.StatusInternalServerError, "InternalError", "")
			f.Apply = true
		case 2:
			f = devs3.ResetBeforeHeaders()
			f.Apply = true
		}
		f.Delay = nap()
		return f
	})
}

// root is the folder of the main module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
