package customstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/examples/customstore"
)

// receiver answers in place of the network.
type receiver struct{}

func (receiver) RoundTrip(r *http.Request) (*http.Response, error) {
	fmt.Println("received", r.Header.Get("X-Webhook-Event"))
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// One program publishes and ends; the next one, on the same file, delivers.
func Example() {
	dir, err := os.MkdirTemp("", "customstore")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "webhooks.journal")
	err = errors.Join(publish(path), deliver(path), os.RemoveAll(dir))
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// published, not delivered yet
	// received link.created
	// 1 delivered after 1 attempt
}

func open(ctx context.Context, path string) (*customstore.Store, *webhook.Dispatcher, error) {
	st, err := customstore.Open(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	d, err := webhook.New(st, webhook.Config{Egress: webhook.Egress{Transport: receiver{}}})
	return st, d, err
}

func publish(path string) error {
	ctx := context.Background()
	st, d, err := open(ctx, path)
	if err != nil {
		return err
	}
	if _, _, err := d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://customer.example/hooks", Events: []string{"link.*"},
	}); err != nil {
		return err
	}
	if _, err := d.Publish(ctx, webhook.Event{
		Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 7},
	}); err != nil {
		return err
	}
	fmt.Println("published, not delivered yet")
	return st.Close()
}

func deliver(path string) error {
	ctx := context.Background()
	st, d, err := open(ctx, path)
	if err != nil {
		return err
	}
	n, err := d.RunOnce(ctx)
	if err != nil {
		return err
	}
	page, err := d.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: 42})
	if err != nil {
		return err
	}
	fmt.Println(n, page.Deliveries[0].Status, "after", page.Deliveries[0].Attempts, "attempt")
	return st.Close()
}
