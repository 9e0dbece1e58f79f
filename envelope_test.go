package webhook

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var golden = EnvelopeFields{
	ID:          "evt_01k5n4q9w2c0ffee0123456789",
	Type:        "link.created",
	WorkspaceID: 42,
	Data:        json.RawMessage(`{"id":91834}`),
	Time:        time.Date(2026, 9, 21, 11, 14, 2, 987_654_321, time.FixedZone("", 2*60*60)),
}

func TestEnvelopeGolden(t *testing.T) {
	tests := []struct {
		name     string
		envelope Envelope
		want     string
	}{
		{"default", EnvelopeV1, `{"type":"link.created","workspace_id":42,"data":{"id":91834},"timestamp":"2026-09-21T09:14:02Z"}`},
		{"nil", nil, `{"type":"link.created","workspace_id":42,"data":{"id":91834},"timestamp":"2026-09-21T09:14:02Z"}`},
		{"extended", EnvelopeExtended, `{"id":"evt_01k5n4q9w2c0ffee0123456789","type":"link.created","created_at":"2026-09-21T09:14:02.987Z","data":{"id":91834},"workspace_id":"ws_42"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body, err := test.envelope.enclose(golden)
			require.NoError(t, err)
			require.Equal(t, test.want, string(body))
		})
	}
}

func TestEnvelopeAtTheEdges(t *testing.T) {
	f := golden
	f.Type, f.WorkspaceID = "a\"<\n\u00e9", math.MaxInt64
	f.Time = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	body, err := EnvelopeV1(f)
	require.NoError(t, err)
	require.Equal(t, `{"type":"a\"<\n`+"\u00e9"+`","workspace_id":9223372036854775807,"data":{"id":91834},"timestamp":"9999-12-31T23:59:59Z"}`, string(body))

	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		f.Time = at
		for _, envelope := range []Envelope{EnvelopeV1, EnvelopeExtended} {
			_, err := envelope(f)
			require.EqualError(t, err, "webhook: time: must lie in the years 1970 to 9999")
		}
	}
}

func TestEnvelopeOfTheHost(t *testing.T) {
	errHost := errors.New("secret text")
	tests := []struct {
		name     string
		envelope Envelope
		want     string
		cause    error
	}{
		{"error", func(EnvelopeFields) ([]byte, error) { return nil, errHost },
			"webhook: data: the envelope function failed", errHost},
		{"panic", func(EnvelopeFields) ([]byte, error) { panic("secret text") },
			"webhook: data: the envelope function panicked", panicError{"secret text"}},
		{"nothing", func(EnvelopeFields) ([]byte, error) { return nil, nil },
			"webhook: data: the envelope function must return a JSON object: no object at byte 0", nil},
		{"an array", func(EnvelopeFields) ([]byte, error) { return []byte("[]"), nil },
			"webhook: data: the envelope function must return a JSON object: not an object at byte 0", nil},
		{"a rule of its own", func(EnvelopeFields) ([]byte, error) { return nil, &InvalidError{Field: "data", Rule: "has no id"} },
			"webhook: data: has no id", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body, err := test.envelope.enclose(golden)
			require.EqualError(t, err, test.want)
			require.Nil(t, body)
			require.Equal(t, test.cause, errors.Unwrap(err))

			e := Event{Type: golden.Type, WorkspaceID: 1, Data: golden.Data}
			_, err = DefaultCatalog().prepare(e, test.envelope, golden.ID, publishedAt)
			require.EqualError(t, err, test.want)
		})
	}

	t.Run("returning its data", func(t *testing.T) {
		f := golden
		f.Data = json.RawMessage(`{"id":1}`)
		body, err := Envelope(func(f EnvelopeFields) ([]byte, error) { return f.Data, nil }).enclose(f)
		require.NoError(t, err)
		f.Data[1] = 'x'
		require.Equal(t, `{"id":1}`, string(body), "the body is the publisher's own memory")
	})
}

// Both envelopes say what they were given, to their precision.
func TestEnvelopeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := EnvelopeFields{
			ID:          rapid.String().Draw(t, "id"),
			Type:        rapid.String().Draw(t, "type"),
			WorkspaceID: rapid.Int64().Draw(t, "workspace"),
			Data:        json.RawMessage(`{"id":49.50}`),
			Time:        time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "time")),
		}
		body, err := EnvelopeV1(f)
		require.NoError(t, err)
		var v1 struct {
			Type        string
			WorkspaceID int64 `json:"workspace_id"`
			Data        json.RawMessage
			Timestamp   time.Time
		}
		require.NoError(t, json.Unmarshal(body, &v1))
		require.Equal(t, f.Type, v1.Type)
		require.Equal(t, f.WorkspaceID, v1.WorkspaceID)
		require.Equal(t, f.Data, v1.Data)
		require.Equal(t, f.Time.Unix(), v1.Timestamp.Unix())
		require.Zero(t, v1.Timestamp.Nanosecond())

		body, err = EnvelopeExtended(f)
		require.NoError(t, err)
		var extended struct {
			ID, Type  string
			CreatedAt time.Time `json:"created_at"`
			Data      json.RawMessage
		}
		require.NoError(t, json.Unmarshal(body, &extended))
		require.Equal(t, f.ID, extended.ID)
		require.Equal(t, f.Type, extended.Type)
		require.Equal(t, f.Data, extended.Data)
		require.Equal(t, f.Time.UnixMilli(), extended.CreatedAt.UnixMilli())
	})
}
