// Package scrub removes secret members from JSON without touching what stays.
//
// It reads its input once, checks it as strictly as RFC 8259 allows, and copies
// only where something was removed. What stays keeps its bytes: the order of
// members, the spelling of numbers and strings, repeated names, white space.
package scrub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how deeply objects and arrays may nest, the outermost included.
// RFC 8259, section 9, leaves the limit to the implementation.
const MaxDepth = 1000

// wrapDepth is how much deeper an object may nest that was made around another.
const wrapDepth = 16

// SyntaxError says where the input breaks which rule. It never holds any of
// the input.
type SyntaxError struct {
	Offset int // in bytes, from 0
	Rule   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Rule, e.Offset) }

// Object returns data, which must be one JSON object (RFC 8259, section 4),
// without the members that names has, at any level. If there are none it
// returns data itself, and does not allocate; otherwise a new slice. The error
// is a *[SyntaxError].
//
// A removed member that follows a kept one goes with the comma before it and
// the white space after that comma. One with no kept member before it goes
// with the white space and the comma after it, and the white space after that
// comma, if a member follows. All other white space stays.
//
// The input must be UTF-8 without a byte order mark (section 8.1). White space
// around the object is allowed (section 2), as are repeated names (section 4)
// and escapes of lone surrogates (section 8.2). Like encoding/json, matching
// reads such an escape as U+FFFD.
func Object(data []byte, names Names) ([]byte, error) {
	s := scanner{data: data, names: names, maxDepth: MaxDepth}
	if err := s.run(); err != nil {
		return nil, err
	}
	if s.out == nil {
		return data, nil
	}
	return append(s.out, data[s.copied:]...), nil
}

// Valid checks by the same rules that data is one JSON object. It may nest 16
// levels deeper, so as to hold an object that [Object] has let through. The
// error is a *[SyntaxError].
func Valid(data []byte) error {
	s := scanner{data: data, maxDepth: MaxDepth + wrapDepth}
	return s.run()
}

const (
	ruleEmpty    = "no object"
	ruleMark     = "byte order mark"
	ruleObject   = "not an object"
	ruleEnd      = "unexpected end"
	ruleTrailing = "data after the object"
	ruleDepth    = "nested too deeply"
	ruleName     = "expected a member name"
	ruleColon    = "expected a colon"
	ruleValue    = "expected a value"
	ruleComma    = "expected a comma or the end of the object or array"
	ruleLiteral  = "malformed literal"
	ruleNumber   = "malformed number"
	ruleEscape   = "malformed escape"
	ruleControl  = "unescaped control character in a string"
	ruleUTF8     = "invalid UTF-8"
)

// levels has a bit for each level of nesting.
type levels [(MaxDepth+wrapDepth)/64 + 1]uint64

func (l *levels) set(depth int)      { l[depth>>6] |= 1 << (depth & 63) }
func (l *levels) clear(depth int)    { l[depth>>6] &^= 1 << (depth & 63) }
func (l *levels) has(depth int) bool { return l[depth>>6]&(1<<(depth&63)) != 0 }

// scanner walks the input with a stack of bits in place of recursion.
type scanner struct {
	data  []byte
	names Names

	depth, maxDepth int

	objects levels // the level is an object, not an array
	kept    levels // the object already has a member that stays

	dropping  int // the depth of the object whose member is being removed, or 0
	dropFrom  int
	dropComma bool // dropFrom is the comma before the member

	out    []byte // nil until something was removed
	copied int    // how much of data is in out, or was removed
}

// What the scanner is at.
type place int

const (
	atName  place = iota // where a member's name must begin
	atValue              // where a value must begin
	atEnd                // after a value
)

func (s *scanner) run() error {
	i := s.space(0)
	switch {
	case i < len(s.data) && s.data[i] == '{':
	case bytes.HasPrefix(s.data, []byte("\xef\xbb\xbf")):
		return fail(ruleMark, 0)
	case i == len(s.data):
		return fail(ruleEmpty, i)
	default:
		return fail(ruleObject, i)
	}
	comma := 0 // where the last one was
	for at := atValue; ; {
		var err error
		switch at {
		case atName:
			if i, err = s.name(i, comma); err != nil {
				return err
			}
			at = atValue
		case atValue:
			if i, at, err = s.value(i); err != nil {
				return err
			}
		case atEnd:
			if s.dropping == s.depth && s.depth > 0 {
				s.dropping = 0
				if next := s.dropEnd(i); next > i {
					i, at = next, atName
					continue
				}
			}
			i = s.space(i)
			if s.depth == 0 {
				if i < len(s.data) {
					return fail(ruleTrailing, i)
				}
				return nil
			}
			object := s.objects.has(s.depth)
			switch c := s.byte(i); {
			case c == ',':
				comma = i
				i = s.space(i + 1)
				at = atValue
				if object {
					at = atName
				}
			case c == '}' && object, c == ']' && !object:
				s.depth--
				i++
			default:
				return s.failAt(ruleComma, i)
			}
		}
	}
}

// name reads a member's name and the colon, decides whether the member stays,
// and returns where its value begins.
func (s *scanner) name(i, comma int) (int, error) {
	if s.byte(i) != '"' {
		return 0, s.failAt(ruleName, i)
	}
	end, plain, err := s.text(i + 1)
	if err != nil {
		return 0, err
	}
	if s.dropping == 0 {
		if s.names.has(s.data[i+1:end-1], plain) {
			s.dropping = s.depth
			s.dropFrom, s.dropComma = i, s.kept.has(s.depth)
			if s.dropComma {
				s.dropFrom = comma
			}
		} else {
			s.kept.set(s.depth)
		}
	}
	i = s.space(end)
	if s.byte(i) != ':' {
		return 0, s.failAt(ruleColon, i)
	}
	return s.space(i + 1), nil
}

// dropEnd removes the member whose value ended before i. Where the comma after
// it goes too, it returns the place of the name that must follow, otherwise 0.
func (s *scanner) dropEnd(i int) int {
	end, next := i, 0
	if !s.dropComma {
		if j := s.space(i); s.byte(j) == ',' {
			next = s.space(j + 1)
			end = next
		}
	}
	if s.out == nil {
		s.out = make([]byte, 0, len(s.data))
	}
	s.out = append(s.out, s.data[s.copied:s.dropFrom]...)
	s.copied = end
	return next
}

// value reads a value, of an object or array only the beginning, and says
// where that leaves the scanner.
func (s *scanner) value(i int) (int, place, error) {
	var err error
	switch c := s.byte(i); c {
	case '{', '[':
		if s.depth == s.maxDepth {
			return 0, 0, fail(ruleDepth, i)
		}
		s.depth++
		next, closing := atValue, byte(']')
		s.objects.clear(s.depth)
		if c == '{' {
			next, closing = atName, '}'
			s.objects.set(s.depth)
			s.kept.clear(s.depth)
		}
		i = s.space(i + 1)
		if s.byte(i) == closing {
			s.depth--
			return i + 1, atEnd, nil
		}
		return i, next, nil
	case '"':
		i, _, err = s.text(i + 1)
	case 't':
		i, err = s.literal(i, "true")
	case 'f':
		i, err = s.literal(i, "false")
	case 'n':
		i, err = s.literal(i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		i, err = s.number(i)
	default:
		err = s.failAt(ruleValue, i)
	}
	return i, atEnd, err
}

func (s *scanner) literal(i int, word string) (int, error) {
	for j := range len(word) {
		if s.byte(i+j) != word[j] {
			return 0, s.failAt(ruleLiteral, i+j)
		}
	}
	return i + len(word), nil
}

// number reads a number (RFC 8259, section 6).
func (s *scanner) number(i int) (int, error) {
	if s.byte(i) == '-' {
		i++
	}
	end := s.digits(i)
	if end == i || s.data[i] == '0' && end > i+1 {
		return 0, s.failAt(ruleNumber, i)
	}
	i = end
	if s.byte(i) == '.' {
		if end = s.digits(i + 1); end == i+1 {
			return 0, s.failAt(ruleNumber, end)
		}
		i = end
	}
	if c := s.byte(i); c == 'e' || c == 'E' {
		i++
		if c := s.byte(i); c == '+' || c == '-' {
			i++
		}
		if end = s.digits(i); end == i {
			return 0, s.failAt(ruleNumber, end)
		}
		i = end
	}
	return i, nil
}

func (s *scanner) digits(i int) int {
	for i < len(s.data) && '0' <= s.data[i] && s.data[i] <= '9' {
		i++
	}
	return i
}

// text reads a string from after its opening quote to after its closing one,
// and says whether it is plain: ASCII without escapes.
func (s *scanner) text(i int) (end int, plain bool, err error) {
	plain = true
	for {
		i = s.ordinary(i)
		if i >= len(s.data) {
			return 0, false, fail(ruleEnd, len(s.data))
		}
		switch c := s.data[i]; {
		case c == '"':
			return i + 1, plain, nil
		case c == '\\':
			plain = false
			if i, err = s.escape(i); err != nil {
				return 0, false, err
			}
		case c < ' ':
			return 0, false, fail(ruleControl, i)
		default:
			plain = false
			r, size := utf8.DecodeRune(s.data[i:])
			if r == utf8.RuneError && size == 1 {
				return 0, false, fail(ruleUTF8, i)
			}
			i += size
		}
	}
}

// ordinary returns the place, from i on, of the first byte that is a control
// character, a quote, a backslash or not ASCII.
func (s *scanner) ordinary(i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	// Eight bytes at a time. A subtraction sets the high bit of each byte below
	// its operand, and may carry only into bytes above such a one, so the lowest
	// bit set is exact.
	for ; i+8 <= len(s.data); i += 8 {
		w := binary.LittleEndian.Uint64(s.data[i:])
		found := (w | (w - ' '*ones) | ((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones)) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
	}
	for ; i < len(s.data); i++ {
		if c := s.data[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// escape reads an escape sequence (RFC 8259, section 7).
func (s *scanner) escape(i int) (int, error) {
	switch s.byte(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if _, ok := hexDigit(s.byte(j)); !ok {
				return 0, s.failAt(ruleEscape, j)
			}
		}
		return i + 6, nil
	}
	return 0, s.failAt(ruleEscape, i+1)
}

func (s *scanner) space(i int) int {
	for i < len(s.data) {
		switch s.data[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// byte returns the byte at i, or 0, which no rule allows anywhere, at the end.
func (s *scanner) byte(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

// failAt reports a rule broken at i, unless the input ended before.
func (s *scanner) failAt(rule string, i int) error {
	if i >= len(s.data) {
		return fail(ruleEnd, len(s.data))
	}
	return fail(rule, i)
}

func fail(rule string, offset int) error { return &SyntaxError{Offset: offset, Rule: rule} }
