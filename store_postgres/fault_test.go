package postgresstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// cutter is a way to the server that can be cut at a chosen message.
type cutter struct {
	listener net.Listener
	target   string
	// at is what a client sends when its connection is cut; answered says that the
	// server gets it, and only its answer is lost. Once, then it is nil.
	mu       sync.Mutex
	at       []byte
	answered bool
	cuts     int
}

func newCutter(t testing.TB) (*cutter, string) {
	t.Helper()
	config, err := pgx.ParseConfig(serverURL(t))
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{listener: l, target: net.JoinHostPort(config.Host, fmt.Sprint(config.Port))}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	url := strings.Replace(serverURL(t), fmt.Sprintf("%s:%d", config.Host, config.Port), l.Addr().String(), 1)
	require.NotEqual(t, serverURL(t), url)
	return c, url
}

func (c *cutter) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var deaf atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if n > 0 && deaf.Load() { // the answer that is lost
				_ = client.Close()
				return
			}
			if n > 0 {
				_, _ = client.Write(buffer[:n])
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if n > 0 {
			cut, answered := c.meets(buffer[:n])
			if cut && !answered {
				return
			}
			if cut {
				deaf.Store(true)
			}
			_, _ = server.Write(buffer[:n])
			if cut {
				<-done
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *cutter) meets(sent []byte) (cut, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil || !bytes.Contains(sent, c.at) {
		return false, false
	}
	c.at = nil
	c.cuts++
	return true, c.answered
}

func (c *cutter) cut(at string, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.answered = []byte(at), answered
}

// A commit whose answer is lost may have taken effect. Published again with its
// idempotency key, there is one event.
func TestTheAnswerToACommitIsLost(t *testing.T) {
	c, url := newCutter(t)
	st := openURL(t, url, Options{})
	createEndpoint(t, st)
	for i, reached := range []bool{true, false} {
		ev := event(fmt.Sprint("evt_", i))
		ev.IdempotencyKey = fmt.Sprint("key ", i)
		p := store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{ev}}
		c.cut("COMMIT\x00", reached) // as ISOLATION LEVEL READ COMMITTED is sent, too
		_, err := st.Publish(t.Context(), p)
		require.ErrorIs(t, err, store.ErrOutcomeUnknown)
		p.Events[0].ID = fmt.Sprint("evt_again_", i)
		// The server may still be committing; then this waits for it.
		r, err := st.Publish(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, reached, r.Receipts[0].Repeat)
		require.Len(t, listed(t, st), i+1)
	}
	require.Equal(t, 2, c.cuts)
}

// A connection that is lost before the commit costs the call nothing but time.
func TestAConnectionIsLostBeforeTheCommit(t *testing.T) {
	c, url := newCutter(t)
	st := openURL(t, url, Options{})
	createEndpoint(t, st)
	mustPublish(t, st, "evt_0") // statements are prepared
	for i, answered := range []bool{true, false} {
		c.cut("\x00\x00\x00", answered) // whatever comes next
		mustPublish(t, st, fmt.Sprint("evt_more_", i))
		c.cut("\x00\x00\x00", answered)
		_, err := st.Claim(t.Context(), room(int64(i+1), time.UnixMilli(1000), 1))
		require.NoError(t, err)
	}
	require.Equal(t, 4, c.cuts)
	require.Len(t, listed(t, st), 3)
}

// Calls that end while the server keeps them waiting stored nothing.
func TestACallIsGivenUpBeforeItsCommit(t *testing.T) {
	st, pool := host(t)
	createEndpoint(t, st)
	keyed := event("evt_1")
	keyed.OrderingKey = "key"
	tx := begin(t, st, pool, pgx.TxOptions{})
	_, err := st.Tx(tx).Publish(t.Context(), store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{keyed}})
	require.NoError(t, err)
	keyed.ID = "evt_2"
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = st.Publish(ctx, store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{keyed}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{"evt_1"}, listed(t, st))
}

// Transactions that meet in a circle, and those that the server ends, are tried
// again.
func TestWhatMayPassIsTriedAgain(t *testing.T) {
	st := openNew(t)
	for _, sqlstate := range []string{codeSerialization, codeDeadlock, codeAdminShutdown, codeLockNotAvailable, "08006"} {
		tries := 0
		require.NoError(t, st.write(t.Context(), "test", func(tx *transaction) error {
			tries++
			tx.queue(`SELECT 1`)
			if tries < 3 {
				tx.queue(`DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '` + sqlstate + `'; END$$`)
			}
			return tx.send()
		}), sqlstate)
		require.Equal(t, 3, tries, sqlstate)
	}
	for _, sqlstate := range []string{"23505", "57014", "42601"} {
		tries := 0
		err := st.write(t.Context(), "test", func(tx *transaction) error {
			tries++
			tx.queue(`DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '` + sqlstate + `'; END$$`)
			return tx.send()
		})
		require.Equal(t, sqlstate, code(err))
		require.Equal(t, 1, tries, sqlstate)
	}
	// Its own connection, in the middle of a transaction.
	tries := 0
	require.NoError(t, st.write(t.Context(), "test", func(tx *transaction) error {
		tries++
		if tries == 1 {
			tx.queue(`SELECT pg_terminate_backend(pg_backend_pid())`)
		}
		return tx.send()
	}))
	require.Equal(t, 2, tries)
	begun := time.Now()
	err := st.write(t.Context(), "test", func(tx *transaction) error {
		tx.queue(`DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$`)
		return tx.send()
	})
	require.Equal(t, codeSerialization, code(err), "what never passes ends")
	require.Less(t, time.Since(begun), time.Minute)
	panicked := st.write(t.Context(), "test", func(*transaction) error { panic("no") })
	require.ErrorContains(t, panicked, "panic: no")
}

// Publishes that wait for a transaction of the host's leave connections to the
// scheduler, however many they are.
func TestWaitingPublishesLeaveConnections(t *testing.T) {
	st, pool := host(t)
	createEndpoint(t, st)
	mustPublish(t, st, "evt_0")
	keyed := event("evt_host")
	keyed.IdempotencyKey = "taken"
	p := store.PublishParams{Now: time.UnixMilli(1000), Events: []store.NewEvent{keyed}}
	tx := begin(t, st, pool, pgx.TxOptions{})
	_, err := st.Tx(tx).Publish(t.Context(), p)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 40 { // of ten connections
		all.Go(func() {
			if _, err := st.Publish(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return st.pool.Stat().AcquiredConns() == 8 }, time.Minute, time.Millisecond)
	r, err := st.Claim(briefly(t), room(1, time.UnixMilli(1000), 5))
	require.NoError(t, err)
	require.Len(t, r.Leases, 1)
	given, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = st.Publish(given, p)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, tx.Commit(t.Context()))
	all.Wait()
	require.Len(t, listed(t, st), 2)
}

// A server that is not there is named, also where the context ended first.
func TestAServerThatIsNotThere(t *testing.T) {
	url := fmt.Sprintf("postgres://nobody:hunter2@127.0.0.1:%d/none?sslmode=disable", freePort(t))
	_, err := Open(t.Context(), url)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	st := &Store{pool: pool, schema: newSchema("none")}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = st.Probe(ctx, store.ProbeParams{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "connect")
	require.NotContains(t, err.Error(), "hunter2")
}

// receiver counts what it gets.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  map[string]int // by delivery id
	from map[string]int // by the process that sent
}

func newReceiver(t testing.TB, handle http.HandlerFunc) *receiver {
	r := &receiver{got: map[string]int{}, from: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		r.mu.Lock()
		r.got[req.Header.Get("X-Webhook-Delivery")]++
		r.from[req.Header.Get("X-Process")]++
		r.mu.Unlock()
		if handle != nil {
			handle(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) counts() (deliveries int, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.got {
		most = max(most, n)
	}
	return len(r.got), most
}

// dispatch runs a Dispatcher on a store until the test ends.
func dispatch(t testing.TB, st store.Store, config webhook.Config) (d *webhook.Dispatcher, stop func()) {
	t.Helper()
	config.Egress.AllowLoopback = true
	config.Logger = slog.New(slog.DiscardHandler)
	d, err := webhook.New(st, config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return d, stop
}

func endpointTo(t testing.TB, d *webhook.Dispatcher, url string) webhook.Endpoint {
	t.Helper()
	e, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 1, URL: url, Events: []string{"link.*"}})
	require.NoError(t, err)
	return e
}

// The server crashes twice while events are published and delivered. All that was
// confirmed is delivered in the end.
func TestTheServerCrashes(t *testing.T) {
	srv := ownServer(t)
	pool := openPool(t, srv.url(""))
	require.NoError(t, Migrate(t.Context(), pool))
	st, err := New(t.Context(), pool)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	r := newReceiver(t, nil)
	d, stop := dispatch(t, st, webhook.Config{Timeout: 5 * time.Second, Lease: 15 * time.Second, Poll: 100 * time.Millisecond})
	endpointTo(t, d, r.URL)

	const publishers, each = 4, 60
	var crashed atomic.Int32
	var all sync.WaitGroup
	var mu sync.Mutex
	confirmed := map[int64]bool{}
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				e := webhook.Event{
					Type: "link.created", WorkspaceID: 1, Data: map[string]int{"id": i}, IdempotencyKey: fmt.Sprint(p, " ", i),
					OrderingKey: []string{"", fmt.Sprint(p)}[i%2], Time: time.UnixMilli(1),
				}
				for {
					receipt, err := d.Publish(t.Context(), e)
					if err == nil {
						mu.Lock()
						confirmed[receipt.DeliveryIDs[0]] = true
						mu.Unlock()
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				// Over both crashes.
				for crashed.Load() < int32(2*i/each) {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	require.Eventually(t, func() bool { n, _ := r.counts(); return n > 0 }, time.Minute, 5*time.Millisecond)
	for range 2 {
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, srv.crash())
		crashed.Add(1)
	}
	all.Wait()
	require.Len(t, confirmed, publishers*each, "an idempotency key is one event")
	require.Eventually(t, func() bool {
		list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
		if err != nil || len(list) != publishers*each {
			return false
		}
		for _, delivery := range list {
			if delivery.Status != webhook.StatusDelivered {
				return false
			}
		}
		return true
	}, 2*time.Minute, 200*time.Millisecond, "not all became delivered")
	stop()
	n, _ := r.counts()
	require.Equal(t, publishers*each, n, "deliveries that reached the receiver")
}

// While receivers keep requests waiting, no transaction is open.
func TestNoTransactionIsOpenDuringRequests(t *testing.T) {
	name := newSchemaName(t, serverURL(t))
	st := openURL(t, with(serverURL(t), "application_name="+name), Options{})
	hang := make(chan struct{})
	var open atomic.Int32
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		open.Add(1)
		select {
		case <-hang:
		case <-req.Context().Done():
		}
	})
	d, stop := dispatch(t, st, webhook.Config{Grace: time.Second, Poll: 20 * time.Millisecond})
	for range 3 {
		endpointTo(t, d, r.URL)
	}
	for i := range 5 {
		_, err := d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 1, Data: map[string]int{"id": i}})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return open.Load() >= 3 }, time.Minute, 5*time.Millisecond)
	pool := openPool(t, serverURL(t))
	seen := 0
	for range 200 {
		var n, idle int
		// One that is between two statements has been there for a moment only.
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%'
			AND state_change < clock_timestamp() - interval '1 s') FROM pg_stat_activity WHERE application_name = $1`, name).Scan(&n, &idle))
		require.Zero(t, idle, "connections idle in a transaction")
		seen = max(seen, n)
		time.Sleep(5 * time.Millisecond)
	}
	require.Positive(t, seen, "connections of the store")
	close(hang)
	stop()
}

// With a Watch, what another process publishes is delivered long before a poll.
func TestAnotherProcessWakesTheDispatcher(t *testing.T) {
	st := openNew(t)
	other, err := Options{Schema: st.schema.name}.Open(t.Context(), serverURL(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	r := newReceiver(t, nil)
	d, _ := dispatch(t, st, webhook.Config{Poll: time.Hour})
	endpointTo(t, d, r.URL)
	publisher, err := webhook.New(other, webhook.Config{})
	require.NoError(t, err)
	for i := range 20 {
		_, err := publisher.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 1, Data: map[string]int{"id": i}})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { n, _ := r.counts(); return n == 20 }, time.Minute, 5*time.Millisecond)

	pool := openPool(t, serverURL(t))
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := publisher.PublishTx(t.Context(), other.Tx(tx), webhook.Event{
			Type: "link.created", WorkspaceID: 1, Data: map[string]int{"id": 1}, OrderingKey: "key",
		})
		return err
	}))
	require.Eventually(t, func() bool { n, _ := r.counts(); return n == 21 }, time.Minute, 5*time.Millisecond)
}

// The server's clock is that of this machine, and a Dispatcher on it runs.
func TestTheServersClock(t *testing.T) {
	st := openNew(t)
	before := time.Now()
	now, err := st.Now(t.Context())
	require.NoError(t, err)
	require.False(t, now.Before(before.Add(-time.Second)) || now.After(time.Now().Add(time.Second)), "%v", now)
	require.NoError(t, st.Close())
	_, err = st.Now(t.Context())
	require.ErrorIs(t, err, store.ErrClosed)
	require.False(t, errors.Is(err, context.Canceled))
}
