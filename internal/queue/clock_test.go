package queue

import (
	"context"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// These are about what a test in a bubble cannot show: its times have no
// monotonic reading, so that in it no clock is ever set.

// readBefore returns an instant as it was read, or reckoned, before the wall
// clock was set back: an hour ahead by the wall clock, the same by the monotonic.
func readBefore(t *testing.T, at time.Time) time.Time {
	before := at
	// The seconds of the wall clock are above 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&before)) += uint64(time.Hour/time.Second) << 30
	require.Zero(t, before.Sub(at))
	require.Equal(t, time.Hour, before.Round(0).Sub(at.Round(0)))
	return before
}

func TestAClockSetBackPutsOffNoPoll(t *testing.T) {
	q := New(Config{Store: memorystore.New(memorystore.Options{}), Workers: 1, MaxBody: 1, HeldBytes: 1000})
	c := &coordinator{Queue: q}
	now := time.Now()
	c.pollAt = readBefore(t, now.Add(2*time.Second))
	c.nextDue = now.Add(10 * time.Minute).Round(0) // from the store, by the clock as it is now
	require.LessOrEqual(t, c.idle(), 2*time.Second)

	c.pollAt = now.Add(2 * time.Second)
	c.nextDue = now.Add(time.Second).Round(0)
	require.LessOrEqual(t, c.idle(), time.Second)
	c.nextDue = time.Time{}
	require.Greater(t, c.idle(), time.Second)
}

// claims notes until when what is claimed was due.
type claims struct {
	store.Store
	until []time.Time
}

func (c *claims) Claim(_ context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	c.until = append(c.until, p.Now)
	return store.ClaimResult{}, nil
}

func TestAClockSetBackDuringRunOnceMakesNothingDue(t *testing.T) {
	st := &claims{Store: memorystore.New(memorystore.Options{})}
	q := New(Config{Store: st, Logger: slog.New(slog.DiscardHandler), MaxBody: 1, Lease: time.Minute})
	start := time.Now().Round(0)
	for _, start := range []time.Time{start.Add(time.Hour), start} { // read before the step, and without one
		_, err := q.recordOnce(t.Context(), nil, nil, start)
		require.NoError(t, err)
	}
	require.WithinRange(t, st.until[0], start, time.Now())
	require.Equal(t, start, st.until[1])
}
