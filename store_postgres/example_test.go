package postgresstore_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/elido-app/webhook"
	postgresstore "github.com/elido-app/webhook/store_postgres"
)

// An event that is published in the transaction which makes the change it tells
// of exists if, and only if, the change does. Dispatchers are woken by the commit.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := postgresstore.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	st, err := postgresstore.New(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	d, err := webhook.New(st, webhook.Config{})
	if err != nil {
		log.Fatal(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE links SET title = $1 WHERE id = $2`, "Spring sale", 91834); err != nil {
			return err
		}
		_, err := d.PublishTx(ctx, st.Tx(tx), webhook.Event{
			Type: "link.updated", WorkspaceID: 42, Data: map[string]any{"id": 91834, "title": "Spring sale"},
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = st.Close()
	pool.Close()
}
