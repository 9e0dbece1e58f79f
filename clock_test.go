package webhook_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// clockBubble runs a test on each store, on a host whose clock can be set.
func clockBubble(t *testing.T, config webhook.Config, test func(w *world, c *hostClock)) {
	for name, on := range machineStores {
		t.Run(name, func(t *testing.T) {
			connect := on.create(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				st, err := connect()
				require.NoError(t, err)
				defer st.Close()
				c := &hostClock{}
				w := newWorld(t, timed{st, c}, config)
				defer func() { w.stop() }()
				test(w, c)
			})
		})
	}
}

// setClock sets the clock at an instant at which nothing else happens.
func (w *world) setClock(c *hostClock, by time.Duration) {
	w.sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(3 * time.Millisecond / 2)))
	c.step(by, w.Dispatcher)
	w.sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(time.Millisecond)))
}

// counts returns how many requests there were for each delivery.
func (n *network) counts() map[int64]int {
	counts := map[int64]int{}
	for _, h := range n.all() {
		counts[h.delivery]++
	}
	return counts
}

// crowd is deliveries in every state that a clock may be set in.
type crowd struct {
	open    []int64 // under way
	waiting []int64 // leased or not, behind those
	failed  []int64 // once, and waiting for their second attempt
	blocked []int64 // behind those, by their ordering key
}

func (c crowd) all() (ids []int64) {
	for _, list := range [][]int64{c.open, c.waiting, c.failed, c.blocked} {
		ids = append(ids, list...)
	}
	return ids
}

// gather makes a crowd: a lane of requests that take 8 seconds, one of requests
// that take 200 milliseconds, and an endpoint that fails the first attempt of
// everything.
func gather(w *world) (c crowd) {
	w.net.set(func(r *http.Request, n int) (*http.Response, error) {
		switch {
		case r.URL.Host == "slow.example":
			return slowly(8*time.Second)(r, n)
		case r.URL.Host == "quick.example":
			return slowly(200*time.Millisecond)(r, n)
		case n == 1:
			return status(503), nil
		}
		return status(200), nil
	})
	w.endpoint(webhook.EndpointParams{URL: "https://slow.example/", Events: []string{"link.created"}, MaxInFlight: 1})
	w.endpoint(webhook.EndpointParams{URL: "https://quick.example/", Events: []string{"link.deleted"}, MaxInFlight: 1})
	w.endpoint(webhook.EndpointParams{URL: "https://flaky.example/", Events: []string{"link.updated"}})
	w.run()
	w.settle()
	for range 5 {
		c.waiting = append(c.waiting, w.publish(webhook.Event{Type: "link.created"}).DeliveryIDs...)
	}
	c.open, c.waiting = c.waiting[:1], c.waiting[1:]
	for i := range 3 {
		key := fmt.Sprint(i)
		c.failed = append(c.failed, w.publish(webhook.Event{Type: "link.updated", OrderingKey: key}).DeliveryIDs...)
		c.blocked = append(c.blocked, w.publish(webhook.Event{Type: "link.updated", OrderingKey: key}).DeliveryIDs...)
	}
	w.publish(webhook.Event{Type: "link.deleted"}) // its lane is quick from now on
	w.sleep(3 * time.Second)
	for range 8 {
		c.waiting = append(c.waiting, w.publish(webhook.Event{Type: "link.deleted"}).DeliveryIDs...)
	}
	c.open, c.waiting = append(c.open, c.waiting[4]), append(c.waiting[:4:4], c.waiting[5:]...)
	w.sleep(100 * time.Millisecond)
	return c
}

func TestAClockSetBackAnHourDelays(t *testing.T) {
	clockBubble(t, webhook.Config{}, func(w *world, clock *hostClock) {
		c := gather(w)
		w.setClock(clock, -time.Hour)
		fresh := w.publish(webhook.Event{Type: "link.updated"}).DeliveryIDs[0]
		w.settle()
		require.Equal(w, 1, w.net.counts()[fresh], "what is published from now on is not delayed")
		w.sleep(2 * time.Hour)
		counts := w.net.counts()
		require.Equal(w, 2, counts[c.blocked[0]])
		for _, id := range append(c.all(), fresh) {
			v := w.delivery(id)
			require.Equal(w, webhook.StatusDelivered, v.Status, "delivery %d", id)
			require.Equal(w, v.TotalAttempts, counts[id], "delivery %d: every request is an attempt", id)
			require.Len(w, w.attempts(id), v.TotalAttempts)
		}
	})
}

func TestAClockSetForwardAnHourRepeatsWhatIsUnderWay(t *testing.T) {
	clockBubble(t, webhook.Config{}, func(w *world, clock *hostClock) {
		c := gather(w)
		w.setClock(clock, time.Hour)
		w.sleep(6 * 8 * time.Second) // five requests and a repeat
		for _, id := range append(c.open, c.waiting...) {
			require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status, "delivery %d waits for a lease to run out", id)
		}
		w.sleep(20 * time.Minute)
		for _, id := range c.all() {
			require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status, "delivery %d", id)
		}
		counts := w.net.counts()
		for _, id := range c.open {
			require.Equal(w, 1, w.delivery(id).TotalAttempts)
			require.LessOrEqual(w, counts[id], 2, "one repeat at most")
		}
		for _, id := range c.all()[len(c.open):] {
			require.Equal(w, w.delivery(id).TotalAttempts, counts[id], "delivery %d was not under way", id)
		}
	})
}

// A clock that is set forward and, seconds later, right again: what waited was
// leased anew meanwhile, and must not go out under its old lease as well.
func TestAClockSetForwardAndBackRepeatsNothingThatWaits(t *testing.T) {
	clockBubble(t, webhook.Config{}, func(w *world, clock *hostClock) {
		c := gather(w)
		w.setClock(clock, time.Hour)
		w.Wake() // a claim
		w.settle()
		w.setClock(clock, -time.Hour)
		w.sleep(3 * time.Hour)
		counts := w.net.counts()
		for _, id := range c.all() {
			require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status, "delivery %d", id)
		}
		for _, id := range c.all()[len(c.open):] {
			require.Equal(w, w.delivery(id).TotalAttempts, counts[id], "delivery %d was not under way", id)
		}
		for _, id := range c.open {
			require.LessOrEqual(w, counts[id], 2, "one repeat at most")
		}
	})
}

// A clock error that the margin of a lease covers costs nothing at all.
func TestAClockSetByASecondCostsNothing(t *testing.T) {
	for _, by := range []time.Duration{time.Second, -time.Second, 3 * time.Second, -3 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			clockBubble(t, webhook.Config{}, func(w *world, clock *hostClock) {
				c := gather(w)
				w.setClock(clock, by)
				w.sleep(time.Hour)
				counts := w.net.counts()
				for _, id := range c.all() {
					v := w.delivery(id)
					require.Equal(w, webhook.StatusDelivered, v.Status)
					require.Equal(w, v.TotalAttempts, counts[id])
				}
			})
		})
	}
}
