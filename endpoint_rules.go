package webhook

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/elido-app/webhook/internal/egress"
	"github.com/elido-app/webhook/store"
)

// checkEndpoint checks a new endpoint's settings and puts them into their stored
// form.
func (d *Dispatcher) checkEndpoint(e *Endpoint) error {
	if e.WorkspaceID <= 0 {
		return &InvalidError{Field: "workspace_id", Rule: "must be positive"}
	}
	switch e.Kind {
	case KindEvent, KindSIEM:
	case store.KindDiscord, store.KindTelegram, store.KindSentry:
		return &InvalidError{Field: "kind", Rule: fmt.Sprintf("%q is not supported by this version; use %q or %q", e.Kind, KindEvent, KindSIEM)}
	default:
		return &InvalidError{Field: "kind", Rule: fmt.Sprintf("is unknown; use %q or %q", KindEvent, KindSIEM)}
	}
	for _, check := range []func(*Endpoint) error{d.checkURL, d.checkEvents, checkDescription, checkHeaders, checkMaxInFlight, checkRateLimit} {
		if err := check(e); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) checkURL(e *Endpoint) (err error) {
	if e.URL, err = egress.CheckURL(e.URL, d.egressOptions()); err != nil {
		return invalid("url", err)
	}
	return nil
}

func (d *Dispatcher) checkEvents(e *Endpoint) (err error) {
	if e.Kind == KindSIEM {
		if len(e.Events) > 0 {
			return &InvalidError{Field: "events", Rule: "must be empty for kind siem, which gets every event of the workspace"}
		}
		return nil
	}
	if e.Events, err = d.config.Catalog.checkSubscription(e.Events); err != nil {
		return err
	}
	if len(e.Events) == 0 {
		return &InvalidError{Field: "events", Rule: "must name at least one event type, or the endpoint would never get anything"}
	}
	return nil
}

func checkDescription(e *Endpoint) error {
	switch {
	case len(e.Description) > descriptionMost:
		return &InvalidError{Field: "description", Rule: fmt.Sprintf("is %d bytes long, over the limit of %d", len(e.Description), descriptionMost)}
	case !utf8.ValidString(e.Description) || strings.ContainsRune(e.Description, 0):
		return &InvalidError{Field: "description", Rule: "must be valid UTF-8 without NUL"}
	}
	return nil
}

func checkHeaders(e *Endpoint) error {
	if err := egress.CheckHeaders(e.Headers); err != nil {
		return invalid("headers", err)
	}
	return nil
}

func checkMaxInFlight(e *Endpoint) error {
	if e.MaxInFlight < 0 || e.MaxInFlight > maxInFlightMost {
		return &InvalidError{Field: "max_in_flight", Rule: fmt.Sprintf("must be between 0 and %d", maxInFlightMost)}
	}
	return nil
}

func checkRateLimit(e *Endpoint) error {
	if r := e.RateLimit; r != 0 && !(r >= rateLeast && r <= rateMost) {
		return &InvalidError{Field: "rate_limit", Rule: fmt.Sprintf("must be 0, or between 1 a day (%.6f a second) and %d a second", rateLeast, rateMost)}
	}
	return nil
}

// The bounds of an endpoint's rate limit, in requests a second.
const (
	rateLeast = 1.0 / (24 * 60 * 60)
	rateMost  = 10_000
)

func (d *Dispatcher) egressOptions() egress.Options {
	return d.config.Egress.options(d.config.Workers)
}

// invalid is the error of a rule that another package checked.
func invalid(field string, err error) error { return &InvalidError{Field: field, Rule: err.Error()} }
