package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/ashlar-s3/ashlar/blockstore"
	"github.com/cespare/xxhash/v2"
)

// A region is a file: a page of header, records, and once it is finished a footer that lists them, whose trailer is the
// last bytes of the file. All integers are little-endian, all sums crc32c. Offsets of records are multiples of unit.
//
//	header:  magic 8 | version 4 | region 4 | directory 16 | size 8 | sum 4
//	record:  magic 4 | flags 4 | region 4 | key length 4 | hash 8 | check 4 | payload length 4 | directory 8 |
//	         key | sum of each chunk 4.. | sum of all this 4 | payload
//	footer:  (hash 8 | check 4 | offset 4).. | trailer
//	trailer: magic 8 | version 4 | region 4 | directory 16 | size 8 | records 4 | sum of the list 4 | zero 12 | sum 4
//
// The sum of a chunk of 64 KiB of payload starts from the sum of the key, mixed with the chunk's index, so that bytes
// at another place, or of another block, don't match: for the same bytes, other starts give other sums. Records of
// large payloads start on a page, and so does their payload: header and payload are read by one call, direct I/O
// included. Small ones follow each other. A record that is not where the last one ended is on the next page.
const (
	formatVersion = 1

	pageSize    = 4096
	unit        = 16
	chunkSize   = 64 << 10
	pagedFrom   = 128 << 10 // payloads from here on are aligned to pages: 6% of waste at most
	maxPayload  = 16 << 20
	maxKey      = 8 << 10 // encoded; S3 allows 1 KiB for a key, three times that when escaped, and as much for a version
	maxRegion   = 1 << 30
	fixedLen    = 40 // of a record's header
	maxHead     = (fixedLen + maxKey + 4*(maxPayload/chunkSize) + 4 + pageSize - 1) / pageSize * pageSize
	regionHead  = 44
	trailerLen  = 64
	entryLen    = 16
	recordMagic = 0x4b4c4241 // "ABLK"
	flagPaged   = 1
)

var (
	headMagic    = [8]byte{'a', 's', 'h', 'l', 'a', 'r', 'r', '\n'}
	trailerMagic = [8]byte{'a', 's', 'h', 'l', 'a', 'r', 't', '\n'}
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	le           = binary.LittleEndian

	errDamaged = errors.New("damaged")
	errForeign = errors.New("of another directory")
	errNewer   = errors.New("written by a newer version")
	errOlder   = errors.New("written by an older version")
	errTooLong = errors.New("longer than it is ever written")
	errUnknown = errors.New("not the directory of a disk tier, or damaged")
)

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// dirID is the random name of a directory's life: files of another one are foreign.
type dirID [16]byte

// keyLen bounds what appendKey appends.
func keyLen(v *blockstore.Version) int {
	return len(v.Bucket) + len(v.Key) + len(v.VersionID) + len(v.Raw) + len(v.Tag) + 5*4 + 3*8
}

// appendKey appends every field of the key but its hash.
func appendKey(b []byte, k blockstore.Key) []byte {
	v := k.Version
	for _, s := range [...]string{v.Bucket, v.Key, v.VersionID, v.Raw, v.Tag} {
		b = le.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = le.AppendUint64(b, uint64(v.Size))
	b = le.AppendUint64(b, uint64(v.BlockSize))
	return le.AppendUint64(b, uint64(k.Index))
}

// parseKey reads what appendKey wrote.
func parseKey(b []byte) (blockstore.Key, bool) {
	var v blockstore.Version
	for _, s := range [...]*string{&v.Bucket, &v.Key, &v.VersionID, &v.Raw, &v.Tag} {
		if len(b) < 4 || uint64(le.Uint32(b)) > uint64(len(b)-4) {
			return blockstore.Key{}, false
		}
		n := 4 + int(le.Uint32(b))
		*s, b = string(b[4:n]), b[n:]
	}
	if len(b) != 24 {
		return blockstore.Key{}, false
	}
	v.Size, v.BlockSize = int64(le.Uint64(b)), int64(le.Uint64(b[8:]))
	k := blockstore.Key{Index: int64(le.Uint64(b[16:]))}
	if v.Size < 1 || v.BlockSize < 1 || k.Index < 0 || k.Index > (v.Size-1)/v.BlockSize {
		return blockstore.Key{}, false
	}
	k.Version = blockstore.NewVersion(v)
	return k, true
}

// checkOf is the second hash of a key, which has nothing to do with the first one.
func checkOf(key []byte) uint32 { return uint32(xxhash.Sum64(key)) }

// record says how a block is laid out, and what its header says before the sums.
type record struct {
	region  uint32
	hash    uint64
	check   uint32
	key     []byte
	payload int
}

func newRecord(k blockstore.Key, key []byte) record {
	return record{hash: k.Hash(), check: checkOf(key), key: key, payload: int(k.Len())}
}

func (r *record) paged() bool { return r.payload >= pagedFrom }
func (r *record) chunks() int { return (r.payload + chunkSize - 1) / chunkSize }

// headLen is the length of the header, and span how far behind the record's start the payload is.
func (r *record) headLen() int { return fixedLen + len(r.key) + 4*r.chunks() + 4 }

func (r *record) span() int {
	if r.paged() {
		return int(roundUp(int64(r.headLen()), pageSize))
	}
	return r.headLen()
}

// total is what the record takes.
func (r *record) total() int {
	if r.paged() {
		return r.span() + int(roundUp(int64(r.payload), pageSize))
	}
	return int(roundUp(int64(r.headLen()+r.payload), unit))
}

// maxRecord returns the most that a block of up to n bytes takes in a region.
func maxRecord(n int64) int64 { return maxHead + roundUp(n, pageSize) + pageSize }

// appendPrefix appends the header up to the sums.
func (r *record) appendPrefix(b []byte, dir dirID) []byte {
	flags := uint32(0)
	if r.paged() {
		flags = flagPaged
	}
	b = le.AppendUint32(b, recordMagic)
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, r.region)
	b = le.AppendUint32(b, uint32(len(r.key)))
	b = le.AppendUint64(b, r.hash)
	b = le.AppendUint32(b, r.check)
	b = le.AppendUint32(b, uint32(r.payload))
	b = append(b, dir[:8]...)
	return append(b, r.key...)
}

// encode writes the record into dst, which is total bytes long.
func (r *record) encode(dst []byte, dir dirID, payload []byte) {
	b := r.appendPrefix(dst[:0], dir)
	seed := sum(r.key)
	for i := range r.chunks() {
		b = le.AppendUint32(b, chunkSum(seed, i, payload[i*chunkSize:]))
	}
	b = le.AppendUint32(b, sum(b))
	span := r.span()
	clear(dst[len(b):span])
	n := copy(dst[span:], payload)
	clear(dst[span+n:])
}

// chunkSum returns the sum of chunk i of a payload, which rest begins with; seed is the sum of the key.
func chunkSum(seed uint32, i int, rest []byte) uint32 {
	return crc32.Update(seed^uint32(i)*0x9e3779b1, castagnoli, rest[:min(chunkSize, len(rest))])
}

// chunksOf returns the bytes [from, to) of the payload that hold n bytes at off by whole chunks.
func (r *record) chunksOf(off, n int64) (from, to int) {
	return int(off) &^ (chunkSize - 1), min(int(roundUp(off+n, chunkSize)), r.payload)
}

// verify says whether a header of headLen bytes is whole, is the one of r, and its sums are those of the chunks that
// part is made of: the payload from byte from on, to its end or that of a chunk.
func (r *record) verify(head []byte, dir dirID, from int, part []byte) bool {
	n, to := r.headLen(), from+len(part)
	var buf [512]byte
	if len(head) < n || len(part) == 0 || from%chunkSize != 0 || to > r.payload || to < r.payload && to%chunkSize != 0 ||
		sum(head[:n-4]) != le.Uint32(head[n-4:]) ||
		!bytes.Equal(head[:fixedLen+len(r.key)], r.appendPrefix(buf[:0], dir)) {
		return false
	}
	seed := sum(r.key)
	for at := from; at < to; at += chunkSize {
		i := at / chunkSize
		if le.Uint32(head[fixedLen+len(r.key)+4*i:]) != chunkSum(seed, i, part[at-from:]) {
			return false
		}
	}
	return true
}

// move makes an encoded record one of another region.
func (r *record) move(rec []byte, region uint32) {
	r.region = region
	le.PutUint32(rec[8:], region)
	n := r.headLen()
	le.PutUint32(rec[n-4:], sum(rec[:n-4]))
}

// parseRecord reads the header at the start of b; its key is a part of b. It wants maxHead bytes, or all there are.
func parseRecord(b []byte, region uint32, dir dirID) (record, bool) {
	if len(b) < fixedLen || le.Uint32(b) != recordMagic || le.Uint32(b[8:]) != region ||
		!bytes.Equal(b[32:40], dir[:8]) {
		return record{}, false
	}
	keyLen, payload := le.Uint32(b[12:]), le.Uint32(b[28:])
	if keyLen > maxKey || payload < 1 || payload > maxPayload || int(keyLen) > len(b)-fixedLen {
		return record{}, false
	}
	r := record{region: region, hash: le.Uint64(b[16:]), check: le.Uint32(b[24:]),
		key: b[fixedLen:][:keyLen:keyLen], payload: int(payload)}
	n := r.headLen()
	if n > len(b) || sum(b[:n-4]) != le.Uint32(b[n-4:]) || (le.Uint32(b[4:]) == flagPaged) != r.paged() {
		return record{}, false
	}
	return r, true
}

// encodeHead returns the first page of a region.
func encodeHead(region uint32, dir dirID, size int64) []byte {
	page := alignedBuffer(pageSize)
	b := append(page[:0], headMagic[:]...)
	b = appendIdentity(b, region, dir, size)
	le.AppendUint32(b, sum(b))
	return page
}

func appendIdentity(b []byte, region uint32, dir dirID, size int64) []byte {
	b = le.AppendUint32(b, formatVersion)
	b = le.AppendUint32(b, region)
	b = append(b, dir[:]...)
	return le.AppendUint64(b, uint64(size))
}

// checkIdentity says what is wrong with the start of a header or trailer whose sum was right.
func checkIdentity(b []byte, region uint32, dir dirID, size int64) error {
	switch v := le.Uint32(b[8:]); {
	case v > formatVersion:
		return errNewer
	case v < formatVersion:
		return errOlder
	case !bytes.Equal(b[16:32], dir[:]) || le.Uint32(b[12:]) != region:
		return errForeign
	case int64(le.Uint64(b[32:])) != size:
		return errDamaged
	}
	return nil
}

// parseHead checks the first page of a region.
func parseHead(b []byte, region uint32, dir dirID, size int64) error {
	if len(b) < regionHead || !bytes.Equal(b[:8], headMagic[:]) || sum(b[:40]) != le.Uint32(b[40:]) {
		return errDamaged
	}
	return checkIdentity(b, region, dir, size)
}

// entry is what a footer says of a record.
type entry struct {
	hash   uint64
	check  uint32
	offset uint32
}

// footerLen returns the length of the footer of n records, by whole pages.
func footerLen(n int) int64 { return roundUp(int64(n)*entryLen+trailerLen, pageSize) }

// encodeFooter returns the last pages of a region.
func encodeFooter(entries []entry, region uint32, dir dirID, size int64) []byte {
	buf := alignedBuffer(int(footerLen(len(entries))))
	list := buf[len(buf)-trailerLen-len(entries)*entryLen : len(buf)-trailerLen]
	b := list[:0]
	for _, e := range entries {
		b = le.AppendUint64(b, e.hash)
		b = le.AppendUint32(b, e.check)
		b = le.AppendUint32(b, e.offset)
	}
	trailer := buf[len(buf)-trailerLen:]
	b = append(trailer[:0], trailerMagic[:]...)
	b = appendIdentity(b, region, dir, size)
	b = le.AppendUint32(b, uint32(len(entries)))
	le.AppendUint32(b, sum(list))
	le.PutUint32(trailer[trailerLen-4:], sum(trailer[:trailerLen-4]))
	return buf
}

// parseTrailer reads the last bytes of a region and returns how many records its footer lists.
func parseTrailer(b []byte, region uint32, dir dirID, size int64) (n int, listSum uint32, err error) {
	b = b[max(len(b)-trailerLen, 0):]
	if len(b) < trailerLen || !bytes.Equal(b[:8], trailerMagic[:]) ||
		sum(b[:trailerLen-4]) != le.Uint32(b[trailerLen-4:]) {
		return 0, 0, errDamaged
	}
	if err := checkIdentity(b, region, dir, size); err != nil {
		return 0, 0, err
	}
	n = int(le.Uint32(b[40:]))
	if pageSize+footerLen(n) > size {
		return 0, 0, errDamaged
	}
	return n, le.Uint32(b[44:]), nil
}

// parseList reads the entries of a footer; offsets lie in the region.
func parseList(b []byte, listSum uint32, size int64) ([]entry, error) {
	if sum(b) != listSum || len(b)%entryLen != 0 {
		return nil, errDamaged
	}
	entries := make([]entry, 0, len(b)/entryLen)
	for ; len(b) > 0; b = b[entryLen:] {
		e := entry{hash: le.Uint64(b), check: le.Uint32(b[8:]), offset: le.Uint32(b[12:])}
		if e.offset%unit != 0 || e.offset < pageSize || int64(e.offset) >= size {
			return nil, errDamaged
		}
		entries = append(entries, e)
	}
	return entries, nil
}
