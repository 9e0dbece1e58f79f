package dashboard

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/elido-app/webhook"
)

// mask stands for what is not shown: in a form's header, for the value that is
// there already.
const mask = "***"

// kinds are what an endpoint can be, in the order in which they are offered.
var kinds = []webhook.Kind{webhook.KindEvent, webhook.KindSIEM, webhook.KindDiscord, webhook.KindTelegram, webhook.KindSentry}

// endpointForm is the form of an endpoint, as somebody filled it in or as it is
// shown to them: what was typed, and what is wrong with it. It never holds a
// credential longer than it takes to act on it: those fields come back empty.
type endpointForm struct {
	Editing bool
	Action  string // URL
	Back    string // URL

	Kind        webhook.Kind
	Kinds       []kindChoice
	URL         string
	Description string
	ChatID      string
	Types       []typeChoice // what is ticked, or can be
	Further     string       // other types and prefixes, as typed
	Headers     string       // lines of "Name: value"
	MaxInFlight string
	RateLimit   string
	Seen        string // the endpoint's state that the form was filled with
	Advanced    bool   // the further settings are open

	Errors map[string]string // by field; "form" is all of it
	Twin   *twinChoice
	SignIn string // URL, for whoever is signed out

	botToken, dsn, secret string
	again                 bool // although there is one like it
}

type kindChoice struct {
	Value, Name, Text string
	Checked           bool
}

type typeChoice struct {
	Name, Description string
	Ticked            bool
}

// twinChoice is another endpoint that sends to the same place.
type twinChoice struct{ URL, Target string }

// shows reports whether the form has a field, for templates.
func (f *endpointForm) shows(kinds ...webhook.Kind) bool {
	return !f.Editing || slices.Contains(kinds, f.Kind)
}

// What is shown of the form depends on the kind, which is fixed while editing.

func (f endpointForm) HasURL() bool {
	return f.shows(webhook.KindEvent, webhook.KindSIEM, webhook.KindDiscord)
}
func (f endpointForm) HasEvents() bool {
	return !f.Editing || f.Kind != webhook.KindSIEM
}
func (f endpointForm) HasTelegram() bool { return f.shows(webhook.KindTelegram) }
func (f endpointForm) HasSentry() bool   { return f.shows(webhook.KindSentry) }

// typed reads a form that was sent.
func (v *visit) typed() *endpointForm {
	get := func(name string) string { return v.r.PostForm.Get(name) }
	f := &endpointForm{
		Kind:        webhook.Kind(get("kind")),
		URL:         strings.TrimSpace(get("url")),
		Description: unixLines(get("description")),
		ChatID:      strings.TrimSpace(get("chat_id")),
		Further:     strings.TrimSpace(get("further")),
		Headers:     strings.TrimSpace(unixLines(get("headers"))),
		MaxInFlight: strings.TrimSpace(get("max_in_flight")),
		RateLimit:   strings.TrimSpace(get("rate_limit")),
		Seen:        get("seen"),
		botToken:    strings.TrimSpace(get("bot_token")),
		dsn:         strings.TrimSpace(get("dsn")),
		secret:      get("secret"),
		again:       get("again") != "",
		Errors:      make(map[string]string),
	}
	ticked := v.r.PostForm["events"]
	for _, name := range ticked[:min(len(ticked), ticksMost)] {
		f.Types = append(f.Types, typeChoice{Name: name, Ticked: true})
	}
	return f
}

// ticksMost is how many ticked types are looked at: more than an endpoint may have,
// so that to send more is refused.
const ticksMost = 200

// unixLines undoes what browsers do to the ends of lines.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// events are the types that the form names. at says which field an entry is from.
func (f *endpointForm) events() (list []string, at func(i int) string) {
	for _, t := range f.Types {
		if t.Ticked {
			list = append(list, t.Name)
		}
	}
	ticked := len(list)
	list = append(list, strings.FieldsFunc(f.Further, func(r rune) bool { return r == ',' || r == ';' || r <= ' ' })...)
	return list, func(i int) string {
		if i < ticked {
			return "events"
		}
		return "further"
	}
}

// offer adds what can be ticked beside what is, in the order of the catalog; what
// is ticked and not offered, because it was subscribed to through the API, stays.
func (v *visit) offer(f *endpointForm) {
	ticked, catalog := f.Types, v.d.Catalog()
	f.Types = nil
	for _, t := range catalog.Types() {
		if t.Form && t.Subscribable() {
			at := slices.IndexFunc(ticked, func(c typeChoice) bool { return c.Name == t.Name })
			f.Types = append(f.Types, typeChoice{t.Name, v.lang.typeText(t), at >= 0})
			if at >= 0 {
				ticked = slices.Delete(ticked, at, at+1)
			}
		}
	}
	for _, c := range ticked {
		if t, ok := catalog.Lookup(c.Name); ok {
			c.Description = v.lang.typeText(t)
		}
		if !slices.ContainsFunc(f.Types, func(o typeChoice) bool { return o.Name == c.Name }) {
			f.Types = append(f.Types, c)
		}
	}
	for i := range f.Types {
		f.Types[i].Name = shorten(printable([]byte(f.Types[i].Name)), 128)
	}
}

// typeText describes an event type: in the language at hand, unless the host has a
// description of its own.
func (l *language) typeText(t webhook.EventType) string {
	for _, key := range []string{"type." + t.Name, "type." + t.Name + ".traffic"} {
		if languages()[english].t(key) == t.Description {
			return l.t(key)
		}
	}
	return t.Description
}

// showForm shows the form, for the first time or with what is wrong.
func (v *visit) showForm(f *endpointForm, e *webhook.Endpoint, status int) error {
	v.offer(f)
	for _, k := range kinds {
		f.Kinds = append(f.Kinds, kindChoice{string(k), v.lang.t("kind." + string(k)), v.lang.t("kind." + string(k) + ".text"), k == f.Kind})
	}
	if !slices.Contains(kinds, f.Kind) {
		f.Kind = webhook.KindEvent
	}
	for _, field := range []*string{&f.URL, &f.Description, &f.ChatID, &f.Further, &f.Headers, &f.MaxInFlight, &f.RateLimit} {
		*field = printable([]byte(*field))
	}
	for _, field := range []string{"further", "headers", "max_in_flight", "rate_limit", "secret"} {
		f.Advanced = f.Advanced || f.Errors[field] != ""
	}
	f.Advanced = f.Advanced || f.Further+f.Headers+f.MaxInFlight+f.RateLimit != ""
	f.Back = v.path("")
	p := page{Title: v.lang.t("form.add"), Crumbs: v.crumbs(nil), Status: status, Body: f, URL: f.Action}
	if f.Action == v.path("") {
		p.URL = v.path("/new")
	}
	if f.Editing {
		p.Title = v.lang.t("form.edit")
		if e != nil {
			p.Crumbs, f.Back = v.crumbs(e), v.endpointPath(e.ID, "")
		}
	}
	if f.Errors["form"] == "" && len(f.Errors) > 0 {
		f.Errors["form"] = v.lang.t("form.mistakes")
	}
	v.show("form", p)
	return nil
}

// settings are the numbers of the form, zero where there is none.
func (f *endpointForm) settings(l *language) (maxInFlight int, rateLimit float64) {
	var err error
	if f.MaxInFlight != "" {
		if maxInFlight, err = strconv.Atoi(f.MaxInFlight); err != nil {
			f.Errors["max_in_flight"] = l.t("rule.number")
		}
	}
	if f.RateLimit != "" {
		// "1,500" is 1.5 to some and 1500 to others.
		if _, thousands, ok := strings.Cut(f.RateLimit, ","); ok && len(thousands) == 3 {
			err = strconv.ErrSyntax
		} else {
			rateLimit, err = strconv.ParseFloat(strings.Replace(f.RateLimit, ",", ".", 1), 64)
		}
		if err != nil {
			f.Errors["rate_limit"] = l.t("rule.number")
		}
	}
	return maxInFlight, rateLimit
}

// readHeaders returns the headers of the form; those that are masked are as in
// stored.
func (f *endpointForm) readHeaders(l *language, stored map[string]string) (headers map[string]string, masked bool) {
	headers = make(map[string]string)
	for line := range strings.Lines(f.Headers) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		_, twice := headers[name]
		switch {
		case !ok:
			f.Errors["headers"] = l.t("rule.header.line")
			continue
		case twice:
			f.Errors["headers"] = l.t("rule.header.twice", "name", shorten(name, 128))
		case value == mask:
			kept, is := stored[name]
			if !is {
				f.Errors["headers"] = l.t("rule.header.masked", "name", shorten(name, 128))
			}
			value, masked = kept, true
		case value == "" && confidential(name):
			f.Errors["headers"] = l.t("rule.header.again", "name", shorten(name, 128))
		}
		headers[name] = value
	}
	return headers, masked
}

// cover masks the headers that are credentials.
func (f *endpointForm) cover() {
	f.eachCredential(func(name, _ string) string { return name + ": " + mask })
}

// showAgain shows a form that was not acted on. Credentials that were typed do not
// go back, so they have to be typed again.
func (v *visit) showAgain(f *endpointForm, e *webhook.Endpoint, status int) error {
	again := func(field, text string) {
		if f.Errors[field] == "" {
			f.Errors[field] = text
		}
	}
	switch {
	case f.Kind == webhook.KindTelegram && f.botToken != "":
		again("bot_token", v.lang.t("rule.again"))
	case f.Kind == webhook.KindSentry && f.dsn != "":
		again("dsn", v.lang.t("rule.again"))
	case f.Kind == webhook.KindDiscord && f.URL != "" && !strings.HasSuffix(f.URL, "/"+mask):
		f.URL = ""
		again("url", v.lang.t("rule.again"))
	case f.Kind.Signed() && f.secret != "":
		again("secret", v.lang.t("rule.again"))
	}
	f.eachCredential(func(name, value string) string {
		if value == mask {
			return name + ": " + mask
		}
		again("headers", v.lang.t("rule.header.again", "name", shorten(name, 128)))
		return name + ": "
	})
	return v.showForm(f, e, status)
}

// eachCredential replaces the lines of the headers that are credentials.
func (f *endpointForm) eachCredential(line func(name, value string) string) {
	var out []string
	for text := range strings.Lines(f.Headers) {
		text = strings.TrimSuffix(text, "\n")
		if name, value, ok := strings.Cut(text, ":"); ok && confidential(name) {
			text = line(strings.TrimSpace(name), strings.TrimSpace(value))
		}
		out = append(out, text)
	}
	f.Headers = strings.Join(out, "\n")
}

// confidential reports whether a header's value is nobody's to read: the rule by
// which the delivery log leaves values out (see webhook.SignFunc).
func confidential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"signature", "auth", "token", "secret", "password", "key", "cookie"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// refused puts down what the Dispatcher, or the host, refused beside its field.
func (f *endpointForm) refused(l *language, field, rule string) {
	field, index, inList := strings.Cut(field, "[")
	field = strings.TrimPrefix(field, "config.")
	if field == "config" || field == "workspace_id" {
		field = "form"
	}
	if field == "events" && inList {
		if i, convErr := strconv.Atoi(strings.TrimSuffix(index, "]")); convErr == nil {
			_, at := f.events()
			field = at(i)
		}
	}
	switch field {
	case "kind", "url", "chat_id", "bot_token", "dsn", "events", "further", "description", "headers", "max_in_flight", "rate_limit", "secret":
	default:
		field = "form" // what a host's own rule is about
	}
	f.Errors[field] = l.rule(rule)
}

// newEndpoint shows the form with what the catalog ticks.
func newEndpoint(v *visit) error {
	f := &endpointForm{Kind: webhook.KindEvent, Action: v.path(""), Errors: make(map[string]string)}
	for _, t := range v.d.Catalog().Types() {
		if t.Form && t.Ticked && t.Subscribable() {
			f.Types = append(f.Types, typeChoice{Name: t.Name, Ticked: true})
		}
	}
	return v.showForm(f, nil, http.StatusOK)
}
