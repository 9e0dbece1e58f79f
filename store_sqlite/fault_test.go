//go:build cgo

package sqlitestore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingRunsAfterAFault: SQLite ends a transaction by itself on some errors,
// a full disk for one, and whatever comes next commits on its own. So nothing
// comes next, even if an operation overlooked the error.
func TestNothingRunsAfterAFault(t *testing.T) {
	st := openNew(t)
	e := createEndpoint(t, st)
	autocommit := false
	err := st.writer.do(t.Context(), 1, func(tx *transaction) error {
		_ = tx.run(&query{sql: `INSERT OR ROLLBACK INTO webhook_counter (id, epoch, revision, delivery, event) VALUES (1, 0, 0, 0, 0)`}, nil)
		autocommit = st.writer.conn.conn.AutoCommit()
		_ = tx.run(&query{sql: `UPDATE webhook_endpoints SET description = 'on its own'`}, nil)
		return nil
	})
	require.Error(t, err, "the fault is the call's error, whatever the operation says")
	require.True(t, autocommit, "the transaction was to be over")
	got, err := st.Endpoint(t.Context(), e.WorkspaceID, e.ID)
	require.NoError(t, err)
	require.Equal(t, e, got)
	_, err = st.Publish(t.Context(), events("next", 1))
	require.NoError(t, err)
	require.Equal(t, []string{"next-0"}, stored(t, st))
}
