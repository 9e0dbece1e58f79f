package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// operation is something that can be asked for, of the ids of one workspace.
type operation struct {
	method string
	path   string
	body   any
	edit   bool
	whole  bool // of the workspace, not of an endpoint in it
}

// operations are all there are, on one endpoint with one delivery.
func operations(workspaceID, endpointID, deliveryID int64, eventID string) []operation {
	all := fmt.Sprintf("/v1/workspaces/%d/webhooks", workspaceID)
	one := fmt.Sprintf("%s/%d", all, endpointID)
	delivery := fmt.Sprintf("%s/deliveries/%d", one, deliveryID)
	settings := object{"url": "https://customer.example/moved", "events": []string{"link.*"}}
	return []operation{
		{"POST", all, settings, true, true},
		{"GET", all, nil, false, true},
		{"GET", all + "/event-types", nil, false, true},
		{"GET", one, nil, false, false},
		{"PUT", one, settings, true, false},
		{"PATCH", one, object{"is_active": true}, true, false},
		{"POST", one + "/rotate-secret", object{"seen_rotations": 0}, true, false},
		{"POST", one + "/test", nil, true, false},
		{"POST", one + "/recover", object{"since": "2026-01-01T00:00:00Z"}, true, false},
		{"POST", one + "/events/" + eventID + "/replay", nil, true, false},
		{"GET", one + "/deliveries", nil, false, false},
		{"GET", delivery, nil, false, false},
		{"POST", delivery + "/retry", nil, true, false},
		{"DELETE", one, nil, true, false}, // the last: the others need the endpoint
	}
}

func TestPermissions(t *testing.T) {
	var answer func(permission string) error
	w := newWorld(t, options{api: httpapi.Config{Authorize: func(r *http.Request, workspaceID int64, permission string) error {
		require.Equal(t, int64(workspace), workspaceID)
		require.NotEmpty(t, r.URL.Path)
		return answer(permission)
	}}})
	e := w.endpoint(workspace)
	eventID, id := w.publish(workspace, `{}`)
	w.deliver()

	for _, o := range operations(workspace, e.ID, id, eventID) {
		need := "workspace.view"
		if o.edit {
			need = "workspace.edit"
		}
		answer = func(permission string) error {
			require.Equal(t, need, permission, o.path)
			return errors.New("user 7 of 10.0.0.7 may not")
		}
		r := w.call(o.method, o.path, o.body).problem(403, "forbidden")
		require.Contains(t, r.raw, need)
		require.NotContains(t, r.raw, "10.0.0.7")

		answer = func(string) error { return fmt.Errorf("session: %w", httpapi.ErrSignedOut) }
		r = w.call(o.method, o.path, o.body).problem(401, "signed-out")
		require.Equal(t, "Bearer", r.header.Get("WWW-Authenticate"))

		answer = func(string) error { return fmt.Errorf("workspace: %w", webhook.ErrNotFound) }
		w.call(o.method, o.path, o.body).problem(404, "not-found")

		answer = func(string) error { return &httpapi.Problem{Status: 503, Title: "Closed for the night"} }
		require.JSONEq(t, `{"title":"Closed for the night","status":503}`, w.call(o.method, o.path, o.body).is(503).raw)

		answer = func(string) error { panic("session secret") }
		r = w.call(o.method, o.path, o.body).problem(500, "internal")
		require.NotContains(t, r.raw, "session secret")
		require.NotContains(t, r.raw, ".go")

		// Who may not is told so, whatever else is wrong.
		answer = func(string) error { return errors.New("no") }
		w.call(o.method, o.path+"?x=y", `{"url":`).problem(403, "forbidden")
	}
	require.NotContains(t, w.log.String(), "session secret")
	require.Contains(t, w.log.String(), "access_test.go", "the log has the stack")

	// Nothing was done.
	after, err := w.Endpoint(t.Context(), workspace, e.ID)
	require.NoError(t, err)
	require.Equal(t, e, after)

	answer = func(string) error { return nil }
	for _, o := range operations(workspace, e.ID, id, eventID) {
		r := w.call(o.method, o.path, o.body)
		require.Truef(t, r.status < 300 || r.status == 409 && strings.HasSuffix(o.path, "retry"), "%s %s: %s", o.method, o.path, r.raw)
	}
}

// The ids of another workspace, and of another endpoint, are not found, and nothing
// happens to what they name.
func TestWhatIsAnothersIsNotFound(t *testing.T) {
	w := newWorld(t, options{})
	theirs := w.endpoint(workspace + 1)
	eventID, id := w.publish(workspace+1, `{}`)
	w.deliver()
	mine := w.endpoint(workspace)
	before, err := w.Delivery(t.Context(), workspace+1, id)
	require.NoError(t, err)

	for _, o := range operations(workspace, theirs.ID, id, eventID) {
		if !o.whole {
			w.call(o.method, o.path, o.body).problem(404, "not-found")
		}
	}
	for _, o := range operations(workspace, mine.ID, id, eventID) {
		if strings.Contains(o.path, "/deliveries/") || strings.Contains(o.path, "/events/") {
			w.call(o.method, o.path, o.body).problem(404, "not-found")
		}
	}
	for _, o := range operations(workspace+1, mine.ID, id, eventID) {
		if !o.whole {
			w.call(o.method, o.path, o.body).problem(404, "not-found")
		}
	}
	after, err := w.Endpoint(t.Context(), workspace+1, theirs.ID)
	require.NoError(t, err)
	require.Equal(t, theirs, after)
	unchanged, err := w.Delivery(t.Context(), workspace+1, id)
	require.NoError(t, err)
	require.Equal(t, before, unchanged)

	// A delivery of the same workspace, asked for at another endpoint of it.
	_, own := w.publish(workspace, `{}`)
	second := w.endpoint(workspace)
	w.deliver()
	w.call("GET", path(second.ID, "/deliveries/", own), nil).problem(404, "not-found")
	w.call("POST", path(second.ID, "/deliveries/", own, "/retry"), nil).problem(404, "not-found")
	w.call("POST", path(mine.ID, "/deliveries/", own, "/retry"), nil).is(202)
}

// A page that is still open when somebody else deleted the endpoint.
func TestWhatWasDeletedMeanwhileIsNotFound(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	eventID, id := w.publish(workspace, `{}`)
	w.deliver()
	require.NoError(t, w.DeleteEndpoint(t.Context(), workspace, e.ID))
	for _, o := range operations(workspace, e.ID, id, eventID) {
		if !o.whole {
			w.call(o.method, o.path, o.body).problem(404, "not-found")
		}
	}
}

// broken is a store that fails in one way after the other.
type broken struct {
	store.Store
	fail func() error
}

func (b *broken) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	if err := b.fail(); err != nil {
		return store.Endpoint{}, err
	}
	return b.Store.Endpoint(ctx, workspaceID, id)
}

func TestFaultsAreNotShown(t *testing.T) {
	st := &broken{memorystore.New(memorystore.Options{}), func() error { return nil }}
	w := newWorld(t, options{store: st})
	e := w.endpoint(workspace)
	for text, c := range map[string]struct {
		status int
		name   string
		fail   func() error
	}{
		"password=hunter2":        {500, "internal", func() error { return errors.New("pq: password=hunter2") }},
		"index out of range":      {500, "internal", func() error { return []error{}[w.Dispatcher.Catalog().Types()[0].Name[0]] }},
		"panic: string":           {500, "internal", func() error { panic("whsec_in-a-panic") }},
		"outcome unknown":         {503, "unavailable", func() error { return store.ErrOutcomeUnknown }},
		"the store is closed":     {503, "unavailable", func() error { return store.ErrClosed }},
		"context deadline exceed": {503, "unavailable", func() error { return context.DeadlineExceeded }},
	} {
		st.fail = c.fail
		for _, o := range operations(workspace, e.ID, 1, "evt_1") {
			if o.method != "PATCH" {
				continue
			}
			r := w.call(o.method, o.path, o.body).problem(c.status, c.name)
			require.NotContains(t, r.raw, text)
			require.NotContains(t, r.raw, "whsec_")
			require.Contains(t, w.log.String(), text)
			require.Contains(t, w.log.String(), r.at("reference"))
		}
	}
	require.NotContains(t, w.log.String(), "whsec_in-a-panic")
}

// A host's slip is no answer without a body, and no way in.
func TestSlipsOfTheHost(t *testing.T) {
	var authorized, limit error
	handler, err := httpapi.New(newWorld(t, options{dispatcher: webhook.Config{
		AllowEndpoint: func(context.Context, webhook.EndpointParams) error { return limit },
	}}).Dispatcher, httpapi.Config{
		Authorize: func(*http.Request, int64, string) error { return authorized },
		Logger:    slog.New(panicking{}),
	})
	require.NoError(t, err)
	ask := func() int {
		r := httptest.NewRequestWithContext(t.Context(), "POST", webhooks, strings.NewReader(`{"url":"https://customer.example/","events":["link.*"]}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.True(t, json.Valid(w.Body.Bytes()))
		return w.Code
	}
	require.Equal(t, 201, ask())
	for _, slip := range []error{(*httpapi.Problem)(nil), (*webhook.InvalidError)(nil), fmt.Errorf("x: %w", (*httpapi.Problem)(nil))} {
		authorized, limit = slip, nil
		require.Contains(t, []int{403, 500}, ask())
		authorized, limit = nil, slip
		require.Equal(t, 500, ask())
	}
}

// panicking is a log handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("log") }

// A page of another site may not use the cookies of who looks at it.
func TestOtherSitesAreRefused(t *testing.T) {
	w := newWorld(t, options{api: httpapi.Config{TrustedOrigins: []string{"https://admin.example"}}})
	e := w.endpoint(workspace)
	eventID, id := w.publish(workspace, `{}`)
	for _, o := range operations(workspace, e.ID, id, eventID) {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site", "Origin", "https://evil.example"},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
			{"Origin", "https://evil.example", "Content-Type", "text/plain"},
		} {
			r := w.call(o.method, o.path, o.body, header...)
			if o.method == "GET" {
				r.is(200)
			} else {
				r.problem(403, "cross-origin")
			}
		}
	}
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "same-origin"},
		{"Sec-Fetch-Site", "none"},
		{"Sec-Fetch-Site", "cross-site", "Origin", "https://admin.example"},
		{"Origin", w.url},
	} {
		w.call("POST", path(e.ID, "/test"), nil, header...).is(202)
	}
}

func TestConfig(t *testing.T) {
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{})
	require.NoError(t, err)
	for field, c := range map[string]struct {
		d *webhook.Dispatcher
		c httpapi.Config
	}{
		"dispatcher":     {nil, httpapi.Config{Authorize: allow}},
		"Authorize":      {d, httpapi.Config{}},
		"TrustedOrigins": {d, httpapi.Config{Authorize: allow, TrustedOrigins: []string{"admin.example"}}},
	} {
		_, err := httpapi.New(c.d, c.c)
		var invalid *webhook.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
	}
	for _, prefix := range []string{"api", "/api/", "/", "//api", "/a/../b", "/{tenant}", "/a b", "/a?b", "/a%2fb", "/ä", "GET /api", "."} {
		_, err := httpapi.New(d, httpapi.Config{Authorize: allow, Prefix: prefix})
		var invalid *webhook.InvalidError
		require.ErrorAs(t, err, &invalid, prefix)
		require.Equal(t, "Prefix", invalid.Field)
	}
}

func TestPrefix(t *testing.T) {
	w := newWorld(t, options{api: httpapi.Config{Prefix: "/my/api-2", Challenge: `Basic realm="x"`, Authorize: func(r *http.Request, _ int64, _ string) error {
		if r.Header.Get("Authorization") == "" {
			return httpapi.ErrSignedOut
		}
		return nil
	}}})
	body := object{"url": "https://customer.example/", "events": []string{"link.*"}}
	r := w.call("POST", "/my/api-2"+webhooks, body).problem(401, "signed-out")
	require.Equal(t, `Basic realm="x"`, r.header.Get("WWW-Authenticate"))
	r = w.call("POST", "/my/api-2"+webhooks, body, "Authorization", "x").is(201)
	require.True(t, strings.HasPrefix(r.header.Get("Location"), "/my/api-2/v1/workspaces/42/webhooks/"))
	w.call("GET", r.header.Get("Location"), nil, "Authorization", "x").is(200)
	w.call("GET", webhooks, nil, "Authorization", "x").problem(404, "not-found")

	// The document is the same for everybody.
	r = w.call("GET", "/my/api-2/v1/openapi.yaml", nil).is(200)
	require.Equal(t, "application/yaml", r.header.Get("Content-Type"))
	require.Contains(t, r.raw, "\nservers:\n  - url: /my/api-2\n")
	require.Contains(t, newWorld(t, options{}).call("GET", "/v1/openapi.yaml", nil).is(200).raw, "\nservers:\n  - url: /\n")
}
