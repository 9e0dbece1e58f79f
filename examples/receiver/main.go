// Receiver is the other side: a server that takes Elido's webhooks. It verifies
// each request, drops duplicates, and answers before it works.
//
//	WEBHOOK_SECRET=whsec_… go run ./examples/receiver
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/elido-app/webhook/verify"
)

func main() {
	// While a secret is being replaced, give both: WEBHOOK_SECRET="whsec_new whsec_old".
	handler, err := newHandler(func(event verify.Event) {
		log.Printf("%s in workspace %d (delivery %s): %s", event.Type, event.WorkspaceID, event.DeliveryID, event.Data)
	}, strings.Fields(os.Getenv("WEBHOOK_SECRET"))...)
	if err != nil {
		log.Fatal("WEBHOOK_SECRET: ", err)
	}
	server := &http.Server{Addr: "127.0.0.1:8090", Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}

// newHandler returns a handler that gives each delivery to work, once.
func newHandler(work func(verify.Event), secrets ...string) (http.Handler, error) {
	verifier, err := verify.New(secrets...)
	if err != nil {
		return nil, err
	}
	// This queue and the seen-set live in memory. A receiver that must not lose
	// an event stores it in its database here, and remembers the delivery in the
	// same transaction (see verify.Once.First).
	queue := make(chan verify.Event, 1000)
	go func() {
		for event := range queue {
			work(event)
		}
	}()
	once := verify.Once{Seen: new(verify.Memory)}
	return verifier.Handler(once.Handler(func(ctx context.Context, event verify.Event) error {
		select {
		case queue <- event:
			return nil
		case <-ctx.Done():
			return ctx.Err() // full: the sender tries again later
		}
	})), nil
}
