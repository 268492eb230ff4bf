package s3wiretest

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// object is something that was put at the origin.
type object struct {
	bucket, key string
	data        []byte
	header      map[string]string // sent with the PUT
	etag        string            // with quotes
	modified    time.Time         // in whole seconds
	lastMod     string            // Last-Modified as the origin sends it
	version     string            // "" without versioning
}

// sample is n bytes that tell their place: no two aligned words are equal, and no two seeds give the same bytes.
func sample(n int, seed uint64) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		z := uint64(i) + seed<<40
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(b[i:], z^z>>31)
	}
	return b[:n:n]
}

// put puts an object of n bytes under a key that was never used.
func (e *env) put(t *testing.T, n int, header ...string) *object {
	t.Helper()
	e.serial++
	return e.putData(t, e.bucket, fmt.Sprintf("o%d", e.serial), sample(n, uint64(e.serial)), header...)
}

// putKey puts a small object under a key; its bytes are its own.
func (e *env) putKey(t *testing.T, bucket, key string) *object {
	t.Helper()
	e.serial++
	return e.putData(t, bucket, key, fmt.Appendf(nil, "object %d %q", e.serial, key))
}

func (e *env) putData(t *testing.T, bucket, key string, data []byte, header ...string) *object {
	t.Helper()
	if data == nil {
		data = []byte{}
	}
	a := e.origin(t, request{method: http.MethodPut, bucket: bucket, key: key, body: data, header: header})
	o := &object{bucket: bucket, key: key, data: data, header: map[string]string{}, etag: a.header.Get("ETag")}
	for i := 0; i < len(header); i += 2 {
		o.header[header[i]] = header[i+1]
	}
	o.version = a.header.Get("x-amz-version-id")
	e.look(t, o)
	return o
}

// look fills in what the origin says of an object.
func (e *env) look(t *testing.T, o *object) {
	t.Helper()
	query := ""
	if o.version != "" {
		query = "versionId=" + o.version
	}
	a := e.origin(t, request{method: http.MethodHead, bucket: o.bucket, key: o.key, query: query})
	if o.etag == "" {
		o.etag = a.header.Get("ETag")
	}
	o.lastMod = a.header.Get("Last-Modified")
	modified, err := http.ParseTime(o.lastMod)
	if err != nil {
		t.Fatalf("preparing: Last-Modified %q of the origin: %v", o.lastMod, err)
	}
	o.modified = modified
}

func (e *env) makeBucket(t *testing.T, name string) {
	t.Helper()
	e.origin(t, request{method: http.MethodPut, bucket: name})
}

// versioned is a bucket with versioning, and an object in it that is older than that.
type versioned struct {
	bucket string
	null   *object
}

func (e *env) versionedBucket(t *testing.T) versioned {
	t.Helper()
	return once(e, "versioned", func() versioned {
		v := versioned{bucket: "wire-v-" + random()}
		e.makeBucket(t, v.bucket)
		v.null = e.putKey(t, v.bucket, "older-than-versioning")
		body := []byte(`<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
			`<Status>Enabled</Status></VersioningConfiguration>`)
		e.origin(t, request{method: http.MethodPut, bucket: v.bucket, query: "versioning=", body: body})
		return v
	})
}

// partSize is the least that S3 takes for a part that is not the last.
const partSize = 5 << 20

// multipart is an object of parts of 5 MiB, 5 MiB and 1 MiB, with a composite CRC32. Rows share it.
func (e *env) multipart(t *testing.T) *object {
	t.Helper()
	return once(e, "multipart", func() *object {
		o := &object{bucket: e.bucket, key: "multipart", data: sample(2*partSize+1<<20, 7), header: map[string]string{}}
		a := e.origin(t, request{method: http.MethodPost, key: o.key, query: "uploads=",
			header: []string{"X-Amz-Checksum-Algorithm", "CRC32"}})
		id := encodeQuery(a.element("UploadId"))
		list := "<CompleteMultipartUpload>"
		sums := crc32.NewIEEE()
		for n, rest := 1, o.data; len(rest) > 0; n++ {
			part := rest[:min(partSize, len(rest))]
			rest = rest[len(part):]
			sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(part))
			sums.Write(sum)
			encoded := base64.StdEncoding.EncodeToString(sum)
			a := e.origin(t, request{method: http.MethodPut, key: o.key, body: part,
				query: "partNumber=" + strconv.Itoa(n) + "&uploadId=" + id, header: []string{"X-Amz-Checksum-Crc32", encoded}})
			list += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><ChecksumCRC32>%s</ChecksumCRC32></Part>",
				n, a.header.Get("ETag"), encoded)
		}
		e.origin(t, request{method: http.MethodPost, key: o.key, query: "uploadId=" + id,
			body: []byte(list + "</CompleteMultipartUpload>")})
		o.header["composite"] = base64.StdEncoding.EncodeToString(sums.Sum(nil)) + "-3"
		e.look(t, o)
		return o
	})
}
