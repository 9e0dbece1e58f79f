// Metrics serves what Prometheus scrapes, after a few deliveries to receivers on
// this machine: one works, one fails at first, and one is broken.
//
//	go run ./examples/metrics          # from the repository's root; until an interrupt
//	curl http://127.0.0.1:…/metrics    # the address that it prints
//
// With -once it asks itself, prints the series that are not zero and ends.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/elido-app/webhook/metrics"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

func main() {
	address := flag.String("listen", "127.0.0.1:0", "where to serve /metrics; port 0 takes a free one")
	once := flag.Bool("once", false, "print the metrics and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *address, *once)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, address string, once bool) error {
	dir, err := os.MkdirTemp("", "webhook-metrics-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	st, err := sqlitestore.Open(ctx, filepath.Join(dir, "webhooks.db"))
	if err != nil {
		return err
	}
	defer st.Close()

	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{})
	if err != nil {
		return err
	}
	ended := make(chan int64) // deliveries
	config := webhook.ExtendedProfile()
	config.Observer = webhook.Observers(m, webhook.ObserverFunc(func(ctx context.Context, n webhook.Notice) {
		if a, ok := n.(webhook.AttemptFinished); ok && a.Status != webhook.StatusPending {
			select {
			case ended <- a.DeliveryID:
			case <-ctx.Done():
			}
		}
	}))
	config.Egress.AllowLoopback = true // the receiver is on this machine
	config.Retry = webhook.RetryPolicy{Delays: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}}
	config.Logger = slog.New(slog.DiscardHandler)
	d, err := webhook.New(st, config)
	if err != nil {
		return err
	}
	m.Watch(d) // for the backlog

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	url := "http://" + listener.Addr().String() + "/metrics"

	ctx, end := context.WithCancel(ctx)
	defer end()
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
	group.Go(func() error {
		fmt.Fprintln(out, "delivering to receivers on this machine …")
		if err := deliver(ctx, d, ended); err != nil {
			return err
		}
		if once {
			defer end()
			return show(ctx, out, url)
		}
		fmt.Fprintln(out, "metrics at", url)
		return nil
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

const workspace = 42

// deliver publishes to three receivers and waits for the end of all deliveries.
func deliver(ctx context.Context, d *webhook.Dispatcher, ended <-chan int64) error {
	receivers := http.NewServeMux()
	receivers.HandleFunc("/works", func(http.ResponseWriter, *http.Request) {})
	receivers.HandleFunc("/fails-at-first", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Elido-Delivery-Attempt") == "1" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	receivers.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	server := httptest.NewServer(receivers)
	defer server.Close()
	for _, path := range []string{"/works", "/fails-at-first", "/broken"} {
		if _, _, err := d.CreateEndpoint(ctx, webhook.EndpointParams{
			WorkspaceID: workspace, URL: server.URL + path, Events: []string{"link.*"},
		}); err != nil {
			return err
		}
	}
	pending := make(map[int64]bool)
	for id := range 5 {
		r, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: map[string]any{"id": id}})
		if err != nil {
			return err
		}
		for _, id := range r.DeliveryIDs {
			pending[id] = true
		}
	}
	for len(pending) > 0 {
		select {
		case id := <-ended:
			delete(pending, id)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// show scrapes and prints what is not zero.
func show(ctx context.Context, out io.Writer, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		line := lines.Text()
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") && !strings.HasSuffix(line, " 0") {
			fmt.Fprintln(out, line)
		}
	}
}
