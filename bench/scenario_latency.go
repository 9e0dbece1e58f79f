package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Latency: one event is published while nothing else goes on; what counts is the
// time from calling publish to the arrival at the receiver. Publisher and
// dispatcher are one process.

type latencySpec struct {
	setup
	Receiver  addresses `json:"receiver"`
	Publishes int       `json:"publishes"`
}

type latencyResult struct {
	Delays []time.Duration `json:"delays"`
}

func latencyChild(ctx context.Context, spec latencySpec) (r latencyResult, err error) {
	sys, err := open(ctx, spec.setup)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close()) }()
	const warm = 5
	for i := range warm + spec.Publishes {
		if i == 0 || i == warm {
			n := warm
			if i == warm {
				n = spec.Publishes
			}
			if _, err := spec.Receiver.reset(ctx, n); err != nil {
				return r, err
			}
		}
		if err := sys.publish(ctx, []json.RawMessage{newData()}); err != nil {
			return r, err
		}
		if i == warm-1 {
			if _, err := spec.Receiver.wait(ctx); err != nil {
				return r, err
			}
		}
		// Idle again. The pauses differ, so that no poller is always met at the
		// same place.
		time.Sleep(time.Duration(25+i*7%20) * time.Millisecond)
	}
	if _, err := spec.Receiver.wait(ctx); err != nil {
		return r, err
	}
	if _, err := sys.recorded(ctx, warm+spec.Publishes); err != nil {
		return r, err
	}
	if err := spec.Receiver.check(ctx); err != nil {
		return r, err
	}
	r.Delays, err = spec.Receiver.delays(ctx)
	if err == nil && len(r.Delays) != spec.Publishes {
		err = fmt.Errorf("%d arrivals of %d publishes", len(r.Delays), spec.Publishes)
	}
	return r, err
}

func (b *bench) latency(ctx context.Context) error {
	publishes, rounds := 200, 2
	if b.quick {
		publishes, rounds = 30, 1
	}
	b.title("Latency", "from one publish, with nothing else going on, to its arrival; %d publishes in %d rounds", publishes*rounds, rounds)
	list := []struct{ label, system string }{
		{"memory", "memory"}, {"SQLite", "sqlite"}, {"goqite, SQLite", "goqite"},
		{"River, SQLite", "river-sqlite"}, {"River, Postgres", "river-postgres"},
	}
	delays := map[string][]time.Duration{}
	for range rounds {
		for _, c := range list {
			b.progress("%s", c.label)
			r, err := b.runLatency(ctx, c.system, publishes)
			var s *skip
			switch {
			case errors.As(err, &s):
				b.note("%s skipped: %s", c.label, s.why)
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				b.fail("%s: %v", c.label, err)
			default:
				delays[c.system] = append(delays[c.system], r.Delays...)
			}
		}
	}
	t := b.table("", "p50 ms", "p99 ms", "min ms", "max ms")
	p50, p99 := map[string]float64{}, map[string]float64{}
	for _, c := range list {
		d := delays[c.system]
		if len(d) == 0 {
			continue
		}
		slices.Sort(d)
		p50[c.system], p99[c.system] = ms(quantile(d, 0.50)), ms(quantile(d, 0.99))
		t.row(c.label, fmt.Sprintf("%.2f", p50[c.system]), fmt.Sprintf("%.2f", p99[c.system]), fmt.Sprintf("%.2f", ms(d[0])), fmt.Sprintf("%.2f", ms(d[len(d)-1])))
	}
	t.print()
	goal := func(name string, value map[string]float64, system string, most float64) {
		if v, ok := value[system]; ok {
			b.goal(name, v, "<=", most)
		}
	}
	goal("latency-memory-p50-ms", p50, "memory", 0.5)
	goal("latency-memory-p99-ms", p99, "memory", 1)
	goal("latency-sqlite-p50-ms", p50, "sqlite", 1.2)
	goal("latency-sqlite-p99-ms", p99, "sqlite", 3)
	for _, peer := range []string{"goqite", "river-sqlite", "river-postgres"} {
		if p50[peer] > 0 && p50["sqlite"] > 0 {
			b.goal("latency-sqlite-p50-vs-"+peer, p50["sqlite"]/p50[peer], "<=", 1)
			b.goal("latency-sqlite-p99-vs-"+peer, p99["sqlite"]/p99[peer], "<=", 1)
		}
	}
	return nil
}

func (b *bench) runLatency(ctx context.Context, system string, publishes int) (latencyResult, error) {
	recv, err := startReceiver(ctx)
	if err != nil {
		return latencyResult{}, err
	}
	defer recv.stop()
	dir, remove, err := b.tempDir()
	if err != nil {
		return latencyResult{}, err
	}
	defer remove()
	return spawn[latencyResult](ctx, b.limit(time.Minute), "latency", latencySpec{
		setup:    setup{Name: system, Dir: dir, URLs: recv.urls("t", 1), Soonest: true, Postgres: b.postgres, Redis: b.redis},
		Receiver: recv.addresses, Publishes: publishes,
	})
}
