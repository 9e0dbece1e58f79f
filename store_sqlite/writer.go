//go:build cgo

package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/elido-app/webhook/store"
)

const (
	// grace is how long a call whose context ended waits for a commit under
	// way, before it gives up without knowing.
	grace = 50 * time.Millisecond
	// patience is how long operations wait for a write lock that somebody else
	// holds, if their contexts do not end before.
	patience = 10 * time.Second
	// maxPause is the longest pause between two tries for the lock.
	maxPause = 20 * time.Millisecond
	// gatherTime is about how long a commit waits for more to share it, where
	// others keep the processors busy.
	gatherTime = time.Millisecond
	// maxBatch bounds the weight of what shares one commit, so that nobody waits
	// for long behind others' large batches.
	maxBatch = 2000
)

var (
	beginImmediate = &query{sql: "BEGIN IMMEDIATE"}
	commit         = &query{sql: "COMMIT"}
	rollback       = &query{sql: "ROLLBACK"}

	errNoCounter = errors.New("webhook_counter has no row")
)

// operation is one call's work on the writer. It can be run again after a
// rollback.
type operation struct {
	work   func(*transaction) error
	weight int // rows, about
	state  atomic.Int32
	err    error         // what the call returns; set before done is closed
	done   chan struct{} // closed at the end
}

// The states of an operation.
const (
	waiting   = iota
	underWay  // the writer runs it or has run it
	withdrawn // its call gave up before the writer came to it
)

// begin reports whether the operation is to be run (again), and that its call
// cannot withdraw it any more.
func (o *operation) begin() bool {
	return o.state.CompareAndSwap(waiting, underWay) || o.state.Load() == underWay
}

func (o *operation) end(err error) {
	o.err = err
	close(o.done)
}

func end(batch []*operation, err error) {
	for _, o := range batch {
		o.end(err)
	}
}

// writer owns the one connection that writes, and one goroutine that runs
// operations on it. While one commit is under way the next operations gather,
// and share the next commit.
type writer struct {
	connect func() (*connection, error)
	file    file

	mu      sync.Mutex
	queue   []*operation
	closed  bool
	wake    chan struct{} // holds one
	stopped chan struct{}

	// The rest is the goroutine's.
	conn *connection
	tx   *transaction
}

// start begins with a connection that is open already.
func (w *writer) start(conn *connection) {
	w.conn = conn
	w.wake = make(chan struct{}, 1)
	w.stopped = make(chan struct{})
	w.tx = newTransaction()
	go w.loop()
}

// do runs work on the writer, in a transaction it may share with others.
//
// A refusal (an error work returns that is not the database's) must come
// before work wrote anything. If ctx ends before work began, do returns its
// error and work is never run.
func (w *writer) do(ctx context.Context, weight int, work func(*transaction) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &operation{work: work, weight: weight, done: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	w.queue = append(w.queue, o)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	w.mu.Unlock()
	if ctx.Done() == nil {
		<-o.done
		return o.err
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	if o.state.CompareAndSwap(waiting, withdrawn) {
		return ctx.Err()
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-o.done:
		return o.err
	case <-timer.C:
		return fmt.Errorf("%w: %w", ctx.Err(), store.ErrOutcomeUnknown)
	}
}

// close ends the goroutine after the batch under way, and reports whether it
// was not closed before. What waits gets ErrClosed.
func (w *writer) close() bool {
	w.mu.Lock()
	first := !w.closed
	if first {
		w.closed = true
		close(w.wake)
	}
	w.mu.Unlock()
	<-w.stopped
	return first
}

func (w *writer) loop() {
	defer close(w.stopped)
	for range w.wake {
		for w.pending() {
			w.gather()
			w.turn()
		}
	}
	for batch := w.take(); len(batch) > 0; batch = w.take() {
		end(batch, store.ErrClosed)
	}
	if w.conn != nil {
		w.conn.close()
	}
}

// gather lets others go on for as long as they bring more, such as those whom the
// last commit woke: it shares the next. Where nobody has anything to do it takes
// no time.
func (w *writer) gather() {
	start := time.Now()
	for before := w.queued(); time.Since(start) < gatherTime; {
		runtime.Gosched()
		now := w.queued()
		if now == before || now >= maxBatch {
			return
		}
		before = now
	}
}

func (w *writer) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// pending drops what was withdrawn and reports whether anything is left to do.
func (w *writer) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.queue[:0]
	for _, o := range w.queue {
		if o.state.Load() == waiting {
			kept = append(kept, o)
		}
	}
	clear(w.queue[len(kept):])
	w.queue = kept
	return len(kept) > 0 && !w.closed
}

// take returns the operations to share the next commit.
func (w *writer) take() []*operation {
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch []*operation
	weight, n := 0, 0
	for _, o := range w.queue {
		if o.state.Load() == waiting {
			if weight > 0 && weight+o.weight > maxBatch {
				break
			}
			batch = append(batch, o)
			weight += o.weight
		}
		n++
	}
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
	return batch
}

// turn takes the write lock, then whatever operations are waiting, and commits
// them together.
func (w *writer) turn() {
	if err := w.lock(w.pending); err != nil {
		end(w.take(), err)
		return
	}
	batch := w.take()
	if len(batch) == 0 {
		w.rollback(nil)
		return
	}
	refusals, err := w.attempt(batch)
	if err == nil {
		for i, o := range batch {
			o.end(refusals[i])
		}
		return
	}
	if len(batch) == 1 || errors.Is(err, store.ErrOutcomeUnknown) {
		end(batch, err)
		return
	}
	// One's fault must not be its neighbours': each in a transaction of its own.
	for _, o := range batch {
		o.end(w.alone(o))
	}
}

func (w *writer) alone(o *operation) error {
	if err := w.lock(func() bool { return true }); err != nil {
		return err
	}
	refusals, err := w.attempt([]*operation{o})
	if err != nil {
		return err
	}
	return refusals[0]
}

// attempt runs operations in the transaction begun and commits it, or rolls it
// back and returns why. Refusals are the errors of single operations, which
// changed nothing.
func (w *writer) attempt(batch []*operation) (refusals []error, err error) {
	defer func() {
		if err != nil {
			w.rollback(err)
		}
	}()
	tx := w.tx
	if err := tx.begin(selectCounter); err != nil {
		return nil, err
	}
	refusals = make([]error, len(batch))
	for i, o := range batch {
		if !o.begin() {
			continue
		}
		before := tx.writes
		refusals[i] = protect(func() error { return o.work(tx) })
		if tx.fault != nil {
			return nil, tx.fault
		}
		if refusals[i] != nil && tx.writes != before {
			return nil, refusals[i]
		}
	}
	if err := tx.finish(); err != nil {
		return nil, err
	}
	if err := w.conn.run(commit, nil); err != nil {
		err = classify(err)
		switch code(err) {
		case sqlite3.ErrFull, sqlite3.ErrBusy:
			return nil, err // known not to be committed
		}
		return nil, fmt.Errorf("%w: %w", err, store.ErrOutcomeUnknown)
	}
	return refusals, nil
}

// protect turns a panic into an error.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// rollback ends the transaction, if SQLite has not done so by itself, and drops
// the connection if it cannot be trusted after err.
func (w *writer) rollback(err error) {
	w.tx.endpoints.forget()
	if !w.conn.conn.AutoCommit() {
		if failed := w.conn.run(rollback, nil); failed != nil {
			w.drop()
			return
		}
	}
	var f *fault
	if errors.As(err, &f) && !harmless(err) {
		w.drop()
	}
}

func (w *writer) drop() {
	w.conn.close()
	w.conn = nil
}

// lock begins a transaction with the write lock. It tries for as long as wanted
// says that somebody waits for it, and no longer than its patience.
func (w *writer) lock(wanted func() bool) error {
	pause := time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		err := w.tryLock()
		if err == nil || code(err) != sqlite3.ErrBusy && code(err) != sqlite3.ErrLocked {
			return err
		}
		if waited > patience || !wanted() {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, maxPause)
	}
}

func (w *writer) tryLock() error {
	if err := w.file.unmoved(w.conn != nil); err != nil {
		return err
	}
	if w.conn == nil {
		conn, err := w.connect()
		if err != nil {
			return err
		}
		w.conn = conn
	}
	w.tx.runner = w.conn
	if err := w.conn.run(beginImmediate, nil); err != nil {
		err = classify(err)
		if !harmless(err) {
			w.drop()
		}
		return err
	}
	return nil
}
