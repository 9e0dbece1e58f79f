package store

import "time"

// Health is how an endpoint has been answering. The zero value is healthy.
type Health struct {
	// Failures counts failed attempts in a row.
	Failures int `json:"failures"`
	// FailedAt is when the last of them was recorded.
	FailedAt time.Time `json:"failed_at,omitzero"`
	// DegradedUntil is the end (excluded) of a time in which deliveries
	// published to the endpoint get a reduced budget.
	DegradedUntil time.Time `json:"degraded_until,omitzero"`
}

// Degraded reports whether the endpoint is degraded at an instant.
func (h Health) Degraded(at time.Time) bool { return at.Before(h.DegradedUntil) }

// HealthPolicy says what failures in a row lead to. A threshold that is not
// positive is never reached.
type HealthPolicy struct {
	DegradeAfter int
	DegradeFor   time.Duration
	PauseAfter   int
	PauseReason  string
}

// HealthChange reports that an endpoint's health reached a threshold or came
// back from one. Stores set EndpointID, WorkspaceID and Revision.
type HealthChange struct {
	EndpointID  int64
	WorkspaceID int64
	Degraded    bool // it is degraded from now on
	Paused      bool // it was paused
	Recovered   bool // it answered again
	Health      Health
	Revision    int64 // of the endpoint; a pause raises it
}

// Next returns the health after one attempt, and what to report. A failure
// counts only if its attempt started after the last counted failure was
// recorded, so that parallel attempts into one outage count once. If nothing
// changed it returns h. Only a change with one of its three flags set is
// reported. Stores call it for each outcome in order; where the change says Paused
// they set the endpoint inactive with p.PauseReason and give it a new Revision.
//
// The instants it returns are as stores keep them, however fine those it is given
// are, and the policy.
func (h Health) Next(p HealthPolicy, effect HealthEffect, startedAt, now time.Time) (Health, HealthChange) {
	startedAt, now = cut(startedAt), cut(now)
	var change HealthChange
	switch effect {
	case HealthSuccess:
		if h == (Health{}) {
			return h, change
		}
		change.Recovered = p.DegradeAfter > 0 && h.Failures >= p.DegradeAfter
		h = Health{}
	case HealthFailure:
		if h.Failures > 0 && !startedAt.After(h.FailedAt) {
			return h, change
		}
		h.Failures++
		h.FailedAt = now
		if p.DegradeAfter > 0 && h.Failures == p.DegradeAfter {
			h.DegradedUntil = cut(now.Add(p.DegradeFor))
			change.Degraded = true
		}
		change.Paused = p.PauseAfter > 0 && h.Failures == p.PauseAfter
	}
	change.Health = h
	return h, change
}

// cut returns an instant as stores keep it.
func cut(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
