package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// A system is one contender: something that stores events and delivers them.
type system interface {
	// publish stores one event for each element of a batch; each goes to every
	// endpoint. It is called by one goroutine.
	publish(ctx context.Context, batch []json.RawMessage) error
	// recorded waits until n deliveries, counted from the beginning, are not
	// only made but also recorded as done, and returns when the last was.
	recorded(ctx context.Context, n int) (time.Time, error)
	// databaseCPU is what the database server has used, if there is one.
	databaseCPU() time.Duration
	close() error
}

// setup is what a system is opened with.
type setup struct {
	Name        string   `json:"name"`
	Dir         string   `json:"dir"` // for its files
	URLs        []string `json:"urls"`
	MaxInFlight int      `json:"max_in_flight,omitempty"` // zero: the default
	// Soonest asks for the settings with which a lone event is delivered soonest
	// rather than most per second, where a peer has such settings.
	Soonest bool `json:"soonest,omitempty"`

	Postgres string `json:"postgres"`
	Redis    string `json:"redis"`
}

// systems are the contenders but for the bare loop.
var systems = map[string]func(context.Context, setup) (system, error){
	"memory": openOurs,
	"sqlite": openOurs,
	// "postgres" belongs here as soon as there is a store for it: openStore
	// needs one more case, and nothing else changes.
	"river-sqlite":   openRiverSQLite,
	"river-postgres": openRiverPostgres,
	"goqite":         openGoqite,
	"asynq":          openAsynq,
}

func open(ctx context.Context, s setup) (system, error) {
	f, ok := systems[s.Name]
	if !ok {
		return nil, fmt.Errorf("no such contender: %q", s.Name)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	return f(ctx, s)
}

// pollDone asks done every so often until it is true.
func pollDone(ctx context.Context, every time.Duration, done func() (bool, error)) (time.Time, error) {
	for {
		ok, err := done()
		if err != nil || ok {
			return time.Now(), err
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("not all was recorded: %w", ctx.Err())
		case <-time.After(every):
		}
	}
}
