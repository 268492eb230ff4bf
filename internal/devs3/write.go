package devs3

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// keptHeaders are the request headers that are kept with an object and come back with it, besides x-amz-meta-*.
var keptHeaders = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires",
	"X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id",
	"X-Amz-Server-Side-Encryption-Bucket-Key-Enabled", "X-Amz-Storage-Class", "X-Amz-Website-Redirect-Location",
}

// defaultContentType is what S3 gives an object that was put without one.
const defaultContentType = "binary/octet-stream"

// maxMetadata is how many bytes all names and values of x-amz-meta-* may have together.
const maxMetadata = 2 << 10

// kept picks the headers that an object keeps.
func kept(h http.Header) (map[string]string, error) {
	out := map[string]string{"Content-Type": defaultContentType}
	for _, name := range keptHeaders {
		if v := h.Values(name); len(v) > 0 && v[0] != "" {
			out[name] = v[0]
		}
	}
	if out["X-Amz-Storage-Class"] == "STANDARD" { // not shown
		delete(out, "X-Amz-Storage-Class")
	}
	size := 0
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		if meta, ok := strings.CutPrefix(name, "X-Amz-Meta-"); ok {
			out[name] = strings.Join(values, ",")
			size += len(meta) + len(out[name])
		}
	}
	if size > maxMetadata {
		return nil, newError(http.StatusBadRequest, "MetadataTooLarge",
			"Your metadata headers exceed the maximum allowed metadata size").
			with("Size", fmt.Sprint(size)).with("MaxSizeAllowed", fmt.Sprint(maxMetadata))
	}
	return out, nil
}

// keptOfRequest is kept for a request. The aws-chunked token of a framed body is no encoding of the object.
func (c *call) keptOfRequest() (map[string]string, error) {
	for name := range c.r.Header {
		if strings.HasPrefix(name, "X-Amz-Object-Lock-") {
			return nil, errInvalidRequest("Bucket is missing Object Lock Configuration")
		}
	}
	out, err := kept(c.r.Header)
	if err != nil || !c.payload.chunked() {
		return out, err
	}
	var rest []string
	for token := range strings.SplitSeq(strings.Join(c.r.Header.Values("Content-Encoding"), ","), ",") {
		if token = strings.TrimSpace(token); token != "" && !strings.EqualFold(token, "aws-chunked") {
			rest = append(rest, token)
		}
	}
	delete(out, "Content-Encoding")
	if len(rest) > 0 {
		out["Content-Encoding"] = strings.Join(rest, ",")
	}
	return out, nil
}

// tagsOfRequest reads x-amz-tagging, a query string.
func (c *call) tagsOfRequest() (map[string]string, error) {
	v := c.r.Header.Get("X-Amz-Tagging")
	if v == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(v)
	if err != nil {
		return nil, errInvalidArgument("x-amz-tagging", v, "The header 'x-amz-tagging' shall be encoded as UTF-8 then "+
			"URLEncoded URL query parameters without tag name duplicates.")
	}
	tags := map[string]string{}
	for name := range values {
		tags[name] = values.Get(name)
	}
	return tags, checkTags(tags)
}

// writeConditions reads If-Match and If-None-Match of a write.
func (c *call) writeConditions() (writeCondition, error) {
	w := writeCondition{ifMatch: c.r.Header.Get("If-Match")}
	switch c.r.Header.Get("If-None-Match") {
	case "":
	case "*":
		w.ifAbsent = true
	default:
		return w, errNotImplemented()
	}
	if w.ifAbsent && w.ifMatch != "" {
		return w, errNotImplemented()
	}
	return w, nil
}

func (c *call) putObject() error {
	state, err := c.s.store.bucket(c.bucket)
	if err != nil {
		return err
	}
	cond, err := c.writeConditions()
	if err != nil {
		return err
	}
	v := &version{Key: []byte(c.key)}
	if v.Header, err = c.keptOfRequest(); err != nil {
		return err
	}
	if v.Tags, err = c.tagsOfRequest(); err != nil {
		return err
	}
	data, in, err := c.receive(defaultChecksum)
	if err != nil {
		return err
	}
	v.content, v.ETag, v.Checksums, v.SumType = data, in.etag(), in.checksums(), fullObject
	if err := c.s.store.put(c.bucket, v, cond); err != nil {
		c.s.store.dropContent(data)
		return err
	}
	h := c.w.Header()
	h.Set("ETag", v.ETag)
	setChecksums(h, v.Checksums, v.SumType)
	c.versionHeaders(v, state.versioning)
	h.Set("Content-Length", "0")
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// versionHeaders sets what the answer to a write says of the version that it made.
func (c *call) versionHeaders(v *version, state versioning) {
	if state != versioningOff {
		c.w.Header().Set("x-amz-version-id", v.ID)
	}
	for name, value := range v.Header {
		if strings.HasPrefix(name, "X-Amz-Server-Side-Encryption") {
			c.w.Header().Set(name, value)
		}
	}
}

// copySource finds what x-amz-copy-source names, and checks the conditions on it.
func (c *call) copySource() (*version, error) {
	raw := c.r.Header.Get("X-Amz-Copy-Source")
	path, rawQuery, _ := strings.Cut(raw, "?")
	invalid := errInvalidArgument("x-amz-copy-source", raw, "Copy Source must mention the source bucket and key: "+
		"sourcebucket/sourcekey")
	decoded, err := decodePath(path, c.s.cfg.PlusIsSpace)
	if err != nil {
		return nil, invalid
	}
	bucketName, key, _ := strings.Cut(strings.TrimPrefix(decoded, "/"), "/")
	if !validBucket(bucketName) || key == "" {
		return nil, invalid
	}
	id := ""
	if rawQuery != "" {
		if id = parseQuery(rawQuery).get("versionId"); !versionIDForm.MatchString(id) {
			return nil, errInvalidArgument("versionId", id, "Invalid version id specified")
		}
	}
	v, state, err := c.s.store.lookup(bucketName, key, id)
	if err != nil {
		return nil, err
	}
	if v.Marker {
		if id != "" {
			return nil, errInvalidRequest("The source of a copy request may not specifically refer to a delete marker " +
				"by version id.")
		}
		return nil, errNoSuchKey(key)
	}
	conditions := http.Header{}
	for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if values := c.r.Header.Values("X-Amz-Copy-Source-" + name); len(values) > 0 {
			conditions[name] = values
		}
	}
	refused, notModified := readConditions(conditions, v.ETag, v.Modified, time.Now())
	if refused != "" || notModified {
		return nil, errPrecondition("x-amz-copy-source-" + refused)
	}
	if state != versioningOff {
		c.w.Header().Set("x-amz-copy-source-version-id", v.ID)
	}
	return v, nil
}

func (c *call) copyObject() error {
	state, err := c.s.store.bucket(c.bucket)
	if err != nil {
		return err
	}
	cond, err := c.writeConditions()
	if err != nil {
		return err
	}
	source, err := c.copySource()
	if err != nil {
		return err
	}
	v := &version{Key: []byte(c.key), Header: source.Header, Tags: source.Tags}
	directive := c.r.Header.Get("X-Amz-Metadata-Directive")
	switch directive {
	case "", "COPY":
	case "REPLACE":
		if v.Header, err = c.keptOfRequest(); err != nil {
			return err
		}
	default:
		return errInvalidArgument("x-amz-metadata-directive", directive, "Unknown metadata directive.")
	}
	if c.r.Header.Get("X-Amz-Tagging-Directive") == "REPLACE" {
		if v.Tags, err = c.tagsOfRequest(); err != nil {
			return err
		}
	}
	current, _, err := c.s.store.lookup(c.bucket, c.key, "")
	if err == nil && current == source && directive != "REPLACE" {
		return errInvalidRequest("This copy request is illegal because it is trying to copy an object to itself " +
			"without changing the object's metadata, storage class, website redirect location or encryption attributes.")
	}
	if source.Size > maxObject {
		return errInvalidRequest("The specified copy source is larger than the maximum allowable size for a copy " +
			"source: " + fmt.Sprint(int64(maxObject)))
	}
	if err := c.copyContent(v, source); err != nil {
		return err
	}
	if err := c.s.store.put(c.bucket, v, cond); err != nil {
		c.s.store.dropContent(v.content)
		return err
	}
	c.versionHeaders(v, state.versioning)
	var b strings.Builder
	b.WriteString(`<CopyObjectResult xmlns="` + namespace + `">`)
	element(&b, "LastModified", xmlTime(v.Modified))
	element(&b, "ETag", v.ETag)
	checksumElements(&b, v.Checksums, v.SumType)
	b.WriteString("</CopyObjectResult>")
	return c.writeXML(b.String())
}

// copyContent gives v the bytes of source. A copy is one object, not a multipart one: its ETag and checksums are made
// anew from its bytes. Generated bytes are not read for it.
func (c *call) copyContent(v, source *version) error {
	if g, ok := source.content.(generatedContent); ok {
		v.content, v.ETag = g, source.ETag
		return nil
	}
	data, err := c.copyBytes(source, 0, source.Size, defaultChecksum)
	if err != nil {
		return err
	}
	v.content, v.ETag, v.Checksums, v.SumType = data.content, data.etag, data.sums, fullObject
	return nil
}

// copied is bytes taken from another object.
type copied struct {
	content content
	etag    string
	sums    map[string]string
}

func (c *call) copyBytes(source *version, offset, length int64, algorithmName string) (copied, error) {
	in, done, err := source.content.open()
	if gone(err) {
		return copied{}, errNoSuchKey(string(source.Key))
	}
	if err != nil {
		return copied{}, err
	}
	defer done()
	out, err := c.s.store.newBlob()
	if err != nil {
		return copied{}, err
	}
	defer out.abort()
	sum := md5.New()
	writers := []io.Writer{out, sum}
	var check hash.Hash
	if a, ok := findAlgorithm(algorithmName); ok {
		check = a.new()
		writers = append(writers, check)
	}
	if _, err := io.Copy(io.MultiWriter(writers...), io.NewSectionReader(in, offset, length)); err != nil {
		return copied{}, err
	}
	r := copied{etag: `"` + hex.EncodeToString(sum.Sum(nil)) + `"`}
	if check != nil {
		r.sums = map[string]string{algorithmName: base64Sum(check)}
	}
	r.content, err = out.commit()
	return r, err
}

func (c *call) deleteObject() error {
	id, err := c.versionID()
	if err != nil {
		return err
	}
	cond := writeCondition{ifMatch: c.r.Header.Get("If-Match")}
	r, err := c.s.store.remove(c.bucket, c.key, id, cond)
	if err != nil {
		return err
	}
	if r.id != "" {
		c.w.Header().Set("x-amz-version-id", r.id)
	}
	if r.marker {
		c.w.Header().Set("x-amz-delete-marker", "true")
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxDelete is how many keys one DeleteObjects may name.
const maxDelete = 1000

func (c *call) deleteObjects() error {
	if _, err := c.s.store.bucket(c.bucket); err != nil {
		return err
	}
	doc, err := c.readXML(true)
	if err != nil {
		return err
	}
	var request struct {
		XMLName xml.Name `xml:"Delete"`
		Quiet   bool
		Object  []struct {
			Key       string
			VersionId string
			ETag      string
		}
	}
	if xml.Unmarshal(doc, &request) != nil || len(request.Object) == 0 || len(request.Object) > maxDelete {
		return errMalformedXML()
	}
	var b strings.Builder
	b.WriteString(`<DeleteResult xmlns="` + namespace + `">`)
	for _, o := range request.Object {
		r, err := removed{}, error(nil)
		if o.VersionId != "" && !versionIDForm.MatchString(o.VersionId) {
			err = errNoSuchVersion(o.Key, o.VersionId)
		} else {
			r, err = c.s.store.remove(c.bucket, o.Key, o.VersionId, writeCondition{ifMatch: o.ETag})
		}
		if err != nil {
			e := asError(err)
			b.WriteString("<Error>")
			element(&b, "Key", o.Key)
			optional(&b, "VersionId", o.VersionId)
			element(&b, "Code", e.Code)
			element(&b, "Message", e.Message)
			b.WriteString("</Error>")
			continue
		}
		if request.Quiet {
			continue
		}
		b.WriteString("<Deleted>")
		element(&b, "Key", o.Key)
		optional(&b, "VersionId", o.VersionId)
		if r.marker {
			element(&b, "DeleteMarker", "true")
			element(&b, "DeleteMarkerVersionId", r.id)
		}
		b.WriteString("</Deleted>")
	}
	b.WriteString("</DeleteResult>")
	return c.writeXML(b.String())
}

// optional writes an element that is left out when it is empty.
func optional(b *strings.Builder, name, text string) {
	if text != "" {
		element(b, name, text)
	}
}
