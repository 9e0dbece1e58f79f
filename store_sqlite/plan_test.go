package sqlitestore

import (
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// plan returns how SQLite would run a statement.
func plan(t testing.TB, st *Store, statement string) string {
	t.Helper()
	var lines []string
	require.NoError(t, st.writer.do(t.Context(), 1, func(*transaction) error {
		lines = nil
		q := &query{sql: "EXPLAIN QUERY PLAN " + statement}
		p, err := st.writer.conn.prepare(q)
		if err != nil {
			return err
		}
		return st.writer.conn.run(q, func(r row) { lines = append(lines, text(r[3])) }, make([]driver.Value, len(p.args))...)
	}), statement)
	return strings.Join(lines, "\n")
}

func list(f store.DeliveryFilter) string {
	statement, _ := listing(f)
	return statement
}

// No statement looks through rows that it does not need: each finds its rows
// in an index or by their id.
func TestNoStatementScans(t *testing.T) {
	t.Run("new", func(t *testing.T) { noStatementScans(t, openNew(t)) })
	// What ANALYZE, which the host may run, finds in a lopsided database changes
	// what SQLite expects of its indexes.
	t.Run("analyzed", func(t *testing.T) {
		st := openNew(t)
		for i := range 3 {
			createEndpoint(t, st)
			_, err := st.Publish(t.Context(), events(fmt.Sprint(i), 700))
			require.NoError(t, err)
		}
		_, err := deliver(t, st, 300)
		require.NoError(t, err)
		onWriter(t, st, "ANALYZE")
		require.NoError(t, st.Close())
		again, err := Open(t.Context(), st.writer.file.path)
		require.NoError(t, err)
		defer func() { _ = again.Close() }()
		noStatementScans(t, again)
	})
}

// deliver claims and records n deliveries.
func deliver(t testing.TB, st *Store, n int) (store.RecordResult, error) {
	now := time.UnixMilli(2000)
	r, err := st.Claim(t.Context(), store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
		Token: 1, Until: now.Add(time.Minute), Room: store.Room{Limit: n, PerEndpoint: n},
	}})
	require.NoError(t, err)
	p := store.RecordParams{Now: now}
	for i, l := range r.Leases {
		p.Outcomes = append(p.Outcomes, store.Outcome{
			DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: 1,
			Status: []store.Status{store.StatusDelivered, store.StatusFailed}[i%2],
		})
	}
	return st.Record(t.Context(), p)
}

func noStatementScans(t *testing.T, st *Store) {
	page := store.DeliveryFilter{WorkspaceID: 1, EndpointID: 2, Limit: 100}
	failed, kind, deep, event := page, page, page, page
	failed.Status, kind.EventType, event.EventID = store.StatusFailed, "link.created", "evt_1"
	deep.Before = store.Position{CreatedAt: time.UnixMilli(5), DeliveryID: 6}
	deep.Since, deep.Until = time.UnixMilli(1), time.UnixMilli(9)

	const deliveries = "SEARCH webhook_deliveries USING COVERING INDEX webhook_deliveries_"
	for _, test := range []struct {
		name, statement, want string
	}{
		{"key", selectKey.sql, "SEARCH webhook_idempotency USING PRIMARY KEY (workspace_id=? AND key=?)"},
		{"matching", selectMatching.sql, "SEARCH webhook_subscriptions USING PRIMARY KEY (workspace_id=? AND entry=?)"},
		{"target", selectTarget.sql, "SEARCH webhook_endpoints USING INTEGER PRIMARY KEY (rowid=?)"},
		{"first due", selectFirstDue.sql, deliveries + "ready (endpoint_id=? AND state=?)"},
		{"lanes", selectLanes.sql, "SEARCH webhook_lanes USING COVERING INDEX webhook_lanes_due"},
		{"claim", selectClaim.sql, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_ready (endpoint_id=? AND state=? AND due_at<?)"},
		{"claimed event", selectClaimed.sql, "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"},
		{"run out", selectRunOut.sql, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_leased (state=? AND lease_until<?)"},
		{"lease ends", selectLeaseEnds.sql, deliveries + "leased (state=? AND lease_until>?)"},
		{"held", selectHeld.sql, "SEARCH webhook_deliveries USING INTEGER PRIMARY KEY (rowid=?)"},
		{"all held", selectAllHeld.sql, "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"},
		{"leased", updateLeased.sql, "SEARCH webhook_deliveries USING INTEGER PRIMARY KEY (rowid=?)"},
		{"delivered", updateDelivered.sql, "SEARCH webhook_deliveries USING INTEGER PRIMARY KEY (rowid=?)"},
		{"next due", selectNextDue.sql, deliveries + "ready (endpoint_id=? AND state=?)"},
		{"recorded", updateRecorded.sql, "SEARCH webhook_deliveries USING INTEGER PRIMARY KEY (rowid=?)"},
		{"pending of a key", selectPendingOfKey.sql, deliveries + "keyed (endpoint_id=? AND ordering_key=? AND state<?)"},
		{"head of a key", selectHead.sql, deliveries + "keyed (endpoint_id=? AND ordering_key=? AND state<?)"},
		{"first blocked of a key", selectFirstBlocked.sql, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_keyed (endpoint_id=? AND ordering_key=? AND state=?)"},
		{"failed", selectFailed.sql, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_failed (endpoint_id=? AND completed_at>? AND completed_at<?)"},
		{"revoked", updateRevoked.sql, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_leased (state=? AND lease_until>?)"},
		{"probe", selectProbe, "SEARCH d USING COVERING INDEX webhook_deliveries_leased (state=?)"},
		{"probe's lanes", selectProbe, "SEARCH webhook_lanes USING COVERING INDEX webhook_lanes_due"},
		{"probe's changes", selectProbe, "SEARCH webhook_endpoints USING COVERING INDEX webhook_endpoints_revision (revision>?)"},
		{"page", list(page), "SEARCH d USING COVERING INDEX webhook_deliveries_log (endpoint_id=?)"},
		{"deep page", list(deep), "SEARCH d USING COVERING INDEX webhook_deliveries_log (endpoint_id=? AND created_at>? AND created_at<?)"},
		{"page of a type", list(kind), "SEARCH d USING INDEX webhook_deliveries_log (endpoint_id=?)"},
		{"page of failed", list(failed), "webhook_deliveries_failed_log (endpoint_id=?)"},
		{"page of an event", list(event), "SEARCH d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
		{"page of a workspace", list(store.DeliveryFilter{WorkspaceID: 1}), "SEARCH p USING INDEX webhook_endpoints_workspace (workspace_id=?)"},
		{"attempts", selectAttempts, "SEARCH a USING PRIMARY KEY (delivery_id=?)"},
		{"secrets", selectSecrets.sql, "SEARCH webhook_endpoints USING INTEGER PRIMARY KEY (rowid>?)"},
		{"ended overlaps", selectEnded, "webhook_endpoints_overlap (previous_until>? AND previous_until<?)"},
		{"rows of an endpoint", selectRows, deliveries + "log (endpoint_id=?)"},
		{"old", selectOld, deliveries + "completed (completed_at>? AND completed_at<?)"},
		{"cut", selectCut, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_log (endpoint_id=?)"},
		{"surplus", selectSurplus, "SEARCH webhook_deliveries USING INDEX webhook_deliveries_log (endpoint_id=? AND created_at<?)"},
		{"long logs", selectLong, "SEARCH d USING COVERING INDEX webhook_deliveries_log (endpoint_id=?)"},
		{"old keys", selectOldKeys, "SEARCH webhook_idempotency USING COVERING INDEX webhook_idempotency_age (created_at<?)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := plan(t, st, test.statement)
			require.Contains(t, got, test.want)
			require.NotRegexp(t, regexp.MustCompile(`SCAN (webhook_\w+|[dea])\b`), got)
			if !strings.Contains(test.name, "page") && test.name != "matching" {
				require.NotContains(t, got, "TEMP B-TREE", "rows come out of the index in order")
			}
		})
	}
}

// counting counts the rows that statements give.
type counting struct {
	runner
	t                testing.TB
	statements, rows int
}

func (c *counting) run(q *query, each func(row), args ...driver.Value) error {
	c.statements++
	require.NotRegexp(c.t, `(LIMIT|OFFSET) \?\d*( [^+]|$)`, q.sql, "it would be prepared for each run")
	return c.runner.run(q, func(r row) {
		c.rows++
		if each != nil {
			each(r)
		}
	}, args...)
}

// What a claim costs does not depend on how much waits where it has nothing to
// take. With the plans above, to count statements and rows says it all.
func TestAClaimCostsTheSameAtAnyBacklog(t *testing.T) {
	t.Parallel()
	cost := func(backlog int) []int {
		st := openNew(t)
		now := time.UnixMilli(1_000_000)
		send := func(name string, n int, due time.Time) store.Endpoint {
			e := createEndpoint(t, st)
			p := events(name, n)
			p.Now = due
			for i := range p.Events {
				p.Events[i].EndpointID = e.ID
				p.Events[i].OrderingKey = []string{"", "key"}[i%2]
			}
			_, err := st.Publish(t.Context(), p)
			require.NoError(t, err)
			return e
		}
		saturated := send("saturated", backlog, now.Add(-time.Hour))
		paused := send("paused", backlog, now.Add(-time.Hour))
		paused.Active = false
		_, err := st.UpdateEndpoint(t.Context(), paused, nil)
		require.NoError(t, err)
		send("future", backlog, now.Add(time.Hour))
		send("healthy", backlog, now)
		var c counting
		require.NoError(t, st.writer.do(t.Context(), 1, func(tx *transaction) error {
			c = counting{t: t, runner: tx.runner}
			tx.runner = &c
			r, err := tx.claim(store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
				Token: 1, Until: now.Add(time.Minute),
				Room: store.Room{Limit: 100, PerEndpoint: 4, Endpoints: map[int64]int{saturated.ID: 0}},
			}})
			require.Len(t, r.Leases, 4)
			return err
		}))
		return []int{c.statements, c.rows}
	}
	require.Equal(t, cost(20), cost(5000), "statements run and rows read by a claim")
}
