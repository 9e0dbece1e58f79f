package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/elido-app/webhook"
)

const endpointsPerPage = 50

// badge is a state in a word, an icon and a colour.
type badge struct {
	Class string // "good", "warn", "bad" or "idle"
	Icon  string // of the templates: "check", "alert", "cross", "pause" or "clock"
	Text  string
}

// endpointRow is an endpoint as a list shows it.
type endpointRow struct {
	URL         string // of its page
	Target      string
	Description string
	Kind        string
	Events      []string
	More        int // events that are not shown
	Everything  bool
	State       badge
	Failures    int
	Active      bool
}

type endpointsBody struct {
	Rows []endpointRow
	New  string // URL
	Next string // URL of the next page
	Page int    // 0 on the first
}

func listEndpoints(v *visit) error {
	after, _ := strconv.ParseInt(v.r.URL.Query().Get("after"), 10, 64)
	list, err := v.d.Endpoints(v.r.Context(), v.workspace, max(after, 0), endpointsPerPage+1)
	if err != nil {
		return err
	}
	body := endpointsBody{New: v.path("/new")}
	if len(list) > endpointsPerPage {
		list = list[:endpointsPerPage]
		body.Next = v.path("?after=" + strconv.FormatInt(list[len(list)-1].ID, 10))
	}
	for _, e := range list {
		body.Rows = append(body.Rows, v.endpointRow(e, 3))
	}
	v.show("endpoints", page{Title: v.lang.t("endpoints.title"), Live: 15, Body: body})
	return nil
}

// endpointRow shows at most so many of an endpoint's events.
func (v *visit) endpointRow(e webhook.Endpoint, events int) endpointRow {
	row := endpointRow{
		URL:         v.endpointPath(e.ID, ""),
		Target:      target(e),
		Description: printable([]byte(e.Description)),
		Kind:        v.lang.t("kind." + string(e.Kind)),
		Everything:  e.Kind == webhook.KindSIEM,
		State:       v.endpointState(e),
		Active:      e.Active,
	}
	if e.Active {
		row.Failures = e.Health.Failures
	}
	for i, name := range e.Events {
		if i == events && len(e.Events) > events+1 {
			row.More = len(e.Events) - events
			break
		}
		row.Events = append(row.Events, printable([]byte(name)))
	}
	return row
}

// target says where an endpoint's requests go.
func target(e webhook.Endpoint) string {
	if chat := e.Config["chat_id"]; e.Kind == webhook.KindTelegram && chat != "" {
		return printable([]byte(chat))
	}
	return printable([]byte(e.URL))
}

func (v *visit) endpointState(e webhook.Endpoint) badge {
	switch {
	case !e.Active:
		return badge{"idle", "pause", v.lang.t("state.paused")}
	case e.Health.Degraded(v.now):
		return badge{"warn", "alert", v.lang.t("state.degraded")}
	}
	return badge{"good", "check", v.lang.t("state.active")}
}

// crumbs are the pages above one of an endpoint's.
func (v *visit) crumbs(e *webhook.Endpoint, more ...crumb) []crumb {
	list := []crumb{{v.lang.t("endpoints.title"), v.path("")}}
	if e != nil {
		list = append(list, crumb{shorten(target(*e), 48), v.endpointPath(e.ID, "")})
	}
	return append(list, more...)
}

const recentDeliveries = 10

type endpointBody struct {
	endpointRow
	ID      string
	Created moment
	Headers []header
	// Where they differ from the Dispatcher's defaults.
	MaxInFlight, RateLimit string

	PauseReason   string
	DegradedUntil moment
	FailedAt      moment

	Signed        bool
	Rotations     int
	PreviousUntil moment

	Stats      stats
	Deliveries []deliveryRow
	Log        string // URL
}

type header struct{ Name, Value string }

func showEndpoint(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	return v.showEndpoint(e, http.StatusOK, nil)
}

// showEndpoint shows an endpoint, where something about it was refused with a
// notice.
func (v *visit) showEndpoint(e webhook.Endpoint, status int, n *notice) error {
	s, err := v.stats(e.ID)
	if err != nil {
		return err
	}
	recent, err := v.d.Deliveries(v.r.Context(), webhook.DeliveryQuery{
		WorkspaceID: v.workspace, EndpointID: e.ID, Limit: recentDeliveries,
	})
	if err != nil {
		return err
	}
	body := endpointBody{
		endpointRow: v.endpointRow(e, len(e.Events)),
		ID:          strconv.FormatInt(e.ID, 10),
		Created:     v.moment(e.CreatedAt),
		Headers:     headers(e.Headers),
		PauseReason: v.lang.rule(e.PauseReason),
		FailedAt:    v.moment(e.Health.FailedAt),
		Signed:      e.Kind.Signed(),
		Rotations:   e.Rotations,
		Stats:       s,
		Deliveries:  v.deliveryRows(e, recent.Deliveries),
		Log:         v.endpointPath(e.ID, "/deliveries"),
	}
	if e.MaxInFlight > 0 {
		body.MaxInFlight = v.lang.integer(e.MaxInFlight)
	}
	if e.RateLimit > 0 {
		body.RateLimit = v.lang.t("endpoint.per-second", "value", v.lang.number(e.RateLimit, 6))
	}
	if e.Health.Degraded(v.now) {
		body.DegradedUntil = v.moment(e.Health.DegradedUntil)
	}
	if v.now.Before(e.PreviousUntil) {
		body.PreviousUntil = v.moment(e.PreviousUntil)
	}
	p := page{Title: target(e), Crumbs: v.crumbs(nil), Notice: n, Status: status, Live: 5, Body: body}
	if v.r.Method == http.MethodPost {
		p.URL = v.endpointPath(e.ID, "")
	}
	v.show("endpoint", p)
	return nil
}

func pauseEndpoint(v *visit) error {
	return v.change("paused", (*webhook.Dispatcher).PauseEndpoint)
}

func resumeEndpoint(v *visit) error {
	return v.change("resumed", (*webhook.Dispatcher).ResumeEndpoint)
}

// change makes one of two changes, and leads back to the page that asked for it.
func (v *visit) change(what string, do func(*webhook.Dispatcher, context.Context, int64, int64) (webhook.Endpoint, error)) error {
	id, ok := v.id("endpoint")
	if !ok {
		return errNoPage
	}
	if _, err := do(v.d, v.r.Context(), v.workspace, id); err != nil {
		return err
	}
	if v.r.PostForm.Get("from") == "list" {
		return v.done(v.path(""), what)
	}
	return v.done(v.endpointPath(id, ""), what)
}

func sendTest(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	receipt, err := v.d.SendTest(v.r.Context(), v.workspace, e.ID)
	if errors.Is(err, webhook.ErrPaused) {
		if e, err = v.endpoint(); err != nil {
			return err
		}
		return v.showEndpoint(e, http.StatusConflict, &notice{"warn", v.lang.t("test.paused")})
	}
	if err != nil {
		return err
	}
	return v.done(v.deliveryPath(&webhook.Delivery{EndpointID: e.ID, ID: receipt.DeliveryIDs[0]}, ""), "test")
}

type questionBody struct {
	Target  string
	Back    string // URL
	Pending int    // deliveries that wait
	More    bool   // and more than that
}

func askToDelete(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	waiting, err := v.d.Deliveries(v.r.Context(), webhook.DeliveryQuery{
		WorkspaceID: v.workspace, EndpointID: e.ID, Status: webhook.StatusPending,
	})
	if err != nil {
		return err
	}
	v.show("delete", page{Title: v.lang.t("delete.title"), Crumbs: v.crumbs(&e), Body: questionBody{
		Target: target(e), Back: v.endpointPath(e.ID, ""), Pending: len(waiting.Deliveries), More: waiting.Next != "",
	}})
	return nil
}

func deleteEndpoint(v *visit) error {
	id, ok := v.id("endpoint")
	if !ok {
		return errNoPage
	}
	if err := v.d.DeleteEndpoint(v.r.Context(), v.workspace, id); err != nil {
		return err
	}
	return v.done(v.path(""), "deleted")
}

type recoverBody struct {
	Target string
	Back   string // URL
	Since  string // as typed
	Zone   string
	Error  string
}

func askToRecover(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	return v.showRecover(e, http.StatusOK, v.now.Add(-24*time.Hour).In(v.location).Format(inputForm), "")
}

func (v *visit) showRecover(e webhook.Endpoint, status int, since, problem string) error {
	v.show("recover", page{Title: v.lang.t("recover.title"), Crumbs: v.crumbs(&e), Status: status, Body: recoverBody{
		Target: target(e), Back: v.endpointPath(e.ID, "/deliveries"), Since: since, Zone: v.zone(), Error: problem,
	}})
	return nil
}

func recoverDeliveries(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	typed := v.r.PostForm.Get("since")
	since, ok := v.parseTime(typed)
	if !ok || since.IsZero() {
		return v.showRecover(e, http.StatusUnprocessableEntity, shorten(printable([]byte(typed)), 40), v.lang.t("rule.time"))
	}
	n, err := v.d.Recover(v.r.Context(), v.workspace, e.ID, since)
	if err != nil {
		return err
	}
	return v.done(v.endpointPath(e.ID, "/deliveries"), "recovered&n="+strconv.Itoa(n))
}
