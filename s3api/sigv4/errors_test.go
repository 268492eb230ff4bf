package sigv4

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// base is a good request to take apart: a signed GET.
func base(t testing.TB) string {
	q := request{method: "GET", host: "h:9000", path: "/bucket/key", hash: emptyHash,
		headers: [][2]string{{"X-Amz-Content-Sha256", emptyHash}}}
	return q.signed(t, exampleTime)
}

// basePresigned is a good presigned GET.
func basePresigned(t testing.TB) string {
	q := request{method: "GET", host: "h:9000", path: "/bucket/key", hash: unsignedPayload, expires: time.Hour}
	return q.presigned(t, exampleTime)
}

// sub returns base or basePresigned with old replaced by new, which must be in it.
func sub(t testing.TB, raw, old, new string) string {
	t.Helper()
	if !strings.Contains(raw, old) {
		t.Fatalf("no %q in %s", old, raw)
	}
	return strings.Replace(raw, old, new, 1)
}

// without returns raw without the header line that starts with name.
func without(t testing.TB, raw, name string) string {
	t.Helper()
	i := strings.Index(raw, "\n"+name)
	if i < 0 {
		t.Fatalf("no %s in %s", name, raw)
	}
	j := i + 1 + strings.Index(raw[i+1:], "\n")
	return raw[:i] + raw[j:]
}

// withAuth returns base with another Authorization header.
func withAuth(t testing.TB, auth string) string {
	return sub(t, without(t, base(t), "Authorization"), "\n\n", "\nAuthorization: "+auth+"\n\n")
}

// withoutParam returns raw without a query parameter.
func withoutParam(t testing.TB, raw, name string) string {
	t.Helper()
	i := strings.Index(raw, name+"=")
	if i < 0 {
		t.Fatalf("no %s in %s", name, raw)
	}
	j := i + strings.IndexAny(raw[i:], "& ")
	return raw[:i] + "x=" + raw[j:]
}

func TestErrors(t *testing.T) {
	b, p := base(t), basePresigned(t)
	const (
		good   = "Credential=" + exampleKey + "/20130524/us-east-1/s3/aws4_request"
		cred   = exampleKey + "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
		sixty4 = "0000000000000000000000000000000000000000000000000000000000000000"
		names  = "SignedHeaders=host;x-amz-content-sha256;x-amz-date"

		malformed  = "AuthorizationHeaderMalformed"
		queryError = "AuthorizationQueryParametersError"
		mismatch   = "SignatureDoesNotMatch"
		tooLarge   = "RequestHeaderSectionTooLarge"
	)
	scope := func(scope string) string { return sub(t, b, "20130524/us-east-1/s3/aws4_request", scope) }
	for _, c := range []struct {
		name, raw string
		status    int
		code      string
		message   string // a part of it
		fields    []Field
	}{
		// No authentication, or several.
		{"anonymous", without(t, b, "Authorization"), 403, "AccessDenied", "Access Denied", nil},
		{"empty header", withAuth(t, ""), 403, "AccessDenied", "Access Denied", nil},
		{"two headers", sub(t, b, "\n\n", "\nAuthorization: Basic eDp5\n\n"),
			400, "InvalidArgument", "Only one", nil},
		{"two empty headers", sub(t, withAuth(t, ""), "\n\n", "\nAuthorization:\n\n"),
			400, "InvalidArgument", "Only one", nil},
		{"the header twice", sub(t, b, "\n\n", "\n"+regexp.MustCompile("Authorization: .*").FindString(b)+"\n\n"),
			400, "InvalidArgument", "Only one", nil},
		{"header and query", sub(t, p, "\n\n", "\nAuthorization: AWS4-HMAC-SHA256 "+good+"\n\n"),
			400, "InvalidArgument", "Only one auth mechanism allowed", []Field{{"ArgumentName", "Authorization"}}},
		{"header and a part of a query", sub(t, b, "/bucket/key", "/bucket/key?X%2DAmz-Signature=1"),
			400, "InvalidArgument", "Only one", nil},
		{"header and SigV2 query", sub(t, b, "/bucket/key", "/bucket/key?AWSAccessKeyId=1"),
			400, "InvalidArgument", "Only one", nil},

		// Other mechanisms.
		{"SigV2 header", withAuth(t, "AWS "+exampleKey+":c2lnbmF0dXJl"),
			400, "InvalidRequest", "AWS4-HMAC-SHA256", nil},
		{"SigV2 header", withAuth(t, "AWS "+exampleKey+":c2lnbmF0dXJl"),
			400, "InvalidRequest", "signature_version='s3v4'", nil},
		{"SigV2 query", "GET /b/k?AWSAccessKeyId=A&Signature=s&Expires=1 HTTP/1.1\nHost: h\n\n",
			400, "InvalidRequest", "signature_version='s3v4'", nil},
		{"SigV4A header", withAuth(t, "AWS4-ECDSA-P256-SHA256 "+good),
			501, "NotImplemented", "AWS4-HMAC-SHA256", nil},
		{"SigV4A query", sub(t, p, "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"),
			501, "NotImplemented", "AWS4-HMAC-SHA256", nil},
		{"SigV4A chunks", strings.ReplaceAll(b, emptyHash, streamingECDSA), 501, "NotImplemented", "", nil},
		{"basic", withAuth(t, "Basic eDp5"), 400, "InvalidArgument", "Unsupported Authorization Type", nil},
		{"bearer", withAuth(t, "Bearer eDp5"), 400, "InvalidArgument", "Unsupported Authorization Type", nil},
		{"another algorithm", withAuth(t, "AWS4-HMAC-SHA512 "+good), 400, "InvalidArgument", "Unsupported Authorization Type",
			[]Field{{"ArgumentName", "Authorization"}, {"ArgumentValue", "AWS4-HMAC-SHA512"}}},
		{"one word", withAuth(t, "AWS4-HMAC-SHA256"), 400, "InvalidArgument",
			"Authorization header is invalid -- one and only one ' ' (space) required.",
			[]Field{{"ArgumentName", "Authorization"}, {"ArgumentValue", "AWS4-HMAC-SHA256"}}},

		// The header's form.
		{"two components", withAuth(t, "AWS4-HMAC-SHA256 "+good+", Signature="+sixty4),
			400, malformed,
			"the authorization header requires three components: Credential, SignedHeaders, and Signature.", nil},
		{"four components", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+",Signature="+sixty4+",Extra=1"),
			400, malformed, "three components", nil},
		{"no credential", withAuth(t, "AWS4-HMAC-SHA256 Key=x,"+names+",Signature="+sixty4),
			400, malformed, "missing Credential.", nil},
		{"no signed headers", withAuth(t, "AWS4-HMAC-SHA256 "+good+",Headers=host,Signature="+sixty4),
			400, malformed, "missing SignedHeaders.", nil},
		{"no signature", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+",Sign="+sixty4),
			400, malformed, "missing Signature.", nil},
		{"an empty component", withAuth(t, "AWS4-HMAC-SHA256 Credential=,"+names+",Signature="+sixty4),
			400, malformed, `the authorization component "Credential=" is malformed.`, nil},
		{"a component without a value", withAuth(t, "AWS4-HMAC-SHA256 "+good+", SignedHeaders-host, Signature="+sixty4),
			400, malformed, `the authorization component "SignedHeaders-host" is malformed.`, nil},
		{"a component twice", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+","+names),
			400, malformed, `the authorization component "SignedHeaders=`, nil},
		{"trailing comma", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+","),
			400, malformed, `component "" is malformed`, nil},
		{"names in upper case", sub(t, b, "SignedHeaders=host", "SignedHeaders=Host"),
			400, malformed, "SignedHeaders", nil},
		{"a name twice", sub(t, b, "SignedHeaders=host", "SignedHeaders=host;host"),
			400, malformed, "SignedHeaders", nil},
		{"an empty name", sub(t, b, "SignedHeaders=host", "SignedHeaders=host;"),
			400, malformed, "SignedHeaders", nil},
		{"a name with a space", sub(t, b, "SignedHeaders=host", "SignedHeaders=ho st"),
			400, malformed, "SignedHeaders", nil},

		// The scope.
		{"too few parts", scope("20130524/us-east-1/aws4_request"), 400, malformed, "mal-formed", nil},
		{"no parts", sub(t, b, good, "Credential=x"), 400, malformed, "mal-formed", nil},
		{"no access key", sub(t, b, exampleKey, ""), 400, malformed, "mal-formed", nil},
		{"a long access key", sub(t, b, exampleKey, strings.Repeat("A", 600)), 400, malformed, "mal-formed", nil},
		{"a byte that is not ASCII", sub(t, b, exampleKey, "é"), 400, malformed, "mal-formed", nil},
		{"region", scope("20130524/us-east-2/s3/aws4_request"), 400, malformed,
			"The authorization header is malformed; the region 'us-east-2' is wrong; expecting 'us-east-1'",
			[]Field{{"Region", "us-east-1"}}},
		{"no region", scope("20130524//s3/aws4_request"), 400, malformed, "mal-formed", nil},
		{"service", scope("20130524/us-east-1/sts/aws4_request"), 400, malformed,
			`incorrect service "sts". This endpoint belongs to "s3".`, []Field{}},
		{"terminator", scope("20130524/us-east-1/s3/aws5_request"), 400, malformed,
			`incorrect terminal "aws5_request". This endpoint uses "aws4_request".`, []Field{}},
		{"too many parts", scope("20130524/us-east-1/s3/extra/things"), 400, malformed, "mal-formed", []Field{}},
		{"date", scope("20130525/us-east-1/s3/aws4_request"), 400, malformed,
			`Invalid credential date "20130525". This date is not the same as X-Amz-Date: "20130524".`, []Field{}},
		{"a date of eight letters", scope("2013May4/us-east-1/s3/aws4_request"),
			400, malformed, "incorrect date format", []Field{}},
		{"date form", scope("2013-05-24/us-east-1/s3/aws4_request"), 400, malformed, "incorrect date format", nil},

		// The time.
		{"no date", without(t, b, "X-Amz-Date"), 403, "AccessDenied", "valid Date or x-amz-date", nil},
		{"another form of date", sub(t, b, "X-Amz-Date: 20130524T000000Z", "X-Amz-Date: Fri, 24 May 2013 00:00:00 GMT"),
			403, "AccessDenied", "valid Date or x-amz-date", nil},
		{"two dates", sub(t, b, "\nX-Amz-Date:", "\nX-Amz-Date: 20130524T000000Z\nX-Amz-Date:"),
			403, "AccessDenied", "valid Date or x-amz-date", nil},
		{"a bad Date", sub(t, b, "X-Amz-Date: 20130524T000000Z", "Date: yesterday"),
			403, "AccessDenied", "valid Date or x-amz-date", nil},

		// What the client says of the body.
		{"no hash", without(t, b, "X-Amz-Content-Sha256"),
			400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256", nil},
		{"an empty hash", sub(t, b, "X-Amz-Content-Sha256: "+emptyHash, "X-Amz-Content-Sha256:"),
			400, "InvalidRequest", "Missing required header", nil},
		{"a bad hash", sub(t, b, "X-Amz-Content-Sha256: "+emptyHash, "X-Amz-Content-Sha256: g"+emptyHash[1:]),
			400, "InvalidArgument",
			"x-amz-content-sha256 must be",
			[]Field{{"ArgumentName", "x-amz-content-sha256"}, {"ArgumentValue", "g" + emptyHash[1:]}}},
		{"a word", sub(t, b, "X-Amz-Content-Sha256: "+emptyHash, "X-Amz-Content-Sha256: unsigned-payload"),
			400, "InvalidArgument", "must be", nil},
		{"two hashes", sub(t, b, "\nX-Amz-Content-Sha256:",
			"\nX-Amz-Content-Sha256: "+emptyHash+"\nX-Amz-Content-Sha256:"),
			400, "InvalidArgument", "must be", nil},

		// What must be signed.
		{"host not signed", sub(t, b, "SignedHeaders=host;", "SignedHeaders="),
			403, "AccessDenied", "not signed", []Field{{"HeadersNotSigned", "host"}}},
		{"date not signed", sub(t, b, ";x-amz-date", ""),
			403, "AccessDenied", "not signed", []Field{{"HeadersNotSigned", "x-amz-date"}}},
		{"hash not signed", sub(t, b, ";x-amz-content-sha256", ""),
			403, "AccessDenied", "not signed", []Field{{"HeadersNotSigned", "x-amz-content-sha256"}}},
		{"several not signed", sub(t, b, "\n\n",
			"\nx-amz-meta-b: 1\nX-AMZ-ACL: public-read\nx-amzn-trace-id: 1\nRange: bytes=0-1\n\n"),
			403, "AccessDenied",
			"There were headers present in the request which were not signed",
			[]Field{{"HeadersNotSigned", "x-amz-acl, x-amz-meta-b"}}},
		{"hundreds not signed", sub(t, b, "\n\n",
			strings.ReplaceAll(strings.TrimPrefix(manyNames(900), "host"), ";x", ": 1\nx-amz-")[3:]+": 1\n\n"),
			403, "AccessDenied", "not signed", nil},
		{"another signed in its place", sub(t, sub(t, b, ";x-amz-date", ";x-amz-date;x-amz-meta-a"),
			"\n\n", "\nx-amz-meta-b: 1\n\n"),
			403, "AccessDenied", "not signed", []Field{{"HeadersNotSigned", "x-amz-meta-b"}}},
		{"presigned, header added", sub(t, p, "\n\n", "\nx-amz-acl: public-read\n\n"),
			403, "AccessDenied", "not signed", []Field{{"HeadersNotSigned", "x-amz-acl"}}},
		{"presigned, hash added", sub(t, p, "\n\n", "\nx-amz-content-sha256: "+emptyHash+"\n\n"),
			403, "AccessDenied", "not signed", nil},

		// Key and signature.
		{"unknown key", sub(t, b, exampleKey, "AKIAUNKNOWN"),
			403, "InvalidAccessKeyId", "does not exist in our records", []Field{{"AWSAccessKeyId", "AKIAUNKNOWN"}}},
		{"key with slashes", sub(t, b, exampleKey, "a/b"),
			403, "InvalidAccessKeyId", "", []Field{{"AWSAccessKeyId", "a/b"}}},
		{"garbage", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+",Signature=garbage"),
			403, mismatch, "does not match", nil},
		{"a long signature", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+",Signature="+strings.Repeat("0", 9000)),
			403, mismatch, "does not match", nil},
		{"a digit more", b[:strings.Index(b, "Signature=")+74] + "0" + b[strings.Index(b, "Signature=")+74:],
			403, mismatch, "", nil},
		{"zeros", withAuth(t, "AWS4-HMAC-SHA256 "+good+","+names+",Signature="+sixty4),
			403, mismatch, "does not match", nil},

		// The query's form.
		{"only an algorithm", "GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256 HTTP/1.1\nHost: h\n\n", 400, queryError,
			"requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, " +
				"X-Amz-SignedHeaders, and X-Amz-Expires", nil},
		{"no algorithm", withoutParam(t, p, "X-Amz-Algorithm"), 400, queryError, "requires", nil},
		{"no credential", withoutParam(t, p, "X-Amz-Credential"), 400, queryError, "requires", nil},
		{"no date", withoutParam(t, p, "X-Amz-Date"), 400, queryError, "requires", nil},
		{"no expires", withoutParam(t, p, "X-Amz-Expires"), 400, queryError, "requires", nil},
		{"no signed headers", withoutParam(t, p, "X-Amz-SignedHeaders"), 400, queryError, "requires", nil},
		{"no signature", withoutParam(t, p, "X-Amz-Signature"), 400, queryError, "requires", nil},
		{"algorithm", sub(t, p, "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
			400, queryError, `X-Amz-Algorithm only supports "AWS4-HMAC-SHA256 and AWS4-ECDSA-P256-SHA256"`, nil},
		{"twice", sub(t, p, "X-Amz-Date=", "X-Amz-Date=20130524T000000Z&X-Amz-Date="),
			400, queryError, "only once", nil},
		{"the signature twice", sub(t, p, "X-Amz-Signature=", "X-Amz-Signature=0&X-Amz-Signature="),
			400, queryError, "only once", nil},
		{"date form", sub(t, p, "X-Amz-Date=20130524T000000Z", "X-Amz-Date=2013-05-24T00:00:00Z"),
			400, queryError, "ISO8601 Long Format", nil},
		{"credential", sub(t, p, cred, exampleKey),
			400, queryError, "Error parsing the X-Amz-Credential parameter; the Credential is mal-formed", nil},
		{"credential with a line break", sub(t, p, "us-east-1", "us-east-1%0A"), 400, queryError, "mal-formed", nil},
		{"names with a line break", sub(t, p, "X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=host%0Ax"),
			400, queryError, "X-Amz-SignedHeaders", nil},
		{"no names", sub(t, p, "X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders="),
			400, queryError, "X-Amz-SignedHeaders", nil},
		{"region", sub(t, p, "us-east-1", "eu-west-1"), 400, queryError,
			"Error parsing the X-Amz-Credential parameter; the region 'eu-west-1' is wrong; expecting 'us-east-1'",
			[]Field{{"Region", "us-east-1"}}},
		{"service", sub(t, p, "%2Fs3%2F", "%2Fec2%2F"), 400, queryError, `incorrect service "ec2"`, nil},
		{"scope date", sub(t, p, "%2F20130524%2F", "%2F20130523%2F"),
			400, queryError, `Invalid credential date "20130523". This date is not`, []Field{}},
		{"expires, a word", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=hour"),
			400, queryError, "should be a number", nil},
		{"expires, empty", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires="),
			400, queryError, "should be a number", nil},
		{"expires, a sign", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=-"),
			400, queryError, "should be a number", nil},
		{"expires, a plus", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=%2B3600"),
			400, queryError, "should be a number", nil},
		{"expires, a fraction", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=3600.0"),
			400, queryError, "should be a number", nil},
		{"expires, negative", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=-1"),
			400, queryError, "must be non-negative", nil},
		{"expires, very negative", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=-99999999999999999999"),
			400, queryError, "must be non-negative", nil},
		{"expires, a second too many", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=604801"),
			400, queryError, "less than a week", nil},
		{"expires, beyond 64 bits", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=99999999999999999999"),
			400, queryError, "less than a week", nil},
		{"expires, more than was signed", sub(t, p, "X-Amz-Expires=3600", "X-Amz-Expires=3601"),
			403, mismatch, "", nil},
		{"an unknown payload", sub(t, p, "X-Amz-Expires", "X-Amz-Content-Sha256=x&X-Amz-Expires"),
			400, "InvalidArgument", "must be", nil},
		{"presigned, a token that was not signed",
			sub(t, p, "X-Amz-Expires", "X-Amz-Security-Token=token&X-Amz-Expires"),
			400, "InvalidToken", "The provided token is malformed", nil},
		{"presigned, unknown key", sub(t, p, exampleKey, "AKIAUNKNOWN"),
			403, "InvalidAccessKeyId", "", []Field{{"AWSAccessKeyId", "AKIAUNKNOWN"}}},

		// What cannot be parsed or is too large.
		{"asterisk", "OPTIONS * HTTP/1.1\nHost: h\n\n", 400, "InvalidURI", "parse", nil},
		{"malformed query", sub(t, b, "/bucket/key", "/bucket/key?a=%zz"), 400, "InvalidURI", "parse", nil},
		{"malformed name", sub(t, b, "/bucket/key", "/bucket/key?%"), 400, "InvalidURI", "parse", nil},
		{"malformed credential", sub(t, p, "%2Fs3%2F", "%2Fs3%zz"), 400, "InvalidURI", "parse", nil},
		{"a long target", sub(t, b, "/bucket/key", "/bucket/"+strings.Repeat("k", maxTarget)),
			400, tooLarge, "exceeds", nil},
		{"thousands of parameters", sub(t, b, "/bucket/key", "/bucket/key?"+strings.Repeat("a&", 5000)),
			400, tooLarge, "exceeds", nil},
		{"hundreds of names", sub(t, b, "SignedHeaders=host", "SignedHeaders="+manyNames(maxSignedHeaders)),
			400, tooLarge, "exceeds", nil},
		{"thousands of names", sub(t, b, "SignedHeaders=host", "SignedHeaders="+manyNames(5000)),
			400, tooLarge, "exceeds", nil},
		{"a large request", sub(t, b, "/bucket/key", "/bucket/"+strings.Repeat("k", maxTarget-100)),
			403, mismatch, "", nil},
		{"a large header", sub(t, sub(t, b, "SignedHeaders=host", "SignedHeaders=host;range"),
			"\n\n", "\nRange: "+strings.Repeat("x", maxCanonical)+"\n\n"),
			400, tooLarge, "exceeds", nil},
		{"long names", sub(t, b, "SignedHeaders=host", "SignedHeaders=host;"+strings.Repeat("n", maxCanonical)),
			400, tooLarge, "exceeds", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := refusal(t, New(exampleConfig()), parse(t, c.raw), exampleTime)
			if e.Status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.message) {
				t.Errorf("got %d %s %q, want %d %s %q", e.Status, e.Code, e.Message, c.status, c.code, c.message)
			}
			if c.fields != nil && fmt.Sprint(e.Fields) != fmt.Sprint(c.fields) {
				t.Errorf("fields %q, want %q", e.Fields, c.fields)
			}
			for _, f := range e.Fields {
				if max := maxEcho; len(f.Value) > max && !strings.HasSuffix(f.Name, "Bytes") || len(f.Value) > 3*max {
					t.Errorf("%d bytes of %s", len(f.Value), f.Name)
				}
				if strings.Contains(f.Value, exampleSecret) {
					t.Errorf("the secret in %s", f.Name)
				}
			}
		})
	}
	// The requests that were changed are good themselves.
	for _, raw := range []string{b, p} {
		if _, err := New(exampleConfig()).verify(parse(t, raw), exampleTime); err != nil {
			t.Error(err)
		}
	}
}

func manyNames(n int) string {
	names := []string{"host"}
	for i := range n {
		names = append(names, fmt.Sprintf("x%06d", i))
	}
	return strings.Join(names, ";")
}

// Field case A03: the life of a presigned URL is not the skew between clocks.
func TestTime(t *testing.T) {
	q := request{method: "GET", host: "h", path: "/b/k", hash: emptyHash,
		headers: [][2]string{{"X-Amz-Content-Sha256", emptyHash}}}
	header := q.signed(t, exampleTime)
	presigned := func(expires time.Duration) string {
		q := request{method: "GET", host: "h", path: "/b/k", hash: unsignedPayload, expires: expires}
		return q.presigned(t, exampleTime)
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		name, raw string
		later     time.Duration // than the request's date
		code      string        // "" for good
		message   string
		fields    string
	}{
		{"in time", header, 0, "", "", ""},
		{"14 minutes old", header, 14 * time.Minute, "", "", ""},
		{"15 minutes old", header, 15 * time.Minute, "", "", ""},
		{"15 minutes ahead", header, -15 * time.Minute, "", "", ""},
		{"16 minutes old", header, 16 * time.Minute, "RequestTimeTooSkewed",
			"The difference between the request time and the current time is too large.",
			"[{RequestTime 20130524T000000Z} {ServerTime 2013-05-24T00:16:00Z} {MaxAllowedSkewMilliseconds 900000}]"},
		{"16 minutes ahead", header, -16 * time.Minute, "RequestTimeTooSkewed", "",
			"[{RequestTime 20130524T000000Z} {ServerTime 2013-05-23T23:44:00Z} {MaxAllowedSkewMilliseconds 900000}]"},
		{"a century old", header, 100 * 365 * day, "RequestTimeTooSkewed", "", ""},

		{"a week, an hour later", presigned(7 * day), time.Hour, "", "", ""},
		{"a week, a week later", presigned(7 * day), 7 * day, "", "", ""},
		{"a week, a second too late", presigned(7 * day), 7*day + time.Second, "AccessDenied", "Request has expired",
			"[{X-Amz-Expires 604800} {Expires 2013-05-31T00:00:00Z} {ServerTime 2013-05-31T00:00:01Z}]"},
		{"5 s, 6 s later", presigned(5 * time.Second), 6 * time.Second, "AccessDenied", "Request has expired", ""},
		{"no life at all", presigned(0), 0, "", "", ""},
		{"no life at all, a second later", presigned(0), time.Second, "AccessDenied", "Request has expired", ""},
		{"10 minutes ahead", presigned(time.Hour), -10 * time.Minute, "", "", ""},
		{"20 minutes ahead", presigned(time.Hour), -20 * time.Minute, "AccessDenied", "Request is not yet valid",
			"[{X-Amz-Date 1369353600000} {Expires 2013-05-24T01:00:00Z} {ServerTime 2013-05-23T23:40:00Z}]"},
	} {
		_, err := New(exampleConfig()).verify(parse(t, c.raw), exampleTime.Add(c.later))
		switch {
		case c.code == "" && err != nil, c.code != "" && err == nil:
			t.Errorf("%s: %v", c.name, err)
		case err != nil && (err.Status != 403 || err.Code != c.code || !strings.Contains(err.Message, c.message)):
			t.Errorf("%s: %d %v", c.name, err.Status, err)
		case c.fields != "" && fmt.Sprint(err.Fields) != c.fields:
			t.Errorf("%s: %v", c.name, err.Fields)
		}
	}
}

// A failed request gets to know what was signed on this side, and nothing that is secret.
func TestMismatchExplains(t *testing.T) {
	v := New(exampleConfig())
	raw := base(t)
	id, err := v.verify(parse(t, raw), exampleTime)
	if err != nil {
		t.Fatal(err)
	}
	e := refusal(t, v, parse(t, sub(t, raw, "/bucket/key", "/bucket/kez")), exampleTime)
	var names []string
	for _, f := range e.Fields {
		names = append(names, f.Name)
	}
	if got, want := strings.Join(names, " "), "AWSAccessKeyId StringToSign SignatureProvided StringToSignBytes "+
		"CanonicalRequest CanonicalRequestBytes"; got != want {
		t.Errorf("fields %s, want %s", got, want)
	}
	if got := field(e, "SignatureProvided"); got != id.Signature {
		t.Errorf("SignatureProvided %q", got)
	}
	if got := field(e, "StringToSign"); !strings.HasPrefix(got, "AWS4-HMAC-SHA256\n20130524T000000Z\n"+id.Scope+"\n") {
		t.Errorf("StringToSign %q", got)
	}
	if got := field(e, "StringToSignBytes"); !strings.HasPrefix(got, "41 57 53 34 2d 48 4d 41 43 ") {
		t.Errorf("StringToSignBytes %q", got)
	}
	want := "GET\n/bucket/kez\n\nhost:h:9000\nx-amz-content-sha256:" + emptyHash + "\nx-amz-date:20130524T000000Z\n\n" +
		"host;x-amz-content-sha256;x-amz-date\n" + emptyHash
	if got := field(e, "CanonicalRequest"); got != want {
		t.Errorf("CanonicalRequest %q, want %q", got, want)
	}
	// The expected signature would be a signature for the asking.
	expected := (&request{method: "GET", host: "h:9000", path: "/bucket/kez", hash: emptyHash,
		headers: [][2]string{{"X-Amz-Content-Sha256", emptyHash}}}).signed(t, exampleTime)
	other, err := v.verify(parse(t, expected), exampleTime)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(e.Fields, e), other.Signature) {
		t.Error("the expected signature is in the error")
	}
	if strings.Contains(e.Error(), id.Signature) {
		t.Error("a signature in the text of the error")
	}
}

// Field case A04: nothing is known where nothing is configured. The requests are signed with the secret that an unset
// one would be.
func TestFailsClosed(t *testing.T) {
	q := request{method: "GET", host: "h", path: "/b/k", hash: emptyHash, expires: time.Hour, noSecret: true}
	q.headers = [][2]string{{"X-Amz-Content-Sha256", emptyHash}}
	for name, config := range map[string]Config{
		"no Lookup":   {},
		"no secret":   {Lookup: func(string) (string, string, bool) { return "", "", true }},
		"no such key": {Lookup: func(string) (string, string, bool) { return "", "", false }},
	} {
		v := New(config)
		for _, raw := range []string{q.signed(t, exampleTime), q.presigned(t, exampleTime)} {
			if e := refusal(t, v, parse(t, raw), exampleTime); e.Status != 403 || e.Code != "InvalidAccessKeyId" {
				t.Errorf("%s: %v", name, e)
			}
		}
	}
}

func TestSessionToken(t *testing.T) {
	config := exampleConfig()
	config.Lookup = func(string) (string, string, bool) { return exampleSecret, "the+token/", true }
	withToken := New(config)
	plain := New(exampleConfig())

	q := request{method: "GET", host: "h", path: "/b/k", hash: emptyHash, expires: time.Hour}
	q.headers = [][2]string{{"X-Amz-Content-Sha256", emptyHash}}
	r := q
	r.headers = append(r.headers[:1:1], [2]string{"X-Amz-Security-Token", "the+token/"})
	bad := q
	bad.headers = append(r.headers[:1:1], [2]string{"X-Amz-Security-Token", "another"})
	for _, c := range []struct {
		name string
		v    *Verifier
		raw  string
		ok   bool
	}{
		{"with it", withToken, r.signed(t, exampleTime), true},
		{"with it, presigned", withToken, r.presigned(t, exampleTime), true},
		{"without it", withToken, q.signed(t, exampleTime), false},
		{"without it, presigned", withToken, q.presigned(t, exampleTime), false},
		{"with another", withToken, bad.signed(t, exampleTime), false},
		{"with another, presigned", withToken, bad.presigned(t, exampleTime), false},
		{"where there is none", plain, r.signed(t, exampleTime), false},
		{"none where there is none", plain, q.signed(t, exampleTime), true},
	} {
		_, err := c.v.verify(parse(t, c.raw), exampleTime)
		if c.ok && err != nil || !c.ok && (err == nil || err.Code != "InvalidToken" || err.Status != 400) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// Whether a token is the right one is told to holders of the secret only.
	forged := sub(t, bad.signed(t, exampleTime), "/b/k", "/b/x")
	if e := refusal(t, withToken, parse(t, forged), exampleTime); e.Code != "SignatureDoesNotMatch" {
		t.Errorf("token told without a signature: %v", e)
	}
}

func TestHasAuth(t *testing.T) {
	for _, c := range []struct {
		target, header string
		want           bool
	}{
		{"/b/k", "", false},
		{"/b/k?prefix=X-Amz-Signature&Expires=1&X-Amz-Date=1", "", false},
		{"/b/k?x-amz-signature=1", "", false},
		{"/b/k?X-Amz-Signature=1", "", true},
		{"/b/k?a=1&X-Amz-Algorithm", "", true},
		{"/b/k?X%2dAmz%2dCredential=", "", true},
		{"http://h/b/k?X-Amz-Credential=1", "", true},
		{"/b/k?AWSAccessKeyId=1", "", true},
		{"/b/k?Signature=1", "", true},
		{"/b/k?%zz", "", true},
		{"/b/k", "\nAuthorization: Basic x", true},
		{"/b/k", "\nAuthorization:", false},
		{"/b/k", "\nAuthorization:\nAuthorization: AWS4-HMAC-SHA256", true},
	} {
		r := parse(t, "GET "+c.target+" HTTP/1.1\nHost: h"+c.header+"\n\n")
		if got := HasAuth(r); got != c.want {
			t.Errorf("%s%q: %v", c.target, c.header, got)
		}
		// What HasAuth lets pass as anonymous, Verify refuses as such.
		if e := refusal(t, New(exampleConfig()), r, exampleTime); (e.Message == "Access Denied") == c.want {
			t.Errorf("%s%q: %v", c.target, c.header, e)
		}
	}
}
