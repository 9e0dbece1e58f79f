package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
	"github.com/elido-app/webhook/verify"
)

// receiving lets an http.Handler answer in place of the network.
type receiving struct{ http.Handler }

func (r receiving) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	r.ServeHTTP(rec, req)
	return &http.Response{StatusCode: rec.status, Header: rec.header, Body: http.NoBody}, nil
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// exampleDispatcher is a Dispatcher on a new memory store with one endpoint,
// whose receiver answers with a status.
func exampleDispatcher(status int) (*webhook.Dispatcher, webhook.Endpoint) {
	d, err := webhook.New(memorystore.New(memorystore.Options{FirstDeliveryID: 1}), webhook.Config{
		Logger: quiet(),
		Egress: webhook.Egress{Transport: receiving{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })}},
	})
	if err != nil {
		panic(err)
	}
	e, _, err := d.CreateEndpoint(context.Background(), webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://customer.example/hooks", Events: []string{"link.*"},
	})
	if err != nil {
		panic(err)
	}
	return d, e
}

func ExampleDispatcher_Publish() {
	ctx := context.Background()
	d, _ := exampleDispatcher(http.StatusOK)
	receipt, err := d.Publish(ctx, webhook.Event{
		Type:           "link.created",
		WorkspaceID:    42,
		Data:           map[string]any{"id": 91834, "slug": "spring-sale"},
		OrderingKey:    "91834",              // events of this link go one after the other
		IdempotencyKey: "link-91834-created", // publishing again is harmless
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	delivery, _ := d.Delivery(ctx, 42, receipt.DeliveryIDs[0])
	fmt.Println(delivery.Status, delivery.EventType)
	// Output: pending link.created
}

func ExampleDispatcher_CreateEndpoint() {
	ctx := context.Background()
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Logger: quiet()})
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoint, secret, err := d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: 42,
		URL:         "https://customer.example/hooks",
		Events:      []string{"link.*", "domain.verified"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(endpoint.Kind, endpoint.Events, endpoint.Active)
	fmt.Println(secret, secret.Reveal()[:6]) // shown once: only Reveal gives it away
	// Output:
	// event [link.* domain.verified] true
	// [redacted] whsec_
}

func ExampleDispatcher_RotateSecret() {
	ctx := context.Background()
	d, endpoint := exampleDispatcher(http.StatusOK)
	seen := endpoint.Rotations // as the page showed it that has the button
	rotated, _, err := d.RotateSecret(ctx, 42, endpoint.ID, webhook.RotateOptions{Seen: &seen})
	fmt.Println(rotated.Rotations, time.Until(rotated.PreviousUntil).Round(time.Hour), err)
	_, _, err = d.RotateSecret(ctx, 42, endpoint.ID, webhook.RotateOptions{Seen: &seen}) // the double click
	fmt.Println(errors.Is(err, webhook.ErrConflict))
	// Output:
	// 1 168h0m0s <nil>
	// true
}

func ExampleDispatcher_Retry() {
	ctx := context.Background()
	d, _ := exampleDispatcher(http.StatusOK)
	receipt, _ := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 1}})
	id := receipt.DeliveryIDs[0]

	_, err := d.Retry(ctx, 42, id)
	fmt.Println(errors.Is(err, webhook.ErrPending))
	_, _ = d.RunOnce(ctx)
	delivery, _ := d.Retry(ctx, 42, id) // delivered: it may be sent again
	fmt.Println(delivery.ID == id, delivery.Status)
	// Output:
	// true
	// true pending
}

func ExampleDispatcher_Deliveries() {
	ctx := context.Background()
	d, endpoint := exampleDispatcher(http.StatusGone)
	for i := range 3 {
		_, _ = d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": i}})
	}
	_, _ = d.RunOnce(ctx)
	query := webhook.DeliveryQuery{WorkspaceID: 42, EndpointID: endpoint.ID, Status: webhook.StatusPending, Limit: 2}
	for {
		page, err := d.Deliveries(ctx, query)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, v := range page.Deliveries {
			attempts, _ := d.Attempts(ctx, 42, v.ID)
			fmt.Println(v.ID, v.EventType, v.Status, v.LastStatus, len(attempts), "of", v.Budget)
		}
		if page.Next == "" {
			break
		}
		query.Cursor = page.Next
	}
	// Output:
	// 3 link.created pending 410 1 of 3
	// 2 link.created pending 410 1 of 3
	// 1 link.created pending 410 1 of 3
}

func ExampleCatalog_Add() {
	catalog := webhook.DefaultCatalog()
	err := catalog.Add(webhook.EventType{
		Name:        "invoice.paid",
		Description: "An invoice was paid.",
		Secret:      []string{"iban"}, // removed from every invoice.paid
		Sample:      json.RawMessage(`{"id":1,"total":49.50}`),
	})
	fmt.Println(err)
	t, ok := catalog.Lookup("invoice.paid")
	fmt.Println(t.Description, t.Secret, ok)
	// Give it to New: webhook.Config{Catalog: catalog}.

	// Output:
	// <nil>
	// An invoice was paid. [password_hash iban] true
}

func ExampleRetryPolicy() {
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{
		Logger: quiet(),
		Retry: webhook.RetryPolicy{
			Delays: []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}, // 5 attempts
			Jitter: 0.1,                                                                  // each delay up to a tenth longer
		},
		Timeout: 20 * time.Second,
	})
	fmt.Println(d != nil, err)
	// Output: true <nil>
}

func ExampleDispatcher_Run() {
	ctx, stop := context.WithCancel(context.Background())
	d, _ := exampleDispatcher(http.StatusOK)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }() // one goroutine of the host's

	_, _ = d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 1}})

	stop() // lets running requests finish, gives the rest back to the queue
	fmt.Println(<-done)
	// Output: <nil>
}

// Sender and receiver in one program: what Dispatcher signs, package verify
// checks.
func Example_verify() {
	ctx := context.Background()
	secret := webhook.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	verifier, _ := verify.New(secret.Reveal())
	once := verify.Once{Seen: new(verify.Memory)}
	handler := verifier.Handler(once.Handler(func(_ context.Context, event verify.Event) error {
		fmt.Printf("%s %s\n", event.Type, event.Data)
		return nil
	}))

	d, _ := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{
		Logger: quiet(), Egress: webhook.Egress{Transport: receiving{handler}},
	})
	_, _, _ = d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://customer.example/hooks", Events: []string{"link.*"}, Secret: secret,
	})
	_, _ = d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: json.RawMessage(`{"id":91834,"price":49.50}`)})
	_, _ = d.RunOnce(ctx)
	// Output: link.created {"id":91834,"price":49.50}
}
