package verify

import (
	"errors"
	"net/http"
)

// The reasons to refuse a request. Errors of this package wrap one of them and
// say more; none quotes what the request held, so all are safe to log and to
// send back.
var (
	// ErrNoSecret: New was given no secret, or the Verifier was not made by New.
	ErrNoSecret = errors.New("verify: no secret to verify with")

	// ErrMissingHeader: no header with a signature, or one without the
	// timestamp or id that belongs to it.
	ErrMissingHeader = errors.New("verify: missing header")

	// ErrMalformedHeader: a header that is there twice, is too long, does not
	// follow its grammar, or contradicts what is signed.
	ErrMalformedHeader = errors.New("verify: malformed header")

	// ErrStale: signed longer ago than the tolerance.
	ErrStale = errors.New("verify: stale timestamp")

	// ErrFuture: signed further ahead than the tolerance; one of the two
	// clocks is wrong.
	ErrFuture = errors.New("verify: timestamp in the future")

	// ErrSignature: none of the signatures was made with one of the secrets
	// over this body.
	ErrSignature = errors.New("verify: wrong signature")

	// ErrBodyTooLarge: the body is longer than MaxBody.
	ErrBodyTooLarge = errors.New("verify: body too large")

	// ErrEnvelope: signed as it should be, but not an event this package can
	// read.
	ErrEnvelope = errors.New("verify: not an event")

	// ErrInProgress: the same delivery is being handled right now. Answered
	// with an error, it comes again.
	ErrInProgress = errors.New("verify: the delivery is being handled already")

	// ErrReplayed: the signature came before, under another delivery id.
	ErrReplayed = errors.New("verify: signature seen under another delivery id")
)

// StatusCode gives the HTTP status that answers err, for those who call
// [Verifier.Request] in a handler of their own: 200 for nil, 400 for a missing
// or malformed header, a timestamp out of tolerance and an unreadable event,
// 401 for a wrong signature, 409 for a replay, 413 for a large body, 503 for a
// delivery in progress, and 500 for everything else.
func StatusCode(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, ErrMissingHeader), errors.Is(err, ErrMalformedHeader),
		errors.Is(err, ErrStale), errors.Is(err, ErrFuture),
		errors.Is(err, ErrEnvelope), errors.Is(err, errRead):
		return http.StatusBadRequest
	case errors.Is(err, ErrSignature):
		return http.StatusUnauthorized
	case errors.Is(err, ErrReplayed):
		return http.StatusConflict
	case errors.Is(err, ErrBodyTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrInProgress):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// errRead: the connection failed before the body was complete.
var errRead = errors.New("verify: cannot read the body")

// refusal is one of the reasons, with the header or member it is about. Its
// text is put together only when somebody asks for it.
type refusal struct {
	reason error
	about  string
	detail string
}

func (r *refusal) Error() string {
	s := r.reason.Error()
	if r.about != "" {
		s += ": " + r.about
	}
	if r.detail != "" {
		s += ": " + r.detail
	}
	return s
}

func (r *refusal) Unwrap() error { return r.reason }

// rank says how far a scheme got before it failed. Of several refusals the one
// that got furthest tells most.
func (r *refusal) rank() int {
	switch {
	case errors.Is(r, ErrStale), errors.Is(r, ErrFuture):
		return 3
	case errors.Is(r, ErrMalformedHeader):
		return 2
	}
	return 1
}

func missing(header string) *refusal {
	return &refusal{reason: ErrMissingHeader, about: header}
}

func malformed(header, detail string) *refusal {
	return &refusal{reason: ErrMalformedHeader, about: header, detail: detail}
}

var errNoSeen = errors.New("verify: Once needs a Seen")
