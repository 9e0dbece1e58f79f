package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
)

func TestEndpointLife(t *testing.T) {
	w := newWorld(t, options{})
	r := w.call("POST", webhooks, object{
		"url": "https://customer.example/hooks", "events": []string{"link.*", "domain.verified"}, "description": "<b>orders</b>",
		"headers": object{"Authorization": "Bearer x"}, "max_in_flight": 4, "rate_limit": 2.5,
	}).is(201)
	secret, _ := r.at("secret").(string)
	require.True(t, strings.HasPrefix(secret, "whsec_"), r.raw)
	id, err := r.at("endpoint", "id").(json.Number).Int64()
	require.NoError(t, err)
	require.Equal(t, path(id), r.header.Get("Location"))
	require.Equal(t, "<b>orders</b>", r.at("endpoint", "description"))
	require.NotContains(t, r.raw, "<b>", "escaped, for whoever puts it into a page")
	require.Equal(t, "event", r.at("endpoint", "kind"))
	require.Equal(t, true, r.at("endpoint", "is_active"))
	require.Equal(t, json.Number("2.5"), r.at("endpoint", "rate_limit"))

	r = w.call("GET", path(id), nil).is(200)
	require.NotContains(t, r.raw, secret)
	require.Nil(t, r.at("secret"))
	require.Equal(t, []any{"link.*", "domain.verified"}, r.at("endpoint", "events"))

	r = w.call("PATCH", path(id), object{"is_active": false, "kind": "event"}).is(200)
	require.Equal(t, false, r.at("endpoint", "is_active"))
	require.Equal(t, json.Number("4"), r.at("endpoint", "max_in_flight"), "what is not named stays")

	// A replacement sets what is not named to its default, but does not resume.
	r = w.call("PUT", path(id), object{"url": "https://customer.example/hooks", "events": []string{"link.created"}}).is(200)
	require.Equal(t, false, r.at("endpoint", "is_active"))
	require.Equal(t, "", r.at("endpoint", "description"))
	for _, name := range []string{"headers", "max_in_flight", "rate_limit"} {
		require.Nil(t, r.at("endpoint", name), r.raw)
	}
	r = w.call("PUT", path(id), object{"url": "https://other.example/", "events": []string{"link.created"}, "is_active": true}).is(200)
	require.Equal(t, true, r.at("endpoint", "is_active"))
	require.Equal(t, "https://other.example/", r.at("endpoint", "url"))
	require.NotContains(t, r.raw, secret)

	w.call("DELETE", path(id), nil).is(204)
	w.call("DELETE", path(id), nil).problem(404, "not-found")
	r = w.call("GET", webhooks, nil).is(200)
	require.JSONEq(t, `{"endpoints":[]}`, r.raw)
}

func TestReplacingNeedsWhatCreatingDoes(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	w.call("PUT", path(e.ID), object{"events": []string{"link.*"}}).problem(422, "invalid", "url")
	w.call("PUT", path(e.ID), object{"url": "https://customer.example/"}).problem(422, "invalid", "events")
	w.call("PUT", path(e.ID), object{}).problem(422, "invalid", "url")
	w.call("PATCH", path(e.ID), object{}).is(200)
	w.call("PATCH", path(e.ID), object{"kind": "siem"}).problem(422, "invalid", "kind")
	after, err := w.Endpoint(t.Context(), workspace, e.ID)
	require.NoError(t, err)
	require.Equal(t, e.Events, after.Events)
	require.Equal(t, e.URL, after.URL)
}

// What is secret is in the answer of the call that made it, and in no other; what a
// customer brings is in none.
func TestSecretsAreShownOnce(t *testing.T) {
	w := newWorld(t, options{})
	const own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secrets := []string{own, "discordtoken-discordtoken", "123456789:AAaaBBbbCCccDDddEEeeFFffGGgg12345-_", "0123456789abcdef0123456789abcdef"}
	ids := map[string]string{}
	for kind, body := range map[string]object{
		"event":    {"url": "https://customer.example/", "events": []string{"link.*"}, "secret": own},
		"siem":     {"url": "https://customer.example/", "secret": own},
		"discord":  {"url": "https://discord.com/api/webhooks/1234567890/" + secrets[1], "events": []string{"link.*"}},
		"telegram": {"config": object{"chat_id": "-100123", "bot_token": secrets[2]}, "events": []string{"link.*"}},
		"sentry":   {"config": object{"dsn": "https://" + secrets[3] + "@o1.ingest.sentry.io/42"}, "events": []string{"link.broken"}},
	} {
		body["kind"] = kind
		r := w.call("POST", webhooks, body).is(201)
		ids[kind] = fmt.Sprint(r.at("endpoint", "id"))
		if kind == "event" || kind == "siem" {
			require.Equal(t, own, r.at("secret"), kind)
			continue
		}
		require.Nil(t, r.at("secret"), kind)
		for _, s := range secrets {
			require.NotContains(t, r.raw, s, kind)
		}
	}
	require.Equal(t, []any{}, w.call("GET", webhooks+"/"+ids["siem"], nil).at("endpoint", "events"))

	// An update may leave credentials out, or give a Discord URL back as it is read.
	w.call("PUT", webhooks+"/"+ids["discord"], object{"url": "https://discord.com/api/webhooks/1234567890/***", "events": []string{"link.*"}}).is(200)
	r := w.call("PUT", webhooks+"/"+ids["telegram"], object{"events": []string{"link.created"}, "description": "x"}).is(200)
	require.Equal(t, "-100123", r.at("endpoint", "config", "chat_id"))

	for kind, id := range ids {
		for _, r := range []reply{
			w.call("GET", webhooks, nil).is(200),
			w.call("GET", webhooks+"/"+id, nil).is(200),
			w.call("PATCH", webhooks+"/"+id, object{"description": "changed"}).is(200),
			w.call("POST", webhooks, object{"kind": kind, "url": own, "config": object{"bot_token": secrets[2], "dsn": secrets[3]}}).is(422),
			w.call("PATCH", webhooks+"/"+id, object{"config": object{"bot_token": secrets[1], "dsn": secrets[1]}}).is(422),
		} {
			for _, s := range secrets {
				require.NotContains(t, r.raw, s, kind)
			}
		}
	}
	for _, s := range secrets {
		require.NotContains(t, w.log.String(), s)
	}
}

func TestRotating(t *testing.T) {
	w := newWorld(t, options{})
	r := w.call("POST", webhooks, object{"url": "https://customer.example/", "events": []string{"link.*"}}).is(201)
	first := r.at("secret")
	rotate := fmt.Sprintf("%s/%v/rotate-secret", webhooks, r.at("endpoint", "id"))

	r = w.call("POST", rotate, object{"seen_rotations": 0}).is(200)
	second := r.at("secret").(string)
	require.NotEqual(t, first, second)
	require.Equal(t, json.Number("1"), r.at("endpoint", "rotations"))
	require.NotEmpty(t, r.at("endpoint", "previous_until"))

	r = w.call("POST", rotate, object{"seen_rotations": 0}).problem(409, "secret-rotated")
	require.NotContains(t, r.raw, "whsec_")
	for body, field := range map[string]string{
		`{}`:                                    "seen_rotations",
		`{"seen_rotations":null}`:               "seen_rotations",
		`{"seen_rotations":"1"}`:                "seen_rotations",
		`{"seen_rotations":-1}`:                 "seen_rotations",
		`{"seen_rotations":0.5}`:                "seen_rotations",
		`{"seen_rotations":1e300}`:              "seen_rotations",
		`{"seen_rotations":1,"secret":"short"}`: "secret",
		`{"seen_rotations":1,"secret":""}`:      "secret",
		`{"seen_rotations":1,"secret":" white space is not allowed "}`:                  "secret",
		`{"seen_rotations":1,"secret":"nul\u0000nul\u0000nul\u0000nul\u0000nul\u0000"}`: "secret",
		`{"seen_rotations":1,"no_overlap":"yes"}`:                                       "no_overlap",
		`{"seen_rotations":1,"overlap":false}`:                                          "overlap",
	} {
		w.call("POST", rotate, body).problem(422, "invalid", field)
	}
	w.call("POST", rotate, nil).problem(400, "malformed")

	const own = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	r = w.call("POST", rotate, object{"seen_rotations": 1.0, "no_overlap": true, "secret": own}).is(200)
	require.Equal(t, own, r.at("secret"))
	require.Nil(t, r.at("endpoint", "previous_until"))

	discord, _, err := w.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: workspace, Kind: webhook.KindDiscord, URL: "https://discord.com/api/webhooks/1/abc", Events: []string{"link.*"},
	})
	require.NoError(t, err)
	w.call("POST", path(discord.ID, "/rotate-secret"), object{"seen_rotations": 0}).problem(409, "endpoint-unsigned")
}

// A button that is pressed many times at once rotates once, and the one answer with
// the secret is right.
func TestManyRotationsAtOnceAreOne(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r := w.call("POST", path(e.ID, "/rotate-secret"), object{"seen_rotations": 0})
			mu.Lock()
			defer mu.Unlock()
			got[r.status]++
		})
	}
	wg.Wait()
	require.Equal(t, map[int]int{200: 1, 409: 19}, got)
}

func TestPagesOfEndpoints(t *testing.T) {
	w := newWorld(t, options{})
	var ids []int64
	for range 5 {
		ids = append(ids, w.endpoint(workspace).ID)
	}
	w.endpoint(workspace + 1)
	var got []int64
	cursor := ""
	for pages := 0; ; pages++ {
		target := webhooks + "?limit=2"
		if cursor != "" {
			target += "&cursor=" + cursor
		}
		var page struct {
			Endpoints []webhook.Endpoint `json:"endpoints"`
			Next      string             `json:"next"`
		}
		w.call("GET", target, nil).is(200).into(&page)
		for _, e := range page.Endpoints {
			got = append(got, e.ID)
		}
		if cursor = page.Next; cursor == "" {
			require.Equal(t, 2, pages)
			break
		}
	}
	require.Equal(t, ids, got)
	for range 96 {
		w.endpoint(workspace)
	}
	var page struct {
		Endpoints []webhook.Endpoint `json:"endpoints"`
		Next      string             `json:"next"`
	}
	w.call("GET", webhooks, nil).is(200).into(&page)
	require.Len(t, page.Endpoints, 100)
	require.NotEmpty(t, page.Next)
	w.call("GET", webhooks+"?cursor=9007199254740991", nil).is(200)
}

func TestTestSend(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	for _, body := range []any{nil, "{}"} {
		r := w.call("POST", path(e.ID, "/test"), body).is(202)
		w.deliver()
		one := w.call("GET", path(e.ID, "/deliveries/", r.at("delivery_id")), nil).is(200)
		require.Equal(t, "test", one.at("delivery", "event_type"))
		require.Equal(t, r.at("event_id"), one.at("delivery", "event_id"))
		require.Equal(t, "delivered", one.at("delivery", "status"))
		require.Equal(t, "Test event from Elido", one.at("delivery", "payload", "data", "message"))
	}
	w.call("POST", path(e.ID, "/test"), `{"to":"all"}`).problem(422, "invalid", "to")
	w.call("POST", path(e.ID, "/test"), `[]`).problem(400, "malformed")
	_, err := w.PauseEndpoint(t.Context(), workspace, e.ID)
	require.NoError(t, err)
	w.call("POST", path(e.ID, "/test"), nil).problem(409, "endpoint-paused")
}

func TestEventTypes(t *testing.T) {
	catalog := webhook.DefaultCatalog()
	require.NoError(t, catalog.Add(webhook.EventType{Name: "invoice.paid", Description: "An invoice was paid.", Secret: []string{"iban"}, Sample: json.RawMessage(`{"total":49.50}`)}))
	w := newWorld(t, options{dispatcher: webhook.Config{Catalog: catalog}})
	r := w.call("GET", webhooks+"/event-types", nil).is(200)
	require.Contains(t, r.raw, `{"name":"invoice.paid","description":"An invoice was paid.","subscribable":true,"planned":false,"form":false,"ticked":false,"sample":{"total":49.50}}`)
	require.Contains(t, r.raw, `"name":"link.created"`)
	require.Contains(t, r.raw, `"name":"click.created","description":"`)
	require.NotContains(t, r.raw, "iban")
	require.Equal(t, len(w.Catalog().Types()), len(r.at("event_types").([]any)))
}

func TestLimitsOfTheHost(t *testing.T) {
	var limit error
	w := newWorld(t, options{dispatcher: webhook.Config{AllowEndpoint: func(context.Context, webhook.EndpointParams) error { return limit }}})
	body := object{"url": "https://customer.example/", "events": []string{"link.*"}}
	w.call("POST", webhooks, body).is(201)

	limit = &httpapi.Problem{Status: 402, Type: "https://host.example/limits", Title: "Plan limit", Detail: "The plan has room for 1 endpoint."}
	r := w.call("POST", webhooks, body).is(402)
	require.JSONEq(t, `{"type":"https://host.example/limits","title":"Plan limit","status":402,"detail":"The plan has room for 1 endpoint."}`, r.raw)

	limit = &webhook.InvalidError{Field: "endpoints", Rule: "are at most 1 in this plan"}
	r = w.call("POST", webhooks, body).problem(422, "invalid", "endpoints")
	require.NotContains(t, r.raw, "pointer", "it is no member of the body")

	limit = fmt.Errorf("dial tcp 10.0.0.7:5432: connection refused")
	r = w.call("POST", webhooks, body).problem(500, "internal")
	require.NotContains(t, r.raw, "10.0.0.7")
	require.Contains(t, w.log.String(), "10.0.0.7")
	require.Contains(t, w.log.String(), r.at("reference"))

	// A problem that is half filled in.
	limit = &httpapi.Problem{Status: 200}
	require.JSONEq(t, `{"title":"Internal Server Error","status":500}`, w.call("POST", webhooks, body).is(500).raw)
	limit = &httpapi.Problem{Status: 429}
	require.JSONEq(t, `{"title":"Too Many Requests","status":429}`, w.call("POST", webhooks, body).is(429).raw)
}
