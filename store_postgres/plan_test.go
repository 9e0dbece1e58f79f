package postgresstore

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// fill stores a large queue and log: half of 200,000 deliveries wait at one of 200
// endpoints, some of them with ordering keys or leases, the others are done.
func fill(t testing.TB, st *Store) {
	t.Helper()
	const deliveries, endpoints = 200_000, 200
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO webhook_endpoints (id, workspace_id, kind, url, events, active, pause_reason, description,
				max_in_flight, rate_limit, imported, rotations, current_key, previous_key, credentials_key, failures, revision)
			SELECT i, 1 + i %% 20, 'event', 'https://example.com/', '["link.created"]', i %% 10 > 0, '', '',
				0, 0, FALSE, 0, '', '', '', 0, 1 FROM generate_series(1, %d) i`, endpoints),
		`INSERT INTO webhook_subscriptions SELECT workspace_id, 'link.created', id FROM webhook_endpoints`,
		fmt.Sprintf(`INSERT INTO webhook_events (seq, id, workspace_id, type, occurred_at, deliveries, payload)
			SELECT i, 'evt_' || i, 1 + i %% %[2]d %% 20, 'link.created', i, ARRAY[i], '{"id":1}' FROM generate_series(1, %[1]d) i`,
			deliveries, endpoints),
		fmt.Sprintf(`INSERT INTO webhook_deliveries
				(id, endpoint_id, event_seq, state, due_at, created_at, completed_at, token, lease_until, budget, ordering_key, turn)
			SELECT i, 1 + i %% %[2]d, i, s, 1000 + i %% 100000, i, CASE WHEN s >= 4 THEN i END, CASE WHEN s = 1 THEN 7 END,
				CASE WHEN s = 1 THEN 5000000 END, 3, CASE WHEN s = 2 OR i %% 50 = 0 THEN convert_to('key ' || i %% 100, 'UTF8') END,
				CASE WHEN s = 2 OR i %% 50 = 0 THEN 16384 + i %% 100 END
			FROM (SELECT i, CASE WHEN i %% 2 = 1 THEN 4 + (i %% 20 = 1)::int WHEN i %% 1000 = 0 THEN 1 WHEN i %% 100 = 2 THEN 2 ELSE 0 END AS s
				FROM generate_series(1, %[1]d) i) x`, deliveries, endpoints),
		`INSERT INTO webhook_attempts SELECT id, 1, 1, 1, 200, FALSE FROM webhook_deliveries WHERE state >= 4`,
		fmt.Sprintf(`INSERT INTO webhook_idempotency SELECT 1, convert_to(i::text, 'UTF8'), '', 'evt_' || i, ARRAY[i], i
			FROM generate_series(1, %d) i`, deliveries/10),
		`INSERT INTO webhook_lanes (endpoint_id, next_due)
			SELECT endpoint_id, min(due_at) FROM webhook_deliveries WHERE state = 0 GROUP BY endpoint_id`,
		fmt.Sprintf(`SELECT setval('webhook_delivery_ids', %d)`, deliveries),
		`ANALYZE webhook_endpoints, webhook_subscriptions, webhook_events, webhook_deliveries, webhook_attempts, webhook_idempotency,
			webhook_lanes, webhook_locks`,
	} {
		_, err := st.pool.Exec(t.Context(), st.schema.qualify(statement))
		require.NoError(t, err)
	}
}

// large are tables that no statement may look all through.
var large = regexp.MustCompile(`Seq Scan on (webhook_(deliveries|events|attempts|idempotency|locks))`)

// explain returns the plan of a statement: for these arguments, or, if they are
// nil, for any.
func explain(t testing.TB, st *Store, conn *pgx.Conn, statement string, args []any) string {
	t.Helper()
	statement = st.schema.qualify(statement)
	ctx := t.Context()
	var rows pgx.Rows
	var err error
	if args != nil {
		rows, err = conn.Query(ctx, `EXPLAIN `+statement, append([]any{pgx.QueryExecModeExec}, args...)...)
	} else {
		_, err = conn.Exec(ctx, `PREPARE explained AS `+statement)
		require.NoError(t, err, statement)
		defer func() { _, _ = conn.Exec(ctx, `DEALLOCATE explained`) }()
		n := 0
		for strings.Contains(statement, fmt.Sprintf("$%d", n+1)) {
			n++
		}
		call := ""
		if n > 0 {
			call = "(" + strings.Repeat("NULL, ", n-1) + "NULL)"
		}
		rows, err = conn.Query(ctx, `EXPLAIN EXECUTE explained`+call)
	}
	require.NoError(t, err, statement)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, statement)
	return strings.Join(lines, "\n")
}

// No statement looks through rows that it does not need, whether it is planned
// for its arguments or for any, and whatever the planner is told to avoid.
func TestNoStatementScans(t *testing.T) {
	st := openURL(t, hasty(t), Options{})
	fill(t, st)
	ids, keys := []int64{1, 2, 3, 150_000, 199_999}, [][]byte{[]byte("key 2"), []byte("key 52")}
	two := ids[:2]
	page := store.DeliveryFilter{WorkspaceID: 1, EndpointID: 20, Limit: 100}
	failed, kind, deep, ofEvent := page, page, page, page
	failed.Status, kind.EventType, ofEvent.EventID = store.StatusFailed, "link.created", "evt_40"
	deep.Before = store.Position{CreatedAt: time.UnixMilli(500), DeliveryID: 6}
	deep.Since, deep.Until = time.UnixMilli(1), time.UnixMilli(900)
	type test struct {
		statement string
		args      []any
	}
	tests := map[string]test{
		"claim":            {claimDue, []any{ids[:3], ids[:3], ids[:3], 50_000, 500, 9, 99}},
		"first of a lane":  {insertFirst, []any{ids}},
		"run out":          {selectRunOut, []any{99, maxSettled}},
		"lock run out":     {lockRunOut, []any{ids, 99}},
		"arrived":          {selectArrived, []any{maxSettled}},
		"lease ends":       {selectLeaseEnds, []any{leasesSeen}},
		"lock turns":       {lockTurns, []any{ids}},
		"lock slots":       {lockSlots, []any{[]int32{1, 5000, 20000}}},
		"lock heads":       {lockHeads, []any{two, keys}},
		"settle":           {settleKeys, []any{two, keys}},
		"ids":              {selectIDs, []any{10}},
		"behind":           {selectBehind, []any{ids, 1000}},
		"pending":          {selectPending, []any{two, keys}},
		"keys":             {selectKeys, []any{two, keys}},
		"held":             {lockHeld, []any{ids}},
		"renewed":          {updateRenewed, []any{ids, 9}},
		"rearmed":          {updateRearmed, []any{ids, 9, 3, 4}},
		"failed":           {selectFailed, []any{20, 1, 5000, 10}},
		"delivery":         {selectDelivery, []any{5, 1}},
		"attempts":         {selectAttempts, []any{1, 5}},
		"probe":            {selectProbe, []any{5, 50_000, 100}},
		"matching":         {selectMatching, []any{[]int32{0}, []int64{1}, [][]byte{[]byte("link.created")}}},
		"old":              {selectOld, []any{50, 250}},
		"cut":              {selectCut, []any{20, 10}},
		"surplus":          {selectSurplus, []any{20, 500, 5, 250}},
		"removed":          {lockRemoved, []any{ids, 4}},
		"events of these":  {lockEvents, []any{ids}},
		"delete attempts":  {deleteAttempts, []any{ids}},
		"delete rows":      {deleteDeliveries, []any{ids}},
		"delete events":    {deleteEvents, []any{ids}},
		"old keys":         {selectOldKeys, []any{50, 250}},
		"delete keys":      {deleteKeys, []any{50, 250}},
		"taken keys":       {updateKeys, []any{two, keys, []string{"{1}", "{2}"}}},
		"released":         {updateReleased, []any{two, []int16{0, 0}, []*int64{nil, nil}, keys, two}},
		"retaken":          {updateRunOut, []any{two, two, two}},
		"outcomes":         {recordOutcomes, (&outcomeRows{}).args(5)},
		"long logs":        {selectLong, []any{0, 1000}},
		"purged":           {selectPurged, []any{250}},
		"purged endpoints": {updatePurged, []any{two}},
	}
	var one outcomeRows
	one.add(&store.Outcome{DeliveryID: 5, Token: 7, EndpointID: 6, Status: store.StatusDelivered})
	tests["one outcome"] = test{recordOutcomes, one.args(5)}
	for name, f := range map[string]store.DeliveryFilter{
		"page": page, "page of failed": failed, "page of a type": kind, "deep page": deep, "page of an event": ofEvent,
		"page of a workspace": {WorkspaceID: 1, Limit: 10},
	} {
		statement, args := listing(f)
		tests[name] = test{statement, args}
	}
	for _, settings := range [][]string{
		nil, {"enable_hashjoin=off"}, {"enable_mergejoin=off", "enable_sort=off"},
		{"enable_material=off", "enable_memoize=off"}, {"enable_bitmapscan=off"},
	} {
		conn, err := pgx.Connect(t.Context(), with(serverURL(t), strings.Join(settings, "&")))
		require.NoError(t, err)
		for _, plan := range []string{"custom", "generic"} {
			_, err := conn.Exec(t.Context(), `SET plan_cache_mode = force_`+plan+`_plan`)
			require.NoError(t, err)
			for name, test := range tests {
				args := test.args
				if plan == "generic" {
					args = nil
				}
				got := explain(t, st, conn, test.statement, args)
				require.NotRegexp(t, large, got, "%s, %s plan, %v", name, plan, settings)
			}
		}
		require.NoError(t, conn.Close(t.Context()))
	}
}

// Eight claim at once, some with results of what they claimed before, and however
// the planner joins, each delivery is under one lease.
func TestEachIsClaimedOnce(t *testing.T) {
	for _, settings := range []string{
		"", "enable_nestloop=off", "enable_hashjoin=off", "enable_mergejoin=off&enable_hashjoin=off",
		"enable_sort=off&enable_material=off", "enable_indexscan=off&enable_indexonlyscan=off",
		"enable_seqscan=off&enable_bitmapscan=off", "plan_cache_mode=force_generic_plan", "plan_cache_mode=force_custom_plan",
	} {
		t.Run("with "+settings, func(t *testing.T) {
			t.Parallel()
			st := openURL(t, with(with(hasty(t), "jit=off"), settings), Options{}) // what is turned off is estimated at billions
			const endpoints, each, claimers = 5, 40, 8
			now := time.UnixMilli(1_000_000)
			want := map[int64]int{}
			for range endpoints {
				e := createEndpoint(t, st)
				p := store.PublishParams{Now: now}
				for i := range each {
					ev := event(fmt.Sprintf("evt_%d_%d", e.ID, i))
					ev.EndpointID = e.ID
					ev.OrderingKey = []string{"", "", "a", fmt.Sprint(i)}[i%4]
					p.Events = append(p.Events, ev)
				}
				r, err := st.Publish(t.Context(), p)
				require.NoError(t, err)
				for _, receipt := range r.Receipts {
					want[receipt.DeliveryIDs[0]] = 1
				}
			}
			got := map[int64]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for c := range claimers {
				all.Go(func() {
					var outcomes []store.Outcome
					for n, idle := int64(0), 0; idle < 3; n++ {
						p := room(int64(c)+claimers*n+1, now, 7)
						p.Room.PerEndpoint = 3
						r, err := st.Record(t.Context(), store.RecordParams{Now: now, Outcomes: outcomes, Claim: &p})
						if err != nil || len(r.Stale) > 0 {
							t.Errorf("%v, stale %v", err, r.Stale)
							return
						}
						idle++
						outcomes = outcomes[:0]
						for _, l := range r.Claim.Leases {
							idle = 0
							outcomes = append(outcomes, store.Outcome{
								DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: l.Token, Status: store.StatusDelivered,
							})
						}
						mu.Lock()
						for _, l := range r.Claim.Leases {
							got[l.DeliveryID]++
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			// What another was just leasing is passed over, so a claimer may have gone
			// home while there was something left.
			for token := int64(1 << 40); ; token++ {
				r, err := st.Claim(t.Context(), room(token, now, 1000))
				require.NoError(t, err)
				if len(r.Leases) == 0 {
					break
				}
				p := store.RecordParams{Now: now}
				for _, l := range r.Leases {
					got[l.DeliveryID]++
					p.Outcomes = append(p.Outcomes, store.Outcome{
						DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: token, Status: store.StatusDelivered,
					})
				}
				_, err = st.Record(t.Context(), p)
				require.NoError(t, err)
			}
			require.Equal(t, want, got, "how often each delivery was leased")
		})
	}
}

// counted counts what a claim reads of deliveries and lanes, as the server's
// statistics of the session tell.
func counted(t testing.TB, st *Store, statement string, args ...any) float64 {
	t.Helper()
	rows, err := st.pool.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) `+st.schema.qualify(statement),
		append([]any{pgx.QueryExecModeExec}, args...)...)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	var hit, read float64
	for _, line := range lines {
		if at := strings.Index(line, "Buffers: shared"); at >= 0 { // the first line is of all
			for _, word := range strings.Fields(line[at:]) {
				_, _ = fmt.Sscanf(word, "hit=%f", &hit)
				_, _ = fmt.Sscanf(word, "read=%f", &read)
			}
			return hit + read
		}
	}
	t.Fatal("no buffers:\n" + strings.Join(lines, "\n"))
	return 0
}

// What a claim costs does not depend on how much waits where it has nothing to
// take: at endpoints without room, that are paused, or have only future work. It
// is measured in pages that its statements look at.
func TestAClaimCostsTheSameAtAnyBacklog(t *testing.T) {
	cost := func(backlog, crowd int) (pages float64) {
		st := openURL(t, hasty(t), Options{})
		now := time.UnixMilli(1_000_000)
		serial := 0
		send := func(n int, due time.Time) store.Endpoint {
			e := createEndpoint(t, st)
			for n > 0 {
				p := store.PublishParams{Now: due}
				for range min(n, 1000) {
					serial++
					ev := event(fmt.Sprint("evt_", serial))
					ev.EndpointID = e.ID
					ev.OrderingKey = []string{"", "key"}[serial%2]
					p.Events = append(p.Events, ev)
				}
				n -= len(p.Events)
				_, err := st.Publish(t.Context(), p)
				require.NoError(t, err)
			}
			return e
		}
		saturated := send(backlog, now.Add(-time.Hour))
		paused := send(backlog, now.Add(-time.Hour))
		paused.Active = false
		_, err := st.UpdateEndpoint(t.Context(), paused, nil)
		require.NoError(t, err)
		send(backlog, now.Add(time.Hour))
		for range crowd {
			send(2, now.Add(time.Hour))
		}
		healthy := send(backlog, now)
		_, err = st.pool.Exec(t.Context(), st.schema.qualify(`ANALYZE webhook_deliveries, webhook_lanes, webhook_endpoints`))
		require.NoError(t, err)

		pages += counted(t, st, selectRunOut, now.UnixMilli(), maxSettled)
		pages += counted(t, st, selectArrived, maxSettled)
		pages += counted(t, st, selectLeaseEnds, leasesSeen)
		var lanes int
		require.NoError(t, st.pool.QueryRow(t.Context(), st.schema.qualify(`SELECT count(*) FROM webhook_lanes WHERE next_due <= $1`),
			now.UnixMilli()).Scan(&lanes))
		require.Equal(t, 2, lanes, "lanes that are due")
		pages += counted(t, st, claimDue, []int64{healthy.ID}, []int64{4}, []int64{0}, now.UnixMilli(), 100, 1, 2_000_000)
		pages += counted(t, st, insertFirst, []int64{healthy.ID})

		room := room(2, now, 4)
		room.Room.Endpoints = map[int64]int{saturated.ID: 0}
		r, err := st.Claim(t.Context(), room)
		require.NoError(t, err)
		require.Len(t, r.Leases, 4)
		return pages
	}
	small, big := cost(50, 3), cost(5000, 300)
	t.Logf("pages: %v at a small backlog, %v at a hundred times that", small, big)
	require.Less(t, big, 2*small+40, "pages read by a claim")
}

// Lanes do not pile up, whatever publishes leave behind while nobody claims.
func TestLanesAreFolded(t *testing.T) {
	st := openNew(t)
	e, other := createEndpoint(t, st), createEndpoint(t, st)
	pool := openPool(t, serverURL(t))
	lanes := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), st.schema.qualify(`SELECT count(*) FROM webhook_lanes`)).Scan(&n))
		return n
	}
	now := time.UnixMilli(1000)
	// Such transactions cannot rely on others' lanes.
	for i := range 30 {
		require.NoError(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
			_, err := publish(context.WithoutCancel(t.Context()), st.Tx(tx), fmt.Sprint("evt_", i))
			return err
		}))
	}
	require.Equal(t, 60, lanes())
	full := room(1, now, 10)
	full.Room.Endpoints = map[int64]int{e.ID: 0, other.ID: 0}
	_, err := st.Claim(t.Context(), full)
	require.NoError(t, err)
	require.Equal(t, 2, lanes(), "after a claim without room")
	for i := range 20 {
		mustPublish(t, st, fmt.Sprint("evt_more_", i))
	}
	require.Equal(t, 2, lanes(), "after publishes that rely on what is there")
	e.Active = false
	_, err = st.UpdateEndpoint(t.Context(), e, nil)
	require.NoError(t, err)
	require.NoError(t, st.DeleteEndpoint(t.Context(), 1, other.ID, now))
	require.Zero(t, lanes(), "after a pause and a delete")

	// What is left by somebody who did not know is deleted by the next claim, and
	// comes back with the endpoint.
	_, err = pool.Exec(t.Context(), st.schema.qualify(`INSERT INTO webhook_lanes (endpoint_id, next_due) VALUES ($1, 5), ($2, 5)`), e.ID, other.ID)
	require.NoError(t, err)
	_, err = st.Claim(t.Context(), room(2, now, 10))
	require.NoError(t, err)
	require.Zero(t, lanes())
	e, err = st.Endpoint(t.Context(), 1, e.ID)
	require.NoError(t, err)
	e.Active = true
	_, err = st.UpdateEndpoint(t.Context(), e, nil)
	require.NoError(t, err)
	require.Equal(t, 1, lanes())
	r, err := st.Claim(t.Context(), room(3, now, 1000))
	require.NoError(t, err)
	require.Len(t, r.Leases, 50)
	require.Zero(t, lanes())
}
