package queue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// flightContext is the context of an attempt. Each attempt has one, so it is
// lighter than what package context makes: its channel is made when somebody asks
// for it, and it is part of its Flight.
type flightContext struct {
	mu    sync.Mutex
	done  chan struct{} // nil until asked for
	err   error
	after []*func() // to be called at the end
}

// closed is the channel of contexts that were over before it was asked for.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// end ends the context, for the first reason given.
func (c *flightContext) end(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = reason
	if c.done != nil {
		close(c.done)
	}
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		go (*f)()
	}
}

// AfterFunc is what context.AfterFunc does. Package context calls it, too.
func (c *flightContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.after = append(c.after, &f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, &f)
		if i >= 0 {
			c.after = slices.Delete(c.after, i, i+1)
		}
		return i >= 0
	}
}

// Done implements context.Context.
func (c *flightContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		if c.err != nil {
			return closed
		}
		c.done = make(chan struct{})
	}
	return c.done
}

// Err implements context.Context.
func (c *flightContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Deadline implements context.Context. The time limit moves as an attempt goes
// on, so none is said.
func (*flightContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (*flightContext) Value(any) any { return nil }

var _ context.Context = (*flightContext)(nil)
