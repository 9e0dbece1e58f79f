package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// clocked is a store with a clock of its own.
type clocked struct {
	store.Store
	mu    sync.Mutex
	off   time.Duration   // ahead of this host's
	delay []time.Duration // of the way there and of the way back, by turns
	err   error
	looks int
}

func (c *clocked) Now(context.Context) (time.Time, error) {
	c.mu.Lock()
	way := func() time.Duration {
		if len(c.delay) == 0 {
			return 0
		}
		d := c.delay[0]
		c.delay = append(c.delay[1:], d)
		return d
	}
	there, off, back, err := way(), c.off, way(), c.err
	c.looks++
	c.mu.Unlock()
	time.Sleep(there)
	now := time.Now().Add(off)
	time.Sleep(back)
	return now, err
}

func (c *clocked) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func clockedBubble(t *testing.T, c *clocked, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c.Store = memorystore.New(memorystore.Options{})
		w := newWorld(t, c, webhook.Config{})
		defer func() { w.stop() }()
		test(w)
	})
}

// runs starts Run and stops it a moment later.
func runs(w *world) error {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	return w.Dispatcher.Run(ctx)
}

func TestRunRefusesAClockThatIsOff(t *testing.T) {
	for name, test := range map[string]struct {
		off     time.Duration
		delay   []time.Duration
		refused string
	}{
		"right":                         {},
		"as far off as is allowed":      {off: 1500 * time.Millisecond},
		"behind by more":                {off: 1501 * time.Millisecond, refused: "it is 1.501s behind the store's, and 1.5s are allowed"},
		"ahead by more":                 {off: -1501 * time.Millisecond, refused: "it is 1.501s ahead of the store's"},
		"an hour":                       {off: time.Hour, refused: "it is 1h0m0s behind"},
		"right, far away":               {delay: []time.Duration{2 * time.Second, 2 * time.Second}},
		"right, by a crooked way":       {delay: []time.Duration{4 * time.Second, 0}},
		"off, by a way once short":      {off: 1600 * time.Millisecond, delay: []time.Duration{3 * time.Second, 0, 0, 0, 0, 3 * time.Second}, refused: "it is 1.6s"},
		"perhaps off, by a crooked way": {off: 1600 * time.Millisecond, delay: []time.Duration{0, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clocked{off: test.off, delay: test.delay}
			clockedBubble(t, c, func(w *world) {
				err := runs(w)
				_, once := w.RunOnce(w.Context())
				if test.refused == "" {
					require.NoError(w, err)
					require.NoError(w, once)
					return
				}
				require.ErrorIs(w, err, webhook.ErrClock)
				require.ErrorContains(w, err, test.refused)
				require.ErrorIs(w, once, webhook.ErrClock)
			})
		})
	}
}

func TestRunRefusesAClockThatCannotBeRead(t *testing.T) {
	broken := errors.New("no clock")
	clockedBubble(t, &clocked{err: broken}, func(w *world) { require.ErrorIs(w, runs(w), broken) })
}

// A clock that goes wrong later ends claiming, until it is right again. What is
// under way is recorded, and what waits goes back.
func TestAClockThatGoesWrongEndsClaiming(t *testing.T) {
	c := &clocked{}
	clockedBubble(t, c, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		release := make(chan struct{})
		w.net.set(func(r *http.Request, _ int) (*http.Response, error) {
			select {
			case <-release:
				return status(200), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		running := w.publish(webhook.Event{})
		waiting := w.publish(webhook.Event{}) // behind it, as the endpoint has not answered yet
		w.settle()
		require.Len(w, w.net.all(), 1)

		c.set(func() { c.off = -time.Hour })
		w.sleep(30 * time.Second) // the next look
		require.Contains(w, w.log.String(), "nothing is claimed any more")
		require.Equal(w, 1, strings.Count(w.log.String(), "nothing is claimed any more"))
		late := w.publish(webhook.Event{})
		_ = running
		w.sleep(time.Minute)
		sent := len(w.net.all())
		close(release)
		w.sleep(time.Minute)
		require.Len(w, w.net.all(), sent, "requests while the clock is off")
		for _, r := range []webhook.Receipt{waiting, late} {
			require.Equal(w, webhook.StatusPending, w.delivery(r.DeliveryIDs[0]).Status)
		}

		c.set(func() { c.off = time.Second })
		w.sleep(3 * time.Second)
		require.Contains(w, w.log.String(), "clock is right again")
		w.sleep(10 * time.Minute)
		for _, r := range []webhook.Receipt{running, waiting, late} {
			require.Equal(w, webhook.StatusDelivered, w.delivery(r.DeliveryIDs[0]).Status)
		}
	})
}

// A clock that cannot be read for a while stops nothing.
func TestAClockThatCannotBeReadLaterStopsNothing(t *testing.T) {
	c := &clocked{}
	clockedBubble(t, c, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		c.set(func() { c.err = errors.New("no answer") })
		w.sleep(time.Minute)
		require.Contains(w, w.log.String(), "reading its clock")
		r := w.publish(webhook.Event{})
		w.settle()
		require.Equal(w, webhook.StatusDelivered, w.delivery(r.DeliveryIDs[0]).Status)
		c.set(func() { c.err = nil })
		w.sleep(time.Minute)
		require.Contains(w, w.log.String(), "the store is back")
	})
}

func TestTheClockIsLookedAtNowAndThen(t *testing.T) {
	c := &clocked{}
	clockedBubble(t, c, func(w *world) {
		w.run()
		w.sleep(10 * time.Minute)
		require.InDelta(w, 3*21, c.looks, 6, "looks in ten minutes: three every 30 s")
	})
}
