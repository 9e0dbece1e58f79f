package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

func openNew(t testing.TB) *Store {
	t.Helper()
	st, err := Open(t.Context(), filepath.Join(t.TempDir(), "webhook.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func createEndpoint(t testing.TB, st *Store) store.Endpoint {
	t.Helper()
	e, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{Endpoint: store.Endpoint{
		WorkspaceID: 1, Kind: store.KindSIEM, URL: "https://example.com/", Active: true,
	}})
	require.NoError(t, err)
	return e
}

// events makes a publish of n events whose ids begin with name.
func events(name string, n int) store.PublishParams {
	p := store.PublishParams{Now: time.UnixMilli(1000)}
	for i := range n {
		p.Events = append(p.Events, store.NewEvent{
			ID: fmt.Sprintf("%s-%d", name, i), WorkspaceID: 1, Type: "link.created", Payload: make([]byte, 600), Budget: 3,
		})
	}
	return p
}

func stored(t testing.TB, st *Store) (ids []string) {
	t.Helper()
	list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
	require.NoError(t, err)
	for _, d := range list {
		ids = append(ids, d.EventID)
	}
	return ids
}

// occupy keeps the writer busy with an operation until the function it
// returns is called.
func occupy(t testing.TB, st *Store) (free func()) {
	t.Helper()
	running, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	var once sync.Once
	go func() {
		done <- st.writer.do(context.Background(), 1, func(*transaction) error {
			once.Do(func() { close(running) })
			<-release
			return nil
		})
	}()
	<-running
	return func() {
		close(release)
		require.NoError(t, <-done)
	}
}

// waitForQueue returns once n operations wait for the writer.
func waitForQueue(t testing.TB, st *Store, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		st.writer.mu.Lock()
		defer st.writer.mu.Unlock()
		return len(st.writer.queue) == n
	}, 5*time.Second, time.Millisecond)
}

// onWriter runs a PRAGMA on the connection that writes.
func onWriter(t testing.TB, st *Store, statement string) (value any) {
	t.Helper()
	require.NoError(t, st.writer.do(t.Context(), 1, func(*transaction) (err error) {
		value, err = pragma(st.writer.conn.conn, statement)
		return err
	}))
	return value
}

func TestSettings(t *testing.T) {
	st := openNew(t)
	for _, s := range writerSettings {
		require.EqualValues(t, s.reads, onWriter(t, st, "PRAGMA "+s.name), s.name)
	}
	require.Equal(t, "wal", onWriter(t, st, "PRAGMA journal_mode"))
	for _, s := range readerSettings {
		var got int64
		require.NoError(t, st.readers.Get(&got, "PRAGMA "+s.name))
		require.Equal(t, s.reads, got, s.name)
	}
	_, err := st.readers.Exec(`DELETE FROM webhook_events`)
	require.Equal(t, sqlite3.ErrReadonly, code(err), "a reader that writes")
}

func TestSettingsThatDoNotTakeEffect(t *testing.T) {
	st := openNew(t)
	require.NoError(t, st.writer.do(t.Context(), 1, func(*transaction) error {
		for _, wrong := range []setting{
			{"synchronos", "FULL", 2}, // SQLite ignores what it does not know
			{"foreign_keys", "ON", 0},
		} {
			require.ErrorIs(t, apply(st.writer.conn.conn, []setting{wrong}), ErrPragma)
		}
		return nil
	}))
}

func TestLibraryMustBeRecent(t *testing.T) {
	require.ErrorIs(t, checkLibrary("3.51.2", 3051002), ErrLibrary)
	require.NoError(t, checkLibrary("3.51.3", 3051003))
}

// One's fault is not its neighbours': an event whose id is taken fails alone.
func TestGroupCommitSurvivesAMembersFault(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	_, err := st.Publish(t.Context(), events("taken", 1))
	require.NoError(t, err)

	free := occupy(t, st)
	errs := map[string]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, name := range []string{"a", "taken", "b", "panic", "c"} {
		group.Go(func() {
			var err error
			if name == "panic" {
				err = st.writer.do(t.Context(), 1, func(tx *transaction) error {
					tx.revise()
					if err := tx.run(insertKey, nil, int64(1), "k", []byte{}, "evt", nil, int64(0)); err != nil {
						return err
					}
					panic("halfway")
				})
			} else {
				_, err = st.Publish(t.Context(), events(name, 1))
			}
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
		waitForQueue(t, st, i+1)
	}
	free()
	group.Wait()
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, errs[name], name)
	}
	require.Equal(t, sqlite3.ErrConstraint, code(errs["taken"]))
	require.ErrorContains(t, errs["panic"], "halfway")
	require.ElementsMatch(t, []string{"taken-0", "a-0", "b-0", "c-0"}, stored(t, st))
	var keys int
	require.NoError(t, st.readers.Get(&keys, `SELECT count(*) FROM webhook_idempotency`))
	require.Zero(t, keys, "what the panic left behind")
}

func TestAPanicInSealIsThatCallsError(t *testing.T) {
	st := openNew(t)
	_, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{
		Endpoint: store.Endpoint{WorkspaceID: 1},
		Seal:     func(int64) (store.Secrets, error) { panic("no key") },
	})
	require.ErrorContains(t, err, "no key")
	createEndpoint(t, st)
}

func TestAFullDiskLosesNothing(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	pages, ok := onWriter(t, st, "PRAGMA page_count").(int64)
	require.True(t, ok)
	onWriter(t, st, fmt.Sprintf("PRAGMA max_page_count = %d", pages+40))

	var want []string
	for i := 0; ; i++ {
		name := fmt.Sprintf("evt%d", i)
		_, err := st.Publish(t.Context(), events(name, 20))
		if err != nil {
			require.Equal(t, sqlite3.ErrFull, code(err))
			break
		}
		for j := range 20 {
			want = append(want, fmt.Sprintf("%s-%d", name, j))
		}
		require.Less(t, i, 100, "the disk never became full")
	}
	require.ElementsMatch(t, want, stored(t, st), "all or nothing")
	var orphans int
	require.NoError(t, st.readers.Get(&orphans,
		`SELECT count(*) FROM webhook_events WHERE seq NOT IN (SELECT event_seq FROM webhook_deliveries)`))
	require.Zero(t, orphans)

	onWriter(t, st, "PRAGMA max_page_count = 1000000")
	_, err := st.Publish(t.Context(), events("again", 20))
	require.NoError(t, err)
	require.Len(t, stored(t, st), len(want)+20)
	require.Equal(t, "ok", onWriter(t, st, "PRAGMA integrity_check"))
}

// lockedOut holds the write lock on a connection of its own.
func lockedOut(t testing.TB, st *Store) (free func()) {
	t.Helper()
	c, err := dial(source(st.writer.file.path, "rw"))
	require.NoError(t, err)
	require.NoError(t, execute(c, "BEGIN IMMEDIATE"))
	return func() {
		require.NoError(t, execute(c, "ROLLBACK"))
		require.NoError(t, c.Close())
	}
}

func TestACallIsWithdrawnWhenItsContextEnds(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	free := lockedOut(t, st)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := st.Publish(ctx, events("gone", 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.Less(t, time.Since(began), time.Second)

	done := make(chan error, 1)
	go func() {
		_, err := st.Publish(t.Context(), events("patient", 1))
		done <- err
	}()
	waitForQueue(t, st, 1)
	free()
	require.NoError(t, <-done)
	require.Equal(t, []string{"patient-0"}, stored(t, st))
}

func TestACallThatEndsDuringItsCommitDoesNotKnow(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	began := time.Now()
	err := st.writer.do(ctx, 1, func(tx *transaction) error {
		if _, err := tx.publish(events("unknown", 1)); err != nil {
			return err
		}
		began = time.Now()
		cancel()
		<-release
		return nil
	})
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), time.Second)
	free()
	require.Eventually(t, func() bool { return len(stored(t, st)) == 1 }, 5*time.Second, time.Millisecond,
		"the commit goes on")
}

// What shares a batch with one under way, but was not begun, is withdrawn, too.
func TestACallIsWithdrawnFromBehindAnother(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	free := occupy(t, st)
	running, release := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		first <- st.writer.do(t.Context(), 1, func(*transaction) error {
			close(running)
			<-release
			return nil
		})
	}()
	waitForQueue(t, st, 1)
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := st.Publish(ctx, events("gone", 1))
		second <- err
	}()
	waitForQueue(t, st, 2)
	free() // both are in the next batch
	<-running
	cancel()
	err := <-second
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	close(release)
	require.NoError(t, <-first)
	_, err = st.Publish(t.Context(), events("next", 1))
	require.NoError(t, err)
	require.Equal(t, []string{"next-0"}, stored(t, st))
}

func TestTheConnectionIsReplacedAfterAFault(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	var before *connection
	broken := errors.New("broken")
	err := st.writer.do(t.Context(), 1, func(tx *transaction) error {
		before = st.writer.conn
		if _, err := tx.publish(events("gone", 1)); err != nil {
			return err
		}
		tx.fault = classify(broken)
		return tx.fault
	})
	require.ErrorIs(t, err, broken)
	require.Empty(t, stored(t, st))

	_, err = st.Publish(t.Context(), events("next", 1))
	require.NoError(t, err)
	require.Equal(t, []string{"next-0"}, stored(t, st))
	require.NoError(t, st.writer.do(t.Context(), 1, func(*transaction) error {
		require.NotSame(t, before, st.writer.conn)
		return nil
	}))
}

func TestCloseRefusesWhatWaits(t *testing.T) {
	st := openNew(t)
	free := occupy(t, st)
	waiting, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := st.Publish(context.Background(), events("late", 1))
		waiting <- err
	}()
	waitForQueue(t, st, 1)
	go func() { closed <- st.Close() }()
	require.Eventually(t, st.isClosed, 5*time.Second, time.Millisecond)
	free()
	require.ErrorIs(t, <-waiting, store.ErrClosed)
	require.NoError(t, <-closed)
	require.ErrorIs(t, st.Close(), store.ErrClosed)
}
