package gateway

import (
	"errors"
	"fmt"
)

// Range is the part of an object that a client asks for, before the size is known. The zero value is the whole object.
// It mirrors the three forms of one byte range in RFC 9110 section 14.1.2.
type Range struct {
	kind  rangeKind
	first int64 // kindFromTo, kindFrom: first byte
	last  int64 // kindFromTo: last byte, inclusive; kindSuffix: number of bytes
}

type rangeKind uint8

const (
	kindWhole rangeKind = iota
	kindFromTo
	kindFrom
	kindSuffix
)

// FromTo is bytes=first-last, both inclusive; 0 <= first <= last.
func FromTo(first, last int64) Range { return Range{kindFromTo, first, last} }

// From is bytes=first-; first >= 0.
func From(first int64) Range { return Range{kindFrom, first, 0} }

// Suffix is bytes=-n; n >= 0. Suffix(0) is satisfied by no object.
func Suffix(n int64) Range { return Range{kindSuffix, 0, n} }

// Whole says whether the range is the whole object, unasked: the answer is a 200.
func (r Range) Whole() bool { return r.kind == kindWhole }

// Resolve cuts the range to an object of size bytes. partial says whether the answer is a part (206) and not the object
// (200). The error is a *RangeError. An empty object has no part: a suffix of it is the whole, as S3 answers, and every
// other range is unsatisfiable.
func (r Range) Resolve(size int64) (offset, length int64, partial bool, err error) {
	switch r.kind {
	case kindFromTo:
		if r.first >= size {
			return 0, 0, false, &RangeError{Range: r, Size: size}
		}
		// last-first can't overflow, last-first+1 can.
		return r.first, min(r.last-r.first, size-1-r.first) + 1, true, nil
	case kindFrom:
		if r.first >= size {
			return 0, 0, false, &RangeError{Range: r, Size: size}
		}
		return r.first, size - r.first, true, nil
	case kindSuffix:
		if r.last == 0 {
			return 0, 0, false, &RangeError{Range: r, Size: size}
		}
		if size == 0 {
			return 0, 0, false, nil
		}
		n := min(r.last, size)
		return size - n, n, true, nil
	}
	return 0, size, false, nil
}

func (r Range) String() string {
	switch r.kind {
	case kindFromTo:
		return fmt.Sprintf("bytes=%d-%d", r.first, r.last)
	case kindFrom:
		return fmt.Sprintf("bytes=%d-", r.first)
	case kindSuffix:
		return fmt.Sprintf("bytes=-%d", r.last)
	}
	return ""
}

// ErrUnsatisfied marks errors that refuse a request for what the info says: 412 and 416. An error that matches it and
// was decided on remembered info is not answered before the origin has confirmed that info. Errors returned by
// Request.Check take part by matching it with errors.Is.
var ErrUnsatisfied = errors.New("refused for what is known of the object")

// RangeError is a range that an object of this size can't satisfy: S3's 416 InvalidRange.
type RangeError struct {
	Range Range
	Size  int64
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("range %v not satisfiable in an object of %d bytes", e.Range, e.Size)
}

// Is makes a RangeError match ErrUnsatisfied.
func (e *RangeError) Is(target error) bool { return target == ErrUnsatisfied }
