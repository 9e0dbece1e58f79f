package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/elido-app/webhook"
)

type deliveryBody struct {
	deliveryRow
	Target      string
	EventID     string
	OrderingKey string
	CanRetry    bool
	RetryURL    string
	Interrupted int
	Payload     []token
	PayloadText string // to copy
	PayloadSize string
	Message     []token // as sent, where that is not the payload
	History     []attemptView
	Summary     string // of the state, for whoever hears the page
}

type attemptView struct {
	Number   int
	Status   badge
	Answer   string
	Error    string
	Latency  string
	Started  moment
	Headers  []header
	Response string
	Cut      bool
	Latest   bool
}

func showDelivery(v *visit) error {
	e, d, err := v.delivery()
	if err != nil {
		return err
	}
	return v.showDelivery(e, d, http.StatusOK, nil)
}

func (v *visit) showDelivery(e webhook.Endpoint, d webhook.Delivery, status int, n *notice) error {
	attempts, err := v.d.Attempts(v.r.Context(), v.workspace, d.ID)
	if err != nil {
		return err
	}
	row := v.deliveryRow(e, &d)
	body := deliveryBody{
		deliveryRow: row,
		Target:      target(e),
		EventID:     printable([]byte(d.EventID)),
		OrderingKey: printable([]byte(d.OrderingKey)),
		CanRetry:    d.Status != webhook.StatusPending,
		RetryURL:    v.deliveryPath(&d, "/retry"),
		Interrupted: d.Interruptions,
		Payload:     document(d.Payload),
		PayloadText: printable(d.Payload),
		PayloadSize: v.lang.bytes(len(d.Payload)),
		Message:     document(d.Message),
		Summary:     row.Status.Text + ", " + row.Attempts,
	}
	for i, a := range slices.Backward(attempts) { // the last one is what people look for
		body.History = append(body.History, v.attempt(&a, i == len(attempts)-1))
	}
	p := page{
		Title: row.Type, Notice: n, Status: status, Body: body,
		Crumbs: v.crumbs(&e, crumb{v.lang.t("log.title"), v.endpointPath(e.ID, "/deliveries")}),
	}
	if d.Status == webhook.StatusPending {
		p.Live = 3
	}
	if v.r.Method == http.MethodPost {
		p.URL = row.URL
	}
	v.show("delivery", p)
	return nil
}

// attempt shows an attempt. That it was the one which delivered is told by the
// lack of an error.
func (v *visit) attempt(a *webhook.Attempt, latest bool) attemptView {
	view := attemptView{
		Number:   a.Number,
		Status:   badge{"bad", "cross", v.lang.t("status.failed")},
		Answer:   v.lang.t("delivery.no-answer"),
		Error:    v.lang.rule(string(a.Error)),
		Latency:  v.lang.latency(a.Latency),
		Started:  v.moment(a.StartedAt),
		Headers:  headers(a.Headers),
		Response: printable(a.Response),
		Cut:      a.ResponseCut,
		Latest:   latest,
	}
	if len(a.Error) == 0 {
		view.Status = v.deliveryState(webhook.StatusDelivered)
	}
	if a.Status != 0 {
		view.Answer = strconv.Itoa(a.Status)
		if name := http.StatusText(a.Status); name != "" {
			view.Answer += " " + name
		}
	}
	return view
}

// headers are in order of name.
func headers(h map[string]string) []header {
	list := make([]header, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		value := h[name]
		if confidential(name) {
			value = mask
		}
		list = append(list, header{printable([]byte(name)), printable([]byte(value))})
	}
	return list
}

// retryDelivery sends a delivery again. One that is pending already, because
// somebody was quicker or clicked twice, is shown as it is.
func retryDelivery(v *visit) error {
	_, d, err := v.delivery()
	if err != nil {
		return err
	}
	_, err = v.d.Retry(v.r.Context(), v.workspace, d.ID)
	if errors.Is(err, webhook.ErrPending) {
		e, d, err := v.delivery()
		if err != nil {
			return err
		}
		return v.showDelivery(e, d, http.StatusConflict, &notice{"warn", v.lang.t("retry.pending")})
	}
	if errors.Is(err, webhook.ErrNotFound) {
		return errNoDelivery
	}
	if err != nil {
		return err
	}
	return v.done(v.deliveryPath(&d, ""), "retried")
}
