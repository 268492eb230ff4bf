package devs3

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
)

// namespace is of all documents but errors.
const namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// maxList is how many entries one listing returns at most.
const maxList = 1000

func xmlTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// limit reads max-keys and its kin.
func (c *call) limit(name string) (int, error) {
	v, given := c.query.lookup(name)
	if !given || v == "" {
		return maxList, nil
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < 0 {
		return 0, errInvalidArgument(name, v, "Argument "+name+" must be an integer between 0 and 2147483647")
	}
	return int(min(n, maxList)), nil
}

// listing is the part of a listing that V1, V2 and versions have in common.
type listing struct {
	prefix, delimiter string
	limit             int
	entries           []entry
	truncated         bool
	last              string // key or common prefix of the last entry
}

// entry is a key, or a prefix that several keys have in common.
type entry struct {
	name   string
	prefix bool
	v      *version
}

func (c *call) newListing() (listing, error) {
	l := listing{prefix: c.query.get("prefix"), delimiter: c.query.get("delimiter")}
	if e, ok := c.query.lookup("encoding-type"); ok && e != "url" {
		return l, errInvalidArgument("encoding-type", e, "Invalid Encoding Method specified in Request")
	}
	var err error
	l.limit, err = c.limit("max-keys")
	return l, err
}

// fill collects the entries behind after, which is a key or a common prefix: what begins with a common prefix that was
// listed comes not again. versions lists every version of a key, otherwise it is the current one.
func (l *listing) fill(s *store, bucketName, after string, all bool) error {
	keys, versions, err := s.snapshot(bucketName)
	if err != nil {
		return err
	}
	start, _ := slices.BinarySearch(keys, max(l.prefix, after))
	for _, key := range keys[start:] {
		rest, ok := strings.CutPrefix(key, l.prefix)
		if !ok {
			break
		}
		if key <= after {
			continue
		}
		common := ""
		if i := strings.Index(rest, l.delimiter); l.delimiter != "" && i >= 0 {
			common = key[:len(l.prefix)+i+len(l.delimiter)]
		}
		if common != "" && common == after {
			continue
		}
		found := versions(key)
		if !all {
			v := latest(found)
			if v == nil {
				continue
			}
			found = []*version{v}
		}
		var add []entry
		if common != "" {
			if n := len(l.entries); n > 0 && l.entries[n-1].prefix && l.entries[n-1].name == common {
				continue
			}
			add = []entry{{name: common, prefix: true}}
		} else {
			for _, v := range slices.Backward(found) {
				add = append(add, entry{name: key, v: v})
			}
		}
		if len(l.entries) > 0 && len(l.entries)+len(add) > l.limit || l.limit == 0 {
			l.truncated = l.limit > 0
			break
		}
		l.entries = append(l.entries, add...)
		l.last = add[0].name
	}
	return nil
}

// listedKey is a key as the listing shows it.
func (c *call) listedKey(key string) string {
	if c.query.get("encoding-type") == "url" {
		return encodeKey(key)
	}
	return key
}

// encodeKey percent-encodes all but unreserved characters and slashes.
func encodeKey(key string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		switch ch := key[i]; {
		case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9', strings.IndexByte("-._~/", ch) >= 0:
			b.WriteByte(ch)
		default:
			b.WriteString("%" + string(digits[ch>>4]) + string(digits[ch&15]))
		}
	}
	return b.String()
}

func (c *call) listHead(b *strings.Builder, l listing) {
	element(b, "Name", c.bucket)
	element(b, "Prefix", c.listedKey(l.prefix))
	if l.delimiter != "" {
		element(b, "Delimiter", c.listedKey(l.delimiter))
	}
	element(b, "MaxKeys", strconv.Itoa(l.limit))
	optional(b, "EncodingType", c.query.get("encoding-type"))
	element(b, "IsTruncated", strconv.FormatBool(l.truncated))
}

func (c *call) listEntries(b *strings.Builder, l listing, owner bool) {
	for _, e := range l.entries {
		if e.prefix {
			continue
		}
		b.WriteString("<Contents>")
		element(b, "Key", c.listedKey(e.name))
		c.versionElements(b, e.v)
		if owner {
			b.WriteString(ownerXML)
		}
		b.WriteString("</Contents>")
	}
	for _, e := range l.entries {
		if e.prefix {
			b.WriteString("<CommonPrefixes>")
			element(b, "Prefix", c.listedKey(e.name))
			b.WriteString("</CommonPrefixes>")
		}
	}
}

const ownerXML = "<Owner><ID>" + ownerID + "</ID><DisplayName>devs3</DisplayName></Owner>"

func (c *call) versionElements(b *strings.Builder, v *version) {
	element(b, "LastModified", xmlTime(v.Modified))
	if v.Marker {
		return
	}
	element(b, "ETag", v.ETag)
	for _, a := range algorithms() {
		if _, ok := v.Checksums[a.name]; ok {
			element(b, "ChecksumAlgorithm", a.name)
			element(b, "ChecksumType", v.SumType)
		}
	}
	element(b, "Size", strconv.FormatInt(v.Size, 10))
	class := v.Header["X-Amz-Storage-Class"]
	if class == "" {
		class = "STANDARD"
	}
	element(b, "StorageClass", class)
}

func (c *call) listObjects() error {
	l, err := c.newListing()
	if err != nil {
		return err
	}
	marker := c.query.get("marker")
	if err := l.fill(c.s.store, c.bucket, marker, false); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`<ListBucketResult xmlns="` + namespace + `">`)
	c.listHead(&b, l)
	element(&b, "Marker", c.listedKey(marker))
	if l.truncated && l.delimiter != "" { // without a delimiter the last key is the marker
		element(&b, "NextMarker", c.listedKey(l.last))
	}
	c.listEntries(&b, l, true)
	b.WriteString("</ListBucketResult>")
	return c.writeXML(b.String())
}

func (c *call) listObjectsV2() error {
	l, err := c.newListing()
	if err != nil {
		return err
	}
	after := c.query.get("start-after")
	token, resumed := c.query.lookup("continuation-token")
	if resumed {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || token == "" {
			return errInvalidArgument("continuation-token", token, "The continuation token provided is incorrect")
		}
		after = string(raw)
	}
	if err := l.fill(c.s.store, c.bucket, after, false); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`<ListBucketResult xmlns="` + namespace + `">`)
	c.listHead(&b, l)
	element(&b, "KeyCount", strconv.Itoa(len(l.entries)))
	if resumed {
		element(&b, "ContinuationToken", token)
	}
	if l.truncated {
		element(&b, "NextContinuationToken", base64.RawURLEncoding.EncodeToString([]byte(l.last)))
	}
	optional(&b, "StartAfter", c.listedKey(c.query.get("start-after")))
	c.listEntries(&b, l, c.query.get("fetch-owner") == "true")
	b.WriteString("</ListBucketResult>")
	return c.writeXML(b.String())
}

// listObjectVersions never ends a page within a key, so that key-marker alone says where to go on; a key of more
// versions than a page has entries makes a longer page.
func (c *call) listObjectVersions() error {
	l, err := c.newListing()
	if err != nil {
		return err
	}
	marker := c.query.get("key-marker")
	if err := l.fill(c.s.store, c.bucket, marker, true); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`<ListVersionsResult xmlns="` + namespace + `">`)
	c.listHead(&b, l)
	element(&b, "KeyMarker", c.listedKey(marker))
	element(&b, "VersionIdMarker", "")
	if l.truncated {
		element(&b, "NextKeyMarker", c.listedKey(l.last))
	}
	previous := ""
	for i, e := range l.entries {
		if e.prefix {
			continue
		}
		name := "Version"
		if e.v.Marker {
			name = "DeleteMarker"
		}
		b.WriteString("<" + name + ">")
		element(&b, "Key", c.listedKey(e.name))
		element(&b, "VersionId", e.v.ID)
		element(&b, "IsLatest", strconv.FormatBool(i == 0 || e.name != previous))
		c.versionElements(&b, e.v)
		b.WriteString(ownerXML + "</" + name + ">")
		previous = e.name
	}
	for _, e := range l.entries {
		if e.prefix {
			b.WriteString("<CommonPrefixes>")
			element(&b, "Prefix", c.listedKey(e.name))
			b.WriteString("</CommonPrefixes>")
		}
	}
	b.WriteString("</ListVersionsResult>")
	return c.writeXML(b.String())
}
