package channel

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Event is what a message tells of.
type Event struct {
	DeliveryID  int64
	ID          string // "evt_…"
	Type        string
	WorkspaceID int64
	// Payload is the envelope as it was published: either of the two that come
	// with the library, or one of the host's own.
	Payload   []byte
	CreatedAt time.Time // when it was published
}

// content is what an event's envelope holds.
type content struct {
	data  object
	names []string  // of data's members, in the order in which they came
	at    time.Time // when it happened
}

// read takes an envelope apart. One of the host's own that has no object "data"
// is taken for the data itself; what is not an object is an event without data.
func (e Event) read() content {
	payload := e.Payload
	if !utf8.Valid(payload) {
		payload = bytes.ToValidUTF8(payload, []byte("\uFFFD"))
	}
	c := content{at: e.CreatedAt.UTC()}
	var envelope map[string]json.RawMessage
	if json.Unmarshal(payload, &envelope) != nil {
		return c
	}
	raw := envelope["data"]
	if len(raw) == 0 || raw[0] != '{' {
		c.data, c.names = readObject(payload)
		return c
	}
	c.data, c.names = readObject(raw)
	for _, name := range []string{"timestamp", "created_at"} {
		var value string
		if json.Unmarshal(envelope[name], &value) != nil {
			continue
		}
		if at, err := time.Parse(time.RFC3339, value); err == nil && at.Year() >= 1970 && at.Year() <= 9999 {
			c.at = at.UTC()
			break
		}
	}
	return c
}

// readObject decodes a valid JSON object, numbers as they are spelled.
func readObject(raw []byte) (o object, names []string) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if brace, err := dec.Token(); err != nil || brace != json.Delim('{') {
		return nil, nil
	}
	o = make(object)
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		var value any
		if err != nil || !ok || dec.Decode(&value) != nil {
			break
		}
		if _, again := o[name]; !again {
			names = append(names, name)
		}
		o[name] = value
	}
	return o, names
}

// object is a JSON object of whatever shape. Its methods return what is there in
// a form to be read, and nothing where it is missing or of another type.
type object map[string]any

// text returns the first of the named members that is a string, a number or a
// truth value, and not blank.
func (o object) text(names ...string) string {
	for _, name := range names {
		if s := scalar(o[name]); s != "" {
			return s
		}
	}
	return ""
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return line(v, valueMost)
	case json.Number:
		return line(v.String(), valueMost)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	return ""
}

// object returns a member that is an object.
func (o object) object(name string) object {
	v, _ := o[name].(map[string]any)
	return v
}

// list returns what is to be read of a member that is an array, joined.
func (o object) list(name string) string {
	values, _ := o[name].([]any)
	return join(values)
}

func join(values []any) string {
	var b strings.Builder
	for _, v := range values {
		s := scalar(v)
		if s == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		if b.WriteString(s); b.Len() > 4*valueMost {
			break
		}
	}
	return cut(b.String(), valueMost)
}

// count returns a number to be read: 50,000.
func (o object) count(names ...string) string { return figure(o.text(names...)) }

// when returns an instant to be read: "21 Sep 2026, 09:14 UTC".
func (o object) when(names ...string) string {
	for _, name := range names {
		if n, ok := o[name].(json.Number); ok {
			if at, ok := moment(n); ok {
				return at
			}
		}
		if s := scalar(o[name]); s != "" {
			return readable(s)
		}
	}
	return ""
}

// money returns an amount in the object's currency: "49.50 EUR".
func (o object) money(names ...string) string { return money(o.text(names...), o.text("currency")) }

// words returns what a program chose from a list: "past due".
func (o object) words(names ...string) string { return words(o.text(names...)) }

// who returns the person that the named members tell of: a name or an address,
// or "team member #1187" where there is but an id.
func (o object) who(names ...string) string {
	for _, name := range names {
		if s := who(name, o[name]); s != "" {
			return s
		}
	}
	return ""
}

// who returns the person that a member of that name tells of.
func who(name string, v any) string {
	switch v := v.(type) {
	case string:
		s := line(v, valueMost)
		if s != "" && (digits(s, valueMost) || strings.HasSuffix(name, "_id")) {
			return person(s)
		}
		return s
	case json.Number:
		return person(line(v.String(), valueMost))
	case map[string]any:
		o := object(v)
		if s := o.text("name", "email"); s != "" {
			return s
		}
		if s := o.text("id", "user_id"); s != "" {
			return person(s)
		}
	}
	return ""
}
