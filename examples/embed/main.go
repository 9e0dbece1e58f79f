// Embed is how an API binary carries the dispatcher: one SQLite file for the
// program's own tables and the webhooks, an event published in the transaction
// that writes the row it tells of, and both servers stopped by one signal.
//
//	go run ./examples/embed
//	WEBHOOK_SECRET=whsec_a-secret-to-try-things-with go run ./examples/receiver   # in another terminal
//	curl -d '{"url":"http://127.0.0.1:8090/","events":["link.*"],"secret":"whsec_a-secret-to-try-things-with"}' http://127.0.0.1:8080/webhooks
//	curl -d '{"slug":"spring-sale","destination_url":"https://example.com"}' http://127.0.0.1:8080/links
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := listenAndRun(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func listenAndRun(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		return err
	}
	log.Print("listening on http://", listener.Addr())
	return run(ctx, listener, filepath.Join(os.TempDir(), "webhook-embed.db"), webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true}, // to try it out with a receiver on this machine
	})
}

// run serves the API and delivers webhooks until ctx is cancelled.
func run(ctx context.Context, listener net.Listener, path string, config webhook.Config) error {
	// Transactions that publish should take the write lock when they begin:
	// that is what _txlock=immediate does.
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_busy_timeout=5000&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS links
		(id INTEGER PRIMARY KEY, workspace_id INTEGER, slug TEXT, destination_url TEXT)`); err != nil {
		return err
	}
	st, err := sqlitestore.New(ctx, db)
	if err != nil {
		return err
	}
	defer st.Close()
	dispatcher, err := webhook.New(st, config)
	if err != nil {
		return err
	}
	a := &api{db: db, store: st, dispatcher: dispatcher}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /links", a.createLink)
	mux.HandleFunc("POST /webhooks", a.createEndpoint)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return dispatcher.Run(ctx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Shutdown(grace)
	})
	return group.Wait()
}

type api struct {
	db         *sql.DB
	store      *sqlitestore.Store
	dispatcher *webhook.Dispatcher
}

const workspace = 42 // whose session this is

// link is a row of the API's own table, and the data of its events.
type link struct {
	ID             int64  `json:"id"`
	WorkspaceID    int64  `json:"workspace_id"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destination_url"`
}

func (a *api) createLink(w http.ResponseWriter, r *http.Request) {
	l := link{WorkspaceID: workspace}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&l); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := a.insertLink(r.Context(), &l); err != nil {
		log.Print(err)
		http.Error(w, "the link was not created", http.StatusInternalServerError)
		return
	}
	reply(w, http.StatusCreated, l)
}

// insertLink writes the row and its event: both or neither.
func (a *api) insertLink(ctx context.Context, l *link) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := tx.QueryRowContext(ctx, `INSERT INTO links (workspace_id, slug, destination_url) VALUES (?, ?, ?) RETURNING id`,
		l.WorkspaceID, l.Slug, l.DestinationURL).Scan(&l.ID); err != nil {
		return err
	}
	if _, err := a.dispatcher.PublishTx(ctx, a.store.Tx(tx), webhook.Event{
		Type: "link.created", WorkspaceID: l.WorkspaceID, Data: l,
	}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	a.dispatcher.Wake() // deliver now, not at the next poll
	return nil
}

func (a *api) createEndpoint(w http.ResponseWriter, r *http.Request) {
	var p struct {
		URL    string   `json:"url"`
		Events []string `json:"events"`
		Secret string   `json:"secret"` // optional: one is generated otherwise
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	endpoint, secret, err := a.dispatcher.CreateEndpoint(r.Context(), webhook.EndpointParams{
		WorkspaceID: workspace, URL: p.URL, Events: p.Events, Secret: webhook.NewSecret(p.Secret),
	})
	if invalid, ok := errors.AsType[*webhook.InvalidError](err); ok {
		http.Error(w, invalid.Error(), http.StatusUnprocessableEntity)
		return
	}
	if err != nil {
		log.Print(err)
		http.Error(w, "the endpoint was not created", http.StatusInternalServerError)
		return
	}
	reply(w, http.StatusCreated, map[string]any{"endpoint": endpoint, "secret": secret.Reveal()})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Print(err)
	}
}
