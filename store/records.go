package store

import "time"

// Kind says how an endpoint is spoken to. It cannot be changed.
type Kind string

// The kinds of endpoint.
const (
	KindEvent    Kind = "event"    // signed; the subscribed types
	KindSIEM     Kind = "siem"     // signed; every event of the workspace
	KindDiscord  Kind = "discord"  // a Discord message
	KindTelegram Kind = "telegram" // a Telegram message
	KindSentry   Kind = "sentry"   // a Sentry event
)

// Signed reports whether requests to endpoints of this kind carry signatures.
func (k Kind) Signed() bool { return k == KindEvent || k == KindSIEM }

// Status is the state of a delivery. One that is being attempted right now is
// pending.
type Status string

// The states of a delivery.
const (
	StatusPending   Status = "pending"
	StatusDelivered Status = "delivered"
	StatusFailed    Status = "failed"
)

// Endpoint is where one customer wants events sent. It holds no secret
// material.
type Endpoint struct {
	ID          int64  `json:"id"`
	WorkspaceID int64  `json:"workspace_id"`
	Kind        Kind   `json:"kind"`
	URL         string `json:"url"`

	// Events are the subscribed event types and prefixes such as "link.*".
	Events []string `json:"events"`

	// Active is false while the endpoint is paused.
	Active bool `json:"is_active"`
	// PauseReason says why an endpoint was paused, if that was not by hand.
	PauseReason string `json:"pause_reason,omitempty"`

	Description string            `json:"description"`
	Config      map[string]string `json:"config,omitempty"`  // without credentials
	Headers     map[string]string `json:"headers,omitempty"` // extra request headers

	// MaxInFlight bounds the open requests of one process to this endpoint;
	// zero means the dispatcher's default.
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// RateLimit is in requests a second and process; zero means no limit.
	RateLimit float64 `json:"rate_limit,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`

	// Imported endpoints came from another system with a secret of their own.
	Imported bool `json:"imported,omitempty"`
	// Rotations counts how often the secret was replaced.
	Rotations int `json:"rotations"`
	// PreviousUntil is the end (excluded) of the overlap in which the secret
	// before this one also signs; zero without one.
	PreviousUntil time.Time `json:"previous_until,omitzero"`

	Health Health `json:"health"`

	// Revision grows, over all endpoints of a store, with each change of an
	// endpoint other than of its health.
	Revision int64 `json:"-"`
}

// Delivery is one event for one endpoint, as the log shows it.
type Delivery struct {
	ID          int64  `json:"id"`
	WorkspaceID int64  `json:"workspace_id"`
	EndpointID  int64  `json:"endpoint_id"`
	EventID     string `json:"event_id"`
	EventType   string `json:"event_type"`
	OrderingKey string `json:"ordering_key,omitempty"`
	Status      Status `json:"status"`

	// Attempts counts the recorded attempts of the current budget, Budget is
	// how many there may be. TotalAttempts counts all, past manual retries.
	Attempts      int `json:"attempts"`
	Budget        int `json:"budget"`
	TotalAttempts int `json:"total_attempts"`
	// Interruptions counts leases that ran out since the last recorded attempt.
	Interruptions int `json:"interruptions,omitempty"`

	LastStatus  int           `json:"last_status,omitempty"` // HTTP status; 0: none
	LastLatency time.Duration `json:"last_latency,omitempty"`
	LastError   []byte        `json:"last_error,omitempty"`

	CreatedAt     time.Time `json:"created_at"`
	CompletedAt   time.Time `json:"completed_at,omitzero"`    // zero while pending
	NextAttemptAt time.Time `json:"next_attempt_at,omitzero"` // zero unless pending

	// Payload is the envelope as published.
	Payload []byte `json:"payload"`
	// Message is the body last sent, where that is not Payload (channel kinds).
	Message []byte `json:"message,omitempty"`
}

// Attempt is one HTTP request made for a delivery.
type Attempt struct {
	DeliveryID int64 `json:"delivery_id"`
	// Number counts the delivery's attempts from 1, on through manual retries.
	Number int `json:"number"`
	// StartedAt is when the attempt was signed.
	StartedAt time.Time     `json:"started_at"`
	Latency   time.Duration `json:"latency"` // to the answer's headers, or to the error
	Status    int           `json:"status"`  // HTTP status; 0: none
	Error     []byte        `json:"error,omitempty"`
	// Headers are those sent, without signatures.
	Headers map[string]string `json:"headers,omitempty"`
	// Response is the beginning of the answer's body, without what it repeats of
	// the request that is confidential. ResponseCut says that there was more, or
	// that it was cut off.
	Response    []byte `json:"response,omitempty"`
	ResponseCut bool   `json:"response_cut,omitempty"`
}

// Target is what a request to an endpoint needs, secret material included. It
// leaves a store only within a [Lease].
type Target struct {
	EndpointID  int64
	WorkspaceID int64
	Kind        Kind
	URL         string
	Config      map[string]string
	Headers     map[string]string
	MaxInFlight int
	RateLimit   float64
	Secrets     Secrets
	Revision    int64 // of the endpoint
}

// Secrets is the secret material of an endpoint.
type Secrets struct {
	Current       Sealed
	Previous      Sealed    // zero without an overlap
	PreviousUntil time.Time // end of the overlap, excluded
	Credentials   Sealed    // of channel kinds
}

// EndpointSecrets is the secret material of one endpoint as of a revision.
type EndpointSecrets struct {
	WorkspaceID int64
	EndpointID  int64
	Revision    int64
	Secrets     Secrets
}

// Sealed is a secret as it is stored: encrypted under the key KeyID names, or,
// where KeyID is empty, in the clear. The zero Sealed means there is none.
type Sealed struct {
	KeyID string
	Data  Secret
}

// IsZero reports whether there is nothing in it.
func (s Sealed) IsZero() bool { return s.Data.IsZero() }

// Equal reports whether both hold the same.
func (s Sealed) Equal(o Sealed) bool { return s.KeyID == o.KeyID && s.Data.Equal(o.Data) }

// Lease is one delivery handed to one dispatcher until an instant.
type Lease struct {
	DeliveryID  int64
	WorkspaceID int64
	Token       int64 // as given to the claim; fences what is recorded
	Until       time.Time

	EventID     string
	EventType   string
	OrderingKey string
	Trace       string
	Payload     []byte
	CreatedAt   time.Time
	DueAt       time.Time

	Attempts      int // recorded in the current budget
	Budget        int
	TotalAttempts int // recorded ever; the next has Number TotalAttempts+1
	Interruptions int

	Target *Target
}

// Ref names the lease.
func (l *Lease) Ref() LeaseRef { return LeaseRef{DeliveryID: l.DeliveryID, Token: l.Token} }
