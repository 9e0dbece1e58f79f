package sqlitestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// The test binary runs itself for a second process: with this variable it
// claims in the file it names, and prints the ids of what it delivered.
const childEnv = "SQLITESTORE_TEST_CLAIM"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(child(path))
	}
	// Fewer than rapid's own default, as each of TestModel's opens a file; the
	// command line still has its say.
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func child(path string) int {
	st, err := sqlitestore.Open(context.Background(), path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ids, err := deliverAll(context.Background(), st, 1_000_000)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(ids)
	}
	if closed := st.Close(); err == nil {
		err = closed
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// deliverAll claims and records until nothing is left, with tokens from first
// on, and returns what it delivered.
func deliverAll(ctx context.Context, st store.Store, first int64) ([]int64, error) {
	var delivered []int64
	var outcomes []store.Outcome
	for token := first; ; token++ {
		now := time.UnixMilli(2000)
		r, err := st.Record(ctx, store.RecordParams{
			Now: now, Outcomes: outcomes,
			Claim: &store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
				Token: token, Until: now.Add(time.Minute), Room: store.Room{Limit: 10, PerEndpoint: 10},
			}},
		})
		if err != nil {
			return nil, err
		}
		if len(r.Stale) > 0 {
			return nil, fmt.Errorf("lost %v", r.Stale)
		}
		if len(r.Claim.Leases) == 0 {
			return delivered, nil
		}
		outcomes = outcomes[:0]
		for _, l := range r.Claim.Leases {
			delivered = append(delivered, l.DeliveryID)
			outcomes = append(outcomes, store.Outcome{
				DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: l.Token, Status: store.StatusDelivered,
				Attempt: store.Attempt{StartedAt: now, Status: 204},
			})
		}
	}
}

func TestProcessesAndStoresShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook.db")
	var stores [2]*sqlitestore.Store
	for i := range stores {
		var err error
		stores[i], err = sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = stores[i].Close() })
	}
	createEndpoint(t, stores[0])
	var want []int64
	for i := range 10 {
		var ids []string
		for j := range 100 {
			ids = append(ids, fmt.Sprintf("evt_%d_%d", i, j))
		}
		want = append(want, mustPublish(t, stores[i%2], ids...)...)
	}

	got := make([][]int64, 4)
	errs := make([]error, len(got))
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			if i < len(stores) {
				got[i], errs[i] = deliverAll(t.Context(), stores[i], int64(i+1)*1000)
				return
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), childEnv+"="+path)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &got[i])
			}
			errs[i] = err
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	all := slices.Concat(got...)
	slices.Sort(all)
	require.Equal(t, want, all, "each delivery was delivered once")
	left, err := stores[1].Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1, Status: store.StatusPending})
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOpenRefusesWhatItCannotWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("rights are another matter there")
	}
	dir, err := os.MkdirTemp("", "sqlitestore")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(dir, "closed"), 0o700)
		_ = os.RemoveAll(dir)
	})
	closed := filepath.Join(dir, "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	for _, path := range []string{filepath.Join(dir, "readonly.db"), filepath.Join(closed, "webhook.db")} {
		st, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, st.Close())
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "readonly.db"), 0o444))
	require.NoError(t, os.Chmod(filepath.Join(closed, "webhook.db"), 0o666))
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(closed, 0o555))

	binary := filepath.Join(dir, "test") // where nobody, too, can run it
	data, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, data, 0o755))

	for _, path := range []string{
		filepath.Join(dir, "readonly.db"), filepath.Join(closed, "webhook.db"), filepath.Join(closed, "new.db"),
	} {
		before := fingerprint(path)
		cmd := exec.CommandContext(t.Context(), binary, "-test.run=^$")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), childEnv+"="+path)
		asNobody(cmd)
		out, err := cmd.CombinedOutput()
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("nobody may not run programs in the directory for temporary files")
		}
		require.Error(t, err, path)
		require.Contains(t, string(out), sqlitestore.ErrReadOnly.Error(), path)
		require.Equal(t, before, fingerprint(path), "the file was changed")
	}
}
