package s3api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// table finds the operation of a request. It is immutable.
type table struct {
	// by method and level, then by sub; of several with one sub, those that ask for more come first.
	groups map[string]*[numLevels]map[string][]*operation
	all    []*operation
}

func newTable() *table {
	t := &table{groups: make(map[string]*[numLevels]map[string][]*operation)}
	for i := range s3Operations {
		t.add(&s3Operations[i])
	}
	for _, c := range bucketConfigurations {
		for _, o := range [...]operation{
			{name: c.get, method: http.MethodGet},
			{name: c.list, method: http.MethodGet, params: "continuation-token"},
			{name: c.put, method: http.MethodPut, params: "id"},
			{name: c.post, method: http.MethodPost},
			{name: c.delete, method: http.MethodDelete, params: "id"},
		} {
			if o.name == "" {
				continue
			}
			if o.name == c.get && c.list != "" {
				o.with = "id"
			}
			o.level, o.sub, o.right = atBucket, c.sub, Admin
			t.add(&o)
		}
	}
	for _, levels := range t.groups {
		for _, subs := range levels {
			for _, ops := range subs {
				slices.SortStableFunc(ops, func(a, b *operation) int { return b.demands() - a.demands() })
			}
		}
	}
	return t
}

func (t *table) add(o *operation) {
	levels := t.groups[o.method]
	if levels == nil {
		levels = new([numLevels]map[string][]*operation)
		t.groups[o.method] = levels
	}
	if levels[o.level] == nil {
		levels[o.level] = make(map[string][]*operation)
	}
	levels[o.level][o.sub] = append(levels[o.level][o.sub], o)
	t.all = append(t.all, o)
}

// demands counts what tells an operation from others with its sub.
func (o *operation) demands() int {
	n := 0
	if o.with != "" {
		n++
	}
	if o.copies {
		n++
	}
	return n
}

// takes says whether an operation knows a parameter.
func (o *operation) takes(name string) bool {
	if name == o.sub || name == o.with {
		return true
	}
	for p := range strings.SplitSeq(o.params, " ") {
		if p == name && p != "" {
			return true
		}
	}
	return false
}

// classify tells the operation of a request, nil where S3 has none of its method. Where a parameter is not known, or
// two sub-resources are named, the request is one of otherOperations. The one exception is for reads of an object: S3
// ignores parameters that it doesn't know, and where one has a value, so that it is no sub-resource, a reader may send
// it. Such a read is not answered from blocks, though.
func (t *table) classify(method string, at level, q sigv4.Query, a *amz) *operation {
	other := &otherOperations[at]
	levels := t.groups[method]
	if levels == nil {
		return nil
	}
	subs := levels[at]
	sub := ""
	for _, p := range q {
		if _, ok := subs[p.Name]; ok && p.Name != "" && !transportParam(p.Name) {
			if sub != "" && sub != p.Name {
				return other
			}
			if p.Name == "uploadId" && p.Value == "" {
				return other // which some servers take for an operation on the object itself
			}
			sub = p.Name
		}
	}
	var op *operation
	for _, o := range subs[sub] {
		if o.copies && a.copySource == nil {
			continue
		}
		if _, ok := q.Get(o.with); o.with != "" && !ok {
			continue
		}
		op = o
		break
	}
	if op == nil {
		return other
	}
	for _, p := range q {
		if transportParam(p.Name) || op.takes(p.Name) || op.read && p.Value != "" {
			continue
		}
		return other
	}
	return op
}

// transportParam says whether a parameter belongs to how a request is sent and not to what it asks: authentication,
// headers that a presigned URL carries in the query (see scanAmz), and the operation's name as some SDKs append it.
func transportParam(name string) bool {
	if len(name) > 6 && strings.EqualFold(name[:6], "x-amz-") {
		return true
	}
	switch name {
	case "x-id", "AWSAccessKeyId", "Signature", "Expires":
		return true
	}
	return false
}

// amz is what the x-amz-* headers of a request ask for, and its parameters of that name, which are headers that a
// presigned URL carries in the query.
type amz struct {
	right      Right          // needed besides that of the operation
	copySource *origin.Object // of CopyObject and UploadPartCopy
	badSource  *Error         // what is wrong with copySource, where it can't be made out or is not the only one
	customKey  bool           // SSE-C
	chunked    bool           // the body is in aws-chunked encoding
	checksums  bool           // x-amz-checksum-mode: ENABLED
	beyondRead bool           // something that a read from blocks has no answer to
}

func scanAmz(h http.Header, q sigv4.Query) amz {
	var a amz
	for name, values := range h {
		if strings.HasPrefix(name, "X-Amz-") {
			for _, v := range values {
				a.see(name, v)
			}
		}
	}
	for _, p := range q {
		if transportParam(p.Name) && p.Name[0]|0x20 == 'x' && p.Name != "x-id" {
			a.see(http.CanonicalHeaderKey(p.Name), p.Value)
		}
	}
	for _, line := range h["Content-Encoding"] {
		for token := range strings.SplitSeq(line, ",") {
			a.chunked = a.chunked || isChunked(token)
		}
	}
	return a
}

// isChunked says whether a token of Content-Encoding is aws-chunked, in whatever disguise: such a body is never stored as it
// is.
func isChunked(token string) bool { return strings.Contains(strings.ToLower(token), "aws-chunked") }

// see takes in one header. name is canonical.
func (a *amz) see(name, value string) {
	switch name {
	case "X-Amz-Content-Sha256":
		a.chunked = a.chunked || len(value) >= 10 && strings.EqualFold(value[:10], "STREAMING-")
	case "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Expires",
		"X-Amz-Signedheaders", "X-Amz-Signature", "X-Amz-User-Agent", "X-Amz-Cf-Id", "X-Amz-Api-Version":
		// Authentication, and what says who sends or relays.
	case "X-Amz-Te":
		// The Java SDK would take an MD5 behind the body, which S3 says it appends where it does, in a header.
	case "X-Amz-Checksum-Mode":
		enabled := strings.EqualFold(value, "ENABLED") // the C++ SDK says "enabled"
		a.checksums = a.checksums || enabled
		a.beyondRead = a.beyondRead || !enabled
	case "X-Amz-Decoded-Content-Length", "X-Amz-Trailer":
		a.chunked, a.beyondRead = true, true
	case "X-Amz-Copy-Source":
		a.beyondRead = true
		o, err := parseCopySource(value)
		if a.copySource != nil {
			err = errCopySource("Copy Source must be given only once", value)
		}
		if err != nil {
			a.badSource = err
		}
		a.copySource = &o
	case "X-Amz-Acl":
		// S3 asks for PutObjectAcl where a write opens the object to others; SDKs say "private" of their own accord.
		a.beyondRead = true
		if value != "private" && value != "bucket-owner-full-control" && value != "bucket-owner-read" {
			a.right |= Admin
		}
	default:
		if strings.HasPrefix(name, "X-Amz-Checksum-") {
			return // of the request's body: the Java SDK sums up the empty one of a read
		}
		a.beyondRead = true
		switch {
		case strings.HasPrefix(name, "X-Amz-Server-Side-Encryption-Customer-"),
			strings.HasPrefix(name, "X-Amz-Copy-Source-Server-Side-Encryption-Customer-"):
			a.customKey = true
		case strings.HasPrefix(name, "X-Amz-Grant-"), strings.HasPrefix(name, "X-Amz-Object-Lock-"),
			name == "X-Amz-Bypass-Governance-Retention":
			a.right |= Admin
		}
	}
}

// vendorPrefixes begin the names of headers by which stores other than S3 are told more than a request says in S3's
// terms: to copy from elsewhere (x-goog-copy-source), to delete all below a prefix (x-minio-force-delete), to be
// another method.
var vendorPrefixes = [...]string{"X-Minio-", "X-Goog-", "X-Oss-", "X-Ibm-", "X-Obs-", "X-Cos-", "X-Tos-", "X-Bce-",
	"X-Kss-", "X-Ms-", "X-Bz-", "X-Emc-", "X-Rgw-", "X-Http-Method", "X-Method-Override"}

// judgeVendorHeaders drops such headers where they are not signed: anybody on the way may have added them, and the
// origin would take them for signed by us. What is signed asks for more than the table knows, which is for admin.
func (x *exchange) judgeVendorHeaders() {
	var unsigned []string
	for name := range x.r.Header {
		if !slices.ContainsFunc(vendorPrefixes[:], func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		if x.who.signs(name) {
			x.amz.right |= Admin
			x.amz.beyondRead = true
		} else {
			unsigned = append(unsigned, name)
		}
	}
	if unsigned == nil {
		return
	}
	x.r = x.r.WithContext(x.r.Context())
	x.r.Header = x.r.Header.Clone()
	for _, name := range unsigned {
		delete(x.r.Header, name)
	}
}

// parseCopySource reads x-amz-copy-source: bucket and key, percent-encoded as one, with a slash in front or without,
// and perhaps a version. Sources that are named by an ARN have no bucket that rights could be looked up for.
func parseCopySource(value string) (origin.Object, *Error) {
	raw, query, queried := strings.Cut(value, "?")
	s, err := sigv4.DecodePath(raw)
	if err != nil {
		return origin.Object{}, errCopySource("Invalid copy source encoding", value)
	}
	// Whatever else follows a '?' is part of the key to some servers: not what rights would be looked up for.
	version, versioned := strings.CutPrefix(query, "versionId=")
	if queried && (!versioned || !validVersionID(version) || strings.ContainsAny(version, "/?&")) {
		return origin.Object{}, errCopySource("Invalid copy source version id", value)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(s, "/"), "/")
	if !validBucket(bucket) {
		return origin.Object{}, errCopySource("Invalid copy source bucket name", value)
	}
	if key == "" {
		return origin.Object{}, errCopySource("Invalid copy source object key", value)
	}
	o := origin.Object{Bucket: bucket, Key: key, VersionID: version}
	if strings.IndexByte(raw, '+') >= 0 {
		o.Raw = raw
	}
	return o, nil
}
