package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Idle: what a dispatcher on SQLite does when there is nothing to do: after some
// deliveries, and some seconds to settle.

type idleSpec struct {
	Dir      string        `json:"dir"`
	Receiver addresses     `json:"receiver"`
	Settle   time.Duration `json:"settle"`
	For      time.Duration `json:"for"`
}

type idleResult struct {
	Reads   int64         `json:"reads"`   // store calls that read
	Writes  int64         `json:"writes"`  // store calls that take the write lock
	Changes int64         `json:"changes"` // of the database, as another connection sees it
	Touched bool          `json:"touched"` // whether a file has another time or size
	CPU     time.Duration `json:"cpu"`
}

func idleChild(ctx context.Context, spec idleSpec) (r idleResult, err error) {
	const endpoints, events = 10, 100
	sys, err := openOurs(ctx, setup{Name: "sqlite", Dir: spec.Dir, URLs: spec.Receiver.urls("e", endpoints)})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close()) }()
	o := sys.(*ours)
	if _, err := spec.Receiver.reset(ctx, endpoints*events); err != nil {
		return r, err
	}
	for range events {
		if err := o.publish(ctx, []json.RawMessage{newData()}); err != nil {
			return r, err
		}
	}
	if _, err := o.recorded(ctx, endpoints*events); err != nil {
		return r, err
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(spec.Dir, "webhook.db")+"?mode=ro")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx) // data_version is one connection's
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	version := func() (v int64, err error) {
		err = conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v)
		return v, err
	}
	files := func() (s string) {
		for _, suffix := range []string{"", "-wal"} {
			info, err := os.Stat(filepath.Join(spec.Dir, "webhook.db"+suffix))
			if err != nil {
				return err.Error()
			}
			s += fmt.Sprint(info.Size(), info.ModTime().UnixNano(), ";")
		}
		return s
	}
	time.Sleep(spec.Settle)

	v0, err := version()
	if err != nil {
		return r, err
	}
	files0 := files()
	reads, writes := o.store.reads.Load(), o.store.writes.Load()
	used := cpu()
	time.Sleep(spec.For)
	r.CPU = cpu() - used
	r.Reads, r.Writes = o.store.reads.Load()-reads, o.store.writes.Load()-writes
	r.Touched = files() != files0
	v1, err := version()
	r.Changes = v1 - v0
	return r, err
}

func (b *bench) idle(ctx context.Context) error {
	spec := idleSpec{Settle: 3 * time.Second, For: 20 * time.Second}
	if b.quick {
		spec = idleSpec{Settle: 500 * time.Millisecond, For: 4 * time.Second}
	}
	b.title("Idle", "a dispatcher on SQLite with nothing to do, for %v", spec.For)
	recv, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer recv.stop()
	dir, remove, err := b.tempDir()
	if err != nil {
		return err
	}
	defer remove()
	spec.Dir, spec.Receiver = dir, recv.addresses
	b.progress("idle for %v", spec.For)
	r, err := spawn[idleResult](ctx, b.limit(time.Minute), "idle", spec)
	if err != nil {
		return err
	}
	seconds := spec.For.Seconds()
	t := b.table("", "reads", "writes", "changes of the database", "files touched", "CPU ms")
	t.row("SQLite", r.Reads, r.Writes, r.Changes, r.Touched, fmt.Sprintf("%.1f", ms(r.CPU)))
	t.print()
	writes := float64(r.Writes + r.Changes)
	if r.Touched {
		writes = max(writes, 1)
	}
	b.goal("idle-writes", writes, "<=", 0)
	b.goal("idle-reads-per-second", float64(r.Reads)/seconds, "<=", 0.6)
	b.goal("idle-cpu-ms-per-second", ms(r.CPU)/seconds, "<=", 1)
	return nil
}
