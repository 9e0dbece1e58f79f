// Package dashboard is what a workspace's people see of their webhooks: pages on
// which they add endpoints, pause, rotate and delete them, read the delivery log
// and send a delivery again. A host mounts it in its own server, behind its own
// sign-in:
//
//	pages, err := dashboard.New(d, dashboard.Config{
//		Prefix: "/webhooks",
//		Authorize: func(r *http.Request, workspaceID int64, permission string) error {
//			user := session(r)
//			if user == nil {
//				return dashboard.ErrSignedOut
//			}
//			return user.Require(workspaceID, permission)
//		},
//	})
//	mux.Handle("/webhooks/", pages)
//	// the pages of workspace 42: /webhooks/workspaces/42/endpoints
//
// The pages are made on the server, need no JavaScript (with it, they copy, and
// keep themselves up to date), load nothing from elsewhere, and come in English,
// German, Russian, Japanese and Portuguese, light and dark.
package dashboard

import (
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
)

// The permissions that Config.Authorize is asked about, as in package httpapi.
const (
	// PermissionView: read endpoints and the delivery log.
	PermissionView = httpapi.PermissionView
	// PermissionEdit: everything else.
	PermissionEdit = httpapi.PermissionEdit
)

// ErrSignedOut is what Config.Authorize returns, wrapped or bare, if it does not
// know who asks: the answer is 401 and leads to Config.SignIn. It is package
// httpapi's, so that one function may serve both.
var ErrSignedOut = httpapi.ErrSignedOut

// Config is how the pages fit into their host. Every zero field but Authorize is
// its documented default.
type Config struct {
	// Authorize says whether whoever sent a request may do something in a
	// workspace: nil if so. It is asked before anything is read or done, twice for
	// most pages, and must be safe for concurrent use. [ErrSignedOut] is answered
	// with 401, [webhook.ErrNotFound] with 404, an [*httpapi.Problem] in its own
	// words, and any other error, whose text is not shown, with 403. Required.
	Authorize func(r *http.Request, workspaceID int64, permission string) error

	// Prefix is where the handler is mounted, such as "/webhooks". Its pages are
	// below Prefix + "/workspaces/" + the workspace's id. Defaults to "".
	Prefix string
	// Name is what stands in the corner of each page, and Home the URL it leads
	// to. Defaults to "Webhooks" and to the workspace's endpoints.
	Name string
	Home string
	// SignIn is the URL to sign in at. Defaults to none: the page says so without.
	SignIn string
	// Language returns a language tag such as "de" or "pt-BR"; "" leaves the choice
	// to the request's Accept-Language, as does nil. There are en, de, ru, ja, pt.
	Language func(r *http.Request) string
	// Location returns the time zone that times are shown in, and filters are given
	// in. Nil, and a nil result, mean UTC.
	Location func(r *http.Request) *time.Location
	// Style is CSS that follows the built-in style sheet: for other values of the
	// custom properties at its top.
	Style string
	// TrustedOrigins are further origins ("https://example.com") whose pages may
	// send forms here. One that a reverse proxy hides belongs to them.
	TrustedOrigins []string
	// Logger gets a line when something failed that the page only apologises for.
	// Defaults to slog.Default().
	Logger *slog.Logger
}

type handler struct {
	d      *webhook.Dispatcher
	config Config
	origin *http.CrossOriginProtection
	files  files
	adding sync.Mutex // of endpoints, one after the other: see createEndpoint
}

// New returns the pages as a handler for everything below Config.Prefix. It is
// safe for concurrent use, starts nothing, and remembers nothing: any number of
// processes may serve the same pages. An error is a [*webhook.InvalidError] that
// names the field of Config.
func New(d *webhook.Dispatcher, c Config) (http.Handler, error) {
	h := &handler{d: d, config: c, origin: http.NewCrossOriginProtection()}
	switch {
	case d == nil:
		return nil, &webhook.InvalidError{Field: "dispatcher", Rule: "is required"}
	case c.Authorize == nil:
		return nil, &webhook.InvalidError{Field: "Authorize", Rule: "is required: it keeps strangers out"}
	case c.Prefix != "" && !validPrefix(c.Prefix):
		return nil, &webhook.InvalidError{Field: "Prefix", Rule: `must be "" or a path such as "/webhooks" of letters, digits and -._~, without a slash at its end`}
	}
	for _, origin := range c.TrustedOrigins {
		if h.origin.AddTrustedOrigin(origin) != nil {
			return nil, &webhook.InvalidError{Field: "TrustedOrigins", Rule: `must be of the form "https://example.com"`}
		}
	}
	if c.Name == "" {
		h.config.Name = "Webhooks"
	}
	if c.Logger == nil {
		h.config.Logger = slog.Default()
	}
	h.files = newFiles(c.Prefix, c.Style)
	return h.routes(), nil
}

func validPrefix(prefix string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
	return prefix[0] == '/' && prefix != "/" && path.Clean(prefix) == prefix && strings.Trim(prefix, letters+"/") == ""
}

// routes says which page is where. What only a form may ask for leads to its page
// where it is asked for otherwise, as it is after a sign-in in between.
func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	page := func(path string, show func(*visit) error, permission string) {
		mux.Handle("GET "+h.config.Prefix+"/workspaces/{workspace}"+path, h.visitor(permission, show, nil))
	}
	form := func(path string, do, refused func(*visit) error) {
		mux.Handle("POST "+h.config.Prefix+"/workspaces/{workspace}"+path, h.visitor(PermissionEdit, do, refused))
	}
	page("", toEndpoints, PermissionView)
	page("/{$}", toEndpoints, PermissionView)
	page("/endpoints", listEndpoints, PermissionView)
	form("/endpoints", createEndpoint, createRefused)
	page("/endpoints/new", newEndpoint, PermissionEdit)

	const one = "/endpoints/{endpoint}"
	page(one, showEndpoint, PermissionView)
	page(one+"/edit", editEndpoint, PermissionEdit)
	form(one+"/edit", updateEndpoint, updateRefused)
	page(one+"/rotate", askToRotate, PermissionEdit)
	form(one+"/rotate", rotateSecret, nil)
	page(one+"/delete", askToDelete, PermissionEdit)
	form(one+"/delete", deleteEndpoint, nil)
	page(one+"/recover", askToRecover, PermissionEdit)
	form(one+"/recover", recoverDeliveries, nil)
	for path, do := range map[string]func(*visit) error{
		"/pause": pauseEndpoint, "/resume": resumeEndpoint, "/test": sendTest,
	} {
		form(one+path, do, nil)
		page(one+path, toEndpoint, PermissionView)
	}

	const log = one + "/deliveries"
	page(log, listDeliveries, PermissionView)
	page(log+"/{delivery}", showDelivery, PermissionView)
	form(log+"/{delivery}/retry", retryDelivery, nil)
	page(log+"/{delivery}/retry", toDelivery, PermissionView)

	mux.Handle("GET "+h.config.Prefix+"/assets/{file}", h.files)
	mux.Handle("/", http.HandlerFunc(h.lost))
	return mux
}
