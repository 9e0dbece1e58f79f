package verify

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/elido-app/webhook/internal/sig"
)

// The defaults of Once.
const (
	DefaultTTL   = 14 * 24 * time.Hour
	DefaultLease = time.Minute
)

// Once drops duplicates: a delivery that was handled is acknowledged without
// being handled again. Delivery is at least once, so a lost answer, a sender's
// restart and a manual retry all bring a delivery back under the same id. A
// manual retry, too, is therefore absorbed for as long as the id is
// remembered, unless [Once.Forget] is called first.
//
// An id is remembered when the handler has returned nil, never before. If the
// process dies between the two, or Seen fails, the delivery is handled again:
// where that hurts, remember it in the transaction that does the work, with
// [Once.First].
//
// The delivery id of an Elido signature is a header that nothing signs, so
// somebody who recorded a request could send it again under a fresh id for as
// long as its timestamp is within the tolerance. Once therefore also remembers
// which id a signature first came with, and refuses it under another with
// [ErrReplayed]. Two deliveries that do share body, secret and second of
// signing (the same content published twice in a second, or two endpoints with
// one secret) look the same: the second is refused, and comes when the sender
// repeats it, freshly signed, by default 5 minutes later. Where endpoints share
// a secret, or the sender does not repeat, set AllowReplays.
type Once struct {
	// Seen remembers. Required.
	Seen Seen

	// TTL is how long a handled delivery is remembered. Defaults to 14 days.
	TTL time.Duration

	// Lease is how long a delivery counts as in progress when its handler does
	// not return, because its process died. It must be longer than handlers
	// take. Defaults to 1 minute.
	Lease time.Duration

	// AllowReplays trusts the delivery id and remembers no signatures.
	AllowReplays bool
}

// Seen is a set of keys, each held by somebody for some time, and then free
// again. Keys and holders are printable ASCII, keys of at most 300 bytes.
// Methods must be atomic for each key and safe for concurrent use.
type Seen interface {
	// Hold gives a free key to holder for d and returns who has it now:
	// holder, also if it had the key before, or whoever else does. Where that
	// cannot be told any more, "" will do.
	Hold(ctx context.Context, key, holder string, d time.Duration) (string, error)

	// Set gives key to holder for d, whoever has it.
	Set(ctx context.Context, key, holder string, d time.Duration) error

	// Free ends holder's hold on key. If somebody else has it, or nobody, it
	// does nothing.
	Free(ctx context.Context, key, holder string) error
}

// handled holds the keys of deliveries that are done with. No token of Handler
// looks like it.
const handled = "handled"

// Handler returns next without the duplicates. A delivery that was handled
// gives nil, without a call of next; one that is being handled right now
// [ErrInProgress], so that it comes again in case this call fails; one without
// an id [ErrMissingHeader], since it cannot be told from others.
func (o Once) Handler(next HandlerFunc) HandlerFunc {
	if o.Seen == nil || next == nil {
		panic("verify: Once needs a Seen and a handler")
	}
	return func(ctx context.Context, ev Event) (err error) {
		if ev.DeliveryID == "" {
			return missing(sig.HeaderDelivery)
		}
		key, token := deliveryKey(ev), rand.Text()
		switch holder, err := o.Seen.Hold(ctx, key, token, o.lease()); {
		case err != nil:
			return err
		case holder == handled:
			return nil
		case holder != token:
			return ErrInProgress
		}
		// The sender may hang up meanwhile, and that ends ctx. What happened
		// is remembered all the same.
		done := false
		defer func() {
			if !done { // failed or panicked
				_ = o.afterwards(ctx, func(ctx context.Context) error {
					return o.Seen.Free(ctx, key, token)
				})
			}
		}()
		if err := o.bind(ctx, ev); err != nil {
			return err
		}
		if err := next(ctx, ev); err != nil {
			return err
		}
		done = true
		return o.afterwards(ctx, func(ctx context.Context) error {
			return o.Seen.Set(ctx, key, handled, o.ttl())
		})
	}
}

// First remembers ev at once and reports whether it was new. It is for handlers
// that work in a transaction of their own, with a Seen bound to it, so that
// the work and its memory are committed together:
//
//	first, err := verify.Once{Seen: seen.In(tx)}.First(ctx, ev)
//
// If first is false there is nothing to do, and nothing to commit.
func (o Once) First(ctx context.Context, ev Event) (first bool, err error) {
	if o.Seen == nil {
		return false, errNoSeen
	}
	if ev.DeliveryID == "" {
		return false, missing(sig.HeaderDelivery)
	}
	key, token := deliveryKey(ev), rand.Text()
	switch holder, err := o.Seen.Hold(ctx, key, token, o.ttl()); {
	case err != nil:
		return false, err
	case holder == handled:
		return false, nil
	case holder != token: // by a process that still uses Handler
		return false, ErrInProgress
	}
	if err := o.bind(ctx, ev); err != nil {
		return false, err
	}
	return true, o.Seen.Set(ctx, key, handled, o.ttl())
}

// Forget has a handled delivery handled again when it comes again, as by a
// manual retry. It does nothing to one that is in progress or unknown.
func (o Once) Forget(ctx context.Context, deliveryID string) error {
	if o.Seen == nil {
		return errNoSeen
	}
	return o.Seen.Free(ctx, deliveryKey(Event{DeliveryID: deliveryID}), handled)
}

// bind ties the signatures to the delivery id they came with. It is not undone
// when the handler fails: the repetition has signatures of its own.
func (o Once) bind(ctx context.Context, ev Event) error {
	if o.AllowReplays {
		return nil
	}
	for _, s := range ev.signatures {
		holder, err := o.Seen.Hold(ctx, "signature:"+s, ev.DeliveryID, ev.remember)
		if err != nil {
			return err
		}
		if holder != ev.DeliveryID {
			return ErrReplayed
		}
	}
	return nil
}

// afterwards runs what must be said even if ctx has ended, within 5 seconds.
func (o Once) afterwards(ctx context.Context, say func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return say(ctx)
}

func (o Once) ttl() time.Duration {
	if o.TTL == 0 {
		return DefaultTTL
	}
	return o.TTL
}

func (o Once) lease() time.Duration {
	if o.Lease == 0 {
		return DefaultLease
	}
	return o.Lease
}

func deliveryKey(ev Event) string { return "delivery:" + ev.DeliveryID }
