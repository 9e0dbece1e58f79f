// Admin is a whole host in one program: a SQLite file, the dashboard, the management
// API, metrics, and a receiver on this machine that can be told to fail.
//
//	go run ./examples/admin       # from the repository's root; open the address it prints
//
// Everything is kept in a temporary directory and gone when the program ends,
// unless -db names a file. It listens on this machine alone, and anybody who can
// reach it may do everything: a real host has a sign-in in place of host.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/dashboard"
	"github.com/elido-app/webhook/httpapi"
	"github.com/elido-app/webhook/metrics"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

type options struct {
	address string
	db      string
	every   time.Duration // between demo events; 0: none
	retry   []time.Duration
	empty   bool
}

func main() {
	var o options
	flag.StringVar(&o.address, "listen", "127.0.0.1:0", "where to serve; port 0 takes a free one")
	flag.StringVar(&o.db, "db", "", "the SQLite file (default: a temporary one)")
	flag.DurationVar(&o.every, "every", 5*time.Second, "the time between demo events; 0 publishes none")
	// A real schedule has minutes; with this one there is something to watch.
	o.retry = []time.Duration{5 * time.Second, 20 * time.Second}
	flag.Func("retry", "the waits before the second attempt, the third and so on (default 5s,20s)", func(list string) error {
		o.retry = nil
		for item := range strings.SplitSeq(list, ",") {
			d, err := time.ParseDuration(item)
			if err != nil {
				return err
			}
			o.retry = append(o.retry, d)
		}
		return nil
	})
	flag.BoolVar(&o.empty, "empty", false, "begin without the demo endpoint")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

const workspace = 42

func run(ctx context.Context, out io.Writer, o options) error {
	if o.db == "" {
		dir, err := os.MkdirTemp("", "webhook-admin-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.db = filepath.Join(dir, "webhooks.db")
	}
	st, err := sqlitestore.Open(ctx, o.db)
	if err != nil {
		return err
	}
	defer st.Close()

	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{})
	if err != nil {
		return err
	}
	d, err := webhook.New(st, webhook.Config{
		Observer: m,
		Egress:   webhook.Egress{AllowLoopback: true}, // the receiver is on this machine
		Retry:    webhook.RetryPolicy{Delays: o.retry},
		Health:   webhook.HealthPolicy{DegradeAfter: 5, PauseAfter: 50},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	m.Watch(d) // for the backlog

	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return err
	}
	address := "http://" + listener.Addr().String()
	demo := &host{d: d, receiver: &receiver{url: address + "/receiver"}}
	mux, err := demo.routes(registry)
	if err != nil {
		return err
	}
	if !o.empty {
		if err := demo.addEndpoint(ctx); err != nil {
			return err
		}
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.Run(ctx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	if o.every > 0 {
		group.Go(func() error { return publish(ctx, d, o.every) })
	}
	fmt.Fprintln(out, "open", address+"/")
	return group.Wait()
}

// routes puts everything into one server.
func (h *host) routes(registry *prometheus.Registry) (http.Handler, error) {
	pages, err := dashboard.New(h.d, dashboard.Config{
		Prefix: "/webhooks", Authorize: h.authorize, Home: "/", SignIn: "/",
	})
	if err != nil {
		return nil, err
	}
	api, err := httpapi.New(h.d, httpapi.Config{Prefix: "/api", Authorize: h.authorize})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/webhooks/", pages)
	mux.Handle("/api/", api)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("POST /receiver", h.receiver)
	own := http.NewServeMux()
	own.HandleFunc("GET /{$}", h.home)
	own.HandleFunc("POST /publish", h.publish)
	own.HandleFunc("POST /tell", h.tell)
	own.HandleFunc("POST /sign-in", h.signIn)
	mux.Handle("/", http.NewCrossOriginProtection().Handler(own))
	return mux, nil
}

// publish publishes a demo event every so often.
func publish(ctx context.Context, d *webhook.Dispatcher, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		if _, err := d.Publish(ctx, demoEvent(n)); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// demoEvent is one of a few things that happen to links.
func demoEvent(n int) webhook.Event {
	slugs := []string{"spring-sale", "newsletter", "jobs", "launch"}
	types := []string{"link.created", "link.updated", "link.updated", "link.deleted"}
	slug := slugs[n%len(slugs)]
	return webhook.Event{Type: types[n/len(slugs)%len(types)], WorkspaceID: workspace, Data: map[string]any{
		"id": 91834 + n%len(slugs), "slug": slug, "destination_url": "https://shop.example.com/" + slug + "?ref=mail&lang=en",
		"title": "Spring & <summer> “sale”", "tags": []string{"spring", "mail"}, "status": "active", "max_clicks": nil,
		"created_by_user_id": 1187, "updated_at": time.Now().UTC(),
	}}
}
