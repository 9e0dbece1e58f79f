package dashboard

import (
	"crypto/rand"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
)

// formMost is how large a form may be, in bytes.
const formMost = 256 << 10

// idMost is the largest id that a page has: what JavaScript can count to.
const idMost = 1<<53 - 1

// visit is one request to the pages, and its answer.
type visit struct {
	*handler
	w http.ResponseWriter
	r *http.Request

	lang     *language
	location *time.Location
	now      time.Time
	nonce    string // of the style sheet and the script

	workspace int64
	mayEdit   bool
	refusal   error // why a form is not acted on, where its page is shown again
}

// visitor makes a handler of a page, or of what a form does. Before anything else
// it checks where a form came from, and then who sent it. refused, if set, shows a
// form again that was refused, so that nothing is lost of what was typed.
func (h *handler) visitor(permission string, do, refused func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := h.visit(w, r)
		err := v.contain(func(v *visit) error { return v.check(permission) })
		if err == nil {
			err = v.contain(do)
		} else if p := v.explain(err); refused != nil && p.keeps {
			v.refusal = p
			err = v.contain(refused)
		} else {
			err = p
		}
		if err != nil {
			v.fail(err)
		}
	})
}

// contain makes an error of a panic, the host's or ours.
func (v *visit) contain(do func(*visit) error) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default: // not the value: it may hold what is in the request
			err = fmt.Errorf("panic: %T\n%s", p, debug.Stack())
		}
	}()
	return do(v)
}

func (h *handler) visit(w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{handler: h, w: w, r: r, now: time.Now(), location: time.UTC, nonce: rand.Text()}
	if h.config.Language != nil {
		v.lang = find(h.config.Language(r))
	}
	if v.lang == nil {
		v.lang = negotiate(r.Header.Get("Accept-Language"))
	}
	if h.config.Location != nil {
		if l := h.config.Location(r); l != nil {
			v.location = l
		}
	}
	return v
}

// check checks a request before anything is read or done for it.
func (v *visit) check(permission string) error {
	var ok bool
	if v.workspace, ok = v.id("workspace"); !ok {
		return errNoPage
	}
	if v.r.Method == http.MethodPost {
		if err := v.readForm(); err != nil {
			return err
		}
	}
	if err := v.authorize(PermissionView); err != nil {
		return err
	}
	err := v.authorize(PermissionEdit)
	v.mayEdit = err == nil
	if permission == PermissionEdit {
		return err
	}
	return nil
}

// authorize asks the host.
func (v *visit) authorize(permission string) error {
	err := v.config.Authorize(v.r, v.workspace, permission)
	_, said := errors.AsType[*httpapi.Problem](err)
	switch {
	case err == nil, said:
		return err
	case errors.Is(err, ErrSignedOut):
		return errSignedOut
	case errors.Is(err, webhook.ErrNotFound):
		return errNoPage
	}
	v.config.Logger.Debug("webhook: dashboard: permission denied", "workspace_id", v.workspace, "permission", permission, "error", err)
	return errForbidden
}

// readForm reads a form that a page of this very site sent. A browser says so in
// Sec-Fetch-Site or in Origin (see http.CrossOriginProtection); those before 2020
// may send neither, but a Referer. Whoever says nothing is refused: curl has the
// management API.
func (v *visit) readForm() error {
	if v.origin.Check(v.r) != nil || !v.saysWhere() {
		return errOtherSite
	}
	if t, _, _ := mime.ParseMediaType(v.r.Header.Get("Content-Type")); t != "application/x-www-form-urlencoded" {
		return errNoForm
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, formMost)
	err := v.r.ParseForm()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge
	}
	if err != nil {
		return errNoForm
	}
	return nil
}

func (v *visit) saysWhere() bool {
	h := v.r.Header
	if h.Get("Sec-Fetch-Site") != "" || h.Get("Origin") != "" {
		return true
	}
	from, err := url.Parse(h.Get("Referer"))
	return err == nil && from.Host != "" &&
		(from.Host == v.r.Host || slices.Contains(v.config.TrustedOrigins, from.Scheme+"://"+from.Host))
}

// id returns the id in a place of the path.
func (v *visit) id(name string) (int64, bool) {
	text := v.r.PathValue(name)
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0 && id <= idMost && strconv.FormatInt(id, 10) == text
}

// endpoint returns the endpoint of the path.
func (v *visit) endpoint() (webhook.Endpoint, error) {
	id, ok := v.id("endpoint")
	if !ok {
		return webhook.Endpoint{}, errNoPage
	}
	return v.d.Endpoint(v.r.Context(), v.workspace, id)
}

// delivery returns the delivery of the path and its endpoint.
func (v *visit) delivery() (webhook.Endpoint, webhook.Delivery, error) {
	e, err := v.endpoint()
	if err != nil {
		return e, webhook.Delivery{}, err
	}
	id, ok := v.id("delivery")
	if !ok {
		return e, webhook.Delivery{}, errNoPage
	}
	one, err := v.d.Delivery(v.r.Context(), v.workspace, id)
	if errors.Is(err, webhook.ErrNotFound) || err == nil && one.EndpointID != e.ID {
		err = errNoDelivery
	}
	return e, one, err
}

// path returns the path of a page of the workspace.
func (v *visit) path(rest string) string {
	return v.config.Prefix + "/workspaces/" + strconv.FormatInt(v.workspace, 10) + "/endpoints" + rest
}

func (v *visit) endpointPath(id int64, rest string) string {
	return v.path("/" + strconv.FormatInt(id, 10) + rest)
}

func (v *visit) deliveryPath(d *webhook.Delivery, rest string) string {
	return v.endpointPath(d.EndpointID, "/deliveries/"+strconv.FormatInt(d.ID, 10)+rest)
}

// done leads to a page that says what was done, so that to reload it does nothing
// again.
func (v *visit) done(path, what string) error {
	http.Redirect(v.w, v.r, path+"?done="+what, http.StatusSeeOther)
	return nil
}

func (v *visit) to(path string) error {
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

func toEndpoints(v *visit) error { return v.to(v.path("")) }

func toEndpoint(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	return v.to(v.endpointPath(e.ID, ""))
}

func toDelivery(v *visit) error {
	_, d, err := v.delivery()
	if err != nil {
		return err
	}
	return v.to(v.deliveryPath(&d, ""))
}
