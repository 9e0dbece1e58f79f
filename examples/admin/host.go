package main

import (
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/dashboard"
)

// host is what a real application has around dashboard and API, in small: people who
// are signed in and may do this and that, and things that happen.
type host struct {
	d         *webhook.Dispatcher
	receiver  *receiver
	published atomic.Int64
}

// The people there are. Who somebody is stands in a cookie, for everybody to read
// and change: a real host has sessions.
const (
	cookieName = "demo_user"
	editor     = "editor"
	viewer     = "viewer"
	nobody     = "nobody"
)

func user(r *http.Request) string {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return editor
	}
	return cookie.Value
}

// authorize is what dashboard and API ask about every request.
func (h *host) authorize(r *http.Request, workspaceID int64, permission string) error {
	switch who := user(r); {
	case who == nobody:
		return dashboard.ErrSignedOut
	case workspaceID != workspace:
		return fmt.Errorf("%s is no member of workspace %d", who, workspaceID)
	case who == editor, who == viewer && permission == dashboard.PermissionView:
		return nil
	default:
		return fmt.Errorf("%s does not have %s", who, permission)
	}
}

// addEndpoint adds the demo endpoint, unless a database from before has some.
func (h *host) addEndpoint(ctx context.Context) error {
	if there, err := h.d.Endpoints(ctx, workspace, 0, 1); err != nil || len(there) > 0 {
		return err
	}
	_, secret, err := h.d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: workspace, URL: h.receiver.url, Events: []string{"link.*"}, Description: "The receiver of this demo",
	})
	if err != nil {
		return err
	}
	return h.receiver.trust(secret.Reveal())
}

//go:embed home.html
var homePage string

var homeTemplate = template.Must(template.New("home").Parse(homePage))

func (h *host) home(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = homeTemplate.Execute(w, map[string]any{
		"Dashboard": "/webhooks/workspaces/" + strconv.Itoa(workspace) + "/endpoints",
		"URL":       h.receiver.url,
		"User":      user(r),
		"Mood":      h.receiver.told(),
		"Moods":     moods,
		"Received":  h.receiver.recent(),
		"Types":     []string{"link.created", "link.updated", "link.deleted", "member.invited", "audit.event"},
	})
}

// publish publishes an event of the type that was chosen.
func (h *host) publish(w http.ResponseWriter, r *http.Request) {
	event := demoEvent(int(h.published.Add(1)))
	event.Type = r.PostFormValue("type")
	if _, err := h.d.Publish(r.Context(), event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// tell says how the receiver is to answer.
func (h *host) tell(w http.ResponseWriter, r *http.Request) {
	if !h.receiver.tell(r.PostFormValue("mood")) {
		http.Error(w, "there is no such way to answer", http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (h *host) signIn(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: r.PostFormValue("user"), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
