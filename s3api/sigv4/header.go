package sigv4

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// readHeader reads the Authorization header:
//
//	AWS4-HMAC-SHA256 Credential=AKID/20060102/region/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=…
func (v *Verifier) readHeader(c *claim, header string, r *http.Request, now time.Time) *Error {
	scheme, rest, ok := strings.Cut(header, " ")
	if !ok {
		return errNoSpace(header)
	}
	switch scheme {
	case algorithm:
	case algorithmECDSA:
		return errSigV4A()
	case "AWS":
		return errSigV2()
	default:
		return errScheme(scheme)
	}
	if strings.Count(rest, ",") != 2 {
		return c.malformed("the authorization header requires three components: Credential, SignedHeaders, and Signature.")
	}
	var credential string
	for range 3 {
		var part string
		part, rest, _ = strings.Cut(rest, ",")
		part = strings.Trim(part, " \t")
		name, value, _ := strings.Cut(part, "=")
		var field *string
		switch name {
		case "Credential":
			field = &credential
		case "SignedHeaders":
			field = &c.signedHeaders
		case "Signature":
			field = &c.signature
		}
		if value == "" || field != nil && *field != "" {
			return c.malformed(fmt.Sprintf("the authorization component %q is malformed.", cut(part, 256)))
		}
		if field != nil {
			*field = value
		}
	}
	switch {
	case credential == "":
		return c.malformed("missing Credential.")
	case c.signedHeaders == "":
		return c.malformed("missing SignedHeaders.")
	case c.signature == "":
		return c.malformed("missing Signature.")
	}

	if err := readDate(c, r.Header); err != nil {
		return err
	}
	if err := v.readCredential(c, credential); err != nil {
		return err
	}
	if d := now.Sub(c.time); d > maxSkew || d < -maxSkew {
		return errSkewed(c, now)
	}

	// The header may be repeated; the list of its values is then no hash, and refused as a bad one.
	c.contentSHA256 = only(r.Header["X-Amz-Content-Sha256"])
	if c.contentSHA256 == "" {
		return errNoContentSHA256()
	}
	c.token = only(r.Header["X-Amz-Security-Token"])
	return nil
}

// readDate takes the time of the request from X-Amz-Date, or from Date where there is none. Date may be an HTTP date
// (RFC 9110 section 5.6.7) or spelled as X-Amz-Date.
func readDate(c *claim, h http.Header) *Error {
	if amz := h["X-Amz-Date"]; len(amz) > 0 {
		var ok bool
		if c.time, ok = parseTime(only(amz)); !ok {
			return errDate()
		}
		c.date = amz[0]
		return nil
	}
	date := only(h["Date"])
	t, ok := parseTime(date)
	if !ok {
		var err error
		if t, err = http.ParseTime(date); err != nil {
			return errDate()
		}
	}
	c.time, c.date = t, t.UTC().Format(timeFormat)
	return nil
}

// readCredential takes the access key and the scope apart and checks the scope against c.date and the configuration.
func (v *Verifier) readCredential(c *claim, credential string) *Error {
	const shape = "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
	if len(credential) > maxCredential {
		return c.malformed(shape)
	}
	// From the right: an access key may hold slashes, a scope can't.
	rest, term, ok1 := cutLast(credential)
	rest, service, ok2 := cutLast(rest)
	rest, region, ok3 := cutLast(rest)
	accessKey, date, ok4 := cutLast(rest)
	if !ok1 || !ok2 || !ok3 || !ok4 || accessKey == "" || !isGraphic(credential) {
		return c.malformed(shape)
	}
	c.accessKey, c.scopeDate, c.region = accessKey, date, region
	c.scope = credential[len(accessKey)+1:]
	switch {
	case term != terminator && strings.Contains(accessKey, "/"):
		return c.malformed(shape)
	case term != terminator:
		return c.malformed(fmt.Sprintf("incorrect terminal %q. This endpoint uses %q.", term, terminator))
	case service != v.config.Service:
		return c.malformed(fmt.Sprintf("incorrect service %q. This endpoint belongs to %q.", service, v.config.Service))
	case date != c.date[:len("20060102")]:
		return c.badDate(date)
	case region == "":
		return c.malformed(shape)
	case v.config.Region != "" && region != v.config.Region:
		// Clients (the SDKs among them) learn our region here and try again.
		e := c.malformed(fmt.Sprintf("the region '%s' is wrong; expecting '%s'", region, v.config.Region))
		e.Fields = []Field{{"Region", v.config.Region}}
		return e
	}
	return nil
}

// badDate is the error of a scope whose date is not that of the request.
func (c *claim) badDate(date string) *Error {
	if len(date) != len("20060102") || strings.Trim(date, "0123456789") != "" {
		return c.malformed(fmt.Sprintf(
			"incorrect date format %q. This date in the credential must be in the format \"yyyyMMdd\".", date))
	}
	message := fmt.Sprintf("Invalid credential date %q. This date is not the same as X-Amz-Date: %q.",
		date, c.date[:len(date)])
	if c.presigned {
		return errQuery(message)
	}
	return c.malformed(message)
}

// parseTime parses "20060102T150405Z". It does so by hand because time.Parse takes a twentieth of a verification.
func parseTime(s string) (time.Time, bool) {
	if len(s) != len(timeFormat) || s[8] != 'T' || s[15] != 'Z' {
		return time.Time{}, false
	}
	valid := true
	number := func(from, to int) int {
		n := 0
		for _, c := range []byte(s[from:to]) {
			valid = valid && '0' <= c && c <= '9'
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := number(0, 4), time.Month(number(4, 6)), number(6, 8)
	hour, minute, second := number(9, 11), number(11, 13), number(13, 15)
	t := time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	// time.Date takes the 31st of June for the 1st of July.
	return t, valid && t.Month() == month && t.Day() == day && hour < 24 && minute < 60 && second < 60
}

// only returns the value of a header that must not be repeated: of several, the list, which is no valid value of any of
// the headers that this is used for.
func only(values []string) string {
	switch len(values) {
	case 0:
		return ""
	case 1:
		return values[0]
	}
	return strings.Join(values, ",")
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// isGraphic says whether s is visible ASCII throughout. What goes into the string to sign must be: a line break would
// make it ambiguous.
func isGraphic(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
