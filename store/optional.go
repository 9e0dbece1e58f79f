package store

import (
	"context"
	"time"
)

// The interfaces of this file are optional: a Dispatcher uses what its store has
// of them. They make it quicker or safer, never correct: a store without them
// loses nothing.

// A Watcher is a Store that can tell at once when another process left work
// behind, which polling would find later.
type Watcher interface {
	// Watch calls wake when a Claim may have become able to give something, and
	// once when it begins to watch, as something may have happened before. wake
	// does not block. What happens while wake runs leads to another call of it.
	//
	// Watch returns when ctx ends, or when it cannot go on; then it may be called
	// again. An error that wraps errors.ErrUnsupported says that there is no use
	// in that.
	Watch(ctx context.Context, wake func()) error
}

// A Clock is a Store that several hosts share and that has a clock of its own,
// by which they can tell whether theirs agree.
type Clock interface {
	// Now returns the time of the store's clock.
	Now(ctx context.Context) (time.Time, error)
}
