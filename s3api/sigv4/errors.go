package sigv4

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a refusal in S3's own words.
type Error struct {
	Status  int    // HTTP
	Code    string // "SignatureDoesNotMatch", …
	Message string // S3's text for the client
	// Fields are further XML elements, in order. Values are the client's own data and may hold any byte (escape them
	// for XML), signatures and session tokens included: never log them.
	Fields []Field
}

// Field is one XML element of an error.
type Field struct{ Name, Value string }

// Error returns code and message, without the fields.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// maxEcho bounds what an error repeats of the request, in bytes per field before it is spelled in hexadecimal.
const maxEcho = 4 << 10

// How S3 writes times in errors.
const errorTime = "2006-01-02T15:04:05Z"

func errAnonymous() *Error {
	return &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access Denied"}
}

func errURI() *Error {
	return &Error{Status: http.StatusBadRequest, Code: "InvalidURI", Message: "Couldn't parse the specified URI."}
}

func errTooLarge() *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "RequestHeaderSectionTooLarge",
		Message: "Your request header section exceeds the maximum allowed size.",
		Fields:  []Field{{"MaxSizeAllowed", strconv.Itoa(maxTarget)}},
	}
}

// Which form of authentication.

func errTwoHeaders() *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "InvalidArgument",
		Message: "Only one Authorization header is allowed",
		Fields:  []Field{{"ArgumentName", "Authorization"}},
	}
}

func errBothForms() *Error {
	return &Error{
		Status: http.StatusBadRequest,
		Code:   "InvalidArgument",
		Message: "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string " +
			"parameter or the Authorization header should be specified",
		Fields: []Field{{"ArgumentName", "Authorization"}},
	}
}

func errNoSpace(header string) *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "InvalidArgument",
		Message: "Authorization header is invalid -- one and only one ' ' (space) required.",
		Fields:  []Field{{"ArgumentName", "Authorization"}, {"ArgumentValue", cut(header, 256)}},
	}
}

func errScheme(scheme string) *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "InvalidArgument",
		Message: "Unsupported Authorization Type",
		Fields:  []Field{{"ArgumentName", "Authorization"}, {"ArgumentValue", cut(scheme, 256)}},
	}
}

// errSigV2 says more than S3 does: boto3 and aws-cli presign with SigV2 for endpoints they don't know.
func errSigV2() *Error {
	return &Error{
		Status: http.StatusBadRequest,
		Code:   "InvalidRequest",
		Message: "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256: in " +
			"boto3 Config(signature_version='s3v4'), for the AWS CLI \"aws configure set default.s3." +
			"signature_version s3v4\".",
	}
}

func errSigV4A() *Error {
	return &Error{
		Status:  http.StatusNotImplemented,
		Code:    "NotImplemented",
		Message: "AWS4-ECDSA-P256-SHA256 (SigV4A) is not implemented. Please use AWS4-HMAC-SHA256.",
	}
}

// What the claim says.

// malformed is the error of a claim with something wrong in it; S3 words it by where the claim stood.
func (c *claim) malformed(message string) *Error {
	if c.presigned {
		return errQuery("Error parsing the X-Amz-Credential parameter; " + message)
	}
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "AuthorizationHeaderMalformed",
		Message: "The authorization header is malformed; " + message,
	}
}

func (c *claim) malformedNames() *Error {
	const message = "must list each signed header once, in lower case, separated by semicolons."
	if c.presigned {
		return errQuery("X-Amz-SignedHeaders " + message)
	}
	return c.malformed("SignedHeaders " + message)
}

func errQuery(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "AuthorizationQueryParametersError", Message: message}
}

func errNoContentSHA256() *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "InvalidRequest",
		Message: "Missing required header for this request: x-amz-content-sha256",
	}
}

func errContentSHA256(value string) *Error {
	return &Error{
		Status: http.StatusBadRequest,
		Code:   "InvalidArgument",
		Message: "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, " +
			"STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, " +
			"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER " +
			"or a valid sha256 value.",
		Fields: []Field{{"ArgumentName", "x-amz-content-sha256"}, {"ArgumentValue", cut(value, 256)}},
	}
}

// Time.

func errDate() *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    "AccessDenied",
		Message: "AWS authentication requires a valid Date or x-amz-date header.",
	}
}

func errSkewed(c *claim, now time.Time) *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    "RequestTimeTooSkewed",
		Message: "The difference between the request time and the current time is too large.",
		Fields: []Field{
			{"RequestTime", c.date},
			{"ServerTime", now.UTC().Format(errorTime)},
			{"MaxAllowedSkewMilliseconds", strconv.FormatInt(maxSkew.Milliseconds(), 10)},
		},
	}
}

func errExpired(expires time.Duration, end, now time.Time) *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    "AccessDenied",
		Message: "Request has expired",
		Fields: []Field{
			{"X-Amz-Expires", strconv.FormatInt(int64(expires/time.Second), 10)},
			{"Expires", end.UTC().Format(errorTime)},
			{"ServerTime", now.UTC().Format(errorTime)},
		},
	}
}

// errNotYet gives X-Amz-Date in milliseconds since 1970 because S3 does.
func errNotYet(c *claim, end, now time.Time) *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    "AccessDenied",
		Message: "Request is not yet valid",
		Fields: []Field{
			{"X-Amz-Date", strconv.FormatInt(c.time.UnixMilli(), 10)},
			{"Expires", end.UTC().Format(errorTime)},
			{"ServerTime", now.UTC().Format(errorTime)},
		},
	}
}

// Keys and signatures.

func errUnknownKey(accessKey string) *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    "InvalidAccessKeyId",
		Message: "The AWS Access Key Id you provided does not exist in our records.",
		Fields:  []Field{{"AWSAccessKeyId", accessKey}},
	}
}

func errToken() *Error {
	return &Error{
		Status:  http.StatusBadRequest,
		Code:    "InvalidToken",
		Message: "The provided token is malformed or otherwise invalid.",
	}
}

func errNotSigned(names []string) *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Code:    "AccessDenied",
		Message: "There were headers present in the request which were not signed",
		Fields:  []Field{{"HeadersNotSigned", cut(strings.Join(names, ", "), maxEcho)}},
	}
}

// errMismatch gives the client what it needs to find out what it signed differently. All of it is the client's own
// data; the signature that was expected is not in it.
func errMismatch(c *claim, s *scratch) *Error {
	canonical := s.canonical[:min(len(s.canonical), maxEcho)]
	return &Error{
		Status: http.StatusForbidden,
		Code:   "SignatureDoesNotMatch",
		Message: "The request signature we calculated does not match the signature you provided. " +
			"Check your key and signing method.",
		Fields: []Field{
			{"AWSAccessKeyId", c.accessKey},
			{"StringToSign", string(s.toSign)},
			{"SignatureProvided", cut(c.signature, 256)},
			{"StringToSignBytes", spaced(s.toSign)},
			{"CanonicalRequest", string(canonical)},
			{"CanonicalRequestBytes", spaced(canonical)},
		},
	}
}

// spaced spells b in hexadecimal, a space between bytes.
func spaced(b []byte) string {
	out := make([]byte, 0, 3*len(b))
	for i := range b {
		if i > 0 {
			out = append(out, ' ')
		}
		out = hex.AppendEncode(out, b[i:i+1])
	}
	return string(out)
}

// cut returns at most the first n bytes of s, in memory of its own.
func cut(s string, n int) string { return strings.Clone(s[:min(len(s), n)]) }
