package memory

import (
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTier(t testing.TB, limit, maxBlock int64) *Tier {
	t.Helper()
	tier, err := New(Config{Limit: limit, MaxBlock: maxBlock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tier.Close)
	return tier
}

func TestSuite(t *testing.T) {
	blockstoretest.Memory(t, blockstoretest.Suite{
		New: func(t testing.TB) blockstore.Store { return newTier(t, 16<<20, 1<<20) },
	})
}
