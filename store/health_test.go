package store_test

import (
	"testing"
	"time"

	"github.com/elido-app/webhook/store"
)

// The instants of health are whole milliseconds in UTC, whatever a store passes.
func TestHealthIsKeptInWholeMilliseconds(t *testing.T) {
	east := time.FixedZone("east", 3600)
	now := time.Date(2026, 11, 30, 9, 0, 0, 7_999_999, east)
	p := store.HealthPolicy{DegradeAfter: 1, DegradeFor: time.Hour + 999_999*time.Nanosecond, PauseAfter: 2}
	h, change := store.Health{}.Next(p, store.HealthFailure, now.Add(-time.Second), now)
	want := store.Health{
		Failures: 1, FailedAt: time.Date(2026, 11, 30, 8, 0, 0, 7_000_000, time.UTC),
		DegradedUntil: time.Date(2026, 11, 30, 9, 0, 0, 7_000_000, time.UTC),
	}
	if h != want || change.Health != want || !change.Degraded {
		t.Errorf("got  %+v, reported %+v\nwant %+v", h, change, want)
	}
	// An attempt that began in the millisecond of the last failure began before it.
	if again, change := h.Next(p, store.HealthFailure, now, now.Add(time.Second)); again != h || change.Paused {
		t.Errorf("a failure of the same outage: got %+v, %+v", again, change)
	}
	if again, change := h.Next(p, store.HealthFailure, now.Add(1), now.Add(time.Second)); again.Failures != 2 || !change.Paused {
		t.Errorf("a failure after that: got %+v, %+v", again, change)
	}
}

// A threshold that is not positive is never reached.
func TestHealthWithoutThresholds(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	var h store.Health
	for n := range 3 {
		at := now.Add(time.Duration(n) * time.Minute)
		var change store.HealthChange
		h, change = h.Next(store.HealthPolicy{}, store.HealthFailure, at, at)
		if h.Failures != n+1 || change.Degraded || change.Paused {
			t.Errorf("after %d failures: got %+v, %+v", n+1, h, change)
		}
	}
	if h, change := h.Next(store.HealthPolicy{}, store.HealthSuccess, now, now); h != (store.Health{}) || change.Recovered {
		t.Errorf("after a success: got %+v, %+v", h, change)
	}
}

func TestRoom(t *testing.T) {
	room := store.Room{PerEndpoint: 5, Endpoints: map[int64]int{1: 0, 2: 9}}
	for _, c := range []struct {
		endpoint          int64
		maxInFlight, want int
	}{{1, 3, 0}, {2, 3, 9}, {3, 3, 3}, {3, 0, 5}, {3, 7, 5}} {
		if got := room.For(c.endpoint, c.maxInFlight); got != c.want {
			t.Errorf("endpoint %d with MaxInFlight %d has room for %d, want %d", c.endpoint, c.maxInFlight, got, c.want)
		}
	}
}

func TestRetakeDelay(t *testing.T) {
	for count, want := range map[int]time.Duration{
		0: 0, 4: 0, 5: time.Minute, 6: 2 * time.Minute, 10: 32 * time.Minute, 11: time.Hour, 1 << 40: time.Hour,
	} {
		if got := store.RetakeDelay(count); got != want {
			t.Errorf("after %d interruptions: got %v, want %v", count, got, want)
		}
	}
}
