// Package webhook publishes events to customers' endpoints: each event becomes
// one signed HTTP POST per endpoint that wants it, retried until it is answered
// with 2xx or its budget is used up, and kept in a log that a person can read
// and act on.
//
// A [Dispatcher] is all a program holds. It takes a store (package
// store_memory, store_sqlite, or any [store.Store]) and a [Config], whose zero
// value is the documented default:
//
//	st, err := sqlitestore.Open(ctx, "webhooks.db")
//	d, err := webhook.New(st, webhook.Config{})
//	endpoint, secret, err := d.CreateEndpoint(ctx, webhook.EndpointParams{
//		WorkspaceID: 42, URL: "https://example.com/hooks", Events: []string{"link.*"},
//	})
//	go d.Run(ctx) // blocks until ctx is cancelled
//	receipt, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: link})
//
// An endpoint of kind [KindDiscord], [KindTelegram] or [KindSentry] gets messages
// for people instead, through the same queue, retries and log.
//
// Delivery is at least once: what Publish confirmed is attempted until a
// receiver confirms it or the budget ends, through crashes and restarts, and may
// arrive more than once under the same delivery id. Receivers verify and
// de-duplicate with package verify.
package webhook

// Where to read on: an event and the catalog of event types in event.go and
// catalog.go, signing in signer.go, the Dispatcher in dispatcher.go, publishing in
// publish.go, the endpoint calls in endpoint.go, rotate.go and import.go, the log
// calls in delivery.go, when to retry in retry.go, one attempt in send.go, the
// kinds of endpoint that are no webhooks in channel.go. The scheduler is
// internal/queue.

import (
	"errors"

	"github.com/elido-app/webhook/internal/queue"
	"github.com/elido-app/webhook/store"
)

// The records a Dispatcher returns are the store's: their fields are in
// go doc github.com/elido-app/webhook/store.Delivery, and so on.
type (
	Endpoint = store.Endpoint
	Delivery = store.Delivery
	Attempt  = store.Attempt
	Receipt  = store.Receipt
	Health   = store.Health
	Kind     = store.Kind
	Status   = store.Status
	// Secret holds what must not be printed by accident; only its Reveal
	// method gives it away.
	Secret = store.Secret
)

// NewSecret wraps a string as a [Secret].
func NewSecret(s string) Secret { return store.NewSecret(s) }

// The kinds of endpoint a Dispatcher delivers to.
const (
	KindEvent    = store.KindEvent    // the subscribed event types, signed
	KindSIEM     = store.KindSIEM     // every event of the workspace, signed
	KindDiscord  = store.KindDiscord  // the subscribed event types, as messages in a Discord channel
	KindTelegram = store.KindTelegram // the same, in a Telegram chat
	KindSentry   = store.KindSentry   // the same, as events of a Sentry project
)

// The states of a delivery.
const (
	StatusPending   = store.StatusPending
	StatusDelivered = store.StatusDelivered
	StatusFailed    = store.StatusFailed
)

// The errors a caller branches on; test for them with errors.Is. Bad input is
// an [*InvalidError].
var (
	// ErrNotFound: no such endpoint or delivery in that workspace.
	ErrNotFound = store.ErrNotFound
	// ErrConflict: somebody else was quicker, or the id is taken. Nothing changed.
	ErrConflict = store.ErrConflict
	// ErrPending: the delivery is pending already, so it cannot be retried.
	ErrPending = store.ErrPending
	// ErrIdempotencyConflict: the idempotency key was used for other content.
	ErrIdempotencyConflict = store.ErrIdempotencyConflict
	// ErrOutcomeUnknown: the call's context ended during the commit. Publishing
	// again with the same idempotency key is safe.
	ErrOutcomeUnknown = store.ErrOutcomeUnknown
	// ErrClosed: the store was closed.
	ErrClosed = store.ErrClosed

	// ErrPaused: the endpoint is paused, so it gets no test event.
	ErrPaused = errors.New("the endpoint is paused")
	// ErrRunning: the Dispatcher is running already.
	ErrRunning = errors.New("webhook: the dispatcher is already running")
	// ErrClock: this host's clock differs from that of the store, which it shares
	// with others, by more than a twentieth of Config.Lease.
	ErrClock = queue.ErrClock
)
