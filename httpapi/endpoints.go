package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/elido-app/webhook"
)

const pageMost = 100

// one is an endpoint as the API shows it; the secret only where it was just made.
type one struct {
	Endpoint webhook.Endpoint `json:"endpoint"`
	Secret   string           `json:"secret,omitempty"`
}

// show makes an endpoint fit to be shown: none is an empty list.
func show(e webhook.Endpoint) webhook.Endpoint {
	if e.Events == nil {
		e.Events = []string{}
	}
	return e
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// createEndpoint adds an endpoint.
func (a *api) createEndpoint(q *request) (answer, error) {
	b := q.body
	p := webhook.EndpointParams{
		WorkspaceID: q.workspaceID,
		URL:         deref(b.text("url")),
		Kind:        b.kind(),
		Config:      b.textMap("config"),
		Events:      b.texts("events"),
		Description: deref(b.text("description")),
		Headers:     b.textMap("headers"),
		MaxInFlight: deref(b.count("max_in_flight")),
		RateLimit:   deref(b.rate("rate_limit")),
		Secret:      b.secret("secret"),
	}
	if err := b.end(); err != nil {
		return answer{}, err
	}
	e, secret, err := a.d.CreateEndpoint(q.Context(), p)
	if err != nil {
		return answer{}, err
	}
	location := strings.Replace(webhooksPath, "{workspace_id}", strconv.FormatInt(q.workspaceID, 10), 1) + "/" + strconv.FormatInt(e.ID, 10)
	return answer{http.StatusCreated, location, one{show(e), secret.Reveal()}}, nil
}

// kind takes the kind of a new endpoint out. One that is empty is not the same as
// none.
func (b *body) kind() webhook.Kind {
	kind := b.text("kind")
	if kind != nil && *kind == "" {
		b.refuse("kind", "must not be empty; leave it out for kind event")
	}
	return webhook.Kind(deref(kind))
}

// secret takes a secret of the caller's own out. One that is empty is not the same
// as none.
func (b *body) secret(name string) webhook.Secret {
	s := b.text(name)
	if s != nil && *s == "" {
		b.refuse(name, "must not be empty; leave it out to have one made")
	}
	return webhook.NewSecret(deref(s))
}

// listEndpoints returns a page of endpoints, in order of id.
func (a *api) listEndpoints(q *request) (answer, error) {
	var errs []FieldError
	limit := q.count(&errs, "limit", 1, pageMost, pageMost)
	var after int64
	if q.query.Has("cursor") {
		var ok bool
		if after, ok = parseID(q.query.Get("cursor")); !ok {
			errs = append(errs, FieldError{Field: "cursor", Detail: ruleCursor})
		}
	}
	if len(errs) > 0 {
		return answer{}, problemParameters(errs...)
	}
	list, err := a.d.Endpoints(q.Context(), q.workspaceID, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	var page struct {
		Endpoints []webhook.Endpoint `json:"endpoints"`
		Next      string             `json:"next,omitempty"`
	}
	if len(list) > limit { // one more tells whether there is a next page
		list = list[:limit]
		page.Next = strconv.FormatInt(list[limit-1].ID, 10)
	}
	page.Endpoints = make([]webhook.Endpoint, len(list))
	for i, e := range list {
		page.Endpoints[i] = show(e)
	}
	return answer{status: http.StatusOK, body: page}, nil
}

const ruleCursor = "must be what an earlier page gave as next"

func (a *api) getEndpoint(q *request) (answer, error) {
	e, err := a.d.Endpoint(q.Context(), q.workspaceID, q.endpointID)
	return answer{status: http.StatusOK, body: one{Endpoint: show(e)}}, err
}

// settings takes out of a body what can be changed of an endpoint.
func (b *body) settings(e webhook.Endpoint) webhook.EndpointUpdate {
	u := webhook.EndpointUpdate{
		URL:         b.text("url"),
		Config:      b.textMap("config"),
		Events:      b.texts("events"),
		Description: b.text("description"),
		Headers:     b.textMap("headers"),
		MaxInFlight: b.count("max_in_flight"),
		RateLimit:   b.rate("rate_limit"),
		Active:      b.flag("is_active"),
	}
	if kind := b.text("kind"); kind != nil && webhook.Kind(*kind) != e.Kind {
		b.refuse("kind", fmt.Sprintf("cannot be changed: it is %q", e.Kind))
	}
	return u
}

// changeEndpoint changes what is given.
func (a *api) changeEndpoint(q *request) (answer, error) { return a.update(q, false) }

// replaceEndpoint changes everything: what is not given gets its default, but for
// what cannot be read back, credentials, and for what is no setting, is_active.
func (a *api) replaceEndpoint(q *request) (answer, error) { return a.update(q, true) }

func (a *api) update(q *request, all bool) (answer, error) {
	e, err := a.d.Endpoint(q.Context(), q.workspaceID, q.endpointID)
	if err != nil {
		return answer{}, err
	}
	if all && (e.Kind.Signed() || e.Kind == webhook.KindDiscord) { // the others' follows from config
		q.body.require("url", "is required")
	}
	u := q.body.settings(e)
	if err := q.body.end(); err != nil {
		return answer{}, err
	}
	if all {
		if u.Events == nil {
			u.Events = []string{}
		}
		if u.Headers == nil {
			u.Headers = map[string]string{}
		}
		u.Description = new(deref(u.Description))
		u.MaxInFlight = new(deref(u.MaxInFlight))
		u.RateLimit = new(deref(u.RateLimit))
	}
	e, err = a.d.UpdateEndpoint(q.Context(), q.workspaceID, q.endpointID, u)
	return answer{status: http.StatusOK, body: one{Endpoint: show(e)}}, err
}

func (a *api) deleteEndpoint(q *request) (answer, error) {
	return answer{status: http.StatusNoContent}, a.d.DeleteEndpoint(q.Context(), q.workspaceID, q.endpointID)
}

// rotateSecret replaces the secret, and returns the new one.
func (a *api) rotateSecret(q *request) (answer, error) {
	b := q.body
	b.require("seen_rotations", "is required: the endpoint's rotations as you have read them, so that a request sent twice rotates once")
	o := webhook.RotateOptions{
		Seen:      b.count("seen_rotations"),
		NoOverlap: deref(b.flag("no_overlap")),
		Secret:    b.secret("secret"),
	}
	if err := b.end(); err != nil {
		return answer{}, err
	}
	e, secret, err := a.d.RotateSecret(q.Context(), q.workspaceID, q.endpointID, o)
	var invalid *webhook.InvalidError
	switch {
	case errors.Is(err, webhook.ErrConflict):
		return answer{}, errRotated
	case errors.As(err, &invalid) && invalid.Field == "kind":
		return answer{}, errUnsigned
	}
	return answer{status: http.StatusOK, body: one{show(e), secret.Reveal()}}, err
}

// sendTest sends a test event.
func (a *api) sendTest(q *request) (answer, error) {
	if err := q.body.end(); err != nil {
		return answer{}, err
	}
	r, err := a.d.SendTest(q.Context(), q.workspaceID, q.endpointID)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusAccepted, body: struct {
		EventID    string `json:"event_id"`
		DeliveryID int64  `json:"delivery_id"`
	}{r.EventID, r.DeliveryIDs[0]}}, nil
}
