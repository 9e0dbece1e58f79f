package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/elido-app/webhook/store"
)

const (
	reencryptBatch   = 100 // endpoints, in one call of the store
	reencryptReports = 100 // endpoints an error names
)

// Reencrypt brings the secrets of all endpoints, in all workspaces, under
// Config.Keys.Current: those under another of Config.Keys and those in the clear.
// It returns how many endpoints it changed, which is none the second time.
//
// When the error is nil, every secret in the store decrypts under Current alone.
// Every other key can then be removed, provided that no process is left that
// encrypts under one: make the new key Current everywhere first.
//
// A secret that does not decrypt, because its key is not in Config.Keys or its
// row was tampered with, is left as it is. The others are re-encrypted all the
// same, and the error names the endpoints and reasons (of the first hundred; the
// log has all). Without Config.Keys the error is an [*InvalidError].
//
// It works in small batches, beside running Dispatchers, publishing and rotation,
// and in several processes at once. What it did before an error, or before ctx
// was cancelled, stays done; call it again for the rest.
func (d *Dispatcher) Reencrypt(ctx context.Context) (int, error) {
	if d.keys.aeads == nil {
		return 0, &InvalidError{Field: "Config.Keys", Rule: "must be set: there is no key to encrypt under"}
	}
	r := reencryption{Dispatcher: d}
	for more := true; more; {
		var err error
		if more, err = r.batch(ctx); err != nil {
			return r.changed, fmt.Errorf("webhook: re-encrypt: %w", err)
		}
	}
	d.config.Logger.Info("webhook: secrets re-encrypted", "key", d.keys.current, "endpoints", r.changed, "failed", len(r.failed))
	return r.changed, r.failures()
}

// reencryption is one call of Reencrypt.
type reencryption struct {
	*Dispatcher
	after   int64 // the last endpoint that was seen to
	changed int
	failed  []reencryptFailure // in order of endpoint
}

type reencryptFailure struct {
	workspaceID, endpointID int64
	err                     error
}

// batch sees to the next endpoints, and reports whether there may be more.
func (r *reencryption) batch(ctx context.Context) (more bool, err error) {
	found, err := r.store.Secrets(ctx, store.SecretsFilter{After: r.after, Limit: reencryptBatch})
	if err != nil || len(found) == 0 {
		return false, err
	}
	var anew []store.EndpointSecrets
	for _, e := range found {
		changed, err := r.keys.renew(&e)
		if err != nil {
			r.failed = append(r.failed, reencryptFailure{e.WorkspaceID, e.EndpointID, err})
		}
		if changed {
			anew = append(anew, e)
		}
	}
	r.after = found[len(found)-1].EndpointID
	if len(anew) == 0 {
		return true, nil
	}
	stale, err := r.store.Reseal(ctx, anew)
	if err != nil {
		return false, err
	}
	r.changed += len(anew) - len(stale)
	for _, id := range stale {
		r.backTo(id)
	}
	return true, nil
}

// backTo makes an endpoint the next to be seen to, again: it was rotated, say, or
// deleted, while we were at it.
func (r *reencryption) backTo(id int64) {
	r.after = min(r.after, id-1)
	for n := len(r.failed); n > 0 && r.failed[n-1].endpointID > r.after; n-- {
		r.failed = r.failed[:n-1]
	}
}

// failures logs what could not be re-encrypted and returns it as an error.
func (r *reencryption) failures() error {
	var errs []error
	for i, f := range r.failed {
		r.config.Logger.Error("webhook: a secret was not re-encrypted",
			"endpoint_id", f.endpointID, "workspace_id", f.workspaceID, "error", f.err)
		if i < reencryptReports {
			errs = append(errs, endpointError(f.endpointID, f.err))
		}
	}
	if n := len(r.failed) - len(errs); n > 0 {
		errs = append(errs, fmt.Errorf("webhook: and %d more endpoints", n))
	}
	return errors.Join(errs...)
}

// renew puts an endpoint's secrets under the current key, and reports whether
// that changed any. What does not decrypt stays as it is, and is the error.
func (k keyring) renew(e *store.EndpointSecrets) (changed bool, err error) {
	for _, s := range []struct {
		*store.Sealed
		what, name string
	}{
		{&e.Secrets.Current, sealSecret, ""},
		{&e.Secrets.Previous, sealSecret, "previous secret: "},
		{&e.Secrets.Credentials, sealCredentials, ""},
	} {
		if s.IsZero() {
			continue
		}
		plain, failed := k.unseal(*s.Sealed, s.what, e.WorkspaceID, e.EndpointID)
		switch {
		case failed != nil && err != nil:
			err = fmt.Errorf("%w; %s%w", err, s.name, failed)
		case failed != nil:
			err = fmt.Errorf("%s%w", s.name, failed)
		case s.KeyID != k.current:
			*s.Sealed = k.seal(plain, s.what, e.WorkspaceID, e.EndpointID)
			changed = true
		}
	}
	return changed, err
}
