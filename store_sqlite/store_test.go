package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

func openNew(t testing.TB) *sqlitestore.Store {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "webhook.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Parallel()
		return openNew(t)
	})
}

// createEndpoint stores an active endpoint of workspace 1 that wants link.created.
func createEndpoint(t testing.TB, st store.Store) store.Endpoint {
	t.Helper()
	e, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{Endpoint: store.Endpoint{
		WorkspaceID: 1, Kind: store.KindEvent, URL: "https://example.com/", Events: []string{"link.created"}, Active: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
