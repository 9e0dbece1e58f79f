package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// invalid requires an *InvalidError about a field.
func invalid(t require.TestingT, err error, field string) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	var e *webhook.InvalidError
	require.ErrorAs(t, err, &e)
	require.Equal(t, field, e.Field, err.Error())
	require.NotEmpty(t, e.Rule)
}

func TestHashNeverReachesStoreOrWire(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{Kind: webhook.KindSIEM})
		w.run()
		data := `{"id":12345678901234567890,"Password_Hash":"a","pass\u0077ord_hash":"b","nested":[{"password_hash":"c"}],"x":1.0,"y":49.50,"dup":1,"dup":2,"html":"<&>"}`
		id := w.publish(webhook.Event{Data: json.RawMessage(data)}).DeliveryIDs[0]
		w.settle()
		want := `{"id":12345678901234567890,"nested":[{}],"x":1.0,"y":49.50,"dup":1,"dup":2,"html":"<&>"}`
		require.Contains(w, w.net.all()[0].body, `"data":`+want+`,`)
		require.Equal(w, w.net.all()[0].body, string(w.delivery(id).Payload))
		w.publish(webhook.Event{Data: map[string]any{"title": "<b>A & B</b>", "password_hash": "x"}})
		w.settle()
		require.Contains(w, w.net.all()[1].body, `"data":{"title":"<b>A & B</b>"}`)
		w.publish(webhook.Event{Type: "member.invited", Data: json.RawMessage(`{"token":"t","email":"e"}`)})
		w.settle()
		require.Contains(w, w.net.all()[2].body, `"data":{"email":"e"}`)
	})
}

func TestIdempotencyKey(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		e := webhook.Event{IdempotencyKey: "order-1", Data: json.RawMessage(`{"id":1}`)}
		first := w.publish(e)
		require.False(w, first.Repeat)
		w.sleep(23 * time.Hour)
		again := w.publish(e)
		require.True(w, again.Repeat)
		require.Equal(w, first.EventID, again.EventID)
		require.Equal(w, first.DeliveryIDs, again.DeliveryIDs)
		e.Data = json.RawMessage(`{"id":2}`)
		_, err := w.Publish(w.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: e.Data, IdempotencyKey: "order-1"})
		require.ErrorIs(w, err, webhook.ErrIdempotencyConflict)
		// Another workspace, or no key, has nothing to do with it.
		require.False(w, w.publish(webhook.Event{WorkspaceID: 43, Data: e.Data, IdempotencyKey: "order-1"}).Repeat)
		require.False(w, w.publish(webhook.Event{Data: e.Data}).Repeat)
		w.settle()
		require.Len(w, w.net.all(), 2)
		// A day later, and a round of housekeeping, the key is free.
		w.sleep(25 * time.Hour)
		require.False(w, w.publish(webhook.Event{IdempotencyKey: "order-1", Data: e.Data}).Repeat)
	})
}

func TestFiftyPublishesWithOneKeyAreOneEvent(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		receipts := make(chan webhook.Receipt, 50)
		for range 50 {
			go func() { receipts <- w.publish(webhook.Event{IdempotencyKey: "k"}) }()
		}
		firsts, ids := 0, map[string]bool{}
		for range 50 {
			r := <-receipts
			if !r.Repeat {
				firsts++
			}
			ids[r.EventID] = true
		}
		w.settle()
		require.Equal(w, 1, firsts)
		require.Len(w, ids, 1)
		require.Len(w, w.net.all(), 1)
	})
}

func TestBatchIsAllOrNothing(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		good := webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{"id":1}`)}
		bad := good
		bad.Type = "link.crated"
		_, err := w.PublishMany(w.Context(), []webhook.Event{good, good, bad})
		invalid(w, err, "events[2].type")
		require.Contains(w, err.Error(), `did you mean "link.created"`)
		w.publish(webhook.Event{IdempotencyKey: "k"})
		conflict := good
		conflict.IdempotencyKey = "k"
		_, err = w.PublishMany(w.Context(), []webhook.Event{good, conflict})
		require.ErrorIs(w, err, webhook.ErrIdempotencyConflict)
		page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace})
		require.NoError(w, err)
		require.Len(w, page.Deliveries, 1)

		events := make([]webhook.Event, webhook.MaxEvents)
		for i := range events {
			events[i] = good
		}
		receipts, err := w.PublishMany(w.Context(), events)
		require.NoError(w, err)
		require.Len(w, receipts, webhook.MaxEvents)
		_, err = w.PublishMany(w.Context(), append(events, good))
		invalid(w, err, "events")
		receipts, err = w.PublishMany(w.Context(), nil)
		require.NoError(w, err)
		require.Empty(w, receipts)
		w.run()
		w.sleep(time.Minute)
		require.Len(w, w.net.all(), webhook.MaxEvents+1)
	})
}

func TestBodyAtTheLimitPassesAndOneByteMoreDoesNot(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		event := func(n int) webhook.Event {
			return webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{"a":"` + strings.Repeat("x", n) + `"}`)}
		}
		r, err := w.Publish(w.Context(), event(0))
		require.NoError(w, err)
		frame := len(w.delivery(r.DeliveryIDs[0]).Payload)
		_, err = w.Publish(w.Context(), event(256<<10-frame))
		require.NoError(w, err)
		_, err = w.Publish(w.Context(), event(256<<10-frame+1))
		invalid(w, err, "data")
		require.Contains(w, err.Error(), "262145")
		require.Contains(w, err.Error(), "262144")

		many := make([]webhook.Event, 64)
		for i := range many {
			many[i] = event(256<<10 - frame)
		}
		_, err = w.PublishMany(w.Context(), many)
		require.NoError(w, err, "16 MiB exactly")
		_, err = w.PublishMany(w.Context(), append(many, event(0)))
		invalid(w, err, "events")
		page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace})
		require.NoError(w, err)
		require.Len(w, page.Deliveries, 66)
	})
}

func TestBadEventsNameFieldAndRule(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{Kind: webhook.KindSIEM})
		good := webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{"id":1}`)}
		for _, c := range []struct {
			field  string
			change func(e *webhook.Event)
		}{
			{"type", func(e *webhook.Event) { e.Type = "" }},
			{"type", func(e *webhook.Event) { e.Type = "link.create" }},
			{"type", func(e *webhook.Event) { e.Type = "click.created" }},
			{"type", func(e *webhook.Event) { e.Type = "test" }},
			{"type", func(e *webhook.Event) { e.Type = "Link.Created" }},
			{"type", func(e *webhook.Event) { e.Type = strings.Repeat("a", 1000) }},
			{"workspace_id", func(e *webhook.Event) { e.WorkspaceID = 0 }},
			{"workspace_id", func(e *webhook.Event) { e.WorkspaceID = -1 }},
			{"data", func(e *webhook.Event) { e.Data = nil }},
			{"data", func(e *webhook.Event) { e.Data = json.RawMessage(`[1]`) }},
			{"data", func(e *webhook.Event) { e.Data = json.RawMessage(`{"a":1}x`) }},
			{"data", func(e *webhook.Event) { e.Data = json.RawMessage("\xef\xbb\xbf{}") }},
			{"data", func(e *webhook.Event) { e.Data = json.RawMessage("{\"a\":\"\xff\"}") }},
			{"data", func(e *webhook.Event) { e.Data = json.RawMessage(strings.Repeat("[", 10000)) }},
			{"data", func(e *webhook.Event) { e.Data = "text" }},
			{"data", func(e *webhook.Event) { e.Data = math.NaN() }},
			{"data", func(e *webhook.Event) { e.Data = map[string]any{"c": make(chan int)} }},
			{"data", func(e *webhook.Event) { e.Data = panics{} }},
			{"ordering_key", func(e *webhook.Event) { e.OrderingKey = strings.Repeat("k", 256) }},
			{"idempotency_key", func(e *webhook.Event) { e.IdempotencyKey = "a\nb" }},
			{"time", func(e *webhook.Event) { e.Time = time.Date(10001, 1, 1, 0, 0, 0, 0, time.UTC) }},
		} {
			e := good
			c.change(&e)
			_, err := w.Publish(w.Context(), e)
			invalid(w, err, c.field)
		}
		page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace})
		require.NoError(w, err)
		require.Empty(w, page.Deliveries)
	})
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("boom") }

func TestBadEndpointsNameFieldAndRule(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		for _, c := range []struct {
			field  string
			change func(p *webhook.EndpointParams)
		}{
			{"workspace_id", func(p *webhook.EndpointParams) { p.WorkspaceID = 0 }},
			{"kind", func(p *webhook.EndpointParams) { p.Kind = "carrier-pigeon" }},
			{"kind", func(p *webhook.EndpointParams) { p.Kind = "slack" }},
			{"config", func(p *webhook.EndpointParams) { p.Config = map[string]string{"bot_token": "hunter2"} }},
			{"config", func(p *webhook.EndpointParams) {
				p.Kind, p.Events, p.Config = webhook.KindSIEM, nil, map[string]string{"dsn": "hunter2"}
			}},
			{"url", func(p *webhook.EndpointParams) { p.URL = "" }},
			{"url", func(p *webhook.EndpointParams) { p.URL = "http://example.com/" }},
			{"url", func(p *webhook.EndpointParams) { p.URL = "https://user:hunter2@example.com/" }},
			{"url", func(p *webhook.EndpointParams) { p.URL = "https://example.com/#hunter2" }},
			{"url", func(p *webhook.EndpointParams) { p.URL = "https://127.0.0.1/" }},
			{"url", func(p *webhook.EndpointParams) { p.URL = "https://169.254.169.254/latest" }},
			{"url", func(p *webhook.EndpointParams) { p.URL = "https://example.com/" + strings.Repeat("a", 2048) }},
			{"events", func(p *webhook.EndpointParams) { p.Events = nil }},
			{"events[1]", func(p *webhook.EndpointParams) { p.Events = []string{"link.*", "click.created"} }},
			{"events[0]", func(p *webhook.EndpointParams) { p.Events = []string{"lnik.*"} }},
			{"events[0]", func(p *webhook.EndpointParams) { p.Events = []string{"*"} }},
			{"events[0]", func(p *webhook.EndpointParams) { p.Events = []string{"test"} }},
			{"events", func(p *webhook.EndpointParams) { p.Kind = webhook.KindSIEM }},
			{"description", func(p *webhook.EndpointParams) { p.Description = strings.Repeat("a", 1025) }},
			{"description", func(p *webhook.EndpointParams) { p.Description = "\xff" }},
			{"headers", func(p *webhook.EndpointParams) { p.Headers = map[string]string{"x-elido-signature": "hunter2"} }},
			{"headers", func(p *webhook.EndpointParams) { p.Headers = map[string]string{"X-A": "hunter2\r\nb"} }},
			{"headers", func(p *webhook.EndpointParams) { p.Headers = map[string]string{"Idempotency-Key": "hunter2"} }},
			{"max_in_flight", func(p *webhook.EndpointParams) { p.MaxInFlight = -1 }},
			{"max_in_flight", func(p *webhook.EndpointParams) { p.MaxInFlight = 1001 }},
			{"secret", func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret("hunter2") }},
			{"secret", func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret(strings.Repeat("hunter2", 40)) }},
			{"secret", func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret("hunter2 hunter2 hunter2 hunter2") }},
			{"secret", func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret("hunter2hunter2hunter2hunter2\x00") }},
		} {
			p := webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}}
			c.change(&p)
			_, _, err := w.CreateEndpoint(w.Context(), p)
			invalid(w, err, c.field)
			require.NotContains(w, err.Error(), "hunter2")
		}
		_, _, err := w.CreateEndpoint(w.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "http://localhost:8080/", Events: []string{"link.*"}})
		invalid(w, err, "url")
		require.Contains(w, err.Error(), "AllowLoopback")
		list, err := w.Endpoints(w.Context(), workspace, 0, 0)
		require.NoError(w, err)
		require.Empty(w, list)
	})
}

func TestUpdateEndpoint(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, secret := w.endpoint(webhook.EndpointParams{URL: "https://a.example/x", Headers: map[string]string{"Authorization": "token-of-a"}})
		w.run()
		path := "https://a.example/y"
		e, err := w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{URL: &path})
		require.NoError(w, err)
		require.NotEmpty(w, e.Headers, "the same host keeps its headers")
		moved := "https://b.example/y"
		e, err = w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{URL: &moved, Events: []string{"link.deleted"}})
		require.NoError(w, err)
		require.Empty(w, e.Headers, "they belonged to the old host")
		require.Empty(w, w.publish(webhook.Event{}).DeliveryIDs)
		w.publish(webhook.Event{Type: "link.deleted"})
		w.settle()
		h := w.net.all()[0]
		require.Equal(w, moved, h.url)
		require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"), "the signing secret stays")
		_, err = w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{Events: []string{}})
		invalid(w, err, "events")
		_, err = w.UpdateEndpoint(w.Context(), workspace+1, e.ID, webhook.EndpointUpdate{URL: &path})
		require.ErrorIs(w, err, webhook.ErrNotFound)
	})
}

func TestOtherWorkspacesFindNothing(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		ctx, other := w.Context(), int64(43)
		_, err := w.Endpoint(ctx, other, e.ID)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		_, err = w.PauseEndpoint(ctx, other, e.ID)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		_, _, err = w.RotateSecret(ctx, other, e.ID, webhook.RotateOptions{})
		require.ErrorIs(w, err, webhook.ErrNotFound)
		require.ErrorIs(w, w.DeleteEndpoint(ctx, other, e.ID), webhook.ErrNotFound)
		_, err = w.SendTest(ctx, other, e.ID)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		_, err = w.Delivery(ctx, other, id)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		_, err = w.Attempts(ctx, other, id)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		_, err = w.Retry(ctx, other, id)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		page, err := w.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: other, EndpointID: e.ID})
		require.NoError(w, err)
		require.Empty(w, page.Deliveries)
		list, err := w.Endpoints(ctx, other, 0, 0)
		require.NoError(w, err)
		require.Empty(w, list)
	})
}

func TestLogFiltersAndPaging(t *testing.T) {
	bubble(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		start := time.Now()
		var ids []int64
		for i := range 25 {
			w.net.set(always(200))
			if i%5 == 0 {
				w.net.set(always(500))
			}
			typ := "link.created"
			if i%2 == 1 {
				typ = "link.updated"
			}
			ids = append([]int64{w.publish(webhook.Event{Type: typ}).DeliveryIDs[0]}, ids...)
			w.sleep(time.Minute)
		}
		list := func(q webhook.DeliveryQuery) (got []int64, next string) {
			q.WorkspaceID = workspace
			page, err := w.Deliveries(w.Context(), q)
			require.NoError(w, err)
			for _, d := range page.Deliveries {
				got = append(got, d.ID)
			}
			return got, page.Next
		}
		got, next := list(webhook.DeliveryQuery{EndpointID: e.ID})
		require.Equal(w, ids, got)
		require.Empty(w, next)
		got, _ = list(webhook.DeliveryQuery{Limit: 10, Offset: 20})
		require.Equal(w, ids[20:], got)
		var all []int64
		for cursor := ""; ; {
			got, cursor = list(webhook.DeliveryQuery{Limit: 10, Cursor: cursor})
			all = append(all, got...)
			if cursor == "" {
				break
			}
			w.publish(webhook.Event{}) // newer ones do not shift the pages
			w.sleep(time.Second)
		}
		require.Equal(w, ids, all)
		got, _ = list(webhook.DeliveryQuery{Status: webhook.StatusFailed, Until: start.Add(25 * time.Minute)})
		require.Len(w, got, 5)
		got, _ = list(webhook.DeliveryQuery{EventType: "link.updated"})
		require.Len(w, got, 12)
		got, _ = list(webhook.DeliveryQuery{Since: start.Add(5 * time.Minute), Until: start.Add(8 * time.Minute)})
		require.Equal(w, ids[17:20], got, "since is included, until is not")

		for field, q := range map[string]webhook.DeliveryQuery{
			"limit":  {Limit: 101},
			"offset": {Offset: -1},
			"status": {Status: "lost"},
			"cursor": {Cursor: "%%%"},
			// A database may refuse text with such bytes.
			"event_type": {EventType: "link.created\x00"},
			"event_id":   {EventID: "evt_\xff"},
		} {
			q.WorkspaceID = workspace
			_, err := w.Deliveries(w.Context(), q)
			invalid(w, err, field)
		}
		_, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace, Limit: -1})
		invalid(w, err, "limit")
	})
}

func TestRetentionPrunesButNeverWhatIsPending(t *testing.T) {
	bubble(t, webhook.Config{Retention: webhook.Retention{MaxAge: 24 * time.Hour, MaxPerEndpoint: 3}}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		for range 5 {
			w.publish(webhook.Event{})
		}
		w.run()
		w.settle()
		w.stop()
		pending := w.publish(webhook.Event{}).DeliveryIDs[0]
		require.NoError(w, w.Maintain(w.Context()))
		page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace, EndpointID: e.ID, Status: webhook.StatusDelivered})
		require.NoError(w, err)
		require.Len(w, page.Deliveries, 3)
		w.sleep(25 * time.Hour)
		require.NoError(w, w.Maintain(w.Context()))
		page, err = w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace, EndpointID: e.ID})
		require.NoError(w, err)
		require.Len(w, page.Deliveries, 1)
		require.Equal(w, pending, page.Deliveries[0].ID)
	})
}

func TestHostsOwnLimits(t *testing.T) {
	full := errors.New("your plan has no room")
	bubble(t, webhook.Config{
		AllowEndpoint: func(_ context.Context, p webhook.EndpointParams) error {
			if p.Description == "too much" {
				return full
			}
			return nil
		},
		AllowPublish: func(_ context.Context, events []webhook.Event) error {
			if len(events) > 2 {
				panic("boom")
			}
			return nil
		},
	}, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		_, _, err := w.CreateEndpoint(w.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}, Description: "too much"})
		require.Equal(w, full, err, "returned as it is")
		event := webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)}
		_, err = w.PublishMany(w.Context(), []webhook.Event{event, event, event})
		require.ErrorContains(w, err, "AllowPublish panicked")
		w.publish(webhook.Event{})
	})
}

func TestOwnEventTypesAndScrubbing(t *testing.T) {
	catalog := webhook.DefaultCatalog()
	require.NoError(t, catalog.Add(webhook.EventType{Name: "invoice.paid", Description: "An invoice was paid.", Secret: []string{"iban"}}))
	catalog.ScrubWith(func(_ string, data json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(strings.ReplaceAll(string(data), "hunter2", "***")), nil
	})
	bubble(t, webhook.Config{Catalog: catalog}, func(w *world) {
		w.endpoint(webhook.EndpointParams{Events: []string{"invoice.*"}})
		w.run()
		w.publish(webhook.Event{Type: "invoice.paid", Data: json.RawMessage(`{"iban":"DE00","note":"hunter2"}`)})
		w.settle()
		require.Contains(w, w.net.all()[0].body, `"data":{"note":"***"}`)
	})
}

func TestConfigErrorsNameTheField(t *testing.T) {
	mistyped := webhook.DefaultCatalog()
	require.NoError(t, mistyped.SecretIn("lnik.*", "pin"))
	for field, c := range map[string]webhook.Config{
		"Workers":         {Workers: -1},
		"Timeout":         {Timeout: time.Hour},
		"Lease":           {Lease: 10 * time.Second},
		"Poll":            {Poll: -1},
		"Retry.Jitter":    {Retry: webhook.RetryPolicy{Jitter: math.NaN()}},
		"Retry.Delays[1]": {Retry: webhook.RetryPolicy{Delays: []time.Duration{0, -1}}},
		"Retry.Delays[0]": {Retry: webhook.RetryPolicy{Delays: []time.Duration{5}}}, // meant as seconds
		"Catalog":         {Catalog: mistyped},
		"Signer.Overlap":  {Signer: webhook.Signer{Overlap: 1000 * 24 * time.Hour}},
		"Keys.Current":    {Keys: webhook.Keyring{Current: "k"}},
		`Keys["k"]`:       {Keys: webhook.Keyring{Current: "k", Keys: map[string]webhook.Secret{"k": webhook.NewSecret("short")}}},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := webhook.New(memorystore.New(memorystore.Options{}), c)
			invalid(t, err, field)
		})
	}
	_, err := webhook.New(nil, webhook.Config{})
	invalid(t, err, "store")
}

func TestPublishIsFirstAttemptedAtOnceAndOtherwiseByPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memorystore.New(memorystore.Options{})
		runner, publisher := newWorld(t, st, webhook.Config{}), newWorld(t, st, webhook.Config{})
		runner.endpoint(webhook.EndpointParams{})
		runner.run()
		runner.settle()
		start := time.Now()
		runner.publish(webhook.Event{})
		runner.settle()
		require.Len(t, runner.net.all(), 1)
		require.Equal(t, start, runner.net.all()[0].at, "in the same process: immediate")
		runner.net.reset()
		publisher.publish(webhook.Event{})
		runner.sleep(2 * time.Second)
		require.Len(t, runner.net.all(), 1, "another process: within the poll interval")
		runner.stop()
	})
}

func ExampleInvalidError() {
	d, _ := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{})
	_, err := d.Publish(context.Background(), webhook.Event{Type: "link.create", WorkspaceID: 42, Data: map[string]int{"id": 1}})
	fmt.Println(err)
	// Output: webhook: type: "link.create" is an unknown event type; did you mean "link.created"?
}
