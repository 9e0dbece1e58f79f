package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// What cannot be given back runs out by itself; what was sent must be known,
// while Run goes on and as it ends.
func TestALeaseThatCannotBeGivenBackHoldsUpNoRecord(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		t.Run(fmt.Sprint("stopping ", stopping), func(t *testing.T) {
			faultyBubble(t, webhook.Config{MaxInFlight: 1, Logger: quiet()}, func(w *world, f *faulty) {
				w.net.set(slowly(time.Second))
				slow, _ := w.endpoint(webhook.EndpointParams{})
				done := make(chan error, 1)
				ctx, cancel := context.WithCancel(context.Background())
				go func() { done <- w.Dispatcher.Run(ctx) }()
				w.settle()
				var ids []int64
				for range 3 { // one is under way, another waits in the lane
					ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
				}
				w.settle()
				f.set(func(_ context.Context, call string) error {
					if call == "release" {
						return errors.New("no")
					}
					return nil
				}, nil)
				if stopping {
					cancel()
					require.Error(w, <-done)
				} else {
					_, err := w.PauseEndpoint(w.Context(), workspace, slow.ID)
					require.NoError(w, err)
					w.sleep(10 * time.Second)
					cancel()
					<-done
				}
				require.Equal(w, webhook.StatusDelivered, w.delivery(ids[0]).Status)
				require.Len(w, w.net.all(), 1)
			})
		})
	}
}
