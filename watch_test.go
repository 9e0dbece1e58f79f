package webhook_test

import (
	"context"
	"errors"
	"fmt"
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

// watched is a store that tells of others' publishes.
type watched struct {
	store.Store
	mu      sync.Mutex
	wake    func()
	watches int
	fail    func(n int) error // of the n-th watch, at once; nil: it goes on
}

func (s *watched) Watch(ctx context.Context, wake func()) error {
	s.mu.Lock()
	s.watches++
	n := s.watches
	s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(n); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.wake = wake
	s.mu.Unlock()
	wake()
	<-ctx.Done()
	s.mu.Lock()
	s.wake = nil
	s.mu.Unlock()
	return ctx.Err()
}

func (s *watched) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake != nil {
		s.wake()
	}
}

func watchedBubble(t *testing.T, s *watched, test func(w, other *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.Store = memorystore.New(memorystore.Options{})
		w := newWorld(t, s, webhook.Config{Poll: time.Hour})
		defer func() { w.stop() }()
		test(w, newWorld(t, s.Store, webhook.Config{}))
	})
}

func TestAWatchedStoreIsNotPolledForWork(t *testing.T) {
	s := &watched{}
	watchedBubble(t, s, func(w, other *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		for n := range 3 {
			other.publish(webhook.Event{})
			s.tell()
			w.settle()
			require.Len(w, w.net.all(), n+1, "requests without time passing")
		}
		w.stop()
		require.Nil(w, s.wake, "Run returned while the watch went on")
	})
}

// What was published before the watch began, or while it was broken, is found
// when it begins.
func TestAWatchThatBeginsWakes(t *testing.T) {
	s := &watched{fail: func(n int) error {
		if n <= 3 {
			return errors.New("connection lost")
		}
		return nil
	}}
	watchedBubble(t, s, func(w, other *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		other.publish(webhook.Event{})
		w.sleep(time.Second + 2*time.Second - time.Millisecond)
		require.Len(w, w.net.all(), 0, "requests before the watch")
		w.sleep(5 * time.Second)
		require.Len(w, w.net.all(), 1, "requests once it goes on")
		require.Equal(w, 3, strings.Count(w.log.String(), "watching the store ended"))
	})
}

func TestAWatchIsNotTriedAgainWithoutUse(t *testing.T) {
	s := &watched{fail: func(int) error { return fmt.Errorf("not here: %w", errors.ErrUnsupported) }}
	watchedBubble(t, s, func(w, _ *world) {
		w.run()
		w.sleep(10 * time.Minute)
		require.Equal(w, 1, s.watches)
		require.NotContains(w, w.log.String(), "watching the store")
	})
}

func TestAWatchThatPanicsIsContained(t *testing.T) {
	s := &watched{fail: func(n int) error {
		if n == 1 {
			panic("no")
		}
		return nil
	}}
	watchedBubble(t, s, func(w, other *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.sleep(time.Minute)
		other.publish(webhook.Event{})
		s.tell()
		w.settle()
		require.Len(w, w.net.all(), 1)
	})
}
