package s3api

import (
	"bytes"
	"encoding/xml"
	"io"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDeleteKeys is S3's limit on keys in one DeleteObjects.
const maxDeleteKeys = 1000

// deletedKeys returns the keys that the body of a DeleteObjects names (S3 API reference, "Delete"). The body goes to
// the origin as it is, so what another parser might read otherwise, or does not belong there, is no list: ok is false
// then. What is left are elements of the schema with text of plain characters, references to characters, and the five
// entities.
func deletedKeys(body []byte, contentType []string) (keys []string, ok bool) {
	// Comments, CDATA sections, and DTDs, which can define entities: parsers join, split and leave out.
	if !plainEncoding(contentType) || bytes.Contains(body, []byte("<!")) {
		return nil, false
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	d := xml.NewDecoder(bytes.NewReader(body))
	var (
		path  []string // names of the open elements
		space string   // of all elements: that of the first
		named bool     // the object that is open has its key
		start int64    // where the text of the key that is open begins
		key   strings.Builder
		done  bool // the list has ended
	)
	for {
		at := d.InputOffset()
		token, err := d.Token()
		if err == io.EOF {
			return keys, done && len(keys) > 0
		}
		if err != nil {
			return nil, false
		}
		switch t := token.(type) {
		case xml.ProcInst:
			if at != 0 || !plainDeclaration(t) {
				return nil, false
			}
		case xml.StartElement:
			if path = append(path, t.Name.Local); len(path) == 1 {
				space = t.Name.Space
			}
			if done || !inSchema(path) || t.Name.Space != space || !plainAttributes(path, t.Attr) {
				return nil, false
			}
			switch t.Name.Local {
			case "Object":
				named = false
			case "Key":
				if named || len(keys) == maxDeleteKeys {
					return nil, false
				}
				named, start = true, d.InputOffset()
				key.Reset()
			}
		case xml.CharData:
			within := ""
			if len(path) > 0 {
				within = path[len(path)-1]
			}
			switch within {
			case "Key":
				key.Write(t)
			case "", "Delete", "Object": // between elements
				if len(bytes.TrimSpace(t)) > 0 {
					return nil, false
				}
			}
		case xml.EndElement:
			path = path[:len(path)-1]
			switch t.Name.Local {
			case "Key":
				if key.Len() == 0 || !sameToAll(body[start:at], key.String()) {
					return nil, false
				}
				keys = append(keys, key.String())
			case "Object":
				if !named {
					return nil, false
				}
			case "Delete":
				done = true
			}
		}
	}
}

// inSchema says whether an element may be where it is.
func inSchema(path []string) bool {
	switch len(path) {
	case 1:
		return path[0] == "Delete"
	case 2:
		return path[1] == "Object" || path[1] == "Quiet"
	case 3:
		return path[1] == "Object" &&
			slices.Contains([]string{"Key", "VersionId", "ETag", "LastModifiedTime", "Size"}, path[2])
	}
	return false
}

// plainAttributes says whether an element has none, but for the namespace that the first may set for all.
func plainAttributes(path []string, attributes []xml.Attr) bool {
	return len(attributes) == 0 || len(path) == 1 && len(attributes) == 1 && attributes[0].Name.Space == "" &&
		attributes[0].Name.Local == "xmlns"
}

// plainDeclaration says whether it is an XML declaration that says nothing unusual.
func plainDeclaration(p xml.ProcInst) bool {
	for _, f := range strings.Fields(strings.ToLower(string(p.Inst))) {
		switch strings.ReplaceAll(f, "'", `"`) {
		case `version="1.0"`, `encoding="utf-8"`, `standalone="yes"`, `standalone="no"`:
		default:
			return false
		}
	}
	return p.Target == "xml"
}

// plainEncoding says whether a Content-Type leaves it at UTF-8.
func plainEncoding(contentType []string) bool {
	for _, line := range contentType {
		_, params, err := mime.ParseMediaType(line)
		charset, said := params["charset"]
		if err != nil && strings.Contains(strings.ToLower(line), "charset") ||
			said && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
			return false
		}
	}
	return true
}

// sameToAll says whether a text, read from raw, is what every parser reads. A line end may stay CR LF or become LF
// unless the CR is a reference, and references to halves of a surrogate pair become what the parser likes, with this
// one U+FFFD.
func sameToAll(raw []byte, text string) bool {
	return bytes.IndexByte(raw, '\r') < 0 &&
		strings.Count(text, string(utf8.RuneError)) == bytes.Count(raw, []byte(string(utf8.RuneError)))
}
