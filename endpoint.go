package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/elido-app/webhook/internal/sig"
	"github.com/elido-app/webhook/store"
)

const (
	maxInFlightMost  = 1000
	descriptionMost  = 1024 // bytes
	endpointsDefault = 100
	endpointsMost    = 1000
	importIDMost     = 1<<53 - 1 // what JavaScript can count to
	rotationsMost    = 1_000_000
)

// EndpointParams describes an endpoint to create.
type EndpointParams struct {
	WorkspaceID int64
	// URL must be https. Plain http is for localhost, 127.0.0.1 and [::1], and
	// these hosts need Egress.AllowLoopback. For KindDiscord it is the URL of a
	// Discord webhook, whose token no read returns; KindTelegram and KindSentry
	// take none.
	URL string
	// Kind defaults to KindEvent. It cannot be changed later.
	Kind Kind
	// Config is for KindTelegram, "chat_id" (a chat's number, or "@" and the name
	// of a public channel or group) and "bot_token", and for KindSentry, "dsn".
	// The credentials among them, bot_token and dsn, are in nothing that is read
	// later. Other kinds take none.
	Config map[string]string
	// Events are names from the catalog, and prefixes such as "link.*" that
	// match every present and future type of a resource. Required, except for
	// KindSIEM, which gets every event and takes none.
	Events []string
	// Description is free text, at most 1,024 bytes.
	Description string
	// Headers are sent with every request. Reserved names are refused.
	Headers map[string]string
	// MaxInFlight bounds the requests that one process has open to this
	// endpoint. Defaults to Config.MaxInFlight; at most 1,000.
	MaxInFlight int
	// RateLimit is how many requests a second one process starts to this
	// endpoint, evenly spaced, retries included. Waiting uses up no attempts.
	// Zero: what Config.Channels has for KindDiscord and KindTelegram, for other
	// kinds no limit; otherwise 1 a day to 10,000.
	RateLimit float64
	// Secret brings one's own: 24 to 256 bytes, no NUL, no white space. By
	// default one is generated. Kinds that are not signed have none.
	Secret Secret
}

// EndpointUpdate says what to change. Nil leaves a field as it is.
type EndpointUpdate struct {
	URL         *string
	Config      map[string]string // what is not in it stays as it is
	Events      []string
	Description *string
	Headers     map[string]string // replaces all; empty and not nil removes them
	MaxInFlight *int              // zero: the default
	RateLimit   *float64          // zero: none
	Active      *bool             // false pauses, true resumes
}

// CreateEndpoint saves an endpoint and returns it with its secret, which no
// other call but RotateSecret returns; kinds that are not signed have none. Bad
// input is an [*InvalidError].
func (d *Dispatcher) CreateEndpoint(ctx context.Context, p EndpointParams) (Endpoint, Secret, error) {
	e, secrets, err := d.newEndpoint(ctx, p)
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	e.CreatedAt = e.UpdatedAt
	e, err = d.saveEndpoint(ctx, e, secrets)
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	return e, secrets.current, nil
}

// secrets is the secret material of an endpoint.
type secrets struct {
	current, previous Secret
	until             time.Time // end of the overlap, excluded
	credentials       Secret
}

// newEndpoint checks the params of a new endpoint, and makes its secret.
func (d *Dispatcher) newEndpoint(ctx context.Context, p EndpointParams) (e Endpoint, s secrets, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	e = Endpoint{
		WorkspaceID: p.WorkspaceID,
		Kind:        p.Kind,
		URL:         p.URL,
		Config:      p.Config,
		Events:      p.Events,
		Active:      true,
		Description: p.Description,
		Headers:     p.Headers,
		MaxInFlight: p.MaxInFlight,
		RateLimit:   p.RateLimit,
		UpdatedAt:   now,
	}
	if e.Kind == "" {
		e.Kind = KindEvent
	}
	if e.RateLimit == 0 {
		e.RateLimit = d.config.Channels.rateLimit(e.Kind)
	}
	if s.credentials, err = d.checkEndpoint(&e); err != nil {
		return e, s, err
	}
	s.current = p.Secret
	switch {
	case !e.Kind.Signed() && !s.current.IsZero():
		return e, s, &InvalidError{Field: "secret", Rule: fmt.Sprintf("must be empty for kind %s, which is not signed", e.Kind)}
	case e.Kind.Signed():
		if s.current.IsZero() {
			s.current = NewSecret(sig.NewSecret())
		}
		if err := d.config.Signer.checkSecret("secret", s.current); err != nil {
			return e, s, err
		}
	}
	return e, s, ask(d, d.config.AllowEndpoint, "AllowEndpoint", ctx, p)
}

func (d *Dispatcher) saveEndpoint(ctx context.Context, e Endpoint, s secrets) (Endpoint, error) {
	e.PreviousUntil = s.until
	e, err := d.store.CreateEndpoint(ctx, store.CreateEndpointParams{Endpoint: e, Seal: func(id int64) (store.Secrets, error) {
		return store.Secrets{
			Current:       d.keys.seal(s.current, sealSecret, e.WorkspaceID, id),
			Previous:      d.keys.seal(s.previous, sealSecret, e.WorkspaceID, id),
			PreviousUntil: s.until,
			Credentials:   d.keys.seal(s.credentials, sealCredentials, e.WorkspaceID, id),
		}, nil
	}})
	if err != nil {
		return Endpoint{}, fmt.Errorf("webhook: create endpoint: %w", err)
	}
	d.config.Logger.Info("webhook: endpoint created", "endpoint_id", e.ID, "workspace_id", e.WorkspaceID, "kind", string(e.Kind), "imported", e.Imported)
	return e, nil
}

// Endpoint returns one endpoint, or [ErrNotFound].
func (d *Dispatcher) Endpoint(ctx context.Context, workspaceID, id int64) (Endpoint, error) {
	e, err := d.store.Endpoint(ctx, workspaceID, id)
	if err != nil {
		return Endpoint{}, endpointError(id, err)
	}
	return public(e), nil
}

func endpointError(id int64, err error) error {
	return fmt.Errorf("webhook: endpoint %d: %w", id, err)
}

// Endpoints returns endpoints of a workspace with ids above after (zero: from
// the beginning), in order of id: at most limit, which is 1 to 1,000 and
// defaults to 100 where zero.
func (d *Dispatcher) Endpoints(ctx context.Context, workspaceID, after int64, limit int) ([]Endpoint, error) {
	if workspaceID <= 0 {
		return nil, &InvalidError{Field: "workspace_id", Rule: "must be positive"}
	}
	if limit == 0 {
		limit = endpointsDefault
	}
	if limit < 1 || limit > endpointsMost {
		return nil, &InvalidError{Field: "limit", Rule: fmt.Sprintf("must be between 1 and %d", endpointsMost)}
	}
	list, err := d.store.Endpoints(ctx, store.EndpointFilter{WorkspaceID: workspaceID, After: after, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("webhook: endpoints: %w", err)
	}
	for i := range list {
		list[i] = public(list[i])
	}
	return list, nil
}

// UpdateEndpoint changes an endpoint's settings. Where the URL's scheme, host or
// port changes, headers and credentials that are not given anew are dropped: they
// belonged to the old host. Otherwise credentials that are not given stay; a Discord
// URL is given with its token, or as it is read. The secret stays. Once it returned,
// this process starts no request with the old settings.
func (d *Dispatcher) UpdateEndpoint(ctx context.Context, workspaceID, id int64, u EndpointUpdate) (Endpoint, error) {
	for {
		e, err := d.store.Endpoint(ctx, workspaceID, id)
		if err != nil {
			return Endpoint{}, endpointError(id, err)
		}
		before := e
		credentials, err := u.apply(d, &e)
		if err != nil {
			return Endpoint{}, err
		}
		var sealed *store.Sealed
		moved := origin(before.URL) != origin(e.URL)
		if moved && u.Headers == nil {
			e.Headers = nil
		}
		if moved || !credentials.IsZero() {
			box := d.keys.seal(credentials, sealCredentials, workspaceID, id)
			sealed = &box
		}
		e.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
		e, err = d.store.UpdateEndpoint(ctx, e, sealed)
		if errors.Is(err, ErrConflict) && ctx.Err() == nil {
			continue // somebody was quicker: apply the change to what they made
		}
		if err != nil {
			return Endpoint{}, endpointError(id, err)
		}
		d.queue.Fence(id, e.Revision)
		text := "webhook: endpoint updated"
		switch {
		case before.Active && !e.Active:
			text = "webhook: endpoint paused"
		case !before.Active && e.Active:
			text = "webhook: endpoint resumed"
		}
		d.config.Logger.Info(text, "endpoint_id", id, "workspace_id", workspaceID)
		return public(e), nil
	}
}

// apply makes the changes and checks them, and nothing else: an endpoint that was
// saved under other rules can still be paused. It returns new credentials, if
// there are any.
func (u EndpointUpdate) apply(d *Dispatcher, e *Endpoint) (credentials Secret, err error) {
	var checks []func(*Endpoint) error
	if u.URL != nil || u.Config != nil {
		checks = append(checks, func(e *Endpoint) (err error) {
			credentials, err = d.changeTarget(e, u.URL, u.Config)
			return err
		})
	}
	if u.Events != nil {
		e.Events = slices.Clone(u.Events)
		checks = append(checks, d.checkEvents)
	}
	if u.Description != nil {
		e.Description = *u.Description
		checks = append(checks, checkDescription)
	}
	if u.Headers != nil {
		e.Headers = maps.Clone(u.Headers)
		checks = append(checks, checkHeaders)
	}
	if u.MaxInFlight != nil {
		e.MaxInFlight = *u.MaxInFlight
		checks = append(checks, checkMaxInFlight)
	}
	if u.RateLimit != nil {
		e.RateLimit = *u.RateLimit
		checks = append(checks, checkRateLimit)
	}
	if u.Active != nil {
		e.Active, e.PauseReason = *u.Active, ""
	}
	for _, check := range checks {
		if err := check(e); err != nil {
			return Secret{}, err
		}
	}
	return credentials, nil
}

// origin is whom a URL leads to (RFC 6454, section 4).
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "http":
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port)
}

// PauseEndpoint stops deliveries to an endpoint. What is queued waits until
// ResumeEndpoint, however long, using up no attempts; what is published while it
// is paused is never sent to it. Once
// it returned, this process starts no request to the endpoint, and others do so
// no longer than Config.Poll.
func (d *Dispatcher) PauseEndpoint(ctx context.Context, workspaceID, id int64) (Endpoint, error) {
	active := false
	return d.UpdateEndpoint(ctx, workspaceID, id, EndpointUpdate{Active: &active})
}

// ResumeEndpoint undoes PauseEndpoint.
func (d *Dispatcher) ResumeEndpoint(ctx context.Context, workspaceID, id int64) (Endpoint, error) {
	active := true
	return d.UpdateEndpoint(ctx, workspaceID, id, EndpointUpdate{Active: &active})
}

// DeleteEndpoint removes an endpoint with its queue and its log. Once it
// returned, this process starts no request to it.
func (d *Dispatcher) DeleteEndpoint(ctx context.Context, workspaceID, id int64) error {
	now := time.Now()
	if err := d.store.DeleteEndpoint(ctx, workspaceID, id, now); err != nil {
		return endpointError(id, err)
	}
	d.queue.Fence(id, deletedRevision)
	d.queue.Tidy(now)
	d.config.Logger.Info("webhook: endpoint deleted", "endpoint_id", id, "workspace_id", workspaceID)
	return nil
}

// deletedRevision is above every revision: nothing of a deleted endpoint starts.
const deletedRevision = 1<<63 - 1

// SendTest publishes a synthetic event of type "test" to one endpoint, whatever
// it subscribes to, and logs it like any other. A paused endpoint is refused with
// [ErrPaused].
func (d *Dispatcher) SendTest(ctx context.Context, workspaceID, id int64) (Receipt, error) {
	e, err := d.store.Endpoint(ctx, workspaceID, id)
	if err != nil {
		return Receipt{}, endpointError(id, err)
	}
	if !e.Active {
		return Receipt{}, endpointError(id, ErrPaused)
	}
	now := time.Now()
	eventID := newEventID(now)
	p, err := d.config.Catalog.prepareTest(workspaceID, d.config.Envelope, eventID, now)
	if err != nil {
		return Receipt{}, err
	}
	event := d.newEvent(eventID, Event{Type: TestEvent, WorkspaceID: workspaceID}, p)
	event.EndpointID = id
	receipts, err := d.put(ctx, nil, []store.NewEvent{event}, now)
	if err != nil {
		return Receipt{}, ofEvent(err)
	}
	if len(receipts[0].DeliveryIDs) == 0 { // paused or deleted in between
		return Receipt{}, endpointError(id, ErrPaused)
	}
	return receipts[0], nil
}
