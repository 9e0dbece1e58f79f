package channel

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// valueMost is how much of one value is shown, in UTF-16 units.
const valueMost = 1000

// A span is a piece of text: words of ours, or what came with the event and must
// stay text whatever it holds.
type span struct {
	text  string
	given bool
}

type text []span

// say makes a text of our words; each {} in them stands for the next of given.
// What is written from right to left is kept apart from the words around it, or it
// would take them along.
func say(words string, given ...string) text {
	alone := words == "{}"
	var t text
	for {
		before, after, found := strings.Cut(words, "{}")
		if before != "" {
			t = append(t, span{text: before})
		}
		if !found {
			return t
		}
		if s := given[0]; s != "" {
			if !alone && strings.ContainsFunc(s, rightToLeft) {
				s = "\u2068" + s + "\u2069" // an isolate (UAX #9)
			}
			t = append(t, span{text: s, given: true})
		}
		words, given = after, given[1:]
	}
}

// plain returns the text without any markup.
func (t text) plain() string {
	var b strings.Builder
	for _, s := range t {
		b.WriteString(s.text)
	}
	return b.String()
}

func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko)
}

// unseen are characters that show nothing. Two more are joiners, which letters and
// emoji need.
var unseen = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x00ad, Hi: 0x00ad, Stride: 1}, // soft hyphen
	{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
	{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
	{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
	{Lo: 0x180b, Hi: 0x180e, Stride: 1}, // Mongolian selectors
	{Lo: 0x200b, Hi: 0x200b, Stride: 1}, // zero width space
	{Lo: 0x2060, Hi: 0x2065, Stride: 1}, // word joiner, invisible operators
	{Lo: 0x206a, Hi: 0x206f, Stride: 1}, // deprecated formats
	{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // empty Braille pattern
	{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
	{Lo: 0xfeff, Hi: 0xfeff, Stride: 1}, // byte order mark
	{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // half width Hangul filler
}, LatinOffset: 1}

// seen reports whether there is a character that shows something by itself.
func seen(r rune) bool {
	return r != '\u200c' && r != '\u200d' && !unicode.IsSpace(r) && !unicode.IsMark(r) && (r < 0xe0000 || r > 0xe0fff)
}

// line makes one line of what came with an event: valid UTF-8, white space and
// control characters shown as one space, nothing that turns the direction of
// writing or cannot be seen, at most n UTF-16 units. Where nothing is to be seen,
// it is empty.
func line(s string, n int) string {
	var b strings.Builder
	left, space := n, false
	for _, r := range s { // what is not UTF-8 comes as U+FFFD
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = b.Len() > 0
			continue
		}
		if unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unseen, r) {
			continue
		}
		if space {
			b.WriteByte(' ')
			left--
			space = false
		}
		b.WriteRune(r)
		if left -= utf16.RuneLen(r); left < 0 {
			break
		}
	}
	if !strings.ContainsFunc(b.String(), seen) {
		return ""
	}
	return strings.TrimRight(cut(b.String(), n), " \u200c\u200d")
}

const ellipsis = "…"

// cut shortens a text to n UTF-16 units, the ellipsis included, between two
// characters.
func cut(s string, n int) string {
	if units(s) <= n {
		return s
	}
	if n <= 0 {
		return ""
	}
	left := n - 1
	for i, r := range s {
		if left -= utf16.RuneLen(r); left < 0 {
			// No joiner without what it joins.
			return strings.TrimRight(s[:i], " \u200d\ufe0f") + ellipsis
		}
	}
	return s
}

// units is the length of a text in UTF-16 units, which is what Telegram counts
// and never less than the number of characters.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// link returns a URL that a person may be sent to, or "": http or https, a public
// looking host, no user name in it.
func link(s string) string {
	if s == "" || len(s) > 2000 || strings.HasSuffix(s, ellipsis) || strings.Contains(s, " ") {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return ""
	}
	host := u.Hostname()
	if !strings.Contains(strings.Trim(host, "."), ".") || strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return ""
	}
	s = u.String()
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte("\"<>\\^`{|}", s[i]) >= 0 {
			return ""
		}
	}
	if len(s) > 2000 {
		return ""
	}
	return s
}

// encode returns v as JSON, with <, > and & as they are.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // of what this package makes, nothing fails
		return []byte("{}")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func itoa(n int) string { return strconv.Itoa(n) }

// sorted returns the names of an object's members in order.
func sorted(o map[string]any) []string { return slices.Sorted(maps.Keys(o)) }
