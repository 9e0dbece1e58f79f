package postgresstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// Plans that were made while the tables were small are used when they are large,
// until somebody analyzes them. No claim may read a whole table then.
func TestAClaimReadsNoTableThatHasGrown(t *testing.T) {
	st := openAlone(t, hasty(t), Options{})
	e := createEndpoint(t, st)
	now := time.UnixMilli(10_000_000)
	claim := func() {
		p := room(1, now, 1)
		r, err := st.Claim(t.Context(), p)
		require.NoError(t, err)
		require.Len(t, r.Leases, 1)
		require.NoError(t, st.Release(t.Context(), []store.Release{{LeaseRef: r.Leases[0].Ref()}}))
	}
	sent := 0
	send := func(n int) {
		p := store.PublishParams{Now: now}
		for range n {
			sent++
			p.Events = append(p.Events, event(fmt.Sprint("evt_", sent)))
			p.Events[len(p.Events)-1].EndpointID = e.ID
		}
		_, err := st.Publish(t.Context(), p)
		require.NoError(t, err)
	}
	send(20)
	for range 20 { // PostgreSQL keeps a plan after the fifth time
		claim()
	}
	for range 10 {
		send(1000)
	}
	const claims = 50
	for range claims {
		claim()
	}

	url := strings.ReplaceAll(st.pool.Config().ConnString(), "&pool_max_conns=10", "")
	require.NoError(t, st.Close()) // with its connections, which tell what they read at their end
	pool := openPool(t, url)
	var read int64
	for range 100 {
		require.NoError(t, pool.QueryRow(t.Context(),
			`SELECT coalesce(seq_tup_read, 0) FROM pg_stat_user_tables WHERE relname = 'webhook_deliveries'`).Scan(&read))
		time.Sleep(5 * time.Millisecond)
	}
	require.Less(t, read, int64(claims*1000), "rows read by going through the table")
}
