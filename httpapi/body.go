package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// bodyMost is the largest body that is read. The largest that is of use has 32
// headers of 4 KiB.
const bodyMost = 256 << 10

// members are all that bodies can have.
var members = []string{
	"url", "events", "description", "kind", "config", "secret", "headers", "max_in_flight", "rate_limit", "is_active",
	"seen_rotations", "no_overlap", "since",
}

// body is the JSON object that came with a request, member by member: what is
// taken out is known, and what breaks a rule is noted. encoding/json alone would
// take members in any letter case, twice, and null for anything.
type body struct {
	raw   map[string]json.RawMessage
	known []string
	errs  []FieldError
}

// readBody reads a body, which may be empty, as an I-JSON object (RFC 7493): UTF-8,
// no member twice, nothing after it.
func readBody(w http.ResponseWriter, r *http.Request) (*body, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &Problem{
			Type: typeOf("too-large"), Title: "Body too large", Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("The body is larger than %d bytes.", bodyMost),
		}
	case err != nil:
		return nil, problemMalformed("The body could not be read to its end.")
	case len(text) == 0:
		return &body{}, nil
	}
	if err := checkContentType(r.Header); err != nil {
		return nil, err
	}
	switch {
	case !utf8.Valid(text):
		return nil, problemMalformed("The body is not UTF-8.")
	case brokenSurrogate(text):
		return nil, problemMalformed(`The body has a \u escape of one half of a surrogate pair, which stands for no character.`)
	}
	raw, err := object(text)
	if err != nil {
		return nil, problemMalformed("The body must be one JSON object: " + err.Error() + ".")
	}
	return &body{raw: raw}, nil
}

func checkContentType(h http.Header) error {
	contentType, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, hasCharset := params["charset"]
	switch {
	case err != nil, contentType != "application/json", len(h.Values("Content-Type")) > 1,
		hasCharset && !strings.EqualFold(charset, "utf-8"):
		return problemMediaType("The body must be sent as Content-Type: application/json.")
	case h.Get("Content-Encoding") != "" && !strings.EqualFold(h.Get("Content-Encoding"), "identity"):
		return problemMediaType("The body must be sent as it is, without Content-Encoding.")
	}
	return nil
}

func problemMediaType(detail string) *Problem {
	return &Problem{Type: typeOf("unsupported-media-type"), Title: "Unsupported media type", Status: http.StatusUnsupportedMediaType, Detail: detail}
}

// brokenSurrogate reports whether a string in JSON has half of a surrogate pair,
// which encoding/json would replace.
func brokenSurrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return false
		}
		r, isUnit := unit(text[i:])
		switch {
		case !isUnit:
			text = text[i+2:]
		case !utf16.IsSurrogate(r):
			text = text[i+6:]
		default:
			second, ok := unit(text[i+6:])
			if !ok || utf16.DecodeRune(r, second) == utf8.RuneError {
				return true
			}
			text = text[i+12:]
		}
	}
}

// unit reads a \u escape.
func unit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

var errNotObject = errors.New("it is none")

// object takes a JSON object apart. Its errors quote no value.
func object(text []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil {
		return nil, syntax(d, err)
	} else if t != json.Delim('{') {
		return nil, errNotObject
	}
	raw := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, syntax(d, err)
		}
		name := t.(string) // anything else is a syntax error
		if _, twice := raw[name]; twice {
			return nil, fmt.Errorf("it has the member %s twice", strconv.Quote(shorten(name)))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, syntax(d, err)
		}
		raw[name] = value
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, syntax(d, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows it")
	}
	return raw, nil
}

func syntax(d *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too soon")
	}
	return fmt.Errorf("it is not JSON at about byte %d", d.InputOffset())
}

// refuse notes that a member breaks a rule.
func (b *body) refuse(field, rule string) { b.errs = append(b.errs, inBody(field, rule)) }

// require notes that a member is missing.
func (b *body) require(name, rule string) {
	if _, ok := b.raw[name]; !ok {
		b.refuse(name, rule)
	}
}

// take takes a member out. There is none where ok is false, or it was null.
func (b *body) take(name string) (raw json.RawMessage, ok bool) {
	b.known = append(b.known, name)
	raw, ok = b.raw[name]
	delete(b.raw, name)
	if ok && raw[0] == 'n' {
		b.refuse(name, "must not be null; leave it out")
		return nil, false
	}
	return raw, ok
}

// end returns the errors of all members as a *Problem: those of members that were
// taken, and those that nobody knows.
func (b *body) end() error {
	var unknown []FieldError
	for name := range maps.Keys(b.raw) {
		rule := "is not known here"
		if i := slices.IndexFunc(b.known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
			rule += fmt.Sprintf("; did you mean %q?", b.known[i])
		} else if len(b.known) > 0 {
			rule += "; there are " + strings.Join(b.known, ", ")
		}
		unknown = append(unknown, FieldError{Field: shorten(name), Detail: rule})
	}
	b.errs = append(b.errs, inOrder(unknown)...)
	if len(b.errs) == 0 {
		return nil
	}
	return problemInvalid(b.errs...)
}

// text takes a string out; nil without.
func (b *body) text(name string) *string {
	raw, ok := b.take(name)
	if !ok {
		return nil
	}
	s, ok := text(raw)
	if !ok {
		b.refuse(name, "must be a string")
		return nil
	}
	return &s
}

func text(raw json.RawMessage) (s string, ok bool) {
	return s, raw[0] == '"' && json.Unmarshal(raw, &s) == nil
}

// texts takes an array of strings out; nil without.
func (b *body) texts(name string) []string {
	raw, ok := b.take(name)
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		b.refuse(name, "must be an array of strings")
		return nil
	}
	out := make([]string, 0, len(list))
	for i, raw := range list {
		s, ok := text(raw)
		if !ok {
			b.refuse(fmt.Sprintf("%s[%d]", name, i), "must be a string")
			return nil
		}
		out = append(out, s)
	}
	return out
}

// textMap takes an object whose members are strings out; nil without.
func (b *body) textMap(name string) map[string]string {
	raw, ok := b.take(name)
	if !ok {
		return nil
	}
	values, err := object(raw)
	if err != nil {
		rule := "must be an object whose members are strings"
		if !errors.Is(err, errNotObject) {
			rule += "; " + err.Error()
		}
		b.refuse(name, rule)
		return nil
	}
	out := make(map[string]string, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		s, ok := text(values[key])
		if !ok {
			b.refuse(name+"."+shorten(key), "must be a string")
			return nil
		}
		out[key] = s
	}
	return out
}

// count takes a whole number out; nil without.
func (b *body) count(name string) *int {
	f := b.number(name, "must be a whole number between 0 and 2^53 - 1", func(f float64) bool { return f == math.Trunc(f) && f >= 0 && f <= idMost })
	if f == nil {
		return nil
	}
	n := int(*f)
	return &n
}

// rate takes a number out; nil without.
func (b *body) rate(name string) *float64 {
	return b.number(name, "must be a number", func(float64) bool { return true })
}

func (b *body) number(name, rule string, allowed func(float64) bool) *float64 {
	raw, ok := b.take(name)
	if !ok {
		return nil
	}
	var f float64
	if json.Unmarshal(raw, &f) != nil || !allowed(f) {
		b.refuse(name, rule)
		return nil
	}
	return &f
}

// flag takes true or false out; nil without.
func (b *body) flag(name string) *bool {
	raw, ok := b.take(name)
	if !ok {
		return nil
	}
	var v bool
	if json.Unmarshal(raw, &v) != nil {
		b.refuse(name, "must be true or false")
		return nil
	}
	return &v
}

// time takes an instant out; zero without.
func (b *body) time(name string) time.Time {
	raw, ok := b.take(name)
	if !ok {
		return time.Time{}
	}
	s, _ := text(raw)
	t, ok := parseTime(s)
	if !ok {
		b.refuse(name, ruleTime)
		return time.Time{}
	}
	return t
}
