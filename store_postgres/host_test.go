package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// host is a database with a table of the host's beside the store's.
func host(t testing.TB) (*Store, *pgxpool.Pool) {
	t.Helper()
	st := openNew(t)
	pool := openPool(t, serverURL(t))
	_, err := pool.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS "`+st.schema.name+`".links (slug TEXT)`)
	require.NoError(t, err)
	t.Cleanup(func() { _ = execute(testServer, `DROP TABLE "`+st.schema.name+`".links`) })
	return st, pool
}

func begin(t testing.TB, st *Store, pool *pgxpool.Pool, options pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), `INSERT INTO "`+st.schema.name+`".links VALUES ('a')`)
	require.NoError(t, err)
	return tx
}

var isolations = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

func TestTx(t *testing.T) {
	for _, level := range isolations {
		t.Run(string(level), func(t *testing.T) {
			st, pool := host(t)
			createEndpoint(t, st)
			count := func() int {
				var links int
				require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM "`+st.schema.name+`".links`).Scan(&links))
				require.Len(t, listed(t, st), links, "deliveries and links")
				return links
			}
			tx := begin(t, st, pool, pgx.TxOptions{IsoLevel: level})
			mustPublish(t, st.Tx(tx), "evt_1")
			require.Equal(t, 0, count(), "seen before the commit")
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, 0, count(), "left by a rollback")

			tx = begin(t, st, pool, pgx.TxOptions{IsoLevel: level})
			lease := room(1, time.UnixMilli(1000), 9).LeaseParams
			r, err := st.Tx(tx).Publish(t.Context(), store.PublishParams{
				Now: time.UnixMilli(1000), Events: []store.NewEvent{event("evt_1")}, Handoff: &lease,
			})
			require.NoError(t, err)
			require.Empty(t, r.Leases, "leases of what is not committed")
			require.True(t, r.Queued)
			keyed := event("evt_2")
			keyed.OrderingKey = "key"
			again := event("evt_3")
			again.OrderingKey = "key"
			r, err = st.Tx(tx).Publish(t.Context(), store.PublishParams{
				Now: time.UnixMilli(1000), Events: []store.NewEvent{keyed, again},
			})
			require.NoError(t, err)
			require.True(t, r.Queued)
			require.Equal(t, 0, len(listed(t, st)), "seen before the commit")
			require.NoError(t, tx.Commit(t.Context()))
			require.Len(t, listed(t, st), 3, "seen after the commit")

			probe, err := st.Probe(t.Context(), store.ProbeParams{})
			require.NoError(t, err)
			require.Equal(t, time.UnixMilli(1000).UTC(), probe.NextDue)
			claimed, err := st.Claim(t.Context(), room(2, time.UnixMilli(1000), 9))
			require.NoError(t, err)
			require.Len(t, claimed.Leases, 2, "of one key only the first is due")
			require.Equal(t, "evt_1", claimed.Leases[0].EventID)
			require.Equal(t, "evt_2", claimed.Leases[1].EventID)
		})
	}
}

func TestTxKeepsTheRestOfTheTransaction(t *testing.T) {
	st, pool := host(t)
	createEndpoint(t, st)
	mustPublish(t, st, "evt_1")
	tx := begin(t, st, pool, pgx.TxOptions{})
	_, err := publish(t.Context(), st.Tx(tx), "evt_2", "evt_1") // the second has an id that is taken
	require.Error(t, err)
	mustPublish(t, st.Tx(tx), "evt_3")
	conflict := event("evt_4")
	conflict.IdempotencyKey, conflict.Digest[0] = "k", 1
	p := store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{conflict}}
	_, err = st.Tx(tx).Publish(t.Context(), p)
	require.NoError(t, err)
	p.Events[0].Digest[0] = 2
	_, err = st.Tx(tx).Publish(t.Context(), p)
	require.ErrorIs(t, err, store.ErrIdempotencyConflict)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{"evt_4", "evt_3", "evt_1"}, listed(t, st))
}

func TestTxAfterTheEnd(t *testing.T) {
	st, pool := host(t)
	tx := begin(t, st, pool, pgx.TxOptions{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := publish(ended, st.Tx(tx), "evt_1")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, tx.Commit(t.Context()))
	_, err = publish(t.Context(), st.Tx(tx), "evt_1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = publish(t.Context(), st.Tx(nil), "evt_1")
	require.ErrorIs(t, err, errNil)
	require.NoError(t, st.Close())
	_, err = publish(t.Context(), st.Tx(tx), "evt_1")
	require.ErrorIs(t, err, store.ErrClosed)
}

// Fifty transactions publish with one idempotency key; some roll back. There is
// one event, and all that commit are told of the same.
func TestTxWithOneIdempotencyKey(t *testing.T) {
	st, pool := host(t)
	createEndpoint(t, st)
	const callers = 50
	errRollback := errors.New("rollback")
	receipts := make([]*store.Receipt, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				ev := event(fmt.Sprintf("evt_%d", i))
				ev.IdempotencyKey = "one"
				r, err := st.Tx(tx).Publish(t.Context(), store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{ev}})
				if err != nil || i%3 == 0 {
					return errors.Join(err, errRollback)
				}
				receipts[i] = &r.Receipts[0]
				return nil
			})
			if err != nil && (i%3 != 0 || err.Error() != errRollback.Error()) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	stored := listed(t, st)
	require.Len(t, stored, 1)
	first := 0
	for i, r := range receipts {
		if i%3 == 0 {
			continue
		}
		require.Equal(t, stored[0], r.EventID)
		require.Len(t, r.DeliveryIDs, 1)
		if !r.Repeat {
			first++
		}
	}
	require.Equal(t, 1, first, "receipts without Repeat")
}

// briefly fails a test that has to wait for somebody.
func briefly(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// An ordering key is taken until the transaction that published with it ends:
// whoever publishes with it later comes later, whoever began first.
func TestTxTakesTheOrderingKeyUntilItsCommit(t *testing.T) {
	for _, ending := range []string{"commit", "rollback"} {
		t.Run(ending, func(t *testing.T) {
			st, pool := host(t)
			createEndpoint(t, st)
			keyed := func(id string) store.PublishParams {
				ev := event(id)
				ev.OrderingKey = "key"
				return store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{ev}}
			}
			tx := begin(t, st, pool, pgx.TxOptions{})
			_, err := st.Tx(tx).Publish(t.Context(), keyed("evt_1"))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				_, err := st.Publish(t.Context(), keyed("evt_2"))
				done <- err
			}()
			waiting := func() bool {
				var n int
				err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
					AND query LIKE '%'||$1||'%webhook_locks%'`, st.schema.name).Scan(&n)
				return err == nil && n == 1
			}
			require.Eventually(t, waiting, 20*time.Second, 5*time.Millisecond, "the other publish does not wait for the key")
			mustPublish(t, st, "evt_free") // without the key
			if ending == "commit" {
				require.NoError(t, tx.Commit(t.Context()))
			} else {
				require.NoError(t, tx.Rollback(t.Context()))
			}
			require.NoError(t, <-done)
			want := []string{"evt_2", "evt_free", "evt_1"}
			if ending == "rollback" {
				want = []string{"evt_2", "evt_free"}
			}
			got := listed(t, st)
			require.ElementsMatch(t, want, got)
			if ending == "commit" {
				require.Less(t, slices.Index(got, "evt_2"), slices.Index(got, "evt_1"), "newest first")
			}
			r, err := st.Claim(t.Context(), room(1, time.UnixMilli(1000), 9))
			require.NoError(t, err)
			require.Len(t, r.Leases, 2, "one of the key, and the one without")
		})
	}
}

// A transaction of the host's that stays open keeps nobody from working on what
// it published to.
func TestTxHoldsNobodyUp(t *testing.T) {
	for _, level := range isolations {
		t.Run(string(level), func(t *testing.T) {
			st, pool := host(t)
			e, other := createEndpoint(t, st), createEndpoint(t, st)
			ctx := briefly(t)
			now := time.UnixMilli(1000)
			keyed := func(id, key string) store.NewEvent {
				ev := event(id)
				ev.OrderingKey = key
				return ev
			}
			_, err := st.Publish(ctx, store.PublishParams{Now: now, Events: []store.NewEvent{
				keyed("evt_1", "key"), keyed("evt_2", "key"), event("evt_3"),
			}})
			require.NoError(t, err)

			tx := begin(t, st, pool, pgx.TxOptions{IsoLevel: level})
			taken := keyed("evt_4", "key")
			taken.IdempotencyKey = "taken"
			_, err = st.Tx(tx).Publish(ctx, store.PublishParams{Now: now, Events: []store.NewEvent{taken, event("evt_5")}})
			require.NoError(t, err)

			// Claims, results of the same key and what becomes due by them.
			r, err := st.Claim(ctx, room(1, now, 50))
			require.NoError(t, err)
			require.Len(t, r.Leases, 4, "leases while the transaction is open")
			outcomes := store.RecordParams{Now: now, Health: &store.HealthPolicy{PauseAfter: 9, DegradeAfter: 1}}
			for _, l := range r.Leases {
				outcomes.Outcomes = append(outcomes.Outcomes, store.Outcome{
					DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: 1, Status: store.StatusFailed,
					Health: store.HealthFailure, Attempt: store.Attempt{StartedAt: now},
				})
			}
			claim := room(2, now, 50)
			outcomes.Claim = &claim
			recorded, err := st.Record(ctx, outcomes)
			require.NoError(t, err)
			require.Empty(t, recorded.Stale)
			require.Len(t, recorded.Claim.Leases, 2, "the second of the key, at two endpoints")
			_, err = st.Renew(ctx, []store.LeaseRef{recorded.Claim.Leases[0].Ref()}, now.Add(time.Hour))
			require.NoError(t, err)
			require.NoError(t, st.Release(ctx, []store.Release{{LeaseRef: recorded.Claim.Leases[0].Ref()}}))
			_, err = st.Retry(ctx, store.RetryParams{WorkspaceID: 1, DeliveryID: r.Leases[0].DeliveryID, Now: now, Budget: 2})
			require.NoError(t, err)

			// Publishes, also with keys that it did not take.
			_, err = st.Publish(ctx, store.PublishParams{Now: now, Events: []store.NewEvent{keyed("evt_6", "free"), event("evt_7")}})
			require.NoError(t, err)

			// Changes of the endpoints.
			fresh, err := st.Endpoint(ctx, 1, e.ID)
			require.NoError(t, err)
			fresh.Active = false
			fresh, err = st.UpdateEndpoint(ctx, fresh, nil)
			require.NoError(t, err)
			fresh.Active = true
			_, err = st.UpdateEndpoint(ctx, fresh, nil)
			require.NoError(t, err)
			require.NoError(t, st.DeleteEndpoint(ctx, 1, other.ID, now))
			result, err := st.Maintain(ctx, store.MaintainParams{Now: now, PruneBefore: now.Add(time.Hour), Limit: 100})
			require.NoError(t, err)
			require.Positive(t, result.Purged)

			// What it publishes comes, in its order. What went to the endpoint that
			// was deleted meanwhile is found by Maintain.
			require.NoError(t, tx.Commit(ctx))
			var order []string
			for token := int64(3); token < 20; token++ {
				r, err := st.Claim(ctx, room(token, now.Add(time.Minute), 50))
				require.NoError(t, err)
				p := store.RecordParams{Now: now.Add(time.Minute)}
				for _, l := range r.Leases {
					require.Equal(t, e.ID, l.Target.EndpointID)
					if l.OrderingKey == "key" {
						order = append(order, l.EventID)
					}
					p.Outcomes = append(p.Outcomes, store.Outcome{
						DeliveryID: l.DeliveryID, EndpointID: e.ID, Token: token, Status: store.StatusDelivered,
					})
				}
				_, err = st.Record(ctx, p)
				require.NoError(t, err)
			}
			require.Equal(t, []string{"evt_1", "evt_2", "evt_4"}, order)
			result, err = st.Maintain(ctx, store.MaintainParams{Now: now, Limit: 100})
			require.NoError(t, err)
			require.Equal(t, 2, result.Purged, "deliveries published to an endpoint that was deleted meanwhile")
		})
	}
}

// listen collects wake-ups.
func listen(t testing.TB, st *Store) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- st.Watch(ctx, func() { woken <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	hears(t, woken, "that it listens")
	return woken
}

func hears(t testing.TB, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatalf("not told %s", what)
	}
}

func drained(woken <-chan struct{}) (n int) {
	for {
		select {
		case <-woken:
			n++
		case <-time.After(200 * time.Millisecond):
			return n
		}
	}
}

// Other processes are told of what is published in a transaction when it commits.
func TestTxNotifies(t *testing.T) {
	st, pool := host(t)
	e := createEndpoint(t, st)
	woken := listen(t, st)
	tx := begin(t, st, pool, pgx.TxOptions{})
	mustPublish(t, st.Tx(tx), "evt_1")
	require.Zero(t, drained(woken), "wake-ups before the commit")
	require.NoError(t, tx.Commit(t.Context()))
	hears(t, woken, "of a commit")

	tx = begin(t, st, pool, pgx.TxOptions{})
	mustPublish(t, st.Tx(tx), "evt_2")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, drained(woken), "wake-ups after a rollback")

	e.Active = false
	_, err := st.UpdateEndpoint(t.Context(), e, nil)
	require.NoError(t, err)
	tx = begin(t, st, pool, pgx.TxOptions{})
	mustPublish(t, st.Tx(tx), "evt_3")
	require.NoError(t, tx.Commit(t.Context()))
	require.Zero(t, drained(woken), "wake-ups when nobody wants the event")
}

// The first of a burst is told of at once, and so is the last.
func TestABurstIsToldOfAtItsEnd(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	woken := listen(t, st)
	for i := range 50 {
		mustPublish(t, st, fmt.Sprintf("evt_%d", i))
	}
	hears(t, woken, "of a burst")
	n := drained(woken)
	require.Less(t, n, 50, "a notification for each publish")
	mustPublish(t, st, "evt_last")
	hears(t, woken, "of the last")

	silent, err := Options{Schema: st.schema.name, NoNotify: true}.New(t.Context(), st.pool)
	require.NoError(t, err)
	mustPublish(t, silent, "evt_silent")
	require.Zero(t, drained(woken), "wake-ups by a store that notifies nobody")
	require.ErrorIs(t, silent.Watch(t.Context(), func() {}), errors.ErrUnsupported)
}

func TestWatchEndsWithTheStore(t *testing.T) {
	st := openNew(t)
	done := make(chan error, 1)
	began := make(chan struct{}, 1)
	go func() { done <- st.Watch(t.Context(), func() { began <- struct{}{} }) }()
	<-began
	require.NoError(t, st.Close())
	require.ErrorIs(t, <-done, store.ErrClosed)
	require.ErrorIs(t, st.Watch(t.Context(), func() {}), store.ErrClosed)
}
