package main

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"maragu.dev/goqite"
)

// goqite (maragu.dev/goqite): one message for each delivery; workers receive,
// sign, POST and delete. It keeps no record of what was delivered. See README.md
// for the settings and why they are its best.
type goqiteSystem struct {
	db      *sql.DB
	queue   *goqite.Queue
	poster  *poster
	deleted atomic.Int64
	at      atomic.Int64 // when the last was deleted
	stop    context.CancelFunc
	workers sync.WaitGroup
	failed  chan error
}

//go:embed goqite.sql
var goqiteSchema string

// goqiteWorkers is how many messages are under way at once. From 4 to 64 it makes
// no difference that could be measured: what takes the time is the transaction
// for each message.
const goqiteWorkers = 16

func openGoqite(ctx context.Context, s setup) (system, error) {
	// The same durability as ours. One connection: SQLite has one writer, and
	// everything goqite does is a write, so more would only wait for each other
	// in SQLite's busy handler, which sleeps.
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(s.Dir, "goqite.db")+
		"?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=10000&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
		return nil, err
	}
	g := &goqiteSystem{
		db:     db,
		queue:  goqite.New(goqite.NewOpts{DB: db, Name: "deliver", Timeout: time.Minute}),
		poster: newPoster(s.URLs, goqiteWorkers),
		failed: make(chan error, 1),
	}
	ctx, g.stop = context.WithCancel(ctx)
	for range goqiteWorkers {
		g.workers.Go(func() {
			for ctx.Err() == nil {
				if err := g.work(ctx); err != nil && ctx.Err() == nil {
					select {
					case g.failed <- err:
					default:
					}
					return
				}
			}
		})
	}
	return g, nil
}

// work makes one delivery. A message is the endpoint's number, a line feed and
// the body.
func (g *goqiteSystem) work(ctx context.Context) error {
	m, err := g.queue.ReceiveAndWait(ctx, time.Millisecond)
	if err != nil {
		return err
	}
	number, body, _ := bytes.Cut(m.Body, []byte("\n"))
	endpoint, err := strconv.Atoi(string(number))
	if err != nil {
		return err
	}
	if err := g.poster.post(endpoint, body, string(m.ID)); err != nil {
		return err
	}
	if err := g.queue.Delete(context.WithoutCancel(ctx), m.ID); err != nil {
		return err
	}
	g.deleted.Add(1)
	g.at.Store(time.Now().UnixNano())
	return nil
}

func (g *goqiteSystem) publish(ctx context.Context, batch []json.RawMessage) (err error) {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	for _, data := range batch {
		body, err := envelope(data)
		if err != nil {
			return err
		}
		for e := range g.poster.urls {
			message := append(strconv.AppendInt(nil, int64(e), 10), '\n')
			if err := g.queue.SendTx(ctx, tx, goqite.Message{Body: append(message, body...)}); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

func (g *goqiteSystem) recorded(ctx context.Context, n int) (time.Time, error) {
	_, err := pollDone(ctx, time.Millisecond, func() (bool, error) {
		select {
		case err := <-g.failed:
			return false, err
		default:
			return g.deleted.Load() >= int64(n), nil
		}
	})
	return time.Unix(0, g.at.Load()), err
}

func (g *goqiteSystem) databaseCPU() time.Duration { return 0 } // SQLite runs in this process

func (g *goqiteSystem) close() error {
	g.stop()
	g.workers.Wait()
	g.poster.close()
	return g.db.Close()
}
