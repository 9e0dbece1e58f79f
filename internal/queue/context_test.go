package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What package context promises of its contexts holds for a flight's.
func TestFlightContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(flightContext)
		require.NoError(t, c.Err())
		var called []string
		call := func(name string) func() { return func() { called = append(called, name) } }
		stop := c.AfterFunc(call("stopped"))
		other := c.AfterFunc(call("called"))
		require.True(t, stop(), "it was kept from being called")
		require.False(t, stop(), "once")

		child, cancel := context.WithTimeout(c, time.Hour)
		defer cancel()
		late, lateCancel := context.WithCancelCause(c)
		lateCancel(nil)
		require.ErrorIs(t, late.Err(), context.Canceled)
		require.NoError(t, c.Err(), "a child's end is its own")

		done := c.Done()
		c.end(context.DeadlineExceeded)
		c.end(context.Canceled)
		synctest.Wait()
		<-done
		<-c.Done()
		<-child.Done()
		require.Equal(t, context.DeadlineExceeded, c.Err(), "the first end counts")
		require.Equal(t, context.DeadlineExceeded, child.Err())
		require.ErrorIs(t, context.Cause(c), context.DeadlineExceeded)
		require.Equal(t, []string{"called"}, called)
		require.False(t, other())

		over := c.AfterFunc(call("at once"))
		synctest.Wait()
		require.Equal(t, []string{"called", "at once"}, called)
		require.False(t, over())
	})

	unasked := new(flightContext)
	unasked.end(context.Canceled)
	<-unasked.Done()
	require.Equal(t, context.Canceled, unasked.Err())
}
