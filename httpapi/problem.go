package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/elido-app/webhook"
)

// Problem is an error as clients see it: a problem document (RFC 9457). A host may
// return one from Config.Authorize and from webhook.Config's AllowEndpoint, and it
// is answered as it is:
//
//	return &httpapi.Problem{Status: 402, Title: "Plan limit", Detail: "The plan has room for 3 endpoints."}
type Problem struct { //nolint:errname // the word of RFC 9457
	// Type is a URI that tells one kind of problem from another. Empty means that
	// Status says all.
	Type string `json:"type,omitempty"`
	// Title is the same for all problems of a type. Defaults to Status's text.
	Title string `json:"title"`
	// Status is the HTTP status: 400 to 599; anything else counts as 500.
	Status int `json:"status"`
	// Detail is for a person who wants to put it right.
	Detail string `json:"detail,omitempty"`
	// Errors are what is wrong with which field.
	Errors []FieldError `json:"errors,omitempty"`
	// Reference is in the log too.
	Reference string `json:"reference,omitempty"`
}

// FieldError says which rule a part of the request breaks.
type FieldError struct {
	// Field is a member of the body, such as "url", "events[2]" or "config.dsn", or
	// a parameter of the path or the query.
	Field string `json:"field"`
	// Detail is the rule.
	Detail string `json:"detail"`
	// Pointer leads to the field if it is in the body: a URI fragment that is a
	// JSON Pointer (RFC 6901, section 6).
	Pointer string `json:"pointer,omitempty"`
}

// Error returns title and detail.
func (p *Problem) Error() string { return strings.TrimSuffix("httpapi: "+p.Title+": "+p.Detail, ": ") }

// typeOf returns the URI of a problem: where it is explained.
func typeOf(name string) string {
	return "https://github.com/elido-app/webhook/blob/main/docs/api.md#" + name
}

// The problems that need nothing more said.
var (
	errCrossOrigin = &Problem{
		Type: typeOf("cross-origin"), Title: "Cross-origin request refused", Status: http.StatusForbidden,
		Detail: "A page of another origin may not change anything here.",
	}
	errNoSuchPath = &Problem{
		Type: typeOf("not-found"), Title: "Not found", Status: http.StatusNotFound,
		Detail: "There is no such path in this API.",
	}
	errNotFound = &Problem{
		Type: typeOf("not-found"), Title: "Not found", Status: http.StatusNotFound,
		Detail: "The workspace has nothing with this id. It may have been deleted.",
	}
	errSignedOut = &Problem{
		Type: typeOf("signed-out"), Title: "Not signed in", Status: http.StatusUnauthorized,
		Detail: "The request does not say, or not believably, who sends it.",
	}
	errPending = &Problem{
		Type: typeOf("delivery-pending"), Title: "Delivery still pending", Status: http.StatusConflict,
		Detail: "The delivery is pending: it is going to be attempted anyway. Only a delivered or failed one can be retried.",
	}
	errPaused = &Problem{
		Type: typeOf("endpoint-paused"), Title: "Endpoint paused", Status: http.StatusConflict,
		Detail: "The endpoint is paused. Resume it (is_active: true) to send it a test event.",
	}
	errRotated = &Problem{
		Type: typeOf("secret-rotated"), Title: "Secret rotated meanwhile", Status: http.StatusConflict,
		Detail: "The secret was rotated since, and nothing was changed by this request. Read the endpoint, and send its rotations as seen_rotations if it is to be rotated again.",
	}
	errUnsigned = &Problem{
		Type: typeOf("endpoint-unsigned"), Title: "Endpoint without a secret", Status: http.StatusConflict,
		Detail: "Endpoints of this kind are not signed, so there is no secret to rotate.",
	}
	errConflict = &Problem{
		Type: typeOf("conflict"), Title: "Conflict", Status: http.StatusConflict,
		Detail: "Somebody else changed this meanwhile. Nothing was changed by this request.",
	}
	errUnavailable = &Problem{
		Type: typeOf("unavailable"), Title: "Not available", Status: http.StatusServiceUnavailable,
		Detail: "The request was cut short. Whether it took effect is not known.",
	}
)

func problemForbidden(permission string) *Problem {
	return &Problem{
		Type: typeOf("forbidden"), Title: "Permission denied", Status: http.StatusForbidden,
		Detail: "This needs the permission " + permission + " in the workspace.",
	}
}

// problemMalformed is about a request that cannot be understood.
func problemMalformed(detail string, errs ...FieldError) *Problem {
	return &Problem{Type: typeOf("malformed"), Title: "Malformed request", Status: http.StatusBadRequest, Detail: detail, Errors: errs}
}

// problemParameters is about parameters of the path or the query.
func problemParameters(errs ...FieldError) *Problem {
	return problemMalformed("A parameter of the path or the query is not as it must be.", errs...)
}

// problemInvalid is about a body that was understood and breaks a rule.
func problemInvalid(errs ...FieldError) *Problem {
	return &Problem{
		Type: typeOf("invalid"), Title: "Invalid content", Status: http.StatusUnprocessableEntity,
		Detail: "What was sent breaks a rule. Nothing was changed.", Errors: errs,
	}
}

// inBody is the error of a member of the body, such as "events[2]", and leads
// there: "#/events/2".
func inBody(field, detail string) FieldError {
	e := FieldError{Field: field, Detail: detail}
	name, rest, _ := strings.Cut(field, ".")
	name, index, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	if !slices.Contains(members, name) { // something of the host's own
		return e
	}
	e.Pointer = "#"
	for _, token := range []string{name, index, rest} {
		if token != "" {
			e.Pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
		}
	}
	return e
}

// explain turns an error into what the client is told, and says whether the log
// must tell the rest.
func explain(err error) (p *Problem, explained bool) {
	defer func() {
		if recover() != nil { // in an Unwrap of the host's
			p, explained = errInternal, false
		}
	}()
	var problem *Problem
	var invalid *webhook.InvalidError
	switch {
	case errors.As(err, &problem) && problem != nil:
		return problem, true
	case errors.As(err, &invalid) && invalid != nil:
		return problemInvalid(inBody(invalid.Field, invalid.Rule)), true
	case errors.Is(err, webhook.ErrNotFound):
		return errNotFound, true
	case errors.Is(err, webhook.ErrPending):
		return errPending, true
	case errors.Is(err, webhook.ErrPaused):
		return errPaused, true
	case errors.Is(err, webhook.ErrConflict):
		return errConflict, true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, webhook.ErrOutcomeUnknown), errors.Is(err, webhook.ErrClosed):
		return errUnavailable, false
	}
	return errInternal, false
}

var errInternal = &Problem{
	Type: typeOf("internal"), Title: "Internal error", Status: http.StatusInternalServerError,
	Detail: "Something went wrong here, not with the request. Whether it took effect is not known.",
}

// fail answers with an error.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	problem, explained := explain(err)
	p := *problem
	if p.Status < 400 || p.Status > 599 {
		p.Status = http.StatusInternalServerError
	}
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	if !explained {
		p.Reference = rand.Text()
		level := slog.LevelError
		if r.Context().Err() != nil { // nobody waits for the answer
			level = slog.LevelDebug
		}
		a.log(r.Context(), level, "webhook: httpapi: a request failed",
			"reference", p.Reference, "method", r.Method, "pattern", r.Pattern, "status", p.Status, "error", fmt.Sprint(err))
	}
	body, err := json.Marshal(p)
	if err != nil { // of what is in it everything can be marshalled
		body = []byte("{}")
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", a.config.Challenge)
	}
	write(w, p.Status, "application/problem+json", append(body, '\n'))
}

// log writes a line, and contains a panic of the host's log handler.
func (a *api) log(ctx context.Context, level slog.Level, text string, attrs ...any) {
	defer func() { _ = recover() }() // there is nowhere left to report it
	a.config.Logger.Log(ctx, level, text, attrs...)
}
