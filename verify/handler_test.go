package verify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

func TestHandlerAnswers(t *testing.T) {
	ts := stamp(0)
	good := signV1(secret, ts, body)
	large := strings.Repeat("x", 1<<20+1)
	type want struct {
		status int
		text   string
		err    error
		called bool
	}
	for _, c := range []struct {
		name   string
		method string
		h      http.Header
		body   string
		result error
		want   want
	}{
		{"handled", "POST", good, body, nil, want{200, "", nil, true}},
		{"extended", "POST", signTimed(secret, ts, extended), extended, nil, want{200, "", nil, true}},
		{"standard", "POST", signStandard(secret, ts, body), body, nil, want{200, "", nil, true}},
		{"missing", "POST", headers(), body, nil, want{400, "verify: missing header: no signature", verify.ErrMissingHeader, false}},
		{"missing timestamp", "POST", without(good, "X-Webhook-Timestamp"), body, nil,
			want{400, "verify: missing header: X-Webhook-Timestamp", verify.ErrMissingHeader, false}},
		{"malformed", "POST", with(good, "X-Webhook-Timestamp", "soon"), body, nil,
			want{400, "verify: malformed header: X-Webhook-Timestamp: not a Unix time in plain digits", verify.ErrMalformedHeader, false}},
		{"stale", "POST", signV1(secret, stamp(-400), body), body, nil,
			want{400, "verify: stale timestamp: X-Webhook-Timestamp", verify.ErrStale, false}},
		{"future", "POST", signV1(secret, stamp(400), body), body, nil,
			want{400, "verify: timestamp in the future: X-Webhook-Timestamp", verify.ErrFuture, false}},
		{"signature", "POST", signV1(other, ts, body), body, nil, want{401, "verify: wrong signature", verify.ErrSignature, false}},
		{"changed body", "POST", good, body + " ", nil, want{401, "verify: wrong signature", verify.ErrSignature, false}},
		{"large", "POST", signV1(secret, ts, large), large, nil, want{413, "verify: body too large", verify.ErrBodyTooLarge, false}},
		{"envelope", "POST", signV1(secret, ts, "{}"), "{}", nil, want{400, "verify: not an event: type: missing", verify.ErrEnvelope, false}},
		{"handler fails", "POST", good, body, errors.New("dsn=postgres://secret"), want{500, "Internal Server Error", nil, true}},
		{"in progress", "POST", good, body, fmt.Errorf("x: %w", verify.ErrInProgress), want{503, "Service Unavailable", verify.ErrInProgress, true}},
		{"replayed", "POST", good, body, verify.ErrReplayed, want{409, "Conflict", verify.ErrReplayed, true}},
		{"get", "GET", good, body, nil, want{405, "Method Not Allowed", nil, false}},
		{"put", "PUT", good, body, nil, want{405, "Method Not Allowed", nil, false}},
		{"head", "HEAD", good, body, nil, want{405, "Method Not Allowed", nil, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVerifier(t, secret)
			var told error
			v.OnError = func(_ *http.Request, err error) { told = err }
			called := false
			handler := v.Handler(func(ctx context.Context, ev verify.Event) error {
				called = true
				require.Equal(t, "55120", ev.DeliveryID)
				require.Equal(t, "link.created", ev.Type)
				require.NoError(t, ctx.Err())
				return c.result
			})
			r := httptest.NewRequest(c.method, "/webhooks", strings.NewReader(c.body))
			r.Header = c.h
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			require.Equal(t, c.want.status, w.Code)
			require.Equal(t, c.want.text, strings.TrimSpace(w.Body.String()))
			require.Equal(t, c.want.called, called)
			switch {
			case c.want.err != nil:
				require.ErrorIs(t, told, c.want.err)
				require.Equal(t, c.want.status, verify.StatusCode(told))
			case c.result != nil:
				require.Equal(t, c.result, told)
			default:
				require.NoError(t, told)
			}
			if c.want.status == http.StatusMethodNotAllowed {
				require.Equal(t, "POST", w.Header().Get("Allow"))
			}
		})
	}
}

func TestHandlerOfTheZeroVerifier(t *testing.T) {
	w := httptest.NewRecorder()
	new(verify.Verifier).Handler(func(context.Context, verify.Event) error {
		t.Error("called")
		return nil
	}).ServeHTTP(w, post(signV1("", stamp(0), body), strings.NewReader(body)))
	require.Equal(t, http.StatusInternalServerError, w.Code)
}

// Through a real server: what is too long is not read to its end.
func TestHandlerEndsLongBodies(t *testing.T) {
	v := newVerifier(t, secret)
	v.MaxBody = 1000
	srv := httptest.NewServer(v.Handler(func(context.Context, verify.Event) error { return nil }))
	defer srv.Close()
	send := func(b string, length int64) *http.Response {
		r, err := http.NewRequest(http.MethodPost, srv.URL, io.LimitReader(strings.NewReader(b), int64(len(b))))
		require.NoError(t, err)
		r.ContentLength = length
		r.Header = signV1(secret, stamp(0), b)
		resp, err := srv.Client().Do(r)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	require.Equal(t, 200, send(body, int64(len(body))).StatusCode)
	require.Equal(t, 200, send(body, -1).StatusCode)
	resp := send(body+strings.Repeat(" ", 1000), -1)
	require.Equal(t, 413, resp.StatusCode)
	require.True(t, resp.Close, "the connection ends")
}

func TestHandlerWithoutAFunc(t *testing.T) {
	require.PanicsWithValue(t, "verify: Handler(nil)", func() { newVerifier(t, secret).Handler(nil) })
}

func TestStatusCode(t *testing.T) {
	for err, want := range map[error]int{
		nil:                      200,
		verify.ErrMissingHeader:  400,
		verify.ErrStale:          400,
		verify.ErrFuture:         400,
		verify.ErrEnvelope:       400,
		verify.ErrSignature:      401,
		verify.ErrReplayed:       409,
		verify.ErrBodyTooLarge:   413,
		verify.ErrNoSecret:       500,
		errors.New("anything"):   500,
		verify.ErrInProgress:     503,
		context.DeadlineExceeded: 500,
	} {
		require.Equal(t, want, verify.StatusCode(err), "%v", err)
	}
}
