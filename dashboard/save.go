package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
)

// createEndpoint adds an endpoint. One that sends to the same place as another is
// asked about first: most likely it is the same form once more, after a second
// click or a reload.
func createEndpoint(v *visit) error {
	f := v.typed()
	f.Action = v.path("")
	p := webhook.EndpointParams{
		WorkspaceID: v.workspace, Kind: f.Kind, Description: f.Description,
		Secret: webhook.NewSecret(f.secret),
	}
	p.Headers, _ = f.readHeaders(v.lang, nil)
	p.MaxInFlight, p.RateLimit = f.settings(v.lang)
	if p.Kind != webhook.KindSIEM {
		p.Events, _ = f.events()
		if len(p.Events) == 0 {
			f.Errors["events"] = v.lang.t("rule.events.none")
		}
	}
	switch p.Kind {
	case webhook.KindTelegram:
		p.Config = map[string]string{"chat_id": f.ChatID, "bot_token": f.botToken}
	case webhook.KindSentry:
		p.Config = map[string]string{"dsn": f.dsn}
	default:
		if p.URL = f.URL; p.URL == "" {
			f.Errors["url"] = v.lang.t("rule.url.none")
		}
	}
	if !p.Kind.Signed() {
		p.Secret = webhook.Secret{}
	}
	if len(f.Errors) > 0 {
		return v.showAgain(f, nil, http.StatusUnprocessableEntity)
	}
	v.adding.Lock()
	defer v.adding.Unlock()
	if !f.again {
		twin, err := v.twin(p)
		if err != nil {
			return v.keep(f, nil, err)
		}
		if twin != nil {
			f.Twin = &twinChoice{v.endpointPath(twin.ID, ""), target(*twin)}
			f.Errors["form"] = v.lang.t("form.twin")
			return v.showAgain(f, nil, http.StatusConflict)
		}
	}
	e, secret, err := v.d.CreateEndpoint(v.r.Context(), p)
	if err != nil {
		return v.keep(f, nil, err)
	}
	if secret.IsZero() || f.secret != "" {
		return v.done(v.endpointPath(e.ID, ""), "added")
	}
	return v.showSecret(e, secret)
}

// createRefused shows the form again to who may not send it.
func createRefused(v *visit) error {
	f := v.typed()
	f.Action = v.path("")
	return v.keep(f, nil, v.refusal)
}

// keep shows a form again, with what was typed and why it was not acted on.
func (v *visit) keep(f *endpointForm, e *webhook.Endpoint, err error) error {
	if invalid, ok := errors.AsType[*webhook.InvalidError](err); ok {
		f.refused(v.lang, invalid.Field, invalid.Rule)
		return v.showAgain(f, e, http.StatusUnprocessableEntity)
	}
	if said, ok := errors.AsType[*httpapi.Problem](err); ok {
		for _, field := range said.Errors {
			f.refused(v.lang, field.Field, field.Detail)
		}
	}
	p := v.explain(err)
	_, _, f.Errors["form"] = v.lang.words(p)
	if p == errSignedOut {
		f.SignIn = v.config.SignIn
	}
	return v.showAgain(f, e, p.status)
}

// twin returns an endpoint that sends to where p would, of the same kind; nil
// without one.
func (v *visit) twin(p webhook.EndpointParams) (*webhook.Endpoint, error) {
	place := address(p.Kind, p.URL, p.Config)
	const most = 1000
	for after := int64(0); ; {
		list, err := v.d.Endpoints(v.r.Context(), v.workspace, after, most)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].Kind == p.Kind && address(p.Kind, list[i].URL, list[i].Config) == place {
				return &list[i], nil
			}
		}
		if len(list) < most {
			return nil, nil
		}
		after = list[most-1].ID
	}
}

// address names the place that an endpoint sends to, without credentials: of what
// was typed the same as of what is read.
func address(kind webhook.Kind, raw string, config map[string]string) string {
	if dsn := config["dsn"]; kind == webhook.KindSentry && dsn != "" {
		raw = dsn
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case kind == webhook.KindTelegram:
		return config["chat_id"]
	case err != nil:
		return raw
	case kind == webhook.KindDiscord: // …/webhooks/<id>/<token>
		_, rest, _ := strings.Cut(u.Path, "/webhooks/")
		id, _, _ := strings.Cut(rest, "/")
		return id + "?" + u.Query().Get("thread_id")
	case kind == webhook.KindSentry: // a DSN, …/<project>, or …/api/<project>/envelope/
		path := strings.TrimSuffix(u.Path, "/envelope/")
		if i := strings.LastIndex(path, "/api/"); i >= 0 && path != u.Path {
			path = path[:i] + path[i+len("/api"):]
		}
		return strings.ToLower(u.Host) + path
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	return u.String()
}

// editEndpoint shows the form with an endpoint's settings.
func editEndpoint(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	f := &endpointForm{
		Editing: true, Action: v.endpointPath(e.ID, "/edit"), Kind: e.Kind, URL: e.URL, Description: unixLines(e.Description),
		ChatID: e.Config["chat_id"], Seen: state(e), Errors: make(map[string]string),
	}
	for _, name := range e.Events {
		f.Types = append(f.Types, typeChoice{Name: name, Ticked: true})
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		lines = append(lines, name+": "+e.Headers[name])
	}
	f.Headers = strings.Join(lines, "\n")
	if e.MaxInFlight > 0 {
		f.MaxInFlight = strconv.Itoa(e.MaxInFlight)
	}
	if e.RateLimit > 0 {
		f.RateLimit = strconv.FormatFloat(e.RateLimit, 'f', -1, 64)
	}
	f.cover()
	return v.showForm(f, &e, http.StatusOK)
}

// state tells whether an endpoint was changed since a form was filled with it.
func state(e webhook.Endpoint) string { return strconv.FormatInt(e.Revision, 10) }

// updateEndpoint saves what differs from what is there. If somebody else saved
// meanwhile, the form is shown once more before it replaces what they did.
func updateEndpoint(v *visit) error {
	f := v.typed()
	e, err := v.endpoint()
	if errors.Is(err, webhook.ErrNotFound) {
		return v.offerAnew(f)
	}
	if err != nil {
		return err
	}
	f.Editing, f.Action, f.Kind = true, v.endpointPath(e.ID, "/edit"), e.Kind
	u := f.changes(v.lang, e)
	if len(f.Errors) > 0 {
		return v.showAgain(f, &e, http.StatusUnprocessableEntity)
	}
	if f.Seen != state(e) {
		f.Seen = state(e)
		f.Errors["form"] = v.lang.t("form.stale")
		return v.showAgain(f, &e, http.StatusConflict)
	}
	if _, err = v.d.UpdateEndpoint(v.r.Context(), v.workspace, e.ID, u); errors.Is(err, webhook.ErrNotFound) {
		return v.offerAnew(f)
	} else if err != nil {
		return v.keep(f, &e, err)
	}
	return v.done(v.endpointPath(e.ID, ""), "saved")
}

// updateRefused shows the form again to who may not send it, without looking at
// the endpoint.
func updateRefused(v *visit) error {
	f := v.typed()
	f.Editing, f.Action = true, v.r.URL.Path
	return v.keep(f, nil, v.refusal)
}

// offerAnew keeps what was typed for an endpoint that is deleted, to add another
// with it.
func (v *visit) offerAnew(f *endpointForm) error {
	f.Editing, f.Action = false, v.path("")
	f.Errors["form"] = v.lang.t("form.deleted")
	return v.showAgain(f, nil, http.StatusNotFound)
}

// changes returns what the form changes of an endpoint.
func (f *endpointForm) changes(l *language, e webhook.Endpoint) (u webhook.EndpointUpdate) {
	moves := false
	if f.HasURL() {
		switch {
		case f.URL == "" && e.Kind == webhook.KindDiscord:
			f.URL = e.URL // nothing was typed, as its token is not shown
		case f.URL == "":
			f.Errors["url"] = l.t("rule.url.none")
		case f.URL != e.URL:
			u.URL, moves = &f.URL, origin(f.URL) != origin(e.URL)
		}
	}
	switch {
	case e.Kind == webhook.KindTelegram && (f.ChatID != e.Config["chat_id"] || f.botToken != ""):
		u.Config = map[string]string{"chat_id": f.ChatID}
		if f.botToken != "" {
			u.Config["bot_token"] = f.botToken
		}
	case e.Kind == webhook.KindSentry && f.dsn != "":
		u.Config = map[string]string{"dsn": f.dsn}
		moves = origin(f.dsn) != origin(e.URL)
	}
	if f.HasEvents() {
		if events, _ := f.events(); len(events) == 0 {
			f.Errors["events"] = l.t("rule.events.none")
		} else if !sameSet(events, e.Events) {
			u.Events = events
		}
	}
	if f.Description != printable([]byte(unixLines(e.Description))) { // as the form showed it
		u.Description = &f.Description
	}
	headers, masked := f.readHeaders(l, e.Headers)
	if moves && masked { // it belongs to the old host
		f.Errors["headers"] = l.t("rule.header.moved")
	}
	if moves || !maps.Equal(headers, e.Headers) {
		u.Headers = headers
	}
	maxInFlight, rateLimit := f.settings(l)
	if maxInFlight != e.MaxInFlight {
		u.MaxInFlight = &maxInFlight
	}
	if rateLimit != e.RateLimit {
		u.RateLimit = &rateLimit
	}
	return u
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// origin is whom a URL leads to.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}
