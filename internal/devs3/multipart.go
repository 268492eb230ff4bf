package devs3

import (
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxParts    = 10000
	minPartSize = 5 << 20 // of every part but the last
)

// upload is a multipart upload in progress. It lives in memory; its parts are content like any other.
type upload struct {
	id, bucket, key string
	header          map[string]string
	tags            map[string]string
	algorithm       string // of checksums, "" for none
	sumType         string
	initiated       time.Time

	mu    sync.Mutex
	parts map[int]uploadedPart // guarded by mu
	ended bool                 // guarded by mu; completed or aborted
}

type uploadedPart struct {
	number   int
	etag     string
	content  content
	sums     map[string]string
	modified time.Time
}

func (c *call) createMultipartUpload() error {
	if _, err := c.s.store.bucket(c.bucket); err != nil {
		return err
	}
	u := &upload{id: newVersionID(), bucket: c.bucket, key: c.key, initiated: time.Now(), parts: map[int]uploadedPart{}}
	var err error
	if u.header, err = c.keptOfRequest(); err != nil {
		return err
	}
	if u.tags, err = c.tagsOfRequest(); err != nil {
		return err
	}
	if err := u.chooseChecksum(c.r.Header); err != nil {
		return err
	}
	c.s.store.mu.Lock()
	c.s.store.uploads[u.id] = u
	c.s.store.mu.Unlock()
	if u.algorithm != "" {
		c.w.Header().Set("x-amz-checksum-algorithm", u.algorithm)
		c.w.Header().Set("x-amz-checksum-type", u.sumType)
	}
	var b strings.Builder
	b.WriteString(`<InitiateMultipartUploadResult xmlns="` + namespace + `">`)
	element(&b, "Bucket", c.bucket)
	element(&b, "Key", c.key)
	element(&b, "UploadId", u.id)
	b.WriteString("</InitiateMultipartUploadResult>")
	return c.writeXML(b.String())
}

// chooseChecksum reads algorithm and type; S3 user guide, "Full object and composite checksum types".
func (u *upload) chooseChecksum(h http.Header) error {
	name := h.Get("X-Amz-Checksum-Algorithm")
	u.sumType = h.Get("X-Amz-Checksum-Type")
	if name == "" {
		if u.sumType != "" {
			return errInvalidRequest("The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm " +
				"header.")
		}
		return nil
	}
	a, ok := findAlgorithm(name)
	if !ok {
		return errInvalidRequest("Checksum algorithm provided is unsupported. Please try again with any of the valid " +
			"types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]")
	}
	u.algorithm = a.name
	nvme := a.name == defaultChecksum
	switch {
	case u.sumType == "" && nvme:
		u.sumType = fullObject
	case u.sumType == "":
		u.sumType = composite
	case u.sumType != fullObject && u.sumType != composite:
		return errInvalidRequest("Value for x-amz-checksum-type header is invalid.")
	case u.sumType == composite && nvme, u.sumType == fullObject && strings.HasPrefix(a.name, "SHA"):
		return errInvalidRequest("The " + u.sumType + " checksum type cannot be used with the " + a.name +
			" checksum algorithm.")
	}
	return nil
}

// upload finds the upload that the request is about.
func (c *call) upload() (*upload, error) {
	if _, err := c.s.store.bucket(c.bucket); err != nil {
		return nil, err
	}
	id := c.query.get("uploadId")
	c.s.store.mu.RLock()
	defer c.s.store.mu.RUnlock()
	u := c.s.store.uploads[id]
	if u == nil || u.bucket != c.bucket || u.key != c.key {
		return nil, errNoSuchUpload(id)
	}
	return u, nil
}

func (c *call) partNumber() (int, error) {
	v := c.query.get("partNumber")
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxParts {
		return 0, errInvalidArgument("partNumber", v, "Part number must be an integer between 1 and 10000, inclusive")
	}
	return n, nil
}

// add takes a part, replacing one of the same number.
func (u *upload) add(s *store, p uploadedPart) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		s.dropContent(p.content)
		return errNoSuchUpload(u.id)
	}
	if old, ok := u.parts[p.number]; ok {
		s.dropContent(old.content)
	}
	u.parts[p.number] = p
	return nil
}

func (c *call) uploadPart() error {
	u, err := c.upload()
	if err != nil {
		return err
	}
	n, err := c.partNumber()
	if err != nil {
		return err
	}
	data, in, err := c.receive(u.algorithm)
	if err != nil {
		return err
	}
	if in.algorithm != "" && u.algorithm != "" && in.algorithm != u.algorithm {
		c.s.store.dropContent(data)
		return errInvalidRequest("Checksum Type mismatch occurred, expected checksum Type: " +
			strings.ToLower(u.algorithm) + ", actual checksum Type: " + strings.ToLower(in.algorithm))
	}
	p := uploadedPart{n, in.etag(), data, in.checksums(), time.Now()}
	if err := u.add(c.s.store, p); err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("ETag", p.etag)
	setChecksums(h, p.sums, "")
	h.Del("x-amz-checksum-type")
	h.Set("Content-Length", "0")
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) uploadPartCopy() error {
	u, err := c.upload()
	if err != nil {
		return err
	}
	n, err := c.partNumber()
	if err != nil {
		return err
	}
	source, err := c.copySource()
	if err != nil {
		return err
	}
	offset, length := int64(0), source.Size
	if v := c.r.Header.Get("X-Amz-Copy-Source-Range"); v != "" {
		r, ok := parseRange(v)
		if !ok || r.suffix >= 0 || r.last >= source.Size {
			return errInvalidArgument("x-amz-copy-source-range", v, "The x-amz-copy-source-range value must be of the form "+
				"bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy")
		}
		offset, length = r.first, r.last-r.first+1
	}
	if length > maxObject {
		return errInvalidRequest("The specified copy source is larger than the maximum allowable size for a copy " +
			"source: " + fmt.Sprint(int64(maxObject)))
	}
	data, err := c.copyBytes(source, offset, length, u.algorithm)
	if err != nil {
		return err
	}
	p := uploadedPart{n, data.etag, data.content, data.sums, time.Now()}
	if err := u.add(c.s.store, p); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`<CopyPartResult xmlns="` + namespace + `">`)
	element(&b, "LastModified", xmlTime(p.modified))
	element(&b, "ETag", p.etag)
	checksumElements(&b, p.sums, "")
	b.WriteString("</CopyPartResult>")
	return c.writeXML(b.String())
}

// listed is what CompleteMultipartUpload says of a part.
type listed struct {
	PartNumber                                                                     int
	ETag                                                                           string
	ChecksumCRC32, ChecksumCRC32C, ChecksumCRC64NVME, ChecksumSHA1, ChecksumSHA256 string
}

func (l listed) sums() map[string]string {
	return map[string]string{"CRC32": l.ChecksumCRC32, "CRC32C": l.ChecksumCRC32C, "CRC64NVME": l.ChecksumCRC64NVME,
		"SHA1": l.ChecksumSHA1, "SHA256": l.ChecksumSHA256}
}

func (c *call) completeMultipartUpload() error {
	state, err := c.s.store.bucket(c.bucket)
	if err != nil {
		return err
	}
	u, err := c.upload()
	if err != nil {
		return err
	}
	cond, err := c.writeConditions()
	if err != nil {
		return err
	}
	given := c.objectChecksum()
	doc, err := c.readCompletion()
	if err != nil {
		return err
	}
	var request struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []listed
	}
	if xml.Unmarshal(doc, &request) != nil || len(request.Part) == 0 {
		return errMalformedXML()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return errNoSuchUpload(u.id)
	}
	parts, err := u.choose(request.Part)
	if err != nil {
		return err
	}
	v, err := c.assemble(u, parts)
	if err != nil {
		return err
	}
	for name, sum := range given {
		if v.Checksums[name] != sum && !(v.SumType == composite && strings.HasPrefix(v.Checksums[name], sum+"-")) {
			c.s.store.dropContent(v.content)
			return newError(http.StatusBadRequest, "BadDigest",
				"The "+name+" you specified did not match the calculated checksum.")
		}
	}
	if err := c.s.store.put(c.bucket, v, cond); err != nil {
		c.s.store.dropContent(v.content)
		return err
	}
	u.end(c.s.store)
	c.versionHeaders(v, state.versioning)
	var b strings.Builder
	b.WriteString(`<CompleteMultipartUploadResult xmlns="` + namespace + `">`)
	element(&b, "Location", "http://"+c.r.Host+"/"+c.bucket+"/"+c.key)
	element(&b, "Bucket", c.bucket)
	element(&b, "Key", c.key)
	element(&b, "ETag", v.ETag)
	checksumElements(&b, v.Checksums, v.SumType)
	b.WriteString("</CompleteMultipartUploadResult>")
	return c.writeXML(b.String())
}

// objectChecksum takes the checksum headers of a CompleteMultipartUpload off the request: they are the object's, not
// the XML's.
func (c *call) objectChecksum() map[string]string {
	out := map[string]string{}
	for _, a := range algorithms() {
		if v := c.r.Header.Get(a.header()); v != "" {
			out[a.name] = v
		}
	}
	return out
}

func (c *call) readCompletion() ([]byte, error) {
	h := c.r.Header
	c.r.Header = h.Clone()
	for _, a := range algorithms() {
		c.r.Header.Del(a.header())
	}
	defer func() { c.r.Header = h }()
	return c.readXML(false)
}

// choose is called with mu held: it checks the list of parts against those uploaded.
func (u *upload) choose(list []listed) ([]uploadedPart, error) {
	var parts []uploadedPart
	for i := 1; i < len(list); i++ {
		if list[i].PartNumber <= list[i-1].PartNumber {
			return nil, newError(http.StatusBadRequest, "InvalidPartOrder",
				"The list of parts was not in ascending order. Parts must be ordered by part number.")
		}
	}
	for i, l := range list {
		p, ok := u.parts[l.PartNumber]
		same := ok && strings.Trim(l.ETag, `"`) == strings.Trim(p.etag, `"`)
		for name, sum := range l.sums() {
			same = same && (sum == "" || sum == p.sums[name])
		}
		if !same {
			return nil, newError(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be "+
				"found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag.").
				with("UploadId", u.id).with("PartNumber", strconv.Itoa(l.PartNumber)).with("ETag", strings.Trim(l.ETag, `"`))
		}
		if i < len(list)-1 && p.content.size() < minPartSize {
			return nil, newError(http.StatusBadRequest, "EntityTooSmall",
				"Your proposed upload is smaller than the minimum allowed size").
				with("ProposedSize", fmt.Sprint(p.content.size())).with("MinSizeAllowed", fmt.Sprint(minPartSize)).
				with("PartNumber", strconv.Itoa(l.PartNumber)).with("ETag", strings.Trim(p.etag, `"`))
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// assemble makes one object of the parts.
func (c *call) assemble(u *upload, parts []uploadedPart) (*version, error) {
	v := &version{Key: []byte(u.key), Header: u.header, Tags: u.tags}
	out, err := c.s.store.newBlob()
	if err != nil {
		return nil, err
	}
	defer out.abort()
	name := cmp.Or(u.algorithm, defaultChecksum) // S3 computes one where none was asked for
	a, _ := findAlgorithm(name)
	whole := a.new()
	var digests []byte
	for _, p := range parts {
		in, done, err := p.content.open()
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.MultiWriter(out, whole), io.NewSectionReader(in, 0, p.content.size()))
		done()
		if err != nil {
			return nil, err
		}
		raw, err := hex.DecodeString(strings.Trim(p.etag, `"`))
		if err != nil {
			return nil, err
		}
		digests = append(digests, raw...)
		v.Parts = append(v.Parts, part{p.number, p.content.size(), p.sums})
	}
	v.ETag = multipartETag(digests, len(parts))
	v.SumType = cmp.Or(u.sumType, fullObject)
	v.Checksums = map[string]string{name: base64Sum(whole)}
	if v.SumType == composite {
		v.Checksums[name] = compositeSum(a, parts)
	}
	v.content, err = out.commit()
	return v, err
}

func multipartETag(digests []byte, parts int) string {
	return fmt.Sprintf(`"%x-%d"`, md5.Sum(digests), parts)
}

// compositeSum is the checksum of the parts' raw checksums, with their number.
func compositeSum(a algorithm, parts []uploadedPart) string {
	var h hash.Hash = a.new()
	for _, p := range parts {
		raw, _ := base64.StdEncoding.DecodeString(p.sums[a.name])
		h.Write(raw)
	}
	return fmt.Sprintf("%s-%d", base64Sum(h), len(parts))
}

// end is called with mu held: it forgets the upload and its parts.
func (u *upload) end(s *store) {
	u.ended = true
	for _, p := range u.parts {
		s.dropContent(p.content)
	}
	u.parts = nil
	s.mu.Lock()
	delete(s.uploads, u.id)
	s.mu.Unlock()
}

func (c *call) abortMultipartUpload() error {
	u, err := c.upload()
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.end(c.s.store)
	u.mu.Unlock()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) listParts() error {
	u, err := c.upload()
	if err != nil {
		return err
	}
	limit, err := c.limit("max-parts")
	if err != nil {
		return err
	}
	marker, _ := strconv.Atoi(c.query.get("part-number-marker"))
	u.mu.Lock()
	numbers := slices.Sorted(maps.Keys(u.parts))
	parts := maps.Clone(u.parts)
	u.mu.Unlock()
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return n <= marker })
	truncated := len(numbers) > limit
	numbers = numbers[:min(limit, len(numbers))]
	var b strings.Builder
	b.WriteString(`<ListPartsResult xmlns="` + namespace + `">`)
	element(&b, "Bucket", c.bucket)
	element(&b, "Key", c.key)
	element(&b, "UploadId", u.id)
	element(&b, "PartNumberMarker", strconv.Itoa(marker))
	if len(numbers) > 0 {
		marker = numbers[len(numbers)-1]
	}
	element(&b, "NextPartNumberMarker", strconv.Itoa(marker))
	element(&b, "MaxParts", strconv.Itoa(limit))
	element(&b, "IsTruncated", strconv.FormatBool(truncated))
	optional(&b, "ChecksumAlgorithm", u.algorithm)
	optional(&b, "ChecksumType", u.sumType)
	for _, n := range numbers {
		p := parts[n]
		b.WriteString("<Part>")
		element(&b, "PartNumber", strconv.Itoa(n))
		element(&b, "LastModified", xmlTime(p.modified))
		element(&b, "ETag", p.etag)
		element(&b, "Size", strconv.FormatInt(p.content.size(), 10))
		checksumElements(&b, p.sums, "")
		b.WriteString("</Part>")
	}
	element(&b, "StorageClass", "STANDARD")
	b.WriteString("</ListPartsResult>")
	return c.writeXML(b.String())
}

// listMultipartUploads shows all uploads at once.
func (c *call) listMultipartUploads() error {
	if _, err := c.s.store.bucket(c.bucket); err != nil {
		return err
	}
	prefix := c.query.get("prefix")
	c.s.store.mu.RLock()
	var list []*upload
	for _, u := range c.s.store.uploads {
		if u.bucket == c.bucket && strings.HasPrefix(u.key, prefix) {
			list = append(list, u)
		}
	}
	c.s.store.mu.RUnlock()
	slices.SortFunc(list, func(a, b *upload) int {
		return cmp.Or(strings.Compare(a.key, b.key), a.initiated.Compare(b.initiated), strings.Compare(a.id, b.id))
	})
	var b strings.Builder
	b.WriteString(`<ListMultipartUploadsResult xmlns="` + namespace + `">`)
	element(&b, "Bucket", c.bucket)
	element(&b, "Prefix", prefix)
	element(&b, "MaxUploads", strconv.Itoa(max(1000, len(list))))
	element(&b, "IsTruncated", "false")
	for _, u := range list {
		b.WriteString("<Upload>")
		element(&b, "Key", c.listedKey(u.key))
		element(&b, "UploadId", u.id)
		element(&b, "StorageClass", "STANDARD")
		element(&b, "Initiated", xmlTime(u.initiated))
		b.WriteString("</Upload>")
	}
	b.WriteString("</ListMultipartUploadsResult>")
	return c.writeXML(b.String())
}
