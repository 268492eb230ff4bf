package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// vectors is testdata/routing_vectors.json, which routing_vectors.py beside it generates without this package.
type vectors struct {
	XXHash64 []struct{ Text, Hash string }
	Log2     []struct {
		Score   string `json:"score"`
		NegLog2 string `json:"neg_log2"`
	}
	Table string `json:"log2_table_hash"`
	Nodes []struct {
		Name  string
		Nodes []struct {
			ID     string
			Weight int
		}
		Digest   string
		Rankings []struct {
			Bucket, Key string
			Index       int64
			Ranking     []string
			Hash        string
		}
	}
}

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	x, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestVectors(t *testing.T) {
	p, err := os.ReadFile("../testdata/routing_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(p, &v); err != nil {
		t.Fatal(err)
	}
	for _, x := range v.XXHash64 {
		if got := xxhash.Sum64String(x.Text); got != hex(t, x.Hash) {
			t.Errorf("xxHash64 of %q is %016x, want %s", x.Text, got, x.Hash)
		}
	}
	table := newLogTable()
	var b []byte
	for _, x := range table {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	if got := xxhash.Sum64(b); got != hex(t, v.Table) {
		t.Errorf("the table of logarithms has the hash %016x, want %s", got, v.Table)
	}
	for _, x := range v.Log2 {
		if got := table.negLog2(hex(t, x.Score)); got != hex(t, x.NegLog2) {
			t.Errorf("logarithm of %s is %016x, want %s", x.Score, got, x.NegLog2)
		}
	}
	rankings := 0
	for _, c := range v.Nodes {
		var nodes []Node
		for _, n := range c.Nodes {
			nodes = append(nodes, Node{ID: n.ID, Weight: n.Weight})
		}
		s := snapshot(t, nodes)
		if s.Digest() != c.Digest {
			t.Errorf("%s: digest %s, want %s", c.Name, s.Digest(), c.Digest)
		}
		for _, want := range c.Rankings {
			rankings++
			u := KeyOf(want.Bucket, want.Key).Unit(want.Index)
			var ids []string
			for _, i := range s.Rank(u) {
				ids = append(ids, s.Node(i).ID)
			}
			what := fmt.Sprintf("%s: unit %d of %s/%q", c.Name, want.Index, want.Bucket, want.Key)
			if !slices.Equal(ids[:len(want.Ranking)], want.Ranking) {
				t.Errorf("%s ranks %q, want %q", what, ids[:len(want.Ranking)], want.Ranking)
			}
			if got := xxhash.Sum64String(strings.Join(ids, "\n")); got != hex(t, want.Hash) {
				t.Errorf("%s: the whole ranking is another", what)
			}
			if owner := s.Node(s.Owner(u)).ID; owner != want.Ranking[0] {
				t.Errorf("%s belongs to %s, want %s", what, owner, want.Ranking[0])
			}
		}
	}
	if rankings < 500 || len(v.XXHash64) < 10 || len(v.Log2) < 50 {
		t.Errorf("only %d rankings in the file", rankings)
	}
}
