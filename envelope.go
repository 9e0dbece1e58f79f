package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/elido-app/webhook/internal/scrub"
)

// EnvelopeFields is what an [Envelope] is made of.
type EnvelopeFields struct {
	ID          string // of the event: "evt_…"
	Type        string
	WorkspaceID int64
	// Data is a JSON object, scrubbed, without white space around it. It must
	// not be changed.
	Data json.RawMessage
	Time time.Time // when the event happened: UTC, whole milliseconds
}

// Envelope makes the body of an event's signed deliveries, a JSON object. It is
// called once for each event, when that is published, and must be safe for
// concurrent use. An error, a panic or a body that is not a JSON object refuses
// the event.
type Envelope func(EnvelopeFields) ([]byte, error)

// EnvelopeV1 is the default [Envelope]: an object of exactly "type",
// "workspace_id", "data" and "timestamp", in this order. Data is put in as it
// is; the timestamp is in UTC and cut to whole seconds (RFC 3339).
func EnvelopeV1(f EnvelopeFields) ([]byte, error) {
	const frame = len(`{"type":"","workspace_id":-9223372036854775808,"data":,"timestamp":"2006-01-02T15:04:05Z"}`)
	if err := checkTime(f.Time); err != nil {
		return nil, err
	}
	b := make([]byte, 0, frame+len(f.Type)+len(f.Data))
	b = append(b, `{"type":`...)
	b = appendText(b, f.Type)
	b = append(b, `,"workspace_id":`...)
	b = strconv.AppendInt(b, f.WorkspaceID, 10)
	b = append(b, `,"data":`...)
	b = append(b, f.Data...)
	b = append(b, `,"timestamp":"`...)
	b = f.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05Z")
	return append(b, `"}`...), nil
}

// EnvelopeExtended is the [Envelope] of the extended profile: an object of
// "id", "type", "created_at" (RFC 3339, UTC, milliseconds), "data" and
// "workspace_id" (the string "ws_" and the number), in this order.
func EnvelopeExtended(f EnvelopeFields) ([]byte, error) {
	const frame = len(`{"id":"","type":"","created_at":"2006-01-02T15:04:05.000Z","data":,"workspace_id":"ws_-9223372036854775808"}`)
	if err := checkTime(f.Time); err != nil {
		return nil, err
	}
	b := make([]byte, 0, frame+len(f.ID)+len(f.Type)+len(f.Data))
	b = append(b, `{"id":`...)
	b = appendText(b, f.ID)
	b = append(b, `,"type":`...)
	b = appendText(b, f.Type)
	b = append(b, `,"created_at":"`...)
	b = f.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, `","data":`...)
	b = append(b, f.Data...)
	b = append(b, `,"workspace_id":"ws_`...)
	b = strconv.AppendInt(b, f.WorkspaceID, 10)
	return append(b, `"}`...), nil
}

// checkTime refuses what RFC 3339 cannot write, and the years before Unix time
// began, which are the mark of a time never set.
func checkTime(t time.Time) error {
	if year := t.UTC().Year(); year < 1970 || year > 9999 {
		return &InvalidError{Field: "time", Rule: "must lie in the years 1970 to 9999"}
	}
	return nil
}

// appendText appends a JSON string.
func appendText(b []byte, text string) []byte {
	for _, c := range []byte(text) {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := encode(text) // a string always encodes
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// encoder is an encoding/json encoder with its buffer, to be used again.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false)
	return e
}}

// encode returns v as JSON, with <, > and & as they are. A panic in one of v's
// methods is an error.
func encode(v any) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			data, err = nil, panicError{r}
		}
	}()
	e := encoders.Get().(*encoder)
	if err := e.json.Encode(v); err != nil {
		return nil, err
	}
	data = bytes.Clone(bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")))
	if e.buf.Cap() <= 1<<16 {
		e.buf.Reset()
		encoders.Put(e)
	}
	return data, nil
}

// enclose makes an event's body.
func (env Envelope) enclose(f EnvelopeFields) (body []byte, err error) {
	if env == nil {
		return EnvelopeV1(f)
	}
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, &InvalidError{Field: "data", Rule: "the envelope function panicked", cause: panicError{r}}
		}
	}()
	body, err = env(f)
	if _, ok := errors.AsType[*InvalidError](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, &InvalidError{Field: "data", Rule: "the envelope function failed", cause: err}
	}
	if err := scrub.Valid(body); err != nil {
		return nil, &InvalidError{Field: "data", Rule: "the envelope function must return a JSON object: " + err.Error()}
	}
	return bytes.Clone(body), nil // it may be part of the publisher's data
}
