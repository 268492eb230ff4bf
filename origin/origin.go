// Package origin says what a source of bytes is: something that answers ranged reads of objects, with an ETag that
// pins their version. An S3 endpoint is one (origin/s3origin), a cluster of nodes is one, a test double is one
// (origin/origintest). The package imports no sibling and no net/http.
package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Object names an object as a client did. It is comparable: equal values are one object.
type Object struct {
	Bucket    string
	Key       string // decoded once from the raw path; any bytes, not normalised
	VersionID string // of ?versionId=; "" when not given
	// Raw is the percent-encoded key exactly as the client spelled it, set only when that spelling has a bare '+'
	// (a literal plus to most servers, a space to AWS): such a path is sent byte-identical. "" otherwise.
	Raw string
}

// Clone returns o with memory of its own. The strings of one that a request names may be parts of all that the request
// said, and whoever keeps one would keep that.
func (o Object) Clone() Object {
	return Object{strings.Clone(o.Bucket), strings.Clone(o.Key), strings.Clone(o.VersionID), strings.Clone(o.Raw)}
}

func (o Object) String() string {
	s := "s3://" + o.Bucket + "/" + o.Key
	if o.VersionID != "" {
		s += "?versionId=" + o.VersionID
	}
	return s
}

// Header is one header line of an answer: the canonical name as net/http spells it, and the value as received.
type Header struct{ Name, Value string }

// Info is what is known of a version without its bytes. Immutable once returned; shared between goroutines.
type Info struct {
	Size         int64
	ETag         string    // as received, with its quotes, W/ and -N; "" when there was none
	LastModified string    // as received (RFC 9110 date); "" when there was none
	Modified     time.Time // LastModified parsed, whole seconds; zero when there was none or it did not parse
	VersionID    string    // x-amz-version-id of the answer

	// Headers that are the version's own and are served with every answer: content headers, x-amz-meta-*, SSE, and so
	// on. Never those of one requester or one request, and not those that have a field here. Sorted by name.
	Headers []Header
	// Volatile headers can change without a new ETag (storage class, restore, replication, expiration): served only
	// while the info is no older than the ttl.
	Volatile []Header
	// Checksums are x-amz-checksum-* of the whole object, when ChecksumsKnown says that they were asked for and seen.
	Checksums      []Header
	ChecksumsKnown bool

	// Confirmed is when the origin was asked for what led to this info: the moment the request was sent, less the Age
	// that the answer carried. Received is when the answer's headers were here.
	Confirmed, Received time.Time
	// Stale: a cache on the way could not confirm the info any more, and answered by it all the same (RFC 5861 section 4).
	Stale bool
}

// Strong says whether the info has a strong ETag (RFC 9110 section 8.8.1), which alone can pin a version.
func (i *Info) Strong() bool {
	return len(i.ETag) >= 2 && i.ETag[0] == '"' && strings.HasSuffix(i.ETag, `"`)
}

// SameVersion says whether two infos speak of one version: same ETag, same size, and where there is no strong ETag to
// tell, the same Last-Modified.
func (i *Info) SameVersion(o *Info) bool {
	if i.Size != o.Size || i.ETag != o.ETag {
		return false
	}
	return i.Strong() || i.LastModified == o.LastModified
}

// GetOptions shape one GET. The zero value asks for the whole object, unpinned.
type GetOptions struct {
	// Offset and Length ask for bytes [Offset, Offset+Length). Length 0 with Offset 0 sends no Range and asks for the
	// whole object; Length is > 0 otherwise.
	Offset, Length int64
	// IfMatch pins: the ETag with quotes that the object must still have; the answer is ErrChanged otherwise.
	IfMatch string
	// IfNoneMatch asks to be told "not modified" when the object still has this ETag.
	IfNoneMatch string
	// NoCache asks caches between here and the object to confirm first (Cache-Control: no-cache). An S3 endpoint
	// ignores it.
	NoCache bool
	// Via names the caches that the read came by, the first one first, so that a loop of them can be told. They are sent
	// on, with our own name behind.
	Via []string
	// FirstByte bounds the time from sending the request to the answer's headers; 0 is no bound of its own.
	FirstByte time.Duration
}

// HeadOptions shape one HEAD.
type HeadOptions struct {
	NoCache   bool
	Via       []string
	FirstByte time.Duration
}

// Response is the answer to a Get. The caller must Close a non-nil Body, always. Closing before the end is allowed and
// may cost the connection.
type Response struct {
	// NotModified is the answer to a true IfNoneMatch. Body is nil, and of Info only LastModified, Modified, Confirmed
	// and Received are sure to be filled (servers differ in what a 304 carries).
	NotModified bool
	// Info describes the whole object that the bytes are of; Info.Size is its total size.
	Info Info
	// Offset and Length are the bytes that the body holds, from Content-Range (206), or 0 and Size (200). An origin
	// answers what it likes: the caller compares with what it asked. Body yields at most Length bytes; it ends with
	// io.ErrUnexpectedEOF, never io.EOF, when the origin sent fewer, and with an error when it sent more where that
	// can be seen.
	Offset, Length int64
	Body           io.ReadCloser
}

// Origin is a source of bytes. Implementations are safe for concurrent use, follow no redirects, never retry on their
// own but for a connection that was dead before the request reached the other side, and honour ctx until the Body is
// closed. Errors that are answers of the origin are *Error.
type Origin interface {
	// Get reads one range of an object.
	Get(ctx context.Context, o Object, opts GetOptions) (*Response, error)
	// Head asks for info alone, checksums included.
	Head(ctx context.Context, o Object, opts HeadOptions) (*Info, error)
}

// Sentinels for errors.Is. An *Error matches the one that its status means.
var (
	// ErrNotFound: no such key, bucket, version, or a delete marker (404, 405).
	ErrNotFound = errors.New("not found")
	// ErrChanged: the object no longer has the ETag that it was asked by (412).
	ErrChanged = errors.New("object changed")
	// ErrRange: the origin holds the range to be unsatisfiable (416).
	ErrRange = errors.New("range not satisfiable")
	// ErrBadAnswer: the origin's answer contradicts itself or the question: a 206 without a usable Content-Range, a
	// body that is too short or too long. Nothing of it may be used.
	ErrBadAnswer = errors.New("unusable answer from the origin")
	// ErrCredentials: the origin does not accept what our requests to it are signed with. It says nothing of who asked
	// us, and what the origin said of it is not for them: it names our access key.
	ErrCredentials = errors.New("the origin does not accept our credentials")
	// ErrTimeout: the origin did not answer, or stopped answering, within the bound it was given.
	ErrTimeout = errors.New("origin timed out")
)

// Error is an answer of the origin other than 200, 206 and 304, to be passed on as it came.
type Error struct {
	Status int      // HTTP status, e.g. 403
	Code   string   // S3 error code out of the body, "" when there is none (HEAD has no body)
	Header []Header // to be passed on; hop-by-hop and connection headers are left out
	Body   []byte   // at most MaxErrorBody bytes
}

// MaxErrorBody bounds what is kept of an error's body, in bytes.
const MaxErrorBody = 64 << 10

func (e *Error) Error() string {
	if e.Code != "" {
		return fmt.Sprintf("origin answered %d %s", e.Status, e.Code)
	}
	return fmt.Sprintf("origin answered %d", e.Status)
}

// Is maps the status to a sentinel of this package.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == 404 || e.Status == 405
	case ErrChanged:
		return e.Status == 412
	case ErrRange:
		return e.Status == 416
	}
	return false
}
