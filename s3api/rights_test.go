package s3api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-s3/ashlar/origin"
)

// apiReference is every operation of the AWS S3 API reference with a request for it and the right it needs, in words of
// its own: this is the table to hold operations.go against. WriteGetObjectResponse has a host of its own and can't be
// addressed here.
const apiReference = `
ListBuckets                                 list    GET /
ListBuckets                                 list    GET /?x-id=ListBuckets&max-buckets=5&continuation-token=x&prefix=p&bucket-region=r
ListBuckets                                 list    GET /?max-directory-buckets=3
HeadBucket                                  list    HEAD /bucket
GetBucketLocation                           list    GET /bucket?location
ListObjects                                 list    GET /bucket
ListObjects                                 list    GET /bucket/?prefix=a&delimiter=/&marker=m&max-keys=7&encoding-type=url
ListObjectsV2                               list    GET /bucket?list-type=2
ListObjectsV2                               list    GET /bucket?list-type=2&prefix=a&delimiter=/&start-after=m&max-keys=7&fetch-owner=true&continuation-token=x&encoding-type=url
ListObjectVersions                          list    GET /bucket?versions&prefix=a&key-marker=k&version-id-marker=v&delimiter=/&max-keys=1&encoding-type=url
ListMultipartUploads                        list    GET /bucket?uploads&prefix=a&key-marker=k&upload-id-marker=u&delimiter=/&max-uploads=1&encoding-type=url
PreflightBucket                             list    OPTIONS /bucket
GetObject                                   read    GET /bucket/k
GetObject                                   read    GET /bucket/k?x-id=GetObject&versionId=v&partNumber=1&response-content-type=t&response-expires=e&response-cache-control=c&response-content-language=l&response-content-encoding=e&response-content-disposition=d
GetObject                                   read    GET /bucket/k?X-Amz-Algorithm=a&X-Amz-Credential=c&X-Amz-Date=d&X-Amz-Expires=1&X-Amz-SignedHeaders=h&X-Amz-Security-Token=t&x-amz-checksum-mode=ENABLED&X-Amz-Signature=s
HeadObject                                  read    HEAD /bucket/k
HeadObject                                  read    HEAD /bucket/k?versionId=v&partNumber=1
GetObjectAcl                                read    GET /bucket/k?acl&versionId=v
GetObjectAnnotation                         read    GET /bucket/k?annotation&x-id=GetObjectAnnotation&annotationName=n&versionId=v
ListObjectAnnotations                       read    GET /bucket/k?annotation&x-id=ListObjectAnnotations&annotation-prefix=p&continuation-token=x&max-annotation-results=1
GetObjectAttributes                         read    GET /bucket/k?attributes&versionId=v
GetObjectLegalHold                          read    GET /bucket/k?legal-hold
GetObjectRetention                          read    GET /bucket/k?retention
GetObjectTagging                            read    GET /bucket/k?tagging
GetObjectTorrent                            read    GET /bucket/k?torrent
ListParts                                   read    GET /bucket/k?uploadId=u&x-id=ListParts&max-parts=1&part-number-marker=2
SelectObjectContent                         read    POST /bucket/k?select&select-type=2
PreflightObject                             read    OPTIONS /bucket/k
PutObject                                   write   PUT /bucket/k?x-id=PutObject
PutObject                                   write   PUT /bucket/k?x-amz-meta-a=b&x-amz-checksum-crc32=x&x-amz-acl=private
CopyObject                                  write   PUT /bucket/k?x-id=CopyObject                 x-amz-copy-source=/bucket/source
CreateMultipartUpload                       write   POST /bucket/k?uploads
UploadPart                                  write   PUT /bucket/k?partNumber=1&uploadId=u&x-id=UploadPart
UploadPartCopy                              write   PUT /bucket/k?partNumber=1&uploadId=u         x-amz-copy-source=bucket/source?versionId=v
CompleteMultipartUpload                     write   POST /bucket/k?uploadId=u
AbortMultipartUpload                        write   DELETE /bucket/k?uploadId=u&x-id=AbortMultipartUpload
RestoreObject                               write   POST /bucket/k?restore&versionId=v
PutObjectTagging                            write   PUT /bucket/k?tagging&versionId=v
DeleteObjectTagging                         write   DELETE /bucket/k?tagging&versionId=v
PutObjectAnnotation                         write   PUT /bucket/k?annotation&annotationName=n
DeleteObjectAnnotation                      write   DELETE /bucket/k?annotation&annotationName=n
DeleteObject                                delete  DELETE /bucket/k?x-id=DeleteObject
DeleteObject                                delete  DELETE /bucket/k?versionId=v
DeleteObjects                               delete  POST /bucket?delete
PutObjectAcl                                admin   PUT /bucket/k?acl&versionId=v
PutObjectLegalHold                          admin   PUT /bucket/k?legal-hold
PutObjectRetention                          admin   PUT /bucket/k?retention
UpdateObjectEncryption                      admin   PUT /bucket/k?encryption
RenameObject                                admin   PUT /bucket/k?renameObject
CreateBucket                                admin   PUT /bucket
DeleteBucket                                admin   DELETE /bucket
CreateSession                               admin   GET /bucket?session
CreateBucketMetadataConfiguration           admin   POST /bucket?metadataConfiguration
CreateBucketMetadataTableConfiguration      admin   POST /bucket?metadataTable
DeleteBucketAnalyticsConfiguration          admin   DELETE /bucket?analytics&id=i
DeleteBucketCors                            admin   DELETE /bucket?cors
DeleteBucketEncryption                      admin   DELETE /bucket?encryption
DeleteBucketIntelligentTieringConfiguration admin   DELETE /bucket?intelligent-tiering&id=i
DeleteBucketInventoryConfiguration          admin   DELETE /bucket?inventory&id=i
DeleteBucketLifecycle                       admin   DELETE /bucket?lifecycle
DeleteBucketMetadataConfiguration           admin   DELETE /bucket?metadataConfiguration
DeleteBucketMetadataTableConfiguration      admin   DELETE /bucket?metadataTable
DeleteBucketMetricsConfiguration            admin   DELETE /bucket?metrics&id=i
DeleteBucketOwnershipControls               admin   DELETE /bucket?ownershipControls
DeleteBucketPolicy                          admin   DELETE /bucket?policy
DeleteBucketReplication                     admin   DELETE /bucket?replication
DeleteBucketTagging                         admin   DELETE /bucket?tagging
DeleteBucketWebsite                         admin   DELETE /bucket?website
DeletePublicAccessBlock                     admin   DELETE /bucket?publicAccessBlock
GetBucketAbac                               admin   GET /bucket?abac
GetBucketAccelerateConfiguration            admin   GET /bucket?accelerate
GetBucketAcl                                admin   GET /bucket?acl
GetBucketAnalyticsConfiguration             admin   GET /bucket?analytics&id=i&x-id=GetBucketAnalyticsConfiguration
GetBucketCors                               admin   GET /bucket?cors
GetBucketEncryption                         admin   GET /bucket?encryption
GetBucketIntelligentTieringConfiguration    admin   GET /bucket?intelligent-tiering&id=i
GetBucketInventoryConfiguration             admin   GET /bucket?inventory&id=i
GetBucketLifecycleConfiguration             admin   GET /bucket?lifecycle
GetBucketLogging                            admin   GET /bucket?logging
GetBucketMetadataConfiguration              admin   GET /bucket?metadataConfiguration
GetBucketMetadataTableConfiguration         admin   GET /bucket?metadataTable
GetBucketMetricsConfiguration               admin   GET /bucket?metrics&id=i
GetBucketNotificationConfiguration          admin   GET /bucket?notification
GetBucketOwnershipControls                  admin   GET /bucket?ownershipControls
GetBucketPolicy                             admin   GET /bucket?policy
GetBucketPolicyStatus                       admin   GET /bucket?policyStatus
GetBucketReplication                        admin   GET /bucket?replication
GetBucketRequestPayment                     admin   GET /bucket?requestPayment
GetBucketTagging                            admin   GET /bucket?tagging
GetBucketVersioning                         admin   GET /bucket?versioning
GetBucketWebsite                            admin   GET /bucket?website
GetObjectLockConfiguration                  admin   GET /bucket?object-lock
GetPublicAccessBlock                        admin   GET /bucket?publicAccessBlock
ListBucketAnalyticsConfigurations           admin   GET /bucket?analytics&continuation-token=x
ListBucketIntelligentTieringConfigurations  admin   GET /bucket?intelligent-tiering&continuation-token=x
ListBucketInventoryConfigurations           admin   GET /bucket?inventory&continuation-token=x
ListBucketMetricsConfigurations             admin   GET /bucket?metrics&x-id=ListBucketMetricsConfigurations
PutBucketAbac                               admin   PUT /bucket?abac
PutBucketAccelerateConfiguration            admin   PUT /bucket?accelerate
PutBucketAcl                                admin   PUT /bucket?acl
PutBucketAnalyticsConfiguration             admin   PUT /bucket?analytics&id=i
PutBucketCors                               admin   PUT /bucket?cors
PutBucketEncryption                         admin   PUT /bucket?encryption
PutBucketIntelligentTieringConfiguration    admin   PUT /bucket?intelligent-tiering&id=i
PutBucketInventoryConfiguration             admin   PUT /bucket?inventory&id=i
PutBucketLifecycleConfiguration             admin   PUT /bucket?lifecycle
PutBucketLogging                            admin   PUT /bucket?logging
PutBucketMetricsConfiguration               admin   PUT /bucket?metrics&id=i
PutBucketNotificationConfiguration          admin   PUT /bucket?notification
PutBucketOwnershipControls                  admin   PUT /bucket?ownershipControls
PutBucketPolicy                             admin   PUT /bucket?policy
PutBucketReplication                        admin   PUT /bucket?replication
PutBucketRequestPayment                     admin   PUT /bucket?requestPayment
PutBucketTagging                            admin   PUT /bucket?tagging
PutBucketVersioning                         admin   PUT /bucket?versioning
PutBucketWebsite                            admin   PUT /bucket?website
PutObjectLockConfiguration                  admin   PUT /bucket?object-lock
PutPublicAccessBlock                        admin   PUT /bucket?publicAccessBlock
UpdateBucketMetadataAnnotationTableConfiguration admin PUT /bucket?metadataAnnotationTable
UpdateBucketMetadataInventoryTableConfiguration  admin PUT /bucket?metadataInventoryTable
UpdateBucketMetadataJournalTableConfiguration    admin PUT /bucket?metadataJournalTable
`

// notS3 is requests that are none of S3's, or that two servers may understand in two ways: all for admin. Of those at
// object level, what is written may be the object.
const notS3 = `
GET /?Action=ListUsers
POST /
GET /bucket?unknown
GET /bucket?unknown=1&list-type=2
GET /bucket?list-type=2&policy
GET /bucket?prefix=a&acl=
GET /bucket?%70olicy&%61cl
GET /bucket?Policy
GET /bucket?uploads=&versions=
PUT /bucket?delete
POST /bucket?unknown
DELETE /bucket?unknown
GET /bucket/k?unknown
GET /bucket/k?acl&tagging
GET /bucket/k?acl&unknown=1
GET /bucket/k?uploads
HEAD /bucket/k?acl
PUT /bucket/k?unknown
PUT /bucket/k?unknown=1
PUT /bucket/k?partNumber=1
PUT /bucket/k?partNumber=1&uploadId=
PUT /bucket/k?x-amz-acl=public-read
PUT /bucket/k?tagging&acl
POST /bucket/k
POST /bucket/k?uploadId=u&restore
POST /bucket/k?uploadId=
DELETE /bucket/k?unknown
DELETE /bucket/k?uploadId=
DELETE /bucket/k?acl
OPTIONS /
`

// exchangeFor is a request as far as it is authenticated.
func exchangeFor(t *testing.T, h *Handler, line string, header http.Header) *exchange {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	r := &http.Request{Method: method, RequestURI: target, Host: "gw", Header: http.Header{}, URL: &url.URL{}}
	for k, v := range header {
		r.Header[http.CanonicalHeaderKey(k)] = v
	}
	x := &exchange{h: h, r: r}
	var err error
	if x.query, err = x.resolve(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	x.amz = scanAmz(r.Header, x.query)
	if x.op = h.table.classify(method, x.object.level(), x.query, &x.amz); x.op == nil {
		t.Fatalf("%s: no operation", line)
	}
	return x
}

var rightNames = map[string]Right{"read": Read, "write": Write, "list": List, "delete": Delete, "admin": Admin}

// TestEveryOperation holds each S3 operation against each right alone and against all rights but the one it needs.
func TestEveryOperation(t *testing.T) {
	h := newHandler(t, Config{})
	seen := map[string]bool{"PostObject": true} // has no request that is let through
	for line := range strings.Lines(strings.TrimSpace(apiReference)) {
		f := strings.Fields(line)
		name, right, request := f[0], rightNames[f[1]], f[2]+" "+f[3]
		header := http.Header{}
		need := right
		if len(f) == 5 {
			k, v, _ := strings.Cut(f[4], "=")
			header.Set(k, v)
			need |= Read // of the source
		}
		seen[name] = true
		x := exchangeFor(t, h, request, header)
		if x.op.name != name {
			t.Errorf("%s is %s, want %s", request, x.op.name, name)
			continue
		}
		for held := Right(0); held <= Read|Write|List|Delete|Admin|Cluster|Tune; held++ {
			x.who.grant = &grant{rights: held, everywhere: true}
			err := x.authorize()
			if allowed, want := err == nil, held&need == need; allowed != want {
				t.Fatalf("%s with rights %07b: %v, want allowed %v", request, held, err, want)
			}
			if err != nil && !errors.Is(err, errAccessDenied) {
				t.Fatalf("%s: %v", request, err)
			}
		}
	}
	for _, o := range h.table.all {
		if !seen[o.name] {
			t.Errorf("%s is in the table and not in the reference", o.name)
		}
	}
}

func TestUnmappedNeedsAdmin(t *testing.T) {
	h := newHandler(t, Config{})
	for line := range strings.Lines(strings.TrimSpace(notS3)) {
		line = strings.TrimSpace(line)
		x := exchangeFor(t, h, line, nil)
		x.who.grant = &grant{rights: ^Admin, everywhere: true}
		if err := x.authorize(); !errors.Is(err, errAccessDenied) {
			t.Errorf("%s (%s): allowed without admin: %v", line, x.op.name, err)
		}
		if x.op.name == "Other" && strings.Contains(line, "/k") && x.op.drops != dropsObject {
			t.Errorf("%s: what it may have written is not forgotten", line)
		}
		if x.op.read {
			t.Errorf("%s: would be answered from blocks", line)
		}
	}
}

// Headers that open an object to others, or set it under retention, need more than the right to write.
func TestHeadersThatNeedAdmin(t *testing.T) {
	h := newHandler(t, Config{})
	for _, c := range []struct {
		name, value string
		admin       bool
	}{
		{"x-amz-acl", "private", false},
		{"x-amz-acl", "bucket-owner-full-control", false},
		{"x-amz-acl", "public-read", true},
		{"x-amz-acl", "authenticated-read", true},
		{"x-amz-grant-read", "uri=http://acs.amazonaws.com/groups/global/AllUsers", true},
		{"x-amz-object-lock-mode", "COMPLIANCE", true},
		{"x-amz-bypass-governance-retention", "true", true},
		{"x-amz-meta-a", "b", false},
		{"x-amz-tagging", "a=b", false},
		{"x-amz-storage-class", "STANDARD", false},
	} {
		for _, line := range []string{"PUT /bucket/k", "POST /bucket/k?uploads", "DELETE /bucket/k"} {
			x := exchangeFor(t, h, line, http.Header{c.name: {c.value}})
			x.who.grant = &grant{rights: Write | Delete, everywhere: true}
			if err := x.authorize(); (err != nil) != c.admin {
				t.Errorf("%s with %s: %s: %v", line, c.name, c.value, err)
			}
		}
	}
}

func TestGrants(t *testing.T) {
	all := Read | Write | List | Delete | Admin
	logs := &grant{rights: all, patterns: []string{"logs-*", "one"}}
	prefix := &grant{rights: all, everywhere: true, prefix: "team a/"}
	plus := &grant{rights: all, everywhere: true, prefix: "team+a/"}
	everywhere := &grant{rights: all, everywhere: true}
	h := newHandler(t, Config{})
	for _, c := range []struct {
		g      *grant
		line   string
		source string
		ok     bool
	}{
		{logs, "GET /logs-2026/k", "", true},
		{logs, "GET /one/k", "", true},
		{logs, "GET /one-more/k", "", false},
		{logs, "GET /other/k", "", false},
		{logs, "GET /logs/k", "", false},
		{logs, "GET /", "", false}, // names the buckets of others
		{logs, "DELETE /other", "", false},
		{logs, "PUT /one/k", "/logs-1/x", true},
		{logs, "PUT /one/k", "logs-1%2Fx", true},
		{logs, "PUT /one/k", "/other/x", false},
		{logs, "PUT /one/k", "%2Fother%2Fx", false},
		{logs, "PUT /other/k", "/logs-1/x", false},
		{logs, "PUT /one/k?uploadId=u&partNumber=1", "/other/x", false},
		{logs, "PUT /one/k?acl", "/other/x", false},
		{logs, "PUT /one/k?X-Amz-Copy-Source=other%2Fx", "", false},
		{logs, "PUT /one/k", "one", false},
		{logs, "PUT /one/k", "arn:aws:s3:eu-west-1:1:accesspoint/one/object/k", false},
		{prefix, "PUT /bucket/team%20a/k", "bucket/team%20a/%zz", false},
		{everywhere, "PUT /one/k", "arn:aws:s3:eu-west-1:1:accesspoint/one/object/k", true}, // whatever it is
		{everywhere, "PUT /one/k", "one/%zz", true},
		{&grant{rights: Write, everywhere: true}, "PUT /one/k", "one/%zz", false},
		{prefix, "GET /bucket/team%20a/k", "", true},
		{prefix, "GET /bucket/team%20a%2Fk", "", true},
		{prefix, "GET /bucket/team+a/k", "", false},
		{plus, "GET /bucket/team%2Ba/k", "", true},
		{plus, "GET /bucket/team+a/k", "", false}, // to an origin that takes it for a space it is another key
		{plus, "PUT /bucket/team%2Ba/k", "/bucket/team%2Ba/x", true},
		{plus, "PUT /bucket/team%2Ba/k", "/bucket/team+a/x", false},
		{prefix, "GET /bucket/team%20b/k", "", false},
		{prefix, "GET /bucket/team%20a/../team%20b/k", "", false},
		{prefix, "GET /bucket/team%20a/..", "", false},
		{prefix, "GET /bucket/team%20a/..k", "", true},
		{prefix, "GET /bucket?list-type=2", "", false},
		{prefix, "GET /bucket?list-type=2&prefix=team", "", false},
		{prefix, "GET /bucket?list-type=2&prefix=team+a/", "", true},
		{prefix, "GET /bucket?prefix=team%20a/x", "", true},
		{prefix, "GET /bucket?prefix=team%20a/x&prefix=", "", false},
		{prefix, "GET /bucket?versions&prefix=team%20a/", "", true},
		{prefix, "GET /bucket?uploads", "", false},
		{prefix, "HEAD /bucket", "", true},
		{prefix, "GET /bucket?location", "", true},
		{prefix, "GET /bucket?policy", "", false},
		{prefix, "DELETE /bucket", "", false},
		// To an origin that resolves dot segments these are in another bucket, or its own.
		{logs, "GET /one/../other/k", "", false},
		{logs, "GET /one/a/..%2F..%2Fother/k", "", false},
		{logs, "PUT /one/..", "", false},
		{logs, "DELETE /one/../other", "", false},
		{logs, "PUT /one/k", "/one/../other/x", false},
		{logs, "PUT /one/k", "one%2F..%2Fother%2Fx", false},
		{logs, "GET /one/..k/.../k..", "", true},
		{logs, "GET /one/./k//", "", true},
		{everywhere, "GET /one/../other/k", "", true},
		{prefix, "GET /", "", false},
		{prefix, "PUT /bucket/team%20a/k", "/bucket/team%20a/x", true},
		{prefix, "PUT /bucket/team%20a/k", "/bucket/team%20b/x", false},
	} {
		header := http.Header{}
		if c.source != "" {
			header.Set("X-Amz-Copy-Source", c.source)
		}
		x := exchangeFor(t, h, c.line, header)
		x.who.grant = c.g
		if err := x.authorize(); (err == nil) != c.ok {
			t.Errorf("%s (source %q): %v, want allowed %v", c.line, c.source, err, c.ok)
		}
	}
}

func TestParseCopySource(t *testing.T) {
	for _, c := range []struct {
		value string
		want  origin.Object
		ok    bool
	}{
		{"/bucket/a%20b", origin.Object{Bucket: "bucket", Key: "a b"}, true},
		{"bucket/a%2520b", origin.Object{Bucket: "bucket", Key: "a%20b"}, true}, // once
		{"bucket/a+b", origin.Object{Bucket: "bucket", Key: "a+b", Raw: "bucket/a+b"}, true},
		{"bucket%2Fk?versionId=v1", origin.Object{Bucket: "bucket", Key: "k", VersionID: "v1"}, true},
		{"/bucket//k", origin.Object{Bucket: "bucket", Key: "/k"}, true},
		{"//bucket/k", origin.Object{}, false},
		// Some servers take what follows a '?' for a part of the key.
		{"bucket/team/x?/../../top-secret", origin.Object{}, false},
		{"bucket/team/x?", origin.Object{}, false},
		{"bucket/team/x?versionId=", origin.Object{}, false},
		{"bucket/team/x?a=b&versionId=v", origin.Object{}, false},
		{"bucket/team/x?versionId=v/../../y", origin.Object{}, false},
		{"bucket/team/x?versionId=v?/../y", origin.Object{}, false},
		{"bucket/team/x?versionId=v&a=b", origin.Object{}, false},
		{"bucket", origin.Object{}, false},
		{"/bucket/", origin.Object{}, false},
		{"Bucket/k", origin.Object{}, false},
		{"bucket/%zz", origin.Object{}, false},
		{"arn:aws:s3:eu-west-1:1:accesspoint/p/object/k", origin.Object{}, false},
		{"", origin.Object{}, false},
	} {
		if o, err := parseCopySource(c.value); o != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %+v, %v", c.value, o, err)
		}
	}
}

func TestNewAuthorityRefuses(t *testing.T) {
	key := Key{AccessKey: "a", SecretKey: "s", Buckets: []string{"*"}}
	for name, a := range map[string]Auth{
		"no keys":        {Mode: Static},
		"no secret":      {Mode: Static, Keys: []Key{{AccessKey: "a"}}},
		"no access key":  {Mode: Static, Keys: []Key{{SecretKey: "s"}}},
		"twice":          {Mode: Static, Keys: []Key{key, key}},
		"bad pattern":    {Mode: Static, Keys: []Key{{AccessKey: "a", SecretKey: "s", Buckets: []string{"["}}}},
		"keys unused":    {Mode: Anonymous, Keys: []Key{key}},
		"a mode of none": {Mode: 7},
	} {
		if _, err := newAuthority(a, ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestKeyHidesSecrets(t *testing.T) {
	k := Key{AccessKey: "AKIA", SecretKey: "hush-secret", SessionToken: "hush-token"}
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v", k, k, k), k.LogValue().String()} {
		if strings.Contains(s, "hush") || !strings.Contains(s, "AKIA") {
			t.Errorf("printed as %s", s)
		}
	}
}
