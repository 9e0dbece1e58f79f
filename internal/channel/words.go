package channel

import (
	"strings"
	"unicode"
)

// labelMost is how long the name of a field may be, in UTF-16 units.
const labelMost = 60

// label makes a member's name readable: "first_seen_at" becomes "First seen",
// "created_by_user_id" becomes "Created by". What it returns is of letters,
// digits and spaces, and counts as our own words.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) {
			return r
		}
		return ' '
	}, name)
	words := strings.Fields(line(name, labelMost))
	if n := len(words); n > 1 && (words[n-1] == "at" || words[n-1] == "percent") { // their values say it
		words = words[:n-1]
	}
	if n := len(words); n > 2 && words[n-2] == "user" && words[n-1] == "id" { // of a person, see person
		words = words[:n-2]
	}
	for i, w := range words {
		if acronyms[w] {
			words[i] = strings.ToUpper(w)
		}
	}
	return capital(strings.Join(words, " "))
}

// acronyms are words that people write in capitals.
var acronyms = map[string]bool{
	"api": true, "dns": true, "id": true, "ip": true, "qr": true, "sku": true, "ssl": true, "sso": true, "tls": true,
	"url": true, "utm": true, "vat": true,
}

// capital makes the first letter of our own words a capital.
func capital(s string) string {
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

// lower makes our own words fit into a sentence.
func lower(s string) string {
	if len(s) > 1 && s[0] >= 'A' && s[0] <= 'Z' && (s[1] < 'A' || s[1] > 'Z') {
		return string(s[0]-'A'+'a') + s[1:]
	}
	return s
}

// words makes a value readable that a program chose from a list: "past_due"
// becomes "past due". What does not look like one stays as it is.
func words(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return s
	}
	return strings.TrimSpace(strings.ReplaceAll(s, "_", " "))
}

// sentence makes an event type readable: "invoice.payment_failed" becomes
// "Invoice payment failed".
func sentence(eventType string) string {
	return orElse(label(strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII { // of no event type, but a row in a store might have it
			return ' '
		}
		return r
	}, eventType)), "Something happened")
}

// eventNames are what people call the event types whose name does not say it.
var eventNames = map[string]string{
	"alert.threshold_exceeded":      "Alert",
	"audit.event":                   "Audit log entry",
	"bio.click":                     "Bio page click",
	"click.created":                 "Click",
	"qr.generated":                  "QR code made",
	"bio.published":                 "Bio page published",
	"billing.subscription_upgraded": "Plan upgraded",
	"domain.ssl_failed":             "Domain not set up",
	"domain.tls_renewed":            "Certificate renewed",
	"link.cap_reached":              "Click limit reached",
	"link.clicked.aggregated":       "Link clicks",
	"link.encrypted_created":        "Encrypted link created",
	"link.encryption_rotated":       "Encryption key changed",
	"member.invited":                "Member joined",
	"quota.warning":                 "Quota warning",
	"test":                          "Test message",
	"usage.threshold_100":           "Limit reached",
	"usage.threshold_80":            "Limit almost reached",
}

// eventName is what people call an event type.
func eventName(eventType string) string { return orElse(eventNames[eventType], sentence(eventType)) }

// person tells of a member of the workspace by what is known: a name, an address,
// or the number that a program gave them.
func person(id string) string { return "team member " + number(id) }

// number puts # before an id that is a number.
func number(id string) string {
	if digits(id, valueMost) {
		return "#" + id
	}
	return id
}

// participles are what was done by an action that a program named.
var participles = map[string]string{
	"accept": "accepted", "activate": "activated", "add": "added", "approve": "approved", "archive": "archived",
	"block": "blocked", "cancel": "canceled", "create": "created", "deactivate": "deactivated", "delete": "deleted",
	"disable": "disabled", "enable": "enabled", "export": "exported", "import": "imported", "invite": "invited",
	"move": "moved", "pause": "paused", "publish": "published", "reject": "rejected", "remove": "removed",
	"rename": "renamed", "restore": "restored", "resume": "resumed", "revoke": "revoked", "rotate": "rotated",
	"suspend": "suspended", "transfer": "transferred", "unblock": "unblocked", "update": "updated", "verify": "verified",
}

// participle returns "updated" for "update" and "updated", and "" for what is no
// such word.
func participle(verb string) string {
	if p := participles[verb]; p != "" {
		return p
	}
	for _, p := range participles {
		if p == verb {
			return p
		}
	}
	return ""
}

// tones are how words in the name of an event type are to be taken; the gravest
// counts.
var tones = map[string]tone{
	"accepted": good, "activated": good, "added": good, "approved": good, "completed": good, "created": good,
	"paid": good, "published": good, "recovered": good, "renewed": good, "resolved": good, "resumed": good,
	"succeeded": good, "upgraded": good, "verified": good,
	"canceled": goodbye, "cancelled": goodbye, "closed": goodbye, "deleted": goodbye, "ended": goodbye,
	"expired": goodbye, "removed": goodbye, "revoked": goodbye,
	"downgraded": warning, "due": warning, "ending": warning, "expiring": warning, "paused": warning, "required": warning,
	"warning": warning, "will": warning,
	"blocked": bad, "broken": bad, "declined": bad, "disputed": bad, "exceeded": bad, "failed": bad, "failure": bad,
	"flagged": bad, "overdue": bad, "rejected": bad, "suspended": bad, "unpaid": bad,
}

// toneOf is how an event of a type without words of its own is to be taken.
func toneOf(eventType string) (t tone) {
	name := strings.Fields(strings.ToLower(sentence(eventType)))
	for i, w := range name {
		t = max(t, tones[w])
		if w == "due" && i > 0 && name[i-1] == "past" {
			t = bad
		}
	}
	return t
}

// aboutPayment reports whether an event of a type tells that money is missing.
func aboutPayment(eventType string) bool {
	name := " " + strings.ToLower(sentence(eventType)) + " "
	has := func(w string) bool { return strings.Contains(name, " "+w+" ") }
	return has("past due") || has("unpaid") || has("overdue") ||
		((has("payment") || has("charge")) && (has("failed") || has("declined") || has("required")))
}
