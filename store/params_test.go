package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/elido-app/webhook/store"
)

func TestRetakeDelay(t *testing.T) {
	for count, want := range map[int]time.Duration{
		0: 0, 1: 0, 4: 0,
		5: time.Minute, 6: 2 * time.Minute, 7: 4 * time.Minute, 10: 32 * time.Minute,
		11: time.Hour, 12: time.Hour, 100: time.Hour, math.MaxInt: time.Hour,
	} {
		if got := store.RetakeDelay(count); got != want {
			t.Errorf("after %d interruptions: %v, want %v", count, got, want)
		}
	}
}
