package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	watchAgain = time.Second      // after a watch that ended, at first
	watchMost  = 30 * time.Second // and after many
)

// watchStore has the store wake the queue until ctx ends. Polling goes on beside
// it, so that a watch that fails costs nothing but time.
func (q *Queue) watchStore(ctx context.Context, w store.Watcher) {
	for failures := 0; ; failures++ {
		begun := time.Now()
		err := q.watchOnce(ctx, w)
		switch {
		case ctx.Err() != nil, errors.Is(err, errors.ErrUnsupported), errors.Is(err, store.ErrClosed):
			return
		case time.Since(begun) > watchMost:
			failures = 0
		}
		wait := min(watchAgain<<min(failures, 10), watchMost)
		q.cfg.Logger.Warn("webhook: watching the store ended; polling goes on", "error", err, "again_in", wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// watchOnce contains a panic in the store.
func (q *Queue) watchOnce(ctx context.Context, w store.Watcher) (err error) {
	defer func() {
		if p := recover(); p != nil {
			q.cfg.Logger.Error("webhook: panic in the store", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errors.New("the store panicked; see the log")
		}
	}()
	return w.Watch(ctx, q.Wake)
}
