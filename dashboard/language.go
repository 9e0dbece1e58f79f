package dashboard

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The catalog of messages: a file for each language, the same keys in each. A
// message that counts has a form for each plural category of its language.
//
//go:embed messages/*.json
var messageFiles embed.FS

// A language is how the pages speak.
type language struct {
	tag     string // for the lang attribute
	plural  func(n int) string
	decimal string
	group   string
	percent string // what follows the number
	texts   map[string]message
}

// message is one text, by plural category; "" where it does not count.
type message map[string]string

// UnmarshalJSON takes a string, or an object with the plural categories.
func (m *message) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*m = message{"": text}
		return nil
	}
	return json.Unmarshal(b, (*map[string]string)(m))
}

// english is the language of whoever asks for none that is there.
const english = "en"

// languages are those there is a catalog for, by primary subtag (RFC 5646,
// section 2.2.1). Numbers are written as in CLDR 46.
var languages = sync.OnceValue(func() map[string]*language {
	all := map[string]*language{
		english: {tag: "en", plural: oneOther, decimal: ".", group: ",", percent: "%"},
		"de":    {tag: "de", plural: oneOther, decimal: ",", group: ".", percent: "\u00a0%"},
		"ru":    {tag: "ru", plural: russian, decimal: ",", group: "\u00a0", percent: "\u00a0%"},
		"ja":    {tag: "ja", plural: otherOnly, decimal: ".", group: ",", percent: "%"},
		"pt":    {tag: "pt-BR", plural: portuguese, decimal: ",", group: ".", percent: "%"},
	}
	for name, l := range all {
		file, err := messageFiles.ReadFile(path.Join("messages", name+".json"))
		if err == nil {
			err = json.Unmarshal(file, &l.texts)
		}
		if err != nil {
			panic(fmt.Sprintf("dashboard: messages of %q: %v", name, err)) // they are part of the program
		}
	}
	return all
})

// find returns the language of a tag such as "de", "de-AT" or "de_DE", or nil.
func find(tag string) *language {
	tag = strings.ToLower(strings.TrimSpace(tag))
	if i := strings.IndexAny(tag, "-_"); i >= 0 {
		tag = tag[:i]
	}
	return languages()[tag]
}

// negotiate returns the language that an Accept-Language header (RFC 9110,
// section 12.5.4) likes best, the first one of equals; English if it likes none.
func negotiate(header string) *language {
	var best *language
	most := 0.0
	for entry := range strings.SplitSeq(header, ",") {
		tag, params, _ := strings.Cut(entry, ";")
		weight := 1.0
		if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
			var err error
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		if l := find(tag); l != nil && weight > most && weight <= 1 {
			best, most = l, weight
		}
	}
	if best == nil {
		return languages()[english]
	}
	return best
}

// t returns a message. args are names and values of the placeholders in it; the
// one called n, an int, chooses the plural form.
func (l *language) t(key string, args ...any) string {
	m, ok := l.texts[key]
	if !ok {
		return key // a test finds it
	}
	category := ""
	if _, plain := m[""]; !plain {
		category = "other"
	}
	pairs := make([]string, 0, len(args))
	for i := 0; i+1 < len(args); i += 2 {
		name := args[i].(string)
		var value string
		switch v := args[i+1].(type) {
		case int:
			if value = l.integer(v); name == "n" && category != "" {
				category = l.plural(v)
			}
		case string:
			value = v
		default:
			value = fmt.Sprint(v)
		}
		pairs = append(pairs, "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(m[category])
}

// has reports whether there is a message.
func (l *language) has(key string) bool {
	_, ok := l.texts[key]
	return ok
}

// integer writes a number in groups of three digits.
func (l *language) integer(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var groups []string
	for len(digits) > 3 {
		groups = append(groups, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	groups = append(groups, digits)
	slices.Reverse(groups)
	return sign + strings.Join(groups, l.group)
}

// number writes a number with at most so many decimals, no zeros at their end.
func (l *language) number(f float64, decimals int) string {
	text := strconv.FormatFloat(f, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(text, ".")
	n, _ := strconv.Atoi(whole) // of a number this package counted
	if rest = strings.TrimRight(rest, "0"); rest == "" {
		return l.integer(n)
	}
	return l.integer(n) + l.decimal + rest
}

// The plural rules of CLDR 46 for whole numbers that are not negative:
// https://www.unicode.org/cldr/charts/46/supplemental/language_plural_rules.html

func otherOnly(int) string { return "other" }

func oneOther(n int) string {
	if n == 1 {
		return "one"
	}
	return "other"
}

func portuguese(n int) string {
	switch {
	case n == 0 || n == 1:
		return "one"
	case n%1_000_000 == 0:
		return "many"
	}
	return "other"
}

func russian(n int) string {
	ten, hundred := n%10, n%100
	switch {
	case ten == 1 && hundred != 11:
		return "one"
	case ten >= 2 && ten <= 4 && (hundred < 12 || hundred > 14):
		return "few"
	}
	return "many"
}
