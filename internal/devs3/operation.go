package devs3

import "net/http"

const (
	opGetObject  = "GetObject"
	opHeadObject = "HeadObject"
)

// operations is what the server can do, by the names of S3's API. What a request asks for and is not here is answered
// 501.
var operations = map[string]func(*call) error{
	"ListBuckets":             (*call).listBuckets,
	"CreateBucket":            (*call).createBucket,
	"DeleteBucket":            (*call).deleteBucket,
	"HeadBucket":              (*call).headBucket,
	"GetBucketLocation":       (*call).getBucketLocation,
	"GetBucketVersioning":     (*call).getBucketVersioning,
	"PutBucketVersioning":     (*call).putBucketVersioning,
	"ListObjects":             (*call).listObjects,
	"ListObjectsV2":           (*call).listObjectsV2,
	"ListObjectVersions":      (*call).listObjectVersions,
	opGetObject:               (*call).getObject,
	opHeadObject:              (*call).getObject,
	"GetObjectAttributes":     (*call).getObjectAttributes,
	"GetObjectTagging":        (*call).getObjectTagging,
	"PutObjectTagging":        (*call).putObjectTagging,
	"DeleteObjectTagging":     (*call).deleteObjectTagging,
	"PutObject":               (*call).putObject,
	"CopyObject":              (*call).copyObject,
	"DeleteObject":            (*call).deleteObject,
	"DeleteObjects":           (*call).deleteObjects,
	"CreateMultipartUpload":   (*call).createMultipartUpload,
	"UploadPart":              (*call).uploadPart,
	"UploadPartCopy":          (*call).uploadPartCopy,
	"ListParts":               (*call).listParts,
	"ListMultipartUploads":    (*call).listMultipartUploads,
	"CompleteMultipartUpload": (*call).completeMultipartUpload,
	"AbortMultipartUpload":    (*call).abortMultipartUpload,
}

// subresources are the query names that make a request another operation, without those that operation() knows.
// versionId, partNumber and response-* are parameters, not among them.
var subresources = []string{
	"accelerate", "acl", "analytics", "append", "cors", "encryption", "intelligent-tiering", "inventory", "legal-hold",
	"lifecycle", "logging", "metadataConfiguration", "metadataInventoryTable", "metadataJournalTable", "metadataTable",
	"metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus", "publicAccessBlock",
	"renameObject", "replication", "requestPayment", "restore", "retention", "select", "select-type", "session",
	"torrent", "website",
}

// operation names what a request asks for, "" when S3 has no name for it or this server does not know it.
func (c *call) operation() string {
	for _, name := range subresources {
		if c.query.has(name) {
			return ""
		}
	}
	switch {
	case c.bucket == "":
		if c.r.Method == http.MethodGet {
			return "ListBuckets"
		}
		return ""
	case c.key == "":
		return c.bucketOperation()
	}
	return c.objectOperation()
}

func (c *call) bucketOperation() string {
	q := c.query
	sub := q.has("location") || q.has("versioning") || q.has("versions") || q.has("uploads") || q.has("delete") ||
		q.has("tagging") || q.has("attributes")
	switch c.r.Method {
	case http.MethodGet:
		switch {
		case q.has("location"):
			return "GetBucketLocation"
		case q.has("versioning"):
			return "GetBucketVersioning"
		case q.has("versions"):
			return "ListObjectVersions"
		case q.has("uploads"):
			return "ListMultipartUploads"
		case sub:
			return ""
		case q.get("list-type") == "2":
			return "ListObjectsV2"
		}
		return "ListObjects"
	case http.MethodHead:
		if !sub {
			return "HeadBucket"
		}
	case http.MethodPut:
		if q.has("versioning") {
			return "PutBucketVersioning"
		}
		if !sub {
			return "CreateBucket"
		}
	case http.MethodDelete:
		if !sub {
			return "DeleteBucket"
		}
	case http.MethodPost:
		if q.has("delete") {
			return "DeleteObjects"
		}
	}
	return ""
}

func (c *call) objectOperation() string {
	q := c.query
	switch c.r.Method {
	case http.MethodGet:
		switch {
		case q.has("uploadId"):
			return "ListParts"
		case q.has("tagging"):
			return "GetObjectTagging"
		case q.has("attributes"):
			return "GetObjectAttributes"
		case q.has("uploads"):
			return ""
		}
		return opGetObject
	case http.MethodHead:
		if !q.has("uploadId") && !q.has("tagging") && !q.has("attributes") {
			return opHeadObject
		}
	case http.MethodPut:
		copied := c.r.Header.Get("X-Amz-Copy-Source") != ""
		switch {
		case q.has("uploadId") && copied:
			return "UploadPartCopy"
		case q.has("uploadId"):
			return "UploadPart"
		case q.has("tagging"):
			return "PutObjectTagging"
		case copied:
			return "CopyObject"
		}
		return "PutObject"
	case http.MethodDelete:
		switch {
		case q.has("uploadId"):
			return "AbortMultipartUpload"
		case q.has("tagging"):
			return "DeleteObjectTagging"
		}
		return "DeleteObject"
	case http.MethodPost:
		switch {
		case q.has("uploads"):
			return "CreateMultipartUpload"
		case q.has("uploadId"):
			return "CompleteMultipartUpload"
		}
	}
	return ""
}
