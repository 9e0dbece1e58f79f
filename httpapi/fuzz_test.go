package httpapi_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// FuzzAPI asks for anything. Whatever that is, the answer is one that the document
// has, in JSON, and no fault.
func FuzzAPI(f *testing.F) {
	for _, o := range operations(workspace, 1, 1, "evt_1") {
		body := ""
		if o.body != nil {
			b, err := json.Marshal(o.body)
			require.NoError(f, err)
			body = string(b)
		}
		f.Add(o.method, o.path, "", body)
	}
	f.Add("GET", webhooks+"/1/deliveries", "limit=1&offset=2&status=failed&type=link.created&since=2026-11-30T09:00:00Z&until=2026-11-30T09:00:00Z&cursor=MS4x", "")
	f.Add("POST", webhooks, "", `{"kind":"telegram","config":{"chat_id":"-1","bot_token":"1:x"},"headers":{"X":"y"},"description":"\ud83d\udd17","rate_limit":1e3,"max_in_flight":1}`)
	logger := slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		d, err := webhook.New(memorystore.New(memorystore.Options{FirstDeliveryID: 1}), webhook.Config{Logger: logger})
		require.NoError(t, err)
		_, _, err = d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://customer.example/", Events: []string{"link.*"}})
		require.NoError(t, err)
		_, err = d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)})
		require.NoError(t, err)
		api, err := httpapi.New(d, httpapi.Config{Authorize: allow, Logger: logger})
		require.NoError(t, err)

		u, err := url.ParseRequestURI(path)
		if err != nil || u.Scheme != "" || u.Host != "" {
			return // the server answers these
		}
		u.RawQuery = query
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", strings.NewReader(body))
		r.Method, r.URL, r.RequestURI = method, u, path
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		text := w.Body.Bytes()
		require.Less(t, w.Code, 500, "%s", text)
		require.True(t, utf8.Valid(text))
		switch {
		case w.Code == http.StatusNoContent:
			require.Empty(t, text)
		case w.Code >= 400:
			var p httpapi.Problem
			require.NoError(t, json.Unmarshal(text, &p), "%s", text)
			require.Equal(t, w.Code, p.Status)
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			require.Less(t, len(text), 32<<10)
		case strings.HasSuffix(u.Path, ".yaml"):
		default:
			require.True(t, json.Valid(text), "%s", text)
		}
		if w.Code/100 == 2 && body != "" && (method == "PUT" || method == "PATCH") {
			// What was taken, encoding/json takes too.
			require.NoError(t, json.Unmarshal([]byte(body), new(map[string]any)))
		}
	})
}
