package consistency

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
)

// version is one version of an object. Its bytes say whose they are: every 16 of them hold its number, lowest byte first,
// a hash of its key, and where in it they are.
type version struct {
	key    string
	number uint64 // of all versions of a load, from 1; in decimal, it is the name
	size   int
	etag   string
}

// bytes returns n bytes of v from first on.
func (v *version) bytes(first, n int) []byte {
	h := fnv.New32a()
	_, _ = h.Write([]byte(v.key))
	b := make([]byte, 0, n+32)
	for at := first / 16 * 16; at < first+n; at += 16 {
		b = binary.LittleEndian.AppendUint64(b, v.number)
		b = binary.BigEndian.AppendUint32(b, h.Sum32())
		b = binary.BigEndian.AppendUint32(b, uint32(at))
	}
	return b[first%16:][:n]
}

// unique says whether no other version has these bytes, and so this ETag.
func (v *version) unique() bool { return v.size >= 4 }

func (v *version) name() string { return strconv.FormatUint(v.number, 10) }

// versions are those of a load. Safe for concurrent use.
type versions struct {
	last   atomic.Uint64
	byName sync.Map // of *version, by name
}

// add makes the next version of key, of size bytes, and returns it with its body. parts says that it is written as a
// multipart upload of one part, which gives it another ETag.
func (vs *versions) add(key string, size int, parts bool) (*version, []byte) {
	v := &version{key: key, number: vs.last.Add(1), size: size}
	body := v.bytes(0, size)
	sum := md5.Sum(body)
	etag := hex.EncodeToString(sum[:])
	if parts {
		sum = md5.Sum(sum[:])
		etag = hex.EncodeToString(sum[:]) + "-1"
	}
	v.etag = `"` + etag + `"`
	vs.byName.Store(v.name(), v)
	return v, body
}

// get returns the version of that name, nil if there is none.
func (vs *versions) get(name string) *version {
	v, _ := vs.byName.Load(name)
	known, _ := v.(*version)
	return known
}

// differs says how got is not what v has from first on; "" when it is.
func (v *version) differs(first int, got []byte) string {
	if first > v.size || len(got) > v.size-first {
		return fmt.Sprintf("%d bytes from %d of a version of %d", len(got), first, v.size)
	}
	want := v.bytes(first, len(got))
	if bytes.Equal(got, want) {
		return ""
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	at := max(0, i-(first+i)%16)
	return fmt.Sprintf("byte %d of version %s is %x in %x", first+i, v.name(), got[i], got[at:min(at+32, len(got))])
}
