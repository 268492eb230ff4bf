package devs3

import (
	"encoding/xml"
	"net/http"
	"strings"
)

func (c *call) listBuckets() error {
	var b strings.Builder
	b.WriteString(`<ListAllMyBucketsResult xmlns="` + namespace + `">` + ownerXML + "<Buckets>")
	for _, info := range c.s.store.bucketList() {
		b.WriteString("<Bucket>")
		element(&b, "Name", info.name)
		element(&b, "CreationDate", xmlTime(info.created))
		b.WriteString("</Bucket>")
	}
	b.WriteString("</Buckets></ListAllMyBucketsResult>")
	return c.writeXML(b.String())
}

func (c *call) createBucket() error {
	doc, err := c.readXML(false)
	if err != nil {
		return err
	}
	var request struct {
		XMLName            xml.Name `xml:"CreateBucketConfiguration"`
		LocationConstraint string
	}
	if len(doc) > 0 && xml.Unmarshal(doc, &request) != nil {
		return errMalformedXML()
	}
	if at := request.LocationConstraint; at != "" && at != c.s.cfg.Region {
		return newError(http.StatusBadRequest, "IllegalLocationConstraintException", "The "+at+" location constraint is "+
			"incompatible for the region specific endpoint this request was sent to.")
	}
	created, err := c.s.store.createBucket(c.bucket)
	if err != nil {
		return err
	}
	if !created && c.s.cfg.Region != "us-east-1" { // where it succeeds, for history's sake
		return newError(http.StatusConflict, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket "+
			"succeeded and you already own it.").with("BucketName", c.bucket)
	}
	c.w.Header().Set("Location", "/"+c.bucket)
	c.w.Header().Set("Content-Length", "0")
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) deleteBucket() error {
	if err := c.s.store.deleteBucket(c.bucket); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) headBucket() error {
	if _, err := c.s.store.bucket(c.bucket); err != nil {
		return err
	}
	c.w.Header().Set("x-amz-bucket-region", c.s.cfg.Region)
	c.w.Header().Set("Content-Type", "application/xml")
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) getBucketLocation() error {
	if _, err := c.s.store.bucket(c.bucket); err != nil {
		return err
	}
	region := c.s.cfg.Region
	if region == "us-east-1" { // which shows as nothing
		region = ""
	}
	return c.writeXML(`<LocationConstraint xmlns="` + namespace + `">` + region + "</LocationConstraint>")
}

func (c *call) getBucketVersioning() error {
	info, err := c.s.store.bucket(c.bucket)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`<VersioningConfiguration xmlns="` + namespace + `">`)
	optional(&b, "Status", string(info.versioning))
	b.WriteString("</VersioningConfiguration>")
	return c.writeXML(b.String())
}

func (c *call) putBucketVersioning() error {
	doc, err := c.readXML(false)
	if err != nil {
		return err
	}
	var request struct {
		XMLName xml.Name `xml:"VersioningConfiguration"`
		Status  versioning
	}
	if xml.Unmarshal(doc, &request) != nil ||
		request.Status != versioningEnabled && request.Status != versioningSuspended {
		return errMalformedXML()
	}
	if err := c.s.store.setVersioning(c.bucket, request.Status); err != nil {
		return err
	}
	c.w.Header().Set("Content-Length", "0")
	c.w.WriteHeader(http.StatusOK)
	return nil
}
