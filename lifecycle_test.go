package webhook_test

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// TestThePayloadThatKillsIsNamedBeforeItIsSent: a line that is written when the
// process is dead is not.
func TestThePayloadThatKillsIsNamedBeforeItIsSent(t *testing.T) {
	for name, deliver := range map[string]func(w *world){
		"run":      func(w *world) { w.run(); w.sleep(10 * time.Second) },
		"run once": func(w *world) { _, err := w.RunOnce(w.Context()); require.NoError(w, err) },
	} {
		t.Run(name, func(t *testing.T) {
			var named atomic.Bool
			slow := handlerFunc(func(r slog.Record) {
				if strings.Contains(r.Message, "interrupted often") {
					time.Sleep(time.Second)
					named.Store(true)
				}
			})
			bubble(t, webhook.Config{Logger: slog.New(slow)}, func(w *world) {
				w.endpoint(webhook.EndpointParams{})
				id := w.publish(webhook.Event{}).DeliveryIDs[0]
				for range 5 { // processes that took it and died
					r, err := w.store.Claim(w.Context(), store.ClaimParams{Now: time.Now(), LeaseParams: store.LeaseParams{
						Token: 1, Until: time.Now().Add(time.Minute), Room: store.Room{Limit: 1, PerEndpoint: 1}}})
					require.NoError(w, err)
					require.Len(w, r.Leases, 1)
					time.Sleep(time.Minute)
				}
				w.sleep(store.RetakeDelay(5))
				w.net.set(func(*http.Request, int) (*http.Response, error) {
					require.True(w, named.Load(), "the line is in the log when the request goes out")
					return status(200), nil
				})
				deliver(w)
				require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
			})
		})
	}
}
