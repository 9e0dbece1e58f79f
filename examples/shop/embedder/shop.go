package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// Shop writes an order and the event that tells of it in one transaction.
type Shop struct {
	DB       *sql.DB
	Webhooks *webhook.Dispatcher
	// In binds publishing to a transaction: (*sqlitestore.Store).Tx in the
	// program, a store that ignores it in unit tests.
	In func(*sql.Tx) store.Publisher
}

// Order is a row of the shop's table, and the data of its events.
type Order struct {
	ID    int64   `json:"id"`
	Item  string  `json:"item"`
	Price float64 `json:"price"`
	Card  string  `json:"card_number,omitempty"` // must never leave the house
	Email string  `json:"email"`
}

// Config is what this shop changes in the library's defaults.
func Config() (webhook.Config, error) {
	var c webhook.Catalog
	if err := c.Add(webhook.EventType{
		Name:        "order.placed",
		Description: "An order was placed",
		Secret:      []string{"card_number"},
		Sample:      []byte(`{"id":1,"item":"tea","price":4.5}`),
	}); err != nil {
		return webhook.Config{}, err
	}
	c.Secret("card_number") // of every type to come
	if err := c.SecretIn("order.*", "email"); err != nil {
		return webhook.Config{}, err
	}
	return webhook.Config{
		Catalog: &c,
		Retry:   webhook.RetryPolicy{Delays: []time.Duration{time.Second, 2 * time.Second}},
	}, nil
}

const schema = `CREATE TABLE IF NOT EXISTS orders (
	id INTEGER PRIMARY KEY, item TEXT NOT NULL, price REAL NOT NULL, card TEXT, email TEXT)`

// Place stores an order and publishes that it was placed: both or neither.
func (s *Shop) Place(ctx context.Context, workspaceID int64, o Order) (Order, error) {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return Order{}, err
	}
	defer tx.Rollback() // does nothing after Commit
	err = tx.QueryRowContext(ctx,
		`INSERT INTO orders (item, price, card, email) VALUES (?, ?, ?, ?) RETURNING id`,
		o.Item, o.Price, o.Card, o.Email).Scan(&o.ID)
	if err != nil {
		return Order{}, err
	}
	if _, err := s.Webhooks.PublishTx(ctx, s.In(tx), webhook.Event{
		Type: "order.placed", WorkspaceID: workspaceID, Data: o,
	}); err != nil {
		return Order{}, err
	}
	if err := tx.Commit(); err != nil {
		return Order{}, err
	}
	s.Webhooks.Wake()
	return o, nil
}
