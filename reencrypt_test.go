package webhook_test

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// keyring has a key for each of the names, of which the first is current.
func keyring(names ...string) webhook.Keyring {
	k := webhook.Keyring{Current: names[0], Keys: map[string]webhook.Secret{}}
	for _, name := range names {
		k.Keys[name] = webhook.NewSecret(strings.Repeat(name, 32)[:32])
	}
	return k
}

func secretsOf(t testing.TB, st store.Store) []store.EndpointSecrets {
	t.Helper()
	list, err := st.Secrets(t.Context(), store.SecretsFilter{})
	require.NoError(t, err)
	return list
}

// sealedUnder counts the secrets in a store by the key they are under.
func sealedUnder(t testing.TB, st store.Store) map[string]int {
	t.Helper()
	under := map[string]int{}
	for _, e := range secretsOf(t, st) {
		for _, s := range []store.Sealed{e.Secrets.Current, e.Secrets.Previous, e.Secrets.Credentials} {
			if !s.IsZero() {
				under[s.KeyID]++
			}
		}
	}
	return under
}

// onOneStore are ways to have several processes on one store.
var onOneStore = map[string]func(t *testing.T) (open func() store.Store, file string){
	"memory": func(*testing.T) (func() store.Store, string) {
		st := memorystore.New(memorystore.Options{})
		return func() store.Store { return shared{st} }, ""
	},
	"sqlite": func(t *testing.T) (func() store.Store, string) {
		file := filepath.Join(t.TempDir(), "webhooks.db")
		return func() store.Store {
			st, err := sqlitestore.Open(t.Context(), file)
			require.NoError(t, err)
			t.Cleanup(func() { _ = st.Close() })
			return st
		}, file
	},
}

// TestTheEncryptionKeyIsReplacedWhileDeliveriesFlow goes through all the steps that
// the documentation gives, with two processes that publish, deliver and rotate.
func TestTheEncryptionKeyIsReplacedWhileDeliveriesFlow(t *testing.T) {
	for name, create := range onOneStore {
		t.Run(name, func(t *testing.T) {
			open, file := create(t)
			net := &network{}
			process := func(keys webhook.Keyring) *world {
				return newWorld(t, open(), webhook.Config{
					Keys: keys, Poll: 10 * time.Millisecond, Logger: quiet(), Egress: webhook.Egress{Transport: net},
				})
			}
			// Endpoints of all kinds, in the clear and under the old key.
			var mu sync.Mutex
			current, previous := map[string]webhook.Secret{}, map[string]webhook.Secret{} // by URL
			var all []webhook.Secret
			add := func(w *world) {
				url := fmt.Sprintf("https://e%d.example/", len(current))
				e, secret := w.endpoint(webhook.EndpointParams{URL: url})
				current[url] = secret
				all = append(all, secret)
				if e.ID%2 == 0 {
					return
				}
				_, next, err := w.RotateSecret(t.Context(), workspace, e.ID, webhook.RotateOptions{})
				require.NoError(t, err)
				current[url], previous[url] = next, secret
				all = append(all, next)
			}
			inClear := process(webhook.Keyring{})
			add(inClear)
			add(inClear)
			a, b := process(keyring("old", "new")), process(keyring("new", "old"))
			add(a)
			add(a)
			add(b)
			url := "https://imported.example/"
			current[url], previous[url] = webhook.NewSecret("the-secret-of-another-system"), webhook.NewSecret("its-previous-secret-over-there")
			_, err := a.ImportEndpoint(t.Context(), webhook.ImportParams{
				EndpointParams: webhook.EndpointParams{WorkspaceID: workspace, URL: url, Events: []string{"link.*"}, Secret: current[url]},
				CreatedAt:      time.Now(), Previous: previous[url], PreviousUntil: time.Now().Add(time.Hour),
			})
			require.NoError(t, err)
			rotating, _ := a.endpoint(webhook.EndpointParams{URL: "https://rotating.example/"})
			under := sealedUnder(t, a.store)
			require.Positive(t, under[""])
			require.Positive(t, under["old"])
			require.Positive(t, under["new"])

			// Both processes run, publish and rotate while one re-encrypts.
			a.run()
			b.run()
			stop := make(chan struct{})
			var group sync.WaitGroup
			var ids []int64
			for _, w := range []*world{a, b} {
				group.Go(func() {
					for n := 0; ; n++ {
						r, err := w.Publish(context.Background(), webhook.Event{
							Type: "link.created", WorkspaceID: workspace, Data: map[string]any{"id": n},
						})
						assert.NoError(t, err)
						mu.Lock()
						ids = append(ids, r.DeliveryIDs...)
						mu.Unlock()
						if n%3 == 2 {
							_, _, err := w.RotateSecret(context.Background(), workspace, rotating.ID, webhook.RotateOptions{})
							assert.NoError(t, err)
						}
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
			for range 3 {
				_, err = b.Reencrypt(t.Context())
				require.NoError(t, err)
			}
			close(stop)
			group.Wait()
			a.stop() // from now on nobody encrypts under the old key
			_, err = b.Reencrypt(t.Context())
			require.NoError(t, err)
			under = sealedUnder(t, b.store)
			require.Equal(t, map[string]int{"new": under["new"]}, under)
			changed, err := b.Reencrypt(t.Context())
			require.NoError(t, err)
			require.Zero(t, changed, "the second time")
			delivered := func(w *world) {
				require.Eventually(t, func() bool {
					page, err := w.Deliveries(t.Context(), webhook.DeliveryQuery{WorkspaceID: workspace, Status: webhook.StatusPending})
					require.NoError(t, err)
					return len(page.Deliveries) == 0
				}, time.Minute, 10*time.Millisecond)
			}
			delivered(b)
			b.stop()

			// The old key is gone: all sign as before, with both secrets in an overlap.
			c := process(keyring("new"))
			c.run()
			net.reset()
			c.publish(webhook.Event{})
			delivered(c)
			c.stop()
			hits := net.all()
			require.Len(t, hits, len(current)+1)
			for _, h := range hits {
				if h.url == rotating.URL {
					continue
				}
				require.Equal(t, elido(current[h.url], h), h.header.Get("X-Elido-Signature"), h.url)
				want := ""
				if old := previous[h.url]; !old.IsZero() {
					want = elido(old, h)
				}
				require.Equal(t, want, h.header.Get("X-Elido-Signature-Previous"), h.url)
			}
			for _, id := range ids {
				d, err := c.Delivery(t.Context(), workspace, id)
				require.NoError(t, err)
				require.Equal(t, webhook.StatusDelivered, d.Status)
				require.Equal(t, 1, d.Attempts)
			}
			if file == "" {
				return
			}
			for _, w := range []*world{inClear, a, b, c} {
				require.NoError(t, w.store.Close())
			}
			for _, name := range []string{file, file + "-wal"} {
				data, err := os.ReadFile(name)
				if err != nil && name != file {
					continue // SQLite removed it
				}
				require.NoError(t, err)
				for _, s := range all {
					require.False(t, bytes.Contains(data, []byte(s.Reveal()[8:40])), "%s holds a secret that was in the clear", name)
				}
			}
		})
	}
}

func TestReencryptLeavesWhatDoesNotDecryptAndNamesIt(t *testing.T) {
	bubble(t, webhook.Config{Keys: keyring("old", "new")}, func(w *world) {
		ctx := w.Context()
		var plain []webhook.Secret
		for range 7 {
			e, first := w.endpoint(webhook.EndpointParams{})
			_, second, err := w.RotateSecret(ctx, workspace, e.ID, webhook.RotateOptions{})
			require.NoError(w, err)
			plain = append(plain, first, second)
		}
		tamper := func(change func(list []store.EndpointSecrets)) {
			list := secretsOf(w, w.store)
			change(list)
			stale, err := w.store.Reseal(ctx, list)
			require.NoError(w, err)
			require.Empty(w, stale)
		}
		flip := func(s *store.Sealed) {
			raw := []byte(s.Data.Reveal())
			raw[len(raw)-1] ^= 1
			s.Data = store.NewSecret(string(raw))
		}
		tamper(func(list []store.EndpointSecrets) {
			list[0].Secrets, list[1].Secrets = list[1].Secrets, list[0].Secrets // two rows swapped
			flip(&list[2].Secrets.Current)
			list[3].Secrets.Previous.KeyID = "lost"
			list[4].Secrets.Current.Data = store.NewSecret("short")
			list[4].Secrets.Previous.KeyID = "lost"
		})
		before := secretsOf(w, w.store)

		next := newWorld(w.T, w.store, webhook.Config{Keys: keyring("new", "old")})
		changed, err := next.Reencrypt(ctx)
		require.Equal(w, 4, changed, "those with a secret that decrypts")
		var lines []string
		for i, reason := range []string{
			`the endpoint's secret does not decrypt under key "old": it was made with another key or for another endpoint; ` +
				`previous secret: the endpoint's secret does not decrypt under key "old": it was made with another key or for another endpoint`,
			`the endpoint's secret does not decrypt under key "old": it was made with another key or for another endpoint; ` +
				`previous secret: the endpoint's secret does not decrypt under key "old": it was made with another key or for another endpoint`,
			`the endpoint's secret does not decrypt under key "old": it was made with another key or for another endpoint`,
			`previous secret: the endpoint's secret is encrypted under key "lost", which is not in Config.Keys`,
			`the endpoint's secret does not decrypt: it is cut short; ` +
				`previous secret: the endpoint's secret is encrypted under key "lost", which is not in Config.Keys`,
		} {
			lines = append(lines, fmt.Sprintf("webhook: endpoint %d: %s", before[i].EndpointID, reason))
			require.Contains(w, next.log.String(), fmt.Sprintf("endpoint_id=%d", before[i].EndpointID))
		}
		require.EqualError(w, err, strings.Join(lines, "\n"))

		after := secretsOf(w, w.store)
		for i := range before {
			for j, s := range [][2]store.Sealed{
				{before[i].Secrets.Current, after[i].Secrets.Current}, {before[i].Secrets.Previous, after[i].Secrets.Previous},
			} {
				left := i < 2 || i == 2 && j == 0 || i == 3 && j == 1 || i == 4
				require.Equal(w, left, s[0].Equal(s[1]), "secret %d of endpoint %d", j, i)
				if !left {
					require.Equal(w, "new", s[1].KeyID)
				}
			}
		}
		changed, again := next.Reencrypt(ctx)
		require.Zero(w, changed)
		require.EqualError(w, again, err.Error())

		// What is under the current key is looked at, too: the promise is of all.
		tamper(func(list []store.EndpointSecrets) { flip(&list[6].Secrets.Previous) })
		_, err = next.Reencrypt(ctx)
		require.ErrorContains(w, err, fmt.Sprintf("endpoint %d: previous secret: the endpoint's secret does not decrypt under key \"new\"", after[6].EndpointID))
		for _, s := range plain {
			require.NotContains(w, err.Error()+next.log.String(), s.Reveal()[6:20])
		}
	})
}

func TestReencryptNamesAHundredEndpointsAndCountsTheRest(t *testing.T) {
	bubble(t, webhook.Config{Keys: keyring("lost")}, func(w *world) {
		for range 123 {
			w.endpoint(webhook.EndpointParams{})
		}
		next := newWorld(w.T, w.store, webhook.Config{Keys: keyring("new")})
		changed, err := next.Reencrypt(w.Context())
		require.Zero(w, changed)
		lines := strings.Split(err.Error(), "\n")
		require.Len(w, lines, 101)
		require.Equal(w, "webhook: and 23 more endpoints", lines[100])
		require.Equal(w, 123, strings.Count(next.log.String(), "a secret was not re-encrypted"))
	})
}

func TestReencryptNeedsKeys(t *testing.T) {
	w := newWorld(t, memorystore.New(memorystore.Options{}), webhook.Config{})
	w.endpoint(webhook.EndpointParams{})
	before := secretsOf(t, w.store)
	n, err := w.Reencrypt(t.Context())
	require.Zero(t, n)
	invalid(t, err, "Config.Keys")
	require.Equal(t, before[0].Revision, secretsOf(t, w.store)[0].Revision)
}

// meddling is a store to which something happens before a reseal.
type meddling struct {
	store.Store
	before func(call int, entries []store.EndpointSecrets) error
	calls  int
}

func (m *meddling) Reseal(ctx context.Context, entries []store.EndpointSecrets) ([]int64, error) {
	m.calls++
	if err := m.before(m.calls, entries); err != nil {
		return nil, err
	}
	return m.Store.Reseal(ctx, entries)
}

// What changes an endpoint between the reading of its secret and the writing wins,
// and the endpoint is seen to again.
func TestReencryptGivesWayToRotationsAndDeletes(t *testing.T) {
	bubble(t, webhook.Config{Keys: keyring("old", "new")}, func(w *world) {
		ctx := w.Context()
		const endpoints = 130 // more than one batch
		var list []webhook.Endpoint
		for range endpoints {
			e, _ := w.endpoint(webhook.EndpointParams{})
			list = append(list, e)
		}
		rotated := map[int64]webhook.Secret{}
		m := &meddling{Store: w.store, before: func(call int, entries []store.EndpointSecrets) error {
			switch call {
			case 1: // one that encrypts under the old key rotates, another one deletes
				for _, e := range list[10:13] {
					_, secret, err := w.RotateSecret(ctx, workspace, e.ID, webhook.RotateOptions{})
					require.NoError(w, err)
					rotated[e.ID] = secret
				}
				require.NoError(w, w.DeleteEndpoint(ctx, workspace, list[20].ID))
			case 2: // again in the very moment
				require.Equal(w, list[10].ID, entries[0].EndpointID, "it goes back to the first that changed")
				_, secret, err := w.RotateSecret(ctx, workspace, list[10].ID, webhook.RotateOptions{})
				require.NoError(w, err)
				rotated[list[10].ID] = secret
				_, err = w.PauseEndpoint(ctx, workspace, list[129].ID)
				require.NoError(w, err)
			}
			return nil
		}}
		next := newWorld(w.T, m, webhook.Config{Keys: keyring("new", "old")})
		changed, err := next.Reencrypt(ctx)
		require.NoError(w, err)
		require.Equal(w, endpoints-1, changed, "each once, but the one that was deleted")
		under := sealedUnder(w, w.store)
		require.Equal(w, map[string]int{"new": under["new"]}, under)
		last := newWorld(w.T, w.store, webhook.Config{Keys: keyring("new")})
		last.run()
		last.net.reset()
		last.publish(webhook.Event{})
		last.settle()
		hits := last.net.all()
		require.Len(w, hits, endpoints-2)
		for _, h := range hits {
			d := last.delivery(h.delivery)
			if secret, ok := rotated[d.EndpointID]; ok {
				require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"))
				require.NotEmpty(w, h.header.Get("X-Elido-Signature-Previous"))
			}
		}
		last.stop()
	})
}

func TestReencryptInSeveralProcessesAtOnce(t *testing.T) {
	for name, create := range onOneStore {
		t.Run(name, func(t *testing.T) {
			open, _ := create(t)
			first := newWorld(t, open(), webhook.Config{Keys: keyring("old"), Logger: quiet()})
			const endpoints = 24
			for range endpoints {
				first.endpoint(webhook.EndpointParams{})
			}
			var group sync.WaitGroup
			var mu sync.Mutex
			total := 0
			for range 4 {
				w := newWorld(t, open(), webhook.Config{Keys: keyring("new", "old"), Logger: quiet()})
				group.Go(func() {
					n, err := w.Reencrypt(context.Background())
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					total += n
				})
			}
			group.Wait()
			require.Equal(t, endpoints, total, "each endpoint is changed once")
			require.Equal(t, map[string]int{"new": endpoints}, sealedUnder(t, first.store))
		})
	}
}

func TestReencryptGoesOnWhereItEnded(t *testing.T) {
	bubble(t, webhook.Config{Keys: keyring("old")}, func(w *world) {
		for range 250 {
			w.endpoint(webhook.EndpointParams{})
		}
		full := errors.New("disk full")
		m := &meddling{Store: w.store, before: func(call int, _ []store.EndpointSecrets) error {
			if call == 2 {
				return full
			}
			return nil
		}}
		next := newWorld(w.T, m, webhook.Config{Keys: keyring("new", "old")})
		changed, err := next.Reencrypt(w.Context())
		require.ErrorIs(w, err, full)
		require.Equal(w, 100, changed)
		require.Equal(w, map[string]int{"new": 100, "old": 150}, sealedUnder(w, w.store))

		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		changed, err = next.Reencrypt(ctx)
		require.ErrorIs(w, err, context.Canceled)
		require.Zero(w, changed)

		changed, err = next.Reencrypt(w.Context())
		require.NoError(w, err)
		require.Equal(w, 150, changed)
		require.Equal(w, map[string]int{"new": 250}, sealedUnder(w, w.store))
	})
}

// A process that could not decrypt a secret delivers once it is under a key that
// it has.
func TestWhatCouldNotBeDecryptedIsDeliveredAfterReencrypting(t *testing.T) {
	bubble(t, webhook.Config{Keys: keyring("new")}, func(w *world) {
		old := newWorld(w.T, w.store, webhook.Config{Keys: keyring("old")})
		e, secret := old.endpoint(webhook.EndpointParams{})
		w.run()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(time.Second)
		require.Contains(w, string(w.delivery(id).LastError), `under key "old"`)
		next := newWorld(w.T, w.store, webhook.Config{Keys: keyring("new", "old")})
		changed, err := next.Reencrypt(w.Context())
		require.NoError(w, err)
		require.Equal(w, 1, changed)
		w.sleep(2 * time.Hour)
		d := w.delivery(id)
		require.Equal(w, webhook.StatusDelivered, d.Status)
		require.Equal(w, 1, d.Attempts)
		h := w.net.all()[0]
		require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"))
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Equal(w, e.UpdatedAt, got.UpdatedAt)
	})
}

func ExampleDispatcher_Reencrypt() {
	ctx := context.Background()
	st := memorystore.New(memorystore.Options{})
	old := webhook.NewSecret("0123456789abcdef0123456789abcdef") // from where the host keeps its keys
	d, err := webhook.New(st, webhook.Config{Logger: quiet(), Keys: webhook.Keyring{
		Current: "2025", Keys: map[string]webhook.Secret{"2025": old},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _, err = d.CreateEndpoint(ctx, webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://customer.example/hooks", Events: []string{"link.*"},
	})
	fmt.Println(err)

	// A year later: both keys, the new one current.
	d, err = webhook.New(st, webhook.Config{Logger: quiet(), Keys: webhook.Keyring{
		Current: "2026", Keys: map[string]webhook.Secret{"2025": old, "2026": webhook.NewSecret("fedcba9876543210fedcba9876543210")},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Reencrypt(ctx)) // nothing is under the old key any more
	fmt.Println(d.Reencrypt(ctx))
	// Output:
	// <nil>
	// 1 <nil>
	// 0 <nil>
}
