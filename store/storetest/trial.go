package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	home    int64 = 42 // the workspace of most cases
	abroad  int64 = 43 // another one
	nowhere int64 = 1 << 40

	leaseTime = 30 * time.Second
	plenty    = 1000 // more room than any case fills
)

var begin = time.Date(2026, 9, 21, 9, 14, 2, 0, time.UTC)

// at returns the instant that is d after the cases begin.
func at(d time.Duration) time.Time { return begin.Add(d) }

// trial is one run of a case. Its methods end the case when something is not
// as promised, the way testing.T does, so that a case reads as a story. It is
// for one goroutine.
type trial struct {
	ctx    context.Context
	st     store.Store
	serial int64
}

// broken carries the error of a failed case from where it was found to check.
type broken struct{ err error }

// check turns a story into the Check of a Case. Its error tells what was found
// and which calls led there.
func check(story func(t *trial)) func(context.Context, store.Store) error {
	return func(ctx context.Context, st store.Store) error {
		w := &witness{Store: st}
		if err := tell(ctx, w, story); err != nil {
			return fmt.Errorf("%w\n%s", err, w.report())
		}
		return nil
	}
}

// tell runs a story.
func tell(ctx context.Context, st store.Store, story func(t *trial)) (err error) {
	defer rescue(&err)
	story(&trial{ctx: ctx, st: st})
	return nil
}

// rescue turns a panic into an error: what failf found, or the panic of a
// store, or of a case that was answered with less than it counts on.
func rescue(err *error) {
	switch found := recover().(type) {
	case nil:
	case broken:
		*err = found.err
	default:
		*err = fmt.Errorf("panic: %v\n%s", found, debug.Stack())
	}
}

func (t *trial) failf(format string, args ...any) {
	panic(broken{fmt.Errorf(format, args...)})
}

// must ends the case if a call returned an error.
func (t *trial) must(err error, call string) {
	if err != nil {
		t.failf("%s returned an error, want none: %w", call, err)
	}
}

// refused ends the case unless a call returned the wanted error.
func (t *trial) refused(err, want error, format string, args ...any) {
	if errors.Is(err, want) {
		return
	}
	call := fmt.Sprintf(format, args...)
	if err == nil {
		t.failf("%s returned no error, want %s", call, sentinel(want))
	}
	t.failf("%s returned error %q, want one that wraps %s", call, err, sentinel(want))
}

// sentinel is how package store calls an error.
func sentinel(err error) string {
	for _, s := range []struct {
		err  error
		name string
	}{
		{store.ErrNotFound, "store.ErrNotFound"},
		{store.ErrConflict, "store.ErrConflict"},
		{store.ErrPending, "store.ErrPending"},
		{store.ErrIdempotencyConflict, "store.ErrIdempotencyConflict"},
		{store.ErrOutcomeUnknown, "store.ErrOutcomeUnknown"},
		{store.ErrClosed, "store.ErrClosed"},
	} {
		if errors.Is(err, s.err) {
			return s.name
		}
	}
	return fmt.Sprintf("%q", err)
}

// same ends the case unless got is want. Instants are compared as instants,
// and an empty slice or map is the same as none.
func (t *trial) same(got, want any, format string, args ...any) {
	if d := difference(got, want); d != "" {
		t.failf("%s: %s", fmt.Sprintf(format, args...), d)
	}
}

// next returns a number that this trial did not use before.
func (t *trial) next() int64 {
	t.serial++
	return t.serial
}

// together calls f n times at once and returns the errors.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			defer rescue(&errs[i])
			errs[i] = f(i)
		})
	}
	close(start)
	all.Wait()
	return errs
}

// oneWinner ends the case unless exactly one error is nil and all others are want.
func (t *trial) oneWinner(errs []error, want error, call string) {
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		t.refused(err, want, "%s, called %d times at once,", call, len(errs))
	}
	t.same(won, 1, "%s by %d at once: how many succeeded", call, len(errs))
}
