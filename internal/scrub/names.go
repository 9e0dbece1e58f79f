package scrub

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Names is a set of member names. A member is in it if its name, unescaped,
// equals one of them under [strings.EqualFold]. The zero value is empty. Names
// is immutable and safe for concurrent use.
type Names struct {
	// set holds the names folded: each rune is the least of those that differ
	// from it in case only. For ASCII letters that is the upper-case one.
	set map[string]struct{}
	// lengths and firsts have a bit for each length and first letter of the
	// folded names in ASCII, so that most plain names cost no look-up.
	lengths, firsts uint64
}

// NewNames returns the set of names.
func NewNames(names ...string) Names {
	if len(names) == 0 {
		return Names{}
	}
	n := Names{set: make(map[string]struct{}, len(names))}
	for _, name := range names {
		var folded []byte
		for _, r := range name {
			folded = utf8.AppendRune(folded, fold(r))
		}
		n.set[string(folded)] = struct{}{}
		n.lengths |= lengthBit(len(folded))
		if len(folded) > 0 {
			n.firsts |= firstBit(folded[0])
		}
	}
	return n
}

// has reports whether the set has a name, given as it is spelled between its
// quotes. Plain says that it is ASCII without escapes.
func (n *Names) has(spelled []byte, plain bool) bool {
	if len(n.set) == 0 {
		return false
	}
	if plain {
		// A plain name folds byte for byte, and to ASCII.
		if n.lengths&lengthBit(len(spelled)) == 0 {
			return false
		}
		if len(spelled) > 0 && n.firsts&firstBit(byte(fold(rune(spelled[0])))) == 0 {
			return false
		}
	}
	var buf [128]byte
	_, ok := n.set[string(appendFolded(buf[:0], spelled))]
	return ok
}

func lengthBit(n int) uint64 { return 1 << min(n, 63) }
func firstBit(c byte) uint64 { return 1 << (c & 63) }

// appendFolded appends a name, given as it is spelled in valid JSON, unescaped
// and folded.
func appendFolded(dst, spelled []byte) []byte {
	for len(spelled) > 0 {
		r, size := decode(spelled)
		dst = utf8.AppendRune(dst, fold(r))
		spelled = spelled[size:]
	}
	return dst
}

// decode returns the first character of a string spelled in valid JSON, and
// the length of its spelling. A lone surrogate is U+FFFD, as in encoding/json.
func decode(spelled []byte) (rune, int) {
	if spelled[0] != '\\' {
		return utf8.DecodeRune(spelled)
	}
	switch c := spelled[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := unit(spelled)
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(spelled) >= 12 && spelled[6] == '\\' && spelled[7] == 'u' {
			if pair := utf16.DecodeRune(r, unit(spelled[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	default:
		return rune(c), 2
	}
}

// unit returns the UTF-16 code unit of a \u escape.
func unit(spelled []byte) rune {
	var r rune
	for _, c := range spelled[2:6] {
		digit, _ := hexDigit(c)
		r = r<<4 | digit
	}
	return r
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// fold returns the least rune that equals r under simple case folding.
func fold(r rune) rune {
	if r < utf8.RuneSelf {
		if 'a' <= r && r <= 'z' {
			r -= 'a' - 'A'
		}
		return r
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}
