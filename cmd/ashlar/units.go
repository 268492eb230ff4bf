package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written "64 KiB", "1MB" or as a plain integer of bytes.
type Size int64

// Duration is a span of time, written "50ms", "30s", "1h30m".
type Duration time.Duration

// Secret is a string that no formatter, logger or encoder shows: they all get "REDACTED", or "" when it is empty.
// string(s) is the only way to the text.
type Secret string

const redacted = "REDACTED"

// printedSecret refuses that text as a secret.
const printedSecret = "\"" + redacted + "\" is what check prints in place of a secret; put the secret itself here"

// The binary and decimal units, largest first: String takes the first binary one that divides.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// parseSize reads a non-negative whole number with a unit out of sizeUnits, in any case, after any number of spaces.
// A number without a unit is bytes.
func parseSize(s string) (Size, error) {
	t := strings.TrimSpace(s)
	i := 0
	for i < len(t) && (t[i] >= '0' && t[i] <= '9' || t[i] == '.') {
		i++
	}
	digits, unit := t[:i], strings.TrimSpace(t[i:])
	if digits == "" {
		return 0, fmt.Errorf("%q is not a size; write it as \"64 KiB\", \"1 GiB\", \"1MB\" or a number of bytes", s)
	}
	if strings.Contains(digits, ".") {
		return 0, fmt.Errorf("%q is not a size; the number must be whole, use a smaller unit", s)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is too large", s)
	}
	if unit == "" {
		return Size(n), nil
	}
	for _, u := range sizeUnits {
		if strings.EqualFold(unit, u.name) {
			if n > math.MaxInt64/u.bytes {
				return 0, fmt.Errorf("%q is too large", s)
			}
			return Size(n * u.bytes), nil
		}
	}
	return 0, fmt.Errorf("%q has an unknown unit; the units are B, KiB, MiB, GiB, TiB and KB, MB, GB, TB", s)
}

// String returns the shortest exact spelling in binary units; parseSize reads it back.
func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + " B"
}

// parseDuration reads a non-negative duration with a unit.
func parseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write it as \"50ms\", \"30s\", \"5m\" or \"1h\"", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return Duration(d), nil
}

// String returns an exact spelling that parseDuration reads back: "60s" rather than Go's "1m0s".
func (d Duration) String() string {
	for _, u := range [...]struct {
		name string
		unit time.Duration
		from time.Duration
	}{
		{"h", time.Hour, time.Hour}, {"m", time.Minute, 2 * time.Minute}, {"s", time.Second, time.Second},
		{"ms", time.Millisecond, time.Millisecond}, {"us", time.Microsecond, time.Microsecond},
	} {
		if t := time.Duration(d); t >= u.from && t%u.unit == 0 {
			return strconv.FormatInt(int64(t/u.unit), 10) + u.name
		}
	}
	if d == 0 {
		return "0s"
	}
	return time.Duration(d).String()
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// Format hides the secret from every verb, %x and %q among them.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = f.Write([]byte(strconv.Quote(s.String())))
		return
	}
	_, _ = f.Write([]byte(s.String()))
}

// MarshalText hides the secret from encoders of JSON, TOML and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
