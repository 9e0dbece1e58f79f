package webhook_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

var races = flag.Int("races", 20, "how often each of TestRaces is run")

// TestRaces changes endpoints, retries by hand and stops, again and again, while
// other goroutines publish, and attempts begin and end. It runs in real time, for
// the race detector's sake; but where a stop gives nobody any time, the time is a
// bubble's, or a busy machine would take that literally.
func TestRaces(t *testing.T) {
	real := func(t *testing.T, race func(t *testing.T)) { race(t) }
	for name, race := range map[string]struct {
		run   func(a *arena)
		grace time.Duration
		in    func(t *testing.T, race func(t *testing.T))
	}{
		"pause":         {run: racePause, in: real},
		"rotate":        {run: raceRotate, in: real},
		"update":        {run: raceUpdate, in: real},
		"delete":        {run: raceDelete, in: real},
		"retry":         {run: raceRetry, in: real},
		"fifty retries": {run: raceFiftyRetries, in: real},
		"stop":          {run: raceStop, in: real, grace: time.Minute},
		"stop at once":  {run: raceStop, in: synctest.Test, grace: -1},
	} {
		for on, open := range map[string]func(t *testing.T) (store.Store, *sql.DB){
			"memory": func(*testing.T) (store.Store, *sql.DB) { return memorystore.New(memorystore.Options{}), nil },
			"sqlite": openWithRows,
		} {
			t.Run(name+" on "+on, func(t *testing.T) {
				t.Parallel()
				race.in(t, func(t *testing.T) {
					st, rows := open(t)
					a := newArena(t, st, race.grace)
					a.rows = rows
					defer func() { a.stop() }()
					for range *races {
						a.round++
						race.run(a)
					}
					a.end()
				})
			})
		}
	}
}

// openWithRows opens a store, and a way to look at its tables.
func openWithRows(t *testing.T) (store.Store, *sql.DB) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { st.Close() })
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return st, db
}

// An arena is a Dispatcher in real time. Everything that matters gets a number
// from one clock, so that requests and calls can be put in order.
type arena struct {
	*world
	rows     *sql.DB // what the store keeps, where it is SQLite
	round    int64
	sentinel webhook.Endpoint
	clock    atomic.Int64

	mu     sync.Mutex
	starts map[string][]start // by host
	open   map[string]int     // requests
	hold   map[string]chan struct{}
	gone   []int64 // deleted endpoints
	errors []string
	stale  int // outcomes that were dropped
}

// A start is a request on its way, as its transport saw it begin.
type start struct {
	hit
	clock int64
	cut   bool
}

const sentinelWorkspace = 1 << 40

func newArena(t *testing.T, st store.Store, grace time.Duration) *arena {
	a := &arena{starts: map[string][]start{}, open: map[string]int{}, hold: map[string]chan struct{}{}}
	late := &faulty{Store: st}
	late.set(nil, func(context.Context, string) error { moment(100); return nil })
	a.world = newWorld(t, late, webhook.Config{
		Egress: webhook.Egress{Transport: a},
		Grace:  grace,
		Logger: slog.New(handlerFunc(a.logged)),
	})
	a.sentinel, _ = a.endpoint(webhook.EndpointParams{WorkspaceID: sentinelWorkspace, URL: "https://sentinel.example/"})
	a.run()
	return a
}

func (a *arena) logged(r slog.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Level >= slog.LevelError {
		a.errors = append(a.errors, r.Message)
	}
	if strings.Contains(r.Message, "result dropped") {
		a.stale++
	}
}

// tick gives a number later than all before it.
func (a *arena) tick() int64 { return a.clock.Add(1) }

// RoundTrip notes the start of a request, and answers it after a moment.
func (a *arena) RoundTrip(r *http.Request) (*http.Response, error) {
	s := start{clock: a.tick()}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseInt(r.Header.Get("X-Webhook-Delivery"), 10, 64)
	if err != nil {
		return nil, err
	}
	s.hit = hit{url: r.URL.String(), header: r.Header.Clone(), body: string(body), delivery: id}
	host := r.URL.Host
	a.mu.Lock()
	n := len(a.starts[host])
	a.starts[host] = append(a.starts[host], s)
	a.open[host]++
	hold := a.hold[host]
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.open[host]--
		a.mu.Unlock()
	}()
	if hold == nil {
		moment(100)
	} else {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
	if err := r.Context().Err(); err != nil {
		a.mu.Lock()
		a.starts[host][n].cut = true
		a.mu.Unlock()
		return nil, err
	}
	return status(200), nil
}

// moment lets others go first, or not.
func moment(most int) {
	for range rand.N(most) {
		runtime.Gosched()
	}
}

// until waits for something that must come.
func (a *arena) until(what string, condition func() bool) {
	a.Helper()
	for begin := time.Now(); !condition(); time.Sleep(100 * time.Microsecond) {
		if time.Since(begin) > time.Minute {
			a.Fatalf("waited for %s for a minute", what)
		}
	}
}

// passed returns when the Dispatcher has dealt with whatever was there when it
// was called: with a delivery behind it, and with all requests to a host.
func (a *arena) passed(host string) {
	a.Helper()
	id := a.publish(webhook.Event{WorkspaceID: sentinelWorkspace}).DeliveryIDs[0]
	a.until("the sentinel", func() bool {
		d, err := a.Delivery(a.Context(), sentinelWorkspace, id)
		require.NoError(a, err)
		return d.Status == webhook.StatusDelivered
	})
	a.until("requests to end", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.open[host] == 0
	})
}

func (a *arena) to(host string) []start {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]start(nil), a.starts[host]...)
}

// A bout is one round: an endpoint, the only one of its workspace, and those who
// publish to it.
type bout struct {
	*arena
	workspace int64
	host      string
	id        int64 // of the endpoint
	secret    webhook.Secret

	group sync.WaitGroup
	mu    sync.Mutex
	ids   []int64
}

func (a *arena) begin() *bout {
	b := &bout{arena: a, workspace: a.round, host: fmt.Sprintf("e%d.example", a.round)}
	e, secret := a.endpoint(webhook.EndpointParams{WorkspaceID: b.workspace, URL: "https://" + b.host + "/a"})
	b.id, b.secret = e.ID, secret
	return b
}

// publishing lets some goroutines publish.
func (b *bout) publishing() {
	for range 3 {
		b.group.Go(func() {
			for range 4 {
				r, err := b.Publish(context.Background(), webhook.Event{
					Type: "link.created", WorkspaceID: b.workspace, Data: map[string]int{"id": 1}})
				if err != nil {
					b.Error(err)
					return
				}
				b.mu.Lock()
				b.ids = append(b.ids, r.DeliveryIDs...)
				b.mu.Unlock()
			}
		})
	}
}

// delivered waits until everything is, and asks that each has one attempt and
// went out once; or, for each time it was cut, once more.
func (b *bout) delivered() {
	b.Helper()
	b.group.Wait()
	b.until("deliveries", func() bool {
		page, err := b.Deliveries(b.Context(), webhook.DeliveryQuery{
			WorkspaceID: b.workspace, Status: webhook.StatusPending, Limit: 1})
		require.NoError(b, err)
		return len(page.Deliveries) == 0
	})
	page, err := b.Deliveries(b.Context(), webhook.DeliveryQuery{WorkspaceID: b.workspace})
	require.NoError(b, err)
	require.Len(b, page.Deliveries, len(b.ids), "those and no others")
	sent := map[int64]int{}
	for _, s := range b.to(b.host) {
		if !s.cut {
			sent[s.delivery]++
		}
	}
	for _, id := range b.ids {
		attempts, err := b.Attempts(b.Context(), b.workspace, id)
		require.NoError(b, err)
		require.Len(b, attempts, 1)
		require.Equal(b, 200, attempts[0].Status)
		require.Equal(b, 1, sent[id], "requests for delivery %d", id)
	}
}

func racePause(a *arena) {
	b := a.begin()
	b.publishing()
	type interval struct{ from, to int64 }
	var paused []interval
	for range 3 {
		moment(300)
		_, err := b.PauseEndpoint(b.Context(), b.workspace, b.id)
		from := b.tick()
		require.NoError(b, err)
		if rand.N(2) == 0 {
			b.passed(b.host)
		}
		to := b.tick()
		_, err = b.ResumeEndpoint(b.Context(), b.workspace, b.id)
		require.NoError(b, err)
		paused = append(paused, interval{from, to})
	}
	b.delivered()
	for _, s := range b.to(b.host) {
		for _, p := range paused {
			require.False(b, p.from < s.clock && s.clock < p.to, "a request began while the endpoint was paused: %d in %v", s.clock, p)
		}
	}
}

func raceRotate(a *arena) {
	b := a.begin()
	b.publishing()
	options := func(seen *int) webhook.RotateOptions {
		return webhook.RotateOptions{Seen: seen, NoOverlap: a.round%2 == 0}
	}
	var secrets [2]webhook.Secret
	var at [2]int64
	var errs [2]error
	var both sync.WaitGroup
	for i := range secrets {
		both.Go(func() {
			moment(300)
			_, secrets[i], errs[i] = b.RotateSecret(context.Background(), b.workspace, b.id, options(new(int)))
			at[i] = b.tick()
		})
	}
	both.Wait()
	won := 0
	if errs[0] != nil {
		won = 1
	}
	require.NoError(b, errs[won])
	require.ErrorIs(b, errs[1-won], webhook.ErrConflict)
	chain, since := []webhook.Secret{b.secret, secrets[won]}, []int64{0, at[won]}

	moment(300)
	_, third, err := b.RotateSecret(b.Context(), b.workspace, b.id, options(nil))
	chain, since = append(chain, third), append(since, b.tick())
	require.NoError(b, err)
	b.publishing()
	b.delivered()
	for _, s := range b.to(b.host) {
		current := -1
		for i := range chain {
			if elido(chain[i], s.hit) == s.header.Get("X-Elido-Signature") {
				current = i
			}
		}
		require.NotEqual(b, -1, current, "nobody's signature")
		if current+1 < len(chain) {
			require.Less(b, s.clock, since[current+1], "secret %d signed after it was replaced", current)
		}
		previous := s.header.Get("X-Elido-Signature-Previous")
		if current == 0 || options(nil).NoOverlap {
			require.Empty(b, previous)
		} else {
			require.Equal(b, elido(chain[current-1], s.hit), previous)
		}
	}
}

func raceUpdate(a *arena) {
	b := a.begin()
	b.publishing()
	moment(300)
	url, one := "https://"+b.host+"/b", 1
	_, err := b.UpdateEndpoint(b.Context(), b.workspace, b.id, webhook.EndpointUpdate{URL: &url, MaxInFlight: &one})
	moved := b.tick()
	require.NoError(b, err)
	b.publishing()
	b.delivered()
	for _, s := range b.to(b.host) {
		require.False(b, s.clock > moved && s.url != url, "a request went to where the endpoint was")
	}
}

func raceDelete(a *arena) {
	b := a.begin()
	b.publishing()
	moment(600)
	require.NoError(b, b.DeleteEndpoint(b.Context(), b.workspace, b.id))
	deleted := b.tick()
	b.group.Wait()
	b.passed(b.host)
	for _, s := range b.to(b.host) {
		require.Less(b, s.clock, deleted, "a request began after its endpoint was deleted")
	}
	_, err := b.Endpoint(b.Context(), b.workspace, b.id)
	require.ErrorIs(b, err, webhook.ErrNotFound)
	for _, id := range b.ids {
		_, err := b.Delivery(b.Context(), b.workspace, id)
		require.ErrorIs(b, err, webhook.ErrNotFound)
		_, err = b.Attempts(b.Context(), b.workspace, id)
		require.ErrorIs(b, err, webhook.ErrNotFound)
		_, err = b.Retry(b.Context(), b.workspace, id)
		require.ErrorIs(b, err, webhook.ErrNotFound)
	}
	page, err := b.Deliveries(b.Context(), webhook.DeliveryQuery{WorkspaceID: b.workspace})
	require.NoError(b, err)
	require.Empty(b, page.Deliveries)
	a.gone = append(a.gone, b.id)
}

// raceRetry retries while earlier attempts are made and recorded.
func raceRetry(a *arena) {
	b := a.begin()
	id := b.publish(webhook.Event{WorkspaceID: b.workspace}).DeliveryIDs[0]
	var again atomic.Int64
	for range 3 {
		b.group.Go(func() {
			for range 5 {
				switch _, err := b.Retry(context.Background(), b.workspace, id); {
				case err == nil:
					again.Add(1)
				case !errors.Is(err, webhook.ErrPending):
					b.Error(err)
				}
				moment(200)
			}
		})
	}
	b.group.Wait()
	b.until("the last attempt", func() bool {
		d, err := b.Delivery(b.Context(), b.workspace, id)
		require.NoError(b, err)
		return d.Status == webhook.StatusDelivered
	})
	require.Len(b, b.to(b.host), 1+int(again.Load()), "a request for each retry")
	d, err := b.Delivery(b.Context(), b.workspace, id)
	require.NoError(b, err)
	require.Equal(b, 1, d.Attempts)
	require.Equal(b, 1+int(again.Load()), d.TotalAttempts)
}

// raceFiftyRetries retries one delivery from fifty goroutines.
func raceFiftyRetries(a *arena) {
	b := a.begin()
	id := b.publish(webhook.Event{WorkspaceID: b.workspace}).DeliveryIDs[0]
	b.ids = append(b.ids, id)
	b.delivered()
	hold := make(chan struct{}) // until all have their answer
	a.mu.Lock()
	a.hold[b.host] = hold
	a.mu.Unlock()
	var won atomic.Int64
	for range 50 {
		b.group.Go(func() {
			switch _, err := b.Retry(context.Background(), b.workspace, id); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, webhook.ErrPending):
				b.Error(err)
			}
		})
	}
	b.group.Wait()
	require.Equal(b, int64(1), won.Load())
	b.passed("") // a second request would have gone out by now
	b.until("the request", func() bool { return len(b.to(b.host)) == 2 })
	close(hold)
	b.until("its end", func() bool {
		d, err := b.Delivery(b.Context(), b.workspace, id)
		require.NoError(b, err)
		return d.Status == webhook.StatusDelivered
	})
	require.Len(b, b.to(b.host), 2)
}

// raceStop stops the Dispatcher, and starts it again.
func raceStop(a *arena) {
	b := a.begin()
	if a.round%2 == 0 { // so that there is something to wait for, or to cut
		a.mu.Lock()
		a.hold[b.host] = make(chan struct{})
		time.AfterFunc(rand.N(4*time.Millisecond), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			close(a.hold[b.host])
			delete(a.hold, b.host)
		})
		a.mu.Unlock()
	}
	b.publishing()
	moment(600)
	b.stop() // asks that Run returns nil
	stopped := b.tick()
	b.group.Wait()
	a.mu.Lock()
	require.Zero(b, a.open[b.host], "requests that outlived Run")
	a.mu.Unlock()
	again := b.tick()
	b.run()
	b.delivered()
	for _, s := range b.to(b.host) {
		require.False(b, stopped < s.clock && s.clock < again, "a request began while nothing ran")
	}
	for _, id := range b.ids {
		d, err := b.Delivery(b.Context(), b.workspace, id)
		require.NoError(b, err)
		require.Equal(b, 1, d.Attempts)
		require.Equal(b, 0, d.Interruptions)
	}
}

// end asks that nobody complained, and that nothing is left of what was deleted.
func (a *arena) end() {
	a.passed("")
	require.NoError(a, a.Maintain(a.Context()))
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(a, a.errors)
	if len(a.gone) == 0 {
		require.Zero(a, a.stale, "outcomes dropped")
	}
	if a.rows == nil {
		return
	}
	for _, id := range a.gone {
		for table, column := range map[string]string{
			"webhook_deliveries": "endpoint_id", "webhook_lanes": "endpoint_id", "webhook_subscriptions": "endpoint_id",
		} {
			require.Zero(a, a.count("SELECT count(*) FROM "+table+" WHERE "+column+" = ?", id), "rows of %s", table)
		}
	}
	require.Zero(a, a.count(`SELECT count(*) FROM webhook_attempts WHERE delivery_id NOT IN (SELECT id FROM webhook_deliveries)`))
	require.Zero(a, a.count(`SELECT count(*) FROM webhook_events WHERE seq NOT IN (SELECT event_seq FROM webhook_deliveries)`))
	require.Zero(a, a.count(`SELECT count(*) FROM webhook_deliveries WHERE event_seq NOT IN (SELECT seq FROM webhook_events)`))
}

func (a *arena) count(query string, args ...any) (n int) {
	require.NoError(a, a.rows.QueryRow(query, args...).Scan(&n))
	return n
}
