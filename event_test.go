package webhook

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/scrub"
)

var publishedAt = time.Date(2026, 9, 21, 9, 14, 2, 481_375_000, time.UTC)

func TestPrepare(t *testing.T) {
	at := time.Date(2026, 9, 21, 11, 14, 2, 999_999_999, time.FixedZone("", 2*60*60))
	e := Event{
		Type: "link.created", WorkspaceID: 42, Time: at,
		Data: json.RawMessage("\n {\"id\":91834, \"Password_hash\":\"x\", \"v\":49.50}\t"),
	}
	p, err := DefaultCatalog().prepare(e, nil, "evt_1", publishedAt)
	require.NoError(t, err)
	require.Equal(t, `{"id":91834, "v":49.50}`, string(p.data))
	require.Equal(t, `{"type":"link.created","workspace_id":42,"data":{"id":91834, "v":49.50},"timestamp":"2026-09-21T09:14:02Z"}`, string(p.payload))
	require.Equal(t, time.Date(2026, 9, 21, 9, 14, 2, 999_000_000, time.UTC), p.occurredAt)
	require.Equal(t, []string{"link.created", "link.*"}, p.matches)
	require.Zero(t, p.digest)

	e.Time = time.Time{}
	p, err = DefaultCatalog().prepare(e, EnvelopeExtended, "evt_1", publishedAt)
	require.NoError(t, err)
	require.Equal(t, `{"id":"evt_1","type":"link.created","created_at":"2026-09-21T09:14:02.481Z","data":{"id":91834, "v":49.50},"workspace_id":"ws_42"}`, string(p.payload))
	require.Equal(t, publishedAt.Truncate(time.Millisecond), p.occurredAt)
}

func TestPrepareTest(t *testing.T) {
	p, err := DefaultCatalog().prepareTest(42, nil, "evt_1", publishedAt)
	require.NoError(t, err)
	require.Equal(t, `{"type":"test","workspace_id":42,"data":{"message":"Test event from Elido"},"timestamp":"2026-09-21T09:14:02Z"}`, string(p.payload))
	require.Equal(t, []string{"test"}, p.matches)
	_, err = new(Catalog).prepareTest(42, nil, "evt_1", publishedAt)
	require.NoError(t, err)
}

func TestPrepareData(t *testing.T) {
	raw := json.RawMessage(`{"a":"<&>", "n":1.0}`)
	type inner struct {
		HTML  string          `json:"html"`
		Token string          `json:"token"`
		Raw   json.RawMessage `json:"raw"`
		Big   int64           `json:"big"`
	}
	tests := []struct {
		name string
		data any
		want string
	}{
		{"raw", raw, `{"a":"<&>", "n":1.0}`},
		{"pointer to raw", &raw, `{"a":"<&>", "n":1.0}`},
		{"map", map[string]any{"b": "<&>", "a": nil}, `{"a":null,"b":"<&>"}`},
		{"struct", &inner{"<b>&", "secret", json.RawMessage(`{"x":49.50,"token":"t"}`), math.MaxInt64},
			`{"html":"<b>&","raw":{"x":49.50},"big":9223372036854775807}`},
		{"marshaler", marshaler(func() ([]byte, error) { return []byte(`{ "a": 1.0 }`), nil }), `{"a":1.0}`},
		{"only secrets", map[string]any{"token": 1, "password_hash": 2}, `{}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := DefaultCatalog().prepare(Event{Type: "audit.event", WorkspaceID: 1, Data: test.data}, nil, "", publishedAt)
			require.NoError(t, err)
			require.Equal(t, test.want, string(p.data))
		})
	}
}

func TestEncodeKeepsNothing(t *testing.T) {
	first, err := encode("first")
	require.NoError(t, err)
	for range 10 {
		_, err := encode("other")
		require.NoError(t, err)
	}
	require.Equal(t, `"first"`, string(first))
}

// marshaler is data with a MarshalJSON method of the host's.
type marshaler func() ([]byte, error)

func (m marshaler) MarshalJSON() ([]byte, error) { return m() }

func TestPrepareRefuses(t *testing.T) {
	valid := Event{Type: "link.created", WorkspaceID: 42, Data: json.RawMessage(`{"id":1}`)}
	type recursive struct{ Self *recursive }
	loop := new(recursive)
	loop.Self = loop
	var noRaw *json.RawMessage
	data := func(v any) func(*Event) { return func(e *Event) { e.Data = v } }
	tests := []struct {
		name   string
		change func(*Event)
		want   string
	}{
		{"no type", func(e *Event) { e.Type = "" }, "webhook: type: is required"},
		{"unknown type", func(e *Event) { e.Type = "link.create" }, `webhook: type: "link.create" is an unknown event type; did you mean "link.created"?`},
		{"planned type", func(e *Event) { e.Type = "qr.generated" }, `webhook: type: "qr.generated" is planned, and not published yet`},
		{"no workspace", func(e *Event) { e.WorkspaceID = 0 }, "webhook: workspace_id: must be positive"},
		{"negative workspace", func(e *Event) { e.WorkspaceID = -1 }, "webhook: workspace_id: must be positive"},
		{"long ordering key", func(e *Event) { e.OrderingKey = strings.Repeat("k", 256) }, "webhook: ordering_key: is 256 bytes long, over the limit of 255"},
		{"long idempotency key", func(e *Event) { e.IdempotencyKey = strings.Repeat("\u00e9", 128) }, "webhook: idempotency_key: is 256 bytes long, over the limit of 255"},
		{"NUL in a key", func(e *Event) { e.IdempotencyKey = "a\x00" }, "webhook: idempotency_key: has a control character at byte 1"},
		{"C1 in a key", func(e *Event) { e.OrderingKey = "ab\u0085" }, "webhook: ordering_key: has a control character at byte 2"},
		{"a key that is not UTF-8", func(e *Event) { e.OrderingKey = "\xff" }, "webhook: ordering_key: is not valid UTF-8"},
		{"early time", func(e *Event) { e.Time = time.Time{}.Add(time.Hour) }, "webhook: time: must lie in the years 1970 to 9999"},
		{"late time", func(e *Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "webhook: time: must lie in the years 1970 to 9999"},
		{"no data", data(nil), "webhook: data: is required"},
		{"nil pointer to raw", data(noRaw), "webhook: data: is required"},
		{"empty raw", data(json.RawMessage{}), "webhook: data: must be a JSON object: no object at byte 0"},
		{"raw null", data(json.RawMessage("null")), "webhook: data: must be a JSON object: not an object at byte 0"},
		{"malformed raw", data(json.RawMessage(`{"a":"canary",}`)), "webhook: data: must be a JSON object: expected a member name at byte 14"},
		{"bytes", data([]byte(`{"a":1}`)), "webhook: data: is a []byte; convert JSON to a json.RawMessage"},
		{"string", data("canary"), "webhook: data: must be a JSON object: not an object at byte 0"},
		{"slice", data([]int{1}), "webhook: data: must be a JSON object: not an object at byte 0"},
		{"nil map", data(map[string]any(nil)), "webhook: data: must be a JSON object: not an object at byte 0"},
		{"channel", data(make(chan int)), "webhook: data: chan int cannot be encoded as JSON: it has a chan int in it"},
		{"cycle", data(loop), "webhook: data: *webhook.recursive cannot be encoded as JSON"},
		{"NaN", data(map[string]any{"a": math.NaN()}), "webhook: data: map[string]interface {} cannot be encoded as JSON"},
		{"marshaler's error", data(marshaler(func() ([]byte, error) { return nil, errors.New("canary") })), "webhook: data: webhook.marshaler cannot be encoded as JSON"},
		{"marshaler's panic", data(marshaler(func() ([]byte, error) { panic("canary") })), "webhook: data: webhook.marshaler panicked when encoded as JSON"},
		{"marshaler's invalid UTF-8", data(marshaler(func() ([]byte, error) { return []byte("{\"a\":\"\xff\"}"), nil })), "webhook: data: must be a JSON object: invalid UTF-8 at byte 6"},
	}
	catalog := DefaultCatalog()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := valid
			test.change(&e)
			p, err := catalog.prepare(e, nil, "evt_1", publishedAt)
			require.EqualError(t, err, test.want)
			require.IsType(t, &InvalidError{}, err)
			require.Zero(t, p)
		})
	}
	valid.OrderingKey, valid.IdempotencyKey = strings.Repeat("\u20ac", 85), strings.Repeat("k", 255)
	_, err := catalog.prepare(valid, nil, "evt_1", publishedAt)
	require.NoError(t, err, "keys of 255 bytes")
}

func TestPrepareTellsTheCause(t *testing.T) {
	errHost := errors.New("canary")
	e := Event{Type: "link.created", WorkspaceID: 1, Data: marshaler(func() ([]byte, error) { return nil, errHost })}
	_, err := DefaultCatalog().prepare(e, nil, "", publishedAt)
	require.ErrorIs(t, err, errHost)
	e.Data = marshaler(func() ([]byte, error) { panic("canary") })
	_, err = DefaultCatalog().prepare(e, nil, "", publishedAt)
	require.EqualError(t, errors.Unwrap(err), "panic: canary")
}

// The digest is of the content: each part counts, and no part can stand in for
// another.
func TestDigest(t *testing.T) {
	base := Event{Type: "link.created", WorkspaceID: 1, OrderingKey: "a", IdempotencyKey: "k", Data: json.RawMessage(`{"id":1}`)}
	now := publishedAt
	of := func(change func(*Event)) [32]byte {
		e := base
		change(&e)
		now = now.Add(time.Hour)
		p, err := DefaultCatalog().prepare(e, nil, newEventID(now), now)
		require.NoError(t, err)
		return p.digest
	}
	first := of(func(*Event) {})
	require.NotZero(t, first)
	for name, change := range map[string]func(*Event){
		"a secret":           func(e *Event) { e.Data = json.RawMessage(`{"id":1,"password_hash":"x"}`) },
		"white space around": func(e *Event) { e.Data = json.RawMessage(" {\"id\":1}\n") },
		"nothing":            func(*Event) {},
		"the key":            func(e *Event) { e.IdempotencyKey = "other" },
		"an encoded map":     func(e *Event) { e.Data = map[string]int{"id": 1} },
	} {
		require.Equal(t, first, of(change), name)
	}
	seen := map[[32]byte]string{first: "base"}
	for name, change := range map[string]func(*Event){
		"type":            func(e *Event) { e.Type = "link.updated" },
		"ordering key":    func(e *Event) { e.OrderingKey = "b" },
		"no ordering key": func(e *Event) { e.OrderingKey = "" },
		"data":            func(e *Event) { e.Data = json.RawMessage(`{"id":2}`) },
		"spelling":        func(e *Event) { e.Data = json.RawMessage(`{"id":1.0}`) },
		"time":            func(e *Event) { e.Time = publishedAt },
		"another time":    func(e *Event) { e.Time = publishedAt.Add(time.Millisecond) },
		"time at zero":    func(e *Event) { e.Time = time.Unix(0, 0) },
	} {
		sum := of(change)
		require.NotContains(t, seen, sum, name)
		seen[sum] = name
	}
	require.Equal(t, of(func(e *Event) { e.Time = publishedAt }), of(func(e *Event) {
		e.Time = publishedAt.Truncate(time.Millisecond).In(time.FixedZone("", 3600))
	}), "one millisecond, two spellings")
	// Stores keep digests: this one must never change.
	golden := digest("link.created", "a", []byte(`{"id":1}`), time.UnixMilli(1))
	require.Equal(t, "07b88a89bb97b4888f80b0e2832771f8755cba6dfa0ee1c3636156b34ad57acb", hex.EncodeToString(golden[:]))
	require.NotEqual(t, digest("ab", "c", nil, time.Time{}), digest("a", "bc", nil, time.Time{}))
	require.NotEqual(t, digest("a", "", []byte("b"), time.Time{}), digest("a", "b", nil, time.Time{}))
}

func TestNewEventID(t *testing.T) {
	form := regexp.MustCompile(`^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$`)
	require.Equal(t, "evt_0000000000", newEventID(time.UnixMilli(0))[:14])
	require.Equal(t, "evt_01hf7yat00", newEventID(time.UnixMilli(1_700_000_000_000))[:14], "the time of a ULID")
	require.Equal(t, "evt_7zzzzzzzzz", newEventID(time.UnixMilli(1<<48 - 1))[:14])

	var ids sync.Map
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			last := ""
			for i := range 1000 {
				id := newEventID(publishedAt.Add(time.Duration(i) * time.Millisecond))
				if _, twice := ids.LoadOrStore(id, true); twice || !form.MatchString(id) || id <= last {
					t.Errorf("id %q after %q, twice: %t", id, last, twice)
				}
				last = id
			}
		})
	}
	group.Wait()
}

// All 80 random bits are there: over many ids each takes both values.
func TestNewEventIDIsRandom(t *testing.T) {
	digits := make([]map[byte]bool, 30)
	for i := range digits {
		digits[i] = make(map[byte]bool)
	}
	for range 2000 {
		id := newEventID(publishedAt)
		for i := range id {
			digits[i][id[i]] = true
		}
	}
	for i := range digits {
		if i < 14 {
			require.Len(t, digits[i], 1, "place %d", i)
		} else {
			require.Len(t, digits[i], 32, "place %d", i)
		}
	}
}

// What the envelope says of data is what scrubbing left, byte for byte.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"id":12345678901234567890,"Password_Hash":"a","x":1.0,"dup":1,"dup":2,"html":"<&>"}`), false)
	f.Add([]byte("\t{ \"token\" : 1 , \"a\" : \"\\ud800\" } \n"), true)
	f.Add([]byte(`[]`), false)
	catalog := DefaultCatalog()
	names := scrub.NewNames("password_hash", "token")
	f.Fuzz(func(t *testing.T, data []byte, extended bool) {
		envelope := Envelope(EnvelopeV1)
		before, after := `{"type":"audit.event","workspace_id":42,"data":`, `,"timestamp":"2026-09-21T09:14:02Z"}`
		if extended {
			envelope = EnvelopeExtended
			before, after = `{"id":"evt_1","type":"audit.event","created_at":"2026-09-21T09:14:02.481Z","data":`, `,"workspace_id":"ws_42"}`
		}
		scrubbed, scrubErr := scrub.Object(data, names)
		p, err := catalog.prepare(Event{Type: "audit.event", WorkspaceID: 42, Data: json.RawMessage(data)}, envelope, "evt_1", publishedAt)
		require.Equal(t, scrubErr == nil, err == nil, "%v", err)
		if err != nil {
			return
		}
		scrubbed = bytes.TrimSpace(scrubbed)
		require.Equal(t, before+string(scrubbed)+after, string(p.payload))
		require.Equal(t, string(scrubbed), string(p.data))
		require.True(t, json.Valid(p.payload))
	})
}

func BenchmarkPrepare(b *testing.B) {
	catalog := DefaultCatalog().clone()
	sample, _ := catalog.Lookup("link.created")
	var decoded map[string]any
	require.NoError(b, json.Unmarshal(sample.Sample, &decoded))
	for _, bench := range []struct {
		name     string
		data     any
		key      string
		envelope Envelope
	}{
		{"raw", sample.Sample, "", nil},
		{"raw with idempotency key", sample.Sample, "k", nil},
		{"raw, extended", sample.Sample, "", EnvelopeExtended},
		{"map", decoded, "", nil},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := Event{Type: "link.created", WorkspaceID: 42, Data: bench.data, IdempotencyKey: bench.key}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := catalog.prepare(e, bench.envelope, "evt_1", publishedAt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("event id", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			newEventID(publishedAt)
		}
	})
}
