package disk

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/ashlar-s3/ashlar/blockstore/blockstoretest"
)

// rounds returns how often something random is done: n, half of it in short runs, or what the environment says.
func rounds(t *testing.T, name string, n int) (int, *rand.Rand) {
	t.Helper()
	if s := os.Getenv(name); s != "" {
		n, _ = strconv.Atoi(s)
	} else if testing.Short() {
		n = max(n/2, 1)
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d rounds", seed, n)
	return n, rand.New(rand.NewPCG(seed, 0))
}

// Every bit of a record counts: whichever is flipped, the block is not served, nor the chunk that it is in, and no chunk
// when it is in the header. Flips of padding may do no harm.
func TestEveryBit(t *testing.T) {
	for _, k := range []blockstore.Key{mixed(0), mixed(1), mixed(3)} {
		rec := newRecord(k, appendKey(nil, k))
		rec.region = 5
		payload := make([]byte, k.Len())
		blockstoretest.Fill(k, payload)
		raw := make([]byte, rec.total())
		rec.encode(raw, dirID{1}, payload)
		span := rec.span()
		verify := func() bool {
			return rec.verify(raw[:rec.headLen()], dirID{1}, 0, raw[span:span+rec.payload])
		}
		if !verify() {
			t.Fatal("a whole record is refused")
		}
		for from := 0; from < rec.payload; from += chunkSize {
			to := min(from+chunkSize, rec.payload)
			if !rec.verify(raw[:rec.headLen()], dirID{1}, from, raw[span+from:span+to]) {
				t.Fatal("a whole chunk is refused")
			}
			if rec.verify(raw[:rec.headLen()], dirID{1}, from, raw[span+from:span+to-1]) {
				t.Error("a part of a chunk is taken")
			}
		}
		for i := range min(span+rec.payload, 70_000) * 8 {
			if rec.payload > 10_000 && i > 8*span && i%997 != 0 {
				continue
			}
			raw[i/8] ^= 1 << (i % 8)
			if verify() {
				t.Errorf("bit %d may be flipped", i)
			}
			from, to := rec.chunksOf(int64(max(i/8-span, 0)), 1)
			if rec.verify(raw[:rec.headLen()], dirID{1}, from, raw[span+from:span+to]) {
				t.Errorf("bit %d may be flipped, as to its chunk", i)
			}
			raw[i/8] ^= 1 << (i % 8)
		}
		if rec.verify(raw[:rec.headLen()], dirID{2}, 0, raw[span:span+rec.payload]) {
			t.Error("a record of another directory is taken")
		}
		other := rec
		other.region = 6
		if other.verify(raw[:rec.headLen()], dirID{1}, 0, raw[span:span+rec.payload]) {
			t.Error("a record of another region is taken")
		}
	}
}

// A chunk at the place of another one, or of another block, does not match.
func TestChunksElsewhere(t *testing.T) {
	v := blockstoretest.Object("chunks", 1<<20, 256<<10)
	k := blockstore.Key{Version: v}
	rec := newRecord(k, appendKey(nil, k))
	raw := make([]byte, rec.total())
	payload := bytes.Repeat([]byte("the same in all chunks: "), 256<<10/24+1)[:256<<10]
	for i := range payload[chunkSize:] {
		payload[chunkSize+i] = payload[i]
	}
	rec.encode(raw, dirID{}, payload)
	sums := raw[fixedLen+len(rec.key):]
	for i := range rec.chunks() - 1 {
		if le.Uint32(sums[4*i:]) == le.Uint32(sums[4*i+4:]) {
			t.Error("the sum of a chunk does not cover its index")
		}
	}
	k.Index = 1
	rec = newRecord(k, appendKey(nil, k))
	if chunkSum(sum(rec.key), 0, payload) == le.Uint32(sums) {
		t.Error("the sum of a chunk does not cover the key")
	}
}

// Bits flip, parts are swapped, files are cut short, in files that a running process has open and in those it finds
// when it starts: no wrong byte is ever served. DAMAGE_ROUNDS=1000000 for more.
func TestDamage(t *testing.T) {
	n, rng := rounds(t, "DAMAGE_ROUNDS", 1000)
	path := t.TempDir()
	const blocks = 60
	mixed := func(i int) blockstore.Key { return mixed(i/6*7 + i%6) } // without the largest
	var d *Tier
	fill := func() {
		for i := range blocks {
			for range 2 {
				put(t, d, mixed(i))
			}
		}
		flush(t, d)
	}
	served, damaged := 0, 0.0
	for done := 0; done < n; {
		d = openTier(t, Config{Dir: path, Recover: RecoverQuiet}, &osDir{path: path})
		recovered(t, d)
		for i := range blocks {
			has(t, d, mixed(i))
		}
		fill()
		for range min(n-done, 5000) {
			done++
			files, err := filepath.Glob(filepath.Join(path, "*.region"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			f, err := os.OpenFile(files[rng.IntN(len(files))], os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			harm(t, f, rng)
			_ = f.Close()
			for range 3 {
				k := mixed(rng.IntN(blocks))
				off, n := randomPart(rng, k)
				if hasPart(t, d, k, off, n) && has(t, d, k) {
					served++
				}
			}
			if done%50 == 0 {
				for i := range blocks {
					has(t, d, mixed(i))
				}
				fill()
			}
		}
		damaged += count(d.metrics.reads, readDamaged)
		closeTier(t, d)
	}
	t.Logf("%d blocks served, all right, %v found damaged", served, damaged)
	if served < n/2 || damaged == 0 {
		t.Error("nothing was tried")
	}
}

// harm does something to a region file.
func harm(t *testing.T, f *os.File, rng *rand.Rand) {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size()
	if size < 2*pageSize {
		return
	}
	at := func() int64 { // mostly where something is
		if rng.IntN(2) == 0 {
			return rng.Int64N(min(size, 1<<20))
		}
		return rng.Int64N(size)
	}
	switch rng.IntN(100) {
	case 0: // the end is gone
		err = f.Truncate(size - rng.Int64N(size/2))
	case 1: // two parts change places
		n := 1 << rng.IntN(17)
		a, b := make([]byte, n), make([]byte, n)
		i, j := at()&^unitMask, at()&^unitMask
		_, _ = f.ReadAt(a, i)
		_, _ = f.ReadAt(b, j)
		_, _ = f.WriteAt(b[:min(int64(n), size-i)], i)
		_, err = f.WriteAt(a[:min(int64(n), size-j)], j)
	case 2: // a page is zero
		_, err = f.WriteAt(make([]byte, pageSize), min(at()&^(pageSize-1), size-pageSize))
	default: // a bit flips
		var b [1]byte
		i := at()
		if _, err = f.ReadAt(b[:], i); err == nil {
			b[0] ^= 1 << rng.IntN(8)
			_, err = f.WriteAt(b[:], i)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

const unitMask = unit - 1

// A block that was found damaged is forgotten, counted, and can be put again.
func TestDamagedIsForgotten(t *testing.T) {
	dir := newMemDir()
	d := openTier(t, Config{}, dir)
	put(t, d, mixed(6))
	flush(t, d)
	f := dir.files[regionName(0)]
	f.data[3*pageSize] ^= 1
	if has(t, d, mixed(6)) || d.Contains(mixed(6)) || count(d.metrics.reads, readDamaged) != 1 {
		t.Error("the damage was not noticed")
	}
	state(t, d, StateOK)
	put(t, d, mixed(6))
	flush(t, d)
	if !has(t, d, mixed(6)) {
		t.Error("it can't be put again")
	}
}

func FuzzRecord(f *testing.F) {
	for i := range 4 {
		rec := newRecord(mixed(i), appendKey(nil, mixed(i)))
		rec.region = 7
		raw := make([]byte, rec.total())
		rec.encode(raw, dirID{9}, make([]byte, rec.payload))
		f.Add(raw[:min(len(raw), maxHead)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, whole := range []bool{false, true} {
			if n := fixedLen + 4; whole && len(b) > n { // get past the sum
				b = slices.Clone(b)
				rec := record{key: make([]byte, min(int(le.Uint32(b[12:])), maxKey)),
					payload: min(int(le.Uint32(b[28:])), maxPayload)}
				if n = rec.headLen(); n <= len(b) {
					le.PutUint32(b[n-4:], sum(b[:n-4]))
				}
			}
			rec, ok := parseRecord(b, 7, dirID{9})
			if !ok {
				continue
			}
			if rec.total() > int(maxRecord(int64(rec.payload))) || rec.headLen() > len(b) {
				t.Errorf("%+v: %d bytes", rec, rec.total())
			}
			if k, ok := parseKey(rec.key); ok && !bytes.Equal(appendKey(nil, k), rec.key) {
				t.Errorf("key %q is %v", rec.key, k)
			}
		}
	})
}

func FuzzFooter(f *testing.F) {
	const size = 1 << 20
	f.Add(encodeFooter([]entry{{1, 2, pageSize}, {3, 4, 8 * pageSize}}, 7, dirID{9}, size), false)
	f.Add(encodeFooter(nil, 7, dirID{9}, size), true)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if len(b) > pageSize {
			return
		}
		if n := len(b); mend && n >= trailerLen { // get past the sums
			b = slices.Clone(b)
			listed := int(le.Uint32(b[n-trailerLen+40:])) * entryLen
			if listed <= n-trailerLen {
				le.PutUint32(b[n-trailerLen+44:], sum(b[n-trailerLen-listed:n-trailerLen]))
			}
			le.PutUint32(b[n-4:], sum(b[n-trailerLen:n-4]))
		}
		n, listSum, err := parseTrailer(b, 7, dirID{9}, size)
		if err != nil || trailerLen+n*entryLen > len(b) {
			return
		}
		entries, err := parseList(b[len(b)-trailerLen-n*entryLen:len(b)-trailerLen], listSum, size)
		if err == nil && len(entries) != n {
			t.Errorf("%d entries of %d", len(entries), n)
		}
	})
}

func FuzzInfos(f *testing.F) {
	f.Add(appendInfo(appendInfo(nil, "a", []byte("b")), "c", nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		n, _ := parseInfos(b, func(name string, data []byte) bool {
			again = appendInfo(again, name, data)
			return true
		})
		if !bytes.Equal(again, b[:n]) {
			t.Errorf("%x read as %x", b[:n], again)
		}
	})
}
