package webhook

import (
	"bytes"
	"encoding/json"
	"time"
)

// ExtendedProfile returns a Config with the extended profile: 7 attempts over 31
// hours, the Elido-Signature header, [EnvelopeExtended], deliveries of one link in
// order, the traffic event types, and endpoints that are degraded after 3 failed
// attempts in a row and paused after 50. Each of these is a setting of its own
// and can be replaced.
func ExtendedProfile() Config {
	catalog := DefaultCatalog()
	must(catalog.Add(TrafficEvents()...))
	return Config{
		Catalog:  catalog,
		Envelope: EnvelopeExtended,
		Signer:   Signer{Schemes: []Scheme{ElidoTimed}},
		Retry: RetryPolicy{Delays: []time.Duration{
			time.Second, 30 * time.Second, 5 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
		}},
		OrderingKey: LinkOrderingKey,
		Health:      HealthPolicy{DegradeAfter: 3, DegradeFor: 24 * time.Hour, DegradedAttempts: 3, PauseAfter: 50},
	}
}

// LinkOrderingKey returns the id of the link that an event's data is about: its
// link_id, or the id of its link; empty without either. It is meant for
// Config.OrderingKey.
func LinkOrderingKey(_ string, data json.RawMessage) string {
	if !bytes.Contains(data, []byte(`link`)) && !bytes.Contains(data, []byte(`\u`)) {
		return ""
	}
	var v struct {
		LinkID json.RawMessage `json:"link_id"`
		Link   json.RawMessage `json:"link"`
	}
	if json.Unmarshal(data, &v) != nil {
		return ""
	}
	if key := scalar(v.LinkID); key != "" {
		return key
	}
	var link struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(v.Link, &link) // what is no object has no id
	return scalar(link.ID)
}

// scalar returns a JSON string or number as text; empty for anything else, and
// for what is too long for a key.
func scalar(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) != nil {
		var number json.Number
		if json.Unmarshal(v, &number) != nil {
			return ""
		}
		text = number.String()
	}
	if checkKey("", text) != nil {
		return ""
	}
	return text
}
