package main

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// writeTOML writes the configuration as a file that has the same effect, but for secrets, which are "REDACTED".
func (c *Config) writeTOML(w io.Writer) error {
	var b strings.Builder
	writeTable(&b, "", reflect.ValueOf(c).Elem())
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// writeTable writes the keys of a struct: first those that belong under its own header, then the tables in it.
func writeTable(b *strings.Builder, path string, v reflect.Value) {
	fields := fieldsOf(v)
	for _, f := range fields {
		if !f.isTable() {
			fmt.Fprintf(b, "%s = %s\n", f.name, valueTOML(f.value))
		}
	}
	for _, f := range fields {
		switch p := join(path, f.name); {
		case !f.isTable():
		case f.value.Kind() == reflect.Slice:
			for i := range f.value.Len() {
				fmt.Fprintf(b, "\n[[%s]]\n", p)
				writeTable(b, p, f.value.Index(i))
			}
		default:
			fmt.Fprintf(b, "\n[%s]\n", p)
			writeTable(b, p, f.value)
		}
	}
}

// isTable says whether the field is written under a header of its own.
func (f field) isTable() bool {
	t := f.value.Type()
	return t.Kind() == reflect.Struct && !f.inline || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

func valueTOML(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Secret:
		return quoteTOML(x.String())
	case fmt.Stringer:
		return quoteTOML(x.String())
	case string:
		return quoteTOML(x)
	case bool:
		return strconv.FormatBool(x)
	case int:
		return strconv.Itoa(x)
	case float64:
		text := strconv.FormatFloat(x, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	case []string:
		quoted := make([]string, len(x))
		for i := range x {
			quoted[i] = quoteTOML(x[i])
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	var parts []string // an inline table
	for _, f := range fieldsOf(v) {
		parts = append(parts, f.name+" = "+valueTOML(f.value))
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// quoteTOML writes a basic string (TOML 1.0, "String"). Go's %q is close, but has escapes that TOML has not.
func quoteTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
