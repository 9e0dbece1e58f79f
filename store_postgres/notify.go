package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/elido-app/webhook/store"
)

const (
	// notifyEvery is the shortest time between two notifications of one store.
	// While a transaction that notifies commits, no other one can.
	notifyEvery = 20 * time.Millisecond
	// notifyTime is how long one may take.
	notifyTime = 5 * time.Second
	// aliveEvery is how often a connection that listens is tried.
	aliveEvery = 30 * time.Second
)

const notify = `SELECT pg_notify($1::text, '')`

// channel is the name that processes listen to and notify. It is this schema's.
func (in schema) channel() string {
	name := "webhook_" + in.name
	if len(name) < 64 {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(in.name))
	return fmt.Sprintf("webhook_%x", h.Sum64())
}

// notifier tells other processes that there is work. A burst leads to one
// notification when it begins and one after its end, so that the last of it does
// not wait for a poll.
type notifier struct {
	mu      sync.Mutex
	timer   *time.Timer // set: one is to come
	last    time.Time
	stopped bool
	sending sync.WaitGroup
}

// notify has other processes look for work, now or a moment later.
func (s *Store) notify() {
	n := &s.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.silent || n.stopped || n.timer != nil {
		return
	}
	n.timer = time.AfterFunc(max(notifyEvery-time.Since(n.last), 0), func() {
		n.mu.Lock()
		n.timer = nil
		n.last = time.Now()
		if n.stopped {
			n.mu.Unlock()
			return
		}
		n.sending.Add(1)
		n.mu.Unlock()
		defer n.sending.Done()
		ctx, cancel := context.WithTimeout(s.life, notifyTime)
		defer cancel()
		// If it fails, polling finds the work.
		_ = s.read(ctx, "notify", func(tx *transaction) error {
			tx.queue(notify, s.schema.channel())
			return nil
		})
	})
}

// stop ends the notifier after what it is sending.
func (n *notifier) stop() {
	n.mu.Lock()
	n.stopped = true
	if n.timer != nil && n.timer.Stop() {
		n.timer = nil
	}
	n.mu.Unlock()
	n.sending.Wait()
}

// Watch implements store.Watcher with LISTEN, on a connection of its own beside
// the pool. It returns an error that wraps errors.ErrUnsupported if the Options
// rule it out.
func (s *Store) Watch(ctx context.Context, wake func()) error {
	if s.silent || s.pooled {
		return fmt.Errorf("postgresstore: watch: %w by the store's Options", errors.ErrUnsupported)
	}
	if err := s.checkOpen(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := s.listen(ctx, wake)
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return describe("watch", classify(err))
}

func (s *Store) listen(ctx context.Context, wake func()) error {
	pool := s.pool.Config()
	config := pool.ConnConfig
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{s.schema.channel()}.Sanitize()); err != nil {
		return err
	}
	for {
		wake()
		for {
			heard, err := wait(ctx, conn)
			if err != nil {
				return err
			}
			if heard {
				break
			}
			if err := alive(ctx, conn); err != nil {
				return err
			}
		}
	}
}

// wait waits for a notification, but not for ever.
func wait(ctx context.Context, conn *pgx.Conn) (heard bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, aliveEvery)
	defer cancel()
	_, err = conn.WaitForNotification(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && !conn.IsClosed() {
		return false, nil
	}
	return err == nil, err
}

// alive makes sure that the server is still there.
func alive(ctx context.Context, conn *pgx.Conn) error {
	bounded, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	return conn.Ping(bounded)
}
