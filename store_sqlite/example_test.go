package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// customer answers in place of the network.
type customer struct{}

func (customer) RoundTrip(r *http.Request) (*http.Response, error) {
	fmt.Println("the customer received", r.Header.Get("X-Webhook-Event"))
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

var exampleConfig = webhook.Config{
	Logger: slog.New(slog.DiscardHandler),
	Egress: webhook.Egress{Transport: customer{}},
}

// What one process published, the next one delivers: the file holds it.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, path := context.Background(), filepath.Join(dir, "webhooks.db")

	st, err := sqlitestore.Open(ctx, path)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := webhook.New(st, exampleConfig)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _, err = d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://customer.example/hooks", Events: []string{"link.*"},
	})
	fmt.Println("endpoint created:", err)
	_, err = d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 91834}})
	fmt.Println("event published:", err) // and on the disk
	fmt.Println("closed:", st.Close())

	st, err = sqlitestore.Open(ctx, path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = st.Close() }()
	if d, err = webhook.New(st, exampleConfig); err != nil {
		fmt.Println(err)
		return
	}
	n, err := d.RunOnce(ctx) // a service calls Run, which goes on until it is told to stop
	fmt.Println("attempts:", n, err)
	page, err := d.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: 42})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range page.Deliveries {
		fmt.Println("delivery", v.ID, v.Status, v.LastStatus)
	}
	// Output:
	// endpoint created: <nil>
	// event published: <nil>
	// closed: <nil>
	// the customer received link.created
	// attempts: 1 <nil>
	// delivery 1 delivered 204
}

// The store lives in the host's own file, so that an event is published in the
// transaction that writes what it tells of: both exist, or neither.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()

	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "shop.db")+"?_journal_mode=WAL&_txlock=immediate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	if _, err = db.ExecContext(ctx, `CREATE TABLE links (id INTEGER PRIMARY KEY, slug TEXT UNIQUE)`); err != nil {
		fmt.Println(err)
		return
	}
	st, err := sqlitestore.New(ctx, db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = st.Close() }() // before db
	d, err := webhook.New(st, exampleConfig)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _, err = d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://customer.example/hooks", Events: []string{"link.*"},
	})
	fmt.Println("endpoint created:", err)

	create := func(slug string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		if _, err := d.PublishTx(ctx, st.Tx(tx), webhook.Event{
			Type: "link.created", WorkspaceID: 42, Data: map[string]any{"slug": slug},
		}); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO links (slug) VALUES (?)`, slug); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		d.Wake() // deliver now rather than at the next poll
		return nil
	}
	fmt.Println("link created:", create("spring-sale"))
	fmt.Println("link created twice:", create("spring-sale") != nil) // rolled back, and the event with it

	n, err := d.RunOnce(ctx)
	fmt.Println("attempts:", n, err)
	// Output:
	// endpoint created: <nil>
	// link created: <nil>
	// link created twice: true
	// the customer received link.created
	// attempts: 1 <nil>
}
