package dashboard

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/elido-app/webhook"
)

type rotateBody struct {
	Target        string
	Back          string // URL
	Seen          int    // rotations
	PreviousUntil moment // of an overlap that is running
}

func askToRotate(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	if !e.Kind.Signed() {
		return errNoPage
	}
	body := rotateBody{Target: target(e), Back: v.endpointPath(e.ID, ""), Seen: e.Rotations}
	if v.now.Before(e.PreviousUntil) {
		body.PreviousUntil = v.moment(e.PreviousUntil)
	}
	v.show("rotate", page{Title: v.lang.t("rotate.title"), Crumbs: v.crumbs(&e), Body: body})
	return nil
}

// rotateSecret replaces a secret, if the form was made after the last rotation: a
// second click, or somebody else's, must not end the secret that a receiver has.
func rotateSecret(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	seen, err := strconv.Atoi(v.r.PostForm.Get("seen"))
	if err != nil || !e.Kind.Signed() {
		return errNoForm
	}
	e, secret, err := v.d.RotateSecret(v.r.Context(), v.workspace, e.ID, webhook.RotateOptions{
		Seen: &seen, NoOverlap: v.r.PostForm.Get("leaked") != "",
	})
	if errors.Is(err, webhook.ErrConflict) {
		if e, err = v.endpoint(); err != nil {
			return err
		}
		return v.showEndpoint(e, http.StatusConflict, &notice{"warn", v.lang.t("rotate.conflict")})
	}
	if err != nil {
		return err
	}
	return v.showSecret(e, secret)
}

type secretBody struct {
	Target        string
	Secret        string
	Endpoint      string // URL
	Rotated       bool
	PreviousUntil moment
}

// showSecret answers a form with the secret that it made. The secret is in this
// answer and nowhere else, so there is no other page to lead to: the answer is
// not to be stored, and the script makes a reload lead to the endpoint's page. A
// browser that sends the form again all the same makes no other secret: see
// rotateSecret and twin.
func (v *visit) showSecret(e webhook.Endpoint, secret webhook.Secret) error {
	body := secretBody{Target: target(e), Secret: secret.Reveal(), Endpoint: v.endpointPath(e.ID, ""), Rotated: e.Rotations > 0}
	if v.now.Before(e.PreviousUntil) {
		body.PreviousUntil = v.moment(e.PreviousUntil)
	}
	title := "secret.title"
	if body.Rotated {
		title = "secret.rotated"
	}
	v.show("secret", page{Title: v.lang.t(title), Crumbs: v.crumbs(&e), URL: body.Endpoint, Body: body})
	return nil
}
