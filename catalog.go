package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/elido-app/webhook/internal/scrub"
)

// EventType describes one type of event.
type EventType struct {
	// Name is one or more parts of lower-case letters, digits and underscores,
	// joined by dots: usually "<resource>.<action>". At most 128 bytes.
	Name string `json:"name"`
	// Description is one line.
	Description string `json:"description"`
	// Form says that a dashboard's form offers the type, Ticked that it is
	// ticked there from the start.
	Form   bool `json:"form,omitempty"`
	Ticked bool `json:"ticked,omitempty"`
	// Planned types are shown, but neither published nor subscribed to.
	Planned bool `json:"planned,omitempty"`
	// Secret names the members that are removed from the type's data wherever
	// they occur, in whatever letter case.
	Secret []string `json:"secret,omitempty"`
	// Sample is an example of the data, a JSON object, for docs and previews.
	Sample json.RawMessage `json:"sample,omitempty"`
}

// Subscribable reports whether endpoints can subscribe to the type: it is not
// planned, and not [TestEvent].
func (t EventType) Subscribable() bool { return !t.Planned && t.Name != TestEvent }

// ScrubFunc removes from an event's data what names of members cannot catch.
// It gets the data after the secret members were removed, as its own copy, and
// returns the data to publish, from which they are removed once more. Its error
// or panic refuses the event, as does a result that is not a JSON object. It
// must be safe for concurrent use.
type ScrubFunc func(eventType string, data json.RawMessage) (json.RawMessage, error)

// Catalog is the set of event types that exist, and of the secrets in them. The
// zero value has only [TestEvent]. A Dispatcher takes a copy: later changes do
// not reach it. Changing a Catalog is not safe beside any other use of it.
type Catalog struct {
	order  []string
	types  map[string]*compiledType // never changed, only replaced
	secret map[string][]string      // by type or prefix; "" is for all
	hooks  []ScrubFunc
}

// compiledType is an event type with what publishing needs of it.
type compiledType struct {
	EventType // Secret as given, not what applies
	matches   []string
	applies   []string // the secret names, of the type, its prefixes and all
	names     scrub.Names
}

var testType = EventType{
	Name:        TestEvent,
	Description: "A test send, to one endpoint whatever it subscribes to.",
	Sample:      json.RawMessage(testData),
}

// Add adds event types, all or none of them. Of a type that is there already,
// Add replaces the description and the sample (an empty one replaces nothing),
// adds the secret names, offers and ticks it if either does, and keeps it
// planned only if both do. The error is an *[InvalidError] that names the
// field, such as "types[2].name".
func (c *Catalog) Add(types ...EventType) error {
	for i, t := range types {
		field := fmt.Sprintf("types[%d].", i)
		if !validName(t.Name) {
			return &InvalidError{Field: field + "name", Rule: quote(t.Name) + notAName}
		}
		if t.Name == TestEvent {
			return &InvalidError{Field: field + "name", Rule: `"test" is reserved for test sends`}
		}
		if len(t.Sample) > 0 {
			if err := scrub.Valid(t.Sample); err != nil {
				return &InvalidError{Field: field + "sample", Rule: "must be a JSON object: " + err.Error()}
			}
		}
	}
	if c.types == nil {
		c.types = make(map[string]*compiledType, len(types))
	}
	for _, t := range types {
		t.Sample = bytes.Clone(t.Sample)
		c.addSecret(t.Name, t.Secret)
		if old := c.types[t.Name]; old == nil {
			c.order = append(c.order, t.Name)
		} else {
			if t.Description == "" {
				t.Description = old.Description
			}
			if len(t.Sample) == 0 {
				t.Sample = old.Sample
			}
			t.Form = t.Form || old.Form
			t.Ticked = t.Ticked || old.Ticked
			t.Planned = t.Planned && old.Planned
		}
		c.types[t.Name] = c.compile(t)
	}
	return nil
}

// Secret adds names of secret members for all types, those added later
// included.
func (c *Catalog) Secret(names ...string) {
	c.addSecret("", names)
	c.recompile()
}

// SecretIn adds names of secret members for one type, or with a prefix such as
// "invitation.*" for all types of a resource, those added later included. The
// error is an *[InvalidError] if pattern is neither.
func (c *Catalog) SecretIn(pattern string, names ...string) error {
	if !validName(strings.TrimSuffix(pattern, ".*")) {
		return &InvalidError{Field: "pattern", Rule: quote(pattern) + " is neither an event type name nor a prefix"}
	}
	c.addSecret(pattern, names)
	c.recompile()
	return nil
}

// ScrubWith adds a function that scrubs the data of every published event.
// Several run in the order added.
func (c *Catalog) ScrubWith(f ScrubFunc) {
	if f != nil {
		c.hooks = append(c.hooks, f)
	}
}

// Types returns the event types in the order added, then [TestEvent]. Secret
// has all names that apply to a type. The slice is the caller's own.
func (c *Catalog) Types() []EventType {
	types := make([]EventType, 0, len(c.order)+1)
	for _, name := range c.order {
		types = append(types, c.types[name].export())
	}
	return append(types, c.compile(testType).export())
}

// Lookup returns the event type of a name, and whether there is one.
func (c *Catalog) Lookup(name string) (EventType, bool) {
	if name == TestEvent {
		return c.compile(testType).export(), true
	}
	t, ok := c.types[name]
	if !ok {
		return EventType{}, false
	}
	return t.export(), true
}

// clone returns a copy that shares nothing which changes.
func (c *Catalog) clone() *Catalog {
	clone := &Catalog{
		order:  slices.Clone(c.order),
		types:  make(map[string]*compiledType, len(c.types)),
		secret: make(map[string][]string, len(c.secret)),
		hooks:  slices.Clone(c.hooks),
	}
	for name, t := range c.types {
		clone.types[name] = t
	}
	for pattern, names := range c.secret {
		clone.secret[pattern] = slices.Clone(names)
	}
	return clone
}

// checkPatterns returns an *[InvalidError] if secret names were given for a type
// or prefix that no type has: somebody mistyped what should protect them.
func (c *Catalog) checkPatterns() error {
	used := map[string]bool{"": true}
	for _, t := range c.types {
		for _, match := range t.matches {
			used[match] = true
		}
	}
	for pattern := range c.secret {
		if !used[pattern] {
			return &InvalidError{Field: "Catalog", Rule: "has secret names for " + quote(pattern) + ", which is no type and no prefix of one"}
		}
	}
	return nil
}

// addSecret adds names to those of a type, a prefix or, under "", of all types.
func (c *Catalog) addSecret(pattern string, names []string) {
	if len(names) == 0 {
		return
	}
	if c.secret == nil {
		c.secret = make(map[string][]string)
	}
	c.secret[pattern] = unite(c.secret[pattern], names)
}

// unite appends the names that are not there yet, letter case aside.
func unite(names, more []string) []string {
	for _, name := range more {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			names = append(names, name)
		}
	}
	return names
}

func (c *Catalog) recompile() {
	for name, t := range c.types {
		c.types[name] = c.compile(t.EventType)
	}
}

func (c *Catalog) compile(t EventType) *compiledType {
	compiled := &compiledType{EventType: t, matches: matchesOf(t.Name)}
	compiled.Secret = nil // addSecret has them
	compiled.applies = unite(nil, c.secret[""])
	for _, pattern := range slices.Backward(compiled.matches) {
		compiled.applies = unite(compiled.applies, c.secret[pattern])
	}
	compiled.names = scrub.NewNames(compiled.applies...)
	return compiled
}

// export returns the type as the host sees it.
func (t *compiledType) export() EventType {
	public := t.EventType
	public.Secret = slices.Clone(t.applies)
	public.Sample = bytes.Clone(t.Sample)
	return public
}

// scrub removes the secrets from an event's data, which must be a JSON object.
func (t *compiledType) scrub(data []byte, hooks []ScrubFunc) ([]byte, error) {
	data, err := scrubObject(data, t.names)
	for _, hook := range hooks {
		if err != nil {
			return nil, err
		}
		if data, err = runHook(hook, t.Name, bytes.Clone(data)); err == nil {
			data, err = scrubObject(data, t.names)
		}
	}
	return data, err
}

func runHook(hook ScrubFunc, eventType string, data []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, &InvalidError{Field: "data", Rule: "the scrub function panicked", cause: panicError{r}}
		}
	}()
	if out, err = hook(eventType, data); err != nil {
		return nil, &InvalidError{Field: "data", Rule: "the scrub function failed", cause: err}
	}
	return out, nil
}
