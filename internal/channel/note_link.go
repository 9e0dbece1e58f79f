package channel

import (
	"slices"
	"strings"
)

// subjectMost bounds what a title says of what it is about, in UTF-16 units.
const subjectMost = 120

// name returns what people call the thing an object tells of, or "".
func (o object) name(members ...string) string {
	for _, member := range members {
		if _, truth := o[member].(bool); truth {
			continue
		}
		if s := scalar(o[member]); s != "" {
			return cut(s, subjectMost)
		}
	}
	return ""
}

// A reference is what a sentence calls a thing.
type reference struct {
	text string
	ours bool // it has no name, and these are our words: "a link"
}

// first returns it for the beginning of a sentence.
func (r reference) first() string {
	if r.ours {
		return capital(r.text)
	}
	return r.text
}

// field returns it for a field that is named for the kind of thing.
func (r reference) field(o object) string {
	if r.ours {
		return number(o.text("link_id", "id"))
	}
	return r.text
}

// linkName returns what people call a link.
func linkName(o object) reference {
	if s := o.name("slug"); s != "" {
		return reference{text: s}
	}
	if s := o.name("short_url", "title", "name"); s != "" {
		return reference{text: strings.TrimPrefix(s, "https://")}
	}
	return byID("link", o.text("link_id", "id"))
}

// byID returns what to call a thing of which there is but an id, or not even that.
func byID(thing, id string) reference {
	if id == "" {
		return reference{"a " + thing, true}
	}
	return reference{cut(thing+" "+number(id), subjectMost), true}
}

// linkMembers are the members of a link that are shown, in this order, and titles
// what those are called whose name does not say it.
var (
	linkMembers = []string{
		"title", "slug", "short_url", "destination_url", "domain", "tags", "status", "abuse_status", "expires_at", "max_clicks",
	}
	titles = map[string]string{
		"short_url": "Short link", "destination_url": "Destination", "abuse_status": "Abuse review", "max_clicks": "Click limit",
		"redirect_status": "Redirect code", "owner_user_id": "Owner",
	}
)

// link is the note of an event of a link.
func (n *note) link(action string, c content) bool {
	o := c.data
	if inner := c.data.object("link"); inner != nil { // of the traffic catalog
		o = inner
	}
	name := linkName(o)
	n.about = orElse(o.text("link_id", "id"), name.text)
	short, destination := o.text("short_url"), o.text("destination_url")
	// A short link that is gone, or counts clicks, is not for the curious.
	_ = n.open(destination, openDestination) || n.open(short, openShort)
	switch action {
	case "created":
		n.title, n.tone = say("{} was created", name.first()), good
		n.open(short, openShort)
		n.linkFields(o, "slug")
		n.add("Created by", o.who("created_by", "created_by_user_id"))
	case "updated":
		n.title = say("{} was updated", name.first())
		n.open(short, openShort)
		n.update("link", c.data.object("previous"), o, linkMembers, func() { n.linkFields(o, "slug") })
	case "deleted":
		n.title, n.tone = say("{} was deleted", name.first()), goodbye
		n.detail = say("It can still be restored.")
		n.linkFields(o, "slug", "domain", "tags", "status", "abuse_status", "expires_at", "max_clicks")
	case "expired":
		n.title, n.tone = say("{} has expired", name.first()), goodbye
		n.todo = say("To use it again, give it a later expiry date.")
		n.add("Destination", destination)
	case "cap_reached":
		n.title, n.tone = say("{} reached its click limit", name.first()), warning
		n.todo = say("To keep the link in use, raise its click limit or take the limit away.")
		n.add("Destination", destination)
		n.add("Click limit", o.count("cap", "max_clicks"))
		n.add("Clicks", o.count("clicks"))
	case "broken":
		n.title, n.tone = say("{} is broken", name.first()), critical
		n.detail = say("Visitors do not get to its destination.")
		n.todo = say("Check the destination. If it has moved, change where the link leads.")
		n.because(o.text("error_message"))
		n.add("Destination", destination)
		n.add("Status code", o.text("status_code"))
		n.add("First seen", o.when("first_seen_at"))
	case "encrypted_created":
		n.title, n.tone = say("{} was created, with an encrypted destination", name.first()), good
		n.add("Key version", o.text("key_version"))
		n.add("Created by", o.who("created_by", "created_by_user_id"))
	case "encryption_rotated":
		n.title = say("{} was encrypted again, under a new key", name.first())
		n.add("Key version", o.text("key_version"))
		n.add("Changed by", o.who("rotated_by", "rotated_by_user_id"))
	case "clicked.aggregated":
		n.title = say("{} had new clicks", name.first())
		n.add("Clicks", o.count("clicks"))
		n.add("Unique clicks", o.count("unique_clicks"))
		n.add("From", o.when("from"))
		n.add("To", o.when("to"))
	default:
		return false
	}
	if status := o.text("abuse_status"); troubled(status) && (action == "created" || action == "updated") {
		n.tone = max(n.tone, warning)
		n.todo = say(todoAbuse)
	}
	return true
}

// linkFields tells of a link as it is.
func (n *note) linkFields(o object, without ...string) {
	skip := set(without...)
	skip["domain"] = skip["domain"] || o.text("short_url") != "" // which has it
	for _, name := range linkMembers {
		value := o.show(name)
		if skip[name] || (name == "status" && value == "active") || (name == "abuse_status" && value == "unchecked") {
			continue
		}
		n.add(orElse(titles[name], label(name)), value)
	}
}

// update tells what changed of a thing, if there is a snapshot of what it was; if
// there is none, or nothing that can be shown, it tells of the thing as it is.
func (n *note) update(thing string, before, after object, members []string, asItIs func()) {
	if before != nil {
		names := slices.Concat(members, without(sorted(after), slices.Concat(members, []string{"id", "updated_at"})...))
		if n.changed(before, after, names) {
			return
		}
	}
	if asItIs(); len(n.fields) > 0 {
		n.detail = say("This is the " + thing + " as it is now.")
	}
}

const todoAbuse = "Check where the link leads. If nothing is wrong with it, ask support to look again."

// abuse is the note of an event of a link that may harm people.
func (n *note) abuse(action string, o object) bool {
	if action != "flagged" {
		return false
	}
	name := linkName(o)
	n.about = orElse(o.text("link_id", "id"), name.text)
	n.title, n.tone = say("{} was flagged as abusive", name.first()), bad
	n.todo = say(todoAbuse)
	n.because(o.words("reason"))
	n.add("Flagged", o.when("flagged_at"))
	return true
}

// troubled reports whether a link's abuse_status is that somebody must look at it.
func troubled(status string) bool {
	switch status {
	case "", "unchecked", "pending", "clean", "ok", "safe", "approved", "none":
		return false
	}
	return true
}
