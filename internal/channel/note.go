package channel

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A note is what a message says, whatever it is sent to.
type note struct {
	title  text // what happened, to what
	detail text // one sentence more, or nothing
	cause  text // why, in the words of a program, or nothing; it is also in a field
	todo   text // what a reader can do about it, or nothing
	to     target
	fields []field
	tone   tone

	about       string // what it happened to, to tell one from the other
	eventType   string
	workspaceID int64
	data        object
	at          time.Time
}

type field struct{ name, value text }

// A target is where the link in a message leads.
type target struct {
	url   string // or "": there is none
	words string // "Open destination"
}

// A tone is how an event is to be taken, the graver the greater.
type tone int

const (
	neutral  tone = iota
	good          // something began
	goodbye       // something ended
	warning       // something will need attention
	bad           // something is broken
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
		ok = n.link(action, c)
	case "domain":
		ok = n.domain(action, c.data)
	case "workspace":
		ok = n.workspace(action, c)
	case "member", "invitation":
		ok = n.member(e.Type, c.data)
	case "audit":
		ok = n.audit(action, c.data)
	case "subscription":
		ok = n.subscription(action, c)
	case "usage", "quota", "billing":
		ok = n.plan(e.Type, c.data)
	case "click", "bio", "qr", "conversion":
		ok = n.traffic(e.Type, c.data)
	case "daily", "campaign", "alert":
		ok = n.figures(e.Type, c)
	case "abuse":
		ok = n.abuse(action, c.data)
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

// because adds what a program gave as the cause.
func (n *note) because(cause string) {
	if cause != "" {
		n.cause = say("{}", cause)
		n.add("Reason", cause)
	}
}

// todoText is what a reader can do, with words that say so.
func (n *note) todoText() text {
	if n.todo == nil {
		return nil
	}
	return append(say("What to do: "), n.todo...)
}

// footer is what a message is of, as people call it, and where it comes from.
func (n *note) footer() string {
	return eventName(n.eventType) + " · workspace #" + strconv.FormatInt(n.workspaceID, 10)
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
	n.title, n.tone = say(title), toneOf(eventType)
	resource, _, _ := strings.Cut(eventType, ".")
	before := c.data.object("previous")
	var outer content // what is beside an object that tells of the thing alone
	if inner := c.data.object(resource); inner != nil {
		outer = content{data: c.data, names: without(c.names, resource, "previous", "workspace_id")}
		c = content{data: inner, names: sorted(inner)}
	}
	subject, member := c.data.subject()
	if subject != "" {
		n.title = say(title+": {}", subject)
	}
	n.about = orElse(c.data.text(resource+"_id", "id"), subject)
	for _, l := range []struct{ member, words string }{
		{"short_url", openShort}, {"url", "Open page"}, {"destination_url", openDestination},
	} {
		if n.open(c.data.text(l.member), l.words) {
			break
		}
	}
	skip := []string{member, "workspace_id"}
	if n.tone >= warning {
		for _, name := range []string{"error_message", "failure_reason", "decline_reason", "error", "reason"} {
			if cause := c.data.show(name); cause != "" {
				n.because(cause)
				skip = append(skip, name)
				break
			}
		}
	}
	if aboutPayment(eventType) {
		n.todo = say("Check the payment method, and whether the payment was made in the meantime.")
	}
	if before != nil {
		skip = append(skip, "previous")
		names := sorted(before)
		if n.changed(before, c.data, without(names, "updated_at")) {
			skip = append(skip, names...) // what did not change is no news
		}
	}
	n.rest(c, skip...)
	n.rest(outer)
}

// without returns a list without some of it.
func without(list []string, out ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(out, s) })
}

// What the links in messages are called.
const (
	openShort       = "Open short link"
	openDestination = "Open destination"
	openBioPage     = "Open bio page"
)

// open sets where the message's link leads, if that is a URL to send people to.
func (n *note) open(url, words string) bool {
	if url = link(url); url == "" {
		return false
	}
	n.to = target{url, words}
	return true
}
