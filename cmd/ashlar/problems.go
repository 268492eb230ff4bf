package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	File string // file that was read; "" when the problem is of the environment
	Line int    // in File, from 1
	Env  string // variable of the environment; "" when the problem is of the file
	Key  string // the key, dotted, without the indexes of arrays; "" when there is none
	Text string // what is wrong and what to do; never the value of a secret
}

// String is "FILE:LINE: key: text" or "environment NAME: text".
func (p Problem) String() string {
	where := "environment " + p.Env
	if p.Env == "" {
		where = fmt.Sprintf("%s:%d", p.File, p.Line)
		if p.Key != "" {
			where += ": " + p.Key
		}
	}
	return where + ": " + p.Text
}

// Problems is all that is wrong, in the order of the file and then of the environment. It is the error of loadFile.
type Problems []Problem

// Error is one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// paths name values, as in "auth.keys[1].access_key".
type paths []string

// sources remembers where each value came from, and collects what is wrong with them.
type sources struct {
	file     string
	lines    map[string]int    // path -> line
	env      map[string]string // path -> variable that set it
	bad      map[string]bool   // paths that have a problem already
	problems Problems
}

func newSources(file string) *sources {
	return &sources{file: file, lines: map[string]int{}, env: map[string]string{}, bad: map[string]bool{}}
}

// set says whether the file or the environment gave the value at path.
func (s *sources) set(path string) bool {
	_, inEnv := s.env[path]
	_, inFile := s.lines[path]
	return inEnv || inFile
}

// line returns the line of path, or of the closest table around it, or 1.
func (s *sources) line(path string) int {
	for path != "" {
		if n, ok := s.lines[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 1
}

// fail notes that the value at path is wrong in itself. What follows from that is not news, so that a second problem of
// the same value is not told.
func (s *sources) fail(path, format string, args ...any) {
	s.clash(paths{path}, format, args...)
	s.bad[path] = true
}

// clash notes a problem of several values together, or one that a value may have more than once. It is told of the
// first of them that was set, and not at all when one of them is wrong in itself.
func (s *sources) clash(of paths, format string, args ...any) {
	at := of[0]
	for _, p := range slices.Backward(of) {
		if s.bad[p] {
			return
		}
		if s.set(p) {
			at = p
		}
	}
	p := Problem{Key: plain(at), Text: fmt.Sprintf(format, args...)}
	if v, ok := s.env[at]; ok {
		p.Env = v
	} else {
		p.File, p.Line = s.file, s.line(at)
	}
	s.problems = append(s.problems, p)
}

// done returns the problems in order, nil when there are none.
func (s *sources) done() Problems {
	slices.SortStableFunc(s.problems, func(a, b Problem) int {
		if (a.Env == "") != (b.Env == "") {
			return strings.Compare(a.Env, b.Env)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Env, b.Env), strings.Compare(a.Key, b.Key))
	})
	return s.problems
}

// plain drops the indexes of arrays from a path: the line says which element it is.
func plain(path string) string {
	return regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "")
}

// nearest returns the candidate that a mistyped word most likely means, or "".
func nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return ""
	}
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		d := distance(plainWord(word), plainWord(c))
		if d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// plainWord is a word less what people take one for the other.
func plainWord(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "_")) }
