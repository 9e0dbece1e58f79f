package verify_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

func TestEventOfTheDefaultEnvelope(t *testing.T) {
	ts := stamp(0)
	ev, err := newVerifier(t, secret).Event(signV1(secret, ts, body), []byte(body))
	require.NoError(t, err)
	require.Equal(t, "55120", ev.DeliveryID)
	require.Empty(t, ev.EventID)
	require.Equal(t, "link.created", ev.Type)
	require.Equal(t, int64(42), ev.WorkspaceID)
	require.Equal(t, time.Date(2026, 9, 21, 9, 14, 2, 0, time.UTC), ev.Timestamp)
	require.Equal(t, `{"id":91834}`, string(ev.Data))
	require.Zero(t, ev.Attempt)
	require.Equal(t, ts, stampOf(ev.SignedAt))
	require.Equal(t, body, string(ev.Body))
}

func TestEventOfTheExtendedEnvelope(t *testing.T) {
	ts := stamp(-5)
	ev, err := newVerifier(t, secret).Event(signTimed(secret, ts, extended), []byte(extended))
	require.NoError(t, err)
	require.Equal(t, "55120", ev.DeliveryID)
	require.Equal(t, "evt_01", ev.EventID)
	require.Equal(t, "link.created", ev.Type)
	require.Equal(t, int64(42), ev.WorkspaceID)
	require.Equal(t, time.Date(2026, 9, 21, 9, 14, 2, 125_000_000, time.UTC), ev.Timestamp)
	require.Equal(t, `{"id":91834}`, string(ev.Data))
	require.Equal(t, 3, ev.Attempt)
	require.Equal(t, ts, stampOf(ev.SignedAt))
}

func TestEventKeepsNumbersAsTheyAre(t *testing.T) {
	const exact = `{"type":"conversion","workspace_id":9007199254740993,"data":{"value":49.50,"id":1234567890123456789},"timestamp":"2026-09-21T09:14:02Z","later":"added"}`
	ev, err := newVerifier(t, secret).Event(signV1(secret, stamp(0), exact), []byte(exact))
	require.NoError(t, err)
	require.Equal(t, int64(9007199254740993), ev.WorkspaceID)
	require.Equal(t, `{"value":49.50,"id":1234567890123456789}`, string(ev.Data))
}

func TestIDsComeFromHeaders(t *testing.T) {
	ts := stamp(0)
	v := newVerifier(t, secret)
	v1 := without(signV1(secret, ts, body), "X-Webhook-Delivery")
	for _, c := range []struct {
		name            string
		h               http.Header
		body            string
		delivery, event string
		attempt         int
		want            error
	}{
		{name: "none", h: v1},
		{name: "delivery first", h: with(v1, "X-Webhook-Delivery", "1", "webhook-id", "2", "Elido-Webhook-Id", "3"), delivery: "1", event: "3"},
		{name: "then webhook-id", h: with(v1, "webhook-id", "2", "Elido-Webhook-Id", "3"), delivery: "2", event: "3"},
		{name: "then the event's", h: with(v1, "Elido-Webhook-Id", "3"), delivery: "3", event: "3"},
		{name: "the event's, from the body too",
			h: without(signTimed(secret, ts, extended), "X-Webhook-Delivery"), body: extended, delivery: "evt_01", event: "evt_01", attempt: 3},
		{name: "the body's alone", h: without(signTimed(secret, ts, extended), "Elido-Webhook-Id", "Elido-Delivery-Attempt"),
			body: extended, delivery: "55120", event: "evt_01"},
		{name: "the body's and another", h: with(signTimed(secret, ts, extended), "Elido-Webhook-Id", "evt_02"), body: extended, want: verify.ErrMalformedHeader},
		{name: "two", h: merge(v1, http.Header{"X-Webhook-Delivery": {"1", "1"}}), want: verify.ErrMalformedHeader},
		{name: "two event ids", h: merge(v1, http.Header{"Elido-Webhook-Id": {"1", "1"}}), want: verify.ErrMalformedHeader},
		{name: "two attempts", h: merge(v1, http.Header{"Elido-Delivery-Attempt": {"1", "1"}}), want: verify.ErrMalformedHeader},
		{name: "empty", h: with(v1, "X-Webhook-Delivery", ""), want: verify.ErrMalformedHeader},
		{name: "a space", h: with(v1, "X-Webhook-Delivery", "1 2"), want: verify.ErrMalformedHeader},
		{name: "not ASCII", h: with(v1, "X-Webhook-Delivery", "é"), want: verify.ErrMalformedHeader},
		{name: "long", h: with(v1, "X-Webhook-Delivery", strings.Repeat("1", 256)), want: verify.ErrMalformedHeader},
		{name: "not so long", h: with(v1, "X-Webhook-Delivery", strings.Repeat("1", 255)), delivery: strings.Repeat("1", 255)},
		{name: "an attempt that is no number", h: with(v1, "Elido-Delivery-Attempt", "many"), attempt: 0},
		{name: "a negative attempt", h: with(v1, "Elido-Delivery-Attempt", "-1"), attempt: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.body == "" {
				c.body = body
			}
			ev, err := v.Event(c.h, []byte(c.body))
			require.ErrorIs(t, err, c.want)
			require.Equal(t, c.delivery, ev.DeliveryID)
			require.Equal(t, c.event, ev.EventID)
			require.Equal(t, c.attempt, ev.Attempt)
		})
	}
}

func TestNotAnEnvelope(t *testing.T) {
	v := newVerifier(t, secret)
	for _, b := range []string{
		"", "null", "[]", "1", "{}", `"x"`, body + body, body[:len(body)-1], "\ufeff" + body,
		strings.Replace(body, `"link.created"`, `""`, 1),
		strings.Replace(body, `"link.created"`, `7`, 1),
		strings.Replace(body, `42`, `42.5`, 1),
		strings.Replace(body, `42`, `null`, 1),
		strings.Replace(body, `42`, `"42"`, 1),
		strings.Replace(body, `42`, `"ws_"`, 1),
		strings.Replace(body, `42`, `"ws_x"`, 1),
		strings.Replace(body, `42`, `"WS_42"`, 1),
		strings.Replace(body, `42`, `99999999999999999999`, 1),
		strings.Replace(body, `{"id":91834}`, `[]`, 1),
		strings.Replace(body, `{"id":91834}`, `null`, 1),
		strings.Replace(body, `"data"`, `"date"`, 1),
		strings.Replace(body, `"timestamp"`, `"time"`, 1),
		strings.Replace(body, `2026-09-21T09:14:02Z`, `yesterday`, 1),
	} {
		require.NoError(t, v.Verify(signV1(secret, stamp(0), b), []byte(b)))
		_, err := v.Event(signV1(secret, stamp(0), b), []byte(b))
		require.ErrorIs(t, err, verify.ErrEnvelope, "%s", b)
	}
}

func post(h http.Header, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhooks", body)
	r.Header = h
	return r
}

func TestRequestLimitsTheBody(t *testing.T) {
	v := newVerifier(t, secret)
	padded := func(n int) string { return body + strings.Repeat(" ", n-len(body)) }
	type reader struct{ io.Reader } // hides the length
	for _, c := range []struct {
		name string
		max  int64
		size int
		want error
	}{
		{"default, at the limit", 0, 1 << 20, nil},
		{"default, one more", 0, 1<<20 + 1, verify.ErrBodyTooLarge},
		{"at the limit", 200, 200, nil},
		{"one more", 200, 201, verify.ErrBodyTooLarge},
		{"no limit to speak of", 1<<63 - 1, 2 << 20, nil},
		{"nothing", -1, len(body), verify.ErrBodyTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := *v
			v.MaxBody = c.max
			b := padded(c.size)
			h := signV1(secret, stamp(0), b)
			_, err := v.Request(post(h, strings.NewReader(b)))
			require.ErrorIs(t, err, c.want)
			_, err = v.Request(post(h, reader{strings.NewReader(b)}))
			require.ErrorIs(t, err, c.want, "without Content-Length")
		})
	}
	t.Run("limited by somebody else", func(t *testing.T) {
		r := post(signV1(secret, stamp(0), body), strings.NewReader(body))
		r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 10)
		_, err := v.Request(r)
		require.ErrorIs(t, err, verify.ErrBodyTooLarge)
	})
	t.Run("no body", func(t *testing.T) {
		r := post(signV1(secret, stamp(0), ""), nil)
		r.Body = nil
		_, err := v.Request(r)
		require.ErrorIs(t, err, verify.ErrEnvelope)
	})
}

// Headers that rule a request out save reading it.
func TestRequestLooksAtHeadersFirst(t *testing.T) {
	v := newVerifier(t, secret)
	for _, h := range []http.Header{
		{}, signV1(secret, stamp(-1000), body), without(signV1(secret, stamp(0), body), "X-Webhook-Timestamp"),
	} {
		_, err := v.Request(post(h, iotest.ErrReader(errors.New("read"))))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "read the body")
	}
	broken := errors.New("connection reset")
	_, err := v.Request(post(signV1(secret, stamp(0), body), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.Equal(t, http.StatusBadRequest, verify.StatusCode(err))
	r := post(signV1(secret, stamp(0), body), iotest.ErrReader(broken))
	r.ContentLength = 1<<20 + 1
	_, err = v.Request(r)
	require.ErrorIs(t, err, verify.ErrBodyTooLarge, "the length that is announced")
	_, err = new(verify.Verifier).Request(post(signV1(secret, stamp(0), body), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, verify.ErrNoSecret)
}
