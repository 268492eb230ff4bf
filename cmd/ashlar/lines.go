package main

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// linesOf returns the line, counted from 1, of every key and table header in a TOML document that is known to parse.
// Paths look like "auth.keys[1].access_key". The toml package has the positions too, but tells them only with its own
// errors, and of a key in an array of tables only the last.
func linesOf(src string) map[string]int {
	s := &lineScanner{src: src, line: 1, lines: make(map[string]int), arrays: make(map[string]int)}
	table := ""
	for {
		s.blank()
		switch {
		case s.pos >= len(s.src):
			return s.lines
		case s.at("["):
			table = s.header()
		default:
			s.keyValue(table)
		}
	}
}

// lineScanner walks a document once. Every method leaves it further on than it found it, also in a document that does
// not parse: what it says of such a one is of no use, but it ends.
type lineScanner struct {
	src    string
	pos    int
	line   int
	lines  map[string]int
	arrays map[string]int // arrays of tables seen so far, by path: how many elements
}

func (s *lineScanner) at(prefix string) bool { return strings.HasPrefix(s.src[s.pos:], prefix) }

// skip moves on by n bytes, counting lines.
func (s *lineScanner) skip(n int) {
	end := min(s.pos+n, len(s.src))
	s.line += strings.Count(s.src[s.pos:end], "\n")
	s.pos = end
}

// spaces skips spaces and tabs.
func (s *lineScanner) spaces() {
	for s.pos < len(s.src) && (s.src[s.pos] == ' ' || s.src[s.pos] == '\t') {
		s.pos++
	}
}

// blank skips white space, newlines and comments.
func (s *lineScanner) blank() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.skip(1)
		case '#':
			if i := strings.IndexByte(s.src[s.pos:], '\n'); i >= 0 {
				s.skip(i)
			} else {
				s.pos = len(s.src)
			}
		default:
			return
		}
	}
}

// header reads [a.b] or [[a.b]] and returns the path of the table that it opens.
func (s *lineScanner) header() string {
	array := s.at("[[")
	line := s.line
	s.skip(1)
	if array {
		s.skip(1)
	}
	path := ""
	parts := s.key()
	for i, part := range parts {
		path = join(path, part)
		last := i == len(parts)-1
		if _, seen := s.lines[path]; !seen || last {
			s.lines[path] = line
		}
		if last && array {
			s.arrays[path]++
		}
		if n := s.arrays[path]; n > 0 {
			path = element(path, n-1)
			if last {
				s.lines[path] = line
			}
		}
	}
	for s.at("]") {
		s.skip(1)
	}
	return path
}

// keyValue reads a.b = value in the table at path.
func (s *lineScanner) keyValue(table string) {
	line, start, path := s.line, s.pos, table
	for _, part := range s.key() {
		path = join(path, part)
		if _, seen := s.lines[path]; !seen {
			s.lines[path] = line
		}
	}
	s.spaces()
	if s.at("=") {
		s.skip(1)
	}
	s.spaces()
	s.value(path)
	if s.pos == start {
		s.skip(1)
	}
}

// key reads a dotted key and returns its parts, unquoted.
func (s *lineScanner) key() []string {
	var parts []string
	for {
		s.spaces()
		start := s.pos
		switch {
		case s.at(`"`):
			s.quoted('"')
			parts = append(parts, unquoteKey(s.src[start:s.pos]))
		case s.at("'"):
			s.quoted('\'')
			parts = append(parts, strings.Trim(s.src[start:s.pos], "'"))
		default:
			for s.pos < len(s.src) && !strings.ContainsRune(" \t\r\n.=]#\"'", rune(s.src[s.pos])) {
				s.pos++
			}
			parts = append(parts, s.src[start:s.pos])
		}
		s.spaces()
		if !s.at(".") {
			return parts
		}
		s.skip(1)
	}
}

// unquoteKey decodes a key in double quotes; the toml package knows the escapes.
func unquoteKey(quoted string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &v); err != nil {
		return quoted
	}
	return v.K
}

// value skips a value and notes the keys inside of it.
func (s *lineScanner) value(path string) {
	switch {
	case s.at(`"`), s.at("'"):
		s.quoted(s.src[s.pos])
	case s.at("["):
		s.skip(1)
		for i := 0; s.inside(']'); {
			if s.at(",") {
				i++
				s.skip(1)
				continue
			}
			p := element(path, i)
			s.lines[p] = s.line
			before := s.pos
			s.value(p)
			if s.pos == before {
				s.skip(1)
			}
		}
	case s.at("{"):
		s.skip(1)
		for s.inside('}') {
			if s.at(",") {
				s.skip(1)
				continue
			}
			s.keyValue(path)
		}
	default: // number, boolean, date
		if i := strings.IndexAny(s.src[s.pos:], ",]}\r\n#"); i >= 0 {
			s.skip(i)
		} else {
			s.pos = len(s.src)
		}
	}
}

// inside skips what is blank and says whether an array or inline table goes on; it eats the closing character.
func (s *lineScanner) inside(closing byte) bool {
	s.blank()
	if s.pos >= len(s.src) {
		return false
	}
	if s.src[s.pos] == closing {
		s.pos++
		return false
	}
	return true
}

// quoted skips a string in any of TOML's four forms, delimited by q.
func (s *lineScanner) quoted(q byte) {
	long := strings.Repeat(string(q), 3)
	if s.at(long) {
		s.skip(3)
		for s.pos < len(s.src) && !s.at(long) {
			s.escaped(q)
		}
		s.skip(3)
		for range 2 { // up to two quotes may stand right before the closing three
			if s.at(string(q)) {
				s.skip(1)
			}
		}
		return
	}
	s.skip(1)
	for s.pos < len(s.src) && s.src[s.pos] != q {
		s.escaped(q)
	}
	s.skip(1)
}

// escaped skips one character of a string, two when it is an escape.
func (s *lineScanner) escaped(q byte) {
	if q == '"' && s.at(`\`) {
		s.skip(1)
	}
	s.skip(1)
}

// join appends a key to a path. Keys that could be taken for more than one are quoted.
func join(path, key string) string {
	if key == "" || strings.ContainsAny(key, ".[]\"'\\ \t\n") {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
