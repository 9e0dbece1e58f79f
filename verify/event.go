package verify

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook/internal/sig"
)

// An Event is one verified delivery. All of it is signed but what is said to
// come from a header.
type Event struct {
	// DeliveryID names the delivery. It is the same for every attempt and for
	// a manual retry, and another one for each endpoint that an event goes to.
	// It comes from the header X-Webhook-Delivery, else webhook-id, else
	// Elido-Webhook-Id, and is empty if there is none. Only a request signed
	// with [StandardWebhooks] has it signed.
	DeliveryID string

	// EventID names the event, the same for every endpoint: the envelope's
	// "id" or, as the default envelope has none, the header Elido-Webhook-Id.
	// Empty if there is neither.
	EventID string

	// Type says what happened: "link.created".
	Type string

	// WorkspaceID is the workspace in which it happened.
	WorkspaceID int64

	// Timestamp is when it happened. Two events of one second have the same,
	// and a retry comes hours later with the old one: to tell which of two
	// states is newer, compare the data's updated_at.
	Timestamp time.Time

	// Data is the JSON object that belongs to the type.
	Data json.RawMessage

	// Attempt counts the attempts of this delivery from 1, as the header
	// Elido-Delivery-Attempt has it. 0 if that is missing or no number.
	Attempt int

	// SignedAt is when this attempt was signed, in whole seconds.
	SignedAt time.Time

	// Body is the request's body as it was signed.
	Body []byte

	// signatures are the right ones among those that do not cover the
	// delivery id; Once remembers them for that long.
	signatures []string
	remember   time.Duration
}

// event completes what read began.
func (v *Verifier) event(c *claims, header http.Header, body []byte) (Event, error) {
	m, err := v.match(c, header, body)
	if err != nil {
		return Event{}, err
	}
	ev := Event{SignedAt: time.Unix(m.unix, 0).UTC(), Body: body}
	if r := ev.parse(body); r != nil {
		return Event{}, r
	}
	if r := ev.readIDs(header); r != nil {
		return Event{}, r
	}
	for i := range c.count {
		cl := &c.by[i]
		for j := cl.from; j < cl.to; j++ {
			if cl.scheme != StandardWebhooks && m.macs&(1<<j) != 0 {
				ev.signatures = append(ev.signatures, hex.EncodeToString(c.macs[j][:]))
			}
		}
	}
	// A signature made a tolerance ahead of now is good for two of them; the
	// minute is for receivers whose clocks differ.
	ev.remember = 2*v.tolerance() + time.Minute
	return ev, nil
}

// envelope is both envelopes at once. The default one has a number for a
// workspace and "timestamp"; the extended one "ws_<number>", "created_at" and
// an id.
type envelope struct {
	ID          string          `json:"id"`
	Type        string          `json:"type"`
	WorkspaceID json.RawMessage `json:"workspace_id"`
	Data        json.RawMessage `json:"data"`
	Timestamp   *time.Time      `json:"timestamp"`
	CreatedAt   *time.Time      `json:"created_at"`
}

// parse reads the envelope. Members that it does not know may come to be, and
// are left alone.
func (e *Event) parse(body []byte) *refusal {
	var in envelope
	if err := json.Unmarshal(body, &in); err != nil {
		return unreadable("", "the body is not an envelope in JSON")
	}
	if in.Type == "" {
		return unreadable("type", "missing")
	}
	workspace := string(in.WorkspaceID)
	if quoted, ok := strings.CutPrefix(workspace, `"ws_`); ok {
		workspace = strings.TrimSuffix(quoted, `"`)
	}
	id, err := strconv.ParseInt(workspace, 10, 64)
	if err != nil {
		return unreadable("workspace_id", "neither a number nor ws_ and a number")
	}
	if !bytes.HasPrefix(in.Data, []byte("{")) {
		return unreadable("data", "not an object")
	}
	happened := in.Timestamp
	if happened == nil {
		happened = in.CreatedAt
	}
	if happened == nil {
		return unreadable("timestamp", "missing")
	}
	e.EventID, e.Type, e.WorkspaceID = in.ID, in.Type, id
	e.Timestamp, e.Data = happened.UTC(), in.Data
	return nil
}

// readIDs reads what only headers say.
func (e *Event) readIDs(header http.Header) *refusal {
	eventID, present, r := only(header, sig.HeaderEventID)
	if r != nil {
		return r
	}
	// Two ids for one event: whoever filters by the header would not see what
	// whoever filters by the body does.
	if present && e.EventID != "" && eventID != e.EventID {
		return malformed(sig.HeaderEventID, "not the id in the body")
	}
	for _, name := range [...]string{sig.HeaderDelivery, sig.HeaderStandardID, sig.HeaderEventID} {
		id, present, r := only(header, name)
		switch {
		case r != nil:
			return r
		case !present:
			continue
		case !isID(id):
			return malformed(name, "not an id")
		}
		if e.DeliveryID == "" {
			e.DeliveryID = id
		}
	}
	if present {
		e.EventID = eventID
	}
	attempt, _, r := only(header, sig.HeaderAttempt)
	if r != nil {
		return r
	}
	if n, err := strconv.Atoi(attempt); err == nil && n > 0 {
		e.Attempt = n
	}
	return nil
}

func unreadable(member, detail string) *refusal {
	return &refusal{reason: ErrEnvelope, about: member, detail: detail}
}
