package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/elido-app/webhook/internal/egress"
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
	// these hosts need Egress.AllowLoopback.
	URL string
	// Kind defaults to KindEvent. It cannot be changed later.
	Kind Kind
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
	// Secret brings one's own: 24 to 256 bytes, no NUL, no white space. By
	// default one is generated.
	Secret Secret
}

// ImportParams describes an endpoint that comes from another system.
type ImportParams struct {
	EndpointParams // with its Secret, which is required

	// ID is the endpoint's id there; zero for a new one.
	ID int64
	// CreatedAt is when it was created there; required.
	CreatedAt time.Time
	// Rotations is how often its secret was replaced there.
	Rotations int
	// Previous is the secret before this one, which signs too until
	// PreviousUntil. Both or neither.
	Previous      Secret
	PreviousUntil time.Time
	// Paused imports it paused.
	Paused bool
}

// EndpointUpdate says what to change. Nil leaves a field as it is.
type EndpointUpdate struct {
	URL         *string
	Events      []string
	Description *string
	Headers     map[string]string // replaces all; empty and not nil removes them
	MaxInFlight *int              // zero: the default
	Active      *bool             // false pauses, true resumes
}

// RotateOptions says how to replace a secret. The zero value generates one, with
// an overlap.
type RotateOptions struct {
	// Seen is how many rotations the caller has seen (Endpoint.Rotations). If
	// there was another meanwhile, nothing changes and the error is ErrConflict,
	// so that a double click cannot end a live secret. Nil does not check.
	Seen *int
	// NoOverlap ends the old secret at once: it has leaked.
	NoOverlap bool
	// Secret brings one's own, as in EndpointParams.
	Secret Secret
}

// CreateEndpoint saves an endpoint and returns it with its secret, which no
// other call but RotateSecret returns. Bad input is an [*InvalidError].
func (d *Dispatcher) CreateEndpoint(ctx context.Context, p EndpointParams) (Endpoint, Secret, error) {
	e, secret, err := d.newEndpoint(ctx, p)
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	e.CreatedAt = e.UpdatedAt
	e, err = d.saveEndpoint(ctx, e, secret, Secret{}, time.Time{})
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	return e, secret, nil
}

// ImportEndpoint takes over an endpoint from another system, with its id and
// secret. An id that is or was in use is [ErrConflict].
func (d *Dispatcher) ImportEndpoint(ctx context.Context, p ImportParams) (Endpoint, error) {
	switch {
	case p.ID < 0 || p.ID > importIDMost:
		return Endpoint{}, &InvalidError{Field: "id", Rule: "must be between 0 and 2^53 - 1, so that there are ids above it"}
	case p.CreatedAt.IsZero():
		return Endpoint{}, &InvalidError{Field: "created_at", Rule: "is required"}
	case p.Rotations < 0 || p.Rotations > rotationsMost:
		return Endpoint{}, &InvalidError{Field: "rotations", Rule: fmt.Sprintf("must be between 0 and %d", rotationsMost)}
	case p.Secret.IsZero():
		return Endpoint{}, &InvalidError{Field: "secret", Rule: "is required"}
	case p.Previous.IsZero() != p.PreviousUntil.IsZero():
		return Endpoint{}, &InvalidError{Field: "previous", Rule: "needs both the secret and when it ends"}
	}
	if err := checkTime(p.CreatedAt); err != nil {
		return Endpoint{}, &InvalidError{Field: "created_at", Rule: "must lie in the years 1970 to 9999"}
	}
	if !p.Previous.IsZero() {
		if err := checkTime(p.PreviousUntil); err != nil {
			return Endpoint{}, &InvalidError{Field: "previous_until", Rule: "must lie in the years 1970 to 9999"}
		}
		if err := d.config.Signer.checkSecret("previous", p.Previous); err != nil {
			return Endpoint{}, err
		}
	}
	e, secret, err := d.newEndpoint(ctx, p.EndpointParams)
	if err != nil {
		return Endpoint{}, err
	}
	e.ID, e.CreatedAt, e.Rotations = p.ID, p.CreatedAt, p.Rotations
	e.Imported, e.Active = true, !p.Paused
	previous, until := p.Previous, p.PreviousUntil.UTC().Truncate(time.Millisecond)
	if !until.After(e.UpdatedAt) { // over already: not worth storing
		previous, until = Secret{}, time.Time{}
	}
	return d.saveEndpoint(ctx, e, secret, previous, until)
}

// newEndpoint checks the params of a new endpoint, and makes its secret.
func (d *Dispatcher) newEndpoint(ctx context.Context, p EndpointParams) (Endpoint, Secret, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	e := Endpoint{
		WorkspaceID: p.WorkspaceID,
		Kind:        p.Kind,
		URL:         p.URL,
		Events:      p.Events,
		Active:      true,
		Description: p.Description,
		Headers:     p.Headers,
		MaxInFlight: p.MaxInFlight,
		UpdatedAt:   now,
	}
	if e.Kind == "" {
		e.Kind = KindEvent
	}
	if err := d.checkEndpoint(&e); err != nil {
		return e, Secret{}, err
	}
	secret := p.Secret
	if secret.IsZero() {
		secret = NewSecret(sig.NewSecret())
	}
	if err := d.config.Signer.checkSecret("secret", secret); err != nil {
		return e, Secret{}, err
	}
	return e, secret, ask(d.config.AllowEndpoint, "AllowEndpoint", ctx, p)
}

func (d *Dispatcher) saveEndpoint(ctx context.Context, e Endpoint, current, previous Secret, until time.Time) (Endpoint, error) {
	e.PreviousUntil = until
	e, err := d.store.CreateEndpoint(ctx, store.CreateEndpointParams{Endpoint: e, Seal: func(id int64) (store.Secrets, error) {
		return store.Secrets{
			Current:       d.keys.seal(current, sealSecret, e.WorkspaceID, id),
			Previous:      d.keys.seal(previous, sealSecret, e.WorkspaceID, id),
			PreviousUntil: until,
		}, nil
	}})
	if err != nil {
		return Endpoint{}, fmt.Errorf("webhook: create endpoint: %w", err)
	}
	d.config.Logger.Info("webhook: endpoint created", "endpoint_id", e.ID, "workspace_id", e.WorkspaceID, "kind", string(e.Kind), "imported", e.Imported)
	return e, nil
}

// checkEndpoint checks a new endpoint's settings and puts them into their stored
// form.
func (d *Dispatcher) checkEndpoint(e *Endpoint) error {
	if e.WorkspaceID <= 0 {
		return &InvalidError{Field: "workspace_id", Rule: "must be positive"}
	}
	switch e.Kind {
	case KindEvent, KindSIEM:
	case store.KindDiscord, store.KindTelegram, store.KindSentry:
		return &InvalidError{Field: "kind", Rule: fmt.Sprintf("%q is not supported by this version; use %q or %q", e.Kind, KindEvent, KindSIEM)}
	default:
		return &InvalidError{Field: "kind", Rule: fmt.Sprintf("is unknown; use %q or %q", KindEvent, KindSIEM)}
	}
	for _, check := range []func(*Endpoint) error{d.checkURL, d.checkEvents, checkDescription, checkHeaders, checkMaxInFlight} {
		if err := check(e); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) checkURL(e *Endpoint) (err error) {
	if e.URL, err = egress.CheckURL(e.URL, d.egressOptions()); err != nil {
		return invalid("url", err)
	}
	return nil
}

func (d *Dispatcher) checkEvents(e *Endpoint) (err error) {
	if e.Kind == KindSIEM {
		if len(e.Events) > 0 {
			return &InvalidError{Field: "events", Rule: "must be empty for kind siem, which gets every event of the workspace"}
		}
		return nil
	}
	if e.Events, err = d.config.Catalog.checkSubscription(e.Events); err != nil {
		return err
	}
	if len(e.Events) == 0 {
		return &InvalidError{Field: "events", Rule: "must name at least one event type, or the endpoint would never get anything"}
	}
	return nil
}

func checkDescription(e *Endpoint) error {
	switch {
	case len(e.Description) > descriptionMost:
		return &InvalidError{Field: "description", Rule: fmt.Sprintf("is %d bytes long, over the limit of %d", len(e.Description), descriptionMost)}
	case !utf8.ValidString(e.Description) || strings.ContainsRune(e.Description, 0):
		return &InvalidError{Field: "description", Rule: "must be valid UTF-8 without NUL"}
	}
	return nil
}

func checkHeaders(e *Endpoint) error {
	if err := egress.CheckHeaders(e.Headers); err != nil {
		return invalid("headers", err)
	}
	return nil
}

func checkMaxInFlight(e *Endpoint) error {
	if e.MaxInFlight < 0 || e.MaxInFlight > maxInFlightMost {
		return &InvalidError{Field: "max_in_flight", Rule: fmt.Sprintf("must be between 0 and %d", maxInFlightMost)}
	}
	return nil
}

func (d *Dispatcher) egressOptions() egress.Options {
	return d.config.Egress.options(d.config.Workers)
}

// invalid is the error of a rule that another package checked.
func invalid(field string, err error) error { return &InvalidError{Field: field, Rule: err.Error()} }

// Endpoint returns one endpoint, or [ErrNotFound].
func (d *Dispatcher) Endpoint(ctx context.Context, workspaceID, id int64) (Endpoint, error) {
	e, err := d.store.Endpoint(ctx, workspaceID, id)
	if err != nil {
		return Endpoint{}, endpointError(id, err)
	}
	return e, nil
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
	return list, nil
}

// UpdateEndpoint changes an endpoint's settings. Where the URL's host changes,
// headers that are not given anew are dropped: they belonged to the old host.
// Once it returned, this process starts no request with the old settings.
func (d *Dispatcher) UpdateEndpoint(ctx context.Context, workspaceID, id int64, u EndpointUpdate) (Endpoint, error) {
	for {
		e, err := d.store.Endpoint(ctx, workspaceID, id)
		if err != nil {
			return Endpoint{}, endpointError(id, err)
		}
		before := e
		if err := u.apply(d, &e); err != nil {
			return Endpoint{}, err
		}
		if u.Headers == nil && host(before.URL) != host(e.URL) {
			e.Headers = nil
		}
		e.UpdatedAt = time.Now().UTC().Truncate(time.Millisecond)
		e, err = d.store.UpdateEndpoint(ctx, e, nil)
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
		return e, nil
	}
}

// apply makes the changes and checks them, and nothing else: an endpoint that was
// saved under other rules can still be paused.
func (u EndpointUpdate) apply(d *Dispatcher, e *Endpoint) error {
	var checks []func(*Endpoint) error
	if u.URL != nil {
		e.URL = *u.URL
		checks = append(checks, d.checkURL)
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
	if u.Active != nil {
		e.Active, e.PauseReason = *u.Active, ""
	}
	for _, check := range checks {
		if err := check(e); err != nil {
			return err
		}
	}
	return nil
}

func host(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
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

// RotateSecret replaces an endpoint's secret and returns the new one, which no
// later call returns again. It signs from now on; the old one also signs, as the
// previous, for Signer.Overlap. Rotating within an overlap moves the then-current
// secret to previous, with an overlap of its own, and ends the oldest.
func (d *Dispatcher) RotateSecret(ctx context.Context, workspaceID, id int64, o RotateOptions) (Endpoint, Secret, error) {
	secret := o.Secret
	if secret.IsZero() {
		secret = NewSecret(sig.NewSecret())
	}
	if err := d.config.Signer.checkSecret("secret", secret); err != nil {
		return Endpoint{}, Secret{}, err
	}
	for {
		e, err := d.store.Endpoint(ctx, workspaceID, id)
		if err != nil {
			return Endpoint{}, Secret{}, endpointError(id, err)
		}
		if !e.Kind.Signed() {
			return Endpoint{}, Secret{}, &InvalidError{Field: "kind", Rule: fmt.Sprintf("%q has no secret to rotate", e.Kind)}
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		p := store.RotateParams{
			WorkspaceID: workspaceID,
			EndpointID:  id,
			Seen:        e.Rotations,
			Secret:      d.keys.seal(secret, sealSecret, workspaceID, id),
			At:          now,
		}
		if o.Seen != nil {
			p.Seen = *o.Seen
		}
		if !o.NoOverlap {
			p.PreviousUntil = d.config.Signer.overlapUntil(e, now)
		}
		e, err = d.store.RotateSecret(ctx, p)
		if errors.Is(err, ErrConflict) && o.Seen == nil && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return Endpoint{}, Secret{}, endpointError(id, err)
		}
		d.queue.Fence(id, e.Revision)
		d.queue.Tidy(e.PreviousUntil)
		d.config.Logger.Info("webhook: secret rotated", "endpoint_id", id, "workspace_id", workspaceID,
			"rotations", e.Rotations, "previous_until", e.PreviousUntil)
		return e, secret, nil
	}
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
