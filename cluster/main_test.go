package cluster

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbered returns n nodes of equal weight.
func numbered(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: fmt.Sprintf("10.0.%d.%d:9000", i/256, i%256), Addr: fmt.Sprintf("10.0.%d.%d:9000", i/256, i%256)}
	}
	return nodes
}

func snapshot(t testing.TB, nodes []Node) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(nodes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
