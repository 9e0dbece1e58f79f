package webhook

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The beginning of an answer is kept for a person to read, and some receivers
// put into it what they were sent: a page for debugging, a message that quotes
// the signature it did not like. What is confidential in a request is taken out
// before the answer is stored.

const (
	snippetMost = 16 << 10 // bytes kept of an answer

	// What is shorter is found everywhere, and keeps nobody out.
	confidenceLeast = 6
	wordLeast       = 8
	targetLeast     = 8
	plainMost       = 24
)

// confidences are texts that must not show in an answer.
type confidences []Secret

// add takes in texts, in the form in which they are looked for.
func (c confidences) add(texts ...string) confidences {
	for _, text := range texts {
		plain, _ := unescape(strings.TrimRight(text, "=")) // some leave out the padding
		if len(plain) >= confidenceLeast {
			c = append(c, NewSecret(plain))
		}
	}
	return c
}

// addHeader takes in a header's value and the words of it: who quotes
// "v1=" and a signature may leave the "v1=" out.
func (c confidences) addHeader(value string) confidences {
	c = c.add(value)
	words := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" ,;=", r) })
	for _, word := range words {
		if len(word) >= wordLeast && strings.Trim(word, "0123456789") != "" { // a timestamp is not confidential
			c = c.add(word)
		}
	}
	if len(words) > 1 && strings.EqualFold(words[0], "Basic") { // RFC 7617
		if raw, err := base64.RawStdEncoding.DecodeString(words[1]); err == nil {
			_, password, _ := strings.Cut(string(raw), ":")
			c = c.add(string(raw), password)
		}
	}
	return c
}

// addURL takes in path and query as a whole, and each part of them that is not
// plainly a word: many receivers have nothing but such a part to know us by.
func (c confidences) addURL(u *url.URL) confidences {
	if target := u.RequestURI(); len(target) >= targetLeast {
		c = c.add(target)
	}
	parts := strings.Split(u.EscapedPath(), "/")
	for _, pair := range strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			value = key
		}
		parts = append(parts, value)
	}
	for _, part := range parts {
		if len(part) > plainMost || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz-_.") != "" {
			c = c.add(part)
		}
	}
	return c
}

// cover replaces what is confidential in the beginning of an answer. cut says
// that there was more of it: a confidence may have been cut as well.
func (c confidences) cover(body []byte, cut bool) (covered []byte, nowCut bool) {
	if len(body) < confidenceLeast || len(c) == 0 {
		return body, cut
	}
	text, at := unescape(string(body))
	type span struct{ from, to int }
	var spans []span
	for _, secret := range c {
		s := secret.Reveal()
		for from := 0; ; {
			i := strings.Index(text[from:], s)
			if i < 0 {
				break
			}
			from += i
			spans = append(spans, span{at(from), at(from + len(s))})
			from += len(s)
		}
		if cut {
			if n := beginning(text, s); n > 0 {
				spans = append(spans, span{at(len(text) - n), len(body)})
			}
		}
	}
	if len(spans) == 0 {
		return body, cut
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	from, hidden := 0, -1
	for _, s := range spans {
		if s.from > hidden {
			covered = append(append(covered, body[from:s.from]...), redacted...)
		}
		hidden = max(hidden, s.to)
		from = hidden
	}
	covered = append(covered, body[from:]...)
	if len(covered) > snippetMost {
		return covered[:snippetMost], true
	}
	return covered, cut
}

const redacted = "[redacted]"

// beginning returns how much of the end of text may be the beginning of s. An
// escape that was cut is no beginning of anything, but what is before it may be.
func beginning(text, s string) int {
	most := overlapping(text, s)
	for end := len(text); ; {
		last := text[max(0, end-len("&#x002f")):end]
		escape := cutEscape.FindStringIndex(last)
		if escape == nil {
			return most
		}
		end -= len(last) - escape[0]
		if n := overlapping(text[:end], s); n > 0 {
			most = max(most, n+len(text)-end)
		}
	}
}

// cutEscape is the beginning of what unescapeByte knows.
var cutEscape = regexp.MustCompile(`(\\(u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?|%[0-9A-Fa-f]?|&([a-z]{0,6}|#[0-9]{0,4}|#[xX][0-9A-Fa-f]{0,4}))$`)

func overlapping(text, s string) int {
	for n := min(len(s)-1, len(text)); n >= confidenceLeast; n-- {
		if strings.HasSuffix(text, s[:n]) {
			return n
		}
	}
	return 0
}

// unescape undoes the escapes of JSON, URLs, HTML and programming languages, also where
// they lie on top of each other, and returns where in s a byte of the result
// comes from.
func unescape(s string) (plain string, at func(int) int) {
	at = func(i int) int { return i }
	for range 4 { // more layers than anybody lays
		if !strings.ContainsAny(s, `\%&`) {
			break
		}
		b := make([]byte, 0, len(s))
		from := make([]int, 0, len(s)+1)
		for i := 0; i < len(s); {
			c, n := unescapeByte(s[i:])
			b, from = append(b, c), append(from, i)
			i += n
		}
		if len(b) == len(s) {
			break
		}
		from = append(from, len(s))
		inner := at
		s, at = string(b), func(i int) int { return inner(from[i]) }
	}
	return s, at
}

// unescapeByte returns the first byte of s, and how many bytes stand for it.
func unescapeByte(s string) (c byte, n int) {
	number := func(from, to, base int) bool {
		if to > len(s) {
			return false
		}
		v, err := strconv.ParseUint(s[from:to], base, 8)
		c, n = byte(v), to
		return err == nil && v < 0x80
	}
	switch {
	case len(s) < 2:
	case s[0] == '%' && number(1, 3, 16):
		return c, n
	case s[0] == '\\' && strings.IndexByte(`"\/'`, s[1]) >= 0:
		return s[1], 2
	case s[0] == '\\' && s[1] == 'u' && number(2, 6, 16):
		return c, n
	case s[0] == '\\' && s[1] == 'x' && number(2, 4, 16):
		return c, n
	case s[0] == '&':
		end := strings.IndexByte(s[:min(len(s), len("&#x002f;"))], ';')
		switch {
		case end < 0:
		case len(s) > 3 && s[1] == '#' && s[2]|0x20 == 'x' && number(3, end, 16),
			s[1] == '#' && number(2, end, 10):
			return c, end + 1
		default:
			for name, b := range entities {
				if s[1:end] == name {
					return b, end + 1
				}
			}
		}
	}
	return s[0], 1
}

var entities = map[string]byte{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\'', "sol": '/', "equals": '=', "plus": '+'}
