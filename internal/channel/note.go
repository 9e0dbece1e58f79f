package channel

import (
	"strings"
	"time"
)

// A note is what a message says, whatever it is sent to.
type note struct {
	title  text // what happened, to what
	detail text // one sentence more, or nothing
	url    string
	fields []field
	tone   tone

	about       string // what happened to, to tell one from the other
	data        object
	eventType   string
	workspaceID int64
	at          time.Time
}

type field struct{ name, value text }

// A tone is how an event is to be taken.
type tone int

const (
	neutral  tone = iota
	good          // something began
	warning       // something will need attention
	bad           // something is broken
	goodbye       // something ended
	critical      // of what is bad, what an issue tracker calls an error
)

// describe writes the note of an event. It has something to say of every event:
// types it does not know are told by their name and what is in their data.
func describe(e Event) *note {
	c := e.read()
	n := &note{data: c.data, eventType: e.Type, workspaceID: e.WorkspaceID, at: c.at}
	resource, action, _ := strings.Cut(e.Type, ".")
	ok := false
	switch resource {
	case "link":
		ok = n.link(action, c.data)
	case "domain":
		ok = n.domain(action, c.data)
	case "workspace":
		ok = n.workspace(action, c.data)
	case "member", "invitation":
		ok = n.member(e.Type, c.data)
	case "audit":
		ok = n.audit(action, c.data)
	case "subscription", "usage", "quota", "billing":
		ok = n.billing(e.Type, c.data)
	case "click", "bio", "qr", "conversion", "daily", "campaign", "alert", "abuse":
		ok = n.traffic(e.Type, c)
	case "test":
		ok = n.test(action, c.data)
	}
	if !ok {
		n.unknown(e.Type, c)
	}
	return n
}

// add adds a field, if there is something to be said in it.
func (n *note) add(name, value string) {
	if value != "" {
		n.fields = append(n.fields, field{say(name), say("{}", value)})
	}
}

// test is the note of a test send.
func (n *note) test(action string, data object) bool {
	message := data.text("message")
	if action != "" || message == "" {
		return false
	}
	n.title = say("{}", message)
	n.detail = say("This endpoint works: messages of the events it subscribes to will look like this one.")
	return true
}

// unknown is the note of an event type that this package has no words for.
func (n *note) unknown(eventType string, c content) {
	title := sentence(eventType)
	n.title = say(title)
	for _, member := range []string{"name", "title", "slug", "number", "hostname", "email"} {
		if subject := c.data.name(member); subject != "" {
			n.title = say(title+": {}", subject)
			n.rest(c, member, "workspace_id")
			return
		}
	}
	n.rest(c, "workspace_id")
}

// The bounds of what rest shows.
const (
	restFields = 20
	restValue  = 300 // UTF-16 units
)

// rest adds a field for each member of the data that can be read, in their order,
// leaving out those named.
func (n *note) rest(c content, without ...string) {
	skip := make(map[string]bool, len(without))
	for _, name := range without {
		skip[name] = true
	}
	left := 0
	for _, name := range c.names {
		if skip[name] {
			continue
		}
		value := cut(flat(c.data[name]), restValue)
		title := label(name)
		if value == "" || title == "" {
			continue
		}
		if len(n.fields) == restFields {
			left++
			continue
		}
		n.fields = append(n.fields, field{say("{}", title), say("{}", value)})
	}
	switch {
	case left == 1:
		n.fields = append(n.fields, field{say("More"), say("1 more value")})
	case left > 1:
		n.fields = append(n.fields, field{say("More"), say("{} more values", itoa(left))})
	}
}

// flat puts a value into one line: a scalar as it is, of an array its scalars,
// of an object its scalars with their names.
func flat(v any) string {
	switch v := v.(type) {
	case string:
		return readable(scalar(v))
	case []any:
		if s := join(v); s != "" || len(v) == 0 {
			return s
		}
		if len(v) == 1 {
			return flat(v[0])
		}
		return itoa(len(v)) + " items"
	case map[string]any:
		return flatObject(v)
	}
	return scalar(v)
}

func flatObject(o map[string]any) string {
	var parts []string
	total := 0
	for _, name := range sorted(o) {
		s, title := scalar(o[name]), label(name)
		if s == "" || title == "" {
			continue
		}
		parts = append(parts, title+": "+readable(s))
		if total += len(s); total > restValue {
			break
		}
	}
	return strings.Join(parts, ", ")
}

// label makes a member's name readable: "first_seen_at" becomes "First seen at".
func label(name string) string {
	name = line(strings.NewReplacer("_", " ", ".", " ").Replace(name), 60)
	switch name {
	case "id":
		return "ID"
	case "url":
		return "URL"
	}
	if name == "" {
		return ""
	}
	if of, ok := strings.CutSuffix(name, " id"); ok {
		name = of + " ID"
	}
	if c := name[0]; c >= 'a' && c <= 'z' {
		name = string(c-'a'+'A') + name[1:]
	}
	return name
}

// sentence makes an event type readable: "invoice.payment_failed" becomes
// "Invoice payment failed".
func sentence(eventType string) string {
	// Event types are of these characters. A row in a store might have others,
	// and what this returns counts as our own words.
	s := label(strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || isDigit(r) || (r|0x20 >= 'a' && r|0x20 <= 'z') {
			return r
		}
		return ' '
	}, eventType))
	if s == "" {
		return "Something happened"
	}
	return s
}
