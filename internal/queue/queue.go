// Package queue is the scheduler: it moves deliveries from a store, or straight
// from a publish, through one lane per endpoint to workers, and what came of
// them back into the store.
//
// One coordinator, the goroutine that called Run, makes all store calls: it
// records and claims in batches, and since it takes whatever has gathered while
// the previous transaction committed, batches need no timer. Workers take from
// the lanes round-robin. A receiver that hangs fills its own lane: an attempt
// unanswered after SlowAfter stops counting against the workers and moves to the
// slow pool, and its lane starts nothing more until somebody answers. One to an
// endpoint that has not been heard of yet moves there sooner, and one to an
// endpoint that let a time limit pass begins there.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

// SlowAfter is how long an attempt may go unanswered before it moves from the
// workers to the slow pool.
const SlowAfter = 250 * time.Millisecond

// unprovenAfter is SlowAfter for endpoints that have not answered yet.
const unprovenAfter = SlowAfter / 10

// StartMargin is how much longer than an attempt's time limit its lease must
// last for a request to be started.
const StartMargin = 5 * time.Second

// Sender makes the attempts.
type Sender interface {
	// Prepare returns what Send needs for a target and every delivery to it: it
	// opens secrets, parses the URL. An error keeps the target's deliveries
	// waiting, with the error as their last.
	Prepare(t *store.Target) (any, error)

	// Send makes one attempt. It asks f.Sending just before the request goes out,
	// calls f.Began as soon as it does, and f.Answered when status and headers
	// are there. It returns when f.Context is done.
	Send(f *Flight, prepared any) Result
}

// Result is what one attempt came to.
type Result struct {
	Outcome  store.Outcome // DeliveryID, EndpointID and Token are the queue's to set
	TimedOut bool          // there was no answer within the time limit

	// Interrupted means that the attempt was cut short by us: the delivery goes
	// back to the queue and nothing is counted.
	Interrupted bool
	// Unready, unless nil, says why there could be no attempt. The delivery
	// waits, longer each time.
	Unready error
}

// Config is what a Queue is made of. All fields but Health are required.
type Config struct {
	Store  store.Store
	Sender Sender
	Logger *slog.Logger
	Health *store.HealthPolicy

	Workers     int // attempts at once, not counting slow ones
	Slow        int // slow attempts at once
	PerEndpoint int // attempts at once to one endpoint
	MaxBody     int // the largest payload
	HeldBytes   int // payload bytes held in memory, about, without the slow ones

	Poll     time.Duration // how often the store is probed
	Timeout  time.Duration // to the answer's headers
	BodyTime time.Duration // more, for its body
	Lease    time.Duration
	Grace    time.Duration // for running attempts at stop

	// Recorded is told of outcomes that were written, and of those that were
	// stale; lease gives the lease of each. It runs on the coordinator and must be
	// quick.
	Recorded func(outcomes []store.Outcome, lease func(i int) *store.Lease, result store.RecordResult)
	// Maintain does a bounded piece of housekeeping and says when to come back.
	Maintain func(ctx context.Context, now time.Time) (next time.Time, err error)
}

// ErrRunning is returned by a second Run at the same time.
var ErrRunning = errors.New("already running")

// Queue is the scheduler. Make one with New.
type Queue struct {
	cfg    Config
	signal chan struct{} // one slot: the coordinator has something to look at
	watch  chan struct{} // one slot: attempts are running
	epoch  time.Time     // the flights' clock starts here

	mu         sync.Mutex
	work       sync.Cond // workers without work wait here
	state      state
	lanes      map[int64]*lane
	workspaces map[int64]map[int64]*lane // the same, by workspace
	ready      ring                      // lanes that can start something
	hungry     map[*lane]struct{}        // lanes with more
	fences     map[int64]fence           // endpoints that changed lately
	flights    []*Flight                 // running attempts
	alone      map[*Flight]struct{}      // those of RunOnce
	slow       int                       // of them, in the slow pool
	workers    int                       // goroutines
	waiting    int                       // of them, without work
	held       int                       // leases in memory, and room promised to publishes
	bytes      int                       // payload bytes of those leases
	average    int                       // payload bytes of a lease, lately
	todo       todo                      // for the coordinator
	recycled   todo                      // lists to use for the next todo
	nextDue    time.Time                 // when the store may have something to claim
	tidyAt     time.Time                 // when housekeeping is due
	probedAt   time.Time                 // what other processes changed before is known
	skewed     bool                      // this host's clock is off
	lines      []line                    // to log once the lock is free
	group      sync.WaitGroup            // workers and the watcher
}

type state int

const (
	stateIdle state = iota
	stateRunning
	stateStopping
)

// todo is what workers and fences leave to the coordinator.
type todo struct {
	outcomes []store.Outcome // to record, of
	finished []*item         // these, index by index
	releases []store.Release // to give back, of
	returned []*item         // these
	aside    []*item         // whose lease must be renewed before they start
}

func (t *todo) empty() bool {
	return len(t.outcomes) == 0 && len(t.releases) == 0 && len(t.aside) == 0
}

// A fence keeps what was leased before an endpoint changed from starting.
type fence struct {
	revision int64
	until    time.Time
}

// New returns a Queue. It starts nothing.
func New(cfg Config) *Queue {
	q := &Queue{
		cfg:        cfg,
		signal:     make(chan struct{}, 1),
		watch:      make(chan struct{}, 1),
		epoch:      time.Now(),
		lanes:      make(map[int64]*lane),
		workspaces: make(map[int64]map[int64]*lane),
		fences:     make(map[int64]fence),
		alone:      make(map[*Flight]struct{}),
		hungry:     make(map[*lane]struct{}),
		average:    cfg.MaxBody, // the worst, until there is something to go by
	}
	q.work.L = &q.mu
	return q
}

// Wake makes a running queue look into the store now.
func (q *Queue) Wake() {
	q.mu.Lock()
	q.due(time.Now())
	q.unlock()
	q.poke()
}

// A line is a log line that came up under the lock. The host's handler may be
// slow, or call back.
type line struct {
	level slog.Level
	text  string
	args  []any
}

func (q *Queue) log(level slog.Level, text string, args ...any) {
	q.lines = append(q.lines, line{level, text, args})
}

// unlock ends the lock and writes what came up under it.
func (q *Queue) unlock() {
	lines := q.lines
	q.lines = nil
	q.mu.Unlock()
	for _, l := range lines {
		q.cfg.Logger.Log(context.Background(), l.level, l.text, l.args...)
	}
}

// due notes that the store may have something to claim at an instant.
func (q *Queue) due(at time.Time) {
	if !at.IsZero() && (q.nextDue.IsZero() || at.Before(q.nextDue)) {
		q.nextDue = at
	}
}

func (q *Queue) poke() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}
