package httpapi

import (
	"encoding/json"
	"net/http"
)

// eventType is an event type as the API shows it: which members are secret is not
// for customers.
type eventType struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	Subscribable bool            `json:"subscribable"`
	Planned      bool            `json:"planned"`
	Form         bool            `json:"form"`
	Ticked       bool            `json:"ticked"`
	Sample       json.RawMessage `json:"sample,omitempty"`
}

// listEventTypes returns what there is to subscribe to.
func (a *api) listEventTypes(*request) (answer, error) {
	list := []eventType{}
	for _, t := range a.d.Catalog().Types() {
		list = append(list, eventType{t.Name, t.Description, t.Subscribable(), t.Planned, t.Form, t.Ticked, t.Sample})
	}
	return answer{status: http.StatusOK, body: struct {
		EventTypes []eventType `json:"event_types"`
	}{list}}, nil
}
