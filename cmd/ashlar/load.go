package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// maxConfig bounds the file: whatever is larger is not a configuration.
const maxConfig = 1 << 20

// loadFile reads, merges, validates and resolves the configuration of the file at path and the environment (as
// os.Environ gives it). extra, if not nil, may note more problems after that. The error is Problems, or says why the
// file can't be read.
func loadFile(path string, environ []string, extra func(*Config, *sources)) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(err)
	}
	c, s := parse(path, data, environ)
	if c == nil {
		return nil, s.done()
	}
	c.validate(s)
	c.resolve(s)
	if extra != nil {
		extra(c, s)
	}
	if ps := s.done(); len(ps) > 0 {
		return nil, ps
	}
	return c, nil
}

// unreadable says why a configuration can't be read, and what to do.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return badInput("cannot read the configuration: %w; the user that ashlar runs as must be able to read the file, "+
			"and to enter the folders that it is in", err)
	}
	return badInput("cannot read the configuration: %w; name an existing file with --config (config.example.toml is "+
		"one to start from)", err)
}

// parse merges defaults, file and environment; it reads nothing but its arguments. file is the name that problems are
// told by. The configuration is nil when the file is not TOML; otherwise values that could not be read have their
// defaults, and the problems are in the sources, for validate and resolve to add to.
func parse(file string, data []byte, environ []string) (*Config, *sources) {
	l := &loader{sources: newSources(file), config: defaults()}
	if len(data) > maxConfig {
		l.fail("", "the file has %d bytes, more than a configuration can have (%v)", len(data), Size(maxConfig))
		return nil, l.sources
	}
	var tree map[string]any
	if _, err := toml.Decode(string(data), &tree); err != nil {
		l.syntax(string(data), err)
		return nil, l.sources
	}
	l.lines = linesOf(string(data))

	// [[bucket]] comes last: its entries start from [buckets] as the environment left it.
	rules, hasRules := tree["bucket"]
	delete(tree, "bucket")
	l.table("", tree, reflect.ValueOf(l.config).Elem())
	l.environment(environ)
	if hasRules {
		l.value("bucket", rules, reflect.ValueOf(&l.config.Bucket).Elem())
	}
	return l.config, l.sources
}

// loader is one call of parse.
type loader struct {
	*sources
	config *Config
}

// syntax notes a document that is not TOML. The parser quotes what it stumbled over: next to a secret that is
// withheld, since an unquoted secret is a likely thing to stumble over.
func (l *loader) syntax(src string, err error) {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		l.fail("", "not valid TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
		return
	}
	lines := strings.Split(src, "\n")
	n := min(max(pe.Position.Line, 1), len(lines))
	text := pe.Message
	near := strings.ToLower(pe.LastKey + " " + lines[n-1] + " " + lines[max(n-2, 0)])
	if strings.Contains(near, "secret") || strings.Contains(near, "token") {
		text = "a string needs quotes around it and ends on its line (what stands here is not shown, it may be a secret)"
	}
	l.problems = append(l.problems, Problem{File: l.file, Line: n, Text: "not valid TOML: " + text})
}

// field is one key of a table.
type field struct {
	name   string
	inline bool // written { … } on one line
	value  reflect.Value
}

// fieldsOf returns the keys of a struct in their order, those of embedded structs among them.
func fieldsOf(v reflect.Value) []field {
	var fs []field
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		if sf.Anonymous {
			fs = append(fs, fieldsOf(v.Field(i))...)
			continue
		}
		name, option, _ := strings.Cut(sf.Tag.Get("toml"), ",")
		if name != "" && name != "-" {
			fs = append(fs, field{name: name, inline: option == "inline", value: v.Field(i)})
		}
	}
	return fs
}

// table reads the keys of a TOML table into a struct.
func (l *loader) table(path string, t map[string]any, v reflect.Value) {
	fields := fieldsOf(v)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			l.unknown(path, name, t[name], fields)
			continue
		}
		l.value(join(path, name), t[name], fields[i].value)
	}
}

// value reads one TOML value into a field.
func (l *loader) value(path string, raw any, v reflect.Value) {
	wrong := func(want string) { l.fail(path, "must be %s, not %s", want, kindOf(raw)) }
	switch dst := v.Addr().Interface().(type) {
	case *[]AuthKey:
		for i, t := range l.tables(path, raw) {
			*dst = append(*dst, newAuthKey())
			l.table(element(path, i), t, reflect.ValueOf(&(*dst)[i]).Elem())
		}
	case *[]Bucket:
		for i, t := range l.tables(path, raw) {
			*dst = append(*dst, Bucket{Buckets: l.config.Buckets})
			l.table(element(path, i), t, reflect.ValueOf(&(*dst)[i]).Elem())
		}
	case *[]ClusterNode:
		list, ok := raw.([]any)
		if tables, are := raw.([]map[string]any); are {
			ok = true
			for _, t := range tables {
				list = append(list, t)
			}
		}
		if !ok {
			wrong("a list of addresses, or of tables such as { id = \"a\", addr = \"10.0.0.1:9000\" }")
			return
		}
		nodes := make([]ClusterNode, len(list))
		for i, e := range list {
			n := newClusterNode()
			switch e := e.(type) {
			case string:
				n.ID, n.Addr = e, e
			case map[string]any:
				l.table(element(path, i), e, reflect.ValueOf(&n).Elem())
			default:
				l.fail(path, "must be a list of addresses or tables, not of %ss", strings.TrimPrefix(kindOf(e), "a "))
				return
			}
			nodes[i] = n
		}
		*dst = nodes
	case *[]string:
		list, ok := raw.([]any)
		if !ok {
			wrong("a list of strings")
			return
		}
		*dst = make([]string, len(list))
		for i, e := range list {
			if (*dst)[i], ok = e.(string); !ok {
				l.fail(path, "must be a list of strings, not of %ss", strings.TrimPrefix(kindOf(e), "a "))
				return
			}
		}
	case *Size:
		switch raw := raw.(type) {
		case int64:
			if raw < 0 {
				l.fail(path, "%d is negative", raw)
				return
			}
			*dst = Size(raw)
		case string:
			l.scalar(path, raw, v)
		default:
			wrong(`a size such as "64 KiB" or a number of bytes`)
		}
	case *Duration:
		if s, ok := raw.(string); ok {
			l.scalar(path, s, v)
		} else if n, ok := raw.(int64); ok {
			l.fail(path, "%d has no unit; write it as a string, such as \"%ds\"", n, n)
		} else {
			wrong(`a duration such as "30s"`)
		}
	case *string, *Secret:
		if s, ok := raw.(string); ok {
			l.scalar(path, s, v)
		} else {
			wrong("a string")
		}
	case *bool:
		if b, ok := raw.(bool); ok {
			*dst = b
		} else {
			wrong("true or false")
		}
	case *int:
		if n, ok := raw.(int64); !ok {
			wrong("a whole number")
		} else if n < math.MinInt32 || n > math.MaxInt32 {
			l.fail(path, "%d is out of range", n)
		} else {
			*dst = int(n)
		}
	case *float64:
		switch raw := raw.(type) {
		case float64:
			*dst = raw
		case int64:
			*dst = float64(raw)
		default:
			wrong("a number")
		}
	case *Hedge:
		switch raw := raw.(type) {
		case map[string]any:
			l.table(path, raw, v)
		case bool:
			if raw {
				wrong("false, or a table such as { factor = 3.0 }")
			}
			dst.Factor = 0
		default:
			wrong("false, or a table such as { factor = 3.0 }")
		}
	default:
		if t, ok := raw.(map[string]any); ok {
			l.table(path, t, v)
		} else {
			wrong("a table")
		}
	}
}

// tables returns the elements of an array of tables, in either of its two spellings.
func (l *loader) tables(path string, raw any) []map[string]any {
	switch raw := raw.(type) {
	case []map[string]any:
		return raw
	case []any:
		ts := make([]map[string]any, 0, len(raw))
		for _, e := range raw {
			t, ok := e.(map[string]any)
			if !ok {
				l.fail(path, "must be tables, written [[%s]], not a list of %ss", plain(path), strings.TrimPrefix(kindOf(e), "a "))
				return nil
			}
			ts = append(ts, t)
		}
		return ts
	case map[string]any:
		l.fail(path, "may be given several times: write [[%s]] with two brackets", plain(path))
	default:
		l.fail(path, "must be tables, written [[%s]], not %s", plain(path), kindOf(raw))
	}
	return nil
}

// scalar reads a value from text, as the environment has it.
func (l *loader) scalar(path, text string, v reflect.Value) {
	var err error
	switch dst := v.Addr().Interface().(type) {
	case *Size:
		*dst, err = keep(*dst, text, parseSize)
	case *Duration:
		*dst, err = keep(*dst, text, parseDuration)
	case *bool:
		*dst, err = keep(*dst, text, parseBool)
	case *int:
		var n int64
		if n, err = strconv.ParseInt(text, 10, 32); err != nil {
			err = fmt.Errorf("%q is not a whole number", text)
		} else {
			*dst = int(n)
		}
	case *float64:
		if *dst, err = strconv.ParseFloat(text, 64); err != nil {
			err = fmt.Errorf("%q is not a number", text)
		}
	case *string:
		*dst = text
	case *Hedge:
		if text == "false" {
			dst.Factor = 0
		} else {
			err = fmt.Errorf("must be false; of a rule the keys are set one by one, such as %s", envName(path+".factor"))
		}
	case *Secret:
		if text == redacted {
			err = errors.New(printedSecret)
		} else {
			*dst = Secret(text)
		}
	}
	if err != nil {
		l.fail(path, "%v", err)
	}
}

// keep parses text, and returns old with the error when it can't.
func keep[T any](old T, text string, parse func(string) (T, error)) (T, error) {
	v, err := parse(text)
	if err != nil {
		return old, err
	}
	return v, nil
}

// unknown notes a key that does not exist, with the one that was probably meant.
func (l *loader) unknown(path, name string, raw any, siblings []field) {
	names := make([]string, len(siblings))
	for i, f := range siblings {
		names[i] = f.name
	}
	at := join(path, name)
	what := "unknown key"
	if _, isTable := raw.(map[string]any); isTable && path == "" {
		what = "unknown section"
	}
	if near := nearest(name, names); near != "" {
		l.fail(at, "%s; did you mean %s?", what, plain(join(path, near)))
		return
	}
	for _, k := range allKeys() { // the right name in the wrong place
		if k.path[strings.LastIndexByte(k.path, '.')+1:] == name {
			l.fail(at, "%s here; did you mean %s?", what, k.path)
			return
		}
	}
	if path == "" {
		l.fail(at, "%s; the sections are %s", what, strings.Join(names, ", "))
		return
	}
	l.fail(at, "%s; the keys of %s are %s", what, plain(path), strings.Join(names, ", "))
}

// kindOf names the type of a TOML value, with its article.
func kindOf(raw any) string {
	switch raw.(type) {
	case string:
		return "a string"
	case int64:
		return "a number"
	case float64:
		return "a fraction"
	case bool:
		return "a boolean"
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	}
	return "a date"
}

// key is one key of the configuration, in the table that path names.
type key struct {
	path   string // without indexes, e.g. "auth.keys.access_key"
	scalar bool   // can come from the environment
	list   string // the list of tables that it is in, e.g. "auth.keys"; "" for none
}

// allKeys returns every key that a file may have, in the order of the structs.
func allKeys() []key {
	var keys []key
	var walk func(path string, v reflect.Value, list string)
	walk = func(path string, v reflect.Value, list string) {
		for _, f := range fieldsOf(v) {
			p, t := join(path, f.name), f.value.Type()
			switch {
			case t.Kind() == reflect.Struct:
				if t == reflect.TypeFor[Hedge]() { // false as a whole
					keys = append(keys, key{path: p, scalar: list == "", list: list})
				}
				walk(p, f.value, list)
			case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
				walk(p, reflect.New(t.Elem()).Elem(), p)
			default:
				keys = append(keys, key{path: p, scalar: t.Kind() != reflect.Slice && list == "", list: list})
			}
		}
	}
	walk("", reflect.ValueOf(&Config{}).Elem(), "")
	return keys
}

// environment applies the variables that begin with ASHLAR_.
func (l *loader) environment(environ []string) {
	keys := allKeys()
	var names []string
	for _, k := range keys {
		if k.scalar {
			names = append(names, envName(k.path))
		}
	}
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || serviceLink(name, text) {
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return envName(k.path) == name })
		switch {
		case i < 0:
			text := "unknown key"
			if why := notScalar(name, keys); why != "" {
				text = why
			} else if near := nearest(name, names); near != "" {
				text += "; did you mean " + near + "?"
			} else {
				text += "; names are " + envPrefix + "SECTION__KEY, such as " + envName("server.listen")
			}
			l.problems = append(l.problems, Problem{Env: name, Text: text})
		case !keys[i].scalar:
			l.problems = append(l.problems, Problem{Env: name, Key: keys[i].path,
				Text: keys[i].path + " is, or is in, a list; those can be set in the file only"})
		case !utf8.ValidString(text):
			l.problems = append(l.problems, Problem{Env: name, Key: keys[i].path, Text: "not valid UTF-8"})
		default:
			l.env[keys[i].path] = name
			delete(l.bad, keys[i].path)
			l.scalar(keys[i].path, text, find(reflect.ValueOf(l.config).Elem(), keys[i].path))
		}
	}
}

// notScalar says why a variable can't name a table or something in a list of tables; "" where it does neither.
func notScalar(name string, keys []key) string {
	for _, k := range keys {
		if env := envName(k.list); k.list != "" && (name == env || strings.HasPrefix(name, env+"__")) {
			return k.list + " is a list of tables; those can be set in the file only"
		}
		for i, c := range k.path {
			if c == '.' && name == envName(k.path[:i]) {
				return k.path[:i] + " is a table; its keys are set one by one, such as " + envName(k.path)
			}
		}
	}
	return ""
}

// find returns the field at a path without lists.
func find(v reflect.Value, path string) reflect.Value {
	name, rest, more := strings.Cut(path, ".")
	for _, f := range fieldsOf(v) {
		if f.name == name {
			if more {
				return find(f.value, rest)
			}
			return f.value
		}
	}
	panic("no key " + path) // allKeys made the path out of the same fields
}
