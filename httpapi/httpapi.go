// Package httpapi is the management API over HTTP: customers manage their
// endpoints, read the delivery log and act on it. A host mounts it in its own
// server, behind its own sign-in:
//
//	api, err := httpapi.New(d, httpapi.Config{
//		Prefix: "/api",
//		Authorize: func(r *http.Request, workspaceID int64, permission string) error {
//			user := session(r)
//			if user == nil {
//				return httpapi.ErrSignedOut
//			}
//			return user.Require(workspaceID, permission)
//		},
//	})
//	mux.Handle("/api/", api)
//	// the endpoints of workspace 42: GET /api/v1/workspaces/42/webhooks
//
// What there is to call is told by an OpenAPI 3.1 document, which the handler
// serves at Prefix + "/v1/openapi.yaml", and, for people, by docs/api.md. Errors
// are problem documents (RFC 9457).
package httpapi

// Where to read on: the routes below, what every request goes through in
// request.go, strict JSON in body.go, errors in problem.go, and what the routes do
// in endpoints.go, deliveries.go and event_types.go.

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/elido-app/webhook"
)

// The permissions that Config.Authorize is asked about.
const (
	// PermissionView: read endpoints and the delivery log.
	PermissionView = "workspace.view"
	// PermissionEdit: everything else.
	PermissionEdit = "workspace.edit"
)

// ErrSignedOut is what Config.Authorize returns, wrapped or bare, if it does not
// know who asks: 401.
var ErrSignedOut = errors.New("not signed in")

// Config is how the API fits into its host. Every zero field but Authorize is its
// documented default.
type Config struct {
	// Authorize says whether whoever sent a request may do something in a
	// workspace: nil if so. It is asked before anything is read or done, and must
	// be safe for concurrent use. [ErrSignedOut] is answered with 401,
	// [webhook.ErrNotFound] with 404, for hosts that do not tell strangers which
	// workspaces there are, a [*Problem] as it is, and any other error with 403.
	// The text of an error that is no Problem is not shown. Required.
	Authorize func(r *http.Request, workspaceID int64, permission string) error

	// Prefix is where the handler is mounted, such as "/api": paths begin with it.
	// Defaults to "".
	Prefix string
	// Challenge is the WWW-Authenticate header of a 401 (RFC 9110, section
	// 11.6.1). Defaults to "Bearer".
	Challenge string
	// TrustedOrigins are further origins ("https://example.com") whose pages may
	// call this API in a browser. Others are refused whatever changes something, so
	// that a stranger's page cannot use the cookies of a visitor.
	TrustedOrigins []string
	// Logger gets a line when something failed that the answer does not explain.
	// Defaults to slog.Default().
	Logger *slog.Logger
}

type api struct {
	d        *webhook.Dispatcher
	config   Config
	origin   *http.CrossOriginProtection
	mux      *http.ServeMux
	document []byte
}

// New returns the API as a handler for everything below Config.Prefix. It is safe
// for concurrent use, starts nothing, and keeps nothing between requests: any
// number of processes may serve the same API. An error is a
// [*webhook.InvalidError] that names the field of Config.
//
// How long a request may take is for the host's http.Server to say
// (ReadHeaderTimeout, ReadTimeout), and how many there may be too.
func New(d *webhook.Dispatcher, c Config) (http.Handler, error) {
	a := &api{d: d, config: c, origin: http.NewCrossOriginProtection(), mux: http.NewServeMux()}
	switch {
	case d == nil:
		return nil, &webhook.InvalidError{Field: "dispatcher", Rule: "is required"}
	case c.Authorize == nil:
		return nil, &webhook.InvalidError{Field: "Authorize", Rule: "is required: it keeps strangers out"}
	case c.Prefix != "" && !validPrefix(c.Prefix):
		return nil, &webhook.InvalidError{Field: "Prefix", Rule: `must be "" or a path such as "/api" of letters, digits and -._~, without a slash at its end`}
	}
	for _, origin := range c.TrustedOrigins {
		if a.origin.AddTrustedOrigin(origin) != nil {
			return nil, &webhook.InvalidError{Field: "TrustedOrigins", Rule: `must be of the form "https://example.com"`}
		}
	}
	if c.Challenge == "" {
		a.config.Challenge = "Bearer"
	}
	if c.Logger == nil {
		a.config.Logger = slog.Default()
	}
	a.document = document(c.Prefix)
	paths := map[string]methods{"/v1/openapi.yaml": {"GET": a.serveDocument}}
	for _, r := range routes {
		if paths[r.path] == nil {
			paths[r.path] = methods{}
		}
		paths[r.path][r.method] = a.handle(r)
	}
	for path, m := range paths {
		a.mux.Handle(c.Prefix+path, a.choose(m))
	}
	return a, nil
}

func validPrefix(prefix string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
	return prefix[0] == '/' && path.Clean(prefix) == prefix && strings.Trim(prefix, letters+"/") == "" && prefix != "/"
}

const (
	webhooksPath   = "/v1/workspaces/{workspace_id}/webhooks"
	endpointPath   = webhooksPath + "/{endpoint_id}"
	deliveriesPath = endpointPath + "/deliveries"
	deliveryPath   = deliveriesPath + "/{delivery_id}"
)

// route is what can be asked for.
type route struct {
	method     string
	path       string
	permission string
	takes      takes
	query      []string // the parameters it takes
	do         func(*api, *request) (answer, error)
}

// takes says what body a route takes.
type takes int

const (
	noBody   takes = iota // what comes is not read
	noFields              // none, or an empty object
	fields
)

var routes = []route{
	{"POST", webhooksPath, PermissionEdit, fields, nil, (*api).createEndpoint},
	{"GET", webhooksPath, PermissionView, noBody, []string{"limit", "cursor"}, (*api).listEndpoints},
	{"GET", webhooksPath + "/event-types", PermissionView, noBody, nil, (*api).listEventTypes},
	{"GET", endpointPath, PermissionView, noBody, nil, (*api).getEndpoint},
	{"PUT", endpointPath, PermissionEdit, fields, nil, (*api).replaceEndpoint},
	{"PATCH", endpointPath, PermissionEdit, fields, nil, (*api).changeEndpoint},
	{"DELETE", endpointPath, PermissionEdit, noBody, nil, (*api).deleteEndpoint},
	{"POST", endpointPath + "/rotate-secret", PermissionEdit, fields, nil, (*api).rotateSecret},
	{"POST", endpointPath + "/test", PermissionEdit, noFields, nil, (*api).sendTest},
	{"POST", endpointPath + "/recover", PermissionEdit, fields, nil, (*api).recoverDeliveries},
	{"POST", endpointPath + "/events/{event_id}/replay", PermissionEdit, noFields, nil, (*api).replayEvent},
	{"GET", deliveriesPath, PermissionView, noBody, []string{"limit", "offset", "cursor", "status", "type", "since", "until"}, (*api).listDeliveries},
	{"GET", deliveryPath, PermissionView, noBody, nil, (*api).getDelivery},
	{"POST", deliveryPath + "/retry", PermissionEdit, noFields, nil, (*api).retryDelivery},
}

// ServeHTTP answers one request.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if a.origin.Check(r) != nil {
		a.fail(w, r, errCrossOrigin)
		return
	}
	// The mux would lead the client to a tidied path; nobody has a reason to ask
	// for another.
	if p := r.URL.EscapedPath(); path.Clean(p) != p {
		a.fail(w, r, errNoSuchPath)
		return
	}
	if _, pattern := a.mux.Handler(r); pattern == "" {
		a.fail(w, r, errNoSuchPath)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// methods are what a path can be asked with.
type methods map[string]http.HandlerFunc

// choose returns the handler of a path. The mux could tell methods apart as well,
// but would take "event-types" for an endpoint's id when it is to be deleted.
func (a *api) choose(m methods) http.HandlerFunc {
	allowed := slices.Collect(maps.Keys(m))
	if m["GET"] != nil {
		allowed = append(allowed, "HEAD")
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	refused := &Problem{
		Type: typeOf("method-not-allowed"), Title: "Method not allowed", Status: http.StatusMethodNotAllowed,
		Detail: "This path takes " + allow + ".",
	}
	return func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead { // the server leaves the body out
			method = http.MethodGet
		}
		if h := m[method]; h != nil {
			h(w, r)
			return
		}
		w.Header().Set("Allow", allow)
		a.fail(w, r, refused)
	}
}
