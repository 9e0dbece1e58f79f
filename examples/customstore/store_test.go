package customstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	st, err := Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "webhooks.journal") }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Parallel() // most of the time goes to fsync
		return open(t, newPath(t))
	})
}

// TestReopened checks the contract on a store that is closed and opened again
// before each call.
func TestReopened(t *testing.T) {
	for _, c := range storetest.Cases() {
		if strings.HasPrefix(c.Name, "cost/") || c.Name == "claim/behind backlogs" {
			continue // it would read thousands of calls again before each
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			r := &reopening{t: t, path: path, Store: open(t, path)}
			t.Cleanup(func() { _ = r.Store.Close() })
			require.NoError(t, c.Check(t.Context(), r), c.Promise)
		})
	}
}

func TestItIsAsShortAsItSays(t *testing.T) {
	source, err := os.ReadFile("store.go")
	require.NoError(t, err)
	require.Less(t, bytes.Count(source, []byte("\n")), 300)
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store { return open(b, newPath(b)) })
}

type reopening struct {
	*Store
	t      *testing.T
	path   string
	mu     sync.Mutex
	closed bool
}

// again opens the store again and locks it.
func (r *reopening) again() (unlock func()) {
	r.mu.Lock()
	if !r.closed {
		err := r.Store.Close()
		if err == nil {
			r.Store, err = Open(context.Background(), r.path)
		}
		if err != nil {
			r.mu.Unlock()
			panic(err) // which storetest reports
		}
	}
	return r.mu.Unlock
}

func (r *reopening) Close() error {
	defer r.again()()
	r.closed = true
	return r.Store.Close()
}

func (r *reopening) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	defer r.again()()
	return r.Store.Publish(ctx, p)
}

func (r *reopening) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	defer r.again()()
	return r.Store.CreateEndpoint(ctx, p)
}

func (r *reopening) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	defer r.again()()
	return r.Store.Endpoint(ctx, workspaceID, id)
}

func (r *reopening) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	defer r.again()()
	return r.Store.Endpoints(ctx, f)
}

func (r *reopening) UpdateEndpoint(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
	defer r.again()()
	return r.Store.UpdateEndpoint(ctx, e, c)
}

func (r *reopening) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	defer r.again()()
	return r.Store.RotateSecret(ctx, p)
}

func (r *reopening) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	defer r.again()()
	return r.Store.Secrets(ctx, f)
}

func (r *reopening) Reseal(ctx context.Context, list []store.EndpointSecrets) ([]int64, error) {
	defer r.again()()
	return r.Store.Reseal(ctx, list)
}

func (r *reopening) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	defer r.again()()
	return r.Store.DeleteEndpoint(ctx, workspaceID, id, at)
}

func (r *reopening) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	defer r.again()()
	return r.Store.Claim(ctx, p)
}

func (r *reopening) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	defer r.again()()
	return r.Store.Record(ctx, p)
}

func (r *reopening) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	defer r.again()()
	return r.Store.Renew(ctx, leases, until)
}

func (r *reopening) Release(ctx context.Context, releases []store.Release) error {
	defer r.again()()
	return r.Store.Release(ctx, releases)
}

func (r *reopening) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	defer r.again()()
	return r.Store.Probe(ctx, p)
}

func (r *reopening) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	defer r.again()()
	return r.Store.Deliveries(ctx, f)
}

func (r *reopening) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	defer r.again()()
	return r.Store.Delivery(ctx, workspaceID, id)
}

func (r *reopening) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	defer r.again()()
	return r.Store.Attempts(ctx, workspaceID, deliveryID)
}

func (r *reopening) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	defer r.again()()
	return r.Store.Retry(ctx, p)
}

func (r *reopening) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	defer r.again()()
	return r.Store.Recover(ctx, p)
}

func (r *reopening) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	defer r.again()()
	return r.Store.Maintain(ctx, p)
}

// Below, the file.

// state is all that readers see.
func state(t testing.TB, st store.Store) string {
	t.Helper()
	ctx := t.Context()
	var all bytes.Buffer
	for workspace := range int64(3) {
		endpoints, err := st.Endpoints(ctx, store.EndpointFilter{WorkspaceID: workspace})
		require.NoError(t, err)
		for _, e := range endpoints {
			fmt.Fprintf(&all, "%+v\n", e)
		}
		deliveries, err := st.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: workspace})
		require.NoError(t, err)
		for _, d := range deliveries {
			attempts, err := st.Attempts(ctx, workspace, d.ID)
			require.NoError(t, err)
			fmt.Fprintf(&all, "%+v %+v\n", d, attempts)
		}
	}
	probe, err := st.Probe(ctx, store.ProbeParams{Since: 1})
	require.NoError(t, err)
	fmt.Fprintf(&all, "%+v", probe)
	return all.String()
}

var begin = time.Date(2026, 9, 21, 9, 14, 2, 123_456_789, time.FixedZone("east", 5*3600))

func newEndpoint(workspace int64) store.CreateEndpointParams {
	return store.CreateEndpointParams{
		Endpoint: store.Endpoint{
			WorkspaceID: workspace, Kind: store.KindEvent, URL: "https://example.com/?a=b&c=<d>", Events: []string{"a.b"},
			Active: true, CreatedAt: begin, Headers: map[string]string{"X-A": "b"}, RateLimit: 0.1,
		},
		Seal: func(id int64) (store.Secrets, error) {
			return store.Secrets{Current: secret("current", id), Credentials: secret("credentials", id)}, nil
		},
	}
}

// secret is what encryption makes: bytes of any kind.
func secret(kind string, n int64) store.Sealed {
	return store.Sealed{KeyID: "k1", Data: store.NewSecret(fmt.Sprintf("%s\xff\x00%d", kind, n))}
}

func event(n int) store.NewEvent {
	return store.NewEvent{
		ID: fmt.Sprint("evt_", n), WorkspaceID: 1, Type: "a.b", Matches: []string{"a.b"}, Budget: 3,
		Payload: []byte("\"\n\x00\xff"), Digest: [32]byte{byte(n), 255},
	}
}

// write makes a journal and returns it, cut after each of its lines.
func write(t testing.TB) (journal []byte, ends []int) {
	t.Helper()
	path := newPath(t)
	st := open(t, path)
	_, err := st.CreateEndpoint(t.Context(), newEndpoint(1))
	require.NoError(t, err)
	for n := range 2 {
		_, err := st.Publish(t.Context(), store.PublishParams{Events: []store.NewEvent{event(n)}, Now: begin})
		require.NoError(t, err)
	}
	require.NoError(t, st.Close())
	journal, err = os.ReadFile(path)
	require.NoError(t, err)
	for i, b := range journal {
		if b == '\n' {
			ends = append(ends, i+1)
		}
	}
	require.Len(t, ends, 4)
	return journal, ends
}

func stateOf(t testing.TB, journal []byte) string {
	t.Helper()
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, journal, 0o600))
	return state(t, open(t, path))
}

// TestTorn: a crash in the middle of a call leaves the state before it, and a
// journal that can be written on.
func TestTorn(t *testing.T) {
	journal, ends := write(t)
	before := stateOf(t, journal[:ends[2]])
	after := stateOf(t, journal)
	require.NotEqual(t, before, after)
	torn := func(last []byte) {
		path := newPath(t)
		require.NoError(t, os.WriteFile(path, append(journal[:ends[2]:ends[2]], last...), 0o600))
		st := open(t, path)
		require.Equal(t, before, state(t, st), "torn to %q", last)
		_, err := st.Publish(t.Context(), store.PublishParams{Events: []store.NewEvent{event(1)}, Now: begin})
		require.NoError(t, err)
		require.NoError(t, st.Close())
		require.Equal(t, after, state(t, open(t, path)))
	}
	last := journal[ends[2]:]
	for n := range last {
		torn(last[:n])
	}
	hole := bytes.Clone(last)
	clear(hole[20:40])
	torn(hole)                    // a page that was not written
	torn(make([]byte, len(last))) // none that were
	torn(append(last[:30:30], 0)) // half a page
	empty := stateOf(t, []byte{})
	for n := range header {
		require.Equal(t, empty, stateOf(t, journal[:n]), "a header torn at %d", n)
	}
}

// TestDamaged: a bit that changed anywhere is found, and the file left as it is.
func TestDamaged(t *testing.T) {
	journal, ends := write(t)
	require.Contains(t, string(journal), `{"Create":{"id":1,`)
	path := newPath(t)
	refused := func(content []byte, what string) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := Open(t.Context(), path)
		require.ErrorIs(t, err, ErrDamaged, what)
		require.ErrorContains(t, err, path)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, after, what)
	}
	for i := range len(journal) - 1 { // without its end, the last line counts as torn
		damaged := bytes.Clone(journal)
		damaged[i] ^= 1
		refused(damaged, fmt.Sprint("a bit of byte ", i))
	}
	hole := bytes.Clone(journal)
	clear(hole[ends[0]+20 : ends[0]+40])
	refused(hole, "a hole before the last line")
	refused([]byte("precious"), "another file of one line")
	refused([]byte("root:x:0:0\ndaemon:x:1:1\n"), "another file of two lines")
	_, err := Open(t.Context(), t.TempDir())
	require.Error(t, err)
}

// TestUnwritable: after a call that may or may not be in the file nothing else
// goes, until the store is opened again.
func TestUnwritable(t *testing.T) {
	path := newPath(t)
	st := open(t, path)
	_, err := st.CreateEndpoint(t.Context(), newEndpoint(1))
	require.NoError(t, err)
	before := state(t, st)
	require.NoError(t, st.file.Close())
	publish := store.PublishParams{Events: []store.NewEvent{event(1)}, Now: begin}
	_, err = st.Publish(t.Context(), publish)
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = st.Publish(t.Context(), publish)
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = st.Endpoint(t.Context(), 1, 1)
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, st.Close(), store.ErrClosed)
	require.Equal(t, before, state(t, open(t, path)))
}

func TestUnwritten(t *testing.T) {
	path := newPath(t)
	st := open(t, path)
	size := func() int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	empty := size()
	_, err := st.Claim(t.Context(), store.ClaimParams{Now: begin})
	require.NoError(t, err)
	p := newEndpoint(1)
	p.Seal = func(int64) (store.Secrets, error) { return store.Secrets{}, errors.New("no key") }
	_, err = st.CreateEndpoint(t.Context(), p)
	require.EqualError(t, err, "no key")
	p = newEndpoint(1)
	p.Endpoint.CreatedAt = time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err = st.CreateEndpoint(t.Context(), p)
	require.ErrorContains(t, err, "year outside of range", "what JSON cannot say")
	require.Equal(t, empty, size())
	_, err = st.CreateEndpoint(t.Context(), newEndpoint(1))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, path)
	require.ErrorIs(t, err, context.Canceled)
}
