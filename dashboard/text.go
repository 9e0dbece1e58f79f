package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What receivers and publishers sent is shown as text. The templates escape it;
// the functions here take out what deceives or breaks a page all the same.

// printable returns bytes as text that is what it looks like: what is not UTF-8 is
// U+FFFD, and control characters, those that turn the direction of writing
// included, are written out as escapes.
func printable(b []byte) string {
	text := strings.ToValidUTF8(string(b), "\ufffd")
	if !strings.ContainsFunc(text, invisible) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if invisible(r) {
			fmt.Fprintf(&out, `\u{%X}`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// invisible reports whether a character must not reach a page as it is: controls
// (of which HTML forbids most), format characters and what is no character.
func invisible(r rune) bool {
	switch r {
	case '\n', '\t', '\r':
		return false
	case '\u200d', '\u200c': // join or part letters and emoji
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Noncharacter_Code_Point, unicode.Zl, unicode.Zp)
}

// A token is a piece of JSON of one kind.
type token struct {
	Class string // "k" a member's name, "s" a string, "n" a number, "l" a literal, "" the rest
	Text  string
}

const (
	documentMost = 64 << 10 // bytes that are laid out and coloured
	depthMost    = 64       // of nesting: indentation would outgrow the document
)

// document returns JSON laid out for reading, in tokens. What is no JSON, or is
// too much of it, is one token of text, as it is.
func document(b []byte) []token {
	if len(b) == 0 {
		return nil
	}
	var out bytes.Buffer
	if len(b) > documentMost || depth(b) > depthMost || json.Indent(&out, b, "", "  ") != nil {
		return []token{{Text: printable(b)}}
	}
	return tokens(printable(out.Bytes()))
}

// depth returns how deep JSON is nested.
func depth(b []byte) int {
	deepest, now, inside := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			inside = !inside
		case inside && c == '\\':
			i++
		case inside:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// tokens parts indented JSON.
func tokens(text string) []token {
	var list []token
	for text != "" {
		var n int
		class := ""
		switch c := text[0]; {
		case c == '"':
			n, class = quoted(text), "s"
			if strings.HasPrefix(text[n:], ":") {
				class = "k"
			}
		case c == '-' || c >= '0' && c <= '9':
			n, class = span(text, "+-.eE0123456789"), "n"
		case c >= 'a' && c <= 'z':
			n, class = span(text, "abcdefghijklmnopqrstuvwxyz"), "l"
		default:
			if n = strings.IndexAny(text, `"-0123456789abcdefghijklmnopqrstuvwxyz`); n <= 0 {
				n = len(text)
			}
		}
		list = append(list, token{class, text[:n]})
		text = text[n:]
	}
	return list
}

// quoted returns the length of the string that JSON begins with.
func quoted(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// span returns how many bytes from the beginning are of a set.
func span(text, set string) int {
	if rest := strings.TrimLeft(text, set); rest != "" {
		return len(text) - len(rest)
	}
	return len(text)
}

// shorten cuts a line to so many characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return string(runes[:most-1]) + "…"
}
