package httpapi

import (
	"errors"
	"net/http"

	"github.com/elido-app/webhook"
)

// listDeliveries returns a page of an endpoint's log, the newest first.
func (a *api) listDeliveries(q *request) (answer, error) {
	var errs []FieldError
	query := webhook.DeliveryQuery{
		WorkspaceID: q.workspaceID,
		EndpointID:  q.endpointID,
		Status:      webhook.Status(q.query.Get("status")),
		EventType:   q.query.Get("type"),
		Since:       q.time(&errs, "since"),
		Until:       q.time(&errs, "until"),
		Limit:       q.count(&errs, "limit", 1, pageMost, pageMost),
		Offset:      q.count(&errs, "offset", 0, idMost, 0),
		Cursor:      q.query.Get("cursor"),
	}
	for _, name := range []string{"status", "type", "cursor"} {
		if q.query.Has(name) && q.query.Get(name) == "" {
			errs = append(errs, FieldError{Field: name, Detail: "must not be empty; leave it out"})
		}
	}
	if len(errs) > 0 {
		return answer{}, problemParameters(errs...)
	}
	if _, err := a.d.Endpoint(q.Context(), q.workspaceID, q.endpointID); err != nil {
		return answer{}, err
	}
	page, err := a.d.Deliveries(q.Context(), query)
	var invalid *webhook.InvalidError
	if errors.As(err, &invalid) {
		name := invalid.Field
		if name == "event_type" {
			name = "type"
		}
		return answer{}, problemParameters(FieldError{Field: name, Detail: invalid.Rule})
	}
	if page.Deliveries == nil {
		page.Deliveries = []webhook.Delivery{}
	}
	return answer{status: http.StatusOK, body: page}, err
}

// delivery returns the delivery that the path names: one of this endpoint.
func (a *api) delivery(q *request) (webhook.Delivery, error) {
	v, err := a.d.Delivery(q.Context(), q.workspaceID, q.deliveryID)
	if err == nil && v.EndpointID != q.endpointID {
		err = webhook.ErrNotFound
	}
	return v, err
}

// getDelivery returns one delivery with its attempts.
func (a *api) getDelivery(q *request) (answer, error) {
	v, err := a.delivery(q)
	if err != nil {
		return answer{}, err
	}
	attempts, err := a.d.Attempts(q.Context(), q.workspaceID, q.deliveryID)
	if attempts == nil {
		attempts = []webhook.Attempt{}
	}
	return answer{status: http.StatusOK, body: struct {
		Delivery webhook.Delivery  `json:"delivery"`
		Attempts []webhook.Attempt `json:"attempts"`
	}{v, attempts}}, err
}

// requeued is a delivery that is going to be attempted.
type requeued struct {
	Delivery webhook.Delivery `json:"delivery"`
}

// retryDelivery sends a delivery again.
func (a *api) retryDelivery(q *request) (answer, error) {
	if err := q.body.end(); err != nil {
		return answer{}, err
	}
	if _, err := a.delivery(q); err != nil {
		return answer{}, err
	}
	v, err := a.d.Retry(q.Context(), q.workspaceID, q.deliveryID)
	return answer{status: http.StatusAccepted, body: requeued{v}}, err
}

// replayEvent sends an event again to one endpoint.
func (a *api) replayEvent(q *request) (answer, error) {
	if err := q.body.end(); err != nil {
		return answer{}, err
	}
	v, err := a.d.Replay(q.Context(), q.workspaceID, q.endpointID, q.PathValue("event_id"))
	return answer{status: http.StatusAccepted, body: requeued{v}}, err
}

// recoverDeliveries sends again what failed since an instant.
func (a *api) recoverDeliveries(q *request) (answer, error) {
	q.body.require("since", "is required: when the outage began")
	since := q.body.time("since")
	if err := q.body.end(); err != nil {
		return answer{}, err
	}
	n, err := a.d.Recover(q.Context(), q.workspaceID, q.endpointID, since)
	return answer{status: http.StatusAccepted, body: struct {
		Requeued int `json:"requeued"`
	}{n}}, err
}
