package s3api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// Our own endpoints, below /-/, which is no bucket's name. They are signed as all requests are, and counted as they are;
// the health checks (serveProbe) are neither.
//
//	POST /-/warm          see warm.go
//	POST /-/invalidate    {"bucket": "b", "prefix": "p"} or {"bucket": "b", "keys": ["k", …]}, and "dry_run": true
//	200                   {"objects": 3, "dry_run": false}
//
// What is known of these objects is forgotten, under all their names (versions, spellings): the next read of each asks
// the origin. Each remembered name counts as one object. The requester needs the right to administer the bucket and, if
// their key is limited to a prefix, one that covers prefix or keys. The signature must cover the body: its SHA-256 stands
// in x-amz-content-sha256. Errors are XML, as everywhere.
//
// Another process of a cluster, which says so by X-Ashlar-Routed, needs the right Cluster instead and names keys. It is
// answered by 204. Where nobody signs, the body must be called JSON: a page in a browser can't send that.

const (
	invalidatePath = "/-/invalidate"
	warmPath       = "/-/warm"
)

// maxOwnBody bounds the body in bytes: a thousand keys of the greatest length, each byte escaped.
const maxOwnBody = 8 << 20

// maxInvalidateKeys bounds the keys of one request, as S3 bounds those of DeleteObjects.
const maxInvalidateKeys = 1000

var invalidateOperation = operation{name: "Invalidate", method: http.MethodPost, right: Admin}

// purger is an engine that forgets many objects at once; *gateway.Gateway is one.
type purger interface {
	// Purge forgets the info of every remembered object that match holds for, and returns how many those were. dry only
	// counts.
	Purge(match func(origin.Object) bool, dry bool) int
}

// invalidation is the body of a request.
type invalidation struct {
	Bucket string   `json:"bucket"`
	Prefix *string  `json:"prefix"`
	Keys   []string `json:"keys"`
	DryRun bool     `json:"dry_run"`
}

// invalidated is the answer.
type invalidated struct {
	Objects int  `json:"objects"`
	DryRun  bool `json:"dry_run"`
}

// ownEndpoint returns the endpoint that isn't S3's which a request is for, nil for none. In a bucket's own host name it is
// for a key.
func (h *Handler) ownEndpoint(r *http.Request) func(*exchange) error {
	if !strings.HasPrefix(r.RequestURI, "/-/") || h.hosts.bucket(r.Host) != "" {
		return nil
	}
	switch path, _, _ := strings.Cut(r.RequestURI, "?"); path {
	case invalidatePath:
		return h.invalidate
	case warmPath:
		return h.warm
	}
	return nil
}

// enter identifies who asks an endpoint of ours.
func (x *exchange) enter(op *operation) (err error) {
	x.op = op
	if x.r.Method != http.MethodPost {
		return errMethod
	}
	if x.who, err = x.h.auth.Load().identify(x.r); err != nil {
		return err
	}
	return x.hear()
}

// invalidate is POST /-/invalidate.
func (h *Handler) invalidate(x *exchange) error {
	if err := x.enter(&invalidateOperation); err != nil {
		return err
	}
	if x.who.grant.rights&Admin == 0 && !x.heard.routed {
		return errAccessDenied // before the body is read
	}
	if h.purger == nil {
		return &Error{Status: 501, Code: "NotImplemented", Message: "There is nothing here that could be invalidated."}
	}
	what, err := x.readInvalidation()
	if err != nil {
		return err
	}
	x.object.Bucket = what.Bucket
	if x.heard.routed {
		return x.invalidateKeys(what)
	}
	if !what.allowed(Admin, x.who.grant) {
		return errAccessDenied
	}
	n := h.purger.Purge(what.match(), what.DryRun)
	if !what.DryRun {
		h.logger.Info("invalidated", "bucket", what.Bucket, "objects", n, "access_key", x.who.accessKey)
	}
	body, err := json.Marshal(invalidated{Objects: n, DryRun: what.DryRun})
	if err != nil {
		return err
	}
	x.set("Content-Type", "application/json")
	x.set("Cache-Control", "no-store")
	x.begin(http.StatusOK, int64(len(body)))
	x.finishBody(x.Write(body))
	return nil
}

// invalidateKeys does what a process of the cluster asks for after a write.
func (x *exchange) invalidateKeys(what *invalidation) error {
	if what.Prefix != nil || what.DryRun || !what.allowed(Cluster, x.who.grant) {
		return errAccessDenied
	}
	for _, k := range what.Keys {
		x.h.gateway.Invalidate(origin.Object{Bucket: what.Bucket, Key: k})
	}
	x.begin(http.StatusNoContent, -1)
	return nil
}

// readInvalidation reads the body of an invalidation.
func (x *exchange) readInvalidation() (*invalidation, error) {
	what := new(invalidation)
	if err := x.readOwn(what); err != nil {
		return nil, err
	}
	switch {
	case !validBucket(what.Bucket):
		return nil, errBucketName(what.Bucket)
	case (what.Prefix == nil) == (len(what.Keys) == 0):
		return nil, errOwnBody(`The body must have either "prefix" ("" is the whole bucket) or "keys".`)
	case len(what.Keys) > maxInvalidateKeys:
		return nil, errOwnBody("The body has more than 1000 keys.")
	}
	return what, nil
}

// readOwn reads the body of a request to an endpoint of ours, and holds it against the hash that was signed.
func (x *exchange) readOwn(what any) error {
	signed := &x.who.signature
	switch {
	case x.who.accessKey == "" && x.r.Header.Get("Content-Type") != "application/json":
		return errOwnBody("The body must be application/json.")
	case x.who.accessKey != "" && signed.Payload != sigv4.PayloadHash:
		return errArgument("The body must be signed: x-amz-content-sha256 must hold its SHA-256.", "x-amz-content-sha256",
			x.r.Header.Get("X-Amz-Content-Sha256"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxOwnBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return errOwnBody("The body is longer than any that could be meant.")
	case err != nil:
		return errIncompleteBody
	}
	sum := sha256.Sum256(body)
	if x.who.accessKey != "" && subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(signed.Hash)) != 1 {
		return errOwnBodyHash
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields() // a misspelt "prefix" must not be taken for none
	if err := d.Decode(what); err != nil {
		return errOwnBody("The body is not the JSON that is expected: " + err.Error())
	}
	if _, err := d.Token(); err != io.EOF {
		return errOwnBody("The body holds more than one JSON value.")
	}
	return nil
}

// allowed says whether a grant of a right reaches all that is to be forgotten.
func (i *invalidation) allowed(by Right, g *grant) bool {
	if !g.inBucket(by, i.Bucket) {
		return false
	}
	if i.Prefix != nil {
		return g.covers(*i.Prefix)
	}
	for _, k := range i.Keys {
		if !g.covers(k) {
			return false
		}
	}
	return true
}

// match returns what tells the objects that are to be forgotten.
func (i *invalidation) match() func(origin.Object) bool {
	if i.Prefix != nil {
		return func(o origin.Object) bool { return o.Bucket == i.Bucket && strings.HasPrefix(o.Key, *i.Prefix) }
	}
	keys := make(map[string]bool, len(i.Keys))
	for _, k := range i.Keys {
		keys[k] = true
	}
	return func(o origin.Object) bool { return o.Bucket == i.Bucket && keys[o.Key] }
}

var errOwnBodyHash = &Error{Status: 400, Code: "XAmzContentSHA256Mismatch",
	Message: "The provided 'x-amz-content-sha256' header does not match what was computed."}

func errOwnBody(message string) *Error {
	return &Error{Status: 400, Code: "InvalidRequest", Message: message}
}
