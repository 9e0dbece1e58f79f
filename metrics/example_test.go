package metrics_test

import (
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/metrics"
	memorystore "github.com/elido-app/webhook/store_memory"
)

func Example() {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(collectors.NewGoCollector())

	m, err := metrics.New(registry, metrics.Options{})
	if err != nil {
		log.Fatal(err)
	}
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Observer: m})
	if err != nil {
		log.Fatal(err)
	}
	m.Watch(d)

	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	fmt.Println("ready")
	// Output: ready
}
