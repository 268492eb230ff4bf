package s3api

// operation is one S3 operation: how a request for it is told, and what it takes and does.
type operation struct {
	name   string
	method string
	level  level
	sub    string // the parameter that selects it by being there; "" is the operation of the bare method
	with   string // of operations with one sub: a further parameter that tells this one
	copies bool   // of operations with one sub: has x-amz-copy-source
	params string // further parameters it takes, separated by spaces
	right  Right  // what the requester needs for it
	scope  scope  // at bucket level: which keys it is about
	drops  drops  // what it may change
	read   bool   // the contents or info of an object: blocks may answer it
	form   bool   // a browser's form upload, which is not implemented
}

// stores says whether the body of the request is what is stored.
func (o *operation) stores() bool { return o.name == "PutObject" || o.name == "UploadPart" }

// creates says whether an operation leaves another object than there was.
func (o *operation) creates() bool {
	return o.name == "PutObject" || o.name == "CopyObject" || o.name == "CompleteMultipartUpload"
}

// scope is which keys an operation at bucket level is about, for grants that are limited to a prefix.
type scope uint8

const (
	scopeAll     scope = iota // all of them, or none in particular
	scopeNone                 // none
	scopeListing              // those below its parameter "prefix"
	scopeBody                 // those that its body lists
)

// drops is what must be forgotten after an operation that may have taken effect.
type drops uint8

const (
	dropsNothing drops = iota
	dropsObject
	dropsListed // the keys in its body
)

const (
	overrideParams = "response-cache-control response-content-disposition response-content-encoding " +
		"response-content-language response-content-type response-expires"
	readParams = "versionId partNumber " + overrideParams
	listParams = "delimiter encoding-type max-keys prefix"
)

// The operations of the AWS S3 API reference (2006-03-01), with the right that each needs. Rights follow what an
// operation can reveal or change: contents and attributes of an object are read, its contents and tags are written,
// names are listed; buckets, their configuration, access control, retention and credentials are for admin. A request
// that no row describes is one of otherOperations.
var s3Operations = [...]operation{
	{name: "ListBuckets", method: "GET", level: atService, right: List,
		params: "bucket-region continuation-token max-buckets max-directory-buckets prefix"}, // ListDirectoryBuckets too

	{name: "HeadBucket", method: "HEAD", level: atBucket, right: List, scope: scopeNone},
	{name: "GetBucketLocation", method: "GET", level: atBucket, sub: "location", right: List, scope: scopeNone},
	{name: "ListObjects", method: "GET", level: atBucket, right: List, scope: scopeListing,
		params: listParams + " marker"},
	{name: "ListObjectsV2", method: "GET", level: atBucket, sub: "list-type", right: List, scope: scopeListing,
		params: listParams + " continuation-token fetch-owner start-after"},
	{name: "ListObjectVersions", method: "GET", level: atBucket, sub: "versions", right: List, scope: scopeListing,
		params: listParams + " key-marker version-id-marker"},
	{name: "ListMultipartUploads", method: "GET", level: atBucket, sub: "uploads", right: List, scope: scopeListing,
		params: "delimiter encoding-type prefix key-marker max-uploads upload-id-marker"},
	{name: "DeleteObjects", method: "POST", level: atBucket, sub: "delete", right: Delete, scope: scopeBody,
		drops: dropsListed},
	{name: "PostObject", method: "POST", level: atBucket, right: Write, form: true},
	{name: "PreflightBucket", method: "OPTIONS", level: atBucket, right: List, scope: scopeNone},

	{name: "GetObject", method: "GET", level: atObject, right: Read, read: true, params: readParams},
	{name: "HeadObject", method: "HEAD", level: atObject, right: Read, read: true, params: readParams},
	{name: "PreflightObject", method: "OPTIONS", level: atObject, right: Read, params: readParams},
	{name: "GetObjectAcl", method: "GET", level: atObject, sub: "acl", right: Read, params: "versionId"},
	{name: "GetObjectAttributes", method: "GET", level: atObject, sub: "attributes", right: Read, params: "versionId"},
	{name: "GetObjectLegalHold", method: "GET", level: atObject, sub: "legal-hold", right: Read, params: "versionId"},
	{name: "GetObjectRetention", method: "GET", level: atObject, sub: "retention", right: Read, params: "versionId"},
	{name: "GetObjectTagging", method: "GET", level: atObject, sub: "tagging", right: Read, params: "versionId"},
	{name: "GetObjectTorrent", method: "GET", level: atObject, sub: "torrent", right: Read},
	{name: "GetObjectAnnotation", method: "GET", level: atObject, sub: "annotation", with: "annotationName", right: Read,
		params: "versionId"},
	{name: "ListObjectAnnotations", method: "GET", level: atObject, sub: "annotation", right: Read,
		params: "annotation-prefix continuation-token max-annotation-results versionId"},
	{name: "ListParts", method: "GET", level: atObject, sub: "uploadId", right: Read,
		params: "max-parts part-number-marker"},
	{name: "SelectObjectContent", method: "POST", level: atObject, sub: "select", right: Read, params: "select-type"},

	{name: "PutObject", method: "PUT", level: atObject, right: Write, drops: dropsObject},
	{name: "CopyObject", method: "PUT", level: atObject, copies: true, right: Write, drops: dropsObject},
	{name: "CreateMultipartUpload", method: "POST", level: atObject, sub: "uploads", right: Write},
	{name: "UploadPart", method: "PUT", level: atObject, sub: "uploadId", right: Write, params: "partNumber"},
	{name: "UploadPartCopy", method: "PUT", level: atObject, sub: "uploadId", copies: true, right: Write,
		params: "partNumber"},
	{name: "CompleteMultipartUpload", method: "POST", level: atObject, sub: "uploadId", right: Write, drops: dropsObject},
	{name: "AbortMultipartUpload", method: "DELETE", level: atObject, sub: "uploadId", right: Write},
	{name: "RestoreObject", method: "POST", level: atObject, sub: "restore", right: Write, params: "versionId",
		drops: dropsObject},
	{name: "PutObjectTagging", method: "PUT", level: atObject, sub: "tagging", right: Write, params: "versionId",
		drops: dropsObject},
	{name: "DeleteObjectTagging", method: "DELETE", level: atObject, sub: "tagging", right: Write, params: "versionId",
		drops: dropsObject},
	{name: "PutObjectAnnotation", method: "PUT", level: atObject, sub: "annotation", right: Write,
		params: "annotationName versionId", drops: dropsObject},
	{name: "DeleteObjectAnnotation", method: "DELETE", level: atObject, sub: "annotation", right: Write,
		params: "annotationName versionId", drops: dropsObject},
	{name: "DeleteObject", method: "DELETE", level: atObject, right: Delete, params: "versionId", drops: dropsObject},

	{name: "PutObjectAcl", method: "PUT", level: atObject, sub: "acl", right: Admin, params: "versionId",
		drops: dropsObject},
	{name: "PutObjectLegalHold", method: "PUT", level: atObject, sub: "legal-hold", right: Admin, params: "versionId",
		drops: dropsObject},
	{name: "PutObjectRetention", method: "PUT", level: atObject, sub: "retention", right: Admin, params: "versionId",
		drops: dropsObject},
	{name: "UpdateObjectEncryption", method: "PUT", level: atObject, sub: "encryption", right: Admin, params: "versionId",
		drops: dropsObject},
	{name: "RenameObject", method: "PUT", level: atObject, sub: "renameObject", right: Admin, drops: dropsObject},

	{name: "CreateBucket", method: "PUT", level: atBucket, right: Admin},
	{name: "DeleteBucket", method: "DELETE", level: atBucket, right: Admin},
	{name: "CreateSession", method: "GET", level: atBucket, sub: "session", right: Admin},
}

// The configuration of buckets, all of it for admin: a sub-resource and the operations of its methods. Where there is a
// list, "id" tells get from it.
var bucketConfigurations = [...]struct{ sub, get, list, put, post, delete string }{
	{sub: "abac", get: "GetBucketAbac", put: "PutBucketAbac"},
	{sub: "accelerate", get: "GetBucketAccelerateConfiguration", put: "PutBucketAccelerateConfiguration"},
	{sub: "acl", get: "GetBucketAcl", put: "PutBucketAcl"},
	{sub: "analytics", get: "GetBucketAnalyticsConfiguration", list: "ListBucketAnalyticsConfigurations",
		put: "PutBucketAnalyticsConfiguration", delete: "DeleteBucketAnalyticsConfiguration"},
	{sub: "cors", get: "GetBucketCors", put: "PutBucketCors", delete: "DeleteBucketCors"},
	{sub: "encryption", get: "GetBucketEncryption", put: "PutBucketEncryption", delete: "DeleteBucketEncryption"},
	{sub: "intelligent-tiering", get: "GetBucketIntelligentTieringConfiguration",
		list: "ListBucketIntelligentTieringConfigurations", put: "PutBucketIntelligentTieringConfiguration",
		delete: "DeleteBucketIntelligentTieringConfiguration"},
	{sub: "inventory", get: "GetBucketInventoryConfiguration", list: "ListBucketInventoryConfigurations",
		put: "PutBucketInventoryConfiguration", delete: "DeleteBucketInventoryConfiguration"},
	{sub: "lifecycle", get: "GetBucketLifecycleConfiguration", put: "PutBucketLifecycleConfiguration",
		delete: "DeleteBucketLifecycle"},
	{sub: "logging", get: "GetBucketLogging", put: "PutBucketLogging"},
	{sub: "metadataAnnotationTable", put: "UpdateBucketMetadataAnnotationTableConfiguration"},
	{sub: "metadataConfiguration", get: "GetBucketMetadataConfiguration", post: "CreateBucketMetadataConfiguration",
		delete: "DeleteBucketMetadataConfiguration"},
	{sub: "metadataInventoryTable", put: "UpdateBucketMetadataInventoryTableConfiguration"},
	{sub: "metadataJournalTable", put: "UpdateBucketMetadataJournalTableConfiguration"},
	{sub: "metadataTable", get: "GetBucketMetadataTableConfiguration", post: "CreateBucketMetadataTableConfiguration",
		delete: "DeleteBucketMetadataTableConfiguration"},
	{sub: "metrics", get: "GetBucketMetricsConfiguration", list: "ListBucketMetricsConfigurations",
		put: "PutBucketMetricsConfiguration", delete: "DeleteBucketMetricsConfiguration"},
	{sub: "notification", get: "GetBucketNotificationConfiguration", put: "PutBucketNotificationConfiguration"},
	{sub: "object-lock", get: "GetObjectLockConfiguration", put: "PutObjectLockConfiguration"},
	{sub: "ownershipControls", get: "GetBucketOwnershipControls", put: "PutBucketOwnershipControls",
		delete: "DeleteBucketOwnershipControls"},
	{sub: "policy", get: "GetBucketPolicy", put: "PutBucketPolicy", delete: "DeleteBucketPolicy"},
	{sub: "policyStatus", get: "GetBucketPolicyStatus"},
	{sub: "publicAccessBlock", get: "GetPublicAccessBlock", put: "PutPublicAccessBlock",
		delete: "DeletePublicAccessBlock"},
	{sub: "replication", get: "GetBucketReplication", put: "PutBucketReplication", delete: "DeleteBucketReplication"},
	{sub: "requestPayment", get: "GetBucketRequestPayment", put: "PutBucketRequestPayment"},
	{sub: "tagging", get: "GetBucketTagging", put: "PutBucketTagging", delete: "DeleteBucketTagging"},
	{sub: "versioning", get: "GetBucketVersioning", put: "PutBucketVersioning"},
	{sub: "website", get: "GetBucketWebsite", put: "PutBucketWebsite", delete: "DeleteBucketWebsite"},
}

// otherOperations are what a request is that no row describes: an operation that S3 hasn't got, or has not yet, or one
// that names two sub-resources and that two servers would understand in two ways.
var otherOperations = [numLevels]operation{
	atService: {name: "Other", level: atService, right: Admin},
	atBucket:  {name: "Other", level: atBucket, right: Admin},
	atObject:  {name: "Other", level: atObject, right: Admin, drops: dropsObject},
}

// invalidOperation stands for requests that were refused before they could be told.
var invalidOperation = operation{name: "Invalid", right: Admin}
