package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook"
)

// idMost is what JavaScript can count to.
const idMost = 1<<53 - 1

// request is one that may be carried out.
type request struct {
	*http.Request
	workspaceID int64
	endpointID  int64
	deliveryID  int64
	query       url.Values
	body        *body
}

// answer is what a route says.
type answer struct {
	status   int
	location string
	body     any // nil: none
}

// handle returns the handler of a route: it asks the host, reads the request, and
// writes down the answer. Only it writes, when all is done.
func (a *api) handle(route route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		done, err := a.carryOut(route, w, r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		if done.location != "" {
			w.Header().Set("Location", a.config.Prefix+done.location)
		}
		if done.body == nil {
			w.WriteHeader(done.status)
			return
		}
		text, err := json.Marshal(done.body)
		if err != nil {
			a.fail(w, r, fmt.Errorf("marshal the answer: %w", err))
			return
		}
		write(w, done.status, "application/json", append(text, '\n'))
	}
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // there is nobody to tell but the client, who is gone
}

// panicError is a panic of the host's or of ours, for the log.
type panicError struct {
	value any
	stack []byte
}

// Error leaves out what was panicked with: it may hold what is in the request.
func (e *panicError) Error() string {
	if err, ok := e.value.(runtime.Error); ok {
		return fmt.Sprintf("panic: %v\n%s", err, e.stack)
	}
	return fmt.Sprintf("panic: %T\n%s", e.value, e.stack)
}

func (a *api) carryOut(route route, w http.ResponseWriter, r *http.Request) (done answer, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = &panicError{p, debug.Stack()}
		}
	}()
	q := &request{Request: r}
	if q.workspaceID, err = pathID(r, "workspace_id"); err != nil {
		return answer{}, err
	}
	if err := a.authorize(q, route.permission); err != nil {
		return answer{}, err
	}
	if strings.Contains(route.path, "{endpoint_id}") {
		if q.endpointID, err = pathID(r, "endpoint_id"); err != nil {
			return answer{}, err
		}
	}
	if strings.Contains(route.path, "{delivery_id}") {
		if q.deliveryID, err = pathID(r, "delivery_id"); err != nil {
			return answer{}, err
		}
	}
	if q.query, err = readQuery(r, route.query); err != nil {
		return answer{}, err
	}
	if route.takes != noBody {
		if q.body, err = readBody(w, r); err != nil {
			return answer{}, err
		}
		if route.takes == fields && q.body.raw == nil {
			return answer{}, problemMalformed("The body must be one JSON object: there is none.")
		}
	}
	return route.do(a, q)
}

// authorize asks the host.
func (a *api) authorize(q *request, permission string) error {
	err := a.config.Authorize(q.Request, q.workspaceID, permission)
	var problem *Problem
	switch {
	case err == nil, errors.As(err, &problem) && problem != nil, errors.Is(err, webhook.ErrNotFound):
		return err
	case errors.Is(err, ErrSignedOut):
		return errSignedOut
	}
	a.log(q.Context(), slog.LevelDebug, "webhook: httpapi: permission denied",
		"workspace_id", q.workspaceID, "permission", permission, "error", fmt.Sprint(err))
	return problemForbidden(permission)
}

// pathID returns an id in the path.
func pathID(r *http.Request, name string) (int64, error) {
	id, ok := parseID(r.PathValue(name))
	if !ok {
		return 0, problemParameters(FieldError{Field: name, Detail: "must be an id: a whole number between 1 and 2^53 - 1, in digits alone"})
	}
	return id, nil
}

func parseID(s string) (int64, bool) {
	id, ok := parseCount(s)
	return id, ok && id > 0
}

// parseCount reads a whole number between 0 and idMost, written in the one way
// there is.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && n <= idMost && strconv.FormatInt(n, 10) == s
}

// readQuery reads the parameters of the query. One that a route does not know is
// refused: a filter that was mistyped must not select everything.
func readQuery(r *http.Request, known []string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problemMalformed("The query is not written as one must be (name=value, joined by &, with %-escapes).")
	}
	var errs []FieldError
	for name, values := range query {
		switch {
		case !slices.Contains(known, name):
			rule := "is not known here; there is none"
			if len(known) > 0 {
				rule = "is not known here; there are " + strings.Join(known, ", ")
			}
			errs = append(errs, FieldError{Field: shorten(name), Detail: rule})
		case len(values) > 1:
			errs = append(errs, FieldError{Field: name, Detail: "is given more than once"})
		}
	}
	if len(errs) > 0 {
		return nil, problemParameters(inOrder(errs)...)
	}
	return query, nil
}

// count returns a whole number among the parameters of the query, or a default.
func (q *request) count(errs *[]FieldError, name string, least, most, otherwise int64) int {
	if !q.query.Has(name) {
		return int(otherwise)
	}
	n, ok := parseCount(q.query.Get(name))
	if !ok || n < least || n > most {
		rule := fmt.Sprintf("must be a whole number between %d and %d", least, most)
		if most == idMost {
			rule = fmt.Sprintf("must be a whole number between %d and 2^53 - 1", least)
		}
		*errs = append(*errs, FieldError{Field: name, Detail: rule})
	}
	return int(n)
}

// time returns an instant among the parameters of the query; zero without.
func (q *request) time(errs *[]FieldError, name string) time.Time {
	if !q.query.Has(name) {
		return time.Time{}
	}
	t, ok := parseTime(q.query.Get(name))
	if !ok {
		*errs = append(*errs, FieldError{Field: name, Detail: ruleTime + "; a + in it is written %2B"})
	}
	return t
}

const ruleTime = "must be an instant of the years 1970 to 9999 as in RFC 3339, such as 2026-11-30T09:00:00Z"

func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	t = t.UTC()
	return t, err == nil && t.Year() >= 1970 && t.Year() <= 9999
}

// shorten keeps what somebody made up from filling the answer.
func shorten(name string) string {
	const most = 100
	name = strings.ToValidUTF8(name, "\uFFFD")
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// inOrder sorts errors that come in the order of a map, and keeps the first few.
func inOrder(errs []FieldError) []FieldError {
	const most = 20
	slices.SortFunc(errs, func(a, b FieldError) int { return strings.Compare(a.Field, b.Field) })
	return errs[:min(len(errs), most)]
}
