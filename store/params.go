package store

import "time"

// NewEvent is an event to publish. The dispatcher has checked and scrubbed it.
type NewEvent struct {
	ID          string // "evt_…", unique
	WorkspaceID int64
	Type        string
	// Matches are the subscription entries that select this event: its type
	// and the prefixes of it.
	Matches     []string
	OccurredAt  time.Time
	OrderingKey string // empty: none
	Payload     []byte // the envelope
	// Trace names the publisher's trace, in the host's own notation; it comes
	// back with each lease. Empty: none.
	Trace string

	IdempotencyKey string // empty: none
	Digest         [32]byte

	// EndpointID, unless zero, is the one endpoint to deliver to.
	EndpointID int64

	// Budget is how many attempts a delivery has, DegradedBudget (unless zero)
	// how many one has whose endpoint is degraded at Now.
	Budget         int
	DegradedBudget int
}

// PublishParams is one publish.
type PublishParams struct {
	Events []NewEvent
	Now    time.Time
	// Handoff, unless nil, leases new deliveries to the caller.
	Handoff *LeaseParams
}

// Receipt says what a publish stored for one event.
type Receipt struct {
	EventID     string  `json:"event_id"`
	DeliveryIDs []int64 `json:"delivery_ids"`
	Repeat      bool    `json:"repeat,omitempty"` // the idempotency key was seen before
}

// PublishResult is what a publish stored.
type PublishResult struct {
	Receipts []Receipt // one for each event, in their order
	Leases   []Lease   // handed off, in order of delivery id
	// Queued says that deliveries were stored which are due and not leased.
	Queued bool
}

// LeaseParams is what leases are given under.
type LeaseParams struct {
	// Token is unique to one call, and positive; all leases of the call carry it.
	Token int64
	Until time.Time
	Room  Room
}

// Room bounds how many leases a call gives.
type Room struct {
	// Limit is the most in all; not positive means none.
	Limit int
	// PerEndpoint is the most for an endpoint that Endpoints does not name, or its
	// own MaxInFlight where it has one that is less.
	PerEndpoint int
	// Endpoints names the room left for particular endpoints, zero for none.
	Endpoints map[int64]int
}

// For returns the room of one endpoint.
func (r Room) For(endpointID int64, maxInFlight int) int {
	if n, ok := r.Endpoints[endpointID]; ok {
		return n
	}
	if maxInFlight > 0 {
		return min(maxInFlight, r.PerEndpoint)
	}
	return r.PerEndpoint
}

// CreateEndpointParams is an endpoint to store. The store sets ID (if zero)
// and Revision, and keeps all other fields as they are.
type CreateEndpointParams struct {
	Endpoint Endpoint
	// Seal returns the secret material for the endpoint with this id. It is
	// fast, does not call the store, and may be called again if the store has
	// to begin anew.
	// Its Secrets.PreviousUntil is the Endpoint's.
	Seal func(id int64) (Secrets, error)
}

// EndpointFilter selects endpoints.
type EndpointFilter struct {
	WorkspaceID int64
	After       int64 // only ids above
	Limit       int   // not positive: no limit
}

// RotateParams is one rotation.
type RotateParams struct {
	WorkspaceID int64
	EndpointID  int64
	Seen        int // rotations the caller has seen
	Secret      Sealed
	// PreviousUntil ends the overlap; zero: no overlap.
	PreviousUntil time.Time
	At            time.Time // becomes UpdatedAt
}

// SecretsFilter selects endpoints to read the secret material of.
type SecretsFilter struct {
	After int64 // only ids above
	Limit int   // not positive: no limit
}

// ClaimParams is one claim.
type ClaimParams struct {
	Now time.Time
	LeaseParams
}

// ClaimResult is what a claim gave.
type ClaimResult struct {
	Leases []Lease
	// NextDue is a lower bound for when another claim could give something: the
	// earliest due time or end of lease, not counting endpoints whose room was
	// taken, and paused ones. At or before Now if only Limit stood in the way;
	// zero if nothing is left. Whether the leases of this very call count is the
	// store's choice.
	NextDue time.Time
}

// HealthEffect says what an attempt means for its endpoint's health.
type HealthEffect int

// The effects. The zero value leaves health alone.
const (
	HealthNone HealthEffect = iota
	HealthSuccess
	HealthFailure
)

// Outcome is the result of one attempt.
type Outcome struct {
	DeliveryID int64
	EndpointID int64 // as in the lease's Target
	Token      int64
	// Status is what the delivery becomes: pending (due again at
	// NextAttemptAt), delivered or failed.
	Status        Status
	NextAttemptAt time.Time
	Attempt       Attempt // DeliveryID and Number are the store's to set
	Message       []byte  // the body sent, where that was not the payload; nil: none
	Health        HealthEffect
}

// RecordParams is a batch of outcomes.
type RecordParams struct {
	Now      time.Time
	Outcomes []Outcome
	Health   *HealthPolicy // nil: health is not kept
	Claim    *ClaimParams  // nil: no claim
}

// RecordResult is what became of a batch of outcomes.
type RecordResult struct {
	Stale   []int64 // DeliveryIDs whose lease was lost
	Changes []HealthChange
	// Queued says that deliveries of active endpoints became due which are not
	// leased. What is due later, or was before, does not count.
	Queued bool
	Claim  ClaimResult // if asked for
}

// LeaseRef names a lease.
type LeaseRef struct {
	DeliveryID int64
	Token      int64
}

// Release is one lease to give back.
type Release struct {
	LeaseRef
	// DueAt, unless zero, is when the delivery is due again; otherwise as before.
	DueAt time.Time
	// Error, unless nil, becomes the delivery's last error.
	Error []byte
	// Interrupted counts one interruption.
	Interrupted bool
}

// ProbeParams asks for what changed since a revision; with Since zero, for no
// changes, only where to begin.
type ProbeParams struct {
	Since int64
	// Count asks how many deliveries are due at Now, and is where to stop
	// counting. Not positive: do not count.
	Count int
	Now   time.Time
}

// ProbeResult is what a probe saw.
type ProbeResult struct {
	// NextDue is the earliest due time of what is not blocked, or end of a lease,
	// at an active endpoint: before it a claim gives nothing, with room for
	// everything. (After the end of a lease there may be RetakeDelay to wait for.)
	// Zero if there is none.
	NextDue time.Time
	// Changed are the endpoints created, changed or deleted after Since, in no
	// particular order.
	Changed []EndpointChange
	// Revision is to be the next call's Since; positive.
	Revision int64
	// Due is how many deliveries are due at active endpoints and not leased, no
	// more than was asked for. Whether a lease that ran out counts is the
	// store's choice.
	Due int
}

// EndpointChange tells that an endpoint has a new revision.
type EndpointChange struct {
	EndpointID int64
	Revision   int64
}

// DeliveryFilter selects deliveries of one workspace. Zero fields do not filter;
// a Limit that is not positive is none.
type DeliveryFilter struct {
	WorkspaceID int64
	EndpointID  int64
	EventID     string
	Status      Status
	EventType   string
	Since       time.Time // CreatedAt at or after
	Until       time.Time // CreatedAt before
	Before      Position  // only what comes after this position in the list
	Limit       int
	Offset      int
}

// Position is the place of a delivery in the log.
type Position struct {
	CreatedAt  time.Time
	DeliveryID int64 // zero: the beginning
}

// RetryParams is one manual retry.
type RetryParams struct {
	WorkspaceID int64
	DeliveryID  int64
	Now         time.Time
	Budget      int
}

// RecoverParams is one batch of a recovery.
type RecoverParams struct {
	WorkspaceID int64
	EndpointID  int64
	Since       time.Time
	Now         time.Time
	Budget      int
	Limit       int // positive
}

// MaintainParams is one round of housekeeping. Zero instants and counts leave
// that part out.
type MaintainParams struct {
	Now time.Time
	// PruneBefore removes delivered and failed deliveries completed before it.
	PruneBefore time.Time
	// KeepPerEndpoint removes the oldest delivered and failed deliveries (in the
	// log's order) beyond this many of one endpoint.
	KeepPerEndpoint int
	// ForgetKeysBefore forgets idempotency keys first used before it.
	ForgetKeysBefore time.Time
	Limit            int // positive
}

// MaintainResult is what was done.
type MaintainResult struct {
	Erased int  // previous secrets
	Pruned int  // deliveries, by age or count
	Purged int  // deliveries of deleted endpoints
	Keys   int  // idempotency keys
	More   bool // call again: Limit stood in the way
	// NextEnd is the end of the overlap that ends next; zero without one.
	NextEnd time.Time
}

// RetakeDelay returns how long a delivery waits that has been interrupted
// count times since its last recorded attempt: not at all for the first four,
// then one minute, doubling up to an hour, so that a payload which kills the
// process cannot keep killing it.
func RetakeDelay(count int) time.Duration {
	if count < 5 {
		return 0
	}
	return min(time.Minute<<min(count-5, 10), time.Hour)
}
