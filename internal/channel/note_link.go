package channel

import "strings"

// subjectMost bounds what a title says of what it is about, in UTF-16 units.
const subjectMost = 120

// name returns what people call the thing an object tells of, or "".
func (o object) name(members ...string) string { return cut(o.text(members...), subjectMost) }

// linkName returns what people call a link.
func linkName(o object) string {
	if s := o.name("slug"); s != "" {
		return s
	}
	if s := o.name("short_url", "title", "name"); s != "" {
		return strings.TrimPrefix(s, "https://")
	}
	if id := o.text("link_id", "id"); id != "" {
		return "Link " + id
	}
	return "A link"
}

// link is the note of an event of a link.
func (n *note) link(action string, data object) bool {
	o := data
	if inner := data.object("link"); inner != nil { // of the traffic catalog
		o = inner
	}
	name := linkName(o)
	n.about = orElse(o.text("link_id", "id"), name)
	n.url = link(o.text("short_url"))
	if n.url == "" {
		n.url = link(o.text("destination_url"))
	}
	switch action {
	case "created":
		n.title, n.tone = say("{} was created", name), good
		n.linkFields(o)
		n.add("Created by", o.who("created_by", "created_by_user_id"))
	case "updated":
		n.title = say("{} was updated", name)
		if !n.linkChanges(o, data.object("previous")) {
			n.linkFields(o)
		}
	case "deleted":
		n.title, n.tone = say("{} was deleted", name), goodbye
		n.detail = say("It can still be restored.")
		n.add("Title", o.text("title"))
		n.add("Short URL", o.text("short_url"))
		n.add("Destination", o.text("destination_url"))
	case "expired":
		n.title, n.tone = say("{} has expired", name), goodbye
		n.add("Destination", o.text("destination_url"))
	case "cap_reached":
		n.title, n.tone = say("{} reached its click limit", name), warning
		n.add("Destination", o.text("destination_url"))
		n.add("Limit", o.count("cap"))
		n.add("Clicks", o.count("clicks"))
	case "broken":
		n.title, n.tone = say("{} is broken", name), critical
		n.detail = say("{}", o.text("error_message"))
		n.add("Destination", o.text("destination_url"))
		n.add("Status code", o.text("status_code"))
		n.add("First seen", o.when("first_seen_at"))
	case "encrypted_created":
		n.title, n.tone = say("{} was created, with an encrypted destination", name), good
		n.add("Key version", o.text("key_version"))
		n.add("Created by", o.who("created_by", "created_by_user_id"))
	case "encryption_rotated":
		n.title = say("{} was encrypted again, under a new key", name)
		n.add("Key version", o.text("key_version"))
		n.add("Rotated by", o.who("rotated_by", "rotated_by_user_id"))
	case "clicked.aggregated":
		n.title = say("{} had new clicks", name)
		n.add("Clicks", o.count("clicks"))
		n.add("Unique clicks", o.count("unique_clicks"))
		n.add("From", o.when("from"))
		n.add("To", o.when("to"))
	default:
		return false
	}
	return true
}

// linkFields tells of a link as it is.
func (n *note) linkFields(o object) {
	n.add("Title", o.text("title"))
	n.add("Short URL", o.text("short_url"))
	n.add("Destination", o.text("destination_url"))
	n.add("Domain", o.text("domain"))
	n.add("Tags", o.list("tags"))
	if s := o.text("status"); s != "active" {
		n.add("Status", s)
	}
	if s := o.text("abuse_status"); s != "unchecked" {
		n.add("Abuse review", s)
	}
	n.add("Expires", o.when("expires_at"))
	n.add("Click limit", o.count("max_clicks"))
}

// linkChanges tells what of a link changed, and reports whether it could.
func (n *note) linkChanges(o, previous object) bool {
	if previous == nil {
		return false
	}
	before, after := &note{}, &note{}
	before.linkFields(previous)
	after.linkFields(o)
	old := make(map[string]string, len(before.fields))
	for _, f := range before.fields {
		old[f.name.plain()] = f.value.plain()
	}
	for _, f := range after.fields {
		name, value := f.name.plain(), f.value.plain()
		switch was, there := old[name]; {
		case !there && knows(previous, name):
			n.fields = append(n.fields, field{f.name, say("none → {}", value)})
		case there && was != value:
			n.fields = append(n.fields, field{f.name, say("{} → {}", cut(was, valueMost/2), cut(value, valueMost/2))})
		}
		delete(old, name)
	}
	for _, f := range before.fields {
		if value, gone := old[f.name.plain()]; gone && knows(o, f.name.plain()) {
			n.fields = append(n.fields, field{f.name, say("{} → none", value)})
		}
	}
	return len(n.fields) > 0
}

// linkMembers are the members behind the fields of a link.
var linkMembers = map[string]string{
	"Title": "title", "Short URL": "short_url", "Destination": "destination_url", "Domain": "domain", "Tags": "tags",
	"Status": "status", "Abuse review": "abuse_status", "Expires": "expires_at", "Click limit": "max_clicks",
}

// knows reports whether an object says something of a field, be it that there is
// none: a snapshot may be of some members only.
func knows(o object, name string) bool {
	_, ok := o[linkMembers[name]]
	return ok
}
