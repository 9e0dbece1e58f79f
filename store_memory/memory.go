// Package memorystore keeps a Dispatcher's endpoints, queue and log in memory.
// It serves tests, and programs whose events need not outlive the process.
package memorystore

import (
	"context"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

// Options are the settings of a Store. The zero Options are the defaults.
type Options struct {
	// FirstDeliveryID is the id of the first delivery. Receivers remember the
	// ids they saw, so ids must not repeat over restarts. Defaults to the time
	// in Unix milliseconds × 1000, which keeps clear of the ids of an earlier
	// process unless that stored more than 1,000 deliveries a millisecond.
	FirstDeliveryID int64
}

// Store is a store.Store in memory. It starts no goroutines, and never waits
// for anything but its own lock.
//
// What an operation costs does not depend on the backlog beyond its logarithm;
// only a list with filters that select little looks at what it leaves out.
type Store struct {
	mu     sync.Mutex
	closed bool

	revision     int64 // the last one given
	lastEndpoint int64 // the highest id ever in use
	lastDelivery int64
	lastUse      int64 // of an idempotency key

	workspaces map[int64]*workspace
	endpoints  map[int64]*endpoint // what is left of deleted ones included
	live       ordered[*endpoint]  // the others, by id
	deliveries map[int64]*delivery
	byEvent    map[string][]*delivery

	due      heap[*endpoint]    // active ones with work, by when a claim could give something
	overlaps heap[*endpoint]    // those with a previous secret, by the overlap's end
	changes  ordered[*endpoint] // all, by revision
	finished ordered[*delivery] // delivered and failed ones, by completion
	keys     ordered[*keyUse]   // by first use
	gone     []*endpoint        // deleted ones that still have rows

	// Scratch space of single calls, kept to spare allocations.
	selected []*endpoint // by an event
	aside    []*endpoint // without room in a claim
	fresh    []*delivery // published, or made due
}

// workspace is a tenant: nothing in it refers to another.
type workspace struct {
	endpoints   ordered[*endpoint]           // live ones, by id
	subscribers map[subscription][]*endpoint // made when first needed after a change
	log         ordered[*delivery]           // in the log's order
	keys        map[string]*keyUse
}

// New returns an empty Store.
func New(opts Options) *Store {
	first := opts.FirstDeliveryID
	if first == 0 {
		first = time.Now().UnixMilli() * 1000
	}
	return &Store{
		revision:     1,
		lastDelivery: first - 1,
		workspaces:   map[int64]*workspace{},
		endpoints:    map[int64]*endpoint{},
		live:         ordered[*endpoint]{compare: byEndpointID},
		deliveries:   map[int64]*delivery{},
		byEvent:      map[string][]*delivery{},
		due:          heap[*endpoint]{less: earlierDue, index: dueIndex},
		overlaps:     heap[*endpoint]{less: earlierEnd, index: overlapIndex},
		changes:      ordered[*endpoint]{compare: byRevision},
		finished:     ordered[*delivery]{compare: byCompletion},
		keys:         ordered[*keyUse]{compare: byFirstUse},
	}
}

var _ store.Store = (*Store)(nil)

// Close makes all calls after it return store.ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.closed = true
	return nil
}

// begin takes the lock for a method, unless it returns an error.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// workspace returns a workspace, made if need be.
func (s *Store) workspace(id int64) *workspace {
	w := s.workspaces[id]
	if w == nil {
		w = &workspace{
			endpoints: ordered[*endpoint]{compare: byEndpointID},
			log:       ordered[*delivery]{compare: byCreation},
		}
		s.workspaces[id] = w
	}
	return w
}

// Instants are kept as Unix milliseconds. The zero time.Time has a value of
// its own among them, unset, so that converting loses nothing.
const unset = -62135596800000

func millis(t time.Time) int64 { return t.UnixMilli() }

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// whole is an instant as a store returns it.
func whole(t time.Time) time.Time { return instant(millis(t)) }
