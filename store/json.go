package store

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// What a delivery log shows is JSON and text, whatever bytes it came as: these
// methods are for people and dashboards. A store that keeps records as JSON
// converts them to a type without methods first (type row Delivery), and gets
// every byte.

// MarshalJSON shows the payload and the message as the JSON they are, errors as
// text (with U+FFFD for what is not UTF-8) and the latency as last_latency_ms, in
// milliseconds. A payload that is no JSON is shown as text, and if it is not UTF-8
// its bytes are in payload_base64 too; the same for message.
func (d Delivery) MarshalJSON() ([]byte, error) {
	type fields Delivery
	return json.Marshal(struct {
		fields
		LastLatency   *struct{}       `json:"last_latency,omitempty"` // hides the field below
		LastLatencyMS float64         `json:"last_latency_ms,omitempty"`
		LastError     string          `json:"last_error,omitempty"`
		Payload       json.RawMessage `json:"payload,omitempty"`
		PayloadBytes  []byte          `json:"payload_base64,omitempty"`
		Message       json.RawMessage `json:"message,omitempty"`
		MessageBytes  []byte          `json:"message_base64,omitempty"`
	}{fields(d), nil, milliseconds(d.LastLatency), string(d.LastError),
		document(d.Payload), notText(d.Payload), document(d.Message), notText(d.Message)})
}

// MarshalJSON shows error and response as text (with U+FFFD for what is not
// UTF-8) and the latency as latency_ms, in milliseconds. A response that is not
// UTF-8 is in response_base64 too, byte for byte.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type fields Attempt
	return json.Marshal(struct {
		fields
		Latency       *struct{} `json:"latency,omitempty"` // hides the field below
		LatencyMS     float64   `json:"latency_ms"`
		Error         string    `json:"error,omitempty"`
		Response      string    `json:"response,omitempty"`
		ResponseBytes []byte    `json:"response_base64,omitempty"`
	}{fields(a), nil, milliseconds(a.Latency), string(a.Error), string(a.Response), notText(a.Response)})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// document returns bytes as a JSON value: as they are if they are one, otherwise
// as text.
func document(b []byte) json.RawMessage {
	if len(b) == 0 || json.Valid(b) && utf8.Valid(b) { // json.Valid takes strings of any bytes
		return b
	}
	text, _ := json.Marshal(string(b)) // a string always marshals
	return text
}

// notText returns bytes that text cannot show, and nothing for others.
func notText(b []byte) []byte {
	if utf8.Valid(b) {
		return nil
	}
	return b
}
