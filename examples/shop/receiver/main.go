// Receiver takes the shop's webhooks. Each is handled once: what it writes and
// the memory that it did are one transaction.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/elido-app/webhook/verify"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9090", "where to listen")
	file := flag.String("db", "receiver.db", "the SQLite file")
	flag.Parse()
	if err := run(*addr, *file); err != nil {
		log.Fatal(err)
	}
}

func run(addr, file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	db, err := sql.Open("sqlite3", "file:"+file+"?_journal_mode=WAL&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS inbox (
		delivery TEXT NOT NULL, type TEXT NOT NULL, data TEXT NOT NULL)`); err != nil {
		return err
	}
	seen, err := verify.NewSQL(db, verify.Question, "")
	if err != nil {
		return err
	}
	if err := seen.Create(ctx); err != nil {
		return err
	}
	if _, err := seen.Prune(ctx); err != nil { // a long-running program does this hourly
		return err
	}

	// WEBHOOK_SECRET may hold two, old and new, while a secret is replaced.
	v, err := verify.New(strings.Fields(os.Getenv("WEBHOOK_SECRET"))...)
	if err != nil {
		return err
	}
	v.OnError = func(_ *http.Request, err error) { log.Print("refused: ", err) }

	srv := &http.Server{Addr: addr, ReadHeaderTimeout: 5 * time.Second, Handler: v.Handler(func(ctx context.Context, ev verify.Event) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		first, err := verify.Once{Seen: seen.In(tx)}.First(ctx, ev)
		if err != nil {
			return err
		}
		if !first {
			log.Printf("delivery %s: a duplicate", ev.DeliveryID)
			return nil
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO inbox VALUES (?, ?, ?)`,
			ev.DeliveryID, ev.Type, string(ev.Data)); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		log.Printf("delivery %s: %s %s", ev.DeliveryID, ev.Type, ev.Data)
		return nil
	})}
	context.AfterFunc(ctx, func() {
		shut, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := srv.Shutdown(shut); err != nil {
			log.Print(err)
		}
	})
	log.Print("listening on ", addr)
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
