package devs3

import (
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// checkTags enforces S3's limits on tags.
func checkTags(tags map[string]string) error {
	if len(tags) > 10 {
		return newError(http.StatusBadRequest, "BadRequest", "Object tags cannot be greater than 10")
	}
	for name, value := range tags {
		if name == "" || len(name) > 128*4 || len(value) > 256*4 {
			return newError(http.StatusBadRequest, "InvalidTag", "The TagKey you have provided is invalid")
		}
	}
	return nil
}

func (c *call) getObjectTagging() error {
	v, state, err := c.current()
	if err != nil {
		return err
	}
	c.showVersion(v, state)
	var b strings.Builder
	b.WriteString(`<Tagging xmlns="` + namespace + `"><TagSet>`)
	for _, name := range slices.Sorted(maps.Keys(v.Tags)) {
		b.WriteString("<Tag>")
		element(&b, "Key", name)
		element(&b, "Value", v.Tags[name])
		b.WriteString("</Tag>")
	}
	b.WriteString("</TagSet></Tagging>")
	return c.writeXML(b.String())
}

func (c *call) showVersion(v *version, state versioning) {
	if state != versioningOff {
		c.w.Header().Set("x-amz-version-id", v.ID)
	}
}

func (c *call) putObjectTagging() error {
	doc, err := c.readXML(false)
	if err != nil {
		return err
	}
	var request struct {
		XMLName xml.Name `xml:"Tagging"`
		TagSet  struct {
			Tag []struct{ Key, Value string }
		}
	}
	if xml.Unmarshal(doc, &request) != nil {
		return errMalformedXML()
	}
	tags := map[string]string{}
	for _, t := range request.TagSet.Tag {
		if _, again := tags[t.Key]; again {
			return newError(http.StatusBadRequest, "InvalidTag", "Cannot provide multiple Tags with the same key")
		}
		tags[t.Key] = t.Value
	}
	if err := checkTags(tags); err != nil {
		return err
	}
	return c.replaceTags(tags, http.StatusOK)
}

func (c *call) deleteObjectTagging() error { return c.replaceTags(nil, http.StatusNoContent) }

func (c *call) replaceTags(tags map[string]string, status int) error {
	id, err := c.versionID()
	if err != nil {
		return err
	}
	v, err := c.s.store.setTags(c.bucket, c.key, id, tags)
	if err != nil {
		return err
	}
	if info, err := c.s.store.bucket(c.bucket); err == nil {
		c.showVersion(v, info.versioning)
	}
	if status != http.StatusNoContent {
		c.w.Header().Set("Content-Length", "0")
	}
	c.w.WriteHeader(status)
	return nil
}

// checksumElements writes checksums as elements. sumType "" leaves their type out.
func checksumElements(b *strings.Builder, sums map[string]string, sumType string) {
	for _, a := range algorithms() {
		if sum, ok := sums[a.name]; ok {
			element(b, "Checksum"+a.name, sum)
			optional(b, "ChecksumType", sumType)
		}
	}
}

// getObjectAttributes shows all parts at once.
func (c *call) getObjectAttributes() error {
	asked := strings.Join(c.r.Header.Values("X-Amz-Object-Attributes"), ",")
	if asked == "" {
		return errInvalidArgument("x-amz-object-attributes", "", "The x-amz-object-attributes header specifying the "+
			"attributes to be retrieved is either missing or empty")
	}
	v, state, err := c.current()
	if err != nil {
		return err
	}
	c.showVersion(v, state)
	c.w.Header().Set("Last-Modified", httpTime(v.Modified))
	var b strings.Builder
	b.WriteString(`<GetObjectAttributesResponse xmlns="` + namespace + `">`)
	for name := range strings.SplitSeq(asked, ",") {
		switch strings.TrimSpace(name) {
		case "ETag":
			element(&b, "ETag", strings.Trim(v.ETag, `"`))
		case "ObjectSize":
			element(&b, "ObjectSize", strconv.FormatInt(v.Size, 10))
		case "StorageClass":
			class := v.Header["X-Amz-Storage-Class"]
			if class == "" {
				class = "STANDARD"
			}
			element(&b, "StorageClass", class)
		case "Checksum":
			if len(v.Checksums) > 0 {
				b.WriteString("<Checksum>")
				checksumElements(&b, v.Checksums, v.SumType)
				b.WriteString("</Checksum>")
			}
		case "ObjectParts":
			c.partElements(&b, v)
		default:
			return errInvalidArgument("x-amz-object-attributes", asked, "Invalid attribute name specified.")
		}
	}
	b.WriteString("</GetObjectAttributesResponse>")
	return c.writeXML(b.String())
}

func (c *call) partElements(b *strings.Builder, v *version) {
	if len(v.Parts) == 0 {
		return
	}
	b.WriteString("<ObjectParts>")
	element(b, "IsTruncated", "false")
	element(b, "MaxParts", strconv.Itoa(maxParts))
	element(b, "PartNumberMarker", "0")
	element(b, "PartsCount", strconv.Itoa(len(v.Parts)))
	for _, p := range v.Parts {
		b.WriteString("<Part>")
		element(b, "PartNumber", strconv.Itoa(p.Number))
		element(b, "Size", strconv.FormatInt(p.Size, 10))
		checksumElements(b, p.Checksums, "")
		b.WriteString("</Part>")
	}
	b.WriteString("</ObjectParts>")
}
