// Embedder is a small shop with an HTTP API that tells its customers of orders
// by webhook. Everything is in one SQLite file.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	file := flag.String("db", "shop.db", "the SQLite file")
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
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	st, err := sqlitestore.New(ctx, db)
	if err != nil {
		return err
	}
	defer st.Close()

	config, err := Config()
	if err != nil {
		return err
	}
	config.Egress.AllowLoopback = true // the receiver is on this machine
	d, err := webhook.New(st, config)
	if err != nil {
		return err
	}

	// The server stops first, the dispatcher after it, the store last.
	dispatch, stopDispatch := context.WithCancel(context.Background())
	defer stopDispatch()
	ran := make(chan error, 1)
	go func() { ran <- d.Run(dispatch) }()

	srv := &http.Server{Addr: addr, Handler: api(&Shop{DB: db, Webhooks: d, In: st.Tx}), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.ListenAndServe() }()

	select {
	case <-ctx.Done():
	case err = <-served:
	case err = <-ran:
		return err
	}
	shut, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, srv.Shutdown(shut), func() error { stopDispatch(); return <-ran }())
}

const workspace = 1 // a real program takes it from the session

func api(shop *Shop) http.Handler {
	d := shop.Webhooks
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := f(r)
			w.Header().Set("Content-Type", "application/json")
			if err != nil {
				w.WriteHeader(status(err))
				v = map[string]string{"error": err.Error()}
			}
			if err := json.NewEncoder(w).Encode(v); err != nil {
				log.Print(err)
			}
		})
	}

	handle("POST /orders", func(r *http.Request) (any, error) {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			return nil, err
		}
		return shop.Place(r.Context(), workspace, o)
	})
	handle("POST /endpoints", func(r *http.Request) (any, error) {
		var in struct {
			URL    string   `json:"url"`
			Events []string `json:"events"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return nil, err
		}
		e, secret, err := d.CreateEndpoint(r.Context(), webhook.EndpointParams{
			WorkspaceID: workspace, URL: in.URL, Events: in.Events,
		})
		return map[string]any{"endpoint": e, "secret": secret.Reveal()}, err
	})
	handle("POST /endpoints/{id}/rotate", func(r *http.Request) (any, error) {
		e, secret, err := d.RotateSecret(r.Context(), workspace, id(r), webhook.RotateOptions{})
		return map[string]any{"endpoint": e, "secret": secret.Reveal()}, err
	})
	handle("POST /endpoints/{id}/pause", func(r *http.Request) (any, error) {
		return d.PauseEndpoint(r.Context(), workspace, id(r))
	})
	handle("POST /endpoints/{id}/resume", func(r *http.Request) (any, error) {
		return d.ResumeEndpoint(r.Context(), workspace, id(r))
	})
	handle("GET /deliveries", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		limit, _ := strconv.Atoi(q.Get("limit"))
		endpoint, _ := strconv.ParseInt(q.Get("endpoint"), 10, 64)
		since, _ := time.Parse(time.RFC3339, q.Get("since"))
		return d.Deliveries(r.Context(), webhook.DeliveryQuery{
			WorkspaceID: workspace,
			EndpointID:  endpoint,
			Since:       since,
			Status:      webhook.Status(q.Get("status")),
			EventType:   q.Get("type"),
			Limit:       limit,
			Cursor:      q.Get("cursor"),
		})
	})
	handle("GET /deliveries/{id}/attempts", func(r *http.Request) (any, error) {
		return d.Attempts(r.Context(), workspace, id(r))
	})
	handle("POST /deliveries/{id}/retry", func(r *http.Request) (any, error) {
		return d.Retry(r.Context(), workspace, id(r))
	})
	return mux
}

func id(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return n // zero is not found
}

func status(err error) int {
	if _, ok := errors.AsType[*webhook.InvalidError](err); ok {
		return http.StatusUnprocessableEntity
	}
	switch {
	case errors.Is(err, webhook.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, webhook.ErrPending), errors.Is(err, webhook.ErrConflict):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}
