package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
)

// A problem is why a request gets no page of its own. The messages
// "problem.<name>.title" and "problem.<name>.text" say so to a person, and
// "problem.<name>.keep" in a form that is shown again.
type problem struct {
	status int
	name   string
	keeps  bool // a form is shown again with what was typed

	title, text string // instead of messages: the host's own words
	reference   string // is in the log too
}

func (p *problem) Error() string { return "dashboard: " + p.name }

var (
	errNoPage     = &problem{status: http.StatusNotFound, name: "no-page"}
	errNoEndpoint = &problem{status: http.StatusNotFound, name: "no-endpoint"}
	errNoDelivery = &problem{status: http.StatusNotFound, name: "no-delivery"}
	errSignedOut  = &problem{status: http.StatusUnauthorized, name: "signed-out", keeps: true}
	errForbidden  = &problem{status: http.StatusForbidden, name: "forbidden", keeps: true}
	errOtherSite  = &problem{status: http.StatusForbidden, name: "other-site"}
	errNoForm     = &problem{status: http.StatusBadRequest, name: "no-form"}
	errTooLarge   = &problem{status: http.StatusRequestEntityTooLarge, name: "too-large"}
)

// explain makes a problem of an error. What nobody is to blame for but this side
// is logged; its text is for the host, not for whoever asks.
func (v *visit) explain(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if p, ok := errors.AsType[*httpapi.Problem](err); ok {
		return ofHost(p)
	}
	if errors.Is(err, webhook.ErrNotFound) {
		return errNoEndpoint
	}
	p := &problem{status: http.StatusInternalServerError, name: "failed", keeps: true, reference: rand.Text()}
	if !errors.Is(err, context.Canceled) || v.r.Context().Err() == nil {
		v.config.Logger.Error("webhook: dashboard: a request failed", "reference", p.reference,
			"method", v.r.Method, "pattern", v.r.Pattern, "workspace_id", v.workspace, "error", fmt.Sprint(err))
	}
	return p
}

// ofHost is what a host says itself, through Config.Authorize or AllowEndpoint.
func ofHost(p *httpapi.Problem) *problem {
	status := p.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	title := cmp.Or(p.Title, http.StatusText(status))
	return &problem{status: status, keeps: true, title: title, text: cmp.Or(p.Detail, title)}
}

// words are what a page says of a problem, and a form that is shown again.
func (l *language) words(p *problem) (title, text, keep string) {
	if p.name == "" {
		return p.title, p.text, p.text
	}
	key := "problem." + p.name
	return l.t(key + ".title"), l.t(key + ".text"), l.t(key + ".keep")
}

// fail answers with a page that says what is wrong.
func (v *visit) fail(err error) {
	p := v.explain(err)
	title, text, _ := v.lang.words(p)
	body := problemBody{Text: text, Reference: p.reference}
	switch {
	case p == errSignedOut:
		body.SignIn = v.config.SignIn
	case v.workspace > 0 && p != errForbidden:
		body.Back = v.path("")
	}
	v.show("problem", page{Title: title, Status: p.status, Body: body})
}

type problemBody struct {
	Text      string
	Reference string
	SignIn    string // URL
	Back      string // URL
}

// lost answers what no route does.
func (h *handler) lost(w http.ResponseWriter, r *http.Request) {
	h.visit(w, r).fail(errNoPage)
}
