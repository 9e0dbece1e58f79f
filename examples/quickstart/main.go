// Quickstart is the whole life of a webhook in one program, on an embedded
// SQLite file: endpoints of both signed kinds, events, signatures that receivers
// verify, a secret replaced while a receiver still has the old one, a receiver
// that fails, a retry by hand, and the delivery log at the end.
//
// Every step is checked. The program exits with status 1 if one is not as it
// should be.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

const workspace = 42

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	err := run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nFAILED:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	step("Open a SQLite file and start the dispatcher")
	dir, err := os.MkdirTemp("", "webhook-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "webhooks.db")
	st, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := webhook.New(st, webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true}, // the receivers are on this machine
		// A real schedule has minutes; this one fits into a demonstration.
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), // the log lines would only clutter the output
	})
	if err != nil {
		return err
	}
	runCtx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- d.Run(runCtx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-stopped)
	}()
	say("%s", path)

	step("Start two receivers and create an endpoint for each")
	shop, audit := startReceiver(), startReceiver()
	defer shop.Close()
	defer audit.Close()
	shopEndpoint, secret, err := d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: workspace, URL: shop.URL, Events: []string{"link.*"}, Description: "shop",
	})
	if err != nil {
		return err
	}
	shop.trust(secret)
	auditEndpoint, auditSecret, err := d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: workspace, URL: audit.URL, Kind: webhook.KindSIEM, Description: "audit",
	})
	if err != nil {
		return err
	}
	audit.trust(auditSecret)
	say("endpoint %d, kind %s, wants %v: shop   %s", shopEndpoint.ID, shopEndpoint.Kind, shopEndpoint.Events, shop.URL)
	say("endpoint %d, kind %s (every event of the workspace): audit  %s", auditEndpoint.ID, auditEndpoint.Kind, audit.URL)
	say("shop's secret, shown this once: %s…; printed by accident it is %v", secret.Reveal()[:12], secret)

	step("Publish link.created: both receivers want it")
	link := map[string]any{"id": 91834, "slug": "spring-sale", "destination_url": "https://example.com/sale?a=1&b=2"}
	receipt, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: link})
	if err != nil {
		return err
	}
	say("event %s, deliveries %v", receipt.EventID, receipt.DeliveryIDs)
	got, err := shop.next(ctx)
	if err != nil {
		return err
	}
	say("shop got delivery %s, signature verified:", got.DeliveryID)
	say("  %s", got.Body)
	if _, err := audit.next(ctx); err != nil {
		return err
	}
	if err := check("both receivers verified the signature", len(receipt.DeliveryIDs) == 2); err != nil {
		return err
	}

	step("Publish link.updated with a password hash in it")
	data := json.RawMessage(`{"id":91834,"price":49.50,"password_hash":"$2a$10$N9qo8uLOickgx2ZMRZoMye","title":"Spring"}`)
	say("published %s", data)
	receipt, err = d.Publish(ctx, webhook.Event{Type: "link.updated", WorkspaceID: workspace, Data: data})
	if err != nil {
		return err
	}
	if got, err = shop.next(ctx); err != nil {
		return err
	}
	say("received  %s", got.Body)
	if err := check("the hash was not sent, the rest is byte for byte as published",
		string(got.Data) == `{"id":91834,"price":49.50,"title":"Spring"}`); err != nil {
		return err
	}
	stored, err := d.Delivery(ctx, workspace, receipt.DeliveryIDs[0])
	if err != nil {
		return err
	}
	if err := check("nor is it in the log", !strings.Contains(string(stored.Payload), "2a$10")); err != nil {
		return err
	}

	step("Publish domain.verified: only audit wants it")
	receipt, err = d.Publish(ctx, webhook.Event{Type: "domain.verified", WorkspaceID: workspace, Data: map[string]any{"id": 7, "domain": "go.example.com"}})
	if err != nil {
		return err
	}
	if err := check("one delivery", len(receipt.DeliveryIDs) == 1); err != nil {
		return err
	}

	step("Replace shop's secret, and publish link.updated; the receiver still has the old secret")
	shopEndpoint, newSecret, err := d.RotateSecret(ctx, workspace, shopEndpoint.ID, webhook.RotateOptions{})
	if err != nil {
		return err
	}
	if _, err = d.Publish(ctx, webhook.Event{Type: "link.updated", WorkspaceID: workspace, Data: link}); err != nil {
		return err
	}
	if _, err = shop.next(ctx); err != nil {
		return err
	}
	say("each request now carries two signatures; the old secret signs too until %s UTC", shopEndpoint.PreviousUntil.Format(time.DateTime))
	if err := check("the old secret verified X-Elido-Signature-Previous, and does not verify X-Elido-Signature", shop.usedPrevious()); err != nil {
		return err
	}
	shop.trust(newSecret)

	step("Shop's receiver breaks; publish link.deleted: three attempts, then the delivery has failed")
	say("the schedule is 50 and 100 ms here, to keep this short; by default it is 5 and 15 minutes")
	shop.breakDown(true)
	receipt, err = d.Publish(ctx, webhook.Event{Type: "link.deleted", WorkspaceID: workspace, Data: map[string]any{"id": 91834}})
	if err != nil {
		return err
	}
	failed, err := await(ctx, d, receipt.DeliveryIDs[0], webhook.StatusFailed)
	if err != nil {
		return err
	}
	attempts, err := d.Attempts(ctx, workspace, failed.ID)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		say("attempt %d  %d  %v  %q", a.Number, a.Status, a.Latency.Round(time.Microsecond), a.Response)
	}
	if err := check("three attempts, each with a row of its own", failed.Attempts == 3 && len(attempts) == 3); err != nil {
		return err
	}

	step("It is mended; somebody presses Retry")
	shop.breakDown(false)
	if _, err := d.Retry(ctx, workspace, failed.ID); err != nil {
		return err
	}
	if got, err = shop.next(ctx); err != nil {
		return err
	}
	if err := check("the same delivery id, the same body, signed afresh with the new secret",
		got.DeliveryID == fmt.Sprint(failed.ID) && string(got.Body) == string(failed.Payload)); err != nil {
		return err
	}
	if _, err := await(ctx, d, failed.ID, webhook.StatusDelivered); err != nil {
		return err
	}

	step("The delivery log, newest first")
	if err := printLog(ctx, d); err != nil {
		return err
	}
	say("(a manual retry begins a new budget: delivery 8 is at attempt 1 of 3, and at 4 in all)")
	fmt.Println("\nEverything was as it should be. Next: examples/embed shows the same inside an API server.")
	return nil
}

// await waits until a delivery has a status.
func await(ctx context.Context, d *webhook.Dispatcher, id int64, status webhook.Status) (webhook.Delivery, error) {
	for {
		v, err := d.Delivery(ctx, workspace, id)
		if err != nil || v.Status == status {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("delivery %d is still %s", id, v.Status)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func printLog(ctx context.Context, d *webhook.Dispatcher) error {
	page, err := d.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: workspace})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "   ID\tEVENT\tENDPOINT\tSTATUS\tHTTP\tATTEMPTS\tIN ALL\tLATENCY\tCREATED (UTC)\tLAST ERROR")
	for _, v := range page.Deliveries {
		fmt.Fprintf(w, "   %d\t%s\t%d\t%s\t%d\t%d of %d\t%d\t%v\t%s\t%s\n", v.ID, v.EventType, v.EndpointID, v.Status,
			v.LastStatus, v.Attempts, v.Budget, v.TotalAttempts, v.LastLatency.Round(time.Microsecond), v.CreatedAt.Format("15:04:05.000"), v.LastError)
	}
	return w.Flush()
}

var steps int

func step(text string) {
	steps++
	fmt.Printf("\n%d. %s\n", steps, text)
}

func say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

func check(what string, ok bool) error {
	if !ok {
		return errors.New("not so: " + what)
	}
	say("ok: %s", what)
	return nil
}
