package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// A publish that returns after Run has stopped gives its leases back. It stored
// its event, so it must say so even if the store panics in that.
func TestALatePublishIsConfirmedThoughItsLeasesCannotBeGivenBack(t *testing.T) {
	faultyBubble(t, webhook.Config{Logger: quiet()}, func(w *world, f *faulty) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		f.set(once("release", func() error { panic("boom") }), once("publish", func() error { time.Sleep(time.Minute); return nil }))
		receipt := make(chan webhook.Receipt, 1)
		go func() { receipt <- w.publish(webhook.Event{}) }()
		w.sleep(time.Second)
		w.stop()
		id := (<-receipt).DeliveryIDs[0]
		require.Equal(w, 1, f.count("release"))
		w.run()
		w.sleep(time.Minute)
		require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
	})
}
