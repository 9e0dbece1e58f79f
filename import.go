package webhook

import (
	"context"
	"fmt"
	"time"
)

// ImportParams describes an endpoint that comes from another system.
type ImportParams struct {
	EndpointParams // with its Secret, which is required where the kind is signed

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
	case p.Secret.IsZero() && !isChannel(p.Kind):
		return Endpoint{}, &InvalidError{Field: "secret", Rule: "is required"}
	case isChannel(p.Kind) && (p.Rotations > 0 || !p.Previous.IsZero()):
		return Endpoint{}, &InvalidError{Field: "previous", Rule: fmt.Sprintf("must be empty for kind %s, which is not signed, and rotations 0", p.Kind)}
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
	e, s, err := d.newEndpoint(ctx, p.EndpointParams)
	if err != nil {
		return Endpoint{}, err
	}
	e.ID, e.CreatedAt, e.Rotations = p.ID, p.CreatedAt, p.Rotations
	e.Imported, e.Active = true, !p.Paused
	s.previous, s.until = p.Previous, p.PreviousUntil.UTC().Truncate(time.Millisecond)
	if !s.until.After(e.UpdatedAt) { // over already: not worth storing
		s.previous, s.until = Secret{}, time.Time{}
	}
	return d.saveEndpoint(ctx, e, s)
}
