package webhook

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/elido-app/webhook/internal/scrub"
)

// Event is what a publisher says happened.
type Event struct {
	// Type is a name from the [Catalog], one that is not planned.
	Type string
	// WorkspaceID is the tenant it happened in, positive. Only that tenant's
	// endpoints get it.
	WorkspaceID int64
	// Data must make a JSON object. A [json.RawMessage] is sent as it is, but
	// for secret members and the white space around it; anything else goes
	// through encoding/json, which leaves <, > and & as they are. Publishing
	// keeps no reference to it.
	Data any
	// Time is when it happened, kept to the millisecond. Defaults to now.
	Time time.Time
	// OrderingKey makes deliveries to one endpoint that share it go strictly
	// one after the other, in the order published: the id of a link, for
	// example. At most 255 bytes without control characters. Defaults to none.
	OrderingKey string
	// IdempotencyKey makes publishing safe to repeat within the workspace: the
	// same content under the same key is stored once, other content under it is
	// refused. Content is Type, OrderingKey, the scrubbed Data, and Time if
	// given. At most 255 bytes without control characters. Defaults to none.
	IdempotencyKey string
}

// TestEvent is the type of the event a test send makes. It is in every
// [Catalog], and is neither published nor subscribed to.
const TestEvent = "test"

const testData = `{"message":"Test event from Elido"}`

const maxKeyLength = 255 // in bytes, of ordering and idempotency keys

// prepared is an event ready to be stored.
type prepared struct {
	data       []byte    // scrubbed, no white space around; may be the publisher's own memory
	payload    []byte    // the envelope; nobody else's memory
	digest     [32]byte  // of the content; zero without an idempotency key
	occurredAt time.Time // UTC, whole milliseconds
	matches    []string  // the type and its prefixes; shared, not to be changed
}

// prepare checks and scrubs an event and makes its body. A nil env stands for
// [EnvelopeV1]. The error is an *[InvalidError].
func (c *Catalog) prepare(e Event, env Envelope, id string, now time.Time) (prepared, error) {
	if err := c.checkPublish(e.Type); err != nil {
		return prepared{}, err
	}
	return c.types[e.Type].prepare(e, c.hooks, env, id, now)
}

// prepareTest makes the event of a test send.
func (c *Catalog) prepareTest(workspaceID int64, env Envelope, id string, now time.Time) (prepared, error) {
	e := Event{Type: TestEvent, WorkspaceID: workspaceID, Data: json.RawMessage(testData)}
	return c.compile(testType).prepare(e, nil, env, id, now)
}

func (t *compiledType) prepare(e Event, hooks []ScrubFunc, env Envelope, id string, now time.Time) (prepared, error) {
	if e.WorkspaceID <= 0 {
		return prepared{}, &InvalidError{Field: "workspace_id", Rule: "must be positive"}
	}
	if err := checkKey("ordering_key", e.OrderingKey); err != nil {
		return prepared{}, err
	}
	if err := checkKey("idempotency_key", e.IdempotencyKey); err != nil {
		return prepared{}, err
	}
	if e.Time.IsZero() {
		now = wholeMillis(now)
	} else {
		if err := checkTime(e.Time); err != nil {
			return prepared{}, err
		}
		e.Time = wholeMillis(e.Time)
		now = e.Time
	}
	data, err := marshalData(e.Data)
	if err != nil {
		return prepared{}, err
	}
	if data, err = t.scrub(data, hooks); err != nil {
		return prepared{}, err
	}
	data = bytes.Trim(data, " \t\r\n")
	payload, err := env.enclose(EnvelopeFields{
		ID: id, Type: e.Type, WorkspaceID: e.WorkspaceID, Data: data, Time: now,
	})
	if err != nil {
		return prepared{}, err
	}
	p := prepared{data: data, payload: payload, occurredAt: now, matches: t.matches}
	if e.IdempotencyKey != "" {
		p.digest = digest(e.Type, e.OrderingKey, data, e.Time)
	}
	return p, nil
}

// checkKey checks an ordering or idempotency key, which may be empty.
func checkKey(field, key string) error {
	if len(key) > maxKeyLength {
		return &InvalidError{Field: field, Rule: fmt.Sprintf("is %d bytes long, over the limit of %d", len(key), maxKeyLength)}
	}
	for i, r := range key {
		if unicode.IsControl(r) {
			return &InvalidError{Field: field, Rule: fmt.Sprintf("has a control character at byte %d", i)}
		}
	}
	if !utf8.ValidString(key) {
		return &InvalidError{Field: field, Rule: "is not valid UTF-8"}
	}
	return nil
}

func wholeMillis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// marshalData returns what a publisher gave as JSON, not yet checked.
func marshalData(data any) ([]byte, error) {
	switch v := data.(type) {
	case nil:
		return nil, &InvalidError{Field: "data", Rule: "is required"}
	case json.RawMessage:
		return v, nil
	case *json.RawMessage:
		if v == nil {
			return nil, &InvalidError{Field: "data", Rule: "is required"}
		}
		return *v, nil
	case []byte: // encoding/json would make it a string in base64
		return nil, &InvalidError{Field: "data", Rule: "is a []byte; convert JSON to a json.RawMessage"}
	}
	raw, err := encode(data)
	if err == nil {
		return raw, nil
	}
	rule := fmt.Sprintf("%T cannot be encoded as JSON", data)
	if unsupported, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		rule += fmt.Sprintf(": it has a %v in it", unsupported.Type)
	}
	if _, ok := errors.AsType[panicError](err); ok {
		rule = fmt.Sprintf("%T panicked when encoded as JSON", data)
	}
	return nil, &InvalidError{Field: "data", Rule: rule, cause: err}
}

// scrubObject removes the members that names has from data, which must be a
// JSON object.
func scrubObject(data []byte, names scrub.Names) ([]byte, error) {
	out, err := scrub.Object(data, names)
	if err != nil {
		return nil, &InvalidError{Field: "data", Rule: "must be a JSON object: " + err.Error()}
	}
	return out, nil
}

// panicError is the value of a panic in the host's code.
type panicError struct{ value any }

func (e panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// digest identifies what was published under an idempotency key: each part
// after its length, then the milliseconds of t, unless the publisher gave none.
// Stores keep digests, so a change of form would make repeats conflict.
func digest(eventType, orderingKey string, data []byte, t time.Time) [32]byte {
	h := sha256.New()
	var size [8]byte
	for _, part := range []string{eventType, orderingKey} {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(size[:], uint64(len(data)))
	h.Write(size[:])
	h.Write(data)
	if !t.IsZero() {
		binary.BigEndian.PutUint64(size[:], uint64(t.UnixMilli()))
		h.Write(size[:])
	}
	return [32]byte(h.Sum(nil))
}

// newEventID returns "evt_" and 26 lower-case digits of Crockford's base 32:
// 48 bits of Unix milliseconds, so that ids sort by time, and 80 random bits.
func newEventID(now time.Time) string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	src := eventEntropy.Get().(*entropy)
	hi, lo := src.next()
	eventEntropy.Put(src)
	// 130 bits hold the 128: hi has the time and 16 random ones.
	hi |= uint64(now.UnixMilli()) << 16
	id := [30]byte{'e', 'v', 't', '_'}
	for i := len(id) - 1; i >= 4; i-- {
		id[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(id[:])
}

// isEventID reports whether s looks like an event's id, so that it is safe to ask
// any database for.
func isEventID(s string) bool {
	rest, ok := strings.CutPrefix(s, "evt_")
	return ok && len(s) <= 64 && strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// entropy is a stock of random bytes: one system call for many ids.
type entropy struct {
	buf  [640]byte
	used int
}

// next returns 80 random bits, 16 of them in hi.
func (e *entropy) next() (hi, lo uint64) {
	if e.used == len(e.buf) {
		rand.Read(e.buf[:]) // never fails
		e.used = 0
	}
	b := e.buf[e.used : e.used+10]
	e.used += 10
	return uint64(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint64(b[2:])
}

var eventEntropy = sync.Pool{New: func() any { e := new(entropy); e.used = len(e.buf); return e }}

// quote shows an event type in a message; the length keeps a stray document
// out of logs.
func quote(name string) string {
	if len(name) > maxNameLength {
		return fmt.Sprintf("a name of %d bytes", len(name))
	}
	return strconv.QuoteToASCII(name)
}
