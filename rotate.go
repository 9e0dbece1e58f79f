package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elido-app/webhook/internal/sig"
	"github.com/elido-app/webhook/store"
)

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
