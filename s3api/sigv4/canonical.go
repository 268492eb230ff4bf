package sigv4

import (
	"bytes"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// span is one parameter in scratch.encoded: its name is [name:value], its value [value:end].
type span struct{ name, value, end int }

// canonicalRequest builds the canonical request in s.canonical:
//
//	method \n path \n query \n (name:value \n)… \n signed headers \n x-amz-content-sha256
//
// (S3 API reference, "Authenticating Requests: Using the Authorization Header"). It refuses requests whose signature
// leaves out what it must cover, and those that cannot be made canonical.
func (s *scratch) canonicalRequest(r *http.Request, rawPath, rawQuery string, c *claim) *Error {
	if err := s.splitNames(c); err != nil {
		return err
	}
	b := append(s.canonical[:0], r.Method...)
	b = append(b, '\n')
	b, ok := appendCanonical(b, rawPath, pathPart)
	if !ok {
		return errURI()
	}
	b = append(b, '\n')
	if b, ok = s.appendQuery(b, rawQuery, c.presigned); !ok {
		return errURI()
	}
	b = append(b, '\n')

	signedHost, signedAmz := false, 0
	for _, name := range s.names {
		b = append(b, name...)
		b = append(b, ':')
		if name == "host" {
			signedHost = true
			b = appendValue(b, r.Host)
		} else {
			s.key = appendKey(s.key[:0], name)
			values, found := r.Header[string(s.key)]
			switch {
			case !found:
				b = appendRemoved(b, name, r)
			case isAmz(name):
				signedAmz++
			}
			for i, value := range values {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendValue(b, value)
			}
		}
		b = append(b, '\n')
	}
	if n := countAmz(r.Header); !signedHost || n != signedAmz {
		return errNotSigned(s.notSigned(r.Header, signedHost))
	}

	b = append(b, '\n')
	for i, name := range s.names {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, name...)
	}
	b = append(b, '\n')
	b = append(b, c.contentSHA256...)
	if len(b) > maxCanonical {
		return errTooLarge() // and the buffer is not kept
	}
	s.canonical = b
	return nil
}

// splitNames takes the list of signed headers apart and sorts it, as the client had to do to sign.
func (s *scratch) splitNames(c *claim) *Error {
	s.names = s.names[:0]
	if len(c.signedHeaders) > maxSignedBytes {
		return errTooLarge()
	}
	sorted := true
	for list, start, i := c.signedHeaders, 0, 0; i <= len(list); i++ {
		if i < len(list) && list[i] != ';' {
			if !isLowerTokenByte(list[i]) {
				return c.malformedNames()
			}
			continue
		}
		name := list[start:i]
		start = i + 1
		n := len(s.names)
		switch {
		case name == "":
			return c.malformedNames()
		case n == maxSignedHeaders:
			return errTooLarge()
		case n > 0 && name <= s.names[n-1]:
			sorted = false
		}
		s.names = append(s.names, name)
	}
	if !sorted {
		slices.Sort(s.names)
		if len(slices.Compact(s.names)) != len(s.names) {
			return c.malformedNames()
		}
	}
	return nil
}

// appendQuery appends the canonical query: the parameters sorted by encoded name, then by encoded value. The signature
// of a presigned request is left out, it can't cover itself.
func (s *scratch) appendQuery(b []byte, rawQuery string, presigned bool) ([]byte, bool) {
	e, params := s.encoded[:0], s.params[:0]
	for rawQuery != "" {
		var rawName, rawValue string
		var ok bool
		if rawName, rawValue, rawQuery, ok = cutParam(rawQuery); !ok {
			continue
		}
		p := span{name: len(e)}
		if e, ok = appendCanonical(e, rawName, queryPart); !ok {
			return b, false
		}
		if presigned && string(e[p.name:]) == paramSignature {
			e = e[:p.name]
			continue
		}
		p.value = len(e)
		if e, ok = appendCanonical(e, rawValue, queryPart); !ok {
			return b, false
		}
		p.end = len(e)
		params = append(params, p)
	}
	s.encoded, s.params = e, params
	if len(params) > 1 {
		slices.SortFunc(params, func(x, y span) int {
			if c := bytes.Compare(e[x.name:x.value], e[y.name:y.value]); c != 0 {
				return c
			}
			return bytes.Compare(e[x.value:x.end], e[y.value:y.end])
		})
	}
	for i, p := range params {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(b, e[p.name:p.value]...)
		b = append(b, '=')
		b = append(b, e[p.value:p.end]...)
	}
	return b, true
}

// appendKey appends a lower-case header name as net/http spells it in http.Header.
func appendKey(b []byte, name string) []byte {
	upper := true
	for i := 0; i < len(name); i++ {
		c := name[i]
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		b = append(b, c)
		upper = c == '-'
	}
	return b
}

// appendValue appends a header value without spaces at its ends and with one for each run of spaces within.
func appendValue(b []byte, value string) []byte {
	value = textproto.TrimString(value)
	for {
		i := strings.IndexByte(value, ' ') // trimmed: something else follows
		if i < 0 {
			return append(b, value...)
		}
		b = append(b, value[:i+1]...)
		for i++; value[i] == ' '; i++ {
		}
		value = value[i:]
	}
}

// appendRemoved appends the value of a header that is not in r.Header, where net/http has taken it out. A header that
// the client has not sent has an empty value.
func appendRemoved(b []byte, name string, r *http.Request) []byte {
	switch name {
	case "content-length":
		if r.ContentLength >= 0 {
			return strconv.AppendInt(b, r.ContentLength, 10)
		}
	case "transfer-encoding":
		for i, coding := range r.TransferEncoding {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, coding...)
		}
	case "expect": // the only expectation there is (RFC 9110 section 10.1.1)
		return append(b, "100-continue"...)
	}
	return b
}

// isAmz says whether a header must be signed if it is there. The spelling of net/http is not taken for granted, a
// header it would spell otherwise still has to be.
func isAmz(name string) bool {
	const prefix = "x-amz-"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

func countAmz(h http.Header) int {
	n := 0
	for key := range h {
		if isAmz(key) {
			n++
		}
	}
	return n
}

// notSigned lists the headers that had to be signed and are not.
func (s *scratch) notSigned(h http.Header, signedHost bool) []string {
	var list []string
	if !signedHost {
		list = append(list, "host")
	}
	for key := range h {
		if name := strings.ToLower(key); isAmz(name) && !slices.Contains(s.names, name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// isLowerTokenByte says whether c may be in a header name (a token of RFC 9110 section 5.6.2) in lower case.
func isLowerTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || c == '-' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+.^_`|~", c) >= 0
}
