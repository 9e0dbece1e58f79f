package webhook

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxNameLength    = 128 // in bytes
	maxSubscriptions = 100 // entries of one endpoint
)

const notAName = " is not an event type name: lower-case letters, digits and underscores, in parts joined by dots, at most 128 bytes"

// validName reports whether name matches [a-z0-9_]+(\.[a-z0-9_]+)* and is not
// too long.
func validName(name string) bool {
	if len(name) > maxNameLength {
		return false
	}
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return false
		}
	}
	return true
}

// matchesOf returns a type's name and its prefixes, the longest first:
// "link.clicked.aggregated", "link.clicked.*", "link.*".
func matchesOf(name string) []string {
	matches := []string{name}
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '.' {
			matches = append(matches, name[:i]+".*")
		}
	}
	return slices.Clip(matches)
}

// checkPublish checks that events of a type can be published. The error is an
// *[InvalidError] about "type".
func (c *Catalog) checkPublish(name string) error {
	t := c.types[name]
	switch {
	case t != nil && !t.Planned:
		return nil
	case t != nil:
		return &InvalidError{Field: "type", Rule: quote(name) + " is planned, and not published yet"}
	case name == "":
		return &InvalidError{Field: "type", Rule: "is required"}
	case name == TestEvent:
		return &InvalidError{Field: "type", Rule: `"test" is reserved for test sends`}
	}
	return &InvalidError{Field: "type", Rule: c.unknown(name, false)}
}

// checkSubscription checks the entries of a subscription, and returns them
// without repeats, in the same order. It accepts none: whether that is allowed
// depends on the kind of endpoint. The error is an *[InvalidError] about
// "events" or, counted from 0, "events[2]".
func (c *Catalog) checkSubscription(entries []string) ([]string, error) {
	unique := make([]string, 0, min(len(entries), maxSubscriptions))
	for i, entry := range entries {
		if slices.Contains(unique, entry) {
			continue
		}
		if rule := c.subscriptionRule(entry); rule != "" {
			return nil, &InvalidError{Field: fmt.Sprintf("events[%d]", i), Rule: rule}
		}
		if len(unique) == maxSubscriptions {
			return nil, &InvalidError{Field: "events", Rule: fmt.Sprintf("has more than %d entries", maxSubscriptions)}
		}
		unique = append(unique, entry)
	}
	return unique, nil
}

// subscriptionRule returns the rule that an entry breaks, or "".
func (c *Catalog) subscriptionRule(entry string) string {
	if prefix, ok := strings.CutSuffix(entry, "*"); ok && strings.HasSuffix(prefix, ".") {
		// A planned type alone does not carry a prefix: until it is there, the
		// subscription would never fire.
		found := false
		for name, t := range c.types {
			if strings.HasPrefix(name, prefix) {
				if t.Subscribable() {
					return ""
				}
				found = true
			}
		}
		if found {
			return quote(entry) + " has only planned types, which cannot be subscribed to yet"
		}
		return c.unknown(entry, true)
	}
	t := c.types[entry]
	switch {
	case t != nil && !t.Planned:
		return ""
	case t != nil:
		return quote(entry) + " is planned, and cannot be subscribed to yet"
	case entry == "":
		return "is empty"
	case entry == "*":
		return `"*" is not accepted: name types, or prefixes such as "link.*"`
	case entry == TestEvent:
		return `"test" is reserved for test sends, which need no subscription`
	}
	return c.unknown(entry, true)
}

// unknown says that a type or, if a subscription is at hand, a prefix does not
// exist, and names the closest one that does.
func (c *Catalog) unknown(name string, subscription bool) string {
	var rule string
	switch {
	case subscription && strings.HasSuffix(name, ".*") && validName(strings.TrimSuffix(name, ".*")):
		rule = quote(name) + " is a prefix of no event type"
	case validName(name):
		rule = quote(name) + " is an unknown event type"
	default:
		rule = quote(name) + notAName
	}
	if closest := c.closest(name, subscription); closest != "" {
		rule += fmt.Sprintf("; did you mean %q?", closest)
	} else if !subscription && validName(name) { // a subscription is read by customers
		rule += "; a type of your own is registered with Catalog.Add"
	}
	return rule
}

// closest returns the type or, if asked for, prefix that name most likely
// stands for, or "". Only what can be published or subscribed to is suggested.
func (c *Catalog) closest(name string, prefixes bool) string {
	if len(name) > maxNameLength {
		return ""
	}
	name = strings.ToLower(name)
	limit := 2 // edits
	if len(name) < 6 {
		limit = 1
	}
	best := ""
	for _, typeName := range c.order {
		t := c.types[typeName]
		if !t.Subscribable() {
			continue
		}
		for i, candidate := range t.matches {
			if i > 0 && !prefixes {
				break
			}
			if i > 0 && candidate == name+".*" {
				return candidate // the bare name of a resource
			}
			if d := distance(name, candidate); d <= limit {
				best, limit = candidate, d-1
			}
		}
	}
	return best
}

// distance counts the edits between two strings: bytes put in, left out,
// replaced, or swapped with the next.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
