package webhook

import (
	"fmt"
	"time"

	"github.com/elido-app/webhook/store"
)

// HealthPolicy says what failed attempts in a row to one endpoint lead to,
// whatever deliveries they were for. The zero value is nothing: a failing
// endpoint stays active, and its health is not kept.
//
// A failure counts only if its attempt started after the one counted last was
// recorded, so that parallel attempts into one outage are one failure. Refused
// addresses and interruptions do not count. A success, and resuming, begin anew.
type HealthPolicy struct {
	// DegradeAfter is how many failures degrade an endpoint. Zero: never.
	DegradeAfter int
	// DegradeFor is how long it stays degraded without a success. Defaults to 24
	// hours.
	DegradeFor time.Duration
	// DegradedAttempts is the budget of a delivery that is published to a
	// degraded endpoint, where that is less than the usual. Defaults to 3.
	DegradedAttempts int
	// PauseAfter is how many failures pause an endpoint; Endpoint.PauseReason
	// says so. Zero: never.
	PauseAfter int
}

func (p HealthPolicy) withDefaults() (HealthPolicy, error) {
	if p.DegradeFor == 0 {
		p.DegradeFor = 24 * time.Hour
	}
	if p.DegradedAttempts == 0 {
		p.DegradedAttempts = 3
	}
	switch {
	case p.DegradeAfter < 0:
		return p, &InvalidError{Field: "Health.DegradeAfter", Rule: "must not be negative"}
	case p.PauseAfter < 0:
		return p, &InvalidError{Field: "Health.PauseAfter", Rule: "must not be negative"}
	case p.DegradeFor < time.Second || p.DegradeFor > delayMost: // a bare number is nanoseconds
		return p, &InvalidError{Field: "Health.DegradeFor", Rule: "must be between 1 second and 30 days"}
	case p.DegradedAttempts < 1 || p.DegradedAttempts > delaysMost+1:
		return p, &InvalidError{Field: "Health.DegradedAttempts", Rule: fmt.Sprintf("must be between 1 and %d", delaysMost+1)}
	}
	return p, nil
}

// policy is what stores go by; nil if no health is kept.
func (p HealthPolicy) policy() *store.HealthPolicy {
	if p.DegradeAfter == 0 && p.PauseAfter == 0 {
		return nil
	}
	return &store.HealthPolicy{
		DegradeAfter: p.DegradeAfter,
		DegradeFor:   p.DegradeFor,
		PauseAfter:   p.PauseAfter,
		PauseReason:  p.pauseReason(),
	}
}

func (p HealthPolicy) pauseReason() string {
	return fmt.Sprintf("paused after %d failed attempts in a row", p.PauseAfter)
}

// degradedBudget is how many attempts a delivery to a degraded endpoint has;
// zero where that makes no difference.
func (p HealthPolicy) degradedBudget(budget int) int {
	if p.DegradeAfter == 0 || p.DegradedAttempts >= budget {
		return 0
	}
	return p.DegradedAttempts
}
