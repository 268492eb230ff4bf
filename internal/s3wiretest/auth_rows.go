package s3wiretest

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// authCase is a request that must be refused, whatever it asks for.
type authCase struct {
	name string
	r    request
	want want
}

// signedOnly makes a row of a target that looks at signatures.
func signedOnly(name string, run func(t *testing.T, e *env)) row {
	return row{name, func(t *testing.T, e *env) {
		if e.AccessKey == "" {
			t.Skip("the target wants no signatures")
		}
		run(t, e)
	}}
}

// refuses makes a row of a case. The answer must be the same for an object that was never read, one that was, and none:
// it says nothing about what is there, or cached.
func refuses(section string, c authCase) row {
	return signedOnly(section+c.name, func(t *testing.T, e *env) {
		cold, warm := e.put(t, 10), e.put(t, 10)
		whole(warm).check(t, "the whole object", http.MethodGet, e.send(t, request{key: warm.key}))
		method := c.r.method
		if method == "" {
			method = http.MethodGet
		}
		for when, key := range map[string]string{"unread object": cold.key, "read object": warm.key, "no object": "none"} {
			r := c.r
			r.key = key
			req := e.build(t, e.Endpoint, r)
			c.want.check(t, when, req.Method, e.exchange(t, req))
		}
		whole(warm).check(t, "the object afterwards", http.MethodGet, e.send(t, request{key: warm.key}))
	})
}

func replaceAuth(old, new string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Authorization", strings.ReplaceAll(r.Header.Get("Authorization"), old, new))
	}
}

// badSignature spoils the signature, in header or query.
func badSignature(r *http.Request) {
	h := r.Header.Get("Authorization")
	if i := strings.Index(h, "Signature="); i >= 0 {
		r.Header.Set("Authorization", h[:i]+"Signature="+strings.Repeat("0a", 32))
	}
	if i := strings.Index(r.URL.RawQuery, "X-Amz-Signature="); i >= 0 {
		r.URL.RawQuery = r.URL.RawQuery[:i] + "X-Amz-Signature=" + strings.Repeat("0a", 32)
	}
}

// authRows are signatures in the Authorization header.
func (e *env) authRows() []row {
	mismatch := refused(http.StatusForbidden, "SignatureDoesNotMatch")
	denied := refused(http.StatusForbidden, "AccessDenied")
	malformed := refused(http.StatusBadRequest, "AuthorizationHeaderMalformed")
	skewed := refused(http.StatusForbidden, "RequestTimeTooSkewed", "RequestTime", "*", "ServerTime", "*",
		"MaxAllowedSkewMilliseconds", "900000")
	wrongSecret := func(s *signing) { s.secretKey = "wrong" + s.secretKey }
	cases := []authCase{
		{"A04-nothing", request{anonymous: true}, denied},
		{"A04-garbage-signature", request{tamper: badSignature}, mismatch},
		{"A04-wrong-secret", request{sign: wrongSecret}, mismatch},
		{"A04-wrong-secret-head", request{method: http.MethodHead, sign: wrongSecret}, mismatch},
		{"A04-empty-secret", request{sign: func(s *signing) { s.secretKey = "" }}, mismatch},
		{"A04-unknown-key", request{sign: func(s *signing) { s.accessKey = "UNKNOWNKEY" }},
			refused(http.StatusForbidden, "InvalidAccessKeyId", "AWSAccessKeyId", "UNKNOWNKEY")},
		{"A04-path-altered", request{tamper: func(r *http.Request) { r.URL.Path += "x"; r.URL.RawPath += "x" }}, mismatch},
		{"A04-query-altered", request{query: "x-id=GetObject",
			tamper: func(r *http.Request) { r.URL.RawQuery = "x-id=HeadObject" }}, mismatch},
		{"A04-query-added", request{tamper: func(r *http.Request) { r.URL.RawQuery = "x-id=GetObject" }}, mismatch},
		{"A04-method-altered", request{tamper: func(r *http.Request) { r.Method = http.MethodHead }}, mismatch},
		{"A04-header-altered", request{header: []string{"Range", "bytes=0-1"},
			tamper: func(r *http.Request) { r.Header.Set("Range", "bytes=0-8") }}, mismatch},
		{"A04-header-removed", request{header: []string{"If-Match", `"x"`},
			tamper: func(r *http.Request) { r.Header.Del("If-Match") }}, mismatch},
		{"A04-payload-hash-altered", request{tamper: func(r *http.Request) {
			r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		}}, mismatch},
		{"A04-host-altered", request{style: stylePath,
			tamper: func(r *http.Request) { r.Host = "elsewhere.example" }}, mismatch},
		{"A04-other-region", request{sign: func(s *signing) { s.region = "eu-none-1" }},
			refused(http.StatusBadRequest, "AuthorizationHeaderMalformed", "Region", e.Region)},
		{"A04-other-service", request{sign: func(s *signing) { s.service = "sqs" }}, malformed},
		{"A04-other-date-in-scope", request{tamper: func(r *http.Request) {
			date := r.Header.Get("X-Amz-Date")[:8]
			replaceAuth("/"+date+"/", "/20130524/")(r)
		}}, malformed},
		{"A04-nonsense", request{tamper: func(r *http.Request) {
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 nonsense")
		}}, malformed},
		{"A04-two-authorizations", request{tamper: func(r *http.Request) {
			r.Header.Add("Authorization", r.Header.Get("Authorization"))
		}}, refused(http.StatusBadRequest, "InvalidArgument")},
		{"A04-header-and-query", request{presign: 60, tamper: func(r *http.Request) {
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/s3/aws4_request, "+
				"SignedHeaders=host, Signature="+strings.Repeat("0a", 32))
		}}, refused(http.StatusBadRequest, "InvalidArgument")},
		{"A04-sigv2-header", request{anonymous: true,
			unsigned: []string{"Authorization", "AWS KEY:c2lnbmF0dXJlIG9mIGtleQ==", "Date", httpDate(time.Now())}},
			refused(http.StatusBadRequest, "InvalidRequest")},
		{"sigv2-query", request{anonymous: true, query: "AWSAccessKeyId=KEY&Signature=c2ln&Expires=4102444800"},
			refused(http.StatusBadRequest, "InvalidRequest")},
		{"sigv4a", request{tamper: replaceAuth("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256")},
			refused(http.StatusNotImplemented, "NotImplemented")},
		{"unsigned-amz-header", request{unsigned: []string{"x-amz-checksum-mode", "ENABLED"}},
			refused(http.StatusForbidden, "AccessDenied", "HeadersNotSigned", "x-amz-checksum-mode")},
		{"A03-16-minutes-ago", request{at: -16 * time.Minute}, skewed},
		{"A03-in-16-minutes", request{at: 16 * time.Minute}, skewed},
	}
	var rows []row
	for _, c := range cases {
		rows = append(rows, refuses("auth/", c))
	}
	good := func(name string, r request, w func(o *object) want) row {
		return signedOnly("auth/"+name, func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, r, w(o))
		})
	}
	some := func(o *object) want { return part(o, 2, 5) }
	return append(rows,
		good("A03-14-minutes-ago", request{at: -14 * time.Minute}, whole),
		good("A03-in-14-minutes", request{at: 14 * time.Minute}, whole),
		good("unsigned-range", request{unsigned: []string{"Range", "bytes=2-5"}}, some),
		good("signed-range", request{header: []string{"Range", "bytes=2-5"}}, some),
		good("unsigned-payload", request{sign: func(s *signing) { s.payload = "UNSIGNED-PAYLOAD" }}, whole),
		good("signed-accept-encoding", request{header: []string{"Accept-Encoding", "identity"}}, whole),
		good("folded-spaces-in-signed-header", request{header: []string{"x-amz-meta-note", "  a   b  "}}, whole),
		good("sorted-query", request{query: "x-id=GetObject&response-content-type=b&response-cache-control=a"},
			func(o *object) want { return whole(o).with("Content-Type", "b", "Cache-Control", "a") }),
	)
}

// presignedRows are signatures in the query.
func (e *env) presignedRows() []row {
	mismatch := refused(http.StatusForbidden, "SignatureDoesNotMatch")
	denied := refused(http.StatusForbidden, "AccessDenied")
	badQuery := refused(http.StatusBadRequest, "AuthorizationQueryParametersError")
	const week = 7 * 24 * 3600
	method := func(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }
	add := func(param string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery += "&" + param }
	}
	replace := func(old, new string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = strings.Replace(r.URL.RawQuery, old, new, 1) }
	}
	cases := []authCase{
		{"A03-expired", request{presign: week, at: -(week + 1) * time.Second},
			refused(http.StatusForbidden, "AccessDenied", "Message", "Request has expired")},
		{"A03-expired-a-minute-ago", request{presign: 60, at: -2 * time.Minute},
			refused(http.StatusForbidden, "AccessDenied", "Message", "Request has expired")},
		{"A03-good-for-too-long", request{presign: week + 1}, badQuery},
		{"A03-good-for-less-than-nothing", request{presign: -1}, badQuery},
		{"A03-good-for-no-number", request{presign: 60, tamper: replace("X-Amz-Expires=60", "X-Amz-Expires=soon")}, badQuery},
		{"A03-not-yet-valid", request{presign: 60, at: 20 * time.Minute}, denied},
		{"no-expiry", request{presign: 60, tamper: replace("X-Amz-Expires=60", "x=y")}, badQuery},
		{"other-algorithm", request{presign: 60, tamper: replace("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1")}, badQuery},
		{"A07-garbage-signature", request{presign: 60, tamper: badSignature}, mismatch},
		{"A07-get-as-head", request{presign: 60, tamper: method(http.MethodHead)}, mismatch},
		{"A07-get-as-put", request{presign: 60, tamper: method(http.MethodPut)}, mismatch},
		{"A07-get-as-delete", request{presign: 60, tamper: method(http.MethodDelete)}, mismatch},
		{"A07-head-as-get", request{method: http.MethodHead, presign: 60, tamper: method(http.MethodGet)}, mismatch},
		{"A07-x-id-added", request{presign: 60, tamper: add("x-id=GetObject")}, mismatch},
		{"A07-version-added", request{presign: 60, tamper: add("versionId=null")}, mismatch},
		{"A07-override-added", request{presign: 60, tamper: add("response-content-type=text%2Fhtml")}, mismatch},
		{"A07-path-altered", request{presign: 60,
			tamper: func(r *http.Request) { r.URL.Path += "x"; r.URL.RawPath += "x" }}, mismatch},
		{"A07-expiry-altered", request{presign: 60, tamper: replace("X-Amz-Expires=60", "X-Amz-Expires=61")}, mismatch},
		{"unknown-key", request{presign: 60, sign: func(s *signing) { s.accessKey = "UNKNOWNKEY" }},
			refused(http.StatusForbidden, "InvalidAccessKeyId", "AWSAccessKeyId", "UNKNOWNKEY")},
	}
	var rows []row
	for _, c := range cases {
		rows = append(rows, refuses("presigned/", c))
	}
	good := func(name string, r request, w func(o *object) want) row {
		return signedOnly("presigned/"+name, func(t *testing.T, e *env) {
			o := e.put(t, 10)
			e.expect(t, o, r, w(o))
		})
	}
	some := func(o *object) want { return part(o, 2, 5) }
	return append(rows,
		good("A07-get", request{presign: 60}, whole),
		good("A07-get-with-unsigned-range", request{presign: 60, unsigned: []string{"Range", "bytes=2-5"}}, some),
		good("A07-head", request{method: http.MethodHead, presign: 60}, whole),
		good("A07-head-with-unsigned-range", request{method: http.MethodHead, presign: 60,
			unsigned: []string{"Range", "bytes=2-5"}}, some),
		good("A03-a-week-an-hour-later", request{presign: week, at: -time.Hour}, whole),
		good("x-id", request{presign: 60, query: "x-id=GetObject"}, whole),
		good("conditions", request{presign: 60, unsigned: []string{"If-None-Match", "*"}}, notModified),
	)
}
