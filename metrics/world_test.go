package metrics_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/metrics"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// world is a Dispatcher on a memory store that delivers to a real receiver, and a
// registry of its own.
type world struct {
	*testing.T
	*webhook.Dispatcher
	registry *prometheus.Registry
	metrics  *metrics.Metrics
	receiver *httptest.Server // answers /204 with 204, and drops the connection for /0
}

func newWorld(t *testing.T, config webhook.Config) *world {
	t.Helper()
	w := &world{T: t, registry: prometheus.NewRegistry()}
	w.receiver = httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(w.receiver.Close)
	config.Egress.AllowLoopback = true
	w.Dispatcher, w.metrics = dispatcher(t, w.registry, memorystore.New(memorystore.Options{}), config)
	return w
}

// answer answers a request to /204 with 204, and one to /0 not at all.
func answer(w http.ResponseWriter, r *http.Request) {
	var status int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); err != nil || status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

func dispatcher(t *testing.T, reg prometheus.Registerer, st store.Store, config webhook.Config) (*webhook.Dispatcher, *metrics.Metrics) {
	t.Helper()
	m, err := metrics.New(reg, metrics.Options{})
	require.NoError(t, err)
	config.Observer = webhook.Observers(m, config.Observer)
	config.Logger = slog.New(slog.DiscardHandler)
	d, err := webhook.New(st, config)
	require.NoError(t, err)
	return d, m
}

func (w *world) endpoint(workspace int64, kind webhook.Kind, path string) webhook.Endpoint {
	w.Helper()
	p := webhook.EndpointParams{WorkspaceID: workspace, Kind: kind, URL: w.receiver.URL + path}
	if kind != webhook.KindSIEM {
		p.Events = []string{"link.*"}
	}
	e, _, err := w.CreateEndpoint(w.Context(), p)
	require.NoError(w, err)
	return e
}

func (w *world) publish(workspace int64, eventType string) webhook.Receipt {
	w.Helper()
	r, err := w.Publish(w.Context(), webhook.Event{Type: eventType, WorkspaceID: workspace, Data: map[string]any{"id": 91834}})
	require.NoError(w, err)
	return r
}

// deliver makes a number of attempts, retries that are due at once among them.
func (w *world) deliver(attempts int) {
	w.Helper()
	for made := 0; made < attempts; { // what a pass makes due is for one after it
		n, err := w.RunOnce(w.Context())
		require.NoError(w, err)
		made += n
		require.LessOrEqual(w, made, attempts)
	}
}

func (w *world) scrape() scrape { return scrapeOf(w.T, w.registry) }

// scrape is what Prometheus gets: a value for each series, written as
// name{a="b",c="d"}.
type scrape map[string]float64

// scrapeOf asks a handler as Prometheus does, and reads the answer.
func scrapeOf(t *testing.T, g prometheus.Gatherer) scrape {
	t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil)
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(recorder, request)
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body.String())
	return parse(t, recorder.Body.Bytes())
}

func parse(t *testing.T, text []byte) scrape {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)
	s := scrape{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				s[series(name, m)] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				s[series(name, m)] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				s[series(name+"_count", m)] = float64(h.GetSampleCount())
				s[series(name+"_sum", m)] = h.GetSampleSum()
				for _, b := range h.GetBucket() {
					s[series(name+"_bucket", m, "le", fmt.Sprint(b.GetUpperBound()))] = float64(b.GetCumulativeCount())
				}
			default:
				require.Fail(t, "a metric of a type that is not expected", name)
			}
		}
	}
	return s
}

func series(name string, m *dto.Metric, more ...string) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	for i := 0; i < len(more); i += 2 {
		labels = append(labels, fmt.Sprintf("%s=%q", more[i], more[i+1]))
	}
	if len(labels) == 0 {
		return name
	}
	sort.Strings(labels)
	return name + "{" + strings.Join(labels, ",") + "}"
}

// nonzero leaves out other names, zeros and buckets.
func (s scrape) nonzero(prefix string) scrape {
	left := scrape{}
	for name, value := range s {
		if value != 0 && strings.HasPrefix(name, prefix) && !strings.Contains(name, "_bucket{") {
			left[name] = value
		}
	}
	return left
}
