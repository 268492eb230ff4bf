package origintest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// Backend is how the suite puts objects where the origin under test finds them. *Origin is one.
type Backend interface {
	// Put stores an object, replacing any under that key, and returns its ETag. The suite sets Data, Headers and
	// Checksums only, and never asks for a bucket but "suite".
	Put(bucket, key string, o Object) (etag string)
	// Delete removes an object.
	Delete(bucket, key string)
}

// Rounding is what a Backend may have besides: how much older than it is an answer may say that its info is, because
// caches on the way count Age in whole seconds, rounded up (RFC 9111 section 5.1).
type Rounding interface{ Rounding() time.Duration }

// now returns the present as answers behind b may show it.
func now(b Backend) time.Time {
	if r, ok := b.(Rounding); ok {
		return time.Now().Add(-r.Rounding())
	}
	return time.Now()
}

// Bucket is the bucket that the suite uses; it must exist.
const Bucket = "suite"

// Suite checks that an implementation answers as package origin demands. newOrigin returns one with its backend,
// holding nothing, and cleans up through t.
func Suite(t *testing.T, newOrigin func(t *testing.T) (origin.Origin, Backend)) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, origin.Origin, Backend)
	}{
		{"Ranges", suiteRanges},
		{"Whole", suiteWhole},
		{"Empty", suiteEmpty},
		{"NotFound", suiteNotFound},
		{"Unsatisfiable", suiteUnsatisfiable},
		{"Pinned", suitePinned},
		{"NotModified", suiteNotModified},
		{"Head", suiteHead},
		{"Headers", suiteHeaders},
		{"Checksums", suiteChecksums},
		{"OddKeys", suiteOddKeys},
		{"CloseEarly", suiteCloseEarly},
		{"Cancel", suiteCancel},
		{"Concurrent", suiteConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, b := newOrigin(t)
			c.run(t, o, b)
		})
	}
}

func object(key string) origin.Object { return origin.Object{Bucket: Bucket, Key: key} }

// get reads a range and checks the body's contract: exactly Length bytes, then io.EOF, for ever.
func get(t *testing.T, o origin.Origin, obj origin.Object, opts origin.GetOptions) (*origin.Response, []byte) {
	t.Helper()
	r, err := o.Get(t.Context(), obj, opts)
	if err != nil {
		t.Fatalf("Get %v %+v: %v", obj, opts, err)
	}
	if r.NotModified {
		t.Fatalf("Get %v %+v: not modified", obj, opts)
	}
	p, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("Get %v %+v: body: %v", obj, opts, err)
	}
	if int64(len(p)) != r.Length {
		t.Fatalf("Get %v %+v: %d bytes, Length says %d", obj, opts, len(p), r.Length)
	}
	if n, err := r.Body.Read(make([]byte, 8)); n != 0 || err != io.EOF {
		t.Errorf("Get %v %+v: read after the end: %d, %v", obj, opts, n, err)
	}
	if err := r.Body.Close(); err != nil {
		t.Errorf("Get %v %+v: Close: %v", obj, opts, err)
	}
	return r, p
}

func suiteRanges(t *testing.T, o origin.Origin, b Backend) {
	const size = 100_000
	data := Bytes("ranges", 0, size)
	tag := b.Put(Bucket, "k", Object{Data: data})
	for _, c := range []struct{ off, n, want int64 }{
		{0, 1, 1},
		{0, size, size},
		{0, size + 1, size},
		{1, size, size - 1},
		{size - 1, 1, 1},
		{size - 1, 1 << 20, 1},
		{4095, 4097, 4097},
		{65_536, 65_536, size - 65_536},
		{7, math.MaxInt64 - 7, size - 7},
	} {
		r, p := get(t, o, object("k"), origin.GetOptions{Offset: c.off, Length: c.n})
		if r.Offset != c.off || r.Length != c.want || !bytes.Equal(p, data[c.off:c.off+c.want]) {
			t.Errorf("range %d+%d: got %d+%d, wrong or with wrong bytes", c.off, c.n, r.Offset, r.Length)
		}
		if r.Info.Size != size || r.Info.ETag != tag {
			t.Errorf("range %d+%d: info %+v", c.off, c.n, r.Info)
		}
	}
}

func suiteWhole(t *testing.T, o origin.Origin, b Backend) {
	for _, size := range []int64{1, 511, 65_536, 300_000} {
		data := Bytes("whole", 0, size)
		tag := b.Put(Bucket, "k", Object{Data: data})
		before := now(b)
		r, p := get(t, o, object("k"), origin.GetOptions{})
		if r.Offset != 0 || r.Info.Size != size || r.Info.ETag != tag || !bytes.Equal(p, data) {
			t.Errorf("%d bytes: offset %d, info %+v", size, r.Offset, r.Info)
		}
		i := r.Info
		if i.Confirmed.Before(before) || i.Received.Before(i.Confirmed) || i.Received.After(time.Now()) {
			t.Errorf("asked at %v, Confirmed %v, Received %v", before, i.Confirmed, i.Received)
		}
		if i.Modified.IsZero() || i.Modified.Nanosecond() != 0 || i.LastModified == "" {
			t.Errorf("LastModified %q, Modified %v", i.LastModified, i.Modified)
		}
	}
}

func suiteEmpty(t *testing.T, o origin.Origin, b Backend) {
	tag := b.Put(Bucket, "empty", Object{})
	r, p := get(t, o, object("empty"), origin.GetOptions{})
	if r.Length != 0 || len(p) != 0 || r.Info.Size != 0 || r.Info.ETag != tag {
		t.Errorf("whole: %+v", r)
	}
	_, err := o.Get(t.Context(), object("empty"), origin.GetOptions{Length: 1})
	wantStatus(t, err, 416, origin.ErrRange)
	if i, err := o.Head(t.Context(), object("empty"), origin.HeadOptions{}); err != nil || i.Size != 0 || i.ETag != tag {
		t.Errorf("Head: %+v, %v", i, err)
	}
}

func wantStatus(t *testing.T, err error, status int, sentinel error) {
	t.Helper()
	var e *origin.Error
	if !errors.As(err, &e) || e.Status != status || !errors.Is(err, sentinel) {
		t.Errorf("got error %v, want %d that matches %q", err, status, sentinel)
	}
}

func suiteNotFound(t *testing.T, o origin.Origin, b Backend) {
	_, err := o.Get(t.Context(), object("none"), origin.GetOptions{Length: 1})
	wantStatus(t, err, 404, origin.ErrNotFound)
	var e *origin.Error
	if errors.As(err, &e) && (e.Code != "NoSuchKey" || !bytes.Contains(e.Body, []byte("NoSuchKey"))) {
		t.Errorf("code %q, body %q", e.Code, e.Body)
	}
	_, err = o.Head(t.Context(), object("none"), origin.HeadOptions{})
	wantStatus(t, err, 404, origin.ErrNotFound)

	b.Put(Bucket, "gone", Object{Data: []byte("x")})
	get(t, o, object("gone"), origin.GetOptions{})
	b.Delete(Bucket, "gone")
	_, err = o.Get(t.Context(), object("gone"), origin.GetOptions{})
	wantStatus(t, err, 404, origin.ErrNotFound)
}

func suiteUnsatisfiable(t *testing.T, o origin.Origin, b Backend) {
	b.Put(Bucket, "k", Object{Data: make([]byte, 10)})
	for _, off := range []int64{10, 11, 1 << 40} {
		_, err := o.Get(t.Context(), object("k"), origin.GetOptions{Offset: off, Length: 5})
		wantStatus(t, err, 416, origin.ErrRange)
	}
}

func suitePinned(t *testing.T, o origin.Origin, b Backend) {
	one, two := bytes.Repeat([]byte("1"), 1000), bytes.Repeat([]byte("2"), 1000)
	tag1 := b.Put(Bucket, "k", Object{Data: one})
	opts := origin.GetOptions{Offset: 100, Length: 100, IfMatch: tag1}
	if _, p := get(t, o, object("k"), opts); !bytes.Equal(p, one[:100]) {
		t.Error("wrong bytes of the first version")
	}
	tag2 := b.Put(Bucket, "k", Object{Data: two})
	if tag1 == tag2 {
		t.Fatalf("both versions have the ETag %s", tag1)
	}
	_, err := o.Get(t.Context(), object("k"), opts)
	wantStatus(t, err, 412, origin.ErrChanged)
	opts.IfMatch = tag2
	if r, p := get(t, o, object("k"), opts); !bytes.Equal(p, two[:100]) || r.Info.ETag != tag2 {
		t.Error("wrong bytes or ETag of the second version")
	}
}

func suiteNotModified(t *testing.T, o origin.Origin, b Backend) {
	tag1 := b.Put(Bucket, "k", Object{Data: []byte("first")})
	opts := origin.GetOptions{Length: 3, IfNoneMatch: tag1, NoCache: true}
	before := now(b)
	r, err := o.Get(t.Context(), object("k"), opts)
	if err != nil || !r.NotModified || r.Body != nil {
		t.Fatalf("same version: %+v, %v", r, err)
	}
	if r.Info.Confirmed.Before(before) || r.Info.Received.Before(r.Info.Confirmed) {
		t.Errorf("asked at %v, Confirmed %v, Received %v", before, r.Info.Confirmed, r.Info.Received)
	}
	tag2 := b.Put(Bucket, "k", Object{Data: []byte("second")})
	r, p := get(t, o, object("k"), opts)
	if r.Info.ETag != tag2 || string(p) != "sec" {
		t.Errorf("other version: %+v, %q", r, p)
	}
}

func suiteHead(t *testing.T, o origin.Origin, b Backend) {
	tag := b.Put(Bucket, "k", Object{Data: make([]byte, 12_345)})
	before := now(b)
	i, err := o.Head(t.Context(), object("k"), origin.HeadOptions{NoCache: true, FirstByte: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if i.Size != 12_345 || i.ETag != tag || !i.ChecksumsKnown || i.Confirmed.Before(before) || i.Received.IsZero() {
		t.Errorf("%+v", i)
	}
}

func suiteHeaders(t *testing.T, o origin.Origin, b Backend) {
	want := []origin.Header{
		{Name: "Cache-Control", Value: "max-age=60"},
		{Name: "Content-Disposition", Value: `attachment; filename="a b"`},
		{Name: "Content-Encoding", Value: "gzip"},
		{Name: "Content-Language", Value: "de"},
		{Name: "Content-Type", Value: "text/plain; charset=utf-8"},
		{Name: "X-Amz-Meta-Color", Value: "deep  red"},
		{Name: "X-Amz-Meta-Empty", Value: ""},
	}
	data := []byte("\x1f\x8b not really gzip: must arrive as it is")
	b.Put(Bucket, "k", Object{Data: data, Headers: want})
	check := func(what string, i *origin.Info) {
		t.Helper()
		for _, h := range want {
			if !slices.Contains(i.Headers, h) {
				t.Errorf("%s: no %v in %v", what, h, i.Headers)
			}
		}
		if !slices.IsSortedFunc(i.Headers, func(a, b origin.Header) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: not sorted: %v", what, i.Headers)
		}
	}
	r, p := get(t, o, object("k"), origin.GetOptions{})
	if !bytes.Equal(p, data) {
		t.Errorf("body %q", p)
	}
	check("whole", &r.Info)
	r, _ = get(t, o, object("k"), origin.GetOptions{Offset: 2, Length: 3})
	check("range", &r.Info)
	i, err := o.Head(t.Context(), object("k"), origin.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check("Head", i)
}

func suiteChecksums(t *testing.T, o origin.Origin, b Backend) {
	data := Bytes("checksums", 0, 1000)
	sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data)))
	want := origin.Header{Name: "X-Amz-Checksum-Crc32", Value: sum}
	b.Put(Bucket, "k", Object{Data: data, Checksums: []origin.Header{want}})
	i, err := o.Head(t.Context(), object("k"), origin.HeadOptions{})
	if err != nil || !i.ChecksumsKnown || !slices.Contains(i.Checksums, want) {
		t.Errorf("Head: %+v, %v", i, err)
	}
	r, _ := get(t, o, object("k"), origin.GetOptions{})
	if r.Info.ChecksumsKnown && !slices.Contains(r.Info.Checksums, want) {
		t.Errorf("whole: %+v", r.Info)
	}
	r, _ = get(t, o, object("k"), origin.GetOptions{Offset: 1, Length: 10})
	if r.Info.ChecksumsKnown || len(r.Info.Checksums) != 0 {
		t.Errorf("range: %+v", r.Info)
	}
}

// OddKeys are keys that something on the way may be tempted to clean, decode twice or encode differently.
var OddKeys = []string{
	"a b", "a+b", "a%20b", "a%2Fb", "a%b", "a//b", "/a", "//", "a/./b", "a/../b", "a/..", "dir/", "a;b=c", "a?b", "a#b",
	"~a", "a&b=c", "a*b", "(a)", "a'b", "a\"b", "a<b>", "a\\b", "a|b", "[a]", "{a}", "a@b:c,d!e$",
	"\u00e4\u00e9", "a\u0308", "\u65e5\u672c", "\U0001f600",
	"t=2026-01-01T00:00:00+00:00/f", "a\tb", "a\nb", "a\x01b", "\x7f", strings.Repeat("k", 1024),
}

func suiteOddKeys(t *testing.T, o origin.Origin, b Backend) {
	for i, k := range OddKeys {
		b.Put(Bucket, k, Object{Data: fmt.Appendf(nil, "object %d", i)})
	}
	for i, k := range OddKeys {
		if _, p := get(t, o, object(k), origin.GetOptions{}); string(p) != fmt.Sprintf("object %d", i) {
			t.Errorf("key %q: %q", k, p)
		}
		if _, err := o.Head(t.Context(), object(k), origin.HeadOptions{}); err != nil {
			t.Errorf("key %q: %v", k, err)
		}
	}
}

func suiteCloseEarly(t *testing.T, o origin.Origin, b Backend) {
	const size = 4 << 20
	b.Put(Bucket, "k", Object{Data: Bytes("early", 0, size)})
	for _, n := range []int{0, 1, 100_000, size - 1} {
		r, err := o.Get(t.Context(), object("k"), origin.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := readCheck(r.Body, "early", 0, n); err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read after Close: %d, %v", n, err)
		}
		_ = r.Body.Close() // twice must not panic
	}
	get(t, o, object("k"), origin.GetOptions{})
}

// readCheck reads n bytes and compares them.
func readCheck(r io.Reader, seed string, off int64, n int) error {
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return err
	}
	return Check(seed, off, p)
}

func suiteCancel(t *testing.T, o origin.Origin, b Backend) {
	const size = 64 << 20 // more than sockets buffer, or a reader gets through before anybody else runs
	b.Put(Bucket, "k", Object{Data: Bytes("cancel", 0, size)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := o.Get(ctx, object("k"), origin.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := readCheck(r.Body, "cancel", 0, 1000); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err = io.Copy(io.Discard, r.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("read after cancel: %v", err)
	}
	if _, err := o.Get(ctx, object("k"), origin.GetOptions{Length: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("Get after cancel: %v", err)
	}
	if _, err := o.Head(ctx, object("k"), origin.HeadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Head after cancel: %v", err)
	}
}

func suiteConcurrent(t *testing.T, o origin.Origin, b Backend) {
	const size, readers = 1 << 20, 16
	b.Put(Bucket, "k", Object{Data: Bytes("concurrent", 0, size)})
	var wg sync.WaitGroup
	for i := range int64(readers) {
		wg.Go(func() {
			for j := range int64(20) {
				off := (i*7919 + j*104_729) % size
				r, err := o.Get(t.Context(), object("k"), origin.GetOptions{Offset: off, Length: 10_000})
				if err != nil {
					t.Error(err)
					return
				}
				if err := readCheck(r.Body, "concurrent", off, int(r.Length)); err != nil {
					t.Error(err)
				}
				_ = r.Body.Close()
			}
		})
	}
	wg.Wait()
}
