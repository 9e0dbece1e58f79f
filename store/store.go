// Package store defines where a webhook Dispatcher keeps its endpoints, its
// queue and its delivery log: the [Store] interface, the records that cross it
// and the errors it returns.
//
// Three rules hold for every method and are not repeated there.
//
// Atomic. Each method is one unit: it takes effect as a whole or, when it
// returns an error, not at all. The one exception is an error that wraps
// [ErrOutcomeUnknown].
//
// Time. A store never reads a clock. Every instant is an argument; stores keep
// it as UTC in whole milliseconds and return it so, and durations in whole
// microseconds. What is finer is cut, not rounded, also where an instant is only
// compared. What ends at an instant is over at that instant.
//
// Ownership. Slices and maps are copied in and out: a caller may change what it
// passed, or what it was given, without the store noticing. Leases that one call
// returns may share the [Target] of their endpoint and the payload of their
// event, which nobody changes. After a call that returned [ErrOutcomeUnknown] the
// store may still be reading what it was passed, so that must be left alone.
//
// All methods are safe for concurrent use by any number of goroutines and, for
// a store that lives outside the process, of processes.
//
// Package storetest holds this contract as tests; a store that passes them may
// be given to a Dispatcher.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors a caller branches on. Stores return them wrapped or bare.
var (
	// ErrNotFound: no such endpoint or delivery in that workspace. What
	// belongs to another workspace is not found, and so is a deleted endpoint
	// with all that was sent to it.
	ErrNotFound = errors.New("not found")

	// ErrConflict: the record changed since the caller read it, or the id to
	// import is taken. Nothing was changed.
	ErrConflict = errors.New("conflict: changed by somebody else meanwhile")

	// ErrPending: the delivery is still pending, so it cannot be retried.
	ErrPending = errors.New("the delivery is still pending")

	// ErrIdempotencyConflict: the idempotency key was used for other content.
	ErrIdempotencyConflict = errors.New("the idempotency key was used before with different content")

	// ErrOutcomeUnknown: the call was given up while its commit was under way,
	// so it may or may not have taken effect. Publishing again with the same
	// idempotency key is safe.
	ErrOutcomeUnknown = errors.New("outcome unknown: the commit was under way when the call ended")

	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// EventError says which event of a publish was refused. Err is the reason.
type EventError struct {
	Index int // in PublishParams.Events, from 0
	Err   error
}

func (e *EventError) Error() string { return fmt.Sprintf("event %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *EventError) Unwrap() error { return e.Err }

// A Publisher stores events and their deliveries. A Store is one; so is a
// store bound to a transaction of the host's.
type Publisher interface {
	// Publish stores events and one delivery for each endpoint that an event
	// selects: all of it or nothing.
	//
	// An event selects the endpoints of its workspace that are active, not
	// deleted, and are of kind siem or have one of the event's Matches in
	// their Events. With EndpointID set it selects that endpoint alone, if it
	// is active, whatever it subscribes to. An event that selects nobody
	// leaves nothing behind but its idempotency key.
	//
	// Deliveries are due at Now. One with an ordering key, while an earlier
	// delivery of that key to that endpoint is pending, is blocked: it becomes
	// due, at its own due time, when all earlier ones are delivered or failed.
	// "Earlier" is the order of delivery ids, which is the order in which
	// publishes completed and, within one, of Events. Ids are positive and
	// never used twice.
	//
	// An event whose idempotency key the workspace used before, here or
	// earlier in Events, stores nothing: its receipt is the first one's, with
	// Repeat set. If the digests differ, Publish returns an *[EventError] with
	// ErrIdempotencyConflict. Keys are remembered until Maintain forgets them,
	// whatever becomes of the event.
	//
	// With Handoff, up to its Room of the new deliveries that are due and not
	// behind other due work of their endpoint are leased at once and returned
	// as leases.
	Publish(ctx context.Context, p PublishParams) (PublishResult, error)
}

// Store is where a Dispatcher keeps everything. See the package comment for
// what all methods have in common.
type Store interface {
	Publisher

	// CreateEndpoint stores a new endpoint and returns it with its ID, and
	// with Revision set. IDs are positive and never used twice, not even after
	// a delete. It calls p.Seal with the new id, and keeps what that returns; an error from Seal is returned as it is and nothing is stored.
	// An ID of 0 asks for a new one; another asks for that very id, which
	// fails with ErrConflict if it is or was in use.
	CreateEndpoint(ctx context.Context, p CreateEndpointParams) (Endpoint, error)

	// Endpoint returns one endpoint, or ErrNotFound.
	Endpoint(ctx context.Context, workspaceID, id int64) (Endpoint, error)

	// Endpoints returns endpoints of a workspace with ids above After, in
	// order of id, at most Limit. None is not an error.
	Endpoints(ctx context.Context, f EndpointFilter) ([]Endpoint, error)

	// UpdateEndpoint replaces the settings of an endpoint (URL, Events,
	// Active, PauseReason, Description, Config, Headers, MaxInFlight,
	// RateLimit, UpdatedAt) and, unless nil, its credentials. It keeps the
	// rest. If the stored Revision is not e.Revision it returns ErrConflict.
	// Where Active goes from false to true, Health becomes zero. It returns
	// the endpoint with its new, higher Revision.
	UpdateEndpoint(ctx context.Context, e Endpoint, credentials *Sealed) (Endpoint, error)

	// RotateSecret makes p.Secret current. With PreviousUntil set the secret
	// that was current becomes previous until then; the one that was previous
	// is gone. With PreviousUntil zero both old secrets are gone. If the
	// endpoint has not been rotated exactly p.Seen times it returns
	// ErrConflict. Rotations counts up by one, and Revision grows.
	RotateSecret(ctx context.Context, p RotateParams) (Endpoint, error)

	// Secrets returns the secret material of endpoints, of all workspaces, with
	// ids above After, in order of id, at most Limit. None is not an error.
	Secrets(ctx context.Context, f SecretsFilter) ([]EndpointSecrets, error)

	// Reseal replaces secret material by the same, sealed in another way: Current,
	// Previous and Credentials become what the entry says, and Revision grows. All
	// else stays, PreviousUntil and UpdatedAt too. An entry takes effect only if
	// the stored Revision is the entry's; otherwise, or if the endpoint is not
	// found, its EndpointID is in stale and nothing of it is changed. So what a
	// rotation made current meanwhile is never overwritten.
	Reseal(ctx context.Context, secrets []EndpointSecrets) (stale []int64, err error)

	// DeleteEndpoint removes an endpoint: from then on it, its deliveries and
	// attempts are not found, nothing of it is claimed, and what is recorded
	// for it is stale. Its secrets are erased at once; its rows go when
	// Maintain takes them. A second delete returns ErrNotFound.
	DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error

	// Claim leases due deliveries to the caller: pending ones, due at or
	// before p.Now, not blocked, not leased, of active endpoints. A lease that
	// ran out (Until at or before Now) is no lease: its delivery counts one
	// interruption more and is due again, RetakeDelay of that count after the
	// lease ended.
	//
	// The endpoint with the earliest due delivery comes first; the order between
	// endpoints beyond that is the store's. Within one, deliveries come in order
	// of due time, then of id. p.Room bounds how many are given. No endpoint's
	// backlog should cost the claim anything once its room is taken, nor should a
	// paused endpoint or one with only future work.
	//
	// No delivery is under two leases at any instant, however many callers
	// claim at once. A Target may carry a previous secret whose overlap is over,
	// until Maintain erases it: the caller looks at PreviousUntil.
	Claim(ctx context.Context, p ClaimParams) (ClaimResult, error)

	// Record writes outcomes of attempts. Each takes effect only if its Token
	// still holds the delivery's lease (run out or not, as long as nobody took
	// the delivery since); otherwise its DeliveryID is in Stale and nothing of
	// it is written. What is written, together: the attempt row; the delivery's
	// status, counts and last result, CompletedAt p.Now unless it is pending,
	// interruptions back to zero, the lease gone; the endpoint's health if
	// p.Health is set and it changes; and, when the delivery is no longer
	// pending, the next of its ordering key is unblocked.
	//
	// With p.Claim set it then claims, as Claim would, in the same unit.
	Record(ctx context.Context, p RecordParams) (RecordResult, error)

	// Renew makes leases last until the given instant, also those that ran out
	// if nobody took the delivery, or leased another of its ordering key, since.
	// Those that the token no longer holds are returned as lost, and not changed.
	Renew(ctx context.Context, leases []LeaseRef, until time.Time) (lost []int64, err error)

	// Release gives leases back: the delivery is pending and unleased, no
	// attempt is counted. Leases that the token no longer holds are skipped.
	Release(ctx context.Context, releases []Release) error

	// Probe says what a dispatcher with nothing to do needs to know, in one
	// read: when Claim could next return something, and which endpoints were
	// created or changed. It writes nothing.
	Probe(ctx context.Context, p ProbeParams) (ProbeResult, error)

	// Deliveries returns deliveries of a workspace, newest first: by CreatedAt
	// and, where equal, by ID, both descending. None is not an error; an
	// endpoint that is not found has none.
	Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error)

	// Delivery returns one delivery, or ErrNotFound.
	Delivery(ctx context.Context, workspaceID, id int64) (Delivery, error)

	// Attempts returns the attempts of one delivery in order of Number, or
	// ErrNotFound if the delivery is not found.
	Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]Attempt, error)

	// Retry re-queues one delivered or failed delivery under its own id with a
	// fresh budget: pending, due at p.Now, Attempts zero, CompletedAt zero. A
	// pending one returns ErrPending, so of many callers at once one succeeds.
	// With an ordering key it goes before the later pending ones of its key:
	// one of them that is due but not leased waits again; one that is leased
	// goes first, and if it comes back pending it waits as well.
	Retry(ctx context.Context, p RetryParams) (Delivery, error)

	// Recover re-queues, as Retry would, up to p.Limit deliveries of one
	// endpoint that failed (CompletedAt) at or after p.Since and not after p.Now,
	// oldest first. It returns how many; call it again until that is less than
	// Limit. An endpoint that is not found is ErrNotFound.
	Recover(ctx context.Context, p RecoverParams) (int, error)

	// Maintain does housekeeping, at most about p.Limit rows a call: it erases
	// previous secrets whose overlap has ended (which raises the endpoint's
	// Revision), removes the rows of deleted
	// endpoints, prunes the log and forgets idempotency keys. A pending
	// delivery of a live endpoint is never removed. With nothing to do it
	// writes nothing.
	Maintain(ctx context.Context, p MaintainParams) (MaintainResult, error)

	// Close ends what the store started. Calls after it, another Close
	// included, return ErrClosed.
	Close() error
}
