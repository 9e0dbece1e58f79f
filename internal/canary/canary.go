// Package canary finds a secret where none may be, whatever form it took on the
// way: tests put one in, and search what came out.
package canary

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
)

const (
	window = 12 // bytes of a secret that are too many to be seen
	stride = 4
)

// A Canary is a secret to look for.
type Canary struct {
	name  string
	forms []form
}

type form struct {
	name string
	text []byte
}

// New returns a canary. The secret should be of 12 bytes or more, and like
// nothing else; of a long one, any 16 bytes in a row are looked for.
func New(name, secret string) *Canary {
	c := &Canary{name: name}
	seen := map[string]bool{}
	for at := 0; at == 0 || at+window <= len(secret); at += stride {
		piece := secret[at:min(len(secret), at+window)]
		for form, text := range forms(piece) {
			if !seen[text] {
				seen[text] = true
				c.add(form, text)
			}
		}
	}
	return c
}

func (c *Canary) add(name, text string) { c.forms = append(c.forms, form{name, []byte(text)}) }

// String returns the canary's name.
func (c *Canary) String() string { return c.name }

// In reports in what form the canary is in b; empty if it is not.
func (c *Canary) In(b []byte) string {
	for _, f := range c.forms {
		if bytes.Contains(b, f.text) {
			return f.name
		}
	}
	return ""
}

func forms(s string) map[string]string {
	m := map[string]string{
		"raw":             s,
		"hex":             hex.EncodeToString([]byte(s)),
		"upper-case hex":  strings.ToUpper(hex.EncodeToString([]byte(s))),
		"spaced hex":      fmt.Sprintf("% x", s),
		"upper % X":       fmt.Sprintf("% X", s),
		"decimal bytes":   strings.Trim(fmt.Sprintf("%d", []byte(s)), "[]"),
		"decimal JSON":    strings.ReplaceAll(strings.Trim(fmt.Sprintf("%d", []byte(s)), "[]"), " ", ","),
		"Go bytes":        strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(s)), "[]byte{"), "}"),
		"Go runes":        strings.TrimSpace(each(s, "%d ")),
		"octal":           strings.TrimSpace(each(s, "%o ")),
		"binary":          strings.TrimSpace(each(s, "%b ")),
		"U+ runes":        strings.TrimSpace(each(s, "%U ")),
		"quoted":          strings.Trim(fmt.Sprintf("%q", s), `"`),
		"query":           url.QueryEscape(s),
		"path":            url.PathEscape(s),
		"percent":         each(s, "%%%02x"),
		"upper percent":   each(s, "%%%02X"),
		"escaped \\u":     each(s, `\u%04x`),
		"escaped \\x":     each(s, `\x%02x`),
		"HTML":            html.EscapeString(s),
		"numbered HTML":   each(s, "&#%d;"),
		"\\x upper":       each(s, `\x%02X`),
		"upper case":      strings.ToUpper(s),
		"lower case":      strings.ToLower(s),
		"JSON with \\/":   strings.ReplaceAll(s, "/", `\/`),
		"UTF-16":          utf16(s, 1),
		"UTF-16, the end": utf16(s, 0),
	}
	if b, err := json.Marshal(s); err == nil {
		m["JSON"] = string(b[1 : len(b)-1])
	}
	for shift := range 3 {
		// The digits that hold nothing but bits of s, wherever s begins in what
		// was encoded.
		raw := append(make([]byte, shift), s...)
		from, to := (shift*8+5)/6, len(raw)*8/6
		m[fmt.Sprintf("base64 at %d", shift)] = base64.RawStdEncoding.EncodeToString(raw)[from:to]
		m[fmt.Sprintf("base64url at %d", shift)] = base64.RawURLEncoding.EncodeToString(raw)[from:to]
	}
	return m
}

func each(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func utf16(s string, at int) string {
	b := make([]byte, 2*len(s))
	for i := range len(s) {
		b[2*i+at] = s[i]
	}
	return string(b[at : len(b)-1+at])
}
