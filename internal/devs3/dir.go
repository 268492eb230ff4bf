package devs3

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Layout of a directory:
//
//	buckets/NAME/bucket.json            creation time, versioning
//	buckets/NAME/HASH-SEQ.json          one version: its key, headers, the name of its data
//	data/RANDOM                         bytes of a version
//	tmp/RANDOM                          bytes on their way in
//
// Keys are in the JSON only, so no key can name a path. Data gets its name before its JSON is written, and the JSON is
// removed before the data: what a crash leaves is data without JSON, which openStore removes.

// bucketFile is the JSON of a bucket.
type bucketFile struct {
	Created    time.Time
	Versioning versioning
}

func openStore(dir string) (*store, error) {
	s := &store{dir: dir, buckets: map[string]*bucket{}, uploads: map[string]*upload{}}
	if dir == "" {
		return s, nil
	}
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		return nil, err
	}
	for _, d := range []string{"buckets", "data", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
			return nil, err
		}
	}
	used := map[string]bool{}
	entries, err := os.ReadDir(filepath.Join(dir, "buckets"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !validBucket(e.Name()) {
			continue
		}
		if err := s.loadBucket(e.Name(), used); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadDir(filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	for _, e := range data {
		if !used[e.Name()] {
			os.Remove(filepath.Join(dir, "data", e.Name()))
		}
	}
	return s, nil
}

func (s *store) loadBucket(name string, used map[string]bool) error {
	dir := filepath.Join(s.dir, "buckets", name)
	var info bucketFile
	if err := readJSON(filepath.Join(dir, "bucket.json"), &info); err != nil {
		return err
	}
	b := &bucket{name: name, created: info.Created, versioning: info.Versioning, objects: map[string][]*version{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "bucket.json" || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		v := &version{}
		if err := readJSON(filepath.Join(dir, e.Name()), v); err != nil {
			return err
		}
		switch {
		case v.Marker:
		case v.Generated:
			v.content = generatedContent{v.Size, v.Seed}
		default:
			if strings.ContainsAny(v.File, `/\`) {
				return fmt.Errorf("%s names a file outside of the directory", e.Name())
			}
			v.content = fileContent{filepath.Join(s.dir, "data", v.File), v.Size}
			used[v.File] = true
		}
		s.seq = max(s.seq, v.Seq)
		b.objects[string(v.Key)] = append(b.objects[string(v.Key)], v)
	}
	for _, versions := range b.objects {
		slices.SortFunc(versions, func(a, b *version) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	s.buckets[name] = b
	return nil
}

// versionPath is where the JSON of a version is.
func (s *store) versionPath(bucketName string, v *version) string {
	sum := sha256.Sum256(v.Key)
	return filepath.Join(s.dir, "buckets", bucketName, fmt.Sprintf("%x-%d.json", sum, v.Seq))
}

// writeVersion makes a version survive a restart. Over memory there is nothing to do.
func (s *store) writeVersion(bucketName string, v *version) error {
	if v.content != nil {
		v.Size = v.content.size()
	}
	switch c := v.content.(type) {
	case fileContent:
		v.File = filepath.Base(c.path)
	case generatedContent:
		v.Generated, v.Seed = true, c.seed
	}
	if s.dir == "" {
		return nil
	}
	return s.writeJSON(s.versionPath(bucketName, v), v)
}

// removeVersion forgets a version on disk.
func (s *store) removeVersion(bucketName string, v *version) {
	if s.dir == "" {
		return
	}
	os.Remove(s.versionPath(bucketName, v))
	if c, ok := v.content.(fileContent); ok {
		os.Remove(c.path)
	}
}

func (s *store) writeBucket(b *bucket) error {
	if s.dir == "" {
		return nil
	}
	dir := filepath.Join(s.dir, "buckets", b.name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return s.writeJSON(filepath.Join(dir, "bucket.json"), bucketFile{b.created, b.versioning})
}

func (s *store) removeBucket(name string) error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.dir, "buckets", name))
}

// writeJSON replaces a file in one step.
func (s *store) writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, "tmp", rand.Text())
	if err := os.WriteFile(tmp, b, 0o666); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// blob is bytes on their way into the store. Exactly one of commit and abort ends it; abort after commit does nothing.
type blob interface {
	io.Writer
	commit() (content, error)
	abort()
}

func (s *store) newBlob() (blob, error) {
	if s.dir == "" {
		return &memoryBlob{}, nil
	}
	name := hex.EncodeToString([]byte(rand.Text()))
	f, err := os.Create(filepath.Join(s.dir, "tmp", name))
	if err != nil {
		return nil, err
	}
	return &fileBlob{f: f, to: filepath.Join(s.dir, "data", name)}, nil
}

// keepBytes stores bytes that are in memory.
func (s *store) keepBytes(b []byte) (content, error) {
	w, err := s.newBlob()
	if err != nil {
		return nil, err
	}
	defer w.abort()
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	return w.commit()
}

type memoryBlob struct{ b bytes.Buffer }

func (m *memoryBlob) Write(p []byte) (int, error) { return m.b.Write(p) }
func (m *memoryBlob) commit() (content, error)    { return bytesContent(m.b.Bytes()), nil }
func (m *memoryBlob) abort()                      {}

type fileBlob struct {
	f    *os.File
	to   string
	n    int64
	done bool
}

func (b *fileBlob) Write(p []byte) (int, error) {
	n, err := b.f.Write(p)
	b.n += int64(n)
	return n, err
}

func (b *fileBlob) commit() (content, error) {
	if err := b.f.Close(); err != nil {
		return nil, err
	}
	if err := os.Rename(b.f.Name(), b.to); err != nil {
		return nil, err
	}
	b.done = true
	return fileContent{b.to, b.n}, nil
}

func (b *fileBlob) abort() {
	if b.done {
		return
	}
	b.f.Close()
	if err := os.Remove(b.f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.done = true
	}
}

// dropContent forgets bytes that no version took.
func (s *store) dropContent(c content) {
	if f, ok := c.(fileContent); ok {
		os.Remove(f.path)
	}
}
