package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook"
)

const deliveriesPerPage = 50

// deliveryRow is a delivery as a list shows it.
type deliveryRow struct {
	URL       string // of its page
	ID        string
	Type      string
	Status    badge
	Answer    string // an HTTP status, or that there was none
	Error     string // of the last attempt
	Latency   string
	Attempts  string
	Created   moment
	Completed moment
	Next      moment
	NextText  string // in place of Next
}

func (v *visit) deliveryRows(e webhook.Endpoint, list []webhook.Delivery) []deliveryRow {
	rows := make([]deliveryRow, len(list))
	for i := range list {
		rows[i] = v.deliveryRow(e, &list[i])
	}
	return rows
}

func (v *visit) deliveryRow(e webhook.Endpoint, d *webhook.Delivery) deliveryRow {
	row := deliveryRow{
		URL:       v.deliveryPath(d, ""),
		ID:        strconv.FormatInt(d.ID, 10),
		Type:      printable([]byte(d.EventType)),
		Status:    v.deliveryState(d.Status),
		Attempts:  v.lang.t("delivery.of-budget", "used", d.Attempts, "budget", d.Budget),
		Created:   v.moment(d.CreatedAt),
		Completed: v.moment(d.CompletedAt),
		Error:     v.lang.rule(string(d.LastError)),
	}
	switch {
	case d.LastStatus != 0:
		row.Answer = strconv.Itoa(d.LastStatus)
	case d.TotalAttempts > 0:
		row.Answer = v.lang.t("delivery.no-answer")
	}
	if d.TotalAttempts > 0 {
		row.Latency = v.lang.latency(d.LastLatency)
	}
	if d.Status == webhook.StatusPending {
		switch {
		case !e.Active:
			row.NextText = v.lang.t("delivery.waits-paused")
		case d.NextAttemptAt.After(v.now):
			row.Next = v.moment(d.NextAttemptAt)
		default:
			row.NextText = v.lang.t("delivery.due")
		}
	}
	return row
}

func (v *visit) deliveryState(s webhook.Status) badge {
	switch s {
	case webhook.StatusDelivered:
		return badge{"good", "check", v.lang.t("status.delivered")}
	case webhook.StatusFailed:
		return badge{"bad", "cross", v.lang.t("status.failed")}
	}
	return badge{"idle", "clock", v.lang.t("status.pending")}
}

type option struct {
	Value, Name string
	Selected    bool
}

type logBody struct {
	Target   string
	Log      string // URL without filters
	Recover  string // URL
	Statuses []option
	Types    []option
	Since    string // as typed
	Until    string // as typed
	Zone     string
	Filtered bool
	Errors   map[string]string

	Rows  []deliveryRow
	Next  string // URL of the page with older ones
	First string // URL of the page with the newest; "" there
	// Newest says in a few words what is on top, for whoever hears the page.
	Newest string
}

// listDeliveries shows the log, newest first. A filter that is no filter is told
// beside its field, and filters nothing.
func listDeliveries(v *visit) error {
	e, err := v.endpoint()
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	query := webhook.DeliveryQuery{
		WorkspaceID: v.workspace, EndpointID: e.ID, Limit: deliveriesPerPage,
		Status: webhook.Status(q.Get("status")), EventType: q.Get("type"), Cursor: q.Get("cursor"),
	}
	body := logBody{
		Target: target(e), Log: v.endpointPath(e.ID, "/deliveries"), Recover: v.endpointPath(e.ID, "/recover"),
		Since: shorten(printable([]byte(q.Get("since"))), 40), Until: shorten(printable([]byte(q.Get("until"))), 40),
		Zone: v.zone(), Errors: make(map[string]string),
	}
	for name, at := range map[string]*time.Time{"since": &query.Since, "until": &query.Until} {
		var ok bool
		if *at, ok = v.parseTime(q.Get(name)); !ok {
			body.Errors[name] = v.lang.t("rule.time")
		}
	}
	body.Statuses, body.Types = v.statusOptions(query.Status), v.typeOptions(query.EventType)
	keep := make(url.Values) // the filters
	for _, name := range []string{"status", "type", "since", "until"} {
		if value := q.Get(name); value != "" && body.Errors[name] == "" {
			keep.Set(name, value)
		}
	}
	body.Filtered = len(keep) > 0
	link := func(cursor string) string {
		values := url.Values{}
		for name, value := range keep {
			values[name] = value
		}
		if cursor != "" {
			values.Set("cursor", cursor)
		}
		if len(values) == 0 {
			return body.Log
		}
		return body.Log + "?" + values.Encode()
	}
	list, err := v.d.Deliveries(v.r.Context(), query)
	if invalid, ok := errors.AsType[*webhook.InvalidError](err); ok {
		body.Errors[strings.TrimPrefix(invalid.Field, "event_")] = v.lang.rule(invalid.Rule)
	} else if err != nil {
		return err
	}
	p := page{Title: v.lang.t("log.title"), Crumbs: v.crumbs(&e), Live: 5}
	if len(body.Errors) > 0 {
		p.Status, p.Live = http.StatusUnprocessableEntity, 0
	}
	if query.Cursor != "" {
		body.First, p.Live = link(""), 0
	}
	if list.Next != "" {
		body.Next = link(list.Next)
	}
	body.Rows = v.deliveryRows(e, list.Deliveries)
	if len(body.Rows) > 0 {
		body.Newest = v.lang.t("log.newest", "id", body.Rows[0].ID, "type", body.Rows[0].Type, "status", body.Rows[0].Status.Text)
	}
	p.Body = body
	v.show("deliveries", p)
	return nil
}

func (v *visit) statusOptions(selected webhook.Status) []option {
	list := []option{{"", v.lang.t("log.any-status"), selected == ""}}
	for _, s := range []webhook.Status{webhook.StatusPending, webhook.StatusDelivered, webhook.StatusFailed} {
		list = append(list, option{string(s), v.deliveryState(s).Text, s == selected})
	}
	return list
}

func (v *visit) typeOptions(selected string) []option {
	list := []option{{"", v.lang.t("log.any-type"), selected == ""}}
	for _, t := range v.d.Catalog().Types() {
		if !t.Planned {
			list = append(list, option{t.Name, t.Name, t.Name == selected})
		}
	}
	if !slices.ContainsFunc(list, func(o option) bool { return o.Selected }) {
		// A type that the catalog no longer has may still be in the log.
		list = append(list, option{selected, shorten(printable([]byte(selected)), 64), true})
	}
	return list
}

// parseTime reads an input of type datetime-local; nothing is the zero time.
func (v *visit) parseTime(typed string) (time.Time, bool) {
	if typed == "" {
		return time.Time{}, true
	}
	for _, form := range []string{inputForm, inputForm + ":05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, typed, v.location); err == nil && t.Year() >= 1970 {
			return t, true
		}
	}
	return time.Time{}, false
}

// zone names the time zone that times are typed and shown in.
func (v *visit) zone() string { return v.now.In(v.location).Format("MST") }
