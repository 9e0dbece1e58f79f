//go:build cgo

package sqlitestore

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// What the documentation says of the settings, whatever writerSettings says.
func TestSettingsAreTheDocumentedOnes(t *testing.T) {
	st := openNew(t)
	require.EqualValues(t, 2, onWriter(t, st, "PRAGMA synchronous"), "FULL: a publish that returned is on the disk")
	require.EqualValues(t, 2, onWriter(t, st, "PRAGMA secure_delete"), "FAST: what is erased is overwritten")
	require.EqualValues(t, 1, onWriter(t, st, "PRAGMA foreign_keys"))
	require.LessOrEqual(t, onWriter(t, st, "PRAGMA busy_timeout"), int64(50), "SQLite waits without regard to contexts")
}

// TestErasedSecretsAreNotInTheFile looks for secrets in the bytes of the file: one
// whose overlap is over, and those of a deleted endpoint.
func TestErasedSecretsAreNotInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook.db")
	ctx := t.Context()
	st, err := Open(ctx, path)
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	secret := func(name string) store.Sealed {
		return store.Sealed{KeyID: "key-of-" + name, Data: store.NewSecret(strings.Repeat("canary-"+name+"-", 4))}
	}
	create := func(name string) store.Endpoint {
		t.Helper()
		e, err := st.CreateEndpoint(ctx, store.CreateEndpointParams{
			Endpoint: store.Endpoint{WorkspaceID: 1, Kind: store.KindSIEM, URL: "https://example.com/", Active: true},
			Seal: func(int64) (store.Secrets, error) {
				return store.Secrets{Current: secret(name), Credentials: secret(name + "-credentials")}, nil
			},
		})
		require.NoError(t, err)
		return e
	}
	now := time.UnixMilli(1_000_000)
	rotate := func(e store.Endpoint, name string) {
		t.Helper()
		_, err := st.RotateSecret(ctx, store.RotateParams{
			WorkspaceID: 1, EndpointID: e.ID, Secret: secret(name), PreviousUntil: now.Add(time.Hour), At: now,
		})
		require.NoError(t, err)
	}
	kept, deleted := create("kept-old"), create("deleted-old")
	rotate(kept, "kept-new")
	rotate(deleted, "deleted-new")

	// has closes the store, which brings everything into the one file, and opens
	// it again.
	has := func(name string) bool {
		t.Helper()
		require.NoError(t, st.Close())
		var all []byte
		for _, suffix := range []string{"", "-wal", "-shm"} {
			content, err := os.ReadFile(path + suffix)
			if suffix == "" {
				require.NoError(t, err)
			}
			all = append(all, content...)
		}
		st, err = Open(context.WithoutCancel(ctx), path)
		require.NoError(t, err)
		return bytes.Contains(all, []byte("canary-"+name))
	}
	for _, name := range []string{"kept-old", "kept-new", "deleted-old", "deleted-new", "kept-old-credentials", "deleted-old-credentials"} {
		require.True(t, has(name), "%s is not to be found at all", name)
	}

	require.NoError(t, st.DeleteEndpoint(ctx, 1, deleted.ID, now))
	for _, name := range []string{"deleted-old", "deleted-new", "deleted-old-credentials"} {
		require.False(t, has(name), "%s is in the file after the endpoint was deleted", name)
	}
	require.True(t, has("kept-old"))
	r, err := st.Maintain(ctx, store.MaintainParams{Now: now.Add(time.Hour), Limit: 100})
	require.NoError(t, err)
	require.Equal(t, 1, r.Erased)
	require.False(t, has("kept-old-canary"), "an old secret is in the file after its overlap")
	require.True(t, has("kept-new"))
}

// TestNothingIsLeft: once everything was pruned, purged and forgotten, the
// tables hold nothing but what makes ids taken.
func TestNothingIsLeft(t *testing.T) {
	st := openNew(t)
	ctx := t.Context()
	gone, stays := createEndpoint(t, st), createEndpoint(t, st)
	p := events("evt", 40)
	for i := range p.Events {
		p.Events[i].IdempotencyKey = p.Events[i].ID
		p.Events[i].OrderingKey = []string{"", "a", "b"}[i%3]
	}
	_, err := st.Publish(ctx, p)
	require.NoError(t, err)
	now := p.Now.Add(time.Second)
	rows := func(table, where string, args ...any) (n int) {
		t.Helper()
		require.NoError(t, st.readers.Get(&n, "SELECT count(*) FROM webhook_"+table+" WHERE "+where, args...))
		return n
	}
	// At one endpoint some are delivered, some failed, some under a lease and most
	// pending when it is deleted; at the other all end.
	attempt := func(status store.Status, room map[int64]int) int {
		t.Helper()
		claim := store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
			Token: now.UnixMilli(), Until: now.Add(time.Minute), Room: store.Room{Limit: 100, Endpoints: room},
		}}
		now = now.Add(time.Second)
		r, err := st.Claim(ctx, claim)
		require.NoError(t, err)
		var outcomes []store.Outcome
		for _, l := range r.Leases {
			outcomes = append(outcomes, store.Outcome{
				DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: l.Token, Status: status, NextAttemptAt: now,
				Attempt: store.Attempt{StartedAt: now, Status: 200, Response: []byte("answer")},
			})
		}
		if status == "" {
			return len(outcomes) // stays under its lease
		}
		_, err = st.Record(ctx, store.RecordParams{Now: now, Outcomes: outcomes})
		require.NoError(t, err)
		return len(outcomes)
	}
	for _, status := range []store.Status{store.StatusPending, store.StatusDelivered, store.StatusFailed, ""} {
		require.Positive(t, attempt(status, map[int64]int{gone.ID: 3}))
	}
	for attempt(store.StatusDelivered, map[int64]int{stays.ID: 10}) > 0 {
	}
	require.Positive(t, rows("attempts", "1"))
	require.NoError(t, st.DeleteEndpoint(ctx, 1, gone.ID, now))
	require.Zero(t, rows("deliveries", "token IS NOT NULL"), "a lease of the deleted endpoint")
	require.Zero(t, rows("lanes", "endpoint_id = ?", gone.ID))
	require.Zero(t, rows("subscriptions", "endpoint_id = ?", gone.ID))

	maintain := func(m store.MaintainParams) {
		t.Helper()
		more := true
		for rounds := 0; more && rounds < 100; rounds++ {
			m.Now, m.Limit = now, 7
			r, err := st.Maintain(ctx, m)
			require.NoError(t, err)
			more = r.More
		}
		require.False(t, more, "there is more to do, and it is not done")
	}
	maintain(store.MaintainParams{})
	require.Zero(t, rows("deliveries", "endpoint_id = ?", gone.ID))
	require.Zero(t, rows("attempts", "delivery_id NOT IN (SELECT id FROM webhook_deliveries)"), "attempts of no delivery")
	require.Equal(t, 40, rows("deliveries", "endpoint_id = ?", stays.ID))
	require.Equal(t, 40, rows("events", "1"), "what another endpoint still shows")
	require.Equal(t, 40, rows("events", "remaining = 1"))

	maintain(store.MaintainParams{PruneBefore: now.Add(time.Hour), ForgetKeysBefore: now.Add(time.Hour)})
	for _, table := range []string{"deliveries", "attempts", "events", "lanes", "idempotency"} {
		require.Zero(t, rows(table, "1"), table)
	}
	require.Equal(t, 2, rows("endpoints", "1"), "ids stay taken")
	require.Equal(t, 1, rows("endpoints", "deleted_at IS NOT NULL AND purged = 1 AND url = '' AND headers IS NULL AND current_secret IS NULL"))
}
