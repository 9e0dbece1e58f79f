package channel

import (
	"encoding/json"
	"strings"
)

// The bounds of what is shown of data that this package has no words for.
const (
	restFields = 20
	restValue  = 300 // UTF-16 units
	itemsMost  = 5   // of an array of objects
)

// show returns a member of an object to be read, by what its name says of it: an
// instant, a person, an amount, or "" where there is nothing to read.
func (o object) show(name string) string {
	v := o[name]
	parts := strings.Split(name, "_")
	last := parts[len(parts)-1]
	switch {
	case isPerson(name):
		return cut(who(name, v), restValue)
	case last == "at" || last == "timestamp":
		if s := o.when(name); s != "" {
			return cut(s, restValue)
		}
	case amounts[last] && isDecimal(scalar(v)):
		currency := o.text("currency")
		if !isCurrency(currency) {
			currency = ""
		}
		return cut(money(scalar(v), currency), restValue)
	case last == "percent" || last == "percentage":
		return cut(percent(scalar(v)), restValue)
	case choices[last]:
		if s, ok := v.(string); ok {
			return cut(words(line(s, valueMost)), restValue)
		}
	case codes[last]:
		if n, ok := v.(json.Number); ok {
			return cut(line(n.String(), valueMost), restValue)
		}
	}
	return cut(flat(v), restValue)
}

var (
	// amounts are last words of the names of what is money, if there is a
	// currency beside it.
	amounts = set("amount", "balance", "cost", "discount", "fee", "paid", "price", "refund", "revenue", "subtotal", "tax", "total", "value")
	// choices are those of what a program chose from a list.
	choices = set("event", "kind", "level", "metric", "mode", "reason", "role", "severity", "state", "status", "type")
	// codes are those of numbers that nobody counts with.
	codes = set("code", "id", "no", "number", "phone", "pin", "port", "sku", "version", "year", "zip")
)

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// isPerson reports whether a member of that name tells of somebody in the
// workspace.
func isPerson(name string) bool {
	if name == "user_id" || strings.HasSuffix(name, "_user_id") {
		return true
	}
	did, by := strings.CutSuffix(name, "_by") // and not exceeded_by
	return by && (did == "changed" || did == "requested" || participle(did) != "")
}

// flat puts a value into one line: a scalar as it is, of an array its items, of
// an object its members with their names.
func flat(v any) string {
	switch v := v.(type) {
	case string:
		return readable(scalar(v))
	case json.Number:
		return figure(scalar(v))
	case []any:
		return flatArray(v)
	case map[string]any:
		return flatObject(v)
	}
	return scalar(v)
}

func flatArray(list []any) string {
	objects := 0
	for _, v := range list {
		if _, ok := v.(map[string]any); ok {
			objects++
		}
	}
	if objects == 0 {
		return join(list)
	}
	var items []string
	for _, v := range list[:min(len(list), itemsMost)] {
		if s := flat(v); s != "" {
			items = append(items, s)
		}
	}
	switch more := len(list) - itemsMost; {
	case len(items) == 0:
		return itoa(len(list)) + " items"
	case more > 0:
		items = append(items, itoa(more)+" more")
	}
	return strings.Join(items, "; ")
}

// flatObject tells of an object by what people call it, and of its members by
// their names: "spring-sale (clicks: 6,120)". Ids are left out where there is a
// name.
func flatObject(o object) string {
	name, called := o.subject()
	var parts []string
	total := 0
	for _, member := range sorted(o) {
		if member == called || (called != "" && strings.HasSuffix("_"+member, "_id")) {
			continue
		}
		switch o[member].(type) {
		case map[string]any, []any:
			continue // what is in it would be too much for a line
		}
		title, s := label(member), o.show(member)
		if s == "" || title == "" {
			continue
		}
		part := lower(title) + ": " + s
		if called != "" && member == "email" {
			part = s
		}
		parts = append(parts, part)
		if total += len(s); total > restValue {
			break
		}
	}
	members := strings.Join(parts, ", ")
	switch {
	case called == "":
		return capital(members)
	case members == "":
		return name
	}
	return name + " (" + members + ")"
}

// subject returns what people call the thing an object tells of, and the member
// that says so.
func (o object) subject() (name, member string) {
	for _, member := range []string{"name", "title", "slug", "number", "hostname", "email"} {
		if s := o.name(member); s != "" {
			return s, member
		}
	}
	return "", ""
}

// rest adds a field for each member of the data that can be read, in their order,
// leaving out those named.
func (n *note) rest(c content, without ...string) {
	skip := set(without...)
	if isCurrency(c.data.text("currency")) {
		for name := range c.data {
			if amounts[name[strings.LastIndexByte(name, '_')+1:]] && isDecimal(c.data.text(name)) {
				skip["currency"] = true // it is in the amount
			}
		}
	}
	left := 0
	for _, name := range c.names {
		title, value := label(name), ""
		if !skip[name] && title != "" {
			value = c.data.show(name)
		}
		switch {
		case value == "":
		case len(n.fields) >= restFields:
			left++
		default:
			n.add(title, value)
		}
	}
	n.more(left, "value")
}

// more says how many things there would be besides.
func (n *note) more(left int, thing string) {
	switch {
	case left == 1:
		n.fields = append(n.fields, field{say("More"), say("1 more " + thing)})
	case left > 1:
		n.fields = append(n.fields, field{say("More"), say(figure(itoa(left)) + " more " + thing + "s")})
	}
}

// changed adds a field for each named member that a snapshot has otherwise, and
// reports whether there was one. A member that either does not have is no change:
// a snapshot may be of some members only.
func (n *note) changed(before, after object, names []string) bool {
	count := 0
	for _, name := range names {
		_, was := before[name]
		_, is := after[name]
		title := label(name)
		if other := titles[name]; other != "" {
			title = other
		}
		if !was || !is || title == "" {
			continue
		}
		value := change(before.show(name), after.show(name))
		if value == nil {
			continue
		}
		if count++; count <= changesMost {
			n.fields = append(n.fields, field{say(title), value})
		}
	}
	n.more(count-changesMost, "change")
	return count > 0
}

// changesMost is how many changes are shown.
const changesMost = 10

// change tells what became of what; nil if it is the same.
func change(old, now string) text {
	old, now = cut(old, restValue), cut(now, restValue)
	switch {
	case old == now:
		return nil
	case old == "":
		return say("none → {}", now)
	case now == "":
		return say("{} → none", old)
	}
	return say("{} → {}", old, now)
}
