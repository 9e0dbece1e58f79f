package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/elido-app/webhook"
)

// A problem is why a request gets no page of its own. The messages
// "problem.<name>.title" and "problem.<name>.text" say so to a person.
type problem struct {
	status int
	name   string
	keeps  bool // a form is shown again with what was typed
}

func (p *problem) Error() string { return "dashboard: " + p.name }

var (
	errNoPage     = &problem{http.StatusNotFound, "no-page", false}
	errNoEndpoint = &problem{http.StatusNotFound, "no-endpoint", false}
	errNoDelivery = &problem{http.StatusNotFound, "no-delivery", false}
	errSignedOut  = &problem{http.StatusUnauthorized, "signed-out", true}
	errForbidden  = &problem{http.StatusForbidden, "forbidden", true}
	errOtherSite  = &problem{http.StatusForbidden, "other-site", false}
	errNoForm     = &problem{http.StatusBadRequest, "no-form", false}
	errTooLarge   = &problem{http.StatusRequestEntityTooLarge, "too-large", false}
	errFailed     = &problem{http.StatusInternalServerError, "failed", true}
)

// explain makes a problem of an error. What nobody is to blame for but this side
// is logged; its text is for the host, not for whoever asks.
func (v *visit) explain(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if errors.Is(err, webhook.ErrNotFound) {
		return errNoEndpoint
	}
	if !errors.Is(err, context.Canceled) || v.r.Context().Err() == nil {
		v.config.Logger.Error("dashboard: a request failed",
			"method", v.r.Method, "path", v.r.URL.Path, "workspace_id", v.workspace, "error", err)
	}
	return errFailed
}

// fail answers with a page that says what is wrong.
func (v *visit) fail(err error) {
	p := v.explain(err)
	body := problemBody{Text: v.lang.t("problem." + p.name + ".text")}
	switch {
	case p == errSignedOut:
		body.SignIn = v.config.SignIn
	case v.workspace > 0 && p != errForbidden:
		body.Back = v.path("")
	}
	v.show("problem", page{Title: v.lang.t("problem." + p.name + ".title"), Status: p.status, Body: body})
}

type problemBody struct {
	Text   string
	SignIn string // URL
	Back   string // URL
}

// lost answers what no route does.
func (h *handler) lost(w http.ResponseWriter, r *http.Request) {
	h.visit(w, r).fail(errNoPage)
}
